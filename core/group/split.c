/* See split.h. Every rank computes all rows over its own keys. The rows of all heads are cut into slices,
 * one for each rank, who merges the partial results of its slice in rank order; the sink joins there. */
#include "split.h"

#include <heed/kit.h>

#include "attention/merge.h"
#include "base/fpenv.h"

static size_t message_bytes(size_t payload)
{
    const size_t bytes = sizeof(heed_wire_header) + payload;
    return bytes < HEED_WIRE_LEAST ? HEED_WIRE_LEAST : bytes;
}

/* Rows of the largest slice. Other than a slice it grows with the tokens. */
static int64_t most_rows(const heed_shape *s)
{
    const int64_t heads = s->desc->q_heads;
    return s->part.want == HEED_WANT_ROOT    ? s->tokens * heads
           : s->part.want == HEED_WANT_HEADS ? s->tokens * heed_ceil_div(heads, s->size)
                                             : heed_ceil_div(s->tokens * heads, s->size);
}

/* Has a rank rows to merge, at some number of tokens? */
static int merges(const heed_shape *s, uint32_t rank)
{
    return s->part.want != HEED_WANT_ROOT || rank == s->part.root;
}

static void place_messages(heed_split *p, const heed_shape *s, heed_room *room)
{
    const int64_t rows = most_rows(s);
    const size_t out = s->desc->v_dim * (size_t)heed_dtype_bytes(s->desc->out_type);
    p->send = heed_room_take(room, s->size, sizeof *p->send);
    p->receive = heed_room_take(room, s->size, sizeof *p->receive);
    p->result = heed_room_take(room, s->size, sizeof *p->result);
    for (uint32_t r = 0; r < s->size; r++) {
        const int has_keys = heed_has_keys(s, r);
        const int own_keys = heed_has_keys(s, s->rank);
        const size_t partial = (size_t)rows * (s->desc->v_dim + (size_t)1) * sizeof(float);
        const size_t result = (size_t)rows * (sizeof(float) + out);
        const int is_result = merges(s, r) && (r == s->rank || s->part.want == HEED_WANT_ALL);
        char *to = heed_room_take(room, merges(s, r), message_bytes(own_keys ? partial : 0));
        char *from = heed_room_take(room, merges(s, s->rank) && r != s->rank,
                                    message_bytes(has_keys ? partial : 0));
        char *merged = heed_room_take(room, is_result, message_bytes(result));
        if (!room->base || room->bad)
            continue;
        p->send[r] = to;
        p->receive[r] = from;
        p->result[r] = merged;
    }
}

/* Own parts that have keys. */
static uint32_t own_parts(const heed_shape *s)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < s->part.n_parts; p++)
        n += heed_owner(s, p) == s->rank && heed_part_has(s, s->part.key_first, p);
    return n;
}

size_t heed_split_place(heed_split *p, const heed_shape *s, int64_t q_len, void *workspace)
{
    const heed_attn_desc *d = s->desc;
    const uint32_t n_own = own_parts(s);
    heed_room room = {.base = workspace};
    heed_piece *piece = &p->piece;
    int32_t **const array[] = {&piece->q_lens,   &piece->kv_lens,   &piece->q_offsets,
                               &piece->q_starts, &piece->kv_starts, &piece->mask_from,
                               &piece->key_at,   &piece->row_at,    &piece->held_at};
    for (size_t i = 0; i < sizeof array / sizeof *array; i++)
        *array[i] = heed_room_take(&room, s->batch, sizeof **array[i]);
    room.bad |= s->tokens > INT64_MAX / 64 / (d->q_heads * ((int64_t)d->v_dim + 1));
    if (room.bad)
        return 0;
    piece->ranges = heed_room_take(&room, s->batch * d->q_heads, 8 * (size_t)q_len * d->n_ranges);
    p->out = heed_room_take(&room, n_own * s->tokens * d->q_heads, d->v_dim * sizeof(float));
    p->lse = heed_room_take(&room, n_own * s->tokens * d->q_heads, sizeof(float));
    const uint32_t most = s->size > n_own ? s->size : n_own;
    p->parts = heed_room_take(&room, most, sizeof *p->parts);
    p->lses = heed_room_take(&room, most, sizeof *p->lses);
    p->wire.room = 4 * s->size;
    p->wire.message = heed_room_take(&room, p->wire.room, sizeof *p->wire.message);
    p->wire.owed = heed_room_take(&room, s->size, sizeof *p->wire.owed);
    place_messages(p, s, &room);
    return room.bad ? 0 : room.used;
}

