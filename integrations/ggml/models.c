/* Models of many architectures on Heed beside ggml alone: models FILE.gguf...
 *
 * Each model runs with the operations that are served by default, and with all products that Heed
 * can do. Compared with ggml alone are the logits of a batch of random tokens, and those of the
 * tokens that ggml chooses after it, one by one: Heed has to choose the same, except for ties
 * within the difference that ggml's own logits have between batch and token by token. Then the same
 * tokens come one by one in place of the batch: with Heed their logits have to equal the batch's as
 * nearly as with ggml alone, or to 1e-10. This last is not asked of models whose rows see later
 * tokens. Caches are f32. A model whose attention no operation of flash attention computes is
 * reported as skipped; if all are, that is a failure.
 *
 * Prints lines for each model, with the normalised mean squared errors. Ends with 1 if one is bad.
 */
#include "play.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROMPT = 96, MORE = 24 };

/* Limits: for Heed against ggml, whose tables of GELU are f16; for batch against token by token. */
#define NMSE_GGML 1e-6
#define NMSE_SPLIT 1e-10
#define NMSE_CAUSAL 1e-4 /* above this for ggml alone, rows see later tokens */

typedef struct answer {
    float *logits; /* [PROMPT + MORE, n_vocab] */
    int32_t token[PROMPT + MORE];
} answer;

/* Decodes tokens [at, at + n) of a sequence. */
static int decode(struct llama_context *context, answer *to, int32_t at, int32_t n, int32_t n_vocab)
{
    play_token batch[PROMPT];
    for (int32_t i = 0; i < n; i++)
        batch[i] = (play_token){to->token[at + i], at + i, 0};
    return play_decode(context, batch, n, to->logits + (size_t)at * (size_t)n_vocab);
}

/* Decodes the prompt, `step` tokens at a time, and MORE tokens behind it, which are those of
 * `given` if that is not NULL. */
static int ask(struct llama_model *model, int step, const answer *given, answer *to)
{
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_context *context = llama_init_from_model(model, play_params(256, PROMPT));
    int failed = !context;
    uint32_t state = 12345;
    for (int i = 0; i < PROMPT; i++) {
        state = state * 1664525u + 1013904223u;
        to->token[i] = (int32_t)((state >> 8) % (uint32_t)n_vocab);
    }
    for (int32_t at = 0; !failed && at < PROMPT; at += step)
        failed = decode(context, to, at, step, n_vocab);
    for (int32_t at = PROMPT; !failed && at < PROMPT + MORE; at++) {
        to->token[at] = given ? given->token[at]
                              : play_best(to->logits + (size_t)(at - 1) * (size_t)n_vocab, n_vocab);
        failed = decode(context, to, at, 1, n_vocab);
    }
    llama_free(context);
    return failed;
}

/* Counts the tokens behind the prompt where Heed would choose another than ggml and the logits
 * differ by more than `doubt`, ggml's own error relative to its logits. */
static int count_others(const answer *ggml, const answer *heed, int32_t n_vocab, double doubt)
{
    int others = 0;
    for (int i = PROMPT - 1; i < PROMPT + MORE; i++) {
        const float *a = ggml->logits + (size_t)i * (size_t)n_vocab;
        const float *b = heed->logits + (size_t)i * (size_t)n_vocab;
        double squares = 0;
        for (int32_t t = 0; t < n_vocab; t++)
            squares += (double)a[t] * (double)a[t];
        const double gap = (double)a[play_best(a, n_vocab)] - (double)a[play_best(b, n_vocab)];
        others += gap > doubt * sqrt(squares / n_vocab);
    }
    return others;
}

static double nmse(const answer *a, const answer *b, int32_t n_vocab)
{
    return play_nmse(a->logits, b->logits, (size_t)(PROMPT + MORE) * (size_t)n_vocab);
}

/* The answers of ggml alone and of Heed, for the batch and token by token. */
typedef struct answers {
    answer ggml, ggml_split, heed, split;
} answers;

/* How HEED_GGML is set; NULL: not at all. */
typedef struct way {
    const char *name, *value;
} way;

static void set_way(const char *value)
{
    if (value)
        setenv("HEED_GGML", value, 1);
    else
        unsetenv("HEED_GGML");
}

/* 0: good; 1: bad; 2: skipped. */
static int judge_way(const way *w, struct llama_model *model, const play_counters *count,
                     answers *all)
{
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const uint64_t attentions = count->attentions(), products = count->products();
    set_way(w->value);
    const int failed =
        ask(model, PROMPT, &all->ggml, &all->heed) || ask(model, 1, &all->ggml, &all->split);
    const uint64_t done[2] = {count->attentions() - attentions, count->products() - products};
    const double error = nmse(&all->ggml, &all->heed, n_vocab);
    const double parted = nmse(&all->heed, &all->split, n_vocab);
    const double own = nmse(&all->ggml, &all->ggml_split, n_vocab);
    const int causal = own < NMSE_CAUSAL;
    const double likely = causal ? fmax(own, NMSE_SPLIT) : NMSE_SPLIT;
    const int differ = count_others(&all->ggml, &all->heed, n_vocab, 4 * sqrt(likely));
    const int bad = failed || differ || !(error <= fmax(NMSE_GGML, 4 * likely)) ||
                    (causal && !(parted <= likely));
    const int skipped = !done[0] && !done[1];
    printf("  %-10s %s: %llu attentions, %llu products, %d tokens differ, %.1e from ggml, token by "
           "token %.1e, ggml %.1e\n",
           w->name,
           bad       ? "BAD"
           : skipped ? "skipped"
                     : "good",
           (unsigned long long)done[0], (unsigned long long)done[1], differ, error, parted, own);
    return bad ? 1 : skipped ? 2 : 0;
}

static const way ways[] = {{"as it is", NULL}, {"products", "attention,matmul:all"}};

enum { WAYS = sizeof ways / sizeof *ways };

/* Counts into [good, bad, skipped]. */
static void judge(struct llama_model *model, const play_counters *count, int *counts)
{
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const size_t numbers = (size_t)(PROMPT + MORE) * (size_t)n_vocab;
    answers all;
    all.ggml.logits = calloc(4 * numbers, sizeof(float));
    all.ggml_split.logits = all.ggml.logits + numbers;
    all.heed.logits = all.ggml_split.logits + numbers;
    all.split.logits = all.heed.logits + numbers;
    set_way("off");
    const int none = !all.ggml.logits || ask(model, PROMPT, NULL, &all.ggml) ||
                     ask(model, 1, &all.ggml, &all.ggml_split);
    if (none)
        printf("  skipped: ggml alone does not run it so\n");
    for (int i = 0; i < WAYS; i++)
        counts[none ? 2 : judge_way(&ways[i], model, count, &all)]++;
    free(all.ggml.logits);
}

int main(int n, char **file)
{
    int counts[3] = {0, 0, 0};
    play_counters count;
    if (!play_begin(&count))
        return 1;
    for (int i = 1; i < n; i++) {
        struct llama_model *model =
            llama_model_load_from_file(file[i], llama_model_default_params());
        printf("%s%s\n", file[i], model ? "" : ": it cannot be loaded");
        if (model)
            judge(model, &count, counts);
        else
            counts[2] += WAYS;
        fflush(stdout);
        llama_model_free(model);
    }
    printf("%d good, %d bad, %d skipped; %llu attentions, %llu products\n", counts[0], counts[1],
           counts[2], (unsigned long long)count.attentions(), (unsigned long long)count.products());
    return counts[1] || !counts[0] || !count.attentions() || !count.products();
}
