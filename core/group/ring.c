/* See ring.h. In step s rank r has the keys of rank r - s at hand, sends them on and receives those
 * of rank r - s - 1. Each stretch of its rows meets each stretch of keys that it may see in one
 * local run, whose result is merged into what the rows have so far: in the order in which keys
 * arrive, which depends on the rank alone. */
#include "ring.h"

#include <heed/kit.h>

#include "attention/merge.h"
#include "base/rows.h"
#include "pack.h"

/* The longest stretch of one sequence; and, in most_held, the most that a rank has
 * of all sequences. */
static int64_t longest_stretch(const heed_shape *s, const int32_t *first)
{
    int64_t most = 0;
    for (int64_t b = 0; b < s->batch; b++)
        for (uint32_t p = 0, end; p < s->part.n_parts; p = end) {
            end = heed_stretch_end(s, p);
            most = heed_max64(most, heed_parts_len(s, first, b, p, end));
        }
    return most;
}

static int64_t most_held(const heed_shape *s, const int32_t *first)
{
    int64_t most = 0;
    for (uint32_t r = 0; r < s->size; r++)
        most = heed_max64(most, heed_held(s, first, r));
    return most;
}

/* Are the rows of a rank packed already, as the local runs have them? Else they are copied. */
static int has_packed_rows(const heed_shape *s)
{
    return s->batch == 1 && !(s->desc->features & HEED_HAS_PACKED);
}

heed_attn_desc heed_ring_desc(const heed_shape *s)
{
    return heed_local_desc(s, longest_stretch(s, s->part.row_first),
                           longest_stretch(s, s->part.key_first), most_held(s, s->part.row_first));
}

size_t heed_ring_place(heed_ring *p, const heed_shape *s, void *workspace)
{
    const heed_attn_desc *d = s->desc;
    const int64_t rows = heed_held(s, s->part.row_first, s->rank);
    const int64_t heads = d->q_heads;
    heed_room room = {.base = workspace};
    heed_piece_take(&p->piece, s, longest_stretch(s, s->part.row_first), &room);
    p->first_row = heed_room_take(&room, s->batch, sizeof *p->first_row);
    const size_t bytes = heed_keys_bytes(d, most_held(s, s->part.key_first));
    for (int i = 0; i < 2; i++)
        p->keys[i] = heed_room_take(&room, 1, heed_wire_room(bytes));
    p->notice = heed_room_take(&room, 1, HEED_WIRE_LEAST);
    p->q = heed_room_take(&room, has_packed_rows(s) ? 0 : rows * heads,
                          (size_t)heed_offset_bytes(d->q_type, (int64_t)d->qk_dim));
    p->out = heed_room_take(&room, rows * heads, d->v_dim * sizeof(float));
    p->part_out = heed_room_take(&room, rows * heads, d->v_dim * sizeof(float));
    p->lse = heed_room_take(&room, rows * heads, sizeof(float));
    p->part_lse = heed_room_take(&room, rows * heads, sizeof(float));
    p->begun = heed_room_take(&room, s->part.n_parts, 1);
    p->wire.message = heed_room_take(&room, 4, sizeof *p->wire.message);
    p->wire.owed = heed_room_take(&room, s->size, sizeof *p->wire.owed);
    return room.bad ? 0 : room.used;
}

/* ---- a stretch of rows and one of keys --------------------------------------------------------
 * A stretch is named by its first part. */

/* Tokens of a rank before part `part` of sequence b. */
static int64_t token_of(const heed_shape *s, const int32_t *first, uint32_t rank, int64_t b,
                        uint32_t part)
{
    int64_t n = 0;
    for (int64_t c = 0; c < b; c++)
        n += heed_held_before(s, first, c, rank, s->part.n_parts);
    return n + heed_held_before(s, first, b, rank, part);
}

