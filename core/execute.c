/* A part's loop: take a tile, resolve it, hand it to the backend, and finish the rows whose last
 * tile it was. */
#include "execute.h"

#include "checked.h"
#include "fpenv.h"
#include "lease.h"
#include "mask_summary.h"
#include "parallel.h"
#include "reason.h"
#include "schedule.h"
#include "softmax_state.h"

/* What a part keeps while it runs. Between tiles only what changed is rewritten. */
typedef struct worker {
    heed_run *run;
    const heed_plan *plan;
    const heed_sequence *sequence; /* of the tile */
    const heed_class_plan *class_plan;
    uint32_t part;
    char *area;          /* private: scratch, state, mask summary */
    int64_t unit;        /* sequence * kv_heads + kv head that the tile is bound to; -1: none */
    int64_t last_unit;   /* of the last tile that used the scratch; -1: none */
    int64_t run_of_call; /* sequence * layout.mask_runs + run that the tile's rows are */
    heed_tile tile;
} worker;

/* ---- resolving a tile -------------------------------------------------------------------------
 */

static void set_strides(heed_rows *rows, const heed_view *view)
{
    rows->head_stride = view->stride[1];
    rows->row_stride = view->stride[2];
    rows->dim_stride = view->stride[3];
}

static void start_worker(worker *w, heed_run *run, uint32_t part)
{
    const heed_attn_args *a = &run->args;
    *w = (worker){.run = run, .plan = run->plan, .part = part, .unit = -1, .last_unit = -1};
    w->area = run->parts + part * run->plan->layout.part;
    heed_tile *t = &w->tile;
    t->struct_size = sizeof *t;
    t->n_heads = run->plan->group;
    t->window_left = run->plan->window_left;
    t->window_right = run->plan->window_right;
    t->acc_stride = run->plan->layout.acc_stride;
    set_strides(&t->q, &a->q);
    set_strides(&t->k, &a->k);
    set_strides(&t->v, &a->v);
    set_strides(&t->out, &a->out);
    set_strides(&t->mask, &a->mask);
    set_strides(&t->bias, &a->bias);
    set_strides(&t->lse, &a->lse);
    set_strides(&t->weights, &a->weights);
    set_strides(&t->scores, &a->scores);
    t->k_page_stride = a->k.stride[0];
    t->v_page_stride = a->v.stride[0];
}

/* Element (b, head, row, 0) of a view. */
static void *element(const heed_view *view, int64_t b, int64_t head, int64_t row, uint32_t type)
{
    int64_t bytes = type == HEED_DTYPE_NONE ? 1 : heed_dtype_bytes(type);
    if (!view->data)
        return NULL;
    return (char *)view->data +
           (b * view->stride[0] + head * view->stride[1] + row * view->stride[2]) * bytes;
}

/* Points the tile at sequence b and kv head g. */
static void bind(worker *w, int64_t b, int64_t g)
{
    const heed_attn_args *a = &w->run->args;
    const heed_attn_desc *d = &w->plan->desc;
    const int64_t head = g * w->plan->group;
    heed_tile *t = &w->tile;
    w->unit = b * d->kv_heads + g;
    w->sequence = &w->run->sequence[b];
    w->class_plan = &w->plan->class_plan[w->sequence->query_class];
    t->kv_head = (uint32_t)g;
    t->first_head = (uint32_t)head;
    t->q_len = w->sequence->q_len;
    t->kv_len = w->sequence->kv_len;
    t->q_offset = w->sequence->q_offset;
    /* Packed rows are those of one long sequence; pages take the place of the batch axis. */
    const heed_sequence *s = w->sequence;
    const int64_t q_b = a->q_starts ? 0 : b, kv_b = a->kv_starts || a->block_table ? 0 : b;
    t->q.data = element(&a->q, q_b, head, s->q_start, d->q_type);
    t->k.data = element(&a->k, kv_b, g, s->kv_start, d->k_type);
    t->v.data = element(&a->v, kv_b, g, s->kv_start, d->v_type);
    t->out.data = element(&a->out, q_b, head, s->q_start, d->out_type);
    t->lse.data = element(&a->lse, q_b, head, s->q_start, HEED_F32);
    t->mask.data = element(&a->mask, b, head, 0, HEED_DTYPE_NONE);
    t->bias.data = element(&a->bias, b, head, 0, d->bias_type);
    t->weights.data = element(&a->weights, b, head, 0, HEED_F32);
    t->scores.data = element(&a->scores, b, head, 0, HEED_F32);
    if (a->block_table)
        t->pages = a->block_table + b * a->block_table_stride;
    t->alibi_slope = a->alibi_slope ? a->alibi_slope + head : NULL;
    t->bias_slope = a->bias_slope ? a->bias_slope + head : NULL;
    t->sink = a->sink ? a->sink + head : NULL;
}

