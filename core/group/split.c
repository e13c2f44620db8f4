/* See split.h. Every rank computes all rows over its own keys. The rows of all heads are cut into
 * slices, one for each rank. A rank merges the partial results of its slice in rank order, and adds
 * the sink. Where rows are apart the slice of a rank is its own rows. */
#include "split.h"

#include <heed/kit.h>

#include "attention/merge.h"
#include "base/rows.h"

/* The most rows that a slice may have. Unlike the rows of one rank's slice it never shrinks
 * when there are more tokens. Where rows are apart it is the rank's own rows, which the
 * partition gives. */
static int64_t most_rows(const heed_shape *s, uint32_t rank)
{
    const int64_t heads = s->desc->q_heads;
    return heed_rows_apart(s)                ? heed_slice_rows(s, rank)
           : s->part.want == HEED_WANT_ROOT  ? s->tokens * heads
           : s->part.want == HEED_WANT_HEADS ? s->tokens * heed_ceil_div(heads, s->size)
                                             : heed_ceil_div(s->tokens * heads, s->size);
}

/* Are merged results sent to all? */
static int tells_all(const heed_shape *s)
{
    return s->part.want == HEED_WANT_ALL && !heed_rows_apart(s);
}

static void place_messages(heed_split *p, const heed_shape *s, heed_room *room)
{
    const size_t row = (s->desc->v_dim + (size_t)1) * sizeof(float);
    const size_t out = s->desc->v_dim * (size_t)heed_dtype_bytes(s->desc->out_type);
    const int own_keys = heed_has_keys(s, s->rank);
    const size_t own = (size_t)most_rows(s, s->rank);
    p->send = heed_room_take(room, s->size, sizeof *p->send);
    p->receive = heed_room_take(room, s->size, sizeof *p->receive);
    p->result = heed_room_take(room, s->size, sizeof *p->result);
    p->notice = heed_room_take(room, s->size, sizeof *p->notice);
    for (uint32_t r = 0; r < s->size; r++) {
        const int has_keys = heed_has_keys(s, r);
        const size_t rows = (size_t)most_rows(s, r);
        const size_t result = rows * (sizeof(float) + out);
        const int is_result = heed_merges(s, r) && !heed_rows_apart(s) &&
                              (r == s->rank || s->part.want == HEED_WANT_ALL);
        char *to =
            heed_room_take(room, heed_merges(s, r), heed_wire_room(own_keys ? rows * row : 0));
        char *from = heed_room_take(room, heed_merges(s, s->rank) && r != s->rank,
                                    heed_wire_room(has_keys ? own * row : 0));
        char *merged = heed_room_take(room, is_result, heed_wire_room(result));
        char *notice = heed_room_take(room, 1, HEED_WIRE_LEAST);
        if (!room->base || room->bad)
            continue;
        p->send[r] = to;
        p->receive[r] = from;
        p->result[r] = merged;
        p->notice[r] = notice;
    }
}

/* How many parts with keys this rank has. */
static uint32_t own_parts(const heed_shape *s)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < s->part.n_parts; p++)
        n += heed_owner(s, p) == s->rank && heed_part_has_keys(s, p);
    return n;
}

heed_attn_desc heed_split_desc(const heed_shape *s)
{
    const int64_t rows = heed_rows_apart(s) ? heed_longest(s, s->part.row_first) : 0;
    return heed_local_desc(s, rows, 0, s->tokens);
}