/* ---- this rank's keys -------------------------------------------------------------------------
 */

static void empty_partials(const heed_split *p, const heed_shape *s)
{
    const int64_t rows = own_parts(s) * s->tokens * s->desc->q_heads;
    memset(p->out, 0, (size_t)rows * s->desc->v_dim * sizeof(float));
    for (int64_t n = 0; n < rows; n++)
        p->lse[n] = -INFINITY;
}

/* What is the same for all parts. */
static void set_up(heed_split *p, const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    const heed_attn_args *a = &call->args;
    heed_piece *piece = &p->piece;
    piece->q = a->q;
    piece->k = a->k;
    piece->v = a->v;
    piece->q_len = a->q_len;
    piece->kv_starts = a->kv_starts ? piece->kv_starts : NULL;
    piece->q_starts = a->q_starts ? piece->q_starts : NULL;
    if (a->q_starts)
        piece->q.data = (const char *)a->q.data +
                        heed_offset_bytes(s->desc->q_type, p->first_token * a->q.stride[2]);
    for (int64_t b = 0; b < s->batch; b++) {
        piece->q_lens[b] = a->q_lens ? a->q_lens[b] : (int32_t)a->q_len;
        piece->row_at[b] = 0;
        if (a->q_starts)
            piece->q_starts[b] = a->q_starts[b] - (int32_t)p->first_token;
    }
    if (a->q_lens || a->q_starts) /* rows that nobody computes travel too */
        empty_partials(p, s);
}

static heed_status run_part(heed_split *p, const heed_group_call *call, uint32_t part, uint32_t n,
                            void *rest, size_t bytes)
{
    const heed_shape *s = &call->shape;
    const int64_t heads = s->desc->q_heads, dim = s->desc->v_dim, q_len = call->args.q_len;
    heed_piece *piece = &p->piece;
    for (int64_t b = 0; b < s->batch; b++) {
        piece->kv_lens[b] = heed_part_len(s, s->part.key_first, b, part);
        piece->key_at[b] = heed_first_of(s, s->part.key_first, b, part);
        piece->held_at[b] = (int32_t)heed_held_before(s, s->part.key_first, b, s->rank, part);
    }
    float *out = p->out + n * s->tokens * heads * dim, *lse = p->lse + n * s->tokens * heads;
    piece->out = (heed_view){out, {q_len * heads * dim, dim, heads * dim, 1}};
    piece->lse = (heed_view){lse, {q_len * heads, 1, heads, 0}};
    heed_status st = heed_piece_place(call, piece, NULL, call->why);
    return st == HEED_OK ? heed_piece_run(call, piece, NULL, rest, bytes, call->why) : st;
}

static heed_status run_own(heed_split *p, const heed_group_call *call, void *rest, size_t bytes)
{
    const heed_shape *s = &call->shape;
    heed_status st = HEED_OK;
    uint32_t n = 0;
    set_up(p, call);
    for (uint32_t part = 0; part < s->part.n_parts && st == HEED_OK; part++)
        if (heed_owner(s, part) == s->rank && heed_part_has(s, s->part.key_first, part))
            st = run_part(p, call, part, n++, rest, bytes);
    return st;
}

/* ---- slices -----------------------------------------------------------------------------------
 */

/* Where block `at` rows into a slice lies in a message: all lse, then all of out. */
static heed_const_view lse_in(const char *message, const heed_block *block, int64_t at)
{
    const float *lse = (const float *)(const void *)(message + sizeof(heed_wire_header));
    return (heed_const_view){lse + at, {block->heads, 1, 0, 0}};
}

static heed_const_view out_in(const char *message, const heed_shape *s, const heed_block *block,
                              int64_t rows, int64_t at, uint32_t type, int has_lse)
{
    const int64_t dim = s->desc->v_dim;
    const char *data = message + sizeof(heed_wire_header);
    data += (has_lse ? rows * (int64_t)sizeof(float) : 0) + heed_offset_bytes(type, at * dim);
    return (heed_const_view){data, {block->heads * dim, dim, 1, 0}};
}

