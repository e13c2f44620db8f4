/* What the decode kernel and its tiling agree on. */
#ifndef HEED_SIMD_DECODE_H
#define HEED_SIMD_DECODE_H

#include <stdint.h>

#define DECODE_BLOCK 16     /* keys worked on at a time; at absolute positions */
#define DECODE_KEY_BLOCK 64 /* keys of a block of tile.mask_blocks */
#define DECODE_MAX_ROWS 256 /* rows of a tile: beyond it q and the sums leave the core's caches */

/* Dims of a row in scratch memory: zeros follow up to a whole vector of either width. */
static inline int64_t decode_padded(int64_t dim)
{
    return (dim + 15) / 16 * 16;
}

#endif
