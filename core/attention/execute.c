/* A part's loop: take a tile, resolve it, hand it to the kernel, and finish the rows whose last
 * tile it was. */
#include "execute.h"

#include "base/checked.h"
#include "base/fpenv.h"
#include "base/reason.h"
#include "base/rows.h"
#include "lease.h"
#include "mask_bits.h"
#include "mask_summary.h"
#include "softmax_state.h"
#include "worker.h"

#include <string.h>

/* Writing MXCSR takes as long as a tile of few rows and keys. */
static void set_flush(heed_worker *w, uint32_t flush)
{
    if (w->flush == flush)
        return;
    heed_fpenv_flush(flush);
    w->flush = flush;
}

/* ---- prepared keys and values -----------------------------------------------------------------
 */

static heed_status prepare_block(heed_worker *w, heed_span visible, int64_t block, char *to)
{
    const heed_class_plan *c = w->class_plan;
    const int64_t length = c->tiling.key_block;
    heed_tile kv = {
        .struct_size = sizeof kv,
        .kv_head = w->tile.kv_head,
        .n_heads = w->tile.n_heads,
        .kv_heads = w->tile.kv_heads,
        .group = w->tile.group,
        .k_first = heed_max64(visible.first, block * length),
        .k_end = heed_min64(visible.end, (block + 1) * length),
        .kv_len = w->tile.kv_len,
        .k = w->tile.k,
        .v = w->tile.v,
        .k_quant = w->tile.k_quant,
        .v_quant = w->tile.v_quant,
        .pages = w->tile.pages,
        .k_page_stride = w->tile.k_page_stride,
        .v_page_stride = w->tile.v_page_stride,
    };
    return c->kernel->prepare(c->machine, c->state, &c->problem, &kv, to);
}

/* Is a block of the tile hidden from all its rows? */
static int block_is_hidden(const heed_tile *t, int64_t n)
{
    const int64_t heads = t->mask_block_stride ? t->n_heads : 1;
    for (int64_t h = 0; h < heads; h++)
        if (!t->mask_blocks || t->mask_blocks[h * t->mask_block_stride + n] != HEED_BLOCK_NONE)
            return 0;
    return 1;
}

/* May all keys of a block be read? A prepared block serves all rows of the sequence, so the part of
 * it that lies outside the tile counts, too. */
static int is_listed(const heed_worker *w, int64_t block)
{
    const heed_class_plan *c = w->class_plan;
    const heed_span visible =
        heed_visible_keys(w->plan, w->sequence, (heed_span){0, w->sequence->q_len});
    const int64_t length = c->tiling.key_block;
    uint64_t bits[8];
    return length <= 8 * 64 && w->tile.k_first <= heed_max64(visible.first, block * length) &&
           w->tile.k_end >= heed_min64(visible.end, (block + 1) * length) &&
           heed_listed_keys(&c->problem, &w->tile, block * length, (block + 1) * length, bits, 8) ==
               HEED_BLOCK_ALL;
}

/* Prepares those of the tile's key blocks that no part has begun. Sets tile->prepared if all
 * of them are ready then. If the tile would have to wait for another part, the kernel
 * prepares in its scratch. */
