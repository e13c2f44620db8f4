/* What a mask or bias does to whole blocks of a tile, so that kernels can skip them unread. */
#ifndef HEED_CORE_MASK_SUMMARY_H
#define HEED_CORE_MASK_SUMMARY_H

#include <heed/backend.h>

/* Do all heads of the tile have one mask, bias, ranges and key blocks? */
static inline int heed_shares_masks(const heed_tile *tile)
{
    return (!tile->mask.data || tile->mask.head_stride == 0) &&
           (!tile->bias.data || tile->bias.head_stride == 0) &&
           (!tile->ranges.data || tile->ranges.head_stride == 0) &&
           (!tile->key_blocks.data || tile->key_blocks.head_stride == 0);
}

/* Is a slope infinite or NaN, so that a bias of 0 times it is not 0? The slopes of all heads are
 * looked at, because tiles of other heads may share the summary of this one. */
int heed_has_odd_slope(const heed_problem *problem, const heed_tile *tile);

/* Fills tile->mask_blocks (at `summary`, room for n_heads + 1 times the tile's key blocks) from the
 * tile's mask, bias, ranges and key blocks. One row serves all heads where they share them. */
void heed_mask_summary(const heed_problem *problem, uint32_t key_block, heed_tile *tile,
                       uint8_t *summary);

#endif
