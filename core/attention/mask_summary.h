/* What a mask or bias does to whole blocks of a tile, so that kernels can skip them unread. */
#ifndef HEED_CORE_MASK_SUMMARY_H
#define HEED_CORE_MASK_SUMMARY_H

#include <heed/backend.h>

/* Fills tile->mask_blocks (at `summary`, room for n_heads times the tile's key blocks) from the
 * tile's mask and bias. One row serves all heads where they share both. */
void heed_mask_summary(const heed_problem *problem, uint32_t key_block, heed_tile *tile,
                       uint8_t *summary);

#endif
