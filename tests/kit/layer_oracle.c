/* A test layer in float64: every step with a bound of its error, which the next step carries on.
 *
 * u = 2^-24. A linear layer's sum has an error of kit_grow(n) u sum |x w| (see tolerance.c), and
 * carries sum |dx| |w| on; each number that is stored is rounded by its type. A score carries
 * |scale| sum (|dq| |k| + |q| |dk| + |dq| |dk|) on top of attention's own error. With the largest
 * error D of a row's scores every weight is off by a factor in [exp(-2 D), exp(2 D)].
 *
 * These bounds let every error of every step point the same way, so a small systematic mistake
 * could hide in them. Therefore y as a whole (its L2 norm) is compared with standard deviations
 * too: those of single roundings and of sums of independent ones, whose variances add, carried on
 * from step to step. A linear layer has u sum |x w| (see tolerance.c) and carries sum t^2 w^2. An
 * output of attention, o = sum w v, moves with the scores s by sum w_j ds_j (v_j - o): deviations
 * of k_j move s_j alone; those of q move all of them, and the covariance of k and v under w that
 * results is at most the root of both variances (Cauchy-Schwarz).
 */
#include "decode.h"
#include "layer_steps.h"
#include "tolerance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How many deviations y as a whole may be off by. A rounding counts as half an ulp, which is its
 * greatest error. In a small layer all of y may depend on one number whose five roundings
 * (projected, rotated, appended, attended, projected) are all at their greatest: sqrt(5)
 * deviations. Large layers stay below 0.6. */
#define LIMIT 2.5

static int64_t keys_of(const layer *l)
{
    const layer_spec *s = &l->spec;
    return s->cache ? s->capacity : s->d_kv ? s->kv_len : s->q_len;
}

static int64_t new_rows(const layer *l, int64_t b)
{
    return l->spec.d_kv ? l->kv_lens[b] : l->q_lens[b];
}

/* Offset in elements of key j of sequence b in a cache. */
static int64_t cache_at(const layer *l, const heed_view *view, int64_t b, int64_t j)
{
    if (l->spec.cache != LAYER_PAGES)
        return b * view->stride[0] + j * view->stride[2];
    int64_t len = l->attn.page_len;
    return l->table[b * l->args.block_table_stride + j / len] * view->stride[0] +
           j % len * view->stride[2];
}

/* ---- the whole ------------------------------------------------------------------------------- */

typedef struct checker {
    const layer *l;
    kit_outcome *outcome;
    layer_numbers q, k, v, o; /* [batch, rows or keys, heads * dim] */
    kit_tolerance how;
    kit_row_tolerance to; /* attention's own */
} checker;

static void find_rows(checker *c, const heed_const_view *view, const int32_t *starts, int64_t b,
                      int64_t i, int64_t columns, double *x)
{
    int64_t at =
        starts ? (starts[b] + i) * view->stride[1] : b * view->stride[0] + i * view->stride[1];
    for (int64_t d = 0; d < columns; d++)
        x[d] = kit_decode(c->l->spec.x_type, view->data, at + d * view->stride[2]);
}

/* Position of row 0 of sequence b among the keys. */
static int64_t offset_of(const layer *l, int64_t b)
{
    int64_t there = l->spec.cache ? l->cache_lens[b] : 0;
    int64_t behind = there + new_rows(l, b) - l->q_lens[b];
    return l->spec.position == HEED_POS_BOTTOM_RIGHT             ? behind
           : l->spec.position == HEED_POS_UNSET && !l->spec.d_kv ? behind
                                                                 : 0;
}

