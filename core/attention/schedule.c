/* Sequences and their tiles in the order in which parts take them. */
#include "schedule.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/reason.h"
#include "validate.h"

/* Below this a tile is not worth taking by itself: an atomic operation that others contend for
 * takes a tenth of it. */
#define SMALL_TILE_NANOSECONDS 500.0

/* One sequence's length: the array's, or the width where there is none. */
static heed_status read_length(const char *name, const int32_t *lens, int64_t b, int64_t width,
                               int trust, int32_t *out, heed_error *why)
{
    *out = lens ? lens[b] : (int32_t)width;
    if (lens && !trust && (*out < 0 || *out > width))
        return heed_fail(why, HEED_ERR_INVALID,
                         "args.%ss[%lld] is %d, 0 to args.%s = %lld is required", name,
                         (long long)b, *out, name, (long long)width);
    return HEED_OK;
}

/* Where one sequence's packed rows begin. */
static heed_status read_start(const char *name, const int32_t *starts, int64_t b, int32_t length,
                              int64_t rows, int trust, int32_t *out, heed_error *why)
{
    *out = starts[b];
    if (!trust && length > rows)
        return heed_fail(
            why, HEED_ERR_INVALID,
            "sequence %lld has %d query rows, and desc.max_rows, those of all sequences, "
            "is %lld",
            (long long)b, length, (long long)rows);
    if (!trust && (*out < 0 || *out + (int64_t)length > rows))
        return heed_fail(why, HEED_ERR_INVALID,
                         "args.%s[%lld] is %d: with %d rows, 0 to %lld is required", name,
                         (long long)b, *out, length, (long long)(rows - length));
    return HEED_OK;
}

/* The entries of a block table that some row's keys are in; others may hold anything. */
static heed_status check_pages(const heed_attn *plan, const heed_attn_args *args, int64_t b,
                               const heed_sequence *s, heed_error *why)
{
    const int64_t page_len = plan->desc.page_len;
    const int32_t *page = args->block_table + b * args->block_table_stride;
    heed_span keys = heed_visible_keys(plan, s, (heed_span){0, s->q_len});
    if (s->q_len == 0 || keys.first >= keys.end)
        return HEED_OK;
    for (int64_t i = keys.first / page_len; i * page_len < keys.end; i++)
        if (page[i] < 0 || page[i] >= args->n_pages)
            return heed_fail(why, HEED_ERR_INVALID,
                             "args.block_table[%lld][%lld] is %d, 0 to args.n_pages - 1 = %lld is "
                             "required",
                             (long long)b, (long long)i, page[i], (long long)args->n_pages - 1);
    return HEED_OK;
}

static heed_status read_sequence(const heed_attn *plan, const heed_attn_args *args, int64_t b,
                                 heed_sequence *s, heed_error *why)
{
    int trust = (plan->context->user.flags & HEED_CONTEXT_TRUST_LENGTHS) != 0;
    s->q_start = s->kv_start = 0;
    heed_status st = read_length("q_len", args->q_lens, b, args->q_len, trust, &s->q_len, why);
    if (st == HEED_OK)
        st = read_length("kv_len", args->kv_lens, b, args->kv_len, trust, &s->kv_len, why);
    if (st == HEED_OK && args->q_starts)
        st = read_start("q_starts", args->q_starts, b, s->q_len, plan->desc.max_rows, trust,
                        &s->q_start, why);
    if (st == HEED_OK && args->kv_starts)
        st = read_start("kv_starts", args->kv_starts, b, s->kv_len, INT32_MAX, trust, &s->kv_start,
                        why);
    if (st != HEED_OK)
        return st;
    s->q_offset = plan->desc.position == HEED_POS_GIVEN          ? args->q_offsets[b]
                  : plan->desc.position == HEED_POS_BOTTOM_RIGHT ? s->kv_len - s->q_len
                                                                 : 0;
    heed_partition(plan, s);
    return args->block_table && !trust ? check_pages(plan, args, b, s, why) : HEED_OK;
}

/* All query rows of a kv head are in one tile, so those of adjacent heads may go together. */
static int is_few(const heed_attn *plan, const heed_sequence *s)
{
    return s->n_runs == 1 && HEED_KERNEL_HAS(plan->class_plan[s->class_index].kernel, run_heads);
}

/* Which tiles go to the backend together: returns how many of a sequence of few rows parts take at
 * a time. `small`: all sequences are such ones, all their keys are in one tile, and tiles are small.
 */