static heed_status prepare(heed_worker *w)
{
    const heed_class_plan *c = w->class_plan;
    const heed_sequence *s = w->sequence;
    heed_tile *t = &w->tile;
    if (!w->run->units.n || s->n_runs * s->n_chunks == 1)
        return HEED_OK;
    uint32_t n =
        heed_lease_piece(&w->run->unit[w->unit], &w->run->units, w->run->unit_blocks, w->part, 0);
    if (n == HEED_NO_PIECE)
        return HEED_OK;
    char *unit = heed_piece(&w->run->units, n), *data = unit + w->run->unit_data;
    atomic_uchar *ready = (atomic_uchar *)unit;
    const heed_span visible = heed_visible_keys(w->plan, s, (heed_span){0, s->q_len});
    const int64_t first = t->k_first / c->tiling.key_block;
    const int64_t end = heed_ceil_div(t->k_end, c->tiling.key_block);
    const int skips = heed_has_lists(t) && !(t->flags & HEED_TILE_OUTPUTS);
    int all = 1;
    for (int64_t block = first; block < end; block++) {
        unsigned char raw = HEED_RAW;
        if (heed_has_lists(t) && !is_listed(w, block))
            continue;
        if (!atomic_compare_exchange_strong(&ready[block], &raw, HEED_BUSY))
            continue;
        set_flush(w, 0);
        heed_status st =
            prepare_block(w, visible, block, data + (size_t)block * c->tiling.prepare_bytes);
        if (st != HEED_OK)
            return st;
        atomic_store_explicit(&ready[block], HEED_READY, memory_order_release);
    }
    for (int64_t block = first; block < end && all; block++)
        all = (skips && block_is_hidden(t, block - first)) ||
              atomic_load_explicit(&ready[block], memory_order_acquire) == HEED_READY;
    if (all)
        t->prepared = data + (size_t)first * c->tiling.prepare_bytes;
    return HEED_OK;
}

/* The last tile of a unit gives its piece back. */
static void release_unit(heed_worker *w)
{
    if (!w->run->units.n)
        return;
    heed_lease *lease = &w->run->unit[w->unit];
    if (!heed_lease_done(lease, w->sequence->n_runs * w->sequence->n_chunks))
        return;
    unsigned held = atomic_load(&lease->piece_plus_1);
    if (held)
        heed_give(&w->run->units, held - 1);
}

/* ---- running a tile ---------------------------------------------------------------------------
 */

/* Sets the tile's mask_blocks and seen. Kv heads that share a mask share its summary, which the
 * first tile to come makes. Not if keys are cut: then the rows are few, and their masks little
 * beside the keys. */
static void summarise_mask(heed_worker *w)
{
    const heed_class_plan *c = w->class_plan;
    const heed_layout *l = &w->plan->layout;
    const uint32_t key_block = c->tiling.key_block;
    heed_tile *t = &w->tile;
    uint8_t *own = (uint8_t *)w->area + l->part_mask;
    set_flush(w, 0);
    t->seen = NULL;
    const int shared =
        w->run_of_call < l->mask_entries && w->sequence->n_chunks == 1 && heed_shares_masks(t);
    if (!shared) {
        heed_mask_summary(&c->problem, key_block, t, own);
        return;
    }
    atomic_uchar *state = &w->run->mask_state[w->run_of_call];
    uint8_t *table = w->run->mask_table + (size_t)w->run_of_call * l->mask_row;
    uint64_t *bits = NULL;
    if (c->tiling.wants_seen && w->run_of_call < l->mask_bit_runs)
        bits = w->run->mask_bits + w->run_of_call * l->bit_rows * l->bit_words;
    unsigned char found = HEED_RAW;
    if (atomic_compare_exchange_strong(state, &found, HEED_BUSY)) {
        heed_mask_summary(&c->problem, key_block, t, table);
        found = bits && heed_mask_bits(&c->problem, key_block, t, bits, l->bit_words)
                    ? HEED_READY_SEEN
                    : HEED_READY;
        atomic_store_explicit(state, found, memory_order_release);
    }
    if (found >= HEED_READY) {
        t->mask_blocks = table;
        t->mask_block_stride = 0;
        t->seen = found == HEED_READY_SEEN && !(t->flags & HEED_TILE_OUTPUTS) ? bits : NULL;
        t->seen_stride = l->bit_words;
    } else {
        heed_mask_summary(&c->problem, key_block, t, own);
    }
}

static void mark_empty(const heed_worker *w)
{
    const heed_tile *t = &w->tile;
    for (int64_t r = 0; r < t->n_heads * t->q_count; r++) {
        t->row_max[r] = -INFINITY, t->row_sum[r] = 0;
        memset(t->acc + r * t->acc_stride, 0, w->plan->desc.v_dim * sizeof *t->acc);
    }
}

/* Cuts off the blocks at both ends that are hidden from all rows of all heads.
 * Returns 0 if all are. */