static void find_qkv(checker *c)
{
    const layer *l = c->l;
    const layer_spec *s = &l->spec;
    const int64_t q = (int64_t)s->q_heads * s->qk_dim, k = (int64_t)s->kv_heads * s->qk_dim,
                  v = (int64_t)s->kv_heads * s->v_dim, keys = keys_of(l);
    double *x = calloc(s->d_model + s->d_kv + 1, sizeof(double));
    for (int64_t b = 0; x && b < s->batch; b++) {
        const int64_t there = s->cache ? l->cache_lens[b] : 0;
        for (int64_t i = 0; i < l->q_lens[b]; i++) {
            int64_t at = (b * s->q_len + i) * q;
            find_rows(c, &l->args.x_q, l->args.q_starts, b, i, s->d_model, x);
            layer_source(l, 0, x, layer_from(c->q, at));
            layer_turn(l, s->q_heads, layer_position(l, b, i, offset_of(l, b)), l->attn.q_type,
                       layer_from(c->q, at));
        }
        for (int64_t j = 0; j < there; j++) {
            for (int64_t d = 0; d < k; d++)
                c->k.value[(b * keys + j) * k + d] = kit_decode(
                    s->kv_type, l->cache_before[0], cache_at(l, &l->args.k_cache, b, j) + d);
            for (int64_t d = 0; d < v; d++)
                c->v.value[(b * keys + j) * v + d] = kit_decode(
                    s->kv_type, l->cache_before[1], cache_at(l, &l->args.v_cache, b, j) + d);
        }
        for (int64_t i = 0; i < new_rows(l, b); i++) {
            int64_t at = (b * keys + there + i) * k, v_at = (b * keys + there + i) * v;
            uint32_t type = s->cache && s->projections && s->projections != LAYER_ONLY_Q
                                ? s->mid_type
                            : s->cache ? s->x_type
                                       : s->kv_type;
            if (s->d_kv)
                find_rows(c, &l->args.x_kv, l->args.kv_starts, b, i, s->d_kv, x);
            else
                find_rows(c, &l->args.x_q, l->args.q_starts, b, i, s->d_model, x);
            layer_source(l, 1, x, layer_from(c->k, at));
            layer_source(l, 2, x, layer_from(c->v, v_at));
            layer_turn(l, s->kv_heads, s->d_kv ? there + i : layer_position(l, b, i, there), type,
                       layer_from(c->k, at));
            if (s->cache) {
                layer_append(s->kv_type, k, layer_from(c->k, at));
                layer_append(s->kv_type, v, layer_from(c->v, v_at));
            }
        }
    }
    free(x);
}

/* Names an element in the message of a failure. */
typedef struct place {
    const char *what;
    int64_t b, i, d;
} place;

static void compare(checker *c, place it, uint32_t type, const void *data, int64_t at, double want,
                    double bound)
{
    double got = kit_decode(type, data, at);
    if (!(fabs(got - want) <= bound) && got != want) /* equal: both -inf */
        kit_fail(c->outcome, "%s[%lld, %lld, %lld] is %.9g, should be %.9g +- %.2g", it.what,
                 (long long)it.b, (long long)it.i, (long long)it.d, got, want, bound);
}

/* The variance, under a row's weights, of column d of its keys or values. A sink is a key of
 * zeros. */
static double variance_of(const reference_row *r, const double *rows, int64_t dim, int64_t d)
{
    double mean = 0, square_mean = 0;
    for (int64_t j = 0; j < r->n_keys; j++) {
        mean += r->weight[j] * rows[j * dim + d];
        square_mean += r->weight[j] * square(rows[j * dim + d]);
    }
    return fmax(0, square_mean - square(mean));
}

/* The variance of out[d] that comes from the variances of q, k and v, for each d. */
static void carry(const checker *c, const reference_problem *p, const reference_row *r, double *out)
{
    const int64_t qk = p->qk_dim, vd = p->v_dim, k_row = p->kv_heads * qk, v_row = p->kv_heads * vd;
    const double *q = c->q.typical + (r->b * p->q_len + r->i) * p->q_heads * qk + r->h * qk;
    const double *k = c->k.typical + r->b * p->kv_len * k_row + r->g * qk;
    const double *v = c->v.typical + r->b * p->kv_len * v_row + r->g * vd;
    double of_q = 0;
    for (int64_t e = 0; e < qk; e++)
        of_q += square(p->scale * q[e]) * variance_of(r, r->k, qk, e);
    for (int64_t d = 0; d < vd; d++)
        out[d] = of_q * variance_of(r, r->v, vd, d);
    for (int64_t j = 0; j < r->n_keys; j++) {
        double of_score = 0;
        for (int64_t e = 0; e < qk; e++)
            of_score += square(p->scale * r->q[e] * k[j * k_row + e]);
        for (int64_t d = 0; d < vd; d++)
            out[d] += square(r->weight[j]) *
                      (of_score * square(r->v[j * vd + d] - r->out[d]) + square(v[j * v_row + d]));
    }
}

