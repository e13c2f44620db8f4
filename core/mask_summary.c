/* Reads every mask byte of a tile at most once, eight at a time where they are adjacent. Measured
 * against a tile's two products this is well under a percent, and it needs no sharing between
 * parts. */
#include "mask_summary.h"

#include "checked.h"

enum { SEES_NONE = 1, SEES_SOME = 2 }; /* bits: a zero was found; a nonzero was found */

#define ONES UINT64_C(0x0101010101010101)
#define HIGHS UINT64_C(0x8080808080808080)

static unsigned scan_row(const uint8_t *mask, int64_t n, int64_t stride)
{
    unsigned found = 0;
    int64_t j = 0;
    if (stride == 0)
        n = n > 0;
    if (stride == 1)
        for (; j + 8 <= n && found != 3; j += 8) {
            uint64_t word;
            memcpy(&word, mask + j, 8);
            if (word == 0)
                found |= SEES_NONE;
            else /* the classic test for a zero byte: exact as a yes or no */
                found |= (word - ONES) & ~word & HIGHS ? 3u : SEES_SOME;
        }
    for (; j < n && found != 3; j++)
        found |= mask[j * stride] ? SEES_SOME : SEES_NONE;
    return found;
}

/* HEED_BLOCK_* of the bool mask over rows of one head and keys [first, end). */
static uint8_t classify_mask(const heed_tile *tile, int64_t head, int64_t first, int64_t end)
{
    const heed_rows *m = &tile->mask;
    const uint8_t *at = (const uint8_t *)m->data + head * m->head_stride + first * m->dim_stride;
    int64_t rows = m->row_stride ? tile->q_count : 1;
    unsigned found = 0;
    for (int64_t i = 0; i < rows && found != 3; i++)
        found |= scan_row(at + (tile->q_first + i) * m->row_stride, end - first, m->dim_stride);
    return found == 3 ? HEED_BLOCK_MIXED : found == SEES_SOME ? HEED_BLOCK_ALL : HEED_BLOCK_NONE;
}

/* Is every bias -inf? Most are not, and the first that is not ends the search. */
static int all_hidden_by_bias(const heed_problem *problem, const heed_tile *tile, int64_t head,
                              int64_t first, int64_t end)
{
    const heed_rows *b = &tile->bias;
    int64_t rows = b->row_stride ? tile->q_count : 1;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = first; j < end; j++)
            if (heed_load(problem->bias_type, b->data,
                          head * b->head_stride + (tile->q_first + i) * b->row_stride +
                              j * b->dim_stride) != -INFINITY)
                return 0;
    return 1;
}

void heed_mask_summary(const heed_problem *problem, uint32_t key_block, heed_tile *tile,
                       uint8_t *summary)
{
    int64_t first_block = tile->k_first / key_block;
    int64_t blocks = heed_ceil_div(tile->k_end, key_block) - first_block;
    int shared = (!tile->mask.data || tile->mask.head_stride == 0) &&
                 (!tile->bias.data || tile->bias.head_stride == 0);
    int64_t heads = shared ? 1 : tile->n_heads;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t n = 0; n < blocks; n++) {
            int64_t first = heed_max64((first_block + n) * key_block, tile->k_first);
            int64_t end = heed_min64((first_block + n + 1) * key_block, tile->k_end);
            uint8_t kind = HEED_BLOCK_ALL;
            if (tile->mask.data)
                kind = classify_mask(tile, h, first, end);
            if (tile->bias.data && kind != HEED_BLOCK_NONE)
                kind = all_hidden_by_bias(problem, tile, h, first, end) ? HEED_BLOCK_NONE
                                                                        : HEED_BLOCK_MIXED;
            summary[h * blocks + n] = kind;
        }
    tile->mask_blocks = summary;
    tile->mask_block_stride = shared ? 0 : blocks;
}
