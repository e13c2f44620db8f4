/* Reads every mask byte and bias of a tile at most once. Adjacent ones are read in runs that the
 * compiler vectorizes. */
#include "mask_summary.h"

#include "base/checked.h"

/* What was found in a block, as bits: a hidden pair; one that is seen; one that something
 * is added to. Two more bits hold what the mask says before the bias is read: it hides all;
 * it hides some. */
enum { SEES_NONE = 1, SEES_SOME = 2, ADDS = 4, FOUND = 7, BY_MASK = 8, IN_MASK = 16 };

static int is_mixed(unsigned found)
{
    return found != 0 && found != SEES_NONE && found != SEES_SOME;
}

static uint8_t kind_of(unsigned found)
{
    return found == SEES_NONE   ? HEED_BLOCK_NONE
           : found == SEES_SOME ? HEED_BLOCK_ALL
                                : HEED_BLOCK_MIXED;
}

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

/* Finds HEED_BLOCK_* by ranges and key blocks for each block of one head. Pairs that causality or a
 * window hides can make a block NONE, but not MIXED. Neighbouring rows with equal lists are looked
 * at once. */
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
        kind[n] = kind_of(kind[n]);
}

/* Adds what ranges and key blocks hide to what mask and bias do. */
static void combine(const uint8_t *lists, int64_t blocks, uint8_t *kind)
{
    for (int64_t n = 0; n < blocks; n++)
        if (lists[n] == HEED_BLOCK_NONE || kind[n] == HEED_BLOCK_ALL)
            kind[n] = lists[n];
}

int heed_has_odd_slope(const heed_problem *problem, const heed_tile *tile)
{
    for (uint32_t h = 0; tile->bias_slope && h < problem->q_heads; h++)
        if (!isfinite((tile->bias_slope - tile->first_head)[h]))
            return 1;
    return 0;
}

/* Of some biases that lie side by side, 16 or 32 bits each: is one -inf, one 0 or -0, one anything
 * else? */
#define SCAN_BIAS(name, type, minus_inf)                                                           \
    static unsigned name(const void *data, int64_t n)                                              \
    {                                                                                              \
        const char *at = data; /* of any alignment */                                              \
        type hidden = 0, zero = 0, other = 0;                                                      \
        for (int64_t j = 0; j < n; j++) {                                                          \
            type x;                                                                                \
            memcpy(&x, at + j * (int64_t)sizeof x, sizeof x);                                      \
            const type is_hidden = x == (minus_inf), is_zero = (type)(x << 1) == 0;                \
            hidden |= is_hidden;                                                                   \
            zero |= is_zero;                                                                       \
            other |= !(is_hidden | is_zero);                                                       \
        }                                                                                          \
        return (hidden ? SEES_NONE : 0u) | (zero ? SEES_SOME : 0u) | (other ? ADDS : 0u);          \
    }
SCAN_BIAS(scan_f16, uint16_t, 0xfc00u)
SCAN_BIAS(scan_bf16, uint16_t, 0xff80u)
SCAN_BIAS(scan_f32, uint32_t, 0xff800000u)
#undef SCAN_BIAS

/* The same of n biases from element `at` on. */
static unsigned scan_bias(uint32_t type, const heed_rows *b, int64_t at, int64_t n)
{
    unsigned found = 0;
    if (b->dim_stride == 1) {
        const char *data = (const char *)b->data + at * heed_dtype_bytes(type);
        return type == HEED_F32    ? scan_f32(data, n)
               : type == HEED_BF16 ? scan_bf16(data, n)
                                   : scan_f16(data, n);
    }
    for (int64_t j = 0; j < n && !is_mixed(found); j++) {
        const float bias = heed_load(type, b->data, at + j * b->dim_stride);
        found |= bias == 0 ? SEES_SOME : bias == -INFINITY ? SEES_NONE : ADDS;
    }
    return found;
}

/* Finds HEED_BLOCK_* by the bias for each block of one head, and if `masked` by the mask, too, for
 * which kind has it already. A bias of nothing but 0 adds nothing. Goes row by row, as
 * classify_mask does. */
static void classify_bias(const heed_problem *problem, const heed_tile *tile, uint32_t key_block,
                          int64_t head, int64_t blocks, int masked, uint8_t *kind)
{
    const heed_rows *b = &tile->bias;
    const int64_t rows = b->row_stride ? tile->q_count : 1;
    const uint8_t odd = heed_has_odd_slope(problem, tile) ? ADDS : 0;
    for (int64_t n = 0; n < blocks; n++)
        kind[n] = !masked || kind[n] == HEED_BLOCK_ALL ? odd
                  : kind[n] == HEED_BLOCK_NONE         ? BY_MASK
                                                       : odd | IN_MASK;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < blocks; n++) {
            int64_t first, end;
            if (kind[n] & (BY_MASK | ADDS) || is_mixed(kind[n] & FOUND))
                continue;
            block_keys(tile, key_block, n, &first, &end);
            if (first < tile->mask_from)
                kind[n] |= SEES_SOME; /* before the bias begins */
            first = heed_max64(first, tile->mask_from);
            if (first < end)
                kind[n] |=
                    (uint8_t)scan_bias(problem->bias_type, b,
                                       head * b->head_stride + (tile->q_first + i) * b->row_stride +
                                           first * b->dim_stride,
                                       end - first);
        }
    for (int64_t n = 0; n < blocks; n++)
        kind[n] = kind[n] & BY_MASK                                     ? HEED_BLOCK_NONE
                  : kind[n] & IN_MASK && (kind[n] & FOUND) != SEES_NONE ? HEED_BLOCK_MIXED
                                                                        : kind_of(kind[n] & FOUND);
}

void heed_mask_summary(const heed_problem *problem, uint32_t key_block, heed_tile *tile,
                       uint8_t *summary)
{
    int64_t first_block = tile->k_first / key_block;
    int64_t blocks = heed_ceil_div(tile->k_end, key_block) - first_block;
    const int lists = heed_has_lists(tile), dense = tile->mask.data || tile->bias.data;
    int shared = heed_shares_masks(tile);
    int64_t heads = shared ? 1 : tile->n_heads;
    /* Where there are both, the lists of one head at a time go behind the rows of mask and bias. */
    uint8_t *of_lists = dense ? summary + heads * blocks : NULL;
    for (int64_t h = 0; h < heads; h++) {
        uint8_t *kind = summary + h * blocks;
        if (tile->mask.data)
            classify_mask(tile, key_block, h, blocks, kind);
        if (tile->bias.data)
            classify_bias(problem, tile, key_block, h, blocks, tile->mask.data != NULL, kind);
        if (lists)
            classify_lists(problem, tile, key_block, h, blocks, of_lists ? of_lists : kind);
        if (lists && of_lists)
            combine(of_lists, blocks, kind);
    }
    tile->mask_blocks = summary;
    tile->mask_block_stride = shared ? 0 : blocks;
}