static int64_t set_together(heed_attn_run_state *run, int small)
{
    const heed_attn_args *a = &run->args;
    const int64_t n_parts = run->head.n_parts;
    run->only_rows = !a->mask.data && !a->bias.data && !a->weights.data && !a->scores.data;
    run->beside = a->block_table || llabs(a->k.stride[1]) < llabs(a->k.stride[2]);
    if (small)
        return run->only_rows && a->batch >= 2 * n_parts ? run->plan->desc.kv_heads : 1;
    if (!run->only_rows || !run->beside)
        return 1;
    /* Each part is left some to choose from. */
    for (int64_t n = run->span; n > 1; n /= 2)
        if (run->head.n_tiles >= 4 * n_parts * n)
            return n;
    return 1;
}

/* Tiles of long queries are taken one by one: each is much work. */
static void count_takes(heed_attn_run_state *run, int64_t few_at_once)
{
    int64_t takes = 0;
    for (int64_t b = 0; b < run->args.batch; b++) {
        heed_sequence *s = &run->sequence[b];
        const int64_t next = b + 1 < run->args.batch ? s[1].first_tile : run->head.n_tiles;
        const int64_t at_once = is_few(run->plan, s) ? few_at_once : 1;
        s->at_once = (uint32_t)at_once;
        s->first_take = takes;
        takes += heed_divide(next - s->first_tile + at_once - 1, at_once);
    }
    run->n_takes = takes;
}

heed_status heed_attn_schedule(const void *of, const void *args, uint32_t n_parts, void *workspace,
                               heed_error *why)
{
    const heed_attn *plan = of;
    heed_attn_run_state *run = workspace;
    heed_status st = heed_read_struct("args", args, sizeof run->args, &run->args, why);
    if (st == HEED_OK)
        st = heed_validate_args(&plan->desc, &run->args, why);
    if (st != HEED_OK)
        return st;
    heed_workspace_place(run, plan, n_parts);
    int64_t tiles = 0, groups = 0, chunk_rows = 0, blocks = 0;
    size_t prepared = 0;
    uint32_t levels = 0, span = plan->desc.kv_heads;
    const int64_t batch = run->args.q_len ? run->args.batch : 0, kv_heads = plan->desc.kv_heads;
    int few = 1, whole = 1;
    run->head.estimate = 0;
    for (int64_t b = 0; b < batch; b++) {
        heed_sequence *s = &run->sequence[b];
        st = read_sequence(plan, &run->args, b, s, why);
        if (st != HEED_OK)
            return st;
        s->first_tile = tiles;
        s->first_group = groups;
        if (s->q_len == 0) /* no tiles, so nothing hangs on what they would be */
            continue;
        tiles += kv_heads * s->n_runs * s->n_chunks;
        const heed_class_plan *c = &plan->class_plan[s->class_index];
        if (s->n_chunks > 1) {
            const int64_t rows = plan->group * heed_min64(s->q_len, c->tiling.query_rows);
            const uint32_t last = s->first_chunk + s->n_chunks - 1;
            groups += kv_heads * s->n_runs;
            chunk_rows = rows > chunk_rows ? rows : chunk_rows;
            if (heed_tree_levels(s->first_chunk, last) > levels)
                levels = heed_tree_levels(s->first_chunk, last);
            if (c->tiling.prepare_bytes) /* prepared data is lent to one head after another */
                span = 1;
        }
        if (c->tiling.prepare_bytes && s->n_runs * s->n_chunks > 1) {
            const int64_t n = heed_ceil_div(s->kv_len, c->tiling.key_block);
            const size_t bytes = (size_t)n * c->tiling.prepare_bytes;
            blocks = heed_max64(blocks, n);
            prepared = bytes > prepared ? bytes : prepared;
        }
        run->head.estimate += c->ns_fixed + s->q_len * (c->ns_per_row + c->ns_per_pair * s->kv_len);
        few &= is_few(plan, s);
        whole &= s->n_chunks == 1;
    }
    run->args.batch = batch;
    run->head.n_tiles = tiles;
    memset(run->group, 0, (size_t)groups * sizeof *run->group);
    if (groups)
        heed_workspace_cut(run, chunk_rows, levels, span);
    const int small = few && whole && run->head.estimate < SMALL_TILE_NANOSECONDS * (double)tiles;
    count_takes(run, set_together(run, small));
    if (plan->layout.mask_entries)
        memset(run->mask_state, HEED_RAW, (size_t)plan->layout.mask_entries);
    if (blocks) {
        heed_workspace_cut_units(run, blocks, prepared);
        memset(run->unit, 0, (size_t)(batch * kv_heads) * sizeof *run->unit);
    }
    atomic_init(&run->next_take, 0);
    return HEED_OK;
}