static int trim(heed_tile *t, int64_t key_block)
{
    const int64_t first = t->k_first / key_block,
                  blocks = heed_ceil_div(t->k_end, key_block) - first;
    const int64_t heads = t->mask_block_stride ? t->n_heads : 1;
    int64_t low = blocks, high = 0;
    for (int64_t h = 0; h < heads; h++) {
        const uint8_t *kind = t->mask_blocks + h * t->mask_block_stride;
        for (int64_t n = 0; n < low; n++)
            low = kind[n] != HEED_BLOCK_NONE ? n : low;
        for (int64_t n = blocks; n > high; n--)
            high = kind[n - 1] != HEED_BLOCK_NONE ? n : high;
    }
    if (low >= high)
        return 0;
    t->mask_blocks += low;
    t->k_first = heed_max64(t->k_first, (first + low) * key_block);
    t->k_end = heed_min64(t->k_end, (first + high) * key_block);
    return 1;
}

/* Hands keys [keys.first, keys.end), which are not empty, to the kernel. */
static heed_status call_kernel(heed_worker *w, heed_span keys, uint32_t flags)
{
    const heed_class_plan *c = w->class_plan;
    heed_tile *t = &w->tile;
    t->k_first = keys.first;
    t->k_end = keys.end;
    t->flags = flags | (w->last_unit == w->unit ? HEED_TILE_SAME_KV : 0);
    if (t->mask.data || t->bias.data || heed_has_lists(t))
        summarise_mask(w);
    if (heed_has_lists(t) && !(flags & HEED_TILE_OUTPUTS) && !trim(t, c->tiling.key_block)) {
        mark_empty(w);
        return HEED_OK;
    }
    t->prepared = NULL;
    heed_status st = c->tiling.prepare_bytes ? prepare(w) : HEED_OK;
    if (st == HEED_OK) {
        set_flush(w, c->tiling.flush);
        st = c->kernel->run(c->machine, c->state, &c->problem, t, w->area);
    }
    w->last_unit = w->unit;
    return st;
}

/* Writes `value` as the weight or score of all keys but `keys`: no row of the run sees them. */
static void fill_rest(const heed_worker *w, const heed_rows *rows, heed_span keys, float value)
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

/* Writes the optional outputs of rows whose state is complete, in a second pass over
 * the same keys. */
static heed_status write_pairs(heed_worker *w)
{
    const heed_span keys = w->keys;
    heed_status st = HEED_OK;
    fill_rest(w, &w->tile.weights, keys, 0);
    fill_rest(w, &w->tile.scores, keys, -INFINITY);
    for (uint32_t n = 0; n < w->sequence->n_chunks && st == HEED_OK; n++) {
        heed_span chunk = heed_chunk_keys(w->plan, w->sequence, keys, n);
        if (chunk.first < chunk.end)
            st = call_kernel(w, chunk, HEED_TILE_OUTPUTS);
    }
    return st;
}

/* Does heed_finish_row for all rows, in loops that compilers vectorize. */
static void finish_rows(heed_worker *w)
{
    const heed_class_plan *c = w->class_plan;
    const heed_problem *p = &c->problem;
    heed_tile *t = &w->tile;
    set_flush(w, 0);
    for (int64_t r = 0; r < t->n_heads * t->q_count; r++) {
        const double factor = heed_finish_state(c->tiling.state_log2, t, r);
        const int64_t at =
            r / t->q_count * t->out.head_stride + (t->q_first + r % t->q_count) * t->out.row_stride;
        float *acc = t->acc + r * t->acc_stride;
        if (factor < 0)
            memset(acc, 0, p->v_dim * sizeof *acc);
        heed_write_scaled(acc, factor, p->out_type, t->out.data, at, t->out.dim_stride, p->v_dim);
    }
}

/* Finishes rows whose state is complete: writes out and lse unless the backend did, then the
 * optional outputs. */
static heed_status finish(heed_worker *w)
{
    if (!(w->tile.flags & HEED_TILE_FINISHED))
        finish_rows(w);
    return w->tile.weights.data || w->tile.scores.data ? write_pairs(w) : HEED_OK;
}

