/* Scores, weights and values of up to 16 rows of f32 with a few keys: what small.c does, apart from
 * where rows lie and of what type they are. */
#ifndef HEED_SIMD_SMALL_ROWS_H
#define HEED_SIMD_SMALL_ROWS_H

#include <math.h>

#include "../decode/decode.h"
#include "../simd.h"
#include "../vec/vec.h"

enum { ROWS = 16, KEYS = HEED_FEW_KEYS, QK_DIM = 16, V_DIM = HEED_SMALL_DIM };

/* What holds for a whole call. Strides are from row to row as the products read them. */
typedef struct job {
    float high, low; /* what q is multiplied by: decode_split */
    int ranges;      /* not every row sees all keys */
    int64_t keys, qk_dim, v_dim;
    int64_t q_stride, k_stride, v_stride, out_stride;
} job;

/* Rows of a kv head under way. */
typedef struct panel {
    int64_t g;      /* kv head, counted from the tile's */
    int64_t row, n; /* state row of its first, and how many */
    const float *q, *k, *v;
    float *out;
    int empty;                             /* some row saw nothing of weight */
    _Alignas(64) float weight[KEYS][ROWS]; /* a vector in one line of the cache */
    float max[ROWS], sum[ROWS], scale[ROWS];
    float low[ROWS], end[ROWS]; /* keys of the tile that a row sees */
    float q_copy[ROWS * QK_DIM], k_copy[KEYS * QK_DIM];
    float v_copy[KEYS * V_DIM], out_copy[ROWS * V_DIM];
} panel;

/* ---- scores -----------------------------------------------------------------------------------
 */

/* Loads eight dims of LANES rows, of which n exist, times the factor, one dim to a vector. */
V_INLINE void load_queries(const job *w, const float *at, int64_t stride, int64_t n, vf q[8])
{
    const vf high = v_set1(w->high), low = v_set1(w->low);
    V_OPAQUE(stride) /* else its multiples are kept for all panels, in memory */
    if (LANES > 8 && n == 1) {
        for (int i = 0; i < 8; i++) {
            q[i] = v_broadcast(at + i);
            q[i] = v_fma(q[i], high, v_mul(q[i], low));
        }
        return;
    }
    for (int i = 0; i < 8; i++) {
        q[i] = v_eights(at, stride, n, i);
        if (LANES <= 8 || v_eights_row(i) < n)
            q[i] = v_fma(q[i], high, v_mul(q[i], low));
    }
    v_eights_columns(q);
}

/* The scores of one key, a lane per row. Products are added in the order of decode/products.inc.h,
 * in which the second pass forms the scores again. */
V_INLINE vf score(const vf *q, const float *k, int64_t dim)
{
    vf x[8];
    for (int i = 0; i < 8; i++)
        x[i] = v_mul(q[i], v_broadcast(k + i));
    for (int i = 0; i < 8 && dim == 16; i++)
        x[i] = v_add(x[i], v_mul(q[i + 8], v_broadcast(k + i + 8)));
    for (int i = 0; i < 4; i++)
        x[i] = v_add(x[i], x[i + 4]);
    return v_add(v_add(x[0], x[2]), v_add(x[1], x[3]));
}

/* Scores of the LANES rows from `first` on, and their maximum. dim (constant) is 8 or 16. */
V_INLINE vf scores(const job *w, int64_t dim, int64_t first, panel *p)
{
    const int64_t stride = w->k_stride;
    const float *rows = p->q + first * w->q_stride, *k = p->k, *next = k + stride;
    float *to = p->weight[0] + first;
    vf q[QK_DIM], max = v_set1(-INFINITY);
    for (int64_t d = 0; d < dim; d += 8)
        load_queries(w, rows + d, w->q_stride, p->n - first, q + d);
    int64_t left = w->keys;
    for (; left >= 2; left -= 2, k += 2 * stride, next += 2 * stride, to += 2 * ROWS) {
        V_OPAQUE(next) /* else each of its elements gets a register of its own */
        const vf s0 = score(q, k, dim), s1 = score(q, next, dim);
        v_store(to, s0);
        v_store(to + ROWS, s1);
        max = v_max(v_max(max, s0), s1);
    }
    if (left) {
        const vf s = score(q, k, dim);
        v_store(to, s);
        max = v_max(max, s);
    }
    return max;
}

/* Sets the scores of keys that a row may not see to -inf. Returns the maximum of the others. */
V_NOINLINE vf hide(int64_t first, int64_t keys, panel *p)
{
    const vf none = v_set1(-INFINITY);
    const vf low = v_load(p->low + first), end = v_load(p->end + first);
    vf max = none;
    for (int64_t j = 0; j < keys; j++) {
        const vf at = v_set1((float)j);
        vf s = v_load(p->weight[j] + first);
        s = v_select(m_less(at, low), none, s);
        s = v_select(m_less(at, end), s, none);
        v_store(p->weight[j] + first, s);
        max = v_max(max, s);
    }
    return max;
}

