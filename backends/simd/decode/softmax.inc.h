/* Turns scores of a decode block into weights: modifiers, the reference, and what is
 * rescaled with it. */
#ifndef HEED_SIMD_DECODE_SOFTMAX_H
#define HEED_SIMD_DECODE_SOFTMAX_H

#include "visible.inc.h"

/* Is there anything for finish_scores to do? */
static int has_terms(const heed_problem *p)
{
    return (p->features & (HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_BIAS)) != 0;
}

/* Adds slope * distance to the scores of 16 keys, of which the first is `first` keys behind the row's
 * position. Distances below 2^24 are exact in f32, so one may be the sum of two. */
V_INLINE void add_alibi(float slope, int64_t first, float *s)
{
    static const float each[DECODE_BLOCK] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int64_t far = (INT64_C(1) << 24) - DECODE_BLOCK;
    if (first > -far && first < far) {
        const vf distance = v_set1((float)first);
        for (int j = 0; j < DECODE_BLOCK; j += LANES)
            v_store(s + j,
                    v_add(v_load(s + j), v_mul(v_set1(slope), v_add(distance, v_load(each + j)))));
        return;
    }
    for (int j = 0; j < DECODE_BLOCK; j++)
        s[j] += slope * (float)(first + j);
}

/* Softcap, ALiBi and bias, from the products of row r. */
static void finish_scores(const decode *d, const block *b, int64_t r)
{
    const heed_problem *p = d->problem;
    const heed_tile *tile = d->tile;
    const double log2_e = 1.4426950408889634;
    int64_t head = r / tile->q_count, i = tile->q_first + r % tile->q_count;
    float *s = b->scores + r * DECODE_BLOCK;
    if (p->features & HEED_HAS_SOFTCAP) {
        const vf cap = v_set1((float)((double)p->softcap * log2_e));
        for (int j = 0; j < DECODE_BLOCK; j += LANES)
            v_store(s + j, v_mul(v_tanh(v_load(s + j)), cap));
    }
    if (tile->alibi_slope)
        add_alibi((float)((double)tile->alibi_slope[head] * log2_e), b->base - (i + tile->q_offset),
                  s);
    if (tile->bias.data) {
        const vf slope = v_set1(tile->bias_slope ? tile->bias_slope[head] : 1);
        float bias[DECODE_BLOCK];
        load_bias(d, b, head, i, bias); /* keys whose bias is -inf are not visible */
        for (int j = 0; j < DECODE_BLOCK; j += LANES)
            v_store(s + j, v_fma(v_set1((float)log2_e), v_held(v_mul(slope, v_load(bias + j))),
                                 v_load(s + j)));
    }
}

/* finish_scores for a block of a run. */
V_NOINLINE void finish_run_scores(const decode *d, float *scores, int64_t r)
{
    block b;
    b.base = b.first = d->run_key;
    b.end = d->run_key + DECODE_BLOCK;
    b.scores = scores;
    finish_scores(d, &b, r);
}

/* A score may exceed the reference by so much, in log2 units, before the reference is raised: every
 * few blocks a score is a little greater than all before it, and each time the CPU would mispredict
 * the branch and load nothing ahead meanwhile. Weights up to 2^8 lose no accuracy. */
#define DECODE_SLACK 8.0f

/* Raises the reference of row r to the greatest of 16 scores, and rescales what has been summed so far. */
V_NOINLINE void raise_reference(decode *d, int64_t r, const float scores[DECODE_BLOCK])
{
    float *acc = d->tile->acc + r * d->tile->acc_stride, *sums = d->sums + r * DECODE_BLOCK;
    float top = -INFINITY;
    for (int i = 0; i < DECODE_BLOCK; i++)
        top = scores[i] > top ? scores[i] : top;
    vf factor = v_exp2(v_set1(d->reference[r] - top));
    int64_t i = 0, dim = d->problem->v_dim;
    for (; i + LANES <= dim; i += LANES)
        v_store(acc + i, v_mul(v_load(acc + i), factor));
    if (i < dim)
        v_store_n(acc + i, v_mul(v_load_n(acc + i, (int)(dim - i)), factor), (int)(dim - i));
    for (i = 0; i < DECODE_BLOCK; i += LANES)
        v_store(sums + i, v_mul(v_load(sums + i), factor));
    d->reference[r] = top;
}

