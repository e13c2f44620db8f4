/* See problem.h: views of a problem's memory, partitions of a problem, and the memory of one
 * rank. */
#include "problem.h"

#include <stdlib.h>
#include <string.h>

static int has(const problem *p, uint64_t feature)
{
    return (p->desc.features & feature) != 0;
}

/* Strides of [batch, heads, rows, dim]. Packed rows follow each other, whichever sequence they
 * belong to. */
static void strides(int64_t to[4], int64_t heads, int64_t rows, int64_t dim)
{
    to[0] = heads * rows * dim;
    to[1] = rows * dim;
    to[2] = dim;
    to[3] = 1;
}

int64_t problem_row(const problem *p, const memory *m, int64_t b, int64_t h, int64_t i)
{
    return has(p, HEED_HAS_PACKED) ? h * m->rows + m->q_starts[b] + i
                                   : (b * p->s.q_heads + h) * m->q_len + i;
}

/* How many keys the memory of one head holds: of a page, of all packed sequences, or of the longest
 * one. */
static int64_t key_rows(const problem *p, const memory *m)
{
    return p->s.page_len ? p->s.page_len : has(p, HEED_HAS_PACKED) ? m->keys : m->kv_len;
}

static int64_t pages_of(const problem *p, const memory *m)
{
    return p->s.page_len ? (m->kv_len + p->s.page_len - 1) / p->s.page_len : 0;
}

/* The place of key j of sequence b and head g, counted in keys. */
static int64_t key_at(const problem *p, const memory *m, int64_t b, int64_t g, int64_t j)
{
    const int64_t n = key_rows(p, m), len = p->s.page_len;
    if (len)
        return (m->table[b * pages_of(p, m) + j / len] * p->s.kv_heads + g) * n + j % len;
    if (has(p, HEED_HAS_PACKED))
        return g * n + m->kv_starts[b] + j;
    return (b * p->s.kv_heads + g) * n + j;
}

heed_attn_args problem_args(const problem *p, const memory *m)
{
    const spec *s = &p->s;
    heed_attn_args a = {.struct_size = sizeof a,
                        .batch = s->batch,
                        .q_len = m->q_len,
                        .kv_len = m->kv_len,
                        .q.data = m->q,
                        .k.data = m->k,
                        .v.data = m->v,
                        .out.data = m->out};
    const int64_t rows = has(p, HEED_HAS_PACKED) ? m->rows : m->q_len, kv_len = p->whole.kv_len;
    const int64_t row = s->ring == APART ? p->whole.q_len : m->q_len, words = (kv_len + 255) / 256;
    strides(a.q.stride, s->q_heads, rows, s->qk_dim);
    strides(a.out.stride, s->q_heads, rows, s->v_dim);
    strides(a.k.stride, s->kv_heads, key_rows(p, m), s->qk_dim);
    strides(a.v.stride, s->kv_heads, key_rows(p, m), s->v_dim);
    if (has(p, HEED_HAS_LSE))
        a.lse = (heed_view){m->lse, {s->q_heads * rows, rows, 1, 0}};
    if (has(p, HEED_HAS_QUANT)) {
        a.k_quant = (heed_quant){.scale = m->k_scale};
        strides(a.k_quant.stride, s->kv_heads, key_rows(p, m), 1);
        a.k_quant.stride[3] = 0;
        a.v_quant = a.k_quant;
        a.v_quant.scale = m->v_scale;
    }
    if (has(p, HEED_HAS_MASK))
        a.mask = (heed_const_view){m->mask, {s->q_heads * row * kv_len, row * kv_len, kv_len, 1}};
    if (has(p, HEED_HAS_BIAS))
        a.bias = (heed_const_view){m->bias, {s->q_heads * row * kv_len, row * kv_len, kv_len, 1}};
    if (has(p, HEED_HAS_RANGES))
        a.ranges = (heed_const_view){m->ranges, {s->q_heads * row * 2, row * 2, 2, 1}};
    if (has(p, HEED_HAS_KEY_BLOCKS))
        a.key_blocks = (heed_const_view){m->blocks, {16 * words, 0, words, 1}};
    if (has(p, HEED_HAS_PACKED)) {
        a.q_starts = m->q_starts;
        a.kv_starts = m->kv_starts;
    }
    if (has(p, HEED_HAS_PAGES)) {
        a.block_table = m->table;
        a.block_table_stride = pages_of(p, m);
        a.n_pages = pages_of(p, m) * s->batch;
    }
    a.q_offsets = s->position == HEED_POS_GIVEN ? m->q_offsets : NULL;
    a.sink = has(p, HEED_HAS_SINK) ? m->sink : NULL;
    a.alibi_slope = has(p, HEED_HAS_ALIBI) ? m->slope : NULL;
    if (has(p, HEED_HAS_LENS))
        a.q_lens = m->q_lens;
    return a;
}

