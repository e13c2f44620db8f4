/* Goes row by row, as masks lie in memory, 64 keys at a time: first a byte of 0 or 1 for each key,
 * in loops that the compiler vectorizes, then a word of bits. */
#include "mask_bits.h"

#include "base/checked.h"
#include "mask_summary.h"

/* Sets bit n for byte n, which is 0 or 1. The factor moves byte n of eight to bit 56 + n, and no
 * other byte to there. */
static uint64_t word_of(const uint8_t flag[64])
{
    uint64_t word = 0;
    for (int n = 0; n < 64; n += 8) {
        uint64_t eight = 0;
        for (int i = 0; i < 8; i++)
            eight |= (uint64_t)flag[n + i] << 8 * i;
        word |= (eight * UINT64_C(0x0102040810204080)) >> 56 << n;
    }
    return word;
}

/* Writes a flag for each of n bytes of a mask: 1 if the byte hides its key. */
static void hidden_by_mask(const uint8_t *mask, int64_t stride, int64_t n, uint8_t *flag)
{
    if (stride == 1)
        for (int64_t j = 0; j < n; j++)
            flag[j] = mask[j] == 0;
    else
        for (int64_t j = 0; j < n; j++)
            flag[j] = mask[j * stride] == 0;
}

/* The same for biases of 16 or 32 bits that lie side by side. Returns whether one is
 * neither 0 nor -inf. */
#define HIDDEN_BY_BIAS(name, type, minus_inf)                                                      \
    static int name(const void *data, int64_t n, uint8_t *flag)                                    \
    {                                                                                              \
        const char *at = data; /* of any alignment */                                              \
        type others = 0;                                                                           \
        for (int64_t j = 0; j < n; j++) {                                                          \
            type x;                                                                                \
            memcpy(&x, at + j * (int64_t)sizeof x, sizeof x);                                      \
            const type hidden = x == (minus_inf);                                                  \
            others |= !(hidden | ((type)(x << 1) == 0));                                           \
            flag[j] = (uint8_t)hidden;                                                             \
        }                                                                                          \
        return others != 0;                                                                        \
    }
HIDDEN_BY_BIAS(hidden_by_f16, uint16_t, 0xfc00u)
HIDDEN_BY_BIAS(hidden_by_bf16, uint16_t, 0xff80u)
HIDDEN_BY_BIAS(hidden_by_f32, uint32_t, 0xff800000u)
#undef HIDDEN_BY_BIAS

static int hidden_by_bias(uint32_t type, const heed_rows *b, int64_t at, int64_t n, uint8_t *flag)
{
    if (b->dim_stride == 1) {
        const char *data = (const char *)b->data + at * heed_dtype_bytes(type);
        return type == HEED_F32    ? hidden_by_f32(data, n, flag)
               : type == HEED_BF16 ? hidden_by_bf16(data, n, flag)
                                   : hidden_by_f16(data, n, flag);
    }
    int others = 0;
    for (int64_t j = 0; j < n; j++) {
        const float bias = heed_load(type, b->data, at + j * b->dim_stride);
        flag[j] = bias == -INFINITY;
        others |= bias != 0 && bias != -INFINITY;
    }
    return others;
}

/* Finds what row i sees of keys [first, end), which are in one word. Returns 0 if
 * bits cannot say it. */
static int see_word(const heed_problem *problem, const heed_tile *tile, int64_t i, int64_t first,
                    int64_t end, uint64_t *word)
{
    const int64_t from = heed_max64(first, tile->mask_from); /* keys before that have no column */
    const heed_rows *m = &tile->mask, *b = &tile->bias;
    uint8_t flag[64] = {0};
    *word = ~UINT64_C(0);
    if (from >= end)
        return 1;
    if (m->data) {
        const uint8_t *data = m->data;
        hidden_by_mask(data + i * m->row_stride + from * m->dim_stride, m->dim_stride, end - from,
                       flag + from % 64);
        *word &= ~word_of(flag);
    }
    if (!b->data)
        return 1;
    const int others =
        hidden_by_bias(problem->bias_type, b, i * b->row_stride + from * b->dim_stride, end - from,
                       flag + from % 64);
    *word &= ~word_of(flag);
    return !others;
}

/* Is one of the blocks that keys [first, end) are in neither seen nor hidden as a whole? */
static int is_mixed(const heed_tile *tile, uint32_t key_block, int64_t first, int64_t end)
{
    const int64_t base = tile->k_first / key_block;
    for (int64_t n = first / key_block; n <= (end - 1) / key_block; n++)
        if (tile->mask_blocks[n - base] == HEED_BLOCK_MIXED)
            return 1;
    return 0;
}

int heed_mask_bits(const heed_problem *problem, uint32_t key_block, const heed_tile *tile,
                   uint64_t *bits, int64_t stride)
{
    if (tile->bias.data && heed_has_odd_slope(problem, tile))
        return 0;
    for (int64_t i = 0; i < tile->q_count; i++)
        for (int64_t w = tile->k_first / 64; w < heed_mask_words(tile->k_end); w++) {
            const int64_t first = heed_max64(64 * w, tile->k_first);
            const int64_t end = heed_min64(64 * w + 64, tile->k_end);
            if (is_mixed(tile, key_block, first, end) &&
                !see_word(problem, tile, tile->q_first + i, first, end, &bits[i * stride + w]))
                return 0;
        }
    return 1;
}
