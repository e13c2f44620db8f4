/* minilm: sentence embeddings with all-MiniLM-L6-v2 on Heed. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../common/arguments.h"
#include "../common/npy.h"
#include "../common/rows.h"
#include "embed.h"
#include "map.h"

static const char usage[] =
    "minilm: sentence embeddings with all-MiniLM-L6-v2 on Heed\n"
    "\n"
    "  minilm embed --model DIR [--out e.npy] FILE    a vector of length 1 for each line\n"
    "  minilm rank --model DIR --query TEXT FILE      the lines by their similarity to a text\n"
    "  minilm map --model DIR --svg FILE [--layer L] TEXT    what each token attends to, as a "
    "picture\n"
    "  minilm tokens --model DIR FILE                 each line's token ids\n"
    "  minilm bench --model DIR FILE                  milliseconds of embed, once per line on "
    "stdin\n"
    "\n"
    "  --model DIR     a folder with config.json, model.safetensors and vocab.txt\n"
    "  --threads N     by default as many as this process has CPUs\n"
    "  --type bf16     weights and activations in bf16; by default f32\n"
    "  --layer L       from 1; by default the last\n"
    "  --top N         how many lines rank prints; by default all\n"
    "\n"
    "It ends with 2 for wrong usage and files that are not what they should be, 3 if no backend "
    "of\n"
    "Heed can do it, 1 for other failures.\n";

typedef struct options {
    int64_t threads;
    model m;
} options;

/* Opens the model that --model names. */
static heed_status open_model(arguments *a, options *o, heed_error *why)
{
    const char *folder = take_option(a, "--model"), *type = take_option(a, "--type");
    int bf16 = type && strcmp(type, "bf16") == 0;
    heed_status status = take_integer(a, "--threads", 1, 1024, cpu_count(), &o->threads, why);
    if (status != HEED_OK)
        return status;
    if (!folder)
        return refuse(why, "--model DIR is missing");
    if (type && !bf16 && strcmp(type, "f32") != 0)
        return refuse(why, "--type is f32 or bf16, not %.40s", type);
    return model_open(folder, bf16 ? HEED_BF16 : HEED_F32, (uint32_t)o->threads, &o->m, why);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Prints the progress, at most once in two seconds and not in the first two. */
static void say_progress(int64_t done, int64_t n)
{
    static _Atomic double due;
    double now = seconds(), was = due;
    if (was == 0)
        due = now + 2;
    else if (now >= was && done < n) {
        due = now + 2;
        fprintf(stderr, "minilm: %lld of %lld lines\n", (long long)done, (long long)n);
    }
}

/* The lines of a file and their embeddings. */
typedef struct embedded {
    file f;
    slice *lines;
    int64_t n;
    float *vectors;
} embedded;

static heed_status embed_file(const options *o, const char *path, embedded *out, heed_error *why)
{
    heed_status status = file_open(path, &out->f, why);
    if (status == HEED_OK)
        status = file_lines(out->f, &out->lines, &out->n, why);
    if (status != HEED_OK)
        return status;
    out->vectors = malloc(((size_t)out->n * (size_t)o->m.width + 1) * sizeof *out->vectors);
    if (!out->vectors)
        return no_memory(why, "the embeddings");
    return embed_texts(&o->m, out->lines, out->n, (int)o->threads, out->vectors, say_progress, why);
}

static void free_embedded(embedded *e)
{
    free(e->vectors);
    free(e->lines);
    file_close(&e->f);
}

static heed_status run_embed(arguments *a, options *o, heed_error *why)
{
    const char *out = take_option(a, "--out");
    heed_status status = open_model(a, o, why);
    embedded e = {0};
    if (status == HEED_OK)
        status = take_rest(a, 1, "one FILE", why);
    double start = seconds();
    if (status == HEED_OK)
        status = embed_file(o, a->word[0], &e, why);
    double took = seconds() - start;
    if (status == HEED_OK && out)
        status = npy_write(out, e.vectors, e.n, o->m.width, why);
    if (status == HEED_OK)
        printf("%lld vectors of %lld numbers in %.2f s: %.0f a second\n", (long long)e.n,
               (long long)o->m.width, took, (double)e.n / took);
    free_embedded(&e);
    return status;
}

typedef struct ranked {
    float similarity;
    int64_t line;
} ranked;

static int by_similarity(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->similarity != b->similarity)
        return a->similarity > b->similarity ? -1 : 1;
    return (a->line > b->line) - (a->line < b->line);
}

static heed_status rank_lines(const options *o, const embedded *e, const char *query, int64_t top,
                              heed_error *why)
{
    const slice asked = {query, strlen(query)};
    float *vector = malloc((size_t)o->m.width * sizeof *vector);
    ranked *order = malloc(((size_t)e->n + 1) * sizeof *order);
    heed_status status = vector && order
                             ? embed_texts(&o->m, &asked, 1, (int)o->threads, vector, NULL, why)
                             : no_memory(why, "the ranks");
    if (status == HEED_OK) {
        for (int64_t i = 0; i < e->n; i++)
            order[i] = (ranked){dot(vector, e->vectors + i * o->m.width, o->m.width), i};
        qsort(order, (size_t)e->n, sizeof *order, by_similarity);
        for (int64_t i = 0; i < e->n && i < top; i++) {
            const slice *line = &e->lines[order[i].line];
            printf("%.4f  ", (double)order[i].similarity);
            fwrite(line->at, 1, line->bytes, stdout); /* a line may have a NUL, which ends %s */
            putchar('\n');
        }
    }
    free(vector);
    free(order);
    return status;
}

