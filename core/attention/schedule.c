/* Sequences and their tiles in the order in which parts take them. */
#include "schedule.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/reason.h"
#include "ranges.h"
#include "runtime/parallel.h"
#include "validate.h"

/* Tiles that each part should find, so that it has some to choose from. */
#define TILES_PER_PART 4

/* One sequence's length: the array's, or the width where there is none. */
static heed_status read_length(const char *name, const int32_t *lens, int64_t b, int64_t width,
                               int trust, int32_t *out, heed_error *why)
{
    *out = lens ? lens[b] : (int32_t)width;
    if (lens && !trust && (*out < 0 || *out > width))
        INVALID("args.%ss[%lld] is %d, 0 to args.%s = %lld is required", name, (long long)b, *out,
                name, (long long)width);
    return HEED_OK;
}

/* Where one sequence's packed rows begin. */
static heed_status read_start(const char *name, const int32_t *starts, int64_t b, int32_t length,
                              int64_t rows, int trust, int32_t *out, heed_error *why)
{
    *out = starts[b];
    if (!trust && length > rows)
        INVALID("sequence %lld has %d query rows, and desc.max_rows, those of all sequences, "
                "is %lld",
                (long long)b, length, (long long)rows);
    if (!trust && (*out < 0 || *out + (int64_t)length > rows))
        INVALID("args.%s[%lld] is %d: with %d rows, 0 to %lld is required", name, (long long)b,
                *out, length, (long long)(rows - length));
    return HEED_OK;
}

/* Checks the entries of a block table that hold keys of some row; others may hold anything. */
static heed_status check_pages(const heed_attn *plan, const heed_attn_args *args, int64_t b,
                               const heed_sequence *s, heed_error *why)
{
    const int64_t page_len = plan->desc.page_len;
    const int32_t *page = args->block_table + b * args->block_table_stride;
    if (args->ranges.data || args->key_blocks.data)
        return heed_ranges_check_pages(plan, args, b, s, why);
    heed_span keys = heed_visible_keys(plan, s, (heed_span){0, s->q_len});
    if (s->q_len == 0 || keys.first >= keys.end)
        return HEED_OK;
    for (int64_t i = keys.first / page_len; i * page_len < keys.end; i++)
        if (page[i] < 0 || page[i] >= args->n_pages)
            INVALID("args.block_table[%lld][%lld] is %d, 0 to args.n_pages - 1 = %lld is "
                    "required",
                    (long long)b, (long long)i, page[i], (long long)args->n_pages - 1);
    return HEED_OK;
}

/* Groups of keys that share scales begin at multiples of their size, and each belongs to one
 * sequence. So a packed sequence has to begin at such a multiple. */
static heed_status check_groups(const heed_attn_args *args, int64_t b, int32_t start,
                                heed_error *why)
{
    const uint32_t group[] = {args->k_quant.key_group, args->v_quant.key_group};
    for (int i = 0; i < 2; i++)
        if (group[i] && start % (int64_t)group[i])
            INVALID("args.kv_starts[%lld] is %d, a multiple of args.%s.key_group = %u is "
                    "required",
                    (long long)b, start, i ? "v_quant" : "k_quant", group[i]);
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
    if (st == HEED_OK && args->kv_starts && !trust)
        st = check_groups(args, b, s->kv_start, why);
    if (st != HEED_OK)
        return st;
    s->q_offset = plan->desc.position == HEED_POS_GIVEN          ? args->q_offsets[b]
                  : plan->desc.position == HEED_POS_BOTTOM_RIGHT ? s->kv_len - s->q_len
                                                                 : 0;
    st = heed_ranges_read(plan, args, b, s, why);
    if (st != HEED_OK)
        return st;
    heed_partition_sequence(plan, s);
    return args->block_table && !trust ? check_pages(plan, args, b, s, why) : HEED_OK;
}

/* What the sequences of a call need together. */
typedef struct wishes {
    int64_t tiles;            /* if each has one kv head */
    int64_t rows, chunk_rows; /* most state rows of a kv head's tile; the same where keys are cut */
    uint32_t levels, heads;   /* of merges; kv heads of a tile, by the kernels' tilings */
    int64_t blocks;           /* key blocks of a sequence that are prepared, and their bytes */
    size_t prepared;
    int beside; /* a key's neighbour in memory is the same key of the next head, not the next key */
} wishes;

/* How many kv heads the kernel likes in a sequence's tiles. */
static uint32_t heads_of(const heed_attn *plan, const heed_sequence *s, int beside)
{
    const heed_tiling *t = &plan->class_plan[s->class_index].tiling;
    const uint32_t likes = beside ? t->kv_heads_beside : t->kv_heads;
    return t->prepare_bytes || likes == 0 ? 1
           : likes < plan->desc.kv_heads  ? likes
                                          : plan->desc.kv_heads;
}

