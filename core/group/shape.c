/* Who has what, and what that makes travel. */
#include "shape.h"

#include <heed/kit.h>

#include "base/checked.h"
#include "base/fpenv.h"
#include "wire.h"

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

int64_t heed_longest(const heed_shape *s, const int32_t *first)
{
    int64_t most = 0;
    for (int64_t b = 0; b < s->batch; b++)
        most = heed_max64(most, heed_first_of(s, first, b, s->part.n_parts));
    return most;
}

int heed_part_has_keys(const heed_shape *s, uint32_t part)
{
    for (int64_t b = 0; b < s->batch; b++)
        if (heed_part_len(s, s->part.key_first, b, part))
            return 1;
    return 0;
}

uint32_t heed_stretch_end(const heed_shape *s, uint32_t part)
{
    uint32_t end = part + 1;
    while (end < s->part.n_parts && heed_owner(s, end) == heed_owner(s, part))
        end++;
    return end;
}

int heed_has_keys(const heed_shape *s, uint32_t rank)
{
    for (uint32_t p = 0; p < s->part.n_parts; p++)
        if (heed_owner(s, p) == rank && heed_part_has_keys(s, p))
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
    heed_slice w = {
        .rank = rank, .next = share(rows, rank, s->size), .end = share(rows, rank + 1, s->size)};
    if (heed_rows_apart(s)) { /* parts are counted */
        w.next = 0;
        w.end = s->batch * s->part.n_parts;
    } else if (s->part.want == HEED_WANT_ROOT) {
        w.next = 0;
        w.end = rank == s->part.root ? rows : 0;
    } else if (s->part.want == HEED_WANT_HEADS) { /* of each token */
        w.next = share(s->desc->q_heads, rank, s->size);
        w.end = s->tokens ? share(s->desc->q_heads, rank + 1, s->size) : 0;
    }
    return w;
}

/* Steps to the next part that has rows of the rank. */
static int step_part(const heed_shape *s, heed_slice *w)
{
    const int32_t *first = s->part.row_first;
    const uint32_t n = s->part.n_parts;
    for (w->row += w->block.tokens; w->next < w->end;) {
        const int64_t b = w->next / n;
        const uint32_t part = (uint32_t)(w->next++ % n);
        if (b != w->b) {
            w->start += heed_first_of(s, first, w->b, n);
            w->b = b;
            w->row = 0;
        }
        const int64_t len = heed_owner(s, part) == w->rank ? heed_part_len(s, first, b, part) : 0;
        w->block =
            (heed_block){w->start + heed_first_of(s, first, b, part), len, 0, s->desc->q_heads};
        if (len)
            return 1;
    }
    return 0;
}

int heed_slice_step(const heed_shape *s, heed_slice *w)
{
    const int64_t heads = s->desc->q_heads, head = w->next % heads, left = w->end - w->next;
    heed_block *b = &w->block;
    w->at += b->tokens * b->heads;
    if (left <= 0)
        return 0;
    if (heed_rows_apart(s))
        return step_part(s, w);
    if (s->part.want == HEED_WANT_HEADS)
        *b = (heed_block){0, s->tokens, w->next, left};
    else if (head == 0 && left >= heads) /* whole tokens; before and behind them parts of one */
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
    if (heed_rows_apart(s))
        return heed_held(s, s->part.row_first, rank) * s->desc->q_heads;
    return s->part.want == HEED_WANT_HEADS ? rows * s->tokens : rows;
}

