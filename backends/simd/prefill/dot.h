/*
 * What prefill does otherwise where its products multiply pairs of bf16 by vdpbf16ps (accuracy
 * bf16, on CPUs where that is fast): queries times scale and weights are rounded to bf16, K is read
 * as it lies, V is copied with the keys of a pair side by side. Sums and the softmax stay f32.
 *
 * The instruction reads subnormals as 0 and rounds to nearest even whatever MXCSR says. Pairs lie
 * at even absolute positions, so that a row's sums do not depend on where a window or a tile
 * begins; a key that is missing from a pair has weight -0 and a value of 0.
 */
#ifndef HEED_SIMD_PREFILL_DOT_H
#define HEED_SIMD_PREFILL_DOT_H

#include "products.h"

/* Rounded to bf16: even in the low halves, odd in the high ones. */
V_INLINE vf v_pair(vf even, vf odd)
{
    const __m512i turns =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return v_from_bits(_mm512_permutexvar_epi16(turns, (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
}

/* 2^x, good for a bf16: the relative error is below 4.4e-4, an eighth of what rounding to bf16
 * costs. Whole powers are exact. Coefficients: least largest relative error with constant 1. */
V_INLINE vf v_weight(vf x)
{
    vf r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf p = v_fma(r, v_set1(0.041698749f), v_set1(0.24203051f));
    p = v_fma(p, r, v_set1(0.69576683f));
    p = v_fma(p, r, v_set1(1.0f));
    return _mm512_scalef_ps(p, v_sub(x, r));
}

/* sum + w x, without the halves whose key is hidden. */
V_INLINE vf step_seen(vf w, vf x, vf sum)
{
    __mmask32 hidden = _mm512_cmpeq_epi16_mask(v_bits(w), _mm512_set1_epi16((short)0x8000));
    return v_step(w, v_from_bits(_mm512_maskz_mov_epi16(~hidden, v_bits(x))), sum);
}

/* DOT_WIDTH bf16 times factor. */
V_INLINE vf v_scale(vf x, vf factor)
{
    vf even = v_from_bits(_mm512_slli_epi32(v_bits(x), 16));
    vf odd = v_and(x, v_from_bits(vi_set1((int32_t)0xffff0000u)));
    return v_pair(v_mul(even, factor), v_mul(odd, factor));
}

#endif