/* Runs a row group whose keys are not cut: it is one tile, in this part's own memory. */
static heed_status run_whole(heed_worker *w)
{
    heed_worker_point_state(w, w->area + w->plan->layout.part_state);
    w->tile.flags = 0;
    heed_status st = HEED_OK;
    if (w->keys.first < w->keys.end)
        st = call_kernel(w, w->keys, HEED_TILE_WHOLE);
    else
        mark_empty(w);
    return st == HEED_OK ? finish(w) : st;
}

/* ---- row groups whose keys are cut ------------------------------------------------------------
 *
 * The chunks of a row group are the leaves of a binary tree, in which their states are merged. Two
 * neighbouring subtrees meet at the seam between them. The part that comes to a seam first, with
 * the state of one subtree, leaves the state's number there and takes another tile. The part that
 * comes second merges both states and carries the result upwards. So no part waits, and which
 * states are merged depends on positions alone.
 */

/* Merges two states of the pool into the left one, whose keys come first. Gives the other back. */
static void merge_states(heed_worker *w, uint32_t left, uint32_t right)
{
    const heed_pool *pool = &w->run->states;
    const int64_t rows = w->tile.n_heads * w->tile.q_count, stride = w->tile.acc_stride;
    const heed_state into = heed_state_at(heed_piece(pool, left), rows, stride);
    const heed_state from = heed_state_at(heed_piece(pool, right), rows, stride);
    set_flush(w, 0);
    heed_state_merge(&into, &from, rows, w->plan->desc.v_dim, stride,
                     (int)w->class_plan->tiling.state_log2);
    heed_give(pool, right);
}

/* Carries a chunk's state upwards from seam to seam. A seam has the number of the chunk
 * behind it, counted from the group's first chunk. True if the state has become that of the
 * whole row group. */
static int climb(heed_worker *w, uint32_t chunk, atomic_uint *seam, uint32_t *state)
{
    const uint32_t first = w->sequence->first_chunk, last = first + w->sequence->n_chunks - 1;
    const uint32_t levels = heed_tree_levels(first, last);
    uint32_t node = first + chunk;
    for (uint32_t level = 0; level < levels; level++, node >>= 1) {
        const uint32_t behind = (node | 1) << level;
        if (behind <= first || behind > last) /* no neighbour */
            continue;
        const unsigned met =
            atomic_exchange_explicit(&seam[behind - first], *state + 1, memory_order_acq_rel);
        if (!met)
            return 0;
        const uint32_t other = met - 1, left = node & 1 ? other : *state;
        merge_states(w, left, left == other ? *state : other);
        *state = left;
    }
    return 1;
}

/* Adds a chunk's state to the bound row group. The part that brings the last one
 * finishes the rows. */
static heed_status add_chunk(heed_worker *w, uint32_t run, uint32_t chunk, uint32_t state)
{
    heed_attn_run_state *r = w->run;
    const heed_sequence *s = w->sequence;
    const int64_t heads = w->tile.kv_head / s->kv_heads;
    heed_lease *lease = &r->group[s->first_group + heads * s->n_runs + run];
    const uint32_t n =
        heed_lease_piece(lease, &r->seams, s->n_chunks * sizeof(atomic_uint), w->part, 1);
    if (!climb(w, chunk, (atomic_uint *)heed_piece(&r->seams, n), &state))
        return HEED_OK;
    heed_give(&r->seams, n);
    heed_worker_point_state(w, heed_piece(&r->states, state));
    w->tile.flags = 0;
    heed_status st = finish(w);
    heed_give(&r->states, state);
    return st;
}

/* Runs one chunk of the bound row group. After a backend's error the whole run fails: the group
 * stays open, and so does whatever waits for this chunk. */
static heed_status run_chunk(heed_worker *w, uint32_t run, uint32_t chunk)
{
    const heed_pool *states = &w->run->states;
    heed_span keys = heed_chunk_keys(w->plan, w->sequence, w->keys, chunk);
    heed_status st = HEED_OK;
    uint32_t state = heed_take(states, w->part, 1);
    heed_worker_point_state(w, heed_piece(states, state));
    const int goes_on = w->run->head.n_parts == 1 && keys.end < w->keys.end;
    if (keys.first < keys.end)
        st = call_kernel(w, keys, goes_on ? HEED_TILE_GOES_ON : 0);
    else
        mark_empty(w);
    return st == HEED_OK ? add_chunk(w, run, chunk, state) : st;
}

