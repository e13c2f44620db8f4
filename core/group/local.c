/* Runs over parts of rows and keys, by views of the caller's memory that begin where a part does. */
#include "local.h"

#include <heed/kit.h>

#include "attention/planning.h"
#include "base/checked.h"
#include "base/reason.h"
#include "runtime/run.h"

#define WITH_POSITION (HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_ALIBI)
#define WITH_PAIRS (HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_KEY_BLOCKS)

heed_attn_desc heed_local_desc(const heed_shape *shape, int64_t rows, int64_t keys, int64_t tokens)
{
    heed_attn_desc d = *shape->desc;
    d.features = (d.features & ~HEED_HAS_SINK) | HEED_HAS_LSE | HEED_HAS_LENS;
    d.out_type = HEED_F32;
    d.position = d.features & WITH_POSITION ? HEED_POS_GIVEN : HEED_POS_UNSET;
    if (!heed_rows_apart(shape))
        return d;
    d.features |= HEED_HAS_PACKED;
    d.max_q_len = heed_plan_room(rows);
    d.max_rows = heed_plan_room(tokens);
    if (shape->part.scheme == HEED_GROUP_SPLIT)
        return d;
    d.features &= ~HEED_HAS_PAGES;
    d.page_len = 0;
    d.max_kv_len = heed_plan_room(keys);
    return d;
}

int64_t heed_local_offset(const heed_group_call *call, int64_t b)
{
    const heed_shape *s = &call->shape;
    const heed_attn_args *a = &call->args;
    const uint32_t n = s->part.n_parts;
    if (s->desc->position == HEED_POS_GIVEN)
        return a->q_offsets[b];
    if (s->desc->position != HEED_POS_BOTTOM_RIGHT)
        return 0;
    const int64_t rows = heed_rows_apart(s) ? heed_first_of(s, s->part.row_first, b, n)
                         : a->q_lens        ? a->q_lens[b]
                                            : a->q_len;
    return heed_first_of(s, s->part.key_first, b, n) - rows;
}

/* ---- ranges -----------------------------------------------------------------------------------
 */

/* The copy's heads and rows: an axis that the caller broadcasts has one element. */
static void ranges_shape(const heed_group_call *call, const heed_piece *p, int64_t *heads,
                         int64_t *rows)
{
    const heed_const_view *r = &call->args.ranges;
    *heads = r->stride[1] ? call->shape.desc->q_heads : 1;
    *rows = r->stride[2] ? p->q_len : p->q_len > 0; /* without rows there is no room for one */
}

static int32_t clip(int64_t key, int64_t first, int64_t n)
{
    return (int32_t)heed_max64(0, heed_min64(key - first, n));
}

/* Copies one row's intervals as far as they reach into the part, counted from its first key. */
static heed_status clip_row(const heed_group_call *call, const heed_piece *p, int64_t at[3],
                            int32_t *to, heed_error *why)
{
    const heed_shape *s = &call->shape;
    const heed_const_view *r = &call->args.ranges;
    const int32_t length = heed_first_of(s, s->part.key_first, at[0], s->part.n_parts);
    const int64_t row = p->row_at[at[0]] + at[2];
    const char *from = (const char *)r->data +
                       8 * (at[0] * r->stride[0] + at[1] * r->stride[1] + row * r->stride[2]);
    for (uint32_t n = 0; n < s->desc->n_ranges; n++) {
        int32_t pair[2];
        memcpy(pair, from + 8 * n * r->stride[3], sizeof pair);
        if (pair[0] < 0 || pair[1] < pair[0] || pair[1] > length)
            INVALID("args.ranges[%lld][%lld][%lld][%u] is [%d, %d): 0 <= begin <= end <= "
                    "%d, the sequence's keys, is required",
                    (long long)at[0], (long long)at[1], (long long)row, n, pair[0], pair[1],
                    length);
        to[2 * n] = clip(pair[0], p->key_at[at[0]], p->kv_lens[at[0]]);
        to[2 * n + 1] = clip(pair[1], p->key_at[at[0]], p->kv_lens[at[0]]);
    }
    return HEED_OK;
}

