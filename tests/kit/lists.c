/* Ranges, key blocks and masks that begin late. What a row sees is a predicate of a few lines for
 * each kind; the lists that the library gets are made by asking it key by key. See problem.h. */
#include "problem.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

/* ---- who sees whom ---------------------------------------------------------------------------- */

/* Documents of 5 to 12 tokens follow each other, and every 64th token begins one. Returns where the
 * document of token x begins. */
static int64_t document(uint64_t seed, int64_t x)
{
    int64_t start = x / 64 * 64, next;
    while ((next = start + 5 + (int64_t)(kit_hash(seed, start) % 8)) <= x)
        start = next;
    return start;
}

/* A tree of tokens: every fifth is a root and each of the others a child of one of the two before
 * it, so that a path has at most 5 tokens. */
static int64_t parent(uint64_t seed, int64_t x)
{
    return x % 5 == 0 ? -1 : x - 1 - (int64_t)(kit_hash(seed, x) % 2) * (x % 5 > 1);
}

static int on_path(uint64_t seed, int64_t j, int64_t i)
{
    while (i > j)
        i = parent(seed, i);
    return i == j;
}

/* Is key j in the random part that is seen of each of the first n stretches of 40 keys? */
static int in_stretch(uint64_t own, int64_t j, uint32_t n)
{
    const uint64_t draw = kit_hash(own, j / 40);
    const int64_t from = (int64_t)(draw % 30), to = from + (int64_t)(draw >> 8) % 20;
    return j < 40 * (int64_t)n && j % 40 >= from && j % 40 < to;
}

static int in_ranges(const kit_spec *s, uint64_t own, int64_t row, int64_t j)
{
    switch (s->ranges_kind) {
    case KIT_RANGES_DOCUMENTS:
        return document(s->seed, row) == document(s->seed, j);
    case KIT_RANGES_PREFIX:
        return j < 11 || j <= row;
    case KIT_RANGES_CHUNKS:
        return j / 9 == row / 9;
    case KIT_RANGES_CAUSAL:
        return j <= row;
    case KIT_RANGES_WINDOW:
        return j >= row - 7 && j <= row;
    case KIT_RANGES_FIRST_AND_WINDOW:
        return j < 3 || (j >= row - 7 && j <= row);
    case KIT_RANGES_TREE:
        return j < 4 || on_path(s->seed, j, row);
    case KIT_RANGES_ALL:
        return 1;
    case KIT_RANGES_EMPTY_ROWS:
        return row % 3 != 1 && in_stretch(kit_hash(own, row / 2), j, s->n_ranges);
    case KIT_RANGES_HOLES: /* the same stretches for all: between them nobody sees anything */
        return in_stretch(s->seed, j, s->n_ranges) && (row % 4 || j % 80 < 40);
    default:
        return in_stretch(kit_hash(own, row), j, s->n_ranges);
    }
}

static int in_blocks(const kit_spec *s, uint64_t own, int64_t row_block, int64_t key_block)
{
    switch (s->blocks_kind) {
    case KIT_BLOCKS_QUARTER:
        return kit_hash(kit_hash(own, row_block), key_block) % 4 == 0;
    case KIT_BLOCKS_BAND:
        return key_block <= row_block && key_block + 2 >= row_block;
    case KIT_BLOCKS_ALL:
        return 1;
    case KIT_BLOCKS_EMPTY_ROWS:
        return row_block % 2 == 0 && kit_hash(own, key_block) % 2;
    case KIT_BLOCKS_HOLES: /* the same for all rows and heads */
        return kit_hash(s->seed, key_block) % 3 == 0;
    default:
        return kit_hash(kit_hash(own, row_block), key_block) % 2;
    }
}

static uint64_t own_of(const kit_problem *p, uint32_t form, int64_t b, int64_t h)
{
    const uint64_t own = kit_hash(kit_hash(p->spec.seed, 44), form & 1 ? 0 : p->sequence[b].id);
    return kit_hash(own, form & 2 ? 0 : h);
}

int kit_is_listed(const kit_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const kit_spec *s = &p->spec;
    const int64_t row = p->sequence[b].first_row + i;
    if (s->lists & KIT_LISTS_RANGES &&
        !in_ranges(s, own_of(p, s->ranges_form, b, h), s->ranges_form & 4 ? 0 : row, j))
        return 0;
    return !(s->lists & KIT_LISTS_BLOCKS) ||
           in_blocks(s, own_of(p, s->blocks_form, b, h), s->blocks_form & 4 ? 0 : i / s->block_rows,
                     j / s->block_keys);
}

