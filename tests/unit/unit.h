/* What the unit tests share in addition to check.h: numbers, contexts and a problem. */
#ifndef HEED_UNIT_H
#define HEED_UNIT_H

#include <heed/formats.h>
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "../kit/random.h"

/* Members of a heed_attn_desc. */
#define UNIT_SHAPE(q_heads_, kv_heads_, qk_dim_, v_dim_)                                           \
    .q_heads = (q_heads_), .kv_heads = (kv_heads_), .qk_dim = (qk_dim_), .v_dim = (v_dim_)
#define UNIT_TYPES(q, k, v, out) .q_type = (q), .k_type = (k), .v_type = (v), .out_type = (out)

/* In [-1, 1), a multiple of 2^-10. */
static inline float unit_number(uint64_t *state)
{
    return (float)(kit_below(state, 2048) - 1024) / 1024;
}

/* From N(0, 1), by Box and Muller. */
static inline float unit_normal(uint64_t *state)
{
    const double a = kit_uniform(kit_next(state)) + 0x1p-54; /* never 0 */
    const double b = kit_uniform(kit_next(state));
    return (float)(sqrt(-2 * log(a)) * cos(6.283185307179586 * b));
}

/* A number for which rules are special. */
static inline float unit_special(uint64_t *state)
{
    static const float value[] = {0,          -0.0f,    INFINITY, -INFINITY, NAN,  0x1p-149f,
                                  -0x1p-130f, 0x1p127f, 1e-30f,   65504,     0.5f, -0.5f};
    return value[kit_below(state, (int64_t)(sizeof value / sizeof *value))];
}

/* The same bits, or two NaN. */
static inline int unit_same(float a, float b)
{
    return (a != a && b != b) || heed_bits_of_f32(a) == heed_bits_of_f32(b);
}

/* parallel_for of executors that have one thread, in either order. */
static inline void unit_forwards(void *user, uint32_t n, void (*body)(void *arg, uint32_t i),
                                 void *arg)
{
    (void)user;
    for (uint32_t i = 0; i < n; i++)
        body(arg, i);
}

static inline void unit_backwards(void *user, uint32_t n, void (*body)(void *arg, uint32_t i),
                                  void *arg)
{
    (void)user;
    while (n > 0)
        body(arg, --n);
}

/* The log of a context: collects lines in the UNIT_LINES bytes at `user`. */
enum { UNIT_LINES = 4096 };

static inline void unit_collect(void *user, int32_t level, const char *line)
{
    (void)level;
    strncat(user, line, UNIT_LINES - strlen(user) - 1);
}

/* An allocator that runs out of memory: `user` of unit_spend and unit_refund. */
typedef struct unit_budget {
    int left;                /* allocations until they fail; all after the first failure do */
    size_t most;             /* bytes of one; 0: any */
    int64_t in_use, n_spent; /* bytes; allocations */
} unit_budget;

static inline void *unit_spend(void *user, size_t bytes, size_t align)
{
    unit_budget *b = user;
    CHECK(align % sizeof(void *) == 0 && !(align & (align - 1)), "aligned to %zu", align);
    if ((b->most && bytes > b->most) || b->left-- <= 0)
        return NULL;
    b->in_use += (int64_t)bytes;
    b->n_spent++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static inline void unit_refund(void *user, void *p, size_t bytes)
{
    ((unit_budget *)user)->in_use -= (int64_t)bytes;
    free(p);
}

/* A context with n_threads threads that uses `backends` (NULL: any). */
static inline heed_context *unit_context(uint32_t n_threads, const char *backends)
{
    heed_context_options options = {
        .struct_size = sizeof options, .n_threads = n_threads, .backends = backends};
    heed_context *context = NULL;
    if (heed_context_create(&options, &context) != HEED_OK) {
        printf("no context: %s\n", heed_last_error());
        exit(1);
    }
    return context;
}

/* An f32 problem in [batch, head, row, dim] order with equal head counts and dims, and its data. */
typedef struct unit_problem {
    heed_attn_desc desc;
    heed_attn_args args;
    float *q, *k, *v, *out;
    size_t out_bytes;
} unit_problem;

static inline unit_problem unit_make(int64_t batch, uint32_t heads, int64_t q_len, int64_t kv_len,
                                     uint32_t dim, uint64_t seed)
{
    const int64_t q_count = batch * heads * q_len * dim, k_count = batch * heads * kv_len * dim;
    unit_problem p = {
        .desc = {.struct_size = sizeof p.desc,
                 UNIT_SHAPE(heads, heads, dim, dim),
                 UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                 .max_batch = batch,
                 .max_q_len = q_len,
                 .max_kv_len = kv_len},
        .args = {.struct_size = sizeof p.args, .batch = batch, .q_len = q_len, .kv_len = kv_len},
        .out_bytes = (size_t)q_count * sizeof(float)};
    p.q = malloc((size_t)q_count * sizeof(float) + 1);
    p.k = malloc((size_t)k_count * sizeof(float) + 1);
    p.v = malloc((size_t)k_count * sizeof(float) + 1);
    p.out = calloc((size_t)q_count + 1, sizeof(float));
    if (!p.q || !p.k || !p.v || !p.out)
        exit(1);
    for (int64_t i = 0; i < q_count; i++)
        p.q[i] = unit_number(&seed);
    for (int64_t i = 0; i < k_count; i++)
        p.k[i] = unit_number(&seed), p.v[i] = unit_number(&seed);
    const heed_view out = {p.out, {heads * q_len * dim, q_len * dim, dim, 1}};
    const heed_const_view k = {p.k, {heads * kv_len * dim, kv_len * dim, dim, 1}};
    p.args.out = out;
    p.args.q = heed_as_const(out);
    p.args.q.data = p.q;
    p.args.k = p.args.v = k;
    p.args.v.data = p.v;
    return p;
}

static inline void unit_free(unit_problem *p)
{
    free(p->q);
    free(p->k);
    free(p->v);
    free(p->out);
}

/* Can a backend that the context may use run here? */
static inline int unit_runs_here(heed_context *context)
{
    unit_problem p = unit_make(1, 1, 1, 1, 8, 1);
    const heed_status status = heed_attn_supported(context, &p.desc, NULL);
    unit_free(&p);
    return status == HEED_OK;
}

/* What an explanation calls the queries of calls with so many rows. */
static inline const char *unit_class_of(int64_t rows)
{
    return rows == 1 ? "one query row" : rows <= 16 ? "2 to 16 query rows" : "more query rows";
}

/* Calls `check` for each backend that can run here, with a context that has it alone. */
static inline void unit_each_backend(void (*check)(heed_context *context, const char *name))
{
    heed_context *all = unit_context(0, NULL);
    heed_backend_info info = {.struct_size = sizeof info};
    for (uint32_t i = 0; heed_context_backend(all, i, &info) == HEED_OK; i++) {
        if (!info.usable)
            continue;
        heed_context *one = unit_context(0, info.name);
        check(one, info.name);
        heed_context_release(one);
    }
    heed_context_release(all);
}

static inline void *unit_workspace(const heed_attn *plan, uint32_t n_parts, size_t *bytes)
{
    *bytes = heed_attn_workspace_bytes(plan, n_parts);
    void *workspace = aligned_alloc(64, (*bytes + 63) / 64 * 64);
    if (!workspace)
        exit(1);
    memset(workspace, 0xa5, *bytes); /* what it held before must not matter */
    return workspace;
}

#endif
