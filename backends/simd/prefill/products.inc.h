/* The two products of prefill, in the orientation that needs neither a transposed K nor a
 * horizontal sum: query rows lie in the lanes, a panel of 3 vectors of them; keys (S^T = K Q^T) or
 * columns of V (O^T = V^T P^T) are broadcast.
 *
 *     registers   AVX-512: 8 x 3 sums, 3 for the panel, 1 broadcast; AVX2: 4 x 3, 3, 1. One key
 *                 more would spill. The sums are named variables, not arrays: compilers keep arrays
 *                 in memory as soon as a loop is not unrolled.
 *     bits        Every sum is one chain of fused multiply-adds in ascending order of d or of the
 *                 key, whatever the vector width and whichever rows share a panel.
 *     rows        Panels are filled from the right, and below a causal diagonal vectors drop out
 *                 from the left: kernels for the last 3, 2 or 1 vectors are all that is needed.
 *     words       Compiled with HEED_SIMD_DOT a step multiplies pairs of bf16 by vdpbf16ps: two
 *                 neighbouring dims of q and k, two neighbouring keys of weights and v, the first
 *                 in the low half of a 32-bit word. Without it a word is a float. Pairs of keys lie
 *                 at even absolute positions.
 */
#ifndef HEED_SIMD_PREFILL_PRODUCTS_H
#define HEED_SIMD_PREFILL_PRODUCTS_H

#include "../vec/vec.h"
#include "layout.h"

#ifdef HEED_SIMD_DOT
#include "../vec/pairs.h"
#define PAIR 2 /* elements of a word */
#define v_step v_dot
#else
#define PAIR 1
#define v_step v_fma
#endif

#define VECTORS 3
#define PANEL (VECTORS * LANES)

/* STEP: keys, or columns of V, that are in registers together. */
#define STEP HEED_PREFILL_STEP(LANES)
#if HEED_PREFILL_STEP(LANES) == 8
#define EACH_STEP(vectors, x)                                                                      \
    vectors(x, 0) vectors(x, 1) vectors(x, 2) vectors(x, 3) vectors(x, 4) vectors(x, 5)            \
        vectors(x, 6) vectors(x, 7)
#define EACH_ONE(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7)
#else
#define EACH_STEP(vectors, x) vectors(x, 0) vectors(x, 1) vectors(x, 2) vectors(x, 3)
#define EACH_ONE(x) x(0) x(1) x(2) x(3)
#endif
#define LAST_3(x, i) x(i, 0) x(i, 1) x(i, 2)
#define LAST_2(x, i) x(i, 1) x(i, 2)
#define LAST_1(x, i) x(i, 2)

#define SUM_ZERO(i, v) vf sum##i##v = v_zero();
#define SUM_FMA(i, v) sum##i##v = v_step(x##v, b, sum##i##v);
#define STEP_LAST(last, i, element)                                                                \
    {                                                                                              \
        vf b = v_broadcast(element);                                                               \
        last(SUM_FMA, i)                                                                           \
    }
/* Two steps per iteration, where there are registers for it. Of 16 registers the sums, x and b of
 * one step take all: with two steps gcc moves sums about and loads x once for each use (84 % of the
 * peak instead of 97 %, with AVX2). */
#if V_REGISTERS > 16
#define TWICE(condition, step)                                                                     \
    while (condition) {                                                                            \
        step step                                                                                  \
    }
#else
#define TWICE(condition, step)
#endif
#define LOAD_X(i, v) vf x##v = v_load(x + v * LANES);

/* ---- S^T = K Q^T ------------------------------------------------------------------------------
 */

#define KEY_POINTER(i) const char *k##i = k + i * k_stride;
#define KEY_STEP_3(i) STEP_LAST(LAST_3, i, k##i + d * 4)
#define KEY_STEP_2(i) STEP_LAST(LAST_2, i, k##i + d * 4)
#define KEY_STEP_1(i) STEP_LAST(LAST_1, i, k##i + d * 4)
#if PAIR == 2
#define SCORE_UNIT(i, v) sum##i##v = v_mul(sum##i##v, v_set1(unit));
#else
#define SCORE_UNIT(i, v)
#endif
#define SCORE_STORE(i, v) v_store(s + i * PANEL + v * LANES, sum##i##v);
#define TOP_LOAD(i, v) vf top##v = v_load(top + v * LANES);
#define TOP_MAX(i, v) top##v = v_max(sum##i##v, top##v);
#define TOP_SEEN(i, v) top##v = v_select(seen_lanes(seen + i, v), v_max(sum##i##v, top##v), top##v);
#define TOP_STORE(i, v) v_store(top + v * LANES, top##v);

#define DIMS_STEP(n) {LAST_##n(LOAD_X, 0) EACH_ONE(KEY_STEP_##n)} d++, x += PANEL;
#define DIMS_LOOP(n)                                                                               \
    TWICE(d + 2 <= dims, DIMS_STEP(n)) for (; d < dims;)                                           \
    {                                                                                              \
        DIMS_STEP(n)                                                                               \
    }