static heed_status run_rank(arguments *a, options *o, heed_error *why)
{
    const char *query = take_option(a, "--query");
    int64_t top = 0;
    embedded e = {0};
    heed_status status = take_integer(a, "--top", 1, INT64_MAX, INT64_MAX, &top, why);
    if (status == HEED_OK && !query)
        status = refuse(why, "--query TEXT is missing");
    if (status == HEED_OK)
        status = open_model(a, o, why);
    if (status == HEED_OK)
        status = take_rest(a, 1, "one FILE", why);
    if (status == HEED_OK)
        status = embed_file(o, a->word[0], &e, why);
    if (status == HEED_OK)
        status = rank_lines(o, &e, query, top, why);
    free_embedded(&e);
    return status;
}

static heed_status draw_map(const options *o, const char *path, const char *line, int64_t layer,
                            heed_error *why)
{
    const model *m = &o->m;
    encoder *e = NULL;
    int32_t start = 0, n = 0, *ids = malloc((size_t)m->most_tokens * sizeof *ids);
    float *weights = NULL;
    heed_status status =
        ids ? tokenizer_encode(m->tokenizer, line, strlen(line), ids, (int)m->most_tokens, &n, why)
            : no_memory(why, "the tokens");
    if (status == HEED_OK &&
        !(weights = malloc((size_t)m->heads * (size_t)n * (size_t)n * sizeof *weights)))
        status = no_memory(why, "the weights");
    if (status == HEED_OK)
        status = encoder_create(m, n, 1, 1, &e, why);
    batch b = {1, n, n, ids, &start, &n};
    if (status == HEED_OK)
        status = encoder_weights(e, &b, layer, weights, why);
    if (status == HEED_OK)
        status = map_write(path, m, &b, layer, weights, why);
    encoder_free(e);
    free(weights);
    free(ids);
    return status;
}

static heed_status run_map(arguments *a, options *o, heed_error *why)
{
    const char *path = take_option(a, "--svg");
    int64_t layer = 0;
    heed_status status = path ? HEED_OK : refuse(why, "--svg FILE is missing");
    if (status == HEED_OK)
        status = take_integer(a, "--layer", 1, 1024, 0, &layer, why);
    if (status == HEED_OK)
        status = open_model(a, o, why);
    if (status == HEED_OK && layer > o->m.n_layers)
        status = refuse(why, "--layer %lld: the model has %lld", (long long)layer,
                        (long long)o->m.n_layers);
    if (status == HEED_OK)
        status = take_rest(a, 1, "one TEXT", why);
    return status == HEED_OK
               ? draw_map(o, path, a->word[0], (layer ? layer : o->m.n_layers) - 1, why)
               : status;
}

static heed_status run_tokens(arguments *a, options *o, heed_error *why)
{
    heed_status status = open_model(a, o, why);
    file f = {0};
    slice *lines = NULL;
    int64_t count = 0;
    int32_t *ids = NULL;
    if (status == HEED_OK)
        status = take_rest(a, 1, "one FILE", why);
    if (status == HEED_OK)
        status = file_open(a->word[0], &f, why);
    if (status == HEED_OK)
        status = file_lines(f, &lines, &count, why);
    if (status == HEED_OK && !(ids = malloc((size_t)o->m.most_tokens * sizeof *ids)))
        status = no_memory(why, "the tokens");
    for (int64_t i = 0; i < count && status == HEED_OK; i++) {
        int n;
        status = tokenizer_encode(o->m.tokenizer, lines[i].at, lines[i].bytes, ids,
                                  (int)o->m.most_tokens, &n, why);
        for (int t = 0; t < n && status == HEED_OK; t++)
            printf("%d%c", (int)ids[t], t + 1 < n ? ' ' : '\n');
    }
    free(ids);
    free(lines);
    file_close(&f);
    return status;
}

/* For benchmarks in turns with other programs: each line on stdin asks for another run over the
 * file. */
static heed_status run_bench(arguments *a, options *o, heed_error *why)
{
    heed_status status = open_model(a, o, why);
    embedded e = {0};
    if (status == HEED_OK)
        status = take_rest(a, 1, "one FILE", why);
    if (status == HEED_OK)
        status = embed_file(o, a->word[0], &e, why);
    for (int c; status == HEED_OK && (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        double start = seconds();
        status = embed_texts(&o->m, e.lines, e.n, (int)o->threads, e.vectors, NULL, why);
        printf("%.4f\n", 1e3 * (seconds() - start));
        fflush(stdout);
    }
    free_embedded(&e);
    return status;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        heed_status (*run)(arguments *, options *, heed_error *);
    } commands[] = {
        {"embed", run_embed},   {"rank", run_rank},   {"map", run_map},
        {"tokens", run_tokens}, {"bench", run_bench},
    };
    options o = {0};
    heed_error why = {""};
    arguments a = {argc - 2, argv + 2};
    if (argc < 2 || strcmp(argv[1], "--help") == 0 ||
        (argc > 2 && strcmp(argv[2], "--help") == 0)) {
        fputs(usage, argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    heed_status status = refuse(&why, "%.40s is no command; see minilm --help", argv[1]);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            status = commands[i].run(&a, &o, &why);
    model_close(&o.m);
    if (status == HEED_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        status = HEED_ERR_BACKEND;
        refuse(&why, "the output cannot be written");
    }
    if (status != HEED_OK)
        fprintf(stderr, "minilm: %s\n", why.text);
    return exit_status(status);
}
