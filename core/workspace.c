/* Sizes and places in the workspace, and the one that the context keeps for calls without. */
#include "workspace.h"

#include "checked.h"
#include "compiler.h"
#include "reason.h"

/* What a part may have altogether: prepared blocks get what is left of it. */
#define BYTES_PER_PART (UINT64_C(4) << 20)

/* Where rows of several heads lie side by side in memory, the heads of a chunk share pages, and
 * what the CPU fetches beyond one head's row is another's. Each head taken at a time has states
 * waiting to be merged, for which there is this much room. */
#define MOST_SPAN 8
#define SPAN_BYTES ((size_t)1 << 20)

/* Room for mask summaries that kv heads share: 190 runs of rows of 65536 keys. What has none is
 * summarised by each kv head for itself. */
#define MASK_TABLE_BYTES ((size_t)256 << 10)

/* Largest number of query rows of a sequence of this class. */
static int64_t class_rows(const heed_plan *plan, uint32_t query_class)
{
    const int64_t q = plan->desc.max_q_len;
    if (plan->desc.features & HEED_HAS_REPRODUCIBLE_CHUNKS)
        return q;
    return query_class == HEED_QUERY_ONE   ? 1
           : query_class == HEED_QUERY_FEW ? heed_min64(q, 16)
                                           : q;
}