static void attend_row(void *user, const reference_problem *p, const reference_row *r)
{
    checker *c = user;
    const layer *l = c->l;
    const int64_t keys = p->kv_len, qk = p->qk_dim, vd = p->v_dim;
    const double *dq = c->q.error + (r->b * p->q_len + r->i) * p->q_heads * qk + r->h * qk;
    const layer_numbers o =
        layer_from(c->o, (r->b * p->q_len + r->i) * p->q_heads * vd + r->h * vd);
    double most = 0;
    kit_tolerate(&c->how, p, r, &c->to);
    for (int64_t j = 0; j < keys; j++) {
        const double *dk = c->k.error + (r->b * keys + j) * p->kv_heads * qk + r->g * qk;
        double carried = 0;
        if (!r->visible[j])
            continue;
        for (int64_t d = 0; d < qk; d++)
            carried += dq[d] * (fabs(r->k[j * qk + d]) + dk[d]) + fabs(r->q[d]) * dk[d];
        /* attention's own error is relative to what it was given */
        carried *= fabs(p->scale) * (1 + c->how.product + kit_grow((double)qk) * LAYER_U);
        most = fmax(most, carried);
    }
    const double factor = exp(2 * most) - 1;
    carry(c, p, r, o.typical);
    for (int64_t d = 0; d < vd; d++) {
        double sum = 0, spread = 0;
        for (int64_t j = 0; j < r->n_keys; j++) {
            const double *dv = c->v.error + (r->b * keys + j) * p->kv_heads * vd + r->g * vd;
            sum += r->weight[j] * fabs(r->v[j * vd + d]);
            spread += r->weight[j] * dv[d];
        }
        o.value[d] = r->out[d];
        o.error[d] =
            layer_stored(l->attn.out_type, o.value[d],
                         (c->to.out[d] + factor * sum + (1 + factor) * spread) * (1 + factor));
        o.typical[d] = layer_scatter(l->attn.out_type, o.value[d],
                                     o.typical[d] + square(c->to.typical[d]), o.error[d]);
    }
    if (l->spec.features & HEED_HAS_LSE) {
        const heed_view *view = &l->args.lse;
        int64_t at = (l->args.q_starts ? (l->q_starts[r->b] + r->i) * view->stride[2]
                                       : r->b * view->stride[0] + r->i * view->stride[2]) +
                     r->h * view->stride[1];
        compare(c, (place){"lse", r->b, r->h, r->i}, HEED_F32, view->data, at, r->lse,
                c->to.lse + most + LAYER_U * fabs(r->lse));
    }
    for (int64_t j = 0; l->spec.features & HEED_HAS_WEIGHTS && j < keys; j++) {
        const heed_view *view = &l->args.weights;
        compare(c, (place){"weights", r->b, r->h * 1000 + r->i, j}, HEED_F32, view->data,
                r->b * view->stride[0] + r->h * view->stride[1] + r->i * view->stride[2] + j,
                r->weight[j], c->to.weight[j] + factor * r->weight[j] + LAYER_U * r->weight[j]);
    }
}

static void attend(checker *c)
{
    const layer *l = c->l;
    const layer_spec *s = &l->spec;
    const int64_t keys = keys_of(l), q = (int64_t)s->q_heads * s->qk_dim,
                  k = (int64_t)s->kv_heads * s->qk_dim, v = (int64_t)s->kv_heads * s->v_dim;
    int32_t all[LAYER_BATCH];
    int64_t offset[LAYER_BATCH];
    for (uint32_t b = 0; b < s->batch; b++) {
        all[b] = (int32_t)((s->cache ? l->cache_lens[b] : 0) + new_rows(l, b));
        offset[b] = offset_of(l, b);
    }
    const reference_problem p = {
        .batch = s->batch,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .q_len = s->q_len,
        .kv_len = keys,
        .qk_dim = s->qk_dim,
        .v_dim = s->v_dim,
        .q = {.data = c->q.value, .type = REFERENCE_F64, .stride = {s->q_len * q, s->qk_dim, q, 1}},
        .k = {.data = c->k.value, .type = REFERENCE_F64, .stride = {keys * k, s->qk_dim, k, 1}},
        .v = {.data = c->v.value, .type = REFERENCE_F64, .stride = {keys * v, s->v_dim, v, 1}},
        .mask = {.data = l->mask,
                 .type = REFERENCE_BYTE,
                 .stride = {l->args.mask.stride[0], l->args.mask.stride[1], l->args.mask.stride[2],
                            1}},
        .scale = 1 / sqrt(s->qk_dim),
        .causal = (s->features & HEED_HAS_CAUSAL) != 0,
        .window_left = -1,
        .window_right = -1,
        .q_lens = l->q_lens,
        .kv_lens = all,
        .offset = offset,
        .alibi_slope = l->args.alibi_slope,
        .sink = l->args.sink,
        .listed = s->lists & (LAYER_RANGES | LAYER_BLOCKS) ? layer_listed : NULL,
        .listed_of = l,
        .mask_from = l->args.mask_from};
    if (reference_attention(&p, attend_row, c) != 0)
        kit_fail(c->outcome, "out of memory");
}

