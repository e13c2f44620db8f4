/*
 * Powers of two for the softmax, in log2 units.
 *
 * weights_of   32 weights 2^(x - M) as bf16 at once, in integers. x - M + 127 is formed in fixed
 *              point with 9 fraction bits by one f32 fused multiply-add whose result has that unit
 *              in the last place; its upper 7 bits are the exponent of the weight. The significand
 *              2^f differs from the linear 1 + f by a smooth curve of at most 0.086, which a table
 *              of 64 bytes holds (in 2^-9). Errors: relative 1.8e-3 rms, 5.2e-3 at most, of which
 *              rounding to bf16 alone is 1.7e-3 and 3.9e-3. The cost is two shifts, a permute, a
 *              pack and three integer additions for 32 weights, which run beside a tile product at
 *              full rate, as f32 arithmetic does not. Weights below 2^-126 come out as bf16
 *              denormals, which the tile unit counts as 0. Where that accuracy is not enough,
 *              v_exp2 (vec/math.h) is used.
 *
 * The reference M of a row is the ceiling of its largest score so far plus AMX_MARGIN: weights stay
 * below 2^-AMX_MARGIN until a larger score comes, and have room for some that are larger. The tile
 * unit flushes products of weights and V below 2^-126, so that V below 2^-119 may be lost.
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
    return vi_pack(vi_sub(v_bits(a), zero), vi_sub(v_bits(b), zero));
}

static inline vi weights_of(vi fixed, vi table)
{
    return vi_shr16(vi_add16(fixed, vi_lookup(vi_shr16(fixed, 3), table)), 2);
}

/* 2^x for x < 126; 0 for a NaN. */
static inline vf exp2_or_zero(vf x)
{
    return v_exp2(v_max(x, v_set1(-256.0f)));
}

#endif
