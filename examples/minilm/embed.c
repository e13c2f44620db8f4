/* Turns many texts into embeddings: makes their tokens, then batches, which threads take one after
 * another. */
#include "embed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "encode.h"

/* The tokens of a batch: few enough that its activations stay in the second-level cache of a core,
 * and enough that reading the weights once per batch costs little. */
enum { BATCH_ROWS = 256, SHARED_ROWS = 64 };

/* A text with its tokens, for sorting by their number. */
typedef struct entry {
    int64_t text;
    int32_t *ids; /* in job.ids */
    int32_t n;
} entry;

typedef struct job {
    const model *m;
    int64_t n, n_batches;
    entry *entries;      /* sorted by length */
    int64_t *batch_ends; /* batch b holds entries [batch_ends[b - 1], batch_ends[b]) */
    int32_t *ids;
    float *embeddings;
    void (*progress)(int64_t, int64_t);
    atomic_llong next, done; /* batches taken, texts done */
    pthread_mutex_t failing;
    heed_status status; /* the first failure */
    heed_error *why;
} job;

static int by_length(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->n != b->n)
        return a->n > b->n ? -1 : 1; /* long ones first, so that threads end together */
    return (a->text > b->text) - (a->text < b->text);
}

static heed_status tokenize(job *j, const slice *texts, heed_error *why)
{
    int64_t most = j->m->most_tokens, used = 0, room = 0;
    for (int64_t i = 0; i < j->n; i++) {
        if (room - used < most) {
            room = room * 2 > used + most ? room * 2 : used + most;
            int32_t *more = realloc(j->ids, (size_t)room * sizeof *more);
            if (!more)
                return no_memory(why, "the tokens");
            j->ids = more;
        }
        entry *e = &j->entries[i];
        e->text = i;
        heed_status status = tokenizer_encode(j->m->tokenizer, texts[i].at, texts[i].bytes,
                                              j->ids + used, (int)most, &e->n, why);
        if (status != HEED_OK)
            return status;
        used += e->n;
    }
    /* Only now, since the array does not move any more. */
    for (int64_t i = 0, at = 0; i < j->n; at += j->entries[i++].n)
        j->entries[i].ids = j->ids + at;
    return HEED_OK;
}

/* Cuts the sorted texts into batches of at most `rows` tokens, or of a single text. */
static void cut(job *j, int64_t rows)
{
    int64_t used = 0;
    for (int64_t i = 0; i < j->n; i++) {
        if (used > 0 && used + j->entries[i].n > rows) {
            j->batch_ends[j->n_batches++] = i;
            used = 0;
        }
        used += j->entries[i].n;
    }
    j->batch_ends[j->n_batches++] = j->n;
}

/* Copies the tokens of a batch one text after another and computes their embeddings into `out`, [n,
 * width]. */
static heed_status run_batch(const job *j, int64_t index, encoder *e, batch *b, float *out,
                             heed_error *why)
{
    int64_t first = index ? j->batch_ends[index - 1] : 0, end = j->batch_ends[index];
    b->rows = 0;
    b->n = (int32_t)(end - first);
    b->longest = j->entries[first].n;
    for (int32_t i = 0; i < b->n; i++) {
        const entry *t = &j->entries[first + i];
        memcpy(b->ids + b->rows, t->ids, (size_t)t->n * sizeof *b->ids);
        b->starts[i] = b->rows;
        b->lens[i] = t->n;
        b->rows += t->n;
    }
    heed_status status = encoder_embed(e, b, out, why);
    if (status != HEED_OK)
        return status;
    size_t width = (size_t)j->m->width;
    for (int32_t i = 0; i < b->n; i++)
        memcpy(j->embeddings + (size_t)j->entries[first + i].text * width, out + (size_t)i * width,
               width * sizeof *out);
    return HEED_OK;
}

static heed_status work(job *j, int64_t rows, uint32_t n_parts, heed_error *why)
{
    encoder *e = NULL;
    batch b = {0};
    size_t width = (size_t)j->m->width, texts = (size_t)rows / 2;
    float *out = malloc(texts * width * sizeof *out);
    b.ids = malloc((size_t)rows * 3 * sizeof *b.ids);
    heed_status status =
        out && b.ids ? encoder_create(j->m, rows, n_parts, 0, &e, why) : no_memory(why, "a batch");
    b.starts = b.ids ? b.ids + rows : NULL;
    b.lens = b.ids ? b.ids + 2 * rows : NULL;
    for (int64_t i; status == HEED_OK && (i = atomic_fetch_add(&j->next, 1)) < j->n_batches;) {
        status = run_batch(j, i, e, &b, out, why);
        if (status == HEED_OK && j->progress)
            j->progress(atomic_fetch_add(&j->done, b.n) + b.n, j->n);
    }
    encoder_free(e);
    free(b.ids);
    free(out);
    return status;
}

/* A thread of the engine, whose encoder uses no other threads. */
static void *worker(void *arg)
{
    job *j = arg;
    heed_error why;
    int64_t rows = j->m->most_tokens > BATCH_ROWS ? j->m->most_tokens : BATCH_ROWS;
    heed_status status = work(j, rows, 1, &why);
    if (status != HEED_OK) {
        atomic_store(&j->next, j->n_batches); /* the others stop after their batch */
        pthread_mutex_lock(&j->failing);
        if (j->status == HEED_OK) {
            j->status = status;
            *j->why = why;
        }
        pthread_mutex_unlock(&j->failing);
    }
    return NULL;
}

/* Runs the batches on n threads, this one included. It does without threads that cannot be
 * created. */
static heed_status spread(job *j, int n)
{
    pthread_t *threads = malloc((size_t)n * sizeof *threads);
    int started = 0;
    if (!threads)
        return no_memory(j->why, "threads");
    while (started < n - 1 && pthread_create(&threads[started], NULL, worker, j) == 0)
        started++;
    worker(j);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    return j->status;
}

heed_status embed_texts(const model *m, const slice *texts, int64_t n, int n_threads,
                        float *embeddings, void (*progress)(int64_t done, int64_t n),
                        heed_error *why)
{
    job j = {.m = m, .n = n, .embeddings = embeddings, .progress = progress, .why = why};
    if (n == 0)
        return HEED_OK;
    j.entries = calloc((size_t)n, sizeof *j.entries);
    j.batch_ends = calloc((size_t)n, sizeof *j.batch_ends);
    heed_status status =
        j.entries && j.batch_ends ? tokenize(&j, texts, why) : no_memory(why, "the list of texts");
    if (status == HEED_OK) {
        int64_t rows = 0;
        for (int64_t i = 0; i < n; i++)
            rows += j.entries[i].n;
        qsort(j.entries, (size_t)n, sizeof *j.entries, by_length);
        if (n_threads > 1 && (n == 1 || rows <= SHARED_ROWS * n_threads)) {
            /* There is less than a batch for each thread: Heed spreads each batch over the
             * threads. */
            cut(&j, rows);
            status = work(&j, rows, (uint32_t)n_threads, why);
        } else {
            int64_t fair = rows / (4 * (int64_t)n_threads);
            cut(&j, fair < SHARED_ROWS ? SHARED_ROWS : fair < BATCH_ROWS ? fair : BATCH_ROWS);
            pthread_mutex_init(&j.failing, NULL);
            status = spread(&j, n_threads < j.n_batches ? n_threads : (int)j.n_batches);
            pthread_mutex_destroy(&j.failing);
        }
    }
    free(j.ids);
    free(j.entries);
    free(j.batch_ends);
    return status;
}
