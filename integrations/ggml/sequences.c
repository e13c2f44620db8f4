/* What servers do with a cache, on Heed: sequences FILE.gguf...
 *
 * For each model: four sequences side by side, in caches of their own and in one that they share; a
 * cache that is saved, restored in another context and continued; drafts of which some are taken
 * back (speculative decoding). Each of these has to give the logits of the same tokens decoded as
 * one sequence alone, as nearly as with ggml alone or to 1e-10. A cache whose oldest part is
 * removed and whose rest is moved down (context shift), and embeddings, causal and not, are
 * compared with ggml alone, to 1e-6.
 *
 * Prints a line for each model and kind. Ends with 1 where they differ or nothing ran on Heed.
 */
#include "play.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 4, PROMPT = 40, MORE = 16, LENGTH = PROMPT + MORE, CONTEXT = 256 };

#define NMSE_SPLIT 1e-10
#define NMSE_GGML 1e-6

typedef struct job {
    struct llama_model *model;
    int32_t n_vocab;
    int32_t token[SEQUENCES][LENGTH];
} job;

static size_t numbers(const job *j, int32_t n)
{
    return (size_t)n * (size_t)j->n_vocab;
}

static play_token at(const job *j, int32_t sequence, int32_t position)
{
    return (play_token){j->token[sequence][position], position, sequence};
}

/* Decodes tokens [first, end) of token stream `of` as sequence 0, in one batch or one by one. */
static int feed(struct llama_context *c, const job *j, int32_t of, int32_t first, int32_t end,
                int32_t step, float *logits)
{
    play_token batch[LENGTH];
    int failed = 0;
    for (int32_t from = first; !failed && from < end; from += step) {
        const int32_t n = from + step < end ? step : end - from;
        for (int32_t i = 0; i < n; i++) {
            batch[i] = at(j, of, from + i);
            batch[i].sequence = 0;
        }
        failed = play_decode(c, batch, n, logits ? logits + numbers(j, from) : NULL);
    }
    return failed;
}

/* ---- kinds: each writes logits [LENGTH, n_vocab] for each sequence that it has --------------- */

/* Each sequence by itself, with which the other kinds are compared. */
static int alone(const job *j, int32_t sequences, float *logits)
{
    int failed = 0;
    for (int32_t s = 0; s < sequences && !failed; s++) {
        struct llama_context *c = llama_init_from_model(j->model, play_params(CONTEXT, PROMPT));
        float *to = logits + numbers(j, s * LENGTH);
        failed = !c || feed(c, j, s, 0, PROMPT, PROMPT, to) || feed(c, j, s, PROMPT, LENGTH, 1, to);
        llama_free(c);
    }
    return failed;
}

/* The prompts one after the other, a part of each in each batch; then a token of each at a time. */
static int together(const job *j, int shared, float *logits)
{
    struct llama_context_params params = play_params(SEQUENCES * CONTEXT, PROMPT);
    params.n_seq_max = SEQUENCES;
    params.kv_unified = shared;
    struct llama_context *c = llama_init_from_model(j->model, params);
    float *some = calloc(numbers(j, PROMPT), sizeof *some);
    int failed = !c || !some;
    for (int32_t from = 0, n; !failed && from < LENGTH; from += n) {
        play_token batch[PROMPT];
        n = from < PROMPT ? PROMPT / SEQUENCES : 1;
        for (int32_t i = 0; i < SEQUENCES * n; i++)
            batch[i] = at(j, i / n, from + i % n);
        failed = play_decode(c, batch, SEQUENCES * n, some);
        for (int32_t i = 0; i < SEQUENCES * n; i++)
            memcpy(logits + numbers(j, i / n * LENGTH + from + i % n), some + numbers(j, i),
                   numbers(j, 1) * sizeof *some);
    }
    free(some);
    llama_free(c);
    return failed;
}

static int side_by_side(const job *j, float *logits)
{
    return together(j, 0, logits);
}

static int in_one_cache(const job *j, float *logits)
{
    return together(j, 1, logits);
}

