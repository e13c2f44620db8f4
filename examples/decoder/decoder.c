/* decoder: generates text with a Llama-style model on Heed. Several sequences run at once; when one
 * is done, the next takes its place, so that sequences of different age share a step. */
#include <errno.h>
#include <heed/formats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/arguments.h"
#include "../common/npy.h"
#include "step.h"

static const char usage[] =
    "decoder: generation with a Llama-style model on Heed\n"
    "\n"
    "  decoder generate --model DIR FILE    continues each line's token ids by the most likely "
    "ones\n"
    "\n"
    "  --model DIR     a folder with config.json and model.safetensors\n"
    "  --count N       tokens that each prompt gets; by default 64\n"
    "  --batch N       sequences that run at once; by default 8\n"
    "  --chunk N       tokens of a prompt that one step takes at most; by default 512\n"
    "  --page N        keys in a page of the cache; by default 64\n"
    "  --chunks any|same    same: the bits do not depend on --chunk; by default any\n"
    "  --logits FILE   writes the logits of every token but each last one: .npy, [tokens, "
    "vocabulary]\n"
    "  --threads N     by default as many as this process has CPUs\n"
    "  --type bf16     weights, activations and cache in bf16; by default f32\n"
    "  --kv-type TYPE  keys and values of the cache in f32, f16, bf16, i8, u8, u4, f8_e4m3, q8_0, "
    "q4_0,\n"
    "                  q4_1, q5_0, q5_1 or iq4_nl\n"
    "\n"
    "It ends with 2 for wrong usage and files that are not what they should be, 3 if no backend "
    "of\n"
    "Heed can do it, 1 for other failures.\n";

/* A prompt and its continuation. */
typedef struct request {
    int32_t *tokens;
    int64_t n, fed, want; /* tokens so far, those that the model has seen, those at the end */
    int64_t first_row;    /* where its logits begin */
    sequence s;
} request;

typedef struct run {
    llama m;
    cache c;
    stepper *stepper;
    int64_t count, batch, chunk;
    request *requests;
    int64_t n_requests, rows, longest;
    turn *turns;
    request **running;
    float *logits; /* of a step */
    float *all;    /* of every token that the model sees; NULL: not wanted */
} run;

/* ---- prompts --------------------------------------------------------------------------------- */

/* Reads the numbers on a line into a request, which has room for the tokens to come. */
static heed_status read_prompt(const char *line, int64_t number, run *r, request *out,
                               heed_error *why)
{
    int64_t room = 16;
    out->tokens = malloc((size_t)room * sizeof *out->tokens);
    for (char *end; out->tokens && *(line += strspn(line, " \t\r")); line = end) {
        long id = strtol(line, &end, 10);
        if (end == line || !strchr(" \t\r", *end) || id < 0 || id >= r->m.vocabulary_size ||
            out->n >= r->m.positions)
            return refuse(
                why, "prompt %lld: token %lld is no number below %lld, or beyond position %lld",
                (long long)number, (long long)out->n + 1, (long long)r->m.vocabulary_size,
                (long long)r->m.positions);
        if (out->n + r->count >= room) {
            int32_t *more =
                realloc(out->tokens, (size_t)(room = 2 * room + r->count) * sizeof *more);
            if (!more)
                return no_memory(why, "a prompt");
            out->tokens = more;
        }
        out->tokens[out->n++] = (int32_t)id;
    }
    if (!out->tokens)
        return no_memory(why, "a prompt");
    out->want = out->n + r->count;
    if (out->n == 0 || out->want > r->m.positions)
        return refuse(
            why,
            "prompt %lld: %lld tokens and %lld more are not from 1 to the model's %lld positions",
            (long long)number, (long long)out->n, (long long)r->count, (long long)r->m.positions);
    out->first_row = r->rows;
    r->rows += out->want - 1;
    r->longest = out->want > r->longest ? out->want : r->longest;
    return HEED_OK;
}