/* Turns scores into weights, and sums these up. */
V_INLINE void weigh(int64_t first, int64_t keys, panel *p)
{
    const vf max = v_load(p->max + first);
    float *at = p->weight[0] + first;
    /* With nothing to see the maximum is -inf: 0 in its place keeps the weights 0. */
    const vf reference = v_select(m_equal(max, v_set1(-INFINITY)), v_zero(), max);
    vf sum = v_zero(), odd = v_zero();
    int64_t left = keys;
    for (; left >= 2; left -= 2, at += 2 * ROWS) {
        const vf w0 = v_exp2(v_sub(v_load(at), reference));
        const vf w1 = v_exp2(v_sub(v_load(at + ROWS), reference));
        v_store(at, w0);
        v_store(at + ROWS, w1);
        sum = v_add(sum, w0);
        odd = v_add(odd, w1);
    }
    if (left) {
        const vf w = v_exp2(v_sub(v_load(at), reference));
        v_store(at, w);
        sum = v_add(sum, w);
    }
    sum = v_add(sum, odd);
    p->empty |= m_bits(m_equal(sum, v_zero())) != 0;
    v_store(p->sum + first, sum);
    v_store(p->scale + first, v_div(v_set1(1), sum));
}

#if LANES == 8
/* ---- the last four rows -----------------------------------------------------------------------
 *
 * Up to four rows take half a vector, so two keys are worked on side by side. The sums of the even
 * and of the odd keys are then the same as for more rows.
 */

/* Loads eight dims of four rows, of which n exist, twice in each vector. */
V_INLINE void load_four(const job *w, const float *at, int64_t n, vf q[8])
{
    vf r[4], t[4];
    for (int i = 0; i < 4; i++) {
        r[i] = i < n ? v_load(at + i * w->q_stride) : v_zero();
        r[i] = v_fma(r[i], v_set1(w->high), v_mul(r[i], v_set1(w->low)));
    }
    t[0] = v_zip_low(r[0], r[1]), t[1] = v_zip_high(r[0], r[1]);
    t[2] = v_zip_low(r[2], r[3]), t[3] = v_zip_high(r[2], r[3]);
    r[0] = v_low_pairs(t[0], t[2]), r[1] = v_high_pairs(t[0], t[2]);
    r[2] = v_low_pairs(t[1], t[3]), r[3] = v_high_pairs(t[1], t[3]);
    for (int i = 0; i < 4; i++) {
        vf twice[2] = {r[i], r[i]};
        v_transpose_fours(twice);
        q[i] = twice[0], q[i + 4] = twice[1];
    }
}

/* The same as score() for two keys. */
V_INLINE vf score_two(const vf *q, const float *k0, const float *k1, int64_t dim)
{
    vf x[8];
    for (int64_t d = 0; d < dim; d += 4) {
        const vf k = v8_of(v4_load(k0 + d), v4_load(k1 + d));
        const vf y[4] = {v_mul(q[d], v_spread(k, 0)), v_mul(q[d + 1], v_spread(k, 1)),
                         v_mul(q[d + 2], v_spread(k, 2)), v_mul(q[d + 3], v_spread(k, 3))};
        for (int i = 0; i < 4; i++)
            x[d % 8 + i] = d < 8 ? y[i] : v_add(x[d % 8 + i], y[i]);
    }
    for (int i = 0; i < 4; i++)
        x[i] = v_add(x[i], x[i + 4]);
    return v_add(v_add(x[0], x[2]), v_add(x[1], x[3]));
}

V_INLINE void scores_of_four(const job *w, int64_t dim, int64_t first, panel *p)
{
    const float *rows = p->q + first * w->q_stride, *k = p->k;
    float *to = p->weight[0] + first;
    vf q[QK_DIM], max = v_set1(-INFINITY);
    for (int64_t d = 0; d < dim; d += 8)
        load_four(w, rows + d, p->n - first, q + d);
    for (int64_t left = w->keys; left > 0; left -= 2, k += 2 * w->k_stride, to += 2 * ROWS) {
        const vf s = score_two(q, k, left > 1 ? k + w->k_stride : k, dim);
        v4_store(to, v8_low(s));
        if (left > 1)
            v4_store(to + ROWS, v8_high(s));
        max = v_max(max, s);
    }
    v4_store(p->max + first, v4_max(v8_low(max), v8_high(max)));
}

