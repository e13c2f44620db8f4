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

#include "products.inc.h"

/* 2^x, good for a bf16: the relative error is below 4.4e-4, an eighth of what rounding to bf16
 * costs. Whole powers are exact. Coefficients: least largest relative error with constant 1. */
V_INLINE vf v_weight(vf x)
{
    vf n, r = v_split_power(x, &n);
    vf p = v_fma(r, v_set1(0.041698749f * V_POWER_UNIT), v_set1(0.24203051f * V_POWER_UNIT));
    p = v_fma(p, r, v_set1(0.69576683f * V_POWER_UNIT));
    p = v_fma(p, r, v_set1(V_POWER_UNIT));
    return v_times_power(p, n);
}

/* sum + w x, without the halves whose key is hidden. */
V_INLINE vf step_seen(vf w, vf x, vf sum)
{
    return v_step(w, v_pairs_seen(w, x), sum);
}

/* DOT_WIDTH bf16 times factor. */
V_INLINE vf v_scale(vf x, vf factor)
{
    vf even = v_from_bits(vi_shl(v_bits(x), 16));
    vf odd = v_and(x, v_from_bits(vi_set1(0xffff0000u)));
    return v_pair(v_mul(even, factor), v_mul(odd, factor));
}

#endif