/* Where part p of n begins among `len` keys or rows, rounded down to a multiple of unit. */
static int32_t first_of(int64_t len, int64_t p, int64_t n, int kind, int64_t unit)
{
    int64_t at = len * p / n;
    if (p == n)
        return (int32_t)len;
    if (kind == CUT_UNEVEN) /* the first part is empty, the later ones grow */
        at = p < 2 ? 0 : len * p * p / (n * n);
    if (kind == CUT_ONE)
        at = 0;
    return (int32_t)(at / unit * unit);
}

/* The rank that owns a part. Where rows are cut too, a rank gets one part from the front and one
 * from the back of a sequence, so that causal work is even. */
static uint32_t owner_of(uint32_t part, uint32_t size, int kind, int ring)
{
    if (kind != CUT_MANY)
        return part;
    if (ring)
        return part < size ? part : 2 * size - 1 - part;
    return (part * 3 + 1) % size;
}

void problem_cut(const problem *p, cut *c, int kind, uint32_t size)
{
    const uint32_t n = kind != CUT_MANY ? size : p->s.ring ? 2 * size : 2 * size + 1;
    const int64_t unit = p->s.page_len                 ? p->s.page_len
                         : has(p, HEED_HAS_KEY_BLOCKS) ? 64 * p->desc.block_keys
                                                       : 1;
    memset(c, 0, sizeof *c);
    c->partition = (heed_partition){.struct_size = sizeof c->partition,
                                    .n_parts = n,
                                    .scheme = p->s.ring == 1 ? HEED_GROUP_RING : HEED_GROUP_SPLIT,
                                    .owner = kind == CUT_MANY ? c->owner : NULL,
                                    .key_first = c->key_first,
                                    .row_first = p->s.ring ? c->row_first : NULL,
                                    .timeout_ns = INT64_C(60000000000)};
    for (uint32_t i = 0; i < n; i++)
        c->owner[i] = owner_of(i, size, kind, (int)p->s.ring);
    for (int64_t b = 0; b < p->s.batch; b++)
        for (uint32_t i = 0; i <= n; i++) {
            c->key_first[b * (n + 1) + i] = first_of(p->whole.kv_lens[b], i, n, kind, unit);
            c->row_first[b * (n + 1) + i] = first_of(p->whole.q_lens[b], i, n, kind, 1);
        }
}

/* The keys or rows of sequence b that a rank holds, as indices into the whole problem. Returns how
 * many there are. */
static int64_t held(const cut *c, const int32_t *first, uint32_t rank, int64_t b, int32_t *index)
{
    const uint32_t n = c->partition.n_parts;
    int64_t count = 0;
    for (uint32_t p = 0; p < n; p++)
        for (int32_t j = first[b * (n + 1) + p];
             c->owner[p] == rank && j < first[b * (n + 1) + p + 1]; j++)
            index[count++] = j;
    return count;
}

static void *get(int64_t count, size_t bytes)
{
    void *data = calloc((size_t)count + 1, bytes);
    if (!data)
        abort();
    return data;
}

static void measure(const problem *p, const cut *c, uint32_t rank, memory *l, int32_t *index)
{
    l->q_len = p->s.ring ? 0 : p->whole.q_len;
    for (int64_t b = 0; b < p->s.batch; b++) {
        l->kv_lens[b] = (int32_t)held(c, c->key_first, rank, b, index);
        l->q_lens[b] =
            p->s.ring ? (int32_t)held(c, c->row_first, rank, b, index) : p->whole.q_lens[b];
        l->kv_len = l->kv_lens[b] > l->kv_len ? l->kv_lens[b] : l->kv_len;
        l->q_len = l->q_lens[b] > l->q_len ? l->q_lens[b] : l->q_len;
        l->q_starts[b] = (int32_t)l->rows;
        l->kv_starts[b] = (int32_t)l->keys;
        l->rows += l->q_lens[b];
        l->keys += l->kv_lens[b];
    }
    const int64_t pages = pages_of(p, l);
    l->table = get(pages * p->s.batch, sizeof *l->table);
    for (int64_t i = 0; i < pages * p->s.batch; i++)
        l->table[i] = (int32_t)(pages * p->s.batch - 1 - i);
}