/* This rank's partial result of another's slice. */
static void gather(const heed_split *p, const heed_shape *s, uint32_t to)
{
    const int64_t heads = s->desc->q_heads, dim = s->desc->v_dim;
    const int64_t rows = heed_slice_rows(s, to);
    const uint32_t n = own_parts(s);
    heed_block block[3];
    int64_t at = 0;
    if (n == 0)
        return;
    for (int i = 0, blocks = heed_slice(s, to, block); i < blocks; i++) {
        const heed_block *b = &block[i];
        const int64_t first = b->token * heads + b->head;
        const heed_const_view out = out_in(p->send[to], s, b, rows, at, HEED_F32, 1);
        const heed_const_view lse = lse_in(p->send[to], b, at);
        for (uint32_t k = 0; k < n; k++) {
            const int64_t row = k * s->tokens * heads + first;
            p->parts[k] = (heed_const_view){p->out + row * dim, {heads * dim, dim, 1, 0}};
            p->lses[k] = (heed_const_view){p->lse + row, {heads, 1, 0, 0}};
        }
        const heed_merging m = {
            .rows = b->tokens,
            .heads = b->heads,
            .dim = dim,
            .n_parts = n,
            .out_type = HEED_F32,
            .parts = p->parts,
            .lses = p->lses,
            .out = {(void *)out.data, {out.stride[0], out.stride[1], out.stride[2], 0}},
            .lse = {(void *)lse.data, {lse.stride[0], lse.stride[1], 0, 0}}};
        heed_merge_rows(&m, 0, m.rows);
        at += b->tokens * b->heads;
    }
}

/* All ranks' partial results of this rank's slice, in their order. */
static void merge(const heed_split *p, const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    const int has_lse = (s->desc->features & HEED_HAS_LSE) != 0;
    const int64_t rows = heed_slice_rows(s, s->rank);
    heed_block block[3];
    int64_t at = 0;
    for (int i = 0, blocks = heed_slice(s, s->rank, block); i < blocks; i++) {
        const heed_block *b = &block[i];
        char *to = p->result[s->rank];
        const heed_const_view out = out_in(to, s, b, rows, at, s->desc->out_type, has_lse);
        const heed_const_view lse = lse_in(to, b, at);
        uint32_t n = 0;
        for (uint32_t r = 0; r < s->size; r++) {
            const char *from = r == s->rank ? p->send[r] : p->receive[r];
            if (!heed_has_keys(s, r))
                continue;
            p->parts[n] = out_in(from, s, b, rows, at, HEED_F32, 1);
            p->lses[n++] = lse_in(from, b, at);
        }
        const heed_merging m = {
            .rows = b->tokens,
            .heads = b->heads,
            .dim = s->desc->v_dim,
            .n_parts = n,
            .out_type = s->desc->out_type,
            .parts = p->parts,
            .lses = p->lses,
            .sink = call->args.sink ? call->args.sink + b->head : NULL,
            .out = {(void *)out.data, {out.stride[0], out.stride[1], out.stride[2], 0}},
            .lse = {has_lse ? (void *)lse.data : NULL, {lse.stride[0], lse.stride[1], 0, 0}}};
        heed_merge_rows(&m, 0, m.rows);
        at += b->tokens * b->heads;
    }
}

/* ---- results ----------------------------------------------------------------------------------
 */

/* Row `at` of a slice to row [b, h, i] of the caller's outputs. */
static void put_row(const heed_group_call *call, const char *result, int64_t rows, int64_t at,
                    const int64_t to[3])
{
    const heed_attn_desc *d = call->shape.desc;
    const heed_attn_args *a = &call->args;
    const int has_lse = (d->features & HEED_HAS_LSE) != 0;
    const char *from = result + sizeof(heed_wire_header);
    const int64_t *o = a->out.stride, *l = a->lse.stride;
    const int64_t row = a->q_starts ? a->q_starts[to[0]] + to[2] : to[2];
    const int64_t b = a->q_starts ? 0 : to[0];
    if (has_lse)
        heed_store(HEED_F32, a->lse.data, b * l[0] + to[1] * l[1] + row * l[2],
                   heed_load(HEED_F32, from, at));
    from += has_lse ? rows * (int64_t)sizeof(float) : 0;
    const int64_t bytes = heed_dtype_bytes(d->out_type);
    char *out = (char *)a->out.data + (b * o[0] + to[1] * o[1] + row * o[2]) * bytes;
    from += at * d->v_dim * bytes;
    if (o[3] == 1)
        memcpy(out, from, (size_t)(d->v_dim * bytes));
    else
        for (int64_t n = 0; n < d->v_dim; n++)
            memcpy(out + n * o[3] * bytes, from + n * bytes, (size_t)bytes);
}

