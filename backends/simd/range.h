/* Which factors of scores leave room in an f32. For the backends whose scores are f32 from the first
 * product on: those by AVX2 and AVX-512, AMX and oneDNN. */
#ifndef HEED_SIMD_RANGE_H
#define HEED_SIMD_RANGE_H

#include <math.h>

#include <heed/kit.h>

/*
 * q is multiplied by scale * log2(e), or by scale / softcap, before its products with keys; scores
 * go through softcap by two products. The formula in heed/attention.h says nothing of
 * such steps. With every one of these factors 0, or of a size from 2^-64 to 2^64, they add nothing
 * that the numbers of q, k and the scores would not do by themselves:
 *
 *     above    a step overflows, and may make NaN of two infinities, only where |q| or a row's
 *              sum |q k| is 2^63 or more (log2(e) < 2)
 *     below    a factor is a normal number, and so is what decode_split leaves for its second
 *              float, at least 2^-60 of the first: neither is flushed to 0, which would make
 *              NaN of an infinite q and, as a softcap, of a score of 0
 *     softcap  a score over softcap that is flushed to 0 was below 2^-126, so the score is off by
 *              less than 2^-126 softcap = 2^-62; so it is with a product of the sum that is flushed
 *
 * Scale and softcap may be any finite numbers. What has others is left to kernels that compute in
 * f64. Slopes are data of a run: no plan can look at them.
 */
static inline int heed_leaves_room(double factor)
{
    return factor == 0 || (fabs(factor) >= 0x1p-64 && fabs(factor) <= 0x1p64);
}

static inline heed_status heed_check_factors(const heed_problem *p, heed_error *why)
{
    const double scale = (double)p->scale, cap = (double)p->softcap;
    const int capped = (p->features & HEED_HAS_SOFTCAP) != 0;
    if (!heed_leaves_room(scale))
        return heed_refuse(why,
                           "desc.scale is %g, 0 or a size of 2^-64 to 2^64 is required: scores "
                           "are f32 at every step",
                           scale);
    if (capped && !heed_leaves_room(cap))
        return heed_refuse(why,
                           "desc.softcap is %g, 2^-64 to 2^64 is required: scores are f32 at "
                           "every step",
                           cap);
    if (capped && !heed_leaves_room(scale / cap))
        return heed_refuse(why,
                           "desc.scale / desc.softcap is %g / %g, 0 or a size of 2^-64 to 2^64 "
                           "is required: scores are f32 at every step",
                           scale, cap);
    return HEED_OK;
}

#endif