/* Is a score of row r too far above its reference? */
V_INLINE uint32_t is_above(const decode *d, int64_t r, const vf x[DECODE_BLOCK / LANES])
{
    const vf most = v_set1(d->reference[r] + DECODE_SLACK);
    uint32_t above = 0;
    V_UNROLL for (int i = 0; i < DECODE_BLOCK / LANES; i++) above |= m_bits(m_less(most, x[i]));
    return above;
}

/* Raises the reference of row r if one of the scores x demands it. */
V_INLINE void settle_reference(decode *d, int64_t r, const vf x[DECODE_BLOCK / LANES])
{
    float each[DECODE_BLOCK];
    if (!is_above(d, r, x))
        return;
    V_UNROLL for (int i = 0; i < DECODE_BLOCK / LANES; i++) v_store(each + i * LANES, x[i]);
    raise_reference(d, r, each);
}

/* Turns the scores x of row r into weights relative to its reference. `after` are V's lifted scales (NULL:
 * none): the weights are multiplied by them, but summed without them. */
V_INLINE void weigh_row(decode *d, float *scores, int64_t r, vf x[DECODE_BLOCK / LANES],
                        const float *after)
{
    float *s = scores + r * DECODE_BLOCK, *sums = d->sums + r * DECODE_BLOCK;
    const vf m = v_set1(d->reference[r]);
    V_UNROLL for (int i = 0; i < DECODE_BLOCK / LANES; i++)
    {
        x[i] = v_exp2(v_sub(x[i], m));
#if PAIR == 2
        (void)after; /* only codes have them */
        v_store_pairs(s, x[i]);
#else
        v_store(s + i * LANES, after ? v_mul(x[i], v_load(after + i * LANES)) : x[i]);
#endif
        v_store(sums + i * LANES, v_add(v_load(sums + i * LANES), x[i]));
    }
}

/* Turns scores of a row into weights; those of keys that are not visible are 0. */
V_INLINE void weigh_scores(decode *d, float *scores, int64_t r, uint32_t visible,
                           const float *after)
{
    vf x[DECODE_BLOCK / LANES];
    for (int i = 0; i < DECODE_BLOCK / LANES; i++) {
        x[i] = v_load(scores + r * DECODE_BLOCK + i * LANES);
        if (visible != 0xffffu)
            x[i] = v_select(m_from_bits(visible >> (i * LANES)), x[i], v_set1(-INFINITY));
    }
    settle_reference(d, r, x);
    weigh_row(d, scores, r, x, after);
}

/* What weigh_rows does for `rows` (constant, up to 4) rows from r on, with one look at all their references:
 * a branch between two rows keeps their chains of operations apart. */
V_INLINE void weigh_together(int rows, decode *d, float *scores, int64_t r, const float *before,
                             const float *after)
{
    vf x[4][DECODE_BLOCK / LANES];
    uint32_t above = 0;
    V_UNROLL for (int n = 0; n < rows; n++)
    {
        V_UNROLL for (int i = 0; i < DECODE_BLOCK / LANES; i++)
        {
            x[n][i] = v_load(scores + (r + n) * DECODE_BLOCK + i * LANES);
            if (before)
                x[n][i] = v_mul(x[n][i], v_load(before + i * LANES));
        }
        above |= is_above(d, r + n, x[n]);
    }
    if (above)
        V_UNROLL for (int n = 0; n < rows; n++) settle_reference(d, r + n, x[n]);
    V_UNROLL for (int n = 0; n < rows; n++) weigh_row(d, scores, r + n, x[n], after);
}

/* Turns scores of rows [r, end), which see every key, into weights. `before` is what scores are multiplied by
 * first (NULL: nothing). */
V_INLINE void weigh_rows(decode *d, float *scores, int64_t r, int64_t end, const float *before,
                         const float *after)
{
    for (; r + 4 <= end; r += 4)
        weigh_together(4, d, scores, r, before, after);
    for (; r + 2 <= end; r += 2)
        weigh_together(2, d, scores, r, before, after);
    if (r < end)
        weigh_together(1, d, scores, r, before, after);
}

#endif