static int listed(const void *of, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return kit_is_listed(of, b, h, i, j);
}

/* ---- what a call reaches ---------------------------------------------------------------------- */

void kit_row_reach(const kit_problem *p, int64_t b, int64_t i, int64_t *first, int64_t *end)
{
    const kit_spec *s = &p->spec;
    const int64_t position = i + p->offset[b];
    *first = 0;
    *end = p->kv_lens[b];
    if ((s->features & HEED_HAS_CAUSAL) && position + 1 < *end)
        *end = position + 1;
    if (!(s->features & HEED_HAS_WINDOW))
        return;
    if (s->window_left >= 0 && position - s->window_left > *first)
        *first = position - s->window_left;
    if (s->window_right >= 0 && position + s->window_right + 1 < *end)
        *end = position + s->window_right + 1;
}

int kit_choose_lists(kit_problem *p)
{
    kit_spec *s = &p->spec;
    /* Ranges end with a sequence's keys: those of other lengths cannot share them. */
    for (uint32_t b = 1; b < s->batch; b++)
        if (p->kv_lens[b] != p->kv_lens[0] || p->sequence[b].first_row != p->sequence[0].first_row)
            s->ranges_form &= ~1u;
    p->least_from = s->kv_len;
    for (uint32_t b = 0; b < s->batch; b++) {
        const int32_t n = p->kv_lens[b];
        const int32_t from[] = {n / 3, n, 0, n / 2 + 1 < n ? n / 2 + 1 : n, n < 64 ? n : 64};
        p->mask_from[b] = s->features & HEED_HAS_MASK_FROM ? from[(s->from_kind + b) % 5] : 0;
        p->least_from = p->mask_from[b] < p->least_from ? p->mask_from[b] : p->least_from;
        if (p->mask_from[b] != p->mask_from[0]) /* a column is another key in each sequence */
            s->mask_form &= ~1u, s->bias_form &= ~1u;
    }
    if (!(s->lists & (KIT_LISTS_RANGES | KIT_LISTS_BLOCKS)) || s->lists & KIT_LISTS_AS_MASK)
        return 0; /* a bool mask says nothing of memory */
    p->reached = calloc((size_t)(s->batch * s->kv_len) + 1, 1);
    for (int64_t b = 0; p->reached && b < s->batch; b++)
        for (int64_t h = 0; h < s->q_heads; h++)
            for (int64_t i = 0; i < p->q_lens[b]; i++) {
                int64_t first, end;
                kit_row_reach(p, b, i, &first, &end);
                for (int64_t j = first; j < end; j++)
                    p->reached[b * s->kv_len + j] |= (unsigned char)kit_is_listed(p, b, h, i, j);
            }
    return p->reached ? 0 : -1;
}

int kit_reaches(const kit_problem *p, int64_t b, int64_t j)
{
    return !p->reached || p->reached[b * p->spec.kv_len + j];
}

/* ---- lists for the library -------------------------------------------------------------------- */

/* Strides of [batch, head, row, n], broadcast where the form says so, with gaps that tell one axis
 * from another. Returns the elements. */
static int64_t lay(const int64_t shape[4], uint32_t form, int64_t stride[4])
{
    int64_t extent = 1;
    for (int a = 3; a >= 0; a--) {
        stride[a] = form >> a & 1 ? 0 : extent;
        if (!(form >> a & 1))
            extent = extent * (shape[a] > 0 ? shape[a] : 1) + (a == 2);
    }
    return extent;
}

/* Writes the runs of keys that a row sees, with empty ranges between them where there is room. */
static void put_ranges(const kit_problem *p, int64_t b, int64_t h, int64_t i, int32_t *to,
                       int64_t step)
{
    const kit_spec *s = &p->spec;
    const int64_t keys = p->kv_lens[b];
    uint64_t own = own_of(p, s->ranges_form, b, h);
    const int64_t row = s->ranges_form & 4 ? 0 : p->sequence[b].first_row + i;
    int32_t run[64][2];
    uint32_t runs = 0, n = 0;
    for (int64_t j = 0; j < keys; j++) {
        if (!in_ranges(s, own, row, j))
            continue;
        if (runs && run[runs - 1][1] == j)
            run[runs - 1][1]++;
        else if (runs < 64)
            run[runs][0] = (int32_t)j, run[runs++][1] = (int32_t)j + 1;
    }
    if (runs > s->n_ranges)
        abort(); /* the kind wants more than the case has */
    for (uint32_t at = 0; n < s->n_ranges; n++) {
        const uint32_t spare = s->n_ranges - n - (runs - at);
        const int empty = spare && (at == runs || kit_hash(own, row * 8 + n) % 2);
        const int32_t nowhere = (int32_t)(kit_hash(own, row * 8 + n + 4) % (uint64_t)(keys + 1));
        to[2 * n * step] = empty ? nowhere : run[at][0];
        to[2 * n * step + 1] = empty ? nowhere : run[at][1];
        at += !empty;
    }
}

