/* Every row's out, lse and weights against the oracle, with the tolerance that the conformance kit
 * derives for that row. See tests/kit. */
#include "fuzz_judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference_f64.h"
#include "tolerance.h"

typedef struct judge {
    const fuzz_problem *problem;
    kit_tolerance out, f32;
    kit_row_tolerance to;
    int64_t first; /* row of the problem that is row 0 of the reference's */
    int bad;
} judge;

static double element(const fuzz_problem *p, int tensor, int type, int64_t b, int64_t h, int64_t i,
                      int64_t d)
{
    return reference_decode(type, p->tensor[tensor].first, fuzz_at(p, tensor, b, h, i, d));
}

static void hold(judge *j, const char *what, const kit_tolerance *how, const reference_row *row,
                 int64_t at, double got, double want, double bound)
{
    int close = (how == &j->out ? kit_close_out : kit_close)(how, got, want, bound);
    if (close || j->bad++ > 4)
        return;
    fprintf(stderr, "%s [b %lld, h %lld, i %lld, %lld] is %.9g, the reference %.9g +- %.3g\n", what,
            (long long)row->b, (long long)row->h, (long long)(j->first + row->i), (long long)at,
            got, want, bound);
}

static void visit(void *user, const reference_problem *problem, const reference_row *row)
{
    judge *j = user;
    const fuzz_problem *p = j->problem;
    kit_tolerate(&j->out, problem, row, &j->to);
    for (int64_t d = 0; d < problem->v_dim; d++)
        hold(j, "out", &j->out, row, d,
             element(p, FUZZ_OUT, (int)p->desc.out_type, row->b, row->h, j->first + row->i, d),
             row->out[d], j->to.out[d]);
    if (p->tensor[FUZZ_LSE].memory)
        hold(j, "lse", &j->f32, row, 0,
             element(p, FUZZ_LSE, REFERENCE_F32, row->b, row->h, j->first + row->i, 0), row->lse,
             j->to.lse);
    for (int64_t k = 0; p->tensor[FUZZ_WEIGHTS].memory && k < problem->kv_len; k++)
        hold(j, "weights", &j->f32, row, k,
             element(p, FUZZ_WEIGHTS, REFERENCE_F32, row->b, row->h, j->first + row->i, k),
             row->weight[k], j->to.weight[k]);
}

static int64_t reference_bytes(int type)
{
    return type == REFERENCE_BYTE ? 1 : type == REFERENCE_F32 ? 4 : 2;
}

static reference_array array(const void *data, const int64_t *stride, uint32_t type)
{
    reference_array a = {.data = data, .type = (int)type};
    for (int i = 0; i < 4; i++)
        a.stride[i] = stride[i];
    return a;
}

/* Packed and paged tensors are copied out for the reference: [batch, heads, rows, dim]. *copy is to
 * be freed. */
static reference_array gather(const fuzz_problem *p, int tensor, uint32_t type, int64_t heads,
                              int64_t rows, int64_t dim, void **copy)
{
    const fuzz_tensor *t = &p->tensor[tensor];
    int keys = tensor != FUZZ_Q;
    *copy = NULL;
    if (keys ? !p->args.kv_starts && !p->args.block_table : !p->args.q_starts)
        return array(t->first, t->view.stride, type);
    reference_array a = {.type = (int)type, .stride = {heads * rows * dim, rows * dim, dim, 1}};
    unsigned char *to = calloc((size_t)(p->args.batch * a.stride[0]) + 1, t->element);
    a.data = *copy = to;
    for (int64_t b = 0; to && b < p->args.batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < (keys ? fuzz_kv_len(p, b) : fuzz_q_len(p, b)); i++)
                for (int64_t d = 0; d < dim; d++)
                    memcpy(to + (b * a.stride[0] + h * a.stride[1] + i * dim + d) * t->element,
                           t->first + fuzz_at(p, tensor, b, h, i, d) * (int64_t)t->element,
                           t->element);
    return a;
}

/* The reference adds without looking for overflow. */
static int64_t window(int64_t size)
{
    return size > INT64_C(1) << 40 ? INT64_C(1) << 40 : size;
}

static uint32_t accuracy(const heed_attn_desc *d)
{
    int bf16 = d->q_type == HEED_BF16 && d->k_type == HEED_BF16 && d->v_type == HEED_BF16;
    if (d->accuracy == HEED_ACCURACY_SPLIT || d->accuracy == HEED_ACCURACY_EXACT)
        return d->accuracy;
    return bf16 ? HEED_ACCURACY_BF16 : HEED_ACCURACY_EXACT;
}

