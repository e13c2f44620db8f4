/* Products of pairs of bf16 by vdpbf16ps, for kernels compiled with HEED_SIMD_DOT. A word is 32
 * bits, a pair of bf16 whose first is in the low half. The instruction reads subnormals as 0 and
 * rounds to nearest even whatever MXCSR says. */
#ifndef HEED_SIMD_DOT_H
#define HEED_SIMD_DOT_H

#include "vec.h"

#define DOT_WIDTH (2 * LANES) /* bf16 of a vector */

V_INLINE vf v_dot(vf x, vf y, vf sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)v_bits(x), (__m512bh)v_bits(y));
}

/* The first n of DOT_WIDTH bf16 that lie `stride` elements apart, then zeros. */
V_INLINE vi load_pairs(const char *p, int64_t stride, int64_t n)
{
    uint16_t x[DOT_WIDTH] = {0};
    if (stride == 1)
        return n >= DOT_WIDTH ? _mm512_loadu_si512(p)
                              : _mm512_maskz_loadu_epi16((__mmask32)((UINT64_C(1) << n) - 1), p);
    for (int64_t i = 0; i < n && i < DOT_WIDTH; i++)
        memcpy(&x[i], p + i * stride * 2, 2);
    return _mm512_loadu_si512(x);
}

/* Words of two rows of DOT_WIDTH bf16, a's in the low halves: first of columns 0 to 15, then 16 on.
 */
V_INLINE void v_pair_rows(vi a, vi b, vf *first, vf *then)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    *first = v_from_bits(_mm512_permutex2var_epi16(a, low, b));
    *then = v_from_bits(_mm512_permutex2var_epi16(a, high, b));
}

#endif