int kit_make_lists(kit_problem *p, int side)
{
    const kit_spec *s = &p->spec;
    if (s->lists & KIT_LISTS_RANGES) {
        const int64_t shape[] = {s->batch, s->q_heads, s->q_len, s->n_ranges};
        const int64_t n = lay(shape, s->ranges_form & 7, p->ranges_stride);
        const int64_t *t = p->ranges_stride;
        if (guard_map(&p->ranges, (size_t)n * 8, side, 0, KIT_CANARY) != 0)
            return -1;
        for (int64_t b = 0; b < s->batch; b++)
            for (int64_t h = 0; h < s->q_heads; h++)
                for (int64_t i = 0; i < p->q_lens[b]; i++)
                    put_ranges(p, b, h, i,
                               (int32_t *)(void *)p->ranges.data +
                                   2 * (b * t[0] + h * t[1] + i * t[2]),
                               t[3]);
        guard_read_only(&p->ranges);
    }
    if (s->lists & KIT_LISTS_BLOCKS) {
        const int64_t blocks = (s->kv_len + s->block_keys - 1) / s->block_keys;
        const int64_t row_blocks = (s->q_len + s->block_rows - 1) / s->block_rows;
        const int64_t shape[] = {s->batch, s->q_heads, row_blocks, (blocks + 63) / 64};
        const int64_t n = lay(shape, s->blocks_form & 7, p->blocks_stride);
        const int64_t *t = p->blocks_stride;
        if (guard_map(&p->key_blocks, (size_t)n * 8, side, 0, KIT_CANARY) != 0)
            return -1;
        uint64_t *words = (uint64_t *)(void *)p->key_blocks.data;
        for (int64_t b = 0; b < s->batch; b++)
            for (int64_t h = 0; h < s->q_heads; h++)
                for (int64_t r = 0; r < row_blocks; r++)
                    for (int64_t k = 0; k < blocks; k++) {
                        const uint64_t own = own_of(p, s->blocks_form, b, h);
                        uint64_t *word = words + b * t[0] + h * t[1] + r * t[2] + k / 64 * t[3];
                        *word &= ~(UINT64_C(1) << k % 64);
                        if (in_blocks(s, own, s->blocks_form & 4 ? 0 : r, k))
                            *word |= UINT64_C(1) << k % 64;
                    }
        guard_read_only(&p->key_blocks);
    }
    return 0;
}

void kit_describe_lists(kit_problem *p)
{
    const kit_spec *s = &p->spec;
    if (s->lists & KIT_LISTS_RANGES) {
        p->desc.features |= HEED_HAS_RANGES;
        p->desc.n_ranges = s->n_ranges;
        p->args.ranges.data = p->ranges.data;
        memcpy(p->args.ranges.stride, p->ranges_stride, sizeof p->ranges_stride);
    }
    if (s->lists & KIT_LISTS_BLOCKS) {
        p->desc.features |= HEED_HAS_KEY_BLOCKS;
        p->desc.block_rows = s->block_rows;
        p->desc.block_keys = s->block_keys;
        p->args.key_blocks.data = p->key_blocks.data;
        memcpy(p->args.key_blocks.stride, p->blocks_stride, sizeof p->blocks_stride);
    }
    if (s->lists & (KIT_LISTS_AS_MASK)) /* the dense twin: KIT_MASK_LISTS */
        p->desc.features &= ~(HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS),
            p->desc.n_ranges = p->desc.block_rows = p->desc.block_keys = 0,
            p->args.ranges.data = p->args.key_blocks.data = NULL;
    if (s->features & HEED_HAS_MASK_FROM) {
        p->args.mask_from = p->mask_from;
        p->reference.mask_from = p->mask_from;
    }
    if (s->lists & (KIT_LISTS_RANGES | KIT_LISTS_BLOCKS)) {
        p->reference.listed = listed;
        p->reference.listed_of = p;
    }
}

void kit_free_lists(kit_problem *p)
{
    guard_unmap(&p->ranges);
    guard_unmap(&p->key_blocks);
    free(p->reached);
    p->reached = NULL;
}