/* ---- tiles ------------------------------------------------------------------------------------
 */

static heed_status run_tile(heed_worker *w, int64_t tile)
{
    if (tile >= w->end_tile)
        heed_worker_bind_sequence(w, tile);
    const heed_sequence *s = w->sequence;
    const heed_place at = s->n_runs == 1 && s->n_chunks == 1
                              ? (heed_place){(tile - s->first_tile) * s->kv_heads, 0, 0}
                              : heed_tile_place(s, tile - s->first_tile);
    if (w->unit != w->index * w->plan->desc.kv_heads + at.head)
        heed_worker_bind_heads(w, at.head);
    if (s->n_runs > 1)
        heed_worker_set_run(w, at.run);
    heed_worker_find_keys(w);
    heed_status st = s->n_chunks == 1 ? run_whole(w) : run_chunk(w, at.run, at.chunk);
    if (w->class_plan->tiling.prepare_bytes)
        release_unit(w);
    return st;
}

/* ---- parts ------------------------------------------------------------------------------------
 */

/* Takes a tile and sets *end to the next; returns n_tiles or more if none is left. In a run of one
 * part all tiles are taken at once. */
static int64_t take_tiles(heed_attn_run_state *run, int64_t *end)
{
    *end = run->head.n_tiles;
    if (run->head.n_parts == 1) {
        const int64_t first = atomic_load_explicit(&run->next_tile, memory_order_relaxed);
        atomic_store_explicit(&run->next_tile, *end, memory_order_relaxed);
        return first;
    }
    const int64_t tile = atomic_fetch_add_explicit(&run->next_tile, 1, memory_order_relaxed);
    *end = heed_min64(*end, tile + 1);
    return tile;
}

/* A backend that has come to refuse the problem since the plan was made gives its reason, which
 * goes into the sentence. */
static void record_error(heed_worker *w, heed_status st)
{
    const heed_class_plan *c = w->class_plan;
    heed_error now = {""};
    heed_run_head *head = &w->run->head;
    if (!heed_run_claims_error(head))
        return;
    if (c->kernel->supports(c->machine, &c->problem, &now) == HEED_OK)
        now.text[0] = 0;
    heed_fail(&head->error, HEED_ERR_BACKEND,
              "backend %s returned %s on query rows [%lld, %lld), keys [%lld, %lld) of sequence "
              "%lld, kv head %u%s%.120s",
              c->chosen->of->name, heed_status_string(st), (long long)w->tile.q_first,
              (long long)(w->tile.q_first + w->tile.q_count), (long long)w->tile.k_first,
              (long long)w->tile.k_end, (long long)(w->unit / w->plan->desc.kv_heads),
              w->tile.kv_head, now.text[0] ? ": " : "", now.text);
    heed_run_failed(head, HEED_ERR_BACKEND);
}

static void call_hook(heed_worker *w, const heed_hook *hook)
{
    if (!hook)
        return;
    set_flush(w, 0);
    hook->call(hook->user);
}

void heed_attn_part(heed_run_head *head, uint32_t part)
{
    heed_attn_run_state *run = (heed_attn_run_state *)(void *)head; /* its first member */
    const heed_hook *hook = part == 0 ? head->hook : NULL;
    heed_worker w;
    int64_t end, tile = take_tiles(run, &end);
    if (tile < run->head.n_tiles) {
        heed_worker_start(&w, run, part);
        for (; tile < run->head.n_tiles; tile = take_tiles(run, &end)) {
            heed_status st = HEED_OK;
            for (; tile < end && st == HEED_OK && heed_run_goes_on(head); tile++) {
                st = run_tile(&w, tile);
                call_hook(&w, hook);
            }
            if (st != HEED_OK)
                record_error(&w, st);
            if (st != HEED_OK || tile < end)
                break;
        }
    }
}