static void point_state(worker *w, void *base)
{
    heed_tile *t = &w->tile;
    heed_state state = heed_state_at(base, t->n_heads * t->q_count, t->acc_stride);
    t->row_max = state.row_max;
    t->row_sum = state.row_sum;
    t->acc = state.acc;
}

/* ---- prepared keys and values -----------------------------------------------------------------
 */

static heed_status prepare_block(worker *w, heed_span visible, int64_t block, char *to)
{
    const heed_class_plan *c = w->class_plan;
    const int64_t length = c->tiling.key_block;
    heed_tile kv = {
        .struct_size = sizeof kv,
        .kv_head = w->tile.kv_head,
        .n_heads = w->tile.n_heads,
        .k_first = heed_max64(visible.first, block * length),
        .k_end = heed_min64(visible.end, (block + 1) * length),
        .kv_len = w->tile.kv_len,
        .k = w->tile.k,
        .v = w->tile.v,
        .pages = w->tile.pages,
        .k_page_stride = w->tile.k_page_stride,
        .v_page_stride = w->tile.v_page_stride,
    };
    return c->backend->prepare(c->state, &c->problem, &kv, to);
}

/* Prepares those of the tile's key blocks that nobody has begun. Sets tile->prepared if all of them
 * are ready then; a tile that would have to wait for another part prepares in its scratch. */
static heed_status prepare(worker *w)
{
    const heed_class_plan *c = w->class_plan;
    const heed_sequence *s = w->sequence;
    const heed_layout *l = &w->plan->layout;
    heed_tile *t = &w->tile;
    t->prepared = NULL;
    if (!c->tiling.prepare_bytes || !w->run->n_unit_slots || s->n_runs * s->n_chunks == 1)
        return HEED_OK;
    uint32_t n = heed_lease_slot(&w->run->unit[w->unit], w->run->prepared, l->unit,
                                 w->run->n_unit_slots, w->part, 0);
    if (n == HEED_NO_SLOT)
        return HEED_OK;
    char *unit = w->run->prepared + n * l->unit, *data = unit + l->unit_data;
    atomic_uchar *ready = (atomic_uchar *)(unit + sizeof(heed_slot));
    const heed_span visible = heed_visible_keys(w->plan, s, (heed_span){0, s->q_len});
    const int64_t first = t->k_first / c->tiling.key_block;
    const int64_t end = heed_ceil_div(t->k_end, c->tiling.key_block);
    int all = 1;
    for (int64_t block = first; block < end; block++) {
        unsigned char raw = HEED_RAW;
        if (!atomic_compare_exchange_strong(&ready[block], &raw, HEED_BUSY))
            continue;
        heed_status st =
            prepare_block(w, visible, block, data + (size_t)block * c->tiling.prepare_bytes);
        if (st != HEED_OK)
            return st;
        atomic_store_explicit(&ready[block], HEED_READY, memory_order_release);
    }
    for (int64_t block = first; block < end && all; block++)
        all = atomic_load_explicit(&ready[block], memory_order_acquire) == HEED_READY;
    if (all)
        t->prepared = data + (size_t)first * c->tiling.prepare_bytes;
    return HEED_OK;
}

/* The last tile of a unit gives its slot back, clean. */
static void release_unit(worker *w)
{
    const heed_layout *l = &w->plan->layout;
    if (!w->class_plan->tiling.prepare_bytes || !w->run->n_unit_slots)
        return;
    heed_lease *lease = &w->run->unit[w->unit];
    if (!heed_lease_done(lease, w->sequence->n_runs * w->sequence->n_chunks))
        return;
    unsigned held = atomic_load(&lease->slot_plus_1);
    if (!held)
        return;
    char *unit = w->run->prepared + (held - 1) * l->unit;
    memset(unit + sizeof(heed_slot), HEED_RAW, (size_t)l->max_blocks);
    atomic_store_explicit(&((heed_slot *)unit)->taken, 0, memory_order_release);
}

/* ---- running a tile ---------------------------------------------------------------------------
 */

/* Sets the tile's mask_blocks. Kv heads whose rows have one mask share its summary: the first to
 * come makes it. Only where keys are not cut: of few rows a mask is little beside their keys. */