/* Appends `count` things of `size` bytes to *total and says where they start. */
static int append(size_t *total, size_t count, size_t size, size_t *at)
{
    size_t bytes;
    *at = *total;
    return heed_mul_size(count, size, &bytes) | heed_add_size(*total, bytes, total) |
           heed_round_size(*total, HEED_CACHE_LINES, total);
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A state: row_max, row_sum, acc of each row. */
static int state_bytes(size_t rows, int64_t acc_stride, size_t *bytes)
{
    return heed_mul_size(rows, ((size_t)acc_stride + 2) * sizeof(float), bytes) |
           heed_round_size(*bytes, 64, bytes);
}

heed_status heed_workspace_layout(heed_plan *plan, heed_error *why)
{
    heed_layout *l = &plan->layout;
    const heed_attn_desc *d = &plan->desc;
    const size_t batch = (size_t)d->max_batch;
    const int summarise = (d->features & (HEED_HAS_MASK | HEED_HAS_BIAS)) != 0;
    size_t scratch = 0, blocks_bytes = 0, slot_states = 0;
    int bad = 0;
    *l = (heed_layout){.acc_stride = (d->v_dim + 15) / 16 * 16};
    for (uint32_t i = 0; i < 3; i++) {
        const heed_class_plan *c = &plan->class_plan[i];
        if (!c->backend)
            continue;
        const heed_tiling *t = &c->tiling;
        int64_t rows = heed_max64(1, heed_min64(class_rows(plan, i), t->query_rows));
        int64_t runs = heed_ceil_div(class_rows(plan, i), t->query_rows);
        int64_t blocks = heed_ceil_div(d->max_kv_len, t->key_block);
        bad |= rows * plan->group > INT32_MAX;
        l->rows = (uint32_t)heed_max64(l->rows, rows * plan->group);
        l->max_blocks = heed_max64(l->max_blocks, blocks);
        l->mask_runs = heed_max64(l->mask_runs, runs);
        scratch = max_size(scratch, t->scratch_bytes);
        int64_t chunks = t->key_chunk ? heed_ceil_div(d->max_kv_len, t->key_chunk) : 1;
        if (chunks > 1) {
            size_t states;
            bad |= state_bytes((size_t)(rows * plan->group), l->acc_stride, &states);
            bad |= heed_mul_size(states, (size_t)chunks, &states);
            slot_states = max_size(slot_states, states);
            l->max_groups = heed_max64(l->max_groups, d->max_batch * d->kv_heads * runs);
        }
        if (t->prepare_bytes) {
            size_t bytes;
            bad |= heed_mul_size((size_t)blocks, t->prepare_bytes, &bytes);
            blocks_bytes = max_size(blocks_bytes, bytes);
            l->max_units = d->max_batch * d->kv_heads;
        }
    }
    /* header and schedule */
    size_t at, state = 0, unit_total;
    l->fixed = 0;
    bad |= append(&l->fixed, 1, sizeof(heed_run), &at);
    bad |= append(&l->fixed, batch, sizeof(heed_sequence), &l->sequences);
    bad |= append(&l->fixed, (size_t)l->max_groups, sizeof(heed_lease), &l->groups);
    bad |= append(&l->fixed, (size_t)l->max_units, sizeof(heed_lease), &l->units);
    if (summarise && d->kv_heads > 1 && !bad) {
        l->mask_row = (size_t)l->max_blocks + 1;
        size_t most = MASK_TABLE_BYTES / l->mask_row, runs;
        bad |= heed_mul_size(batch, (size_t)l->mask_runs, &runs);
        l->mask_entries = (int64_t)(runs < most ? runs : most);
        bad |= append(&l->fixed, (size_t)l->mask_entries, 1, &l->mask_states);
        bad |= append(&l->fixed, (size_t)l->mask_entries, l->mask_row, &l->mask_table);
    }
    bad |= state_bytes(l->rows, l->acc_stride, &state);
    if (l->max_groups) {
        bad |= append(&l->slot, 1, sizeof(heed_slot), &at);
        bad |= append(&l->slot, slot_states, 1, &l->slot_states);
    }
    l->span = 1; /* prepared data is lent to one head after another */
    while (l->slot && !l->max_units && l->span < MOST_SPAN && l->span < d->kv_heads &&
           (l->span + 1) * l->slot <= SPAN_BYTES)
        l->span++;
    bad |= append(&l->part, scratch, 1, &at);
    bad |= append(&l->part, 1, state, &l->part_state);
    bad |= append(&l->part, summarise ? plan->group * ((size_t)l->max_blocks + 1) : 0, 1,
                  &l->part_mask);
    if (l->max_units && blocks_bytes) {
        size_t used = l->part + 2 * l->slot, room;
        room = !bad && used < BYTES_PER_PART ? BYTES_PER_PART - used : 0;
        bad |= append(&l->unit, (size_t)l->max_blocks + sizeof(heed_slot), 1, &at);
        bad |= append(&l->unit, blocks_bytes, 1, &l->unit_data);
        bad |= heed_mul_size(l->unit, (size_t)l->max_units, &unit_total);
        l->prepared_per_part = unit_total < room ? unit_total : room;
    }
    if (bad || !heed_workspace_bytes(plan, 1))
        return heed_fail(
            why, HEED_ERR_NOMEM,
            "the workspace of a plan with max_batch %lld, max_q_len %lld and max_kv_len "
            "%lld exceeds the address space",
            (long long)d->max_batch, (long long)d->max_q_len, (long long)d->max_kv_len);
    return HEED_OK;
}

/* Bytes of n parts are base + n * per_part. */
static int base_and_part(const heed_plan *plan, size_t *base, size_t *per_part)
{
    const heed_layout *l = &plan->layout;
    size_t two_slots, shared_slots;
    int bad = heed_mul_size(l->slot, l->span, &shared_slots) |
              heed_add_size(l->fixed, shared_slots, base) | heed_mul_size(l->slot, 2, &two_slots) |
              heed_add_size(two_slots, l->prepared_per_part, per_part) |
              heed_add_size(*per_part, l->part, per_part);
    return bad;
}

size_t heed_workspace_bytes(const heed_plan *plan, uint32_t n_parts)
{
    size_t base, per_part, bytes;
    if (n_parts == 0 || base_and_part(plan, &base, &per_part) ||
        heed_mul_size(n_parts, per_part, &bytes) || heed_add_size(bytes, base, &bytes) ||
        bytes > PTRDIFF_MAX)
        return 0;
    return bytes;
}

uint32_t heed_workspace_parts(const heed_plan *plan, size_t bytes, uint32_t limit)
{
    size_t base, per_part;
    base_and_part(plan, &base, &per_part); /* was checked when the plan was made */
    if (bytes < base + per_part)
        return 0;
    size_t n = (bytes - base) / per_part;
    return n < limit ? (uint32_t)n : limit;
}

void heed_workspace_place(heed_run *run, const heed_plan *plan, uint32_t n_parts)
{
    const heed_layout *l = &plan->layout;
    char *base = (char *)run;
    run->plan = plan;
    run->n_parts = n_parts;
    run->sequence = (heed_sequence *)(base + l->sequences);
    run->group = (heed_lease *)(base + l->groups);
    run->unit = (heed_lease *)(base + l->units);
    run->mask_state = (atomic_uchar *)(base + l->mask_states);
    run->mask_table = (uint8_t *)base + l->mask_table;
    run->slots = base + l->fixed;
    run->prepared = run->slots + heed_workspace_slots(run) * l->slot;
    run->parts = run->prepared + n_parts * l->prepared_per_part;
    run->n_unit_slots =
        l->unit ? (uint32_t)heed_min64((int64_t)(n_parts * l->prepared_per_part / l->unit),
                                       l->max_units)
                : 0;
}

/* A spare workspace starts with its size. */
void *heed_workspace_borrow(heed_context *context, size_t bytes, size_t *got)
{
    void *spare = atomic_exchange(&context->workspace, NULL);
    if (spare) {
        memcpy(got, spare, sizeof *got);
        if (*got >= bytes)
            return spare;
        heed_free(context, spare, *got);
    }
    *got = bytes;
    return heed_alloc(context, bytes, HEED_CACHE_LINES);
}

void heed_workspace_return(heed_context *context, void *workspace, size_t bytes)
{
    memcpy(workspace, &bytes, sizeof bytes);
    void *other = atomic_exchange(&context->workspace, workspace);
    if (other) {
        memcpy(&bytes, other, sizeof bytes);
        heed_free(context, other, bytes);
    }
}

void heed_workspace_drop(heed_context *context)
{
    size_t bytes;
    void *spare = atomic_exchange(&context->workspace, NULL);
    if (spare) {
        memcpy(&bytes, spare, sizeof bytes);
        heed_free(context, spare, bytes);
    }
}
