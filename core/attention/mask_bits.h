/* What masks that hide or add nothing let each row of a tile see, a bit each: a kernel reads that in a
 * sixteenth of the memory of a bias of 16 bits, and once for all kv heads. */
#ifndef HEED_CORE_MASK_BITS_H
#define HEED_CORE_MASK_BITS_H

#include <heed/backend.h>

/* Words of a row of `keys` keys. */
static inline int64_t heed_mask_words(int64_t keys)
{
    return keys / 64 + (keys % 64 != 0);
}

/* Writes tile->seen to `bits`, rows `stride` words apart, of a tile that has its mask_blocks and whose heads
 * share their masks. Returns 0 where a bias is more than 0 and -inf, and bits cannot say it. */
int heed_mask_bits(const heed_problem *problem, uint32_t key_block, const heed_tile *tile,
                   uint64_t *bits, int64_t stride);

#endif
