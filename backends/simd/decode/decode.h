/* What the decode kernel and its tiling agree on. */
#ifndef HEED_SIMD_DECODE_H
#define HEED_SIMD_DECODE_H

#include <math.h>
#include <stdint.h>

#include <heed/backend.h>

#define DECODE_BLOCK 16     /* keys worked on at a time; a block begins at a multiple of it */
#define DECODE_KEY_BLOCK 64 /* keys of a block of tile.mask_blocks */
#define DECODE_MAX_ROWS 256 /* at once: with more, q and the sums leave the core's caches */
#define DECODE_MOST_HEADS 8 /* kv heads that are worked on at once */

/* The most bytes that 32 dims of a row of q take with integer products (integer.inc.h). */
#define DECODE_INTEGER_BYTES 80

/* Floats of a row in scratch memory: zeros fill it up to whole vectors of either width. */
static inline int64_t decode_padded(int64_t dim)
{
    return (dim + 15) / 16 * 16;
}

/* The most bytes that the codes of 16 keys take, in whole blocks of 32 dims. */
static inline int64_t decode_codes_bytes(int64_t dim)
{
    return DECODE_BLOCK * ((dim + 31) / 32) * 36;
}

/* What a scaled score is multiplied by: log2(e), which gives log2 units, or 1 / softcap where the
 * problem has one. */
static inline double decode_unit(const heed_problem *p)
{
    return p->features & HEED_HAS_SOFTCAP ? 1 / (double)p->softcap : 1.4426950408889634;
}

/* Splits the factor that q is multiplied by into two floats of the same sign: fma(q, high, q * low)
 * is rounded once, and an infinite q stays infinite. */
static inline void decode_split(double factor, float *high, float *low)
{
    *high = (float)factor;
    if (fabs((double)*high) > fabs(factor))
        *high = heed_f32_of_bits(heed_bits_of_f32(*high) - 1);
    *low = (float)(factor - (double)*high);
    if (*low == 0)
        *low = *high * 0x1p-60f;
}

#endif
