/* Which keys of a block each row of a decode tile sees. */
#ifndef HEED_SIMD_DECODE_VISIBLE_H
#define HEED_SIMD_DECODE_VISIBLE_H

#include "state.inc.h"

static uint32_t range_bits(const block *b, int64_t first, int64_t end)
{
    int64_t low = (first > b->first ? first : b->first) - b->base;
    int64_t high = (end < b->end ? end : b->end) - b->base;
    return low < high ? ((1u << high) - 1u) & ~((1u << low) - 1u) : 0;
}

/* The keys of a block that the mask lets a row see. `from` is the first key that the mask has a
 * column for; it hides none before that. */
static uint32_t mask_bits(const block *b, const heed_rows *mask, int64_t from, int64_t head,
                          int64_t row)
{
    const uint8_t *data = mask->data;
    uint32_t bits = 0;
    data += head * mask->head_stride + row * mask->row_stride;
    if (mask->dim_stride == 1 && b->end - b->base == DECODE_BLOCK && b->first == b->base &&
        b->base >= from)
        return bytes_set16(data + b->base);
    if (from > b->first)
        bits = range_bits(b, b->first, from);
    for (int64_t j = from > b->first ? from : b->first; j < b->end; j++)
        bits |= (uint32_t)(data[j * mask->dim_stride] != 0) << (j - b->base);
    return bits;
}

static void load_bias(const decode *d, const block *b, int64_t head, int64_t row, float *to)
{
    const heed_rows *bias = &d->tile->bias;
    int64_t at = head * bias->head_stride + row * bias->row_stride;
    uint32_t type = d->problem->bias_type;
    const int64_t from = d->tile->mask_from;
    if (bias->dim_stride == 1 && b->end - b->base == DECODE_BLOCK && b->first == b->base &&
        b->base >= from) {
        const char *data = (const char *)bias->data + (at + b->base) * heed_dtype_bytes(type);
        for (int i = 0; i < DECODE_BLOCK; i += LANES)
            v_store(to + i, v_load_type(type, data + (size_t)i * heed_dtype_bytes(type), LANES));
        return;
    }
    memset(to, 0, DECODE_BLOCK * sizeof *to);
    for (int64_t j = from > b->first ? from : b->first; j < b->end; j++)
        to[j - b->base] = heed_load(type, bias->data, at + j * bias->dim_stride);
}

/* Is the key block of the mask that this key is in hidden from all rows? */
static int is_hidden(const decode *d, int64_t key)
{
    const heed_tile *t = d->tile;
    const int64_t at = key / DECODE_KEY_BLOCK - t->k_first / DECODE_KEY_BLOCK;
    int64_t h = 0;
    if (!d->masked || !t->mask_blocks)
        return 0;
    while (h < t->n_heads && t->mask_blocks[h * t->mask_block_stride + at] == HEED_BLOCK_NONE)
        h = t->mask_block_stride ? h + 1 : t->n_heads;
    return h == t->n_heads;
}

/* Finds which keys of a block each row sees. */
static void find_visible(decode *d, block *b)
{
    const heed_tile *tile = d->tile;
    uint32_t any = 0, every = 0xffffu;
    for (int64_t r = 0; r < d->rows; r++) {
        int64_t head = r / tile->q_count, i = tile->q_first + r % tile->q_count, first, end;
        int state = d->masked ? HEED_BLOCK_MIXED : HEED_BLOCK_ALL;
        uint32_t bits;
        if (tile->mask_blocks)
            state = tile->mask_blocks[head * tile->mask_block_stride + b->base / DECODE_KEY_BLOCK -
                                      tile->k_first / DECODE_KEY_BLOCK];
        heed_row_span(d->problem, tile, head, i, &first, &end);
        bits = state == HEED_BLOCK_NONE ? 0 : range_bits(b, first, end);
        if (state == HEED_BLOCK_MIXED && bits && d->lists)
            bits &= (uint32_t)heed_listed_bits(d->problem, tile, head, i, b->base, DECODE_BLOCK);
        if (state == HEED_BLOCK_MIXED && bits && tile->mask.data)
            bits &= mask_bits(b, &tile->mask, tile->mask_from, head, i);
        if (state == HEED_BLOCK_MIXED && bits && tile->bias.data) {
            float bias[DECODE_BLOCK];
            load_bias(d, b, head, i, bias);
            for (int j = 0; j < DECODE_BLOCK; j++)
                bits &= ~((uint32_t)(bias[j] == -INFINITY) << j);
        }
        d->visible[r] = (uint16_t)bits;
        any |= bits;
        every &= bits;
    }
    b->any = any;
    b->same = any == every;
}

#endif