static void summarise_mask(worker *w)
{
    const heed_class_plan *c = w->class_plan;
    const heed_layout *l = &w->plan->layout;
    const uint32_t key_block = c->tiling.key_block;
    heed_tile *t = &w->tile;
    uint8_t *own = (uint8_t *)w->area + l->part_mask;
    const int shared = w->run_of_call < l->mask_entries && w->sequence->n_chunks == 1 &&
                       (!t->mask.data || t->mask.head_stride == 0) &&
                       (!t->bias.data || t->bias.head_stride == 0);
    if (!shared) {
        heed_mask_summary(&c->problem, key_block, t, own);
        return;
    }
    atomic_uchar *state = &w->run->mask_state[w->run_of_call];
    uint8_t *table = w->run->mask_table + (size_t)w->run_of_call * l->mask_row;
    unsigned char found = HEED_RAW;
    if (atomic_compare_exchange_strong(state, &found, HEED_BUSY)) {
        heed_mask_summary(&c->problem, key_block, t, table);
        atomic_store_explicit(state, HEED_READY, memory_order_release);
    } else if (found == HEED_READY) {
        t->mask_blocks = table;
        t->mask_block_stride = 0;
    } else {
        heed_mask_summary(&c->problem, key_block, t, own);
    }
}

/* Hands keys [keys.first, keys.end), which are not empty, to the backend. */
static heed_status call_backend(worker *w, heed_span keys, uint32_t flags)
{
    const heed_class_plan *c = w->class_plan;
    heed_tile *t = &w->tile;
    t->k_first = keys.first;
    t->k_end = keys.end;
    t->flags = flags | (w->last_unit == w->unit ? HEED_TILE_SAME_KV : 0);
    if (t->mask.data || t->bias.data)
        summarise_mask(w);
    heed_status st = prepare(w);
    if (st == HEED_OK) {
        if (c->tiling.flush)
            heed_fpenv_flush(c->tiling.flush);
        st = c->backend->run_tile(c->state, &c->problem, t, w->area);
        if (c->tiling.flush)
            heed_fpenv_flush(0);
    }
    w->last_unit = w->unit;
    return st;
}

/* Weights and scores of keys that no row of the run sees. */
static void fill_rest(const worker *w, const heed_rows *rows, heed_span keys, float value)
{
    const heed_tile *t = &w->tile;
    if (!rows->data)
        return;
    for (int64_t h = 0; h < t->n_heads; h++)
        for (int64_t i = t->q_first; i < t->q_first + t->q_count; i++)
            for (int64_t j = 0; j < w->run->args.kv_len; j++) {
                if (j == keys.first && keys.first < keys.end)
                    j = keys.end;
                if (j < w->run->args.kv_len)
                    heed_store(HEED_F32, rows->data,
                               h * rows->head_stride + i * rows->row_stride + j * rows->dim_stride,
                               value);
            }
}

/* The rows' state is complete: out and lse unless the backend wrote them, then the optional outputs
 * in a second pass over the same keys. */
static heed_status finish(worker *w, heed_span keys)
{
    const heed_class_plan *c = w->class_plan;
    heed_tile *t = &w->tile;
    heed_status st = HEED_OK;
    if (!(t->flags & HEED_TILE_FINISHED))
        for (int64_t r = 0; r < t->n_heads * t->q_count; r++)
            heed_finish_row(&c->problem, c->tiling.state_log2, t, r);
    if (!t->weights.data && !t->scores.data)
        return HEED_OK;
    fill_rest(w, &t->weights, keys, 0);
    fill_rest(w, &t->scores, keys, -INFINITY);
    for (uint32_t n = 0; n < w->sequence->n_chunks && st == HEED_OK; n++) {
        heed_span chunk = heed_chunk_keys(w->plan, w->sequence, keys, n);
        if (chunk.first < chunk.end)
            st = call_backend(w, chunk, HEED_TILE_OUTPUTS);
    }
    return st;
}

static void mark_empty(heed_tile *t)
{
    for (int64_t r = 0; r < t->n_heads * t->q_count; r++)
        t->row_max[r] = -INFINITY, t->row_sum[r] = 0;
}

/* A row group whose keys are not cut: one tile, in this part's own memory. */
static heed_status run_whole(worker *w, heed_span keys)
{
    point_state(w, w->area + w->plan->layout.part_state);
    w->tile.flags = 0;
    heed_status st = HEED_OK;
    if (keys.first < keys.end)
        st = call_backend(w, keys, HEED_TILE_WHOLE);
    else
        mark_empty(&w->tile);
    return st == HEED_OK ? finish(w, keys) : st;
}