V_INLINE void weigh_four(const job *w, int64_t first, panel *p)
{
    const v4 max = v4_load(p->max + first), zero = v4_zero();
    const v4 reference = v4_select(m4_equal(max, v4_set1(-INFINITY)), zero, max);
    const vf references = v8_of(reference, reference);
    float *at = p->weight[0] + first;
    vf sums = v_zero();
    int64_t left = w->keys;
    for (; left >= 2; left -= 2, at += 2 * ROWS) {
        const vf s = v8_of(v4_load(at), v4_load(at + ROWS));
        const vf weight = v_exp2(v_sub(s, references));
        v4_store(at, v8_low(weight));
        v4_store(at + ROWS, v8_high(weight));
        sums = v_add(sums, weight);
    }
    if (left) {
        const vf weight = v_exp2(v_sub(v8_of(v4_load(at), reference), references));
        v4_store(at, v8_low(weight));
        sums = v_add(sums, v8_of(v8_low(weight), zero));
    }
    const v4 sum = v4_add(v8_low(sums), v8_high(sums));
    p->empty |= m4_bits(m4_equal(sum, zero)) != 0;
    v4_store(p->sum + first, sum);
    v4_store(p->scale + first, v4_div(v4_set1(1), sum));
}
#endif

/* ---- values -----------------------------------------------------------------------------------
 */

/* Writes eight dims of out for `rows` (constant) rows from r on, which see all keys. */
V_INLINE void values(const job *w, const panel *p, int64_t d, int64_t r, int rows)
{
    const float *value = p->v + d, *weight = p->weight[0] + r, *end = weight + w->keys * ROWS;
    const float *scale = p->scale + r;
    const int64_t v_stride = w->v_stride, stride = w->out_stride;
    float *to = p->out + r * stride + d;
    const v8 z = v8_zero();
    v8 s0 = z, s1 = z, s2 = z, s3 = z, s4 = z, s5 = z, s6 = z, s7 = z, s8 = z, s9 = z, s10 = z,
       s11 = z;
    for (; weight < end; value += v_stride, weight += ROWS) {
        const v8 x = v8_load(value);
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define VALUE(n)                                                                                   \
    if (rows > n)                                                                                  \
        s##n = v8_fma(v8_broadcast(weight + n), x, s##n);
        EACH_ROW(VALUE)
    }
#define STORE(n)                                                                                   \
    if (rows > n)                                                                                  \
        v8_store(to, v8_mul(s##n, v8_broadcast(scale + n))), to += stride;
    EACH_ROW(STORE)
#undef STORE
#undef VALUE
#undef EACH_ROW
}

V_INLINE void all_values(const job *w, const panel *p, int64_t d)
{
    int64_t r = 0, n = p->n;
    for (; r + 12 <= n; r += 12)
        values(w, p, d, r, 12);
    if (r + 10 <= n)
        values(w, p, d, r, 10), r += 10;
    if (r + 8 <= n)
        values(w, p, d, r, 8), r += 8;
    if (r + 4 <= n)
        values(w, p, d, r, 4), r += 4;
    if (r + 2 <= n)
        values(w, p, d, r, 2), r += 2;
    if (r < n)
        values(w, p, d, r, 1);
}

/* The same for all rows of a panel, over the keys that each row sees. */
V_NOINLINE void values_of_ranges(const job *w, const panel *p, int64_t d)
{
    for (int64_t r = 0; r < p->n; r++) {
        v8 s = v8_zero();
        for (int64_t j = (int64_t)p->low[r]; j < (int64_t)p->end[r]; j++)
            s = v8_fma(v8_broadcast(&p->weight[j][r]), v8_load(p->v + j * w->v_stride + d), s);
        v8_store(p->out + r * w->out_stride + d, v8_mul(s, v8_broadcast(&p->scale[r])));
    }
}

/* Writes zeros for rows that saw nothing of weight, whatever the values are. */
V_NOINLINE void clear_empty(const job *w, const panel *p)
{
    for (int64_t r = 0; r < p->n; r++)
        if (p->sum[r] == 0)
            memset(p->out + r * w->out_stride, 0, w->v_dim * sizeof(float));
}

/* ---- a panel ----------------------------------------------------------------------------------
 */

/* Are the rows from `first` on so few that they take half a vector, and do they see all keys? */
V_INLINE int few_are_left(const job *w, const panel *p, int64_t first)
{
    return LANES == 8 && !w->ranges && p->n - first <= 4;
}

/* Forms scores and their maxima. dim (constant) is 8 or 16. */
V_INLINE void score_panel(const job *w, int64_t dim, panel *p)
{
    for (int64_t first = 0; first < p->n; first += LANES) {
#if LANES == 8
        if (few_are_left(w, p, first)) {
            scores_of_four(w, dim, first, p);
            continue;
        }
#endif
        vf max = scores(w, dim, first, p);
        if (w->ranges)
            max = hide(first, w->keys, p);
        v_store(p->max + first, max);
    }
}

/* Turns scores into weights, and writes out. */
V_INLINE void finish_panel(const job *w, panel *p)
{
    p->empty = 0;
    for (int64_t first = 0; first < p->n; first += LANES) {
#if LANES == 8
        if (few_are_left(w, p, first)) {
            weigh_four(w, first, p);
            continue;
        }
#endif
        weigh(first, w->keys, p);
    }
    for (int64_t d = 0; d < w->v_dim; d += 8)
        if (w->ranges)
            values_of_ranges(w, p, d);
        else
            all_values(w, p, d);
    if (p->empty)
        clear_empty(w, p);
}

#endif
