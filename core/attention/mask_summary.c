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

/* Marks the blocks that keys [first, end) of the tile are in. */
static void mark_keys(const heed_tile *tile, uint32_t key_block, int64_t first, int64_t end,
                      unsigned what, uint8_t *kind)
{
    const int64_t first_block = tile->k_first / key_block;
    const int64_t to = end > first ? heed_ceil_div(end, key_block) - first_block : 0;
    for (int64_t n = first / key_block - first_block; n < to; n++)
        kind[n] |= (uint8_t)what;
}

/* HEED_BLOCK_* of ranges and key blocks for each block of one head. What causality and a window hide
 * makes a block NONE, but not MIXED. Rows of equal lists are looked at once. */
static void classify_lists(const heed_problem *problem, const heed_tile *tile, uint32_t key_block,
                           int64_t head, int64_t blocks, uint8_t *kind)
{
    const int64_t end = tile->q_first + tile->q_count;
    memset(kind, 0, (size_t)blocks);
    for (int64_t i = tile->q_first, alike; i < end; i += alike) {
        int64_t low, high, unused, first = tile->k_first, to = tile->k_end, hidden = first;
        alike = heed_rows_alike(problem, tile, head, i, end);
        heed_row_keys(tile, i, &low, &unused);
        heed_row_keys(tile, i + alike - 1, &unused, &high);
        while (heed_next_listed(problem, tile, head, i, &first, &to)) {
            mark_keys(tile, key_block, hidden, first, SEES_NONE, kind);
            mark_keys(tile, key_block, heed_max64(first, low), heed_min64(to, high), SEES_SOME,
                      kind);
            hidden = first = to;
            to = tile->k_end;
        }
        mark_keys(tile, key_block, hidden, tile->k_end, SEES_NONE, kind);
    }
    for (int64_t n = 0; n < blocks; n++)
        kind[n] = !(kind[n] & SEES_SOME) ? HEED_BLOCK_NONE
                  : kind[n] == SEES_SOME ? HEED_BLOCK_ALL
                                         : HEED_BLOCK_MIXED;
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
            if (first < tile->mask_from)
                kind[n] |= SEES_SOME; /* before the mask begins */
            first = heed_max64(first, tile->mask_from);
            if (first < end)
                kind[n] |= (uint8_t)scan_row(data + (tile->q_first + i) * m->row_stride +
                                                 first * m->dim_stride,
                                             end - first, m->dim_stride);
        }
    for (int64_t n = 0; n < blocks; n++)
        kind[n] = kind[n] == SEES_NONE   ? HEED_BLOCK_NONE
                  : kind[n] == SEES_SOME ? HEED_BLOCK_ALL
                                         : HEED_BLOCK_MIXED;
}

/* Adds what ranges and key blocks hide to what mask and bias do. */
static void combine(const uint8_t *lists, int64_t blocks, uint8_t *kind)
{
    for (int64_t n = 0; n < blocks; n++)
        if (lists[n] == HEED_BLOCK_NONE || kind[n] == HEED_BLOCK_ALL)
            kind[n] = lists[n];
}

/* Is every bias -inf? Most are not, and the first that is not ends the search. */
static int all_hidden_by_bias(const heed_problem *problem, const heed_tile *tile, int64_t head,
                              int64_t first, int64_t end)
{
    const heed_rows *b = &tile->bias;
    int64_t rows = b->row_stride ? tile->q_count : 1;
    if (first < tile->mask_from)
        return 0;
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
    const int lists = heed_has_lists(tile), dense = tile->mask.data || tile->bias.data;
    int shared = heed_shares_masks(tile);
    int64_t heads = shared ? 1 : tile->n_heads;
    /* Where there are both, lists come behind the others, a row of one head. */
    uint8_t *of_lists = dense ? summary + heads * blocks : NULL;
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
        if (lists)
            classify_lists(problem, tile, key_block, h, blocks, of_lists ? of_lists : kind);
        if (lists && of_lists)
            combine(of_lists, blocks, kind);
    }
    tile->mask_blocks = summary;
    tile->mask_block_stride = shared ? 0 : blocks;
}