static heed_status read_prompts(const char *path, run *r, heed_error *why)
{
    file f = {0};
    slice *lines = NULL;
    int64_t n = 0;
    heed_status status = file_open(path, &f, why);
    if (status == HEED_OK)
        status = file_lines(f, &lines, &n, why);
    char *line = malloc(f.size + 1);
    r->requests = calloc((size_t)n + 1, sizeof *r->requests);
    if (status == HEED_OK && (!line || !r->requests))
        status = no_memory(why, "the prompts");
    for (int64_t i = 0; i < n && status == HEED_OK; i++) {
        for (size_t c = 0; c < lines[i].bytes; c++)
            line[c] = lines[i].at[c] ? lines[i].at[c] : '?'; /* is in no number */
        line[lines[i].bytes] = '\0';
        request *out = &r->requests[r->n_requests++];
        status = read_prompt(line, r->n_requests, r, out, why);
    }
    free(line);
    free(lines);
    file_close(&f);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static heed_status prepare(run *r, uint32_t kv_type, int64_t page, int reproducible, int keep,
                           heed_error *why)
{
    if (r->batch > r->n_requests)
        r->batch = r->n_requests ? r->n_requests : 1;
    if (r->chunk > r->longest)
        r->chunk = r->longest ? r->longest : 1;
    int64_t rows = r->batch * r->chunk, vocabulary = r->m.vocabulary_size;
    int64_t pages = r->batch * ((r->longest + page - 1) / page);
    heed_status status = cache_create(&r->m, kv_type, page, pages ? pages : 1, &r->c, why);
    if (status == HEED_OK)
        status = stepper_create(&r->m, &r->c, rows, r->batch, r->longest ? r->longest : 1,
                                reproducible, &r->stepper, why);
    r->turns = malloc((size_t)r->batch * sizeof *r->turns);
    r->running = malloc((size_t)r->batch * sizeof *r->running);
    r->logits = malloc((size_t)((keep ? rows : r->batch) * vocabulary) * sizeof *r->logits);
    r->all = keep ? malloc((size_t)(r->rows * vocabulary) * sizeof *r->all + 1) : NULL;
    if (status == HEED_OK && (!r->turns || !r->running || !r->logits || (keep && !r->all)))
        status = no_memory(why, "the logits");
    return status;
}

/* The most likely token, or the first of equally likely ones. */
static int32_t choose(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* Runs a step of the running requests: keeps the logits that are wanted and adds the chosen
 * tokens. */
static heed_status step(run *r, int32_t n, heed_error *why)
{
    int64_t vocabulary = r->m.vocabulary_size;
    for (int32_t b = 0; b < n; b++) {
        request *q = r->running[b];
        int64_t left = q->n - q->fed;
        r->turns[b] =
            (turn){&q->s, q->tokens + q->fed, (int32_t)(left < r->chunk ? left : r->chunk)};
    }
    heed_status status = stepper_run(r->stepper, r->turns, n, r->all != NULL, r->logits, why);
    const float *at = r->logits;
    for (int32_t b = 0; b < n && status == HEED_OK; b++) {
        request *q = r->running[b];
        int64_t rows = r->all ? r->turns[b].n : 1;
        if (r->all)
            memcpy(r->all + (q->first_row + q->fed) * vocabulary, at,
                   (size_t)(rows * vocabulary) * sizeof *at);
        q->fed += r->turns[b].n;
        at += rows * vocabulary;
        if (q->fed == q->n)
            q->tokens[q->n++] = choose(at - vocabulary, vocabulary);
    }
    return status;
}

static heed_status generate(run *r, heed_error *why)
{
    heed_status status = HEED_OK;
    int64_t next = 0;
    for (int32_t n = 0; status == HEED_OK && (n > 0 || next < r->n_requests);) {
        while (n < r->batch && next < r->n_requests)
            r->running[n++] = &r->requests[next++];
        status = step(r, n, why);
        for (int32_t b = 0; b < n;)
            if (r->running[b]->n == r->running[b]->want) {
                cache_release(&r->c, &r->running[b]->s);
                r->running[b] = r->running[--n];
            } else {
                b++;
            }
    }
    return status;
}

static void close_run(run *r)
{
    for (int64_t i = 0; i < r->n_requests; i++) {
        free(r->requests[i].tokens);
        free(r->requests[i].s.pages);
    }
    free(r->requests);
    free(r->turns);
    free(r->running);
    free(r->logits);
    free(r->all);
    stepper_free(r->stepper);
    cache_free(&r->c);
    llama_close(&r->m);
}

/* The type with this name; NULL stands for that of the model. */
static heed_status read_kv_type(const char *name, uint32_t *type, heed_error *why)
{
    if (!name)
        return HEED_OK;
    for (*type = HEED_F32; *type <= HEED_IQ4_NL; ++*type)
        if (strcmp(name, heed_dtype_name(*type)) == 0)
            return HEED_OK;
    return refuse(why, "--kv-type %.40s is no type; see decoder --help", name);
}

static heed_status run_generate(arguments *a, run *r, heed_error *why)
{
    const char *folder = take_option(a, "--model"), *type = take_option(a, "--type");
    const char *kv_name = take_option(a, "--kv-type");
    const char *path = take_option(a, "--logits"), *chunks = take_option(a, "--chunks");
    int bf16 = type && strcmp(type, "bf16") == 0, same = chunks && strcmp(chunks, "same") == 0;
    uint32_t kv_type = bf16 ? HEED_BF16 : HEED_F32;
    int64_t threads = 0, page = 0;
    heed_status status = take_integer(a, "--threads", 1, 1024, cpu_count(), &threads, why);
    if (status == HEED_OK)
        status = take_integer(a, "--count", 1, 1 << 20, 64, &r->count, why);
    if (status == HEED_OK)
        status = take_integer(a, "--batch", 1, 1 << 12, 8, &r->batch, why);
    if (status == HEED_OK)
        status = take_integer(a, "--chunk", 1, 1 << 16, 512, &r->chunk, why);
    if (status == HEED_OK)
        status = take_integer(a, "--page", 1, 1 << 16, 64, &page, why);
    if (status == HEED_OK && !folder)
        status = refuse(why, "--model DIR is missing");
    if (status == HEED_OK && type && !bf16 && strcmp(type, "f32") != 0)
        status = refuse(why, "--type is f32 or bf16, not %.40s", type);
    if (status == HEED_OK)
        status = read_kv_type(kv_name, &kv_type, why);
    if (status == HEED_OK && chunks && !same && strcmp(chunks, "any") != 0)
        status = refuse(why, "--chunks is any or same, not %.40s", chunks);
    if (status == HEED_OK)
        status = take_rest(a, 1, "one FILE", why);
    if (status == HEED_OK)
        status = llama_open(folder, bf16 ? HEED_BF16 : HEED_F32, (uint32_t)threads, &r->m, why);
    if (status == HEED_OK)
        status = read_prompts(a->word[0], r, why);
    if (status == HEED_OK)
        status = prepare(r, kv_type, page, same, path != NULL, why);
    if (status == HEED_OK)
        status = generate(r, why);
    if (status == HEED_OK && path)
        status = npy_write(path, r->all, r->rows, r->m.vocabulary_size, why);
    for (int64_t i = 0; i < r->n_requests && status == HEED_OK; i++)
        for (int64_t t = r->requests[i].n - r->count; t < r->requests[i].n; t++)
            printf("%d%c", (int)r->requests[i].tokens[t], t + 1 < r->requests[i].n ? ' ' : '\n');
    return status;
}

int main(int argc, char **argv)
{
    run r = {0};
    heed_error why = {""};
    arguments a = {argc - 2, argv + 2};
    if (argc < 2 || strcmp(argv[1], "--help") == 0 ||
        (argc > 2 && strcmp(argv[2], "--help") == 0)) {
        fputs(usage, argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    heed_status status = strcmp(argv[1], "generate") == 0
                             ? run_generate(&a, &r, &why)
                             : refuse(&why, "%.40s is no command; see decoder --help", argv[1]);
    close_run(&r);
    if (status == HEED_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        status = HEED_ERR_BACKEND;
        refuse(&why, "the output cannot be written");
    }
    if (status != HEED_OK)
        fprintf(stderr, "decoder: %s\n", why.text);
    return exit_status(status);
}
