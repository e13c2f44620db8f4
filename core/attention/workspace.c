/* Sizes and places in the workspace. */
#include "workspace.h"

#include "base/checked.h"
#include "base/compiler.h"
#include "base/reason.h"
#include "mask_bits.h"

/* Memory for a part altogether: prepared blocks get what is left of it. */
#define BYTES_PER_PART (UINT64_C(4) << 20)

/* Tiles get as many kv heads as their kernel likes, as long as the states of a part, including
 * those that wait to be merged, have this much room; but at least one. */
#define STATE_BYTES ((size_t)512 << 10)

/* Room for mask summaries that kv heads share: 190 runs of rows of 65536 keys. Runs without room
 * are summarised by each kv head for itself. */
#define MASK_TABLE_BYTES ((size_t)256 << 10)
/* Room for bits of dense masks: 512 rows of 16384 keys. Rows without room are read
 * from the masks. */
#define MASK_BITS_BYTES ((size_t)1 << 20)

/* Largest number of query rows of a sequence of this class. */
static int64_t class_rows(const heed_attn *plan, uint32_t query_class)
{
    const int64_t q = plan->desc.max_q_len;
    if (plan->desc.features & HEED_HAS_REPRODUCIBLE_CHUNKS)
        return q;
    const int64_t several = heed_several_from(&plan->desc, 0);
    return query_class == HEED_QUERY_ONE       ? 1
           : query_class == HEED_QUERY_FEW     ? heed_min64(q, several - 1)
           : query_class == HEED_QUERY_SEVERAL ? heed_min64(q, 16)
                                               : q;
}