size_t heed_split_place(heed_split *p, const heed_shape *s, int64_t q_len, void *workspace)
{
    const heed_attn_desc *d = s->desc;
    const uint32_t n_own = own_parts(s);
    heed_room room = {.base = workspace};
    if (!heed_bytes_fit(s))
        return 0;
    heed_piece_take(&p->piece, s, heed_rows_apart(s) ? heed_longest(s, s->part.row_first) : q_len,
                    &room);
    p->out = heed_room_take(&room, n_own * s->tokens * d->q_heads, d->v_dim * sizeof(float));
    p->lse = heed_room_take(&room, n_own * s->tokens * d->q_heads, sizeof(float));
    const uint32_t most = s->size > n_own ? s->size : n_own;
    p->parts = heed_room_take(&room, most, sizeof *p->parts);
    p->lses = heed_room_take(&room, most, sizeof *p->lses);
    p->wire.message = heed_room_take(&room, 4 * s->size, sizeof *p->wire.message);
    p->wire.owed = heed_room_take(&room, s->size, sizeof *p->wire.owed);
    place_messages(p, s, &room);
    heed_travel_place(&p->travel, s, &room);
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

/* Sets what is the same for all parts, where rows have travelled here from all ranks. */
static void set_up_apart(heed_split *p, const heed_shape *s)
{
    const int64_t heads = s->desc->q_heads, dim = s->desc->qk_dim;
    heed_piece *piece = &p->piece;
    int32_t token = 0;
    piece->q = (heed_const_view){p->travel.q, {0, dim, heads * dim, 1}};
    piece->q_len = heed_longest(s, s->part.row_first);
    for (int64_t b = 0; b < s->batch; b++) {
        piece->q_lens[b] = heed_first_of(s, s->part.row_first, b, s->part.n_parts);
        piece->q_starts[b] = token;
        piece->row_at[b] = 0;
        token += piece->q_lens[b];
    }
}

/* The same where every rank has all rows. */
static void set_up(heed_split *p, const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    const heed_attn_args *a = &call->args;
    heed_piece *piece = &p->piece;
    piece->q = a->q;
    piece->q_len = s->tokens ? a->q_len : 0; /* out without elements is where lse is */
    piece->q_starts = a->q_starts ? piece->q_starts : NULL;
    if (a->q_starts)
        piece->q.data = (const char *)a->q.data +
                        heed_offset_bytes(s->desc->q_type, p->first_token * a->q.stride[2]);
    for (int64_t b = 0; b < s->batch; b++) {
        piece->q_lens[b] = a->q_lens ? a->q_lens[b] : (int32_t)a->q_len;
        piece->row_at[b] = 0;
        if (a->q_starts) /* a sequence without rows may start anywhere, even before the first one */
            piece->q_starts[b] = piece->q_lens[b] ? a->q_starts[b] - (int32_t)p->first_token : 0;
    }
    if (a->q_lens || a->q_starts) /* rows that nobody computes travel too */
        empty_partials(p, s);
}

static void poll(void *split)
{
    heed_wire_poll(&((heed_split *)split)->wire);
}

static heed_status run_part(heed_split *p, const heed_group_call *call, uint32_t part, uint32_t n,
                            void *rest, size_t bytes)
{
    const heed_shape *s = &call->shape;
    const int64_t heads = s->desc->q_heads, dim = s->desc->v_dim;
    heed_piece *piece = &p->piece;
    const heed_hook hook = {poll, p};
    const int64_t q_len = piece->q_len;
    for (int64_t b = 0; b < s->batch; b++) {
        piece->kv_lens[b] = heed_part_len(s, s->part.key_first, b, part);
        piece->key_at[b] = heed_first_of(s, s->part.key_first, b, part);
        piece->held_at[b] = (int32_t)heed_held_before(s, s->part.key_first, b, s->rank, part);
    }
    float *out = p->out + n * s->tokens * heads * dim, *lse = p->lse + n * s->tokens * heads;
    piece->out = (heed_view){out, {q_len * heads * dim, dim, heads * dim, 1}};
    piece->lse = (heed_view){lse, {q_len * heads, 1, heads, 0}};
    heed_status st = heed_piece_place(call, piece, NULL, call->why);
    return st == HEED_OK ? heed_piece_run(call, piece, &hook, rest, bytes, call->why) : st;
}

static heed_status run_own(heed_split *p, const heed_group_call *call, void *rest, size_t bytes)
{
    const heed_shape *s = &call->shape;
    heed_status st = HEED_OK;
    heed_piece *piece = &p->piece;
    uint32_t n = 0;
    piece->k = call->args.k;
    piece->v = call->args.v;
    piece->kv_starts = call->args.kv_starts ? piece->kv_starts : NULL;
    if (heed_rows_apart(s))
        set_up_apart(p, s);
    else
        set_up(p, call);
    for (uint32_t part = 0; part < s->part.n_parts && st == HEED_OK; part++)
        if (heed_owner(s, part) == s->rank && heed_part_has_keys(s, part))
            st = run_part(p, call, part, n++, rest, bytes);
    return st;
}

/* ---- slices -----------------------------------------------------------------------------------
 */

/* Work on the rows of a rank's slice. */
typedef struct slice_work {
    const heed_split *p;
    const heed_group_call *call;
    uint32_t rank, n_parts;
} slice_work;

/* Where lse and out of a slice lie in a message: all lse, then all of out. */
static const char *lse_in(const char *message)
{
    return message + sizeof(heed_wire_header);
}

static const char *out_in(const char *message, int64_t rows, int has_lse)
{
    return lse_in(message) + (has_lse ? rows * (int64_t)sizeof(float) : 0);
}

/* Points the outputs of a merge at a block of a slice. */
static void merge_into(heed_merging *m, char *message, int64_t rows, const heed_slice *w,
                       int has_lse)
{
    const int64_t dim = m->dim;
    m->out = (heed_view){(char *)out_in(message, rows, has_lse) +
                             heed_offset_bytes(m->out_type, w->at * dim),
                         {m->heads * dim, dim, 1, 0}};
    m->lse =
        (heed_view){has_lse ? (float *)(void *)lse_in(message) + w->at : NULL, {m->heads, 1, 0, 0}};
}

/* Points them at the caller's outputs, where rows are apart. */
static void merge_out(heed_merging *m, const heed_group_call *call, const heed_slice *w)
{
    const heed_attn_args *a = &call->args;
    const int64_t *o = a->out.stride, *l = a->lse.stride;
    const int64_t out_at = heed_row_at(o, a->q_starts, w->b, w->row);
    const int64_t lse_at = heed_row_at(l, a->q_starts, w->b, w->row);
    m->out = (heed_view){(char *)a->out.data + heed_offset_bytes(m->out_type, out_at),
                         {o[2], o[1], o[3], 0}};
    m->lse = (heed_view){a->lse.data ? (float *)a->lse.data + lse_at : NULL, {l[2], l[1], 0, 0}};
}

static void gather_rows(void *arg, int64_t first, int64_t end)
{
    const slice_work *work = arg;
    const heed_split *p = work->p;
    const heed_shape *s = &work->call->shape;
    const int64_t rows = heed_slice_rows(s, work->rank);
    heed_slice w = heed_slice_begin(s, work->rank);
    while (heed_slice_step(s, &w) && w.at < end) {
        const heed_block *b = &w.block;
        heed_merging m = {.rows = b->tokens,
                          .heads = b->heads,
                          .dim = s->desc->v_dim,
                          .n_parts = work->n_parts,
                          .out_type = HEED_F32,
                          .parts = p->parts,
                          .lses = p->lses,
                          .skip = b->token * s->desc->q_heads + b->head};
        merge_into(&m, p->send[work->rank], rows, &w, 1);
        heed_merge_heads(&m, heed_max64(0, first - w.at),
                         heed_min64(end - w.at, b->tokens * b->heads));
    }
}

/* Merges this rank's partial results for the slice of rank `to`. */
static void gather(const heed_split *p, const heed_group_call *call, uint32_t to)
{
    const heed_shape *s = &call->shape;
    const int64_t heads = s->desc->q_heads, dim = s->desc->v_dim;
    slice_work work = {p, call, to, own_parts(s)};
    if (work.n_parts == 0)
        return;
    for (uint32_t k = 0; k < work.n_parts; k++) {
        const int64_t row = k * s->tokens * heads;
        p->parts[k] = (heed_const_view){p->out + row * dim, {heads * dim, dim, 1, 0}};
        p->lses[k] = (heed_const_view){p->lse + row, {heads, 1, 0, 0}};
    }
    heed_crew_do(&call->crew, heed_slice_rows(s, to),
                 heed_merge_nanoseconds(work.n_parts, dim, HEED_F32), gather_rows, &work);
}

static void merge_rows(void *arg, int64_t first, int64_t end)
{
    const slice_work *work = arg;
    const heed_split *p = work->p;
    const heed_group_call *call = work->call;
    const heed_shape *s = &call->shape;
    const int has_lse = (s->desc->features & HEED_HAS_LSE) != 0;
    const int64_t rows = heed_slice_rows(s, s->rank);
    heed_slice w = heed_slice_begin(s, s->rank);
    while (heed_slice_step(s, &w) && w.at < end) {
        const heed_block *b = &w.block;
        heed_merging m = {.rows = b->tokens,
                          .heads = b->heads,
                          .dim = s->desc->v_dim,
                          .n_parts = work->n_parts,
                          .out_type = s->desc->out_type,
                          .parts = p->parts,
                          .lses = p->lses,
                          .skip = w.at,
                          .sink = call->args.sink ? call->args.sink + b->head : NULL};
        if (heed_rows_apart(s))
            merge_out(&m, call, &w);
        else
            merge_into(&m, p->result[s->rank], rows, &w, has_lse);
        heed_merge_heads(&m, heed_max64(0, first - w.at),
                         heed_min64(end - w.at, b->tokens * b->heads));
    }
}

/* Merges all ranks' partial results of this rank's slice, in rank order. */
static void merge(const heed_split *p, const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    const int64_t rows = heed_slice_rows(s, s->rank), dim = s->desc->v_dim;
    slice_work work = {p, call, s->rank, 0};
    heed_slice w = heed_slice_begin(s, s->rank);
    /* With HEED_WANT_HEADS the slice is one block, which has some of each token's heads. */
    const int64_t heads = s->part.want == HEED_WANT_HEADS && heed_slice_step(s, &w)
                              ? w.block.heads
                              : s->desc->q_heads;
    for (uint32_t r = 0; r < s->size; r++) {
        const char *from = r == s->rank ? p->send[r] : p->receive[r];
        if (!heed_has_keys(s, r))
            continue;
        p->parts[work.n_parts] = (heed_const_view){out_in(from, rows, 1), {heads * dim, dim, 1, 0}};
        p->lses[work.n_parts++] = (heed_const_view){lse_in(from), {heads, 1, 0, 0}};
    }
    heed_crew_do(&call->crew, rows, heed_merge_nanoseconds(work.n_parts, dim, s->desc->out_type),
                 merge_rows, &work);
}

/* ---- results ----------------------------------------------------------------------------------
 */

/* Copies row `at` of a slice to row [b, h, i] of the caller's outputs. */
static void put_row(const heed_group_call *call, const char *result, int64_t rows, int64_t at,
                    const int64_t to[3])
{
    const heed_attn_desc *d = call->shape.desc;
    const heed_attn_args *a = &call->args;
    const int has_lse = (d->features & HEED_HAS_LSE) != 0;
    const int64_t *o = a->out.stride, *l = a->lse.stride;
    if (has_lse)
        heed_store(HEED_F32, a->lse.data, heed_row_at(l, a->q_starts, to[0], to[2]) + to[1] * l[1],
                   heed_load(HEED_F32, lse_in(result), at));
    const int64_t bytes = heed_dtype_bytes(d->out_type);
    char *out =
        (char *)a->out.data + (heed_row_at(o, a->q_starts, to[0], to[2]) + to[1] * o[1]) * bytes;
    const char *from = out_in(result, rows, has_lse) + at * d->v_dim * bytes;
    if (o[3] == 1)
        memcpy(out, from, (size_t)(d->v_dim * bytes));
    else
        for (int64_t n = 0; n < d->v_dim; n++)
            memcpy(out + n * o[3] * bytes, from + n * bytes, (size_t)bytes);
}

static void scatter_rows(void *arg, int64_t first_row, int64_t end_row)
{
    const slice_work *work = arg;
    const heed_split *p = work->p;
    const heed_shape *s = &work->call->shape;
    const heed_attn_args *a = &work->call->args;
    const int64_t rows = heed_slice_rows(s, work->rank);
    heed_slice w = heed_slice_begin(s, work->rank);
    while (heed_slice_step(s, &w) && w.at < end_row) {
        const heed_block *k = &w.block;
        const int64_t before = (heed_max64(first_row, w.at) - w.at) / k->heads;
        const int64_t behind = heed_ceil_div(end_row - w.at, k->heads);
        for (int64_t b = 0; b < s->batch; b++) {
            const int64_t first = a->q_starts ? p->piece.q_starts[b] : b * a->q_len;
            const int64_t low = heed_max64(0, k->token + before - first);
            const int64_t high = heed_min64(p->piece.q_lens[b], k->token + k->tokens - first);
            for (int64_t i = low; i < heed_min64(high, k->token + behind - first); i++)
                for (int64_t h = 0; h < k->heads; h++) {
                    const int64_t at = w.at + (first + i - k->token) * k->heads + h;
                    if (at >= first_row && at < end_row)
                        put_row(work->call, p->result[work->rank], rows, at,
                                (int64_t[]){b, k->head + h, i});
                }
        }
    }
}

/* Copies a rank's merged slice to the caller's outputs. Only rows that belong to a
 * sequence are written. */
static void scatter(const heed_split *p, const heed_group_call *call, uint32_t rank)
{
    const heed_attn_desc *d = call->shape.desc;
    slice_work work = {p, call, rank, 0};
    heed_crew_do(&call->crew, heed_slice_rows(&call->shape, rank),
                 heed_copy_nanoseconds(d->v_dim * (int64_t)heed_dtype_bytes(d->out_type)),
                 scatter_rows, &work);
}

/* ---- the call ---------------------------------------------------------------------------------
 */

/* Counts the messages that each rank waits for from this one: a failure has to be told
 * instead of them. */
static void count_owed(heed_split *p, const heed_shape *s)
{
    const int own = tells_all(s) && heed_slice_rows(s, s->rank) > 0;
    for (uint32_t r = 0; r < s->size; r++)
        p->wire.owed[r] =
            r == s->rank ? 0 : (heed_slice_rows(s, r) > 0) + own + heed_travels(s, s->rank, r);
    p->wire.listener = heed_split_listener(s);
}

uint32_t heed_split_listener(const heed_shape *s)
{
    return heed_merges(s, s->rank) ? HEED_WIRE_EVERYONE : HEED_WIRE_NOBODY;
}

static heed_status exchange_partials(heed_split *p, const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    heed_wire *w = &p->wire;
    for (uint32_t n = 0; n < s->size; n++) {
        const uint32_t to = (s->rank + n) % s->size; /* not all to the same one at once */
        if (heed_slice_rows(s, to) == 0)
            continue;
        gather(p, call, to);
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
    if (heed_rows_apart(s))
        heed_travel_run(&p->travel, call, w);
    for (uint32_t r = 0; r < s->size && slice; r++)
        if (r != s->rank)
            heed_wire_receive(w, r, HEED_WIRE_PARTIAL, 0, p->receive[r],
                              heed_partial_bytes(s, r, s->rank));
    heed_status st = w->status;
    if (st == HEED_OK)
        st = run_own(p, call, rest, bytes);
    if (st == HEED_OK)
        st = exchange_partials(p, call);
    if (st == HEED_OK && slice) {
        merge(p, call);
        if (!heed_rows_apart(s))
            scatter(p, call, s->rank);
    }
    if (st == HEED_OK && tells_all(s))
        st = exchange_results(p, call);
    if (st == HEED_OK)
        st = heed_wire_finish(w, p->notice);
    return heed_wire_end(w, st);
}