static void forward(reference_array *a, int64_t rows)
{
    if (a->data)
        a->data = (const char *)a->data + rows * a->stride[2] * reference_bytes(a->type);
}

/* Rows [first, first + n) alone. */
static void some_rows(const reference_problem *all, judge *j, int64_t first, int64_t n)
{
    reference_problem r = *all;
    int32_t q_lens[FUZZ_MAX_BATCH];
    int64_t offset[FUZZ_MAX_BATCH];
    for (int64_t b = 0; b < r.batch; b++) {
        const int64_t rest = fuzz_q_len(j->problem, b) - first;
        q_lens[b] = (int32_t)(rest < 0 ? 0 : rest < n ? rest : n);
        offset[b] = all->offset[b] + first;
    }
    r.q_lens = q_lens;
    r.offset = offset;
    forward(&r.q, first);
    forward(&r.mask, first);
    forward(&r.bias, first);
    j->first = first;
    reference_attention(&r, visit, j);
}

static void *doubles(int64_t n)
{
    return malloc((size_t)(n + 1) * sizeof(double));
}

int fuzz_judge(const fuzz_problem *p)
{
    const heed_attn_desc *d = &p->desc;
    const heed_attn_args *a = &p->args;
    int64_t offset[FUZZ_MAX_BATCH] = {0};
    void *copy[3];
    int has_window = (d->features & HEED_HAS_WINDOW) != 0;
    reference_problem r = {
        .batch = a->batch,
        .q_heads = d->q_heads,
        .kv_heads = d->kv_heads,
        .q_len = a->q_len,
        .kv_len = a->kv_len,
        .qk_dim = d->qk_dim,
        .v_dim = d->v_dim,
        .q = gather(p, FUZZ_Q, d->q_type, d->q_heads, a->q_len, d->qk_dim, &copy[0]),
        .k = gather(p, FUZZ_K, d->k_type, d->kv_heads, a->kv_len, d->qk_dim, &copy[1]),
        .v = gather(p, FUZZ_V, d->v_type, d->kv_heads, a->kv_len, d->v_dim, &copy[2]),
        .mask = array(a->mask.data, a->mask.stride, REFERENCE_BYTE),
        .bias = array(a->bias.data, a->bias.stride, d->bias_type),
        .scale = d->features & HEED_HAS_SCALE ? (double)d->scale : 1 / sqrt((double)d->qk_dim),
        .softcap = (double)d->softcap,
        .causal = (d->features & HEED_HAS_CAUSAL) != 0,
        .window_left = has_window ? window(d->window_left) : -1,
        .window_right = has_window ? window(d->window_right) : -1,
        .q_lens = a->q_lens,
        .kv_lens = a->kv_lens,
        .offset = offset,
        .alibi_slope = a->alibi_slope,
        .bias_slope = a->bias_slope,
        .sink = a->sink,
    };
    judge j = {.problem = p,
               .out = kit_tolerance_of(accuracy(d), d->out_type),
               .f32 = kit_tolerance_of(accuracy(d), HEED_F32)};
    for (int64_t b = 0; b < a->batch; b++) {
        offset[b] = d->position == HEED_POS_BOTTOM_RIGHT ? fuzz_kv_len(p, b) - fuzz_q_len(p, b)
                    : d->position == HEED_POS_GIVEN      ? p->q_offsets[b]
                                                         : 0;
    }
    j.to.raw = doubles(a->kv_len);
    j.to.softcapped = doubles(a->kv_len);
    j.to.score = doubles(a->kv_len);
    j.to.weight = doubles(a->kv_len);
    j.to.out = doubles(d->v_dim);
    j.to.typical = doubles(d->v_dim);
    if (r.q.data && r.k.data && r.v.data && j.to.raw && j.to.softcapped && j.to.score &&
        j.to.weight && j.to.out && j.to.typical) {
        /* Of large problems a few rows in the first tile and all over them. */
        const int64_t step = p->large ? a->q_len / 10 + 5 : a->q_len + 1;
        for (int64_t first = 0; first < a->q_len; first += step)
            some_rows(&r, &j, first, p->large ? 3 : a->q_len);
    }
    for (int i = 0; i < 3; i++)
        free(copy[i]);
    free(j.to.raw);
    free(j.to.softcapped);
    free(j.to.score);
    free(j.to.weight);
    free(j.to.out);
    free(j.to.typical);
    return j.bad == 0;
}