/* Appends `count` things of `size` bytes to *total and says where they start. */
static int append(size_t *total, size_t count, size_t size, size_t *at)
{
    size_t bytes;
    *at = *total;
    return heed_mul_size(count, size, &bytes) || heed_add_size(*total, bytes, total) ||
           heed_round_size(*total, HEED_CACHE_LINES, total);
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A state: row_max, row_sum, acc of each row. */
static int state_bytes(size_t rows, int64_t acc_stride, size_t *bytes)
{
    return heed_mul_size(rows, ((size_t)acc_stride + 2) * sizeof(float), bytes) ||
           heed_round_size(*bytes, HEED_CACHE_LINES, bytes);
}

/* How many states and seams each part has to bring to the pools, so that no part ever waits for a
 * free one.
 *
 * The chunks of a row group are the leaves of a binary tree of so many levels (execute.c). A chunk
 * is under way if a part has taken it and not finished it, and may then have a state. Every other
 * state waits for its neighbour in the tree. Below that neighbour lies a chunk that is under way or
 * has not been taken. Count the state with a chunk under way; if there is none, count it with the
 * first chunk of the group that has not been taken, all before it being taken. Then at most one
 * state is counted with each of these chunks at each level.
 *
 * Chunks are taken in order, so only one group can be taken in part. Its first chunk that has not
 * been taken adds nothing if the chunk before it is not finished either, because the same states
 * wait for that. That makes levels + 1 states a part.
 *
 * A group is open while one of its chunks is under way or while it is taken in part. Counted in the
 * same way, that is at most one group a part. A part may hold one more piece that it is about to
 * give back (lease.h). */
static size_t states_of_part(uint32_t levels)
{
    return (size_t)levels + 1;
}

#define SEAMS_OF_PART ((size_t)2)

/* The most kv heads that a kernel's tiles may get, if each of them has so many state rows. */
static uint32_t most_heads(const heed_attn *plan, const heed_tiling *t, size_t rows,
                           uint32_t levels, int64_t acc_stride)
{
    uint32_t heads = 1, most = t->kv_heads > t->kv_heads_beside ? t->kv_heads : t->kv_heads_beside;
    size_t bytes;
    if (t->prepare_bytes)
        return 1;
    while (heads < most && heads < plan->desc.kv_heads &&
           !state_bytes((heads + 1) * rows, acc_stride, &bytes) &&
           bytes <= STATE_BYTES / states_of_part(levels))
        heads++;
    return heads;
}

/* What the classes of a plan need at the most, beside what stands in the layout already. */
typedef struct needs {
    size_t scratch, blocks_bytes; /* of a part; prepared for one sequence and kv head */
    int64_t chunks;
    int64_t tile_blocks, chunk_rows; /* of any class: they meet in one call */
    int bad;                         /* a size overflows */
} needs;

#define DENSE (HEED_HAS_MASK | HEED_HAS_BIAS)
#define LISTS (HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS)

/* Does a plan have both? Then their summaries are made one beside the other. */
static int has_both(const heed_attn *plan)
{
    return plan->desc.features & DENSE && plan->desc.features & LISTS;
}

static void add_class(heed_attn *plan, const heed_class_plan *c, needs *n)
{
    heed_layout *l = &plan->layout;
    const heed_attn_desc *d = &plan->desc;
    const heed_tiling *t = &c->tiling;
    const int64_t most = class_rows(plan, c->problem.query_class);
    const int64_t rows = plan->group * heed_max64(1, heed_min64(most, t->query_rows));
    const int64_t runs = heed_ceil_div(most, t->query_rows);
    const int64_t blocks = heed_ceil_div(d->max_kv_len, t->key_block);
    const int64_t chunks = t->key_chunk ? heed_ceil_div(d->max_kv_len, t->key_chunk) : 1;
    const uint32_t levels = heed_tree_levels(0, (uint32_t)heed_max64(chunks, 1) - 1);
    n->bad |= rows > INT32_MAX;
    const uint32_t heads = n->bad ? 1 : most_heads(plan, t, (size_t)rows, levels, l->acc_stride);
    l->rows = (uint32_t)heed_max64(l->rows, rows * heads);
    l->kv_heads = heads > l->kv_heads ? heads : l->kv_heads;
    l->max_blocks = heed_max64(l->max_blocks, blocks);
    l->mask_runs = heed_max64(l->mask_runs, runs);
    /* A tile has the keys of a chunk, which is whole blocks. */
    const int64_t tile_blocks =
        t->key_chunk ? heed_min64(blocks, heed_ceil_div(t->key_chunk, t->key_block) + 1) : blocks;
    n->tile_blocks = heed_max64(n->tile_blocks, tile_blocks);
    if (t->wants_seen && d->features & DENSE)
        l->bit_rows = heed_max64(l->bit_rows, heed_max64(1, heed_min64(most, t->query_rows)));
    n->scratch = max_size(n->scratch, t->scratch_bytes);
    if (chunks > 1) {
        size_t groups = 0;
        n->bad |= heed_mul_size((size_t)d->max_batch, d->kv_heads, &groups) ||
                  heed_mul_size(groups, (size_t)runs, &groups);
        n->bad |= groups > INT64_MAX;
        n->chunk_rows = heed_max64(n->chunk_rows, rows * heads);
        n->chunks = heed_max64(n->chunks, chunks);
        l->max_groups = heed_max64(l->max_groups, n->bad ? 0 : (int64_t)groups);
    }
    if (t->prepare_bytes) {
        size_t bytes = 0;
        n->bad |= heed_mul_size((size_t)blocks, t->prepare_bytes, &bytes);
        n->blocks_bytes = max_size(n->blocks_bytes, bytes);
        l->max_units = d->max_batch * d->kv_heads;
    }
}

/* Header, schedule and mask summaries, which do not depend on the number of parts. */
static int lay_out_fixed(heed_attn *plan, int summarise)
{
    heed_layout *l = &plan->layout;
    const size_t batch = (size_t)plan->desc.max_batch;
    size_t at, runs = 0;
    int bad = append(&l->fixed, 1, sizeof(heed_attn_run_state), &at) ||
              append(&l->fixed, batch, sizeof(heed_sequence), &l->sequences) ||
              append(&l->fixed, (size_t)l->max_groups, sizeof(heed_lease), &l->groups) ||
              append(&l->fixed, (size_t)l->max_units, sizeof(heed_lease), &l->units) ||
              append(&l->fixed, (size_t)l->max_units, 1, &l->unit_marks);
    if (!summarise || plan->desc.kv_heads == 1 || bad)
        return bad;
    l->mask_row = ((size_t)l->max_blocks + 1) * (1 + (size_t)has_both(plan));
    const size_t most = MASK_TABLE_BYTES / l->mask_row;
    bad = heed_mul_size(batch, (size_t)l->mask_runs, &runs);
    l->mask_entries = (int64_t)(runs < most ? runs : most);
    l->bit_words = heed_mask_words(plan->desc.max_kv_len);
    const size_t bits = (size_t)(l->bit_rows * l->bit_words) * sizeof(uint64_t);
    if (bits)
        l->mask_bit_runs = heed_min64(l->mask_entries, (int64_t)(MASK_BITS_BYTES / bits));
    return bad || append(&l->fixed, (size_t)l->mask_entries, 1, &l->mask_states) ||
           append(&l->fixed, (size_t)l->mask_entries, l->mask_row, &l->mask_table) ||
           append(&l->fixed, (size_t)l->mask_bit_runs, bits, &l->mask_bits);
}

/* What each part brings to the pools, and what is its own. */
static int lay_out_part(heed_attn *plan, int summarise, const needs *n)
{
    heed_layout *l = &plan->layout;
    const size_t summary = summarise
                               ? ((size_t)plan->group * l->kv_heads + (size_t)has_both(plan)) *
                                     ((size_t)n->tile_blocks + 1)
                               : 0;
    size_t at, state = 0, unit = 0, units = 0;
    int bad = state_bytes(l->rows, l->acc_stride, &state);
    if (l->max_groups) {
        const uint32_t levels = heed_tree_levels(0, (uint32_t)n->chunks - 1);
        bad |= append(&l->seams, (size_t)n->chunks, sizeof(atomic_uint), &at) ||
               heed_mul_size(SEAMS_OF_PART, l->seams, &l->seams_per_part) ||
               state_bytes((size_t)n->chunk_rows, l->acc_stride, &l->states_per_part) ||
               heed_mul_size(states_of_part(levels), l->states_per_part, &l->states_per_part) ||
               append(&l->marks_per_part, SEAMS_OF_PART + states_of_part(levels), 1, &at);
    }
    bad |= append(&l->part, n->scratch, 1, &at) || append(&l->part, 1, state, &l->part_state) ||
           append(&l->part, summary, 1, &l->part_mask);
    if (!l->max_units || !n->blocks_bytes)
        return bad;
    const size_t used =
        l->fixed + l->part + l->seams_per_part + l->states_per_part + l->marks_per_part;
    const size_t room = !bad && used < BYTES_PER_PART ? BYTES_PER_PART - used : 0;
    bad |= append(&unit, (size_t)l->max_blocks, 1, &at) || append(&unit, n->blocks_bytes, 1, &at) ||
           heed_mul_size(unit, (size_t)l->max_units, &units);
    l->prepared_per_part = units < room ? units : room;
    return bad;
}

heed_status heed_workspace_layout(heed_attn *plan, heed_error *why)
{
    const heed_attn_desc *d = &plan->desc;
    const int summarise = (d->features & (DENSE | LISTS)) != 0;
    needs n = {.chunks = 1};
    plan->layout = (heed_layout){.acc_stride = (d->v_dim + 15) / 16 * 16, .kv_heads = 1};
    for (uint32_t i = 0; i < HEED_CLASSES; i++)
        if (plan->class_plan[i].kernel)
            add_class(plan, &plan->class_plan[i], &n);
    n.bad |= lay_out_fixed(plan, summarise && !n.bad);
    n.bad |= lay_out_part(plan, summarise, &n);
    if (n.bad || !heed_workspace_bytes(plan, 1))
        return heed_fail(
            why, HEED_ERR_NOMEM,
            "the workspace of a plan with max_batch %lld, max_q_len %lld and max_kv_len "
            "%lld exceeds the address space",
            (long long)d->max_batch, (long long)d->max_q_len, (long long)d->max_kv_len);
    return HEED_OK;
}

/* Bytes of n parts are layout.fixed + n * per_part. */
static int bytes_per_part(const heed_layout *l, size_t *per_part)
{
    return heed_add_size(l->seams_per_part, l->states_per_part, per_part) ||
           heed_add_size(*per_part, l->marks_per_part, per_part) ||
           heed_add_size(*per_part, l->prepared_per_part, per_part) ||
           heed_add_size(*per_part, l->part, per_part);
}

size_t heed_workspace_bytes(const void *of, uint32_t n_parts)
{
    const heed_attn *plan = of;
    size_t per_part, bytes;
    if (n_parts == 0 || bytes_per_part(&plan->layout, &per_part) ||
        heed_mul_size(n_parts, per_part, &bytes) ||
        heed_add_size(bytes, plan->layout.fixed, &bytes) || bytes > PTRDIFF_MAX)
        return 0;
    return bytes;
}

uint32_t heed_workspace_parts(const void *of, size_t bytes, uint32_t limit)
{
    const heed_attn *plan = of;
    const size_t base = plan->layout.fixed;
    size_t per_part;
    bytes_per_part(&plan->layout, &per_part); /* was checked when the plan was made */
    if (bytes < base + per_part)
        return 0;
    size_t n = (bytes - base) / per_part;
    return n < limit ? (uint32_t)n : limit;
}

/* Sets the number of a pool's pieces, all of them free. */
static void set_pieces(heed_pool *pool, size_t n, uint32_t n_parts)
{
    pool->n = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX - 1;
    pool->share = pool->n / n_parts;
    memset(pool->taken, 0, pool->n);
}

void heed_workspace_place(heed_attn_run_state *run, const heed_attn *plan, uint32_t n_parts)
{
    const heed_layout *l = &plan->layout;
    char *base = (char *)run;
    run->plan = plan;
    run->head.n_parts = n_parts;
    run->sequence = (heed_sequence *)(base + l->sequences);
    run->group = (heed_lease *)(base + l->groups);
    run->unit = (heed_lease *)(base + l->units);
    run->mask_state = (atomic_uchar *)(base + l->mask_states);
    run->mask_table = (uint8_t *)base + l->mask_table;
    run->mask_bits = (uint64_t *)(void *)(base + l->mask_bits);
    run->seams = (heed_pool){.base = base + l->fixed, .stride = l->seams};
    run->states = (heed_pool){.base = run->seams.base + n_parts * l->seams_per_part};
    char *marks = run->states.base + n_parts * l->states_per_part;
    run->seams.taken = (atomic_uchar *)marks;
    run->units = (heed_pool){.base = marks + n_parts * l->marks_per_part,
                             .taken = (atomic_uchar *)(base + l->unit_marks)};
    run->parts = run->units.base + n_parts * l->prepared_per_part;
}

uint32_t heed_workspace_heads(const heed_layout *layout, int64_t rows, int64_t chunk_rows,
                              uint32_t levels, uint32_t most)
{
    uint32_t heads = 1;
    most = most < layout->kv_heads ? most : layout->kv_heads;
    for (size_t bytes; heads < most && (heads + 1) * rows <= layout->rows; heads++)
        if (chunk_rows &&
            (state_bytes((size_t)((heads + 1) * chunk_rows), layout->acc_stride, &bytes) ||
             bytes * states_of_part(levels) > layout->states_per_part))
            break;
    return heads;
}

void heed_workspace_cut(heed_attn_run_state *run, int64_t rows, uint32_t levels)
{
    const uint32_t n_parts = run->head.n_parts;
    state_bytes((size_t)rows, run->plan->layout.acc_stride, &run->states.stride);
    set_pieces(&run->seams, n_parts * SEAMS_OF_PART, n_parts);
    run->states.taken = run->seams.taken + run->seams.n;
    set_pieces(&run->states, n_parts * states_of_part(levels), n_parts);
}

void heed_workspace_cut_units(heed_attn_run_state *run, int64_t blocks, size_t bytes)
{
    size_t at;
    run->unit_blocks = (size_t)blocks;
    append(&run->units.stride, (size_t)blocks, 1, &at); /* no more than the plan's */
    append(&run->units.stride, bytes, 1, &run->unit_data);
    const size_t n = run->head.n_parts * run->plan->layout.prepared_per_part / run->units.stride;
    const size_t units = (size_t)run->args.batch * run->plan->desc.kv_heads;
    set_pieces(&run->units, n < units ? n : units, run->head.n_parts);
}
