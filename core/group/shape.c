/* Checks of a partition, and what it makes travel. */
#include "shape.h"

#include <heed/kit.h>

#include "base/checked.h"
#include "base/reason.h"

#define INVALID(...) return heed_fail(why, HEED_ERR_INVALID, __VA_ARGS__)

/* ---- checks -----------------------------------------------------------------------------------
 */

static heed_status check_choice(const heed_shape *s, heed_error *why)
{
    const heed_partition *p = &s->part;
    if (p->scheme > HEED_GROUP_RING)
        INVALID("partition.scheme is %u, HEED_GROUP_* is required", p->scheme);
    if (p->want > HEED_WANT_HEADS)
        INVALID("partition.want is %u, HEED_WANT_* is required", p->want);
    if (p->scheme == HEED_GROUP_RING && p->want)
        INVALID("partition.want is %u, with HEED_GROUP_RING 0 is required: each rank gets its rows",
                p->want);
    if (p->want == HEED_WANT_ROOT && p->root >= s->size)
        INVALID("partition.root is %u, less than the transport's size = %u is required", p->root,
                s->size);
    if (p->want != HEED_WANT_ROOT && p->root)
        INVALID("partition.root is %u without HEED_WANT_ROOT", p->root);
    if (p->n_parts == 0 || p->n_parts > 1u << 20)
        INVALID("partition.n_parts is %u, 1 to %u is required", p->n_parts, 1u << 20);
    if (!p->owner && p->n_parts != s->size)
        INVALID("partition.owner is NULL and n_parts %u, but the transport's size is %u",
                p->n_parts, s->size);
    for (uint32_t i = 0; p->owner && i < p->n_parts; i++)
        if (p->owner[i] >= s->size)
            INVALID("partition.owner[%u] is %u, less than the transport's size = %u is required", i,
                    p->owner[i], s->size);
    if (p->timeout_ns <= 0)
        INVALID("partition.timeout_ns is %lld, at least 1 is required", (long long)p->timeout_ns);
    return HEED_OK;
}

static heed_status check_firsts(const heed_shape *s, const char *name, const int32_t *first,
                                heed_error *why)
{
    const uint32_t n = s->part.n_parts;
    if (!first && s->batch)
        INVALID("partition.%s is NULL, but required", name);
    for (int64_t b = 0; b < s->batch; b++) {
        if (heed_first_of(s, first, b, 0) != 0)
            INVALID("partition.%s[%lld][0] is %d, 0 is required", name, (long long)b,
                    heed_first_of(s, first, b, 0));
        for (uint32_t i = 0; i < n; i++)
            if (heed_first_of(s, first, b, i + 1) < heed_first_of(s, first, b, i))
                INVALID("partition.%s[%lld][%u] is %d, at least the one before it, %d, is required",
                        name, (long long)b, i + 1, heed_first_of(s, first, b, i + 1),
                        heed_first_of(s, first, b, i));
    }
    return HEED_OK;
}

/* Parts with keys begin where pages do, and words of key blocks. */
static heed_status check_starts(const heed_shape *s, heed_error *why)
{
    const heed_attn_desc *d = s->desc;
    const int64_t words = d->features & HEED_HAS_KEY_BLOCKS ? 64 * (int64_t)d->block_keys : 1;
    const int64_t page = d->features & HEED_HAS_PAGES ? d->page_len : 1;
    for (int64_t b = 0; b < s->batch && (words > 1 || page > 1); b++)
        for (uint32_t p = 0; p < s->part.n_parts; p++) {
            const int32_t first = heed_first_of(s, s->part.key_first, b, p);
            if (heed_part_len(s, s->part.key_first, b, p) == 0)
                continue;
            if (first % page)
                INVALID("partition.key_first[%lld][%u] is %d: with HEED_HAS_PAGES a multiple of "
                        "desc.page_len = %lld is required",
                        (long long)b, p, first, (long long)page);
            if (first % words)
                return heed_fail(why, HEED_ERR_UNSUPPORTED,
                                 "partition.key_first[%lld][%u] is %d: with HEED_HAS_KEY_BLOCKS a "
                                 "multiple of 64 * desc.block_keys = %lld is required, where a "
                                 "word of bits begins",
                                 (long long)b, p, first, (long long)words);
        }
    return HEED_OK;
}