static heed_status clip_ranges(const heed_group_call *call, heed_piece *p, heed_error *why)
{
    const size_t n = 2 * (size_t)call->shape.desc->n_ranges;
    int64_t heads, rows;
    int32_t *to = p->ranges;
    ranges_shape(call, p, &heads, &rows);
    for (int64_t b = 0; b < call->shape.batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < rows; i++, to += n) {
                if (i >= p->q_lens[b]) {
                    memset(to, 0, n * sizeof *to);
                    continue;
                }
                heed_status st = clip_row(call, p, (int64_t[]){b, h, i}, to, why);
                if (st != HEED_OK)
                    return st;
            }
    return HEED_OK;
}

/* ---- a piece ----------------------------------------------------------------------------------
 */

void heed_piece_take(heed_piece *p, const heed_shape *s, int64_t q_len, heed_room *room)
{
    int32_t **const array[] = {&p->q_lens,   &p->kv_lens,   &p->q_offsets,
                               &p->q_starts, &p->kv_starts, &p->mask_from,
                               &p->key_at,   &p->row_at,    &p->held_at};
    for (size_t i = 0; i < sizeof array / sizeof *array; i++)
        *array[i] = heed_room_take(room, s->batch, sizeof **array[i]);
    p->ranges =
        heed_room_take(room, s->batch * s->desc->q_heads, 8 * (size_t)q_len * s->desc->n_ranges);
}

heed_status heed_piece_place(const heed_group_call *call, heed_piece *p, const int32_t *first_row,
                             heed_error *why)
{
    const heed_attn_args *a = &call->args;
    const uint64_t f = call->shape.desc->features;
    for (int64_t b = 0; b < call->shape.batch; b++) {
        const int64_t offset =
            heed_local_offset(call, b) + (first_row ? first_row[b] : 0) - p->key_at[b];
        if (f & WITH_POSITION && (offset < INT32_MIN || offset > INT32_MAX))
            return heed_fail(why, HEED_ERR_UNSUPPORTED,
                             "sequence %lld has its rows %lld before a part's first key, which is "
                             "more than 32 bits hold",
                             (long long)b, -(long long)offset);
        p->q_offsets[b] = (int32_t)offset;
        if (f & HEED_HAS_MASK_FROM)
            p->mask_from[b] = clip(a->mask_from[b], p->key_at[b], p->kv_lens[b]);
        if (p->kv_starts && !p->k_is_packed)
            p->kv_starts[b] = a->kv_starts[b] + p->held_at[b];
    }
    return f & HEED_HAS_RANGES ? clip_ranges(call, p, why) : HEED_OK;
}

/* The column of mask and bias at which the part begins. */
static int64_t column_of(const heed_group_call *call, const heed_piece *p, int64_t b)
{
    const int32_t *from = call->args.mask_from;
    return from ? heed_max64(0, (int64_t)p->key_at[b] - from[b]) : p->key_at[b];
}

/* Do the views of two sequences begin at the same place of each sequence? */
static int alike(const heed_group_call *call, const heed_piece *p, int64_t b, int64_t c)
{
    if (!p->kv_starts && p->held_at[b] != p->held_at[c])
        return 0;
    return !(call->shape.desc->features & WITH_PAIRS) ||
           (p->key_at[b] == p->key_at[c] && p->row_at[b] == p->row_at[c] &&
            column_of(call, p, b) == column_of(call, p, c));
}

static void shift(heed_const_view *v, uint32_t type, int axis, int64_t by)
{
    if (v->data)
        v->data = (const char *)v->data + heed_offset_bytes(type, v->stride[axis] * by);
}

static heed_status shift_quant(heed_quant *q, const char *name, int64_t b, int64_t row,
                               heed_error *why)
{
    if (!q->scale)
        return HEED_OK;
    if (q->key_group && row % q->key_group)
        return heed_fail(why, HEED_ERR_UNSUPPORTED,
                         "a part of sequence %lld begins at key %lld of its rank: with "
                         "args.%s.key_group = %u a multiple of that is required",
                         (long long)b, (long long)row, name, q->key_group);
    const int64_t floats =
        b * q->stride[0] + (q->key_group ? row / q->key_group : row) * q->stride[2];
    q->scale += floats;
    q->zero = q->zero ? q->zero + floats : NULL;
    return HEED_OK;
}