static void check_y(checker *c)
{
    const layer *l = c->l;
    const layer_spec *s = &l->spec;
    const int64_t in = (int64_t)s->q_heads * s->v_dim, cols = s->out ? s->out : in;
    layer_numbers y = layer_numbers_of(cols);
    double error2 = 0, typical2 = 0;
    unsigned char *owned = calloc(l->buffer[LAYER_Y].bytes + 1, 1);
    const size_t bytes = kit_bytes_of(s->y_type);
    for (int64_t b = 0; owned && b < s->batch; b++)
        for (int64_t i = 0; i < l->q_lens[b]; i++) {
            const int64_t at = (b * s->q_len + i) * in, row = layer_y_row(l, b, i);
            const layer_numbers o = layer_from(c->o, at);
            if (s->out)
                layer_project(l, (layer_columns){5, in, cols, 0, cols}, s->y_type, o, y);
            for (int64_t d = 0; d < cols; d++) {
                const layer_numbers one = layer_from(s->out ? y : o, d);
                double want = *one.value, bound = *one.error, typical = *one.typical;
                if (s->residual) { /* added before the one rounding; the sum rounds once more */
                    want += kit_decode(s->y_type, l->args.residual.data, row + d);
                    bound = layer_stored(s->y_type, want, bound + LAYER_U * fabs(want));
                    typical = layer_scatter(s->y_type, want,
                                            square(typical) + square(LAYER_U * want), bound);
                }
                memset(owned + (size_t)(row + d) * bytes, 1, bytes);
                compare(c, (place){"y", b, i, d}, s->y_type, l->args.y.data, row + d, want, bound);
                error2 += square(kit_decode(s->y_type, l->args.y.data, row + d) - want);
                typical2 += square(typical);
            }
        }
    if (error2 > square(LIMIT) * typical2)
        kit_fail(c->outcome,
                 "the L2 error of y is %.3g times what rounding explains (limit %g), though each "
                 "element is within its bound",
                 sqrt(error2 / typical2), LIMIT);
    for (size_t i = 0; owned && i < l->buffer[LAYER_Y].bytes; i++)
        if (!owned[i] && l->buffer[LAYER_Y].data[i] != KIT_CANARY)
            kit_fail(c->outcome, "byte %zu of y is no element of a row, and was written", i);
    free(owned);
    layer_drop(y);
}

/* Checks what was appended, and that nothing else of the cache has changed. */
static void check_cache(checker *c)
{
    const layer *l = c->l;
    const layer_spec *s = &l->spec;
    const size_t bytes = kit_bytes_of(s->kv_type);
    for (int side = 0; s->cache && side < 2; side++) {
        const guard_buffer *buffer = &l->buffer[LAYER_K + side];
        const heed_view *view = side ? &l->args.v_cache : &l->args.k_cache;
        const layer_numbers *want = side ? &c->v : &c->k;
        unsigned char *owned = calloc(buffer->bytes + 1, 1);
        for (int64_t b = 0; owned && b < s->batch; b++)
            for (int64_t i = 0; i < new_rows(l, b); i++)
                for (int64_t d = 0; d < view->stride[2]; d++) {
                    int64_t j = l->cache_lens[b] + i, at = cache_at(l, view, b, j) + d;
                    int64_t n = (b * s->capacity + j) * view->stride[2] + d;
                    memset(owned + (size_t)at * bytes, 1, bytes);
                    compare(c, (place){side ? "v_cache" : "k_cache", b, j, d}, s->kv_type,
                            buffer->data, at, want->value[n], want->error[n]);
                }
        for (size_t i = 0; owned && i < buffer->bytes; i++)
            if (!owned[i] && buffer->data[i] != l->cache_before[side][i])
                kit_fail(c->outcome, "byte %zu of the %s cache has changed", i,
                         side ? "value" : "key");
        free(owned);
    }
}

void layer_check(const layer *l, kit_outcome *outcome)
{
    const layer_spec *s = &l->spec;
    const int64_t keys = keys_of(l), rows = s->batch * s->q_len;
    checker c = {.l = l, .outcome = outcome};
    const int bf16 = l->attn.q_type == HEED_BF16 && l->attn.k_type == HEED_BF16;
    c.how = kit_tolerance_of(bf16 ? HEED_ACCURACY_BF16 : HEED_ACCURACY_EXACT, HEED_F32);
    c.q = layer_numbers_of(rows * s->q_heads * s->qk_dim);
    c.k = layer_numbers_of(s->batch * keys * s->kv_heads * s->qk_dim);
    c.v = layer_numbers_of(s->batch * keys * s->kv_heads * s->v_dim);
    c.o = layer_numbers_of(rows * s->q_heads * s->v_dim);
    if (kit_row_tolerance_make(&c.to, keys, s->v_dim) == 0) {
        find_qkv(&c);
        attend(&c);
        check_y(&c);
        check_cache(&c);
    }
    free(c.to.raw);
    layer_drop(c.q);
    layer_drop(c.k);
    layer_drop(c.v);
    layer_drop(c.o);
}