/* Rows that share bits of key blocks lie in one part. */
static heed_status check_row_blocks(const heed_shape *s, heed_error *why)
{
    const int64_t rows = s->desc->block_rows;
    for (int64_t b = 0; b < s->batch; b++)
        for (uint32_t p = 0; p < s->part.n_parts; p++) {
            const int64_t at = heed_held_before(s, s->part.row_first, b, heed_owner(s, p), p);
            if (at % rows && heed_part_len(s, s->part.row_first, b, p))
                return heed_fail(why, HEED_ERR_UNSUPPORTED,
                                 "part %u of sequence %lld begins at row %lld of its rank: with "
                                 "HEED_HAS_KEY_BLOCKS a multiple of desc.block_rows = %lld is "
                                 "required",
                                 p, (long long)b, (long long)at, (long long)rows);
        }
    return HEED_OK;
}

static heed_status check_features(const heed_shape *s, heed_error *why)
{
    const uint64_t f = s->desc->features;
    if (f & (HEED_HAS_WEIGHTS | HEED_HAS_SCORES))
        return heed_fail(why, HEED_ERR_UNSUPPORTED,
                         "desc.features has %s: a rank has no whole rows of them",
                         f & HEED_HAS_WEIGHTS ? "HEED_HAS_WEIGHTS" : "HEED_HAS_SCORES");
    if (s->part.scheme == HEED_GROUP_RING && s->size > 1 && f & HEED_HAS_QUANT)
        return heed_fail(why, HEED_ERR_UNSUPPORTED,
                         "desc.features has HEED_HAS_QUANT: with HEED_GROUP_RING scales would have "
                         "to travel beside their keys; formats that carry theirs do");
    return HEED_OK;
}

heed_status heed_shape_read(heed_shape *s, const heed_attn *plan, const heed_partition *partition,
                            int64_t batch, heed_error *why)
{
    heed_status st = heed_read_struct("partition", partition, sizeof s->part, &s->part, why);
    s->desc = &plan->desc;
    s->batch = batch;
    s->tokens = 0;
    if (st == HEED_OK && s->part.scheme == HEED_GROUP_AUTO)
        s->part.scheme = s->part.row_first ? HEED_GROUP_RING : HEED_GROUP_SPLIT;
    if (st == HEED_OK)
        st = check_choice(s, why);
    if (st == HEED_OK && s->part.scheme == HEED_GROUP_SPLIT && s->part.row_first)
        INVALID("partition.row_first is given, but with HEED_GROUP_SPLIT every rank has all rows");
    if (st == HEED_OK)
        st = check_features(s, why);
    if (st == HEED_OK)
        st = check_firsts(s, "key_first", s->part.key_first, why);
    if (st == HEED_OK && s->part.scheme == HEED_GROUP_RING)
        st = check_firsts(s, "row_first", s->part.row_first, why);
    if (st == HEED_OK && s->size > 1)
        st = check_starts(s, why);
    if (st == HEED_OK && s->size > 1 && s->part.scheme == HEED_GROUP_RING &&
        s->desc->features & HEED_HAS_KEY_BLOCKS)
        st = check_row_blocks(s, why);
    return st;
}

/* ---- who has what -----------------------------------------------------------------------------
 */

int64_t heed_held_before(const heed_shape *s, const int32_t *first, int64_t b, uint32_t rank,
                         uint32_t part)
{
    int64_t n = 0;
    for (uint32_t p = 0; p < part; p++)
        n += heed_owner(s, p) == rank ? heed_part_len(s, first, b, p) : 0;
    return n;
}