/* Points k and v at the keys of sequence b from held_at on. */
static heed_status point_keys(const heed_group_call *call, const heed_piece *p, int64_t b,
                              heed_attn_args *a, heed_error *why)
{
    const heed_attn_desc *d = call->shape.desc;
    const int64_t row = p->held_at[b];
    if (p->kv_starts) {
        a->kv_starts = p->kv_starts + b;
        return HEED_OK;
    }
    if (a->block_table) {
        a->block_table += b * a->block_table_stride + row / d->page_len;
        a->block_table_stride = heed_max64(a->block_table_stride, 0);
        return HEED_OK;
    }
    shift(&a->k, d->k_type, 0, b);
    shift(&a->v, d->v_type, 0, b);
    shift(&a->k, d->k_type, 2, row);
    shift(&a->v, d->v_type, 2, row);
    heed_status st = shift_quant(&a->k_quant, "k_quant", b, row, why);
    return st == HEED_OK ? shift_quant(&a->v_quant, "v_quant", b, row, why) : st;
}

/* Points mask, bias and lists at the rows and keys of sequence b. */
static void point_pairs(const heed_group_call *call, const heed_piece *p, int64_t b,
                        heed_attn_args *a)
{
    const heed_attn_desc *d = call->shape.desc;
    const int64_t column = column_of(call, p, b);
    shift(&a->mask, HEED_U8, 0, b);
    shift(&a->mask, HEED_U8, 2, p->row_at[b]);
    shift(&a->mask, HEED_U8, 3, column);
    shift(&a->bias, d->bias_type, 0, b);
    shift(&a->bias, d->bias_type, 2, p->row_at[b]);
    shift(&a->bias, d->bias_type, 3, column);
    if (a->mask_from)
        a->mask_from = p->mask_from + b;
    if (a->key_blocks.data) {
        const int64_t *stride = a->key_blocks.stride;
        const int64_t words = b * stride[0] + p->row_at[b] / d->block_rows * stride[2] +
                              p->key_at[b] / d->block_keys / 64 * stride[3];
        a->key_blocks.data = (const char *)a->key_blocks.data + 8 * words;
    }
    if (a->ranges.data) {
        const int64_t n = d->n_ranges;
        int64_t heads, rows;
        ranges_shape(call, p, &heads, &rows);
        a->ranges =
            (heed_const_view){p->ranges + 2 * n * b * heads * rows,
                              {n * heads * rows, heads > 1 ? n * rows : 0, rows > 1 ? n : 0, 1}};
    }
}

/* The args of sequences [b, end). */
static heed_status args_of(const heed_group_call *call, const heed_piece *p, int64_t b, int64_t end,
                           heed_attn_args *a, heed_error *why)
{
    const heed_attn_desc *d = call->shape.desc;
    *a = call->args;
    a->error = NULL;
    a->sink = NULL;
    a->batch = end - b;
    a->q_len = p->q_len;
    a->kv_len = 0;
    for (int64_t c = b; c < end; c++)
        a->kv_len = heed_max64(a->kv_len, p->kv_lens[c]);
    a->q = p->q;
    a->k = p->k;
    a->v = p->v;
    a->out = p->out;
    a->lse = p->lse;
    a->q_lens = p->q_lens + b;
    a->kv_lens = p->kv_lens + b;
    a->q_offsets = d->features & WITH_POSITION ? p->q_offsets + b : NULL;
    a->q_starts = p->q_starts ? p->q_starts + b : NULL;
    a->kv_starts = NULL;
    if (p->k_is_packed) {
        a->block_table = NULL;
        a->block_table_stride = a->n_pages = 0;
    }
    if (!p->q_starts) {
        shift(&a->q, d->q_type, 0, b);
        a->out.data = (float *)a->out.data + b * a->out.stride[0];
        a->lse.data = (float *)a->lse.data + b * a->lse.stride[0];
    }
    point_pairs(call, p, b, a);
    return point_keys(call, p, b, a, why);
}

heed_status heed_piece_run(const heed_group_call *call, const heed_piece *p, const heed_hook *hook,
                           void *workspace, size_t bytes, heed_error *why)
{
    heed_status st = HEED_OK;
    for (int64_t b = 0, end; b < call->shape.batch && st == HEED_OK; b = end) {
        heed_attn_args args;
        for (end = b + 1; end < call->shape.batch && alike(call, p, b, end); end++)
            continue;
        st = args_of(call, p, b, end, &args, why);
        if (st == HEED_OK)
            st = heed_run_in(&heed_attn_operation, call->plan->context, call->local, &args, hook,
                             workspace, bytes, why);
    }
    return st;
}