static void add_wishes(const heed_attn *plan, const heed_sequence *s, wishes *w)
{
    const heed_tiling *t = &plan->class_plan[s->class_index].tiling;
    const int64_t rows = plan->group * heed_min64(s->q_len, t->query_rows);
    const uint32_t heads = heads_of(plan, s, w->beside);
    w->tiles += (int64_t)plan->desc.kv_heads * s->n_runs * s->n_chunks;
    w->rows = heed_max64(w->rows, rows);
    w->heads = heads > w->heads ? heads : w->heads;
    if (s->n_chunks > 1) {
        const uint32_t levels = heed_tree_levels(s->first_chunk, s->first_chunk + s->n_chunks - 1);
        w->chunk_rows = heed_max64(w->chunk_rows, rows);
        w->levels = levels > w->levels ? levels : w->levels;
    }
    if (t->prepare_bytes && s->n_runs * s->n_chunks > 1) {
        const int64_t n = heed_ceil_div(s->kv_len, t->key_block);
        const size_t bytes = (size_t)n * t->prepare_bytes;
        w->blocks = heed_max64(w->blocks, n);
        w->prepared = bytes > w->prepared ? bytes : w->prepared;
    }
}

/* Kv heads of a tile: as many as kernels like and states have room for, or fewer if that makes too
 * few tiles for the parts. */
static uint32_t choose_heads(const heed_attn_run_state *run, const wishes *w)
{
    const int64_t parts =
        heed_parts_worth(run->head.estimate, HEED_SERIAL_NANOSECONDS, w->tiles, run->head.n_parts);
    uint32_t heads =
        heed_workspace_heads(&run->plan->layout, w->rows, w->chunk_rows, w->levels, w->heads);
    while (heads > 1 && parts > 1 && w->tiles < TILES_PER_PART * parts * heads)
        heads /= 2;
    return heads;
}

/* How many tiles it takes to have all heads. A division would be felt in small calls. */
static int64_t times(uint32_t kv_heads, uint32_t of_tile)
{
    return of_tile == kv_heads ? 1 : of_tile == 1 ? kv_heads : heed_ceil_div(kv_heads, of_tile);
}

/* Numbers tiles and row groups. Returns how many groups there are whose keys are cut. */
static int64_t number_tiles(heed_attn_run_state *run, uint32_t heads, int beside)
{
    const heed_attn *plan = run->plan;
    int64_t tiles = 0, groups = 0;
    for (int64_t b = 0; b < run->args.batch; b++) {
        heed_sequence *s = &run->sequence[b];
        s->first_tile = tiles;
        s->first_group = groups;
        if (s->q_len == 0) /* it has no tiles: its partition is never looked at */
            continue;
        const uint32_t likes = heads_of(plan, s, beside);
        s->kv_heads = likes < heads ? likes : heads;
        const int64_t of_heads = times(plan->desc.kv_heads, s->kv_heads) * s->n_runs;
        tiles += of_heads * s->n_chunks;
        groups += s->n_chunks > 1 ? of_heads : 0;
    }
    run->head.n_tiles = tiles;
    return groups;
}

/* Do the sequences of a call differ in nothing but where their rows lie? */
static int all_alike(const heed_attn_args *a)
{
    return !(a->q_lens || a->kv_lens || a->q_starts || a->kv_starts || a->q_offsets ||
             a->mask_from || a->block_table || a->ranges.data);
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
    const int64_t batch = run->args.q_len ? run->args.batch : 0;
    const int alike = all_alike(&run->args);
    wishes w = {.beside = run->args.block_table ||
                          llabs(run->args.k.stride[1]) < llabs(run->args.k.stride[2])};
    double estimate = 0;
    run->args.batch = batch;
    for (int64_t b = 0; b < batch; b++) {
        heed_sequence *s = &run->sequence[b];
        if (b > 0 && alike)
            *s = s[-1];
        else
            st = read_sequence(plan, &run->args, b, s, why);
        if (st != HEED_OK)
            return st;
        const heed_class_plan *c = &plan->class_plan[s->class_index];
        if (s->q_len == 0)
            continue;
        add_wishes(plan, s, &w);
        estimate += c->ns_fixed + s->q_len * (c->ns_per_row + c->ns_per_pair * s->kv_len);
    }
    run->head.estimate = estimate;
    const uint32_t heads = choose_heads(run, &w);
    const int64_t groups = number_tiles(run, heads, w.beside);
    memset(run->group, 0, (size_t)groups * sizeof *run->group);
    if (groups)
        heed_workspace_cut(run, w.chunk_rows * heads, w.levels);
    if (plan->layout.mask_entries)
        memset(run->mask_state, HEED_RAW, (size_t)plan->layout.mask_entries);
    if (w.blocks) {
        heed_workspace_cut_units(run, w.blocks, w.prepared);
        memset(run->unit, 0, (size_t)(batch * plan->desc.kv_heads) * sizeof *run->unit);
    }
    atomic_init(&run->next_tile, 0);
    return HEED_OK;
}