/* One chunk of a row group; the part that ends its last one merges them, in index order. */
static heed_status run_chunk(worker *w, heed_span keys, uint32_t run, uint32_t chunk)
{
    const heed_layout *l = &w->plan->layout;
    const heed_sequence *s = w->sequence;
    heed_tile *t = &w->tile;
    const int64_t rows = t->n_heads * t->q_count;
    const int64_t state_bytes =
        (rows * (t->acc_stride + 2) * (int64_t)sizeof(float) + 63) / 64 * 64;
    heed_lease *lease = &w->run->group[s->first_group + (int64_t)t->kv_head * s->n_runs + run];
    uint32_t n = heed_lease_slot(lease, w->run->slots, l->slot,
                                 (uint32_t)heed_workspace_slots(w->run), 2 * w->part, 1);
    char *slot = w->run->slots + n * l->slot;
    heed_span part = heed_chunk_keys(w->plan, s, keys, chunk);
    heed_status st = HEED_OK;
    point_state(w, slot + l->slot_states + chunk * state_bytes);
    if (part.first < part.end)
        st = call_backend(w, part, 0);
    else
        mark_empty(t);
    if (!heed_lease_done(lease, s->n_chunks))
        return st;
    if (st == HEED_OK && atomic_load(&w->run->status) == HEED_OK) {
        point_state(w, w->area + l->part_state);
        heed_state_merge(&(heed_state){t->row_max, t->row_sum, t->acc}, slot + l->slot_states,
                         state_bytes, s->n_chunks, rows, w->plan->desc.v_dim, t->acc_stride,
                         (int)w->class_plan->tiling.state_log2);
        t->flags = 0;
        st = finish(w, keys);
    }
    atomic_store_explicit(&((heed_slot *)slot)->taken, 0, memory_order_release);
    return st;
}

static heed_status run_tile(worker *w, int64_t tile)
{
    const int64_t b = heed_sequence_of(w->run, tile), kv_heads = w->plan->desc.kv_heads;
    const heed_sequence *s = &w->run->sequence[b];
    heed_place at = heed_tile_place(w->plan, s, tile - s->first_tile);
    if (w->unit != b * kv_heads + at.head)
        bind(w, b, at.head);
    w->run_of_call = b * w->plan->layout.mask_runs + at.run;
    heed_span rows = heed_run_rows(w->plan, s, at.run);
    heed_span keys = heed_visible_keys(w->plan, s, rows);
    w->tile.q_first = rows.first;
    w->tile.q_count = rows.end - rows.first;
    heed_status st = s->n_chunks == 1 ? run_whole(w, keys) : run_chunk(w, keys, at.run, at.chunk);
    release_unit(w);
    return st;
}

/* ---- parts ------------------------------------------------------------------------------------
 */

/* A run of one part counts without the bus lock. */
static int64_t take_tile(heed_run *run)
{
    if (run->n_parts > 1)
        return atomic_fetch_add_explicit(&run->next_tile, 1, memory_order_relaxed);
    int64_t tile = atomic_load_explicit(&run->next_tile, memory_order_relaxed);
    atomic_store_explicit(&run->next_tile, tile + 1, memory_order_relaxed);
    return tile;
}

static void record_error(worker *w, heed_status st)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&w->run->error_claimed, &none, 1))
        return;
    heed_fail(&w->run->error, HEED_ERR_BACKEND,
              "backend %s returned %s on query rows [%lld, %lld), keys [%lld, %lld) of sequence "
              "%lld, kv head %u",
              w->class_plan->backend->name, heed_status_string(st), (long long)w->tile.q_first,
              (long long)(w->tile.q_first + w->tile.q_count), (long long)w->tile.k_first,
              (long long)w->tile.k_end, (long long)(w->unit / w->plan->desc.kv_heads),
              w->tile.kv_head);
    if (w->run->args.error)
        *w->run->args.error = w->run->error;
    atomic_store_explicit(&w->run->status, HEED_ERR_BACKEND, memory_order_release);
}

heed_status heed_execute_part(heed_run *run, uint32_t part)
{
    worker w;
    int64_t tile = take_tile(run);
    if (tile < run->n_tiles) {
        heed_fpenv saved = heed_fpenv_enter();
        start_worker(&w, run, part);
        for (; tile < run->n_tiles; tile = take_tile(run)) {
            if (atomic_load_explicit(&run->status, memory_order_relaxed) != HEED_OK)
                break;
            heed_status st = run_tile(&w, tile);
            if (st != HEED_OK) {
                record_error(&w, st);
                break;
            }
        }
        heed_fpenv_leave(saved);
    }
    return atomic_load_explicit(&run->status, memory_order_acquire);
}

static void part_body(void *run, uint32_t part)
{
    heed_execute_part(run, part);
}

heed_status heed_execute(heed_run *run, const heed_executor *executor)
{
    heed_parallel(executor, run->n_parts, part_body, run);
    return atomic_load(&run->status);
}
