/* What groups cost and gain, by the clock. Prints ratios of medians of interleaved runs; nothing is
 * asserted.
 *
 *     alone    one rank through heed_group_attention, over heed_attn_run
 *     two      one rank of one thread, over two ranks of one thread each (threads of this process),
 *              and over two threads of one rank, which is the most that the machine can gain
 *     hidden   a ring of two over networks of several speeds: how much of the time in which keys
 *              travel is hidden behind computing
 *
 * Usage: timing [all|alone|two|hidden [ROUNDS [CORE0 CORE1]]] */
#define _GNU_SOURCE
#include <heed/heed.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wrap.h"

enum { MOST_ROUNDS = 101 };

typedef struct shape {
    const char *name;
    uint32_t heads, kv_heads, dim;
    int64_t rows, keys;
    int causal, ring;
    int repeat; /* calls of one round */
    uint32_t kv_type;
} shape;

typedef struct data {
    float *q, *out;
    void *k, *v;
} data;

static int core[2] = {0, 1};

static void pin(int n)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core[n], &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void unpin(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core[0], &set);
    CPU_SET(core[1], &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* Random numbers in f32 or f16. */
static void *numbers(uint32_t type, int64_t n, uint64_t seed)
{
    void *x = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    if (!x)
        exit(1);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        if (type == HEED_F32)
            ((float *)x)[i] = (float)(int32_t)(seed >> 32) * 0x1p-31F;
        else /* in [1, 2) and its negative */
            ((uint16_t *)x)[i] = (uint16_t)(0x3c00 | (seed >> 48 & 0x83ff));
    }
    return x;
}

static heed_context *context_of(uint32_t n_threads)
{
    heed_context_options options = {.struct_size = sizeof options, .n_threads = n_threads};
    heed_context *context;
    if (heed_context_create(&options, &context) != HEED_OK)
        exit(1);
    return context;
}

static heed_attn *plan_of(heed_context *context, const shape *s, int64_t rows, int64_t keys)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = s->causal ? HEED_HAS_CAUSAL : 0,
                                 .position = s->causal ? HEED_POS_BOTTOM_RIGHT : HEED_POS_UNSET,
                                 .q_heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .qk_dim = s->dim,
                                 .v_dim = s->dim,
                                 .q_type = HEED_F32,
                                 .k_type = s->kv_type,
                                 .v_type = s->kv_type,
                                 .out_type = HEED_F32,
                                 .max_batch = 1,
                                 .max_q_len = rows,
                                 .max_kv_len = keys};
    heed_attn *plan;
    if (heed_attn_create(context, &desc, &plan) != HEED_OK) {
        printf("no plan: %s\n", heed_last_error());
        exit(1);
    }
    return plan;
}

static heed_attn_args args_of(const shape *s, const data *d, int64_t rows, int64_t keys)
{
    const int64_t dim = s->dim, q = s->heads * dim, k = s->kv_heads * dim; /* heads inside tokens */
    return (heed_attn_args){.struct_size = sizeof(heed_attn_args),
                            .batch = 1,
                            .q_len = rows,
                            .kv_len = keys,
                            .q = {d->q, {rows * q, dim, q, 1}},
                            .k = {d->k, {keys * k, dim, k, 1}},
                            .v = {d->v, {keys * k, dim, k, 1}},
                            .out = {d->out, {rows * q, dim, q, 1}}};
}

static data data_of(const shape *s, int64_t rows, int64_t keys)
{
    const int64_t q = rows * s->heads * s->dim, k = keys * s->kv_heads * s->dim;
    return (data){.q = numbers(HEED_F32, q, 1),
                  .out = numbers(HEED_F32, q, 4),
                  .k = numbers(s->kv_type, k, 2),
                  .v = numbers(s->kv_type, k, 3)};
}