static void copy_keys(const problem *p, int64_t b, const int32_t *index, memory *l)
{
    const size_t k = (size_t)heed_offset_bytes(p->s.kv_type, p->s.qk_dim);
    const size_t v = (size_t)heed_offset_bytes(p->s.kv_type, p->s.v_dim);
    for (uint32_t g = 0; g < p->s.kv_heads; g++)
        for (int64_t j = 0; j < l->kv_lens[b]; j++) {
            const int64_t from = key_at(p, &p->whole, b, g, index[j]), to = key_at(p, l, b, g, j);
            memcpy((char *)l->k + (size_t)to * k, (char *)p->whole.k + (size_t)from * k, k);
            memcpy((char *)l->v + (size_t)to * v, (char *)p->whole.v + (size_t)from * v, v);
            if (l->k_scale) {
                l->k_scale[to] = p->whole.k_scale[from];
                l->v_scale[to] = p->whole.v_scale[from];
            }
        }
}

static void copy_rows(const problem *p, int64_t b, const int32_t *index, memory *l)
{
    const size_t q = (size_t)heed_offset_bytes(p->s.q_type, p->s.qk_dim);
    const size_t pairs = (size_t)p->whole.kv_len;
    for (uint32_t h = 0; h < p->s.q_heads; h++)
        for (int64_t i = 0; i < l->q_lens[b]; i++) {
            const int64_t from = problem_row(p, &p->whole, b, h, index[i]);
            const int64_t to = problem_row(p, l, b, h, i);
            memcpy((char *)l->q + (size_t)to * q, (char *)p->whole.q + (size_t)from * q, q);
            if (l->mask && p->s.ring != APART)
                memcpy(l->mask + (size_t)to * pairs, p->whole.mask + (size_t)from * pairs, pairs);
            if (l->bias)
                memcpy(l->bias + (size_t)to * pairs, p->whole.bias + (size_t)from * pairs,
                       pairs * sizeof(float));
            if (l->ranges)
                memcpy(l->ranges + 4 * to, p->whole.ranges + 4 * from, 4 * sizeof *l->ranges);
        }
}

void problem_local(const problem *p, const cut *c, uint32_t rank, memory *l)
{
    const spec *s = &p->s;
    const memory *w = &p->whole;
    int32_t *index = get(w->kv_len + w->q_len, sizeof *index);
    memset(l, 0, sizeof *l);
    measure(p, c, rank, l, index);
    const int packed = has(p, HEED_HAS_PACKED);
    const int64_t rows = packed ? l->rows : s->batch * l->q_len,
                  pairs = s->q_heads * rows * w->kv_len,
                  whole_pairs = s->batch * s->q_heads * w->q_len * w->kv_len;
    const int64_t keys = s->kv_heads * (s->page_len ? s->batch * pages_of(p, l) * s->page_len
                                        : packed    ? l->keys
                                                    : s->batch * l->kv_len);
    l->q = get(s->q_heads * rows, (size_t)heed_offset_bytes(s->q_type, s->qk_dim));
    l->k = get(keys, (size_t)heed_offset_bytes(s->kv_type, s->qk_dim));
    l->v = get(keys, (size_t)heed_offset_bytes(s->kv_type, s->v_dim));
    l->k_scale = w->k_scale ? get(keys, sizeof(float)) : NULL;
    l->v_scale = w->v_scale ? get(keys, sizeof(float)) : NULL;
    l->out = get(s->q_heads * rows * s->v_dim, 4);
    l->lse = get(s->q_heads * rows, 4);
    l->mask = w->mask ? get(s->ring == APART ? whole_pairs : pairs, 1) : NULL;
    if (w->mask && s->ring == APART)
        memcpy(l->mask, w->mask, (size_t)whole_pairs);
    l->bias = w->bias ? get(pairs, sizeof(float)) : NULL;
    l->ranges = w->ranges ? get(4 * s->q_heads * rows, sizeof(int32_t)) : NULL;
    l->blocks = w->blocks ? get(s->batch * 16 * ((w->kv_len + 255) / 256), 8) : NULL;
    if (w->blocks)
        memcpy(l->blocks, w->blocks, (size_t)(s->batch * 16 * ((w->kv_len + 255) / 256)) * 8);
    for (int64_t b = 0; b < s->batch; b++) {
        held(c, c->key_first, rank, b, index);
        copy_keys(p, b, index, l);
        if (s->ring)
            held(c, c->row_first, rank, b, index);
        for (int32_t i = 0; !s->ring && i < l->q_lens[b]; i++)
            index[i] = i;
        copy_rows(p, b, index, l);
    }
    memcpy(l->q_offsets, w->q_offsets, sizeof l->q_offsets);
    memcpy(l->sink, w->sink, sizeof l->sink);
    memcpy(l->slope, w->slope, sizeof l->slope);
    free(index);
}
