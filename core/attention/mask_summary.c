/* Reads every mask byte of a tile at most once, in runs that the compiler makes vectors of where
 * they are adjacent. */
#include "mask_summary.h"

#include "base/checked.h"

enum { SEES_NONE = 1, SEES_SOME = 2 }; /* bits: a zero was found; a nonzero was found */

enum { RUN = 64 }; /* bytes */

static unsigned scan_run(const uint8_t *mask)
{
    uint8_t zero = 0, some = 0;
    for (int j = 0; j < RUN; j++) {
        zero |= mask[j] == 0;
        some |= mask[j];
    }
    return (zero ? SEES_NONE : 0u) | (some ? SEES_SOME : 0u);
}

static unsigned scan_row(const uint8_t *mask, int64_t n, int64_t stride)
{
    unsigned found = 0;
    int64_t j = 0;
    if (stride == 0)
        n = n > 0;
    if (stride == 1)
        for (; j + RUN <= n && found != 3; j += RUN)
            found |= scan_run(mask + j);
    for (; j < n && found != 3; j++)
        found |= mask[j * stride] ? SEES_SOME : SEES_NONE;
    return found;
}

/* The keys of a tile's block n. */
static void block_keys(const heed_tile *tile, uint32_t key_block, int64_t n, int64_t *first,
                       int64_t *end)
{
    const int64_t at = (tile->k_first / key_block + n) * key_block;
    *first = heed_max64(at, tile->k_first);
    *end = heed_min64(at + key_block, tile->k_end);
}

/* HEED_BLOCK_* of the bool mask for each block of one head. Row by row, as masks lie in memory:
 * block by block would touch a few lines of a page and move on to the next. */
static void classify_mask(const heed_tile *tile, uint32_t key_block, int64_t head, int64_t blocks,
                          uint8_t *kind)
{
    const heed_rows *m = &tile->mask;
    const uint8_t *data = (const uint8_t *)m->data + head * m->head_stride;
    const int64_t rows = m->row_stride ? tile->q_count : 1;
    memset(kind, 0, (size_t)blocks);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < blocks; n++) {
            int64_t first, end;
            if (kind[n] == (SEES_NONE | SEES_SOME))
                continue;
            block_keys(tile, key_block, n, &first, &end);
            kind[n] |= (uint8_t)scan_row(data + (tile->q_first + i) * m->row_stride +
                                             first * m->dim_stride,
                                         end - first, m->dim_stride);
        }
    for (int64_t n = 0; n < blocks; n++)
        kind[n] = kind[n] == SEES_NONE   ? HEED_BLOCK_NONE
                  : kind[n] == SEES_SOME ? HEED_BLOCK_ALL
                                         : HEED_BLOCK_MIXED;
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
    for (int64_t h = 0; h < heads; h++) {
        uint8_t *kind = summary + h * blocks;
        if (tile->mask.data)
            classify_mask(tile, key_block, h, blocks, kind);
        for (int64_t n = 0; n < blocks && tile->bias.data; n++) {
            int64_t first, end;
            if (tile->mask.data && kind[n] == HEED_BLOCK_NONE)
                continue;
            block_keys(tile, key_block, n, &first, &end);
            kind[n] = all_hidden_by_bias(problem, tile, h, first, end) ? HEED_BLOCK_NONE
                                                                       : HEED_BLOCK_MIXED;
        }
    }
    tile->mask_blocks = summary;
    tile->mask_block_stride = shared ? 0 : blocks;
}