static void drop(data *d)
{
    free(d->q);
    free(d->k);
    free(d->v);
    free(d->out);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

static void must(heed_status st)
{
    if (st == HEED_OK)
        return;
    printf("%s: %s\n", heed_status_string(st), heed_last_error());
    exit(1);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static void alone(const shape *s, int rounds)
{
    heed_context *context = context_of(1);
    heed_attn *plan = plan_of(context, s, s->rows, s->keys);
    data d = data_of(s, s->rows, s->keys);
    const heed_attn_args args = args_of(s, &d, s->rows, s->keys);
    const int32_t keys[] = {0, (int32_t)s->keys}, rows[] = {0, (int32_t)s->rows};
    const heed_partition partition = {.struct_size = sizeof partition,
                                      .n_parts = 1,
                                      .key_first = keys,
                                      .row_first = s->ring ? rows : NULL,
                                      .timeout_ns = 1000000000};
    const heed_transport transport = {.struct_size = sizeof transport, .size = 1};
    const size_t bytes = heed_group_workspace_bytes(plan, &partition, 1, 0, 1);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    double x[MOST_ROUNDS], y[MOST_ROUNDS], ratio[MOST_ROUNDS];
    pin(0);
    for (int n = -1; n < rounds; n++)
        for (int half = 0; half < 2; half++) {
            const int group = (n + half) & 1;
            const int64_t start = wrap_now();
            for (int i = 0; i < s->repeat; i++)
                must(group ? heed_group_attention(plan, &args, &partition, &transport, workspace,
                                                  bytes)
                           : heed_attn_run(plan, &args, workspace, bytes));
            if (n >= 0)
                (group ? y : x)[n] = (double)(wrap_now() - start) / s->repeat;
        }
    for (int n = 0; n < rounds; n++)
        ratio[n] = y[n] / x[n];
    printf("alone   %-24s %10.2f us  group / run %.4f\n", s->name, median(x, rounds) * 1e-3,
           median(ratio, rounds));
    free(workspace);
    drop(&d);
    heed_attn_release(plan);
    heed_context_release(context);
}

/* ---- two ranks ------------------------------------------------------------------------------- */

enum { PARTS = 4 }; /* of ring: in zigzag */

typedef struct member {
    pthread_t thread;
    const shape *s;
    heed_transport transport;
    wrapped around;
    pthread_barrier_t *barrier;
    int rounds;
    double *took; /* of rank 0 */
} member;

static void cut(const shape *s, heed_partition *p, int32_t keys[PARTS + 1], int32_t rows[PARTS + 1])
{
    static const uint32_t zigzag[PARTS] = {0, 1, 1, 0};
    const uint32_t n = s->ring && s->causal ? PARTS : 2;
    for (uint32_t i = 0; i <= n; i++) {
        keys[i] = (int32_t)(s->keys * i / n);
        rows[i] = (int32_t)(s->rows * i / n);
    }
    *p = (heed_partition){.struct_size = sizeof *p,
                          .n_parts = n,
                          .owner = n == PARTS ? zigzag : NULL,
                          .key_first = keys,
                          .row_first = s->ring ? rows : NULL,
                          .timeout_ns = INT64_C(60000000000)};
}

static void *run_member(void *of)
{
    member *m = of;
    const shape *s = m->s;
    const int64_t rows = s->ring ? s->rows / 2 : s->rows;
    int32_t keys_first[PARTS + 1], rows_first[PARTS + 1];
    heed_partition p;
    cut(s, &p, keys_first, rows_first);
    pin((int)m->transport.rank);
    heed_context *context = context_of(1);
    heed_attn *plan = plan_of(context, s, rows, s->keys / 2);
    data d = data_of(s, rows, s->keys / 2);
    const heed_attn_args args = args_of(s, &d, rows, s->keys / 2);
    const size_t bytes = heed_group_workspace_bytes(plan, &p, 1, m->transport.rank, 2);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(workspace, 0, bytes);
    for (int n = -1; n < m->rounds; n++) {
        pthread_barrier_wait(m->barrier);
        /* A thread that slept while others were measured is slow for some milliseconds. */
        must(heed_group_attention(plan, &args, &p, &m->transport, workspace, bytes));
        pthread_barrier_wait(m->barrier);
        const int64_t start = wrap_now();
        for (int i = 0; i < s->repeat; i++)
            must(heed_group_attention(plan, &args, &p, &m->transport, workspace, bytes));
        pthread_barrier_wait(m->barrier);
        if (n >= 0 && m->transport.rank == 0)
            m->took[n] = (double)(wrap_now() - start) / s->repeat;
        pthread_barrier_wait(m->barrier); /* rank 0's thread runs the whole alone between these */
        pthread_barrier_wait(m->barrier);
    }
    free(workspace);
    drop(&d);
    heed_attn_release(plan);
    heed_context_release(context);
    return NULL;
}

static void two(const shape *s, int rounds, wrap_net *net)
{
    heed_group_threads *group;
    pthread_barrier_t barrier;
    heed_context *context = context_of(1);
    heed_context *context_2 = context_of(2);
    heed_attn *plan = plan_of(context, s, s->rows, s->keys);
    heed_attn *plan_2 = plan_of(context_2, s, s->rows, s->keys);
    data d = data_of(s, s->rows, s->keys);
    const heed_attn_args args = args_of(s, &d, s->rows, s->keys);
    static member m[2];
    double pair[MOST_ROUNDS], one[MOST_ROUNDS], ratio[MOST_ROUNDS], threads[MOST_ROUNDS];
    if (heed_group_threads_create(2, &group) != HEED_OK)
        exit(1);
    pthread_barrier_init(&barrier, NULL, 3);
    for (uint32_t r = 0; r < 2; r++) {
        memset(&m[r], 0, sizeof m[r]);
        m[r] = (member){.s = s, .barrier = &barrier, .rounds = rounds, .took = pair};
        m[r].transport.struct_size = sizeof m[r].transport;
        heed_group_threads_transport(group, r, &m[r].transport);
        m[r].around.net = net;
        if (net)
            wrap(&m[r].around, &m[r].transport);
        pthread_create(&m[r].thread, NULL, run_member, &m[r]);
    }
    for (int n = -1; n < rounds; n++) {
        pin(0);
        for (int i = 0; i < 4; i++)
            pthread_barrier_wait(&barrier);
        must(heed_attn_run(plan, &args, NULL, 0));
        int64_t start = wrap_now();
        for (int i = 0; i < s->repeat; i++)
            must(heed_attn_run(plan, &args, NULL, 0));
        if (n >= 0)
            one[n] = (double)(wrap_now() - start) / s->repeat;
        unpin();
        if (!net)
            must(heed_attn_run(plan_2, &args, NULL, 0));
        start = wrap_now();
        for (int i = 0; i < s->repeat && !net; i++)
            must(heed_attn_run(plan_2, &args, NULL, 0));
        if (n >= 0)
            threads[n] = (double)(wrap_now() - start) / s->repeat;
        pthread_barrier_wait(&barrier);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(m[r].thread, NULL);
    for (int n = 0; n < rounds; n++) {
        ratio[n] = one[n] / pair[n];
        threads[n] = one[n] / threads[n];
    }
    if (net)
        printf("hidden  %-24s %10.2f ms  over %.2f GB/s\n", s->name, median(pair, rounds) * 1e-6,
               net->bytes_per_second * 1e-9);
    else
        printf("two     %-24s %10.2f ms  one rank / two %.3f  one thread / two %.3f\n", s->name,
               median(one, rounds) * 1e-6, median(ratio, rounds), median(threads, rounds));
    fflush(stdout);
    heed_group_threads_release(group);
    pthread_barrier_destroy(&barrier);
    drop(&d);
    heed_attn_release(plan);
    heed_attn_release(plan_2);
    heed_context_release(context);
    heed_context_release(context_2);
}

int main(int argc, char **argv)
{
    static const shape small[] = {{"decode of 128 keys", 8, 8, 64, 1, 128, 0, 0, 2000, HEED_F32},
                                  {"decode of 4096 keys", 8, 8, 64, 1, 4096, 0, 0, 50, HEED_F32},
                                  {"prefill of 256, ring", 4, 4, 64, 256, 256, 1, 1, 20, HEED_F32}};
    /* In the first two one thread waits for memory, in the other two it computes. */
    static const shape large[] = {
        {"decode, 65536 keys", 32, 8, 128, 1, 65536, 0, 0, 3, HEED_F32},
        {"decode, 65536 keys, f16", 64, 8, 128, 1, 65536, 0, 0, 3, HEED_F16},
        {"prefill S 8192, split", 2, 2, 128, 8192, 8192, 1, 0, 1, HEED_F32},
        {"prefill S 8192, ring", 2, 2, 128, 8192, 8192, 1, 1, 1, HEED_F32}};
    const char *what = argc > 1 ? argv[1] : "all";
    const int every = strcmp(what, "all") == 0;
    int rounds = argc > 2 ? atoi(argv[2]) : 7;
    rounds = rounds < 1 ? 1 : rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
    if (argc > 4)
        core[0] = atoi(argv[3]), core[1] = atoi(argv[4]);
    for (int i = 0; i < 3 && (every || !strcmp(what, "alone")); i++)
        alone(&small[i], rounds * 3 < MOST_ROUNDS ? rounds * 3 : MOST_ROUNDS);
    for (int i = 0; i < 4 && (every || !strcmp(what, "two")); i++)
        two(&large[i], rounds, NULL);
    /* Keys of 8 MiB: at 0.1 GB/s as long as they are computed, at 10 hardly felt. */
    const double speed[] = {1e12, 1e9, 1e8, 3e7};
    for (int i = 0; i < 4 && (every || !strcmp(what, "hidden")); i++) {
        wrap_net *net = calloc(1, sizeof *net);
        if (!net)
            return 1;
        net->latency = 20e-6;
        net->bytes_per_second = speed[i];
        two(&large[3], rounds, net);
        free(net);
    }
    return 0;
}