size_t heed_rows_bytes(const heed_attn_desc *desc, int64_t rows)
{
    return (size_t)(rows * heed_offset_bytes(desc->q_type, desc->qk_dim));
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

/* ---- counts -----------------------------------------------------------------------------------
 */

/* In doubles, which do not overflow. A row counts as one of q and of f32 results twice, for each part
 * or rank, so that sums of some such counts fit 64 bits. */
int heed_bytes_fit(const heed_shape *s)
{
    const heed_fpenv saved =
        heed_fpenv_enter(); /* not even where a host lets inexact results trap */
    const heed_attn_desc *d = s->desc;
    const int64_t heads = d->kv_heads, times = heed_max64(s->size, s->part.n_parts);
    const double row = 8.0 * d->q_heads * ((double)heed_max64(d->qk_dim, d->v_dim) + 2);
    const double key = (double)(heed_offset_bytes(d->k_type, heads * d->qk_dim) +
                                heed_offset_bytes(d->v_type, heads * d->v_dim));
    double keys = 0;
    if (heed_rows_apart(s) && s->part.scheme != HEED_GROUP_SPLIT)
        for (int64_t b = 0; b < s->batch; b++)
            keys += heed_first_of(s, s->part.key_first, b, s->part.n_parts);
    const int fit = (double)s->tokens * row * (double)times + keys * key < 0x1p62;
    heed_fpenv_leave(saved);
    return fit;
}

enum { HEADER = sizeof(heed_wire_header) };

static void add(heed_group_cost *c, uint64_t messages, uint64_t bytes)
{
    c->messages += messages;
    c->bytes += messages * HEADER + bytes;
}

/* Partial results go to the ranks that merge, which with HEED_WANT_ALL send results
 * to all others. */
static void count_split(const heed_shape *s, heed_group_cost *c)
{
    const int own = s->part.want == HEED_WANT_ALL && heed_slice_rows(s, s->rank) > 0;
    c->steps = s->part.want == HEED_WANT_ALL ? 2 : 1;
    for (uint32_t r = 0; r < s->size; r++) {
        if (r == s->rank)
            continue;
        if (heed_slice_rows(s, r))
            add(c, 1, heed_partial_bytes(s, s->rank, r));
        if (own)
            add(c, 1, heed_result_bytes(s, s->rank));
    }
}

heed_tally heed_tally_of(const heed_shape *s)
{
    heed_tally t = {.least_keys = UINT64_MAX};
    for (uint32_t r = 0; r < s->size; r++) {
        const int64_t keys = heed_held(s, s->part.key_first, r);
        const int64_t rows = heed_held(s, s->part.row_first, r);
        const uint64_t bytes = heed_keys_bytes(s->desc, keys);
        t.with_keys += keys > 0;
        t.with_rows += rows > 0;
        t.rows += rows * s->desc->q_heads;
        t.keys += bytes;
        t.least_keys = bytes < t.least_keys ? bytes : t.least_keys;
    }
    return t;
}

/* A rank sends its rows to the ranks that have keys, and partial results to those
 * that have rows. */
static void count_rows(const heed_shape *s, const heed_tally *t, heed_group_cost *c)
{
    const int64_t own = heed_slice_rows(s, s->rank);
    const uint32_t has_keys = heed_has_keys(s, s->rank) != 0, has_rows = own > 0;
    const uint64_t to_keys = has_rows ? t->with_keys - has_keys : 0;
    const uint64_t others = has_keys ? (uint64_t)(t->rows - own) : 0;
    c->steps = 2;
    add(c, to_keys, to_keys * heed_rows_bytes(s->desc, own));
    add(c, t->with_rows - has_rows, others * (s->desc->v_dim + UINT64_C(1)) * sizeof(float));
}

/* A rank sends all keys on but those of the rank that it sends to. */
static void count_ring(const heed_shape *s, const heed_tally *t, heed_group_cost *c)
{
    const int64_t next = heed_held(s, s->part.key_first, (s->rank + 1) % s->size);
    c->steps = s->size - 1;
    add(c, s->size - 1, t->keys - heed_keys_bytes(s->desc, next));
}

void heed_count(const heed_shape *s, const heed_tally *t, heed_group_cost *c)
{
    c->scheme = s->part.scheme;
    c->steps = 0;
    c->messages = c->bytes = 0;
    if (s->size == 1)
        return;
    if (c->scheme == HEED_GROUP_RING)
        count_ring(s, t, c);
    else if (heed_rows_apart(s))
        count_rows(s, t, c);
    else
        count_split(s, c);
}