static int restored(const job *j, float *logits)
{
    struct llama_context *a = llama_init_from_model(j->model, play_params(CONTEXT, PROMPT));
    struct llama_context *b = llama_init_from_model(j->model, play_params(CONTEXT, PROMPT));
    int failed = !a || !b || feed(a, j, 0, 0, PROMPT, PROMPT, logits);
    const size_t bytes = failed ? 0 : llama_state_seq_get_size(a, 0);
    uint8_t *state = malloc(bytes + 1);
    failed = failed || !state || llama_state_seq_get_data(a, state, bytes, 0) != bytes ||
             llama_state_seq_set_data(b, state, bytes, 0) != bytes ||
             feed(b, j, 0, PROMPT, LENGTH, 1, logits);
    free(state);
    llama_free(a);
    llama_free(b);
    return failed;
}

/* Batches of two right tokens and three wrong ones, which are taken back. */
static int drafted(const job *j, float *logits)
{
    struct llama_context *c = llama_init_from_model(j->model, play_params(CONTEXT, PROMPT));
    float *some = calloc(numbers(j, 5), sizeof *some);
    int failed = !c || !some || feed(c, j, 0, 0, PROMPT, PROMPT, logits);
    for (int32_t from = PROMPT; !failed && from < LENGTH; from += 2) {
        play_token batch[5];
        for (int32_t i = 0; i < 5; i++) {
            batch[i] = at(j, 0, i < 2 ? from + i : 0);
            batch[i].position = from + i;
        }
        failed = play_decode(c, batch, 5, some) ||
                 !llama_memory_seq_rm(llama_get_memory(c), 0, from + 2, -1);
        memcpy(logits + numbers(j, from), some, numbers(j, 2) * sizeof *some);
    }
    free(some);
    llama_free(c);
    return failed;
}

/* Half of the prompt is removed, the rest moves down. */
static int shifted(const job *j, float *logits)
{
    struct llama_context *c = llama_init_from_model(j->model, play_params(CONTEXT, PROMPT));
    int failed = !c || feed(c, j, 0, 0, PROMPT, PROMPT, logits);
    llama_memory_t memory = failed ? NULL : llama_get_memory(c);
    failed = failed || !llama_memory_can_shift(memory) ||
             !llama_memory_seq_rm(memory, 0, 4, 4 + PROMPT / 2);
    if (!failed)
        llama_memory_seq_add(memory, 0, 4 + PROMPT / 2, -1, -PROMPT / 2);
    for (int32_t from = PROMPT; !failed && from < LENGTH; from++) {
        play_token one = at(j, 0, from);
        one.position -= PROMPT / 2;
        failed = play_decode(c, &one, 1, logits + numbers(j, from));
    }
    llama_free(c);
    return failed;
}

/* The mean of a prompt's last states, of every sequence; causal and not. */
static int embedded(const job *j, float *to)
{
    const size_t n_embd = (size_t)llama_model_n_embd(j->model);
    int failed = 0;
    for (int kind = 0; kind < 2 && !failed; kind++) {
        struct llama_context_params params = play_params(SEQUENCES * CONTEXT, SEQUENCES * PROMPT);
        params.n_seq_max = SEQUENCES;
        params.embeddings = 1;
        params.pooling_type = LLAMA_POOLING_TYPE_MEAN;
        params.attention_type =
            kind ? LLAMA_ATTENTION_TYPE_NON_CAUSAL : LLAMA_ATTENTION_TYPE_CAUSAL;
        struct llama_context *c = llama_init_from_model(j->model, params);
        play_token batch[SEQUENCES * PROMPT];
        for (int32_t i = 0; i < SEQUENCES * PROMPT; i++)
            batch[i] = at(j, i / PROMPT, i % PROMPT);
        failed = !c || play_decode(c, batch, SEQUENCES * PROMPT, NULL);
        for (int32_t s = 0; s < SEQUENCES && !failed; s++, to += n_embd) {
            const float *found = llama_get_embeddings_seq(c, s);
            failed = !found;
            if (found)
                memcpy(to, found, n_embd * sizeof *to);
        }
        llama_free(c);
    }
    return failed;
}