/* Which rows of vector v see a key: `seen` is the key's word. */
V_INLINE vm seen_lanes(const uint64_t *seen, int v)
{
    return m_from_bits((uint32_t)(*seen >> (v * LANES)) & ((1u << LANES) - 1u));
}

/* Where the largest score of each row is kept (top; NULL where it is found later), and which rows
 * see which keys, a word for each key (seen; NULL where every row sees every key). */
typedef struct tops {
    float *top;
    const uint64_t *seen;
} tops;

/* STEP keys against a panel: s[key][row] = sum over `dims` words of k[key][d] * q[d][row], with
 * pairs times unit. k_stride is in bytes. A NaN is never the largest. */
#define DEFINE_SCORES(n)                                                                           \
    V_NOINLINE void scores_##n(const float *x, int64_t dims, const char *k, int64_t k_stride,      \
                               float unit, float *s, tops to)                                      \
    {                                                                                              \
        float *const top = to.top;                                                                 \
        const uint64_t *const seen = to.seen;                                                      \
        int64_t d = 0;                                                                             \
        (void)unit;                                                                                \
        EACH_ONE(KEY_POINTER)                                                                      \
        EACH_STEP(LAST_##n, SUM_ZERO)                                                              \
        DIMS_LOOP(n)                                                                               \
        EACH_STEP(LAST_##n, SCORE_UNIT)                                                            \
        EACH_STEP(LAST_##n, SCORE_STORE)                                                           \
        if (top && seen) {                                                                         \
            LAST_##n(TOP_LOAD, 0) EACH_STEP(LAST_##n, TOP_SEEN) LAST_##n(TOP_STORE, 0)             \
        } else if (top) {                                                                          \
            LAST_##n(TOP_LOAD, 0) EACH_STEP(LAST_##n, TOP_MAX) LAST_##n(TOP_STORE, 0)              \
        }                                                                                          \
    }
DEFINE_SCORES(3)
DEFINE_SCORES(2)
DEFINE_SCORES(1)

/* ---- O^T = O^T * alpha + V^T P^T --------------------------------------------------------------
 */

#define COLUMN_STEP_3(i) STEP_LAST(LAST_3, i, v + i)
#define COLUMN_STEP_2(i) STEP_LAST(LAST_2, i, v + i)
#define COLUMN_STEP_1(i) STEP_LAST(LAST_1, i, v + i)
#define KEYS_STEP(n) {LAST_##n(LOAD_X, 0) EACH_ONE(COLUMN_STEP_##n)} x += PANEL, v += v_stride;
#define KEYS_LOOP(n, keys)                                                                         \
    {                                                                                              \
        int64_t j = (keys);                                                                        \
        TWICE(j >= 2, KEYS_STEP(n) j--;)                                                           \
        for (; j > 0; j--) {                                                                       \
            KEYS_STEP(n)                                                                           \
        }                                                                                          \
    }
#define ALPHA_LOAD(i, v) vf alpha##v = v_load(alpha + v * LANES);
#define OUT_ADD(i, v)                                                                              \
    v_store(o + i * PANEL + v * LANES,                                                             \
            v_fma(v_load(o + i * PANEL + v * LANES), alpha##v, sum##i##v));
#define OUT_STORE(i, v) v_store(o + i * PANEL + v * LANES, sum##i##v);
/* x - x is 0 where x is finite, else NaN. */
#define ODD_ADD(i, v) odd = v_or(odd, v_sub(sum##i##v, sum##i##v));

/*
 * STEP columns of V against the weights of a block: o[column][row] = o * alpha + sum over keys of
 * v[key][column] * p[key][row]. The sum of a block starts from zero, which keeps the error of long
 * sequences as small as that of short ones.
 *
 * x        the weights p of the first word of keys
 * n_keys   words of keys whose weights are set in the last 3, 2, 1 vectors: first n_keys[0] with
 *          3 vectors, then n_keys[1] with 2, then n_keys[2] with 1
 * first    o holds nothing yet
 * check    leave o alone and return 1 if any sum is not finite
 */
V_NOINLINE int accumulate(const float *x, const int64_t n_keys[VECTORS], const float *v,
                          int64_t v_stride, const float *alpha, float *o, int first, int check)
{
    EACH_STEP(LAST_3, SUM_ZERO)
    KEYS_LOOP(3, n_keys[0])
    KEYS_LOOP(2, n_keys[1])
    KEYS_LOOP(1, n_keys[2])
    if (check) {
        vf odd = v_zero();
        EACH_STEP(LAST_3, ODD_ADD)
        if (m_bits(m_nan(odd)))
            return 1;
    }
    if (first) {
        EACH_STEP(LAST_3, OUT_STORE)
        return 0;
    }
    LAST_3(ALPHA_LOAD, 0)
    EACH_STEP(LAST_3, OUT_ADD)
    return 0;
}

#endif