/* May some row of the piece see some of its keys, by causality and window? */
static int is_visible(const heed_group_call *call, const heed_piece *p, int64_t b)
{
    const heed_attn *plan = call->plan;
    if (p->q_lens[b] == 0 || p->kv_lens[b] == 0)
        return 0;
    if (!(plan->desc.features & (HEED_HAS_CAUSAL | HEED_HAS_WINDOW)))
        return 1;
    const int64_t low = p->q_offsets[b] - plan->window_left;
    const int64_t high = p->q_offsets[b] + (int64_t)p->q_lens[b] - 1 + plan->window_right;
    return low < p->kv_lens[b] && high >= 0;
}

/* Describes the rows of one stretch and the keys of another, which is among those of rank `from`. */
static heed_status describe(heed_ring *r, const heed_group_call *call, uint32_t rows, uint32_t keys,
                            uint32_t from)
{
    const heed_shape *s = &call->shape;
    const int32_t *row_first = s->part.row_first, *key_first = s->part.key_first;
    const uint32_t rows_end = heed_stretch_end(s, rows), keys_end = heed_stretch_end(s, keys);
    heed_piece *p = &r->piece;
    p->q_len = 0;
    for (int64_t b = 0; b < s->batch; b++) {
        r->first_row[b] = heed_first_of(s, row_first, b, rows);
        p->q_lens[b] = heed_parts_len(s, row_first, b, rows, rows_end);
        p->kv_lens[b] = heed_parts_len(s, key_first, b, keys, keys_end);
        p->key_at[b] = heed_first_of(s, key_first, b, keys);
        p->row_at[b] = (int32_t)heed_held_before(s, row_first, b, s->rank, rows);
        p->q_starts[b] = (int32_t)token_of(s, row_first, s->rank, b, rows);
        p->kv_starts[b] = (int32_t)token_of(s, key_first, from, b, keys);
        p->held_at[b] = 0;
        p->q_len = heed_max64(p->q_len, p->q_lens[b]);
    }
    return heed_piece_place(call, p, r->first_row, call->why);
}

/* Leaves out the rows of sequences whose keys are hidden from all of them. Returns
 * whether any are left. */
static int hide(const heed_group_call *call, heed_piece *p)
{
    int any = 0;
    for (int64_t b = 0; b < call->shape.batch; b++) {
        const int visible = is_visible(call, p, b);
        p->q_lens[b] = visible ? p->q_lens[b] : 0;
        any |= visible;
    }
    return any;
}

/* Work on rows of all heads. */
typedef struct ring_work {
    const heed_ring *r;
    const heed_group_call *call;
} ring_work;

/* Merges tokens [first, end) of the piece, sequence by sequence. */
static void merge_tokens(void *arg, int64_t first, int64_t end)
{
    const ring_work *work = arg;
    const heed_ring *r = work->r;
    const heed_attn_desc *d = work->call->shape.desc;
    const int64_t heads = d->q_heads, dim = d->v_dim;
    for (int64_t b = 0, at = 0; b < work->call->shape.batch && at < end;
         at += r->piece.q_lens[b++]) {
        const int64_t row = r->piece.q_starts[b] * heads;
        const heed_const_view parts[] = {{r->out + row * dim, {heads * dim, dim, 1, 0}},
                                         {r->part_out + row * dim, {heads * dim, dim, 1, 0}}};
        const heed_const_view lses[] = {{r->lse + row, {heads, 1, 0, 0}},
                                        {r->part_lse + row, {heads, 1, 0, 0}}};
        const heed_merging m = {.rows = r->piece.q_lens[b],
                                .heads = heads,
                                .dim = dim,
                                .n_parts = 2,
                                .out_type = HEED_F32,
                                .parts = parts,
                                .lses = lses,
                                .out = {r->out + row * dim, {heads * dim, dim, 1, 0}},
                                .lse = {r->lse + row, {heads, 1, 0, 0}}};
        heed_merge_rows(&m, heed_max64(0, first - at), heed_min64(end - at, m.rows));
    }
}