/* A rank's merged slice to the caller's outputs, of which only rows of sequences are written. */
static void scatter(const heed_split *p, const heed_group_call *call, uint32_t rank)
{
    const heed_shape *s = &call->shape;
    const heed_attn_args *a = &call->args;
    const int64_t rows = heed_slice_rows(s, rank);
    heed_block block[3];
    int64_t at = 0;
    for (int n = 0, blocks = heed_slice(s, rank, block); n < blocks; n++) {
        const heed_block *k = &block[n];
        for (int64_t b = 0; b < s->batch; b++) {
            const int64_t first = a->q_starts ? p->piece.q_starts[b] : b * a->q_len;
            const int64_t low = heed_max64(0, k->token - first);
            const int64_t high = heed_min64(p->piece.q_lens[b], k->token + k->tokens - first);
            for (int64_t i = low; i < high; i++)
                for (int64_t h = 0; h < k->heads; h++)
                    put_row(call, p->result[rank], rows, at + (first + i - k->token) * k->heads + h,
                            (int64_t[]){b, k->head + h, i});
        }
        at += k->tokens * k->heads;
    }
}

/* ---- the call ---------------------------------------------------------------------------------
 */

/* Messages that this rank will send, to be told of a failure instead. */
static void count_owed(heed_split *p, const heed_shape *s)
{
    const int own = s->part.want == HEED_WANT_ALL && heed_slice_rows(s, s->rank) > 0;
    for (uint32_t r = 0; r < s->size; r++)
        p->wire.owed[r] = r == s->rank ? 0 : (heed_slice_rows(s, r) > 0) + own;
}

static heed_status exchange_partials(heed_split *p, const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    heed_wire *w = &p->wire;
    for (uint32_t n = 0; n < s->size; n++) {
        const uint32_t to = (s->rank + n) % s->size; /* not all to the same one at once */
        if (heed_slice_rows(s, to) == 0)
            continue;
        gather(p, s, to);
        if (to == s->rank)
            continue;
        const size_t bytes = heed_partial_bytes(s, s->rank, to);
        heed_wire_address(w, HEED_WIRE_PARTIAL, 0, p->send[to], bytes);
        if (heed_wire_send(w, to, HEED_WIRE_PARTIAL, 0, p->send[to], bytes) != HEED_OK)
            break;
    }
    return heed_wire_wait(w, 0);
}

static heed_status exchange_results(heed_split *p, const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    heed_wire *w = &p->wire;
    const size_t own = heed_result_bytes(s, s->rank);
    for (uint32_t r = 0; r < s->size; r++)
        if (r != s->rank && heed_slice_rows(s, r))
            heed_wire_receive(w, r, HEED_WIRE_RESULT, 1, p->result[r], heed_result_bytes(s, r));
    if (heed_slice_rows(s, s->rank)) {
        heed_wire_address(w, HEED_WIRE_RESULT, 1, p->result[s->rank], own);
        for (uint32_t n = 1; n < s->size; n++)
            heed_wire_send(w, (s->rank + n) % s->size, HEED_WIRE_RESULT, 1, p->result[s->rank],
                           own);
    }
    heed_wire_wait(w, 0);
    for (uint32_t r = 0; r < s->size && w->status == HEED_OK; r++)
        if (r != s->rank && heed_slice_rows(s, r))
            scatter(p, call, r);
    return w->status;
}

heed_status heed_split_run(heed_split *p, const heed_group_call *call, void *rest, size_t bytes)
{
    const heed_shape *s = &call->shape;
    heed_wire *w = &p->wire;
    const int slice = heed_slice_rows(s, s->rank) > 0;
    count_owed(p, s);
    for (uint32_t r = 0; r < s->size && slice; r++)
        if (r != s->rank)
            heed_wire_receive(w, r, HEED_WIRE_PARTIAL, 0, p->receive[r],
                              heed_partial_bytes(s, r, s->rank));
    heed_status st = w->status;
    if (st == HEED_OK)
        st = run_own(p, call, rest, bytes);
    heed_fpenv saved = heed_fpenv_enter();
    if (st == HEED_OK)
        st = exchange_partials(p, call);
    if (st == HEED_OK && slice) {
        merge(p, call);
        scatter(p, call, s->rank);
    }
    if (st == HEED_OK && s->part.want == HEED_WANT_ALL)
        st = exchange_results(p, call);
    heed_fpenv_leave(saved);
    if (st == HEED_OK)
        st = heed_wire_wait(w, 1);
    return heed_wire_end(w, st);
}
