/* Bits that say which keys each row of a tile sees, for masks and biases that hide keys and do
 * nothing else. A kernel reads them from a sixteenth of the memory of a 16-bit bias, the same for
 * all kv heads. */
#ifndef HEED_CORE_MASK_BITS_H
#define HEED_CORE_MASK_BITS_H

#include <heed/backend.h>

/* Words of a row of `keys` keys. */
static inline int64_t heed_mask_words(int64_t keys)
{
    return keys / 64 + (keys % 64 != 0);
}

/* Writes the bits of tile->seen to `bits`, rows `stride` words apart. The tile has its
 * mask_blocks, and its heads share their masks. Returns 0 if a bias is neither 0 nor -inf, which
 * bits cannot say. */
int heed_mask_bits(const heed_problem *problem, uint32_t key_block, const heed_tile *tile,
                   uint64_t *bits, int64_t stride);

#endif