static void merge(const heed_ring *r, const heed_group_call *call)
{
    const heed_attn_desc *d = call->shape.desc;
    ring_work work = {r, call};
    int64_t tokens = 0;
    for (int64_t b = 0; b < call->shape.batch; b++)
        tokens += r->piece.q_lens[b];
    heed_crew_do(&call->crew, tokens, d->q_heads * heed_merge_nanoseconds(2, d->v_dim, HEED_F32),
                 merge_tokens, &work);
}

static void poll(void *ring)
{
    heed_wire_poll(&((heed_ring *)ring)->wire);
}

/* Does one local run. Rows that meet their first keys go straight into what is kept, others are
 * merged into it. */
static heed_status meet(heed_ring *r, const heed_group_call *call, uint32_t rows, uint32_t keys,
                        uint32_t from, void *rest, size_t bytes)
{
    const heed_attn_desc *d = call->shape.desc;
    const int64_t heads = d->q_heads, dim = d->v_dim;
    const heed_hook hook = {poll, r};
    heed_piece *p = &r->piece;
    heed_status st = describe(r, call, rows, keys, from);
    if (st != HEED_OK || !hide(call, p))
        return st;
    const int first = !r->begun[rows];
    r->begun[rows] = 1;
    p->out = (heed_view){first ? r->out : r->part_out, {0, dim, heads * dim, 1}};
    p->lse = (heed_view){first ? r->lse : r->part_lse, {0, 1, heads, 0}};
    st = heed_piece_run(call, p, &hook, rest, bytes, call->why);
    if (st == HEED_OK && !first)
        merge(r, call);
    return st;
}

/* All own rows meet the keys at hand, which are those of rank `from`. */
static heed_status compute(heed_ring *r, const heed_group_call *call, const char *message,
                           uint32_t from, void *rest, size_t bytes)
{
    const heed_shape *s = &call->shape;
    const heed_attn_desc *d = s->desc;
    const char *keys = message + sizeof(heed_wire_header);
    const int64_t tokens = heed_held(s, s->part.key_first, from);
    const int64_t heads = d->kv_heads;
    heed_piece *p = &r->piece;
    heed_status st = HEED_OK;
    p->k = (heed_const_view){keys, {0, d->qk_dim, heads * d->qk_dim, 1}};
    p->v = (heed_const_view){keys + heed_values_at(d, tokens), {0, d->v_dim, heads * d->v_dim, 1}};
    for (uint32_t rows = 0; rows < s->part.n_parts; rows = heed_stretch_end(s, rows)) {
        if (heed_owner(s, rows) != s->rank)
            continue;
        for (uint32_t n = 0; n < s->part.n_parts && st == HEED_OK; n = heed_stretch_end(s, n))
            if (heed_owner(s, n) == from)
                st = meet(r, call, rows, n, from, rest, bytes);
        if (st == HEED_OK)
            st = heed_wire_poll(&r->wire);
    }
    return st;
}

/* ---- the call ---------------------------------------------------------------------------------
 */

static void begin(heed_ring *r, const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    const heed_attn_desc *d = s->desc;
    heed_piece *p = &r->piece;
    heed_pack_keys(call, r->keys[0] + sizeof(heed_wire_header));
    const int64_t tokens = heed_held(s, s->part.row_first, s->rank);
    p->q = call->args.q;
    if (!has_packed_rows(s)) {
        heed_pack_rows(call, r->q);
        p->q = (heed_const_view){r->q, {0, d->qk_dim, (int64_t)d->q_heads * d->qk_dim, 1}};
    }
    p->k_is_packed = 1;
    memset(r->begun, 0, s->part.n_parts);
    for (int64_t i = 0; i < tokens * d->q_heads; i++) /* no key met yet, so nothing reads out */
        r->lse[i] = -INFINITY;
}

