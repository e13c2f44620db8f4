/* A test layer's ranges, key blocks and masks that begin late: short predicates say which row sees
 * which key, and the lists that the layer gets are made by asking them key by key. And positions of
 * rows. See layer_case.h. */
#include "layer_case.h"

#include "random.h"

enum { RANGES = 2, BLOCK_ROWS = 4, BLOCK_KEYS = 8 };

static int64_t keys_of(const layer *l, int64_t b)
{
    return (l->spec.cache ? l->cache_lens[b] : 0) + (l->spec.d_kv ? l->kv_lens[b] : l->q_lens[b]);
}

/* The first three keys and a window around the row's position (plus h); every fifth row has
 * none. */
static int in_ranges(const layer *l, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t at = keys_of(l, b) - l->q_lens[b] + i + h;
    return j < 3 || ((i + h) % 5 != 4 && j >= at - 4 && j < at + 2);
}

static int in_blocks(const layer *l, int64_t b, int64_t h, int64_t row_block, int64_t key_block)
{
    return kit_hash(kit_hash(l->spec.seed ^ 7, 100 * b + h), 100 * row_block + key_block) % 3 != 0;
}

int layer_listed(const void *of, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const layer *l = of;
    if (l->spec.lists & LAYER_RANGES && !in_ranges(l, b, h, i, j))
        return 0;
    return !(l->spec.lists & LAYER_BLOCKS) || in_blocks(l, b, h, i / BLOCK_ROWS, j / BLOCK_KEYS);
}

void layer_describe_lists(layer *l)
{
    if (l->spec.lists & LAYER_RANGES) {
        l->attn.features |= HEED_HAS_RANGES;
        l->attn.n_ranges = RANGES;
    }
    if (l->spec.lists & LAYER_BLOCKS) {
        l->attn.features |= HEED_HAS_KEY_BLOCKS;
        l->attn.block_rows = BLOCK_ROWS;
        l->attn.block_keys = BLOCK_KEYS;
    }
    if (l->spec.lists & LAYER_FROM)
        l->attn.features |= HEED_HAS_MASK_FROM;
}

static void put_ranges(const layer *l, int64_t b, int64_t h, int64_t i, int32_t *to)
{
    const int64_t keys = keys_of(l, b);
    int n = 0;
    for (int64_t j = 0; j < keys; j++) {
        if (!in_ranges(l, b, h, i, j))
            continue;
        if (n && to[2 * n - 1] == j)
            to[2 * n - 1]++;
        else
            to[2 * n] = (int32_t)j, to[2 * n + 1] = (int32_t)j + 1, n++;
    }
    for (; n < RANGES; n++)
        to[2 * n] = to[2 * n + 1] = (int32_t)keys;
}

static int make_ranges(layer *l, int side)
{
    const layer_spec *s = &l->spec;
    const int64_t row = RANGES + 1, head = s->q_len * row, sequence = s->q_heads * head;
    if (guard_map(&l->ranges, (size_t)(s->batch * sequence) * 8, side, 0, KIT_CANARY) != 0)
        return -1;
    int32_t *data = (int32_t *)(void *)l->ranges.data;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->q_heads; h++)
            for (int64_t i = 0; i < l->q_lens[b]; i++)
                put_ranges(l, b, h, i, data + 2 * (b * sequence + h * head + i * row));
    l->args.ranges = (heed_const_view){data, {sequence, head, row, 1}};
    guard_read_only(&l->ranges);
    return 0;
}

/* One word holds all key blocks of a row block: 64 blocks of 8 keys are more than a layer here
 * has. */
static int make_blocks(layer *l, int side)
{
    const layer_spec *s = &l->spec;
    const int64_t row_blocks = (s->q_len + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const size_t n = (size_t)(s->batch * s->q_heads * row_blocks);
    if (guard_map(&l->key_blocks, n * 8, side, 0, KIT_CANARY) != 0)
        return -1;
    uint64_t *words = (uint64_t *)(void *)l->key_blocks.data;
    for (int64_t at = 0; at < (int64_t)n; at++)
        for (int64_t k = 0; k < 64; k++) {
            const int64_t b = at / row_blocks / s->q_heads, h = at / row_blocks % s->q_heads;
            words[at] &= ~(UINT64_C(1) << k);
            words[at] |= (uint64_t)in_blocks(l, b, h, at % row_blocks, k) << k;
        }
    l->args.key_blocks = (heed_const_view){words, {s->q_heads * row_blocks, row_blocks, 1, 1}};
    guard_read_only(&l->key_blocks);
    return 0;
}

/* Rows at any place, and two at the same one, as in a tree. */
int64_t layer_position(const layer *l, int64_t b, int64_t i, int64_t offset)
{
    return l->spec.positions ? (int64_t)(kit_hash(l->spec.seed ^ 9, 100 * b + i / 2) % 300) - 20
                             : offset + i;
}

static int make_positions(layer *l, int side)
{
    const layer_spec *s = &l->spec;
    const int64_t stride = s->q_len + 3;
    const size_t n = (size_t)((s->batch - 1) * stride + s->q_len);
    if (guard_map(&l->positions, n * sizeof(int32_t), side, 0, KIT_CANARY) != 0)
        return -1;
    int32_t *data = (int32_t *)(void *)l->positions.data;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < l->q_lens[b]; i++)
            data[b * stride + i] = (int32_t)layer_position(l, b, i, 0);
    l->args.positions = data;
    l->args.positions_stride = stride;
    guard_read_only(&l->positions);
    return 0;
}

int layer_make_lists(layer *l, int side)
{
    const uint32_t lists = l->spec.lists;
    if ((lists & LAYER_RANGES && make_ranges(l, side) != 0) ||
        (lists & LAYER_BLOCKS && make_blocks(l, side) != 0) ||
        (l->spec.positions && make_positions(l, side) != 0))
        return -1;
    for (uint32_t b = 0; lists & LAYER_FROM && b < l->spec.batch; b++)
        l->mask_from[b] = (int32_t)(keys_of(l, b) * (b + 1) / 3);
    l->args.mask_from = lists & LAYER_FROM ? l->mask_from : NULL;
    return 0;
}
