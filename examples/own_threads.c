/* An engine with its own threads. Heed starts none here: one thread begins a call, all threads of
 * the pool do parts of it, and the call has ended when every part has returned.
 *
 * The pool is as small as possible: each thread waits for a task, runs it with its own number, and
 * reports that it is done. A real engine dispatches its other work in the same way.
 */
#include <heed/heed.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, HEADS = 8, ROWS = 96, KEYS = 512, DIM = 64 };

/* ---- the engine's pool ----------------------------------------------------------------------- */

typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread[THREADS];
    void (*task)(void *arg, uint32_t number);
    void *arg;
    unsigned generation, running, started; /* started numbers the threads */
    int closing;
} pool;

static void *worker(void *arg)
{
    pool *p = arg;
    unsigned seen = 0;
    pthread_mutex_lock(&p->lock);
    const uint32_t number = p->started++;
    for (;;) {
        while (p->generation == seen && !p->closing)
            pthread_cond_wait(&p->changed, &p->lock);
        if (p->closing)
            break;
        seen = p->generation;
        pthread_mutex_unlock(&p->lock);
        p->task(p->arg, number);
        pthread_mutex_lock(&p->lock);
        if (--p->running == 0)
            pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Runs task(arg, number) on every thread and returns when all are done. */
static void run_on_all(pool *p, void (*task)(void *arg, uint32_t number), void *arg)
{
    pthread_mutex_lock(&p->lock);
    p->task = task;
    p->arg = arg;
    p->running = THREADS;
    p->generation++;
    pthread_cond_broadcast(&p->changed);
    while (p->running)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* Starts the threads. Returns how many there are. */
static int open_pool(pool *p)
{
    int n = 0;
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    while (n < THREADS && pthread_create(&p->thread[n], NULL, worker, p) == 0)
        n++;
    return n;
}

static void close_pool(pool *p, int n)
{
    pthread_mutex_lock(&p->lock);
    p->closing = 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    while (n > 0)
        pthread_join(p->thread[--n], NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}

/* ---- attention on it ------------------------------------------------------------------------- */

static void do_part(void *workspace, uint32_t part)
{
    if (heed_run_part(workspace, part) != HEED_OK)
        fprintf(stderr, "part %u: %s\n", part, heed_last_error());
}

static float q[HEADS][ROWS][DIM], k[HEADS][KEYS][DIM], v[HEADS][KEYS][DIM];
static float out[2][HEADS][ROWS][DIM];

static void fill(void)
{
    float *const tensor[] = {&q[0][0][0], &k[0][0][0], &v[0][0][0]};
    uint32_t state = 5;
    for (int n = 0; n < 3; n++)
        for (int i = 0; i < HEADS * (n ? KEYS : ROWS) * DIM; i++) {
            state = state * 1664525u + 1013904223u;
            tensor[n][i] = (float)(state >> 8) / (1 << 23) - 1;
        }
}

int main(void)
{
    const heed_context_options options = {.struct_size = sizeof options, .n_threads = 1};
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .q_heads = HEADS,
                                 .kv_heads = HEADS,
                                 .qk_dim = DIM,
                                 .v_dim = DIM,
                                 .q_type = HEED_F32,
                                 .k_type = HEED_F32,
                                 .v_type = HEED_F32,
                                 .out_type = HEED_F32,
                                 .max_batch = 1,
                                 .max_q_len = ROWS,
                                 .max_kv_len = KEYS};
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = ROWS,
                           .kv_len = KEYS,
                           .q = {q, {0, ROWS * DIM, DIM, 1}},
                           .k = {k, {0, KEYS * DIM, DIM, 1}},
                           .v = {v, {0, KEYS * DIM, DIM, 1}},
                           .out = {out[0], {0, ROWS * DIM, DIM, 1}}};
    heed_context *context = NULL;
    heed_attn *plan = NULL;
    pool p;
    fill();
    /* The workspace is allocated once, for as many parts as the pool has threads. */
    if (heed_context_create(&options, &context) != HEED_OK ||
        heed_attn_create(context, &desc, &plan) != HEED_OK) {
        fprintf(stderr, "%s\n", heed_last_error());
        return 1;
    }
    const size_t bytes = heed_attn_workspace_bytes(plan, THREADS);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    const int n_threads = open_pool(&p);
    if (!workspace || n_threads < THREADS) {
        fprintf(stderr, "no memory or no threads\n");
        return 1;
    }
    for (int call = 0; call < 5; call++) { /* every call uses the same memory */
        if (heed_attn_begin(plan, &args, THREADS, workspace, bytes) != HEED_OK) {
            fprintf(stderr, "%s\n", heed_last_error());
            return 1;
        }
        run_on_all(&p, do_part, workspace);
    }
    close_pool(&p, n_threads);

    /* For comparison on a single thread: the bits do not depend on the number of threads. */
    args.out.data = out[1];
    heed_status status = heed_attn_run(plan, &args, workspace, bytes);
    int same = status == HEED_OK && memcmp(out[0], out[1], sizeof out[0]) == 0;
    printf("%d threads and one give %s bits; the workspace has %zu bytes\n", THREADS,
           same ? "the same" : "other", bytes);
    free(workspace);
    heed_attn_release(plan);
    heed_context_release(context);
    return !same;
}
