/*
 * Powers of two for the softmax, in log2 units.
 *
 * weights_of   32 weights 2^(x - M) as bf16 at once, in integers. x - M + 127 is formed in fixed point
 *              with 9 fraction bits by one f32 fused multiply-add whose result has that unit in the
 *              last place; its upper 7 bits are the exponent of the weight. The significand 2^f
 *              differs from the linear 1 + f by a smooth curve of at most 0.086, which a table of 64
 *              bytes holds (in 2^-9). Errors: relative 1.8e-3 rms, 5.2e-3 at most, of which rounding
 *              to bf16 alone is 1.7e-3 and 3.9e-3. The cost is two
 *              shifts, a permute, a pack and three integer additions for 32 weights, which run beside
 *              a tile product at full rate, as f32 arithmetic does not.
 *              Weights below 2^-126 come out as bf16 denormals, which the tile unit counts as 0.
 * exp2_lanes   16 f32, within 2 units in the last place; results below 2^-126 are 0.
 *
 * The reference M of a row is the ceiling of its largest score so far plus AMX_MARGIN: weights stay
 * below 2^-AMX_MARGIN until a larger score comes, and have room for some that are larger. The unit
 * flushes products of weights and V below 2^-126, which V below 2^-119 may therefore come to.
 */
#ifndef HEED_AMX_SOFTMAX_H
#define HEED_AMX_SOFTMAX_H

#include "lanes.h"

#define AMX_MARGIN 6
/* Reference of a row that does not exist: its scores are 0, and its weights raise nothing. */
#define AMX_NO_ROW 64
#define AMX_SPLIT_MARGIN 1    /* weights of split accuracy are at most 1: a larger score raises M */
#define AMX_TOO_LARGE 0xfe00u /* fixed point: the weight is about 1 or more, and may not be right */
#define AMX_RAISE_FIXED 0xf980u /* below every fixed point whose weight is AMX_RAISE_BF16 or more */
#define AMX_RAISE_BF16 0x3e80u  /* 2^-2: raise the reference before the next block */
#define AMX_ONE_STEP 7000.0f    /* |M| up to which the constant of the one fused step is exact */

#define FIXED_ZERO 24576.0f /* 1.5 * 2^14: 2^-9 is its unit in the last place */
#define FIXED_ZERO_BITS 0x46c00000u
#define FIXED_BIAS (127 - 0.125f) /* 0.125 = 64 / 512 comes back with the table */

/* 64 + 512 * (2^f - 1 - f) for f of the middle of each of 64 intervals (counted from f = 1/8, as the
 * bias above has it), rounded so that the mean squared relative error of the weight is least. */
static const uint8_t exp2_table[64] = {
    47, 45, 44, 41, 40, 38, 36, 35, 34, 32, 31, 30, 29, 28, 27, 26, 25, 24, 24, 23, 23, 22,
    22, 22, 22, 21, 21, 22, 22, 22, 22, 23, 23, 24, 25, 26, 26, 27, 29, 30, 31, 33, 34, 35,
    38, 39, 41, 43, 46, 47, 50, 53, 55, 58, 61, 63, 64, 62, 60, 57, 56, 53, 51, 49};

/* The addend of the one fused step for a row's reference. */
static inline float fixed_addend(float reference)
{
    return FIXED_ZERO + FIXED_BIAS - reference;
}

/* Fixed point of 32 scores from two results of the fused step. */
static inline vi fixed_of(vf a, vf b)
{
    const vi zero = vi_set1(FIXED_ZERO_BITS);
    return vi_pack(vi_sub32(vf_bits(a), zero), vi_sub32(vf_bits(b), zero));
}

static inline vi weights_of(vi fixed, vi table)
{
    return vi_shr16(vi_add16(fixed, vi_lookup(vi_shr16(fixed, 3), table)), 2);
}

/* 2^x for x <= 127; of a NaN 0. Taylor series of 2^r on [-1/2, 1/2] to degree 7: the first term left
 * out is (ln(2) / 2)^8 / 8! = 5e-9. */
static inline vf exp2_or_zero(vf x)
{
    const vf magic = vf_set1(0x1.8p23f), least = vf_set1(-126.0f);
    vf clamped = vf_max(x, least), shifted = vf_add(clamped, magic), y;
    vf r = vf_sub(clamped, vf_sub(shifted, magic));
    y = vf_fma(r, vf_set1(0x1.ffcbfcp-17f), vf_set1(0x1.430912p-13f));
    y = vf_fma(r, y, vf_set1(0x1.5d87fep-10f));
    y = vf_fma(r, y, vf_set1(0x1.3b2ab6p-7f));
    y = vf_fma(r, y, vf_set1(0x1.c6b08ep-5f));
    y = vf_fma(r, y, vf_set1(0x1.ebfbep-3f));
    y = vf_fma(r, y, vf_set1(0x1.62e43p-1f));
    y = vf_fma(r, y, vf_set1(1.0f));
    y = vi_float(vi_add32(vf_bits(y), vi_shl32(vf_bits(shifted), 23)));
    return vf_select(vf_equal(clamped, least), vf_set1(0), y);
}

/* The same, but a NaN stays one. */
static inline vf exp2_lanes(vf x)
{
    return vf_select(vf_is_nan(x), x, exp2_or_zero(x));
}

/* tanh(y) = u / (u + 2) with u = e^(2|y|) - 1, which keeps its relative precision near 0:
 * u = 2^n (e^r - 1) + (2^n - 1). Beyond 10 the result is 1 in f32. */
static inline vf tanh_lanes(vf y)
{
    const vf magic = vf_set1(0x1.8p23f);
    const vi sign = vi_set1(0x80000000u);
    vf size = vi_float(vi_andnot(sign, vf_bits(y))), z, n, r, e, power, u;
    size = vf_sub(vf_set1(0), vf_max(vf_set1(-10.0f), vf_sub(vf_set1(0), size)));
    z = vf_add(size, size);
    n = vf_sub(vf_fma(z, vf_set1(0x1.715476p+0f), magic), magic);
    r = vf_fma(n, vf_set1(-0x1.62e43p-1f), z);
    r = vf_fma(n, vf_set1(0x1.05c61p-29f), r); /* the rest of ln(2) */
    e = vf_fma(r, vf_set1(1.0f / 5040), vf_set1(1.0f / 720));
    e = vf_fma(r, e, vf_set1(1.0f / 120));
    e = vf_fma(r, e, vf_set1(1.0f / 24));
    e = vf_fma(r, e, vf_set1(1.0f / 6));
    e = vf_fma(r, e, vf_set1(0.5f));
    e = vf_fma(vf_mul(r, r), e, r);
    power = exp2_lanes(n);
    u = vf_fma(power, e, vf_sub(power, vf_set1(1.0f)));
    u = vf_div(u, vf_add(u, vf_set1(2.0f)));
    return vi_float(vi_add32(vf_bits(u), vi_and(vf_bits(y), sign)));
}

#endif