/* ---- judging --------------------------------------------------------------------------------- */

typedef struct kind {
    const char *name;
    int (*run)(const job *j, float *to);
    int32_t sequences; /* whose logits it writes, to be compared with `alone`; 0: with ggml's */
} kind;

static const kind kinds[] = {
    {"four sequences", side_by_side, SEQUENCES},
    {"in one cache", in_one_cache, SEQUENCES},
    {"saved and restored", restored, 1},
    {"drafts taken back", drafted, 1},
    {"context shift", shifted, 0},
    {"embeddings", embedded, 0},
};

/* Arrays [SEQUENCES, LENGTH, n_vocab]: those of `alone` and of the kind, by ggml and by Heed. */
typedef struct rooms {
    float *alone[2], *kind[2];
} rooms;

static int judge(const job *j, const kind *k, const rooms *r, size_t room, play_counter *count)
{
    const size_t n = k->sequences ? numbers(j, k->sequences * LENGTH) : room;
    int failed[2];
    uint64_t done = 0;
    for (int heed = 0; heed < 2; heed++) {
        const uint64_t before = count();
        setenv("HEED_GGML", heed ? "attention" : "off", 1);
        memset(r->kind[heed], 0, room * sizeof(float));
        failed[heed] = k->run(j, r->kind[heed]);
        done = count() - before;
    }
    const double own = play_nmse(r->alone[0], r->kind[0], n);
    const double parted = play_nmse(r->alone[1], r->kind[1], n);
    const double error = play_nmse(r->kind[0], r->kind[1], n);
    const int bad = failed[0] || failed[1] || !done ||
                    !(k->sequences ? parted <= fmax(own, NMSE_SPLIT) : error <= NMSE_GGML);
    if (k->sequences)
        printf("  %-18s %s: %.1e from alone, ggml %.1e; %.1e from ggml\n", k->name,
               bad ? "BAD" : "good", parted, own, error);
    else
        printf("  %-18s %s: %.1e from ggml\n", k->name, bad ? "BAD" : "good", error);
    return bad;
}

static int judge_model(const char *file, play_counter *count)
{
    job j = {.model = llama_model_load_from_file(file, llama_model_default_params())};
    uint32_t state = 12345;
    int bad = 0;
    printf("%s\n", file);
    if (!j.model)
        return 1;
    j.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(j.model));
    for (int i = 0; i < SEQUENCES * LENGTH; i++) {
        state = state * 1664525u + 1013904223u;
        j.token[i / LENGTH][i % LENGTH] = (int32_t)((state >> 8) % (uint32_t)j.n_vocab);
    }
    const size_t embeddings = 2 * SEQUENCES * (size_t)llama_model_n_embd(j.model);
    const size_t logits = numbers(&j, SEQUENCES * LENGTH);
    const size_t room = logits > embeddings ? logits : embeddings;
    float *memory = calloc(4 * room, sizeof(float));
    if (!memory)
        return 1;
    const rooms r = {{memory, memory + room}, {memory + 2 * room, memory + 3 * room}};
    for (int heed = 0; heed < 2 && !bad; heed++) {
        setenv("HEED_GGML", heed ? "attention" : "off", 1);
        bad = alone(&j, SEQUENCES, r.alone[heed]);
    }
    const size_t n = bad ? 0 : sizeof kinds / sizeof *kinds;
    for (size_t i = 0; i < n; i++)
        bad |= judge(&j, &kinds[i], &r, room, count);
    free(memory);
    llama_model_free(j.model);
    return bad;
}

int main(int n, char **file)
{
    play_counters count;
    int bad = !play_begin(&count) || n < 2;
    for (int i = 1; i < n && !bad; i++)
        bad = judge_model(file[i], count.attentions);
    puts(bad ? "BAD" : "all good");
    return bad;
}