static void finish_tokens(void *arg, int64_t first, int64_t end)
{
    const ring_work *work = arg;
    const heed_ring *r = work->r;
    const heed_shape *s = &work->call->shape;
    const heed_attn_desc *d = s->desc;
    const heed_attn_args *a = &work->call->args;
    const int64_t heads = d->q_heads, dim = d->v_dim;
    const int64_t *o = a->out.stride, *l = a->lse.stride;
    for (int64_t b = 0, token = 0, n; b < s->batch && token < end; b++, token += n) {
        const heed_const_view part = {r->out + token * heads * dim, {heads * dim, dim, 1, 0}};
        const heed_const_view lse = {r->lse + token * heads, {heads, 1, 0, 0}};
        const int64_t out_at = heed_row_at(o, a->q_starts, b, 0);
        const int64_t lse_at = heed_row_at(l, a->q_starts, b, 0);
        n = heed_held_before(s, s->part.row_first, b, s->rank, s->part.n_parts);
        heed_merging m = {.rows = n,
                          .heads = heads,
                          .dim = dim,
                          .n_parts = 1,
                          .out_type = d->out_type,
                          .parts = &part,
                          .lses = &lse,
                          .sink = a->sink,
                          .out = {NULL, {o[2], o[1], o[3], 0}},
                          .lse = {NULL, {l[2], l[1], 0, 0}}};
        m.out.data = (char *)a->out.data + heed_offset_bytes(d->out_type, out_at);
        if (a->lse.data)
            m.lse.data = (char *)a->lse.data + heed_offset_bytes(HEED_F32, lse_at);
        heed_merge_rows(&m, heed_max64(0, first - token), heed_min64(end - token, n));
    }
}

/* Finishes rows that have met all keys: adds the sink, rounds once, and writes the
 * caller's outputs. */
static void finish(const heed_ring *r, const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    const heed_attn_desc *d = s->desc;
    ring_work work = {r, call};
    heed_crew_do(&call->crew, heed_held(s, s->part.row_first, s->rank),
                 d->q_heads * heed_merge_nanoseconds(1, d->v_dim, d->out_type), finish_tokens,
                 &work);
}

static heed_status run(heed_ring *r, const heed_group_call *call, void *rest, size_t bytes)
{
    const heed_shape *s = &call->shape;
    const uint32_t next = (s->rank + 1) % s->size, before = (s->rank + s->size - 1) % s->size;
    heed_wire *w = &r->wire;
    heed_status st = HEED_OK;
    for (uint32_t step = 0; step < s->size && st == HEED_OK; step++) {
        const uint32_t from = (s->rank + s->size - step) % s->size;
        const uint32_t coming = (from + s->size - 1) % s->size;
        char *now = r->keys[step % 2], *then = r->keys[(step + 1) % 2];
        if (step + 1 < s->size) {
            const int64_t here = heed_held(s, s->part.key_first, from);
            const int64_t there = heed_held(s, s->part.key_first, coming);
            heed_wire_receive(w, before, HEED_WIRE_KEYS, step, then,
                              heed_keys_bytes(s->desc, there));
            heed_wire_address(w, HEED_WIRE_KEYS, step, now, heed_keys_bytes(s->desc, here));
            st = heed_wire_send(w, next, HEED_WIRE_KEYS, step, now, heed_keys_bytes(s->desc, here));
        }
        if (st == HEED_OK)
            st = compute(r, call, now, from, rest, bytes);
        if (st == HEED_OK)
            st = heed_wire_wait(w, 1);
    }
    return st;
}

heed_status heed_ring_run(heed_ring *r, const heed_group_call *call, void *rest, size_t bytes)
{
    const uint32_t rank = call->shape.rank, size = call->shape.size;
    const uint32_t next = (rank + 1) % size, before = (rank + size - 1) % size;
    memset(r->wire.owed, 0, size * sizeof *r->wire.owed);
    r->wire.owed[next] = size - 1;
    r->wire.listener = next == before ? HEED_WIRE_NOBODY : before;
    heed_status st = heed_pack_check(call, call->why);
    if (st == HEED_OK && next != before)
        st = heed_wire_listen(&r->wire, next, r->notice);
    if (st == HEED_OK) {
        begin(r, call);
        st = run(r, call, rest, bytes);
    }
    if (st == HEED_OK)
        finish(r, call);
    return heed_wire_end(&r->wire, st);
}