int64_t heed_held(const heed_shape *s, const int32_t *first, uint32_t rank)
{
    int64_t n = 0;
    for (int64_t b = 0; b < s->batch; b++)
        n += heed_held_before(s, first, b, rank, s->part.n_parts);
    return n;
}

int heed_part_has(const heed_shape *s, const int32_t *first, uint32_t part)
{
    for (int64_t b = 0; b < s->batch; b++)
        if (heed_part_len(s, first, b, part))
            return 1;
    return 0;
}

int heed_has_keys(const heed_shape *s, uint32_t rank)
{
    for (uint32_t p = 0; p < s->part.n_parts; p++)
        if (heed_owner(s, p) == rank && heed_part_has(s, s->part.key_first, p))
            return 1;
    return 0;
}

/* ---- split ------------------------------------------------------------------------------------
 */

/* rank * n / size without overflow. */
static int64_t share(int64_t n, uint32_t rank, uint32_t size)
{
    return n / size * rank + n % size * rank / size;
}

heed_slice heed_slice_begin(const heed_shape *s, uint32_t rank)
{
    const int64_t rows = s->tokens * s->desc->q_heads;
    heed_slice w = {.next = share(rows, rank, s->size), .end = share(rows, rank + 1, s->size)};
    if (s->part.want == HEED_WANT_ROOT) {
        w.next = 0;
        w.end = rank == s->part.root ? rows : 0;
    }
    if (s->part.want == HEED_WANT_HEADS) { /* of each token */
        w.next = share(s->desc->q_heads, rank, s->size);
        w.end = s->tokens ? share(s->desc->q_heads, rank + 1, s->size) : 0;
    }
    return w;
}

int heed_slice_step(const heed_shape *s, heed_slice *w)
{
    const int64_t heads = s->desc->q_heads, head = w->next % heads, left = w->end - w->next;
    heed_block *b = &w->block;
    w->at += b->tokens * b->heads;
    if (left <= 0)
        return 0;
    if (s->part.want == HEED_WANT_HEADS)
        *b = (heed_block){0, s->tokens, w->next, left};
    else if (head == 0 && left >= heads) /* what is left of a token, whole ones, the start of one */
        *b = (heed_block){w->next / heads, left / heads, 0, heads};
    else
        *b = (heed_block){w->next / heads, 1, head, heed_min64(left, heads - head)};
    w->next = s->part.want == HEED_WANT_HEADS ? w->end : w->next + b->tokens * b->heads;
    return 1;
}

int64_t heed_slice_rows(const heed_shape *s, uint32_t rank)
{
    const heed_slice w = heed_slice_begin(s, rank);
    const int64_t rows = heed_max64(0, w.end - w.next);
    return s->part.want == HEED_WANT_HEADS ? rows * s->tokens : rows;
}

size_t heed_partial_bytes(const heed_shape *s, uint32_t from, uint32_t to)
{
    return heed_has_keys(s, from)
               ? (size_t)heed_slice_rows(s, to) * (s->desc->v_dim + (size_t)1) * sizeof(float)
               : 0;
}

size_t heed_result_bytes(const heed_shape *s, uint32_t rank)
{
    const size_t lse = s->desc->features & HEED_HAS_LSE ? sizeof(float) : 0;
    return (size_t)heed_slice_rows(s, rank) *
           (lse + s->desc->v_dim * (size_t)heed_dtype_bytes(s->desc->out_type));
}

/* ---- ring -------------------------------------------------------------------------------------
 */

size_t heed_values_at(const heed_attn_desc *desc, int64_t tokens)
{
    const size_t row =
        (size_t)heed_offset_bytes(desc->k_type, (int64_t)desc->kv_heads * desc->qk_dim);
    return ((size_t)tokens * row + 63) / 64 * 64;
}

size_t heed_keys_bytes(const heed_attn_desc *desc, int64_t tokens)
{
    const size_t row =
        (size_t)heed_offset_bytes(desc->v_type, (int64_t)desc->kv_heads * desc->v_dim);
    return heed_values_at(desc, tokens) + (size_t)tokens * row;
}
