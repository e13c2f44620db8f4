/*
 * Attention tile on the tile unit: bf16 products, f32 sums, softmax in f32 and fixed point.
 *
 * Work       groups of 32 rows x chunks of 2048 keys (512 of more than 128 dims): the weights of a
 *            chunk are kept as bf16, then O of the group is computed 32 columns at a time in four
 *            tile registers. Up to 64 dims: groups of 16 rows; O stays in registers, and the end of
 *            one group overlaps the start of the next.
 * Layout     K and V are packed per block of 128 keys (pack.inc.h), by prepare or into scratch.
 * Edges      packing reads only rows and keys of the tile; those that do not exist become zeros.
 * Numerics   blocks, chunks and units begin at multiples of their length, counted from key 0 of the
 *            sequence, and a row's reference depends only on that row's scores, block by block: a
 *            row's bits do not depend on its tile or group. The sum of weights is that of the
 *            rounded weights that multiply V.
 * Tile state is configured here and restored before returning.
 * Compiled   with the ISA's flags -> runs only after open(); with HEED_AMX_MODEL for the baseline
 *            CPU on the model of the unit (tile.h), for tests.
 *
 * The parts: chunk.inc.h (a group by itself), groups.inc.h (groups one after another), pack.inc.h,
 * run.inc.h (products), fast.inc.h, fast_resident.inc.h and careful.inc.h (softmax), finish.inc.h
 * and outputs.inc.h (results).
 */
#include "groups.inc.h"

#ifdef HEED_AMX_MODEL
_Thread_local amx_model_count AMX_NAME(count);
#endif

/* Is a block of the tile hidden from all rows of all heads? */
static int all_hidden(const heed_tile *t, int64_t block)
{
    for (int64_t head = 0; head < t->n_heads; head++)
        if (!t->mask_blocks ||
            t->mask_blocks[head * t->mask_block_stride + block] != HEED_BLOCK_NONE)
            return 0;
    return 1;
}

heed_status AMX_NAME(prepare)(const void *machine, const void *state, const heed_problem *problem,
                              const heed_tile *kv, void *prepared)
{
    const amx_layout layout = amx_layout_of(problem);
    (void)machine, (void)state;
    pack_block(problem, kv, &layout, kv->k_first / AMX_BLOCK * AMX_BLOCK, prepared);
    v_leave();
    return HEED_OK;
}

/* Packs the blocks of the current chunk, or points at those that prepare has packed. Returns the
 * blocks (bit b is block b) with values that the resident path cannot take. */
static uint32_t find_blocks(const amx_run *x, char *scratch)
{
    const heed_tile *t = x->t;
    const amx_layout *l = x->l;
    const int64_t first_block = t->k_first / AMX_BLOCK;
    uint32_t odd = 0;
    for (int b = 0; b < l->chunk_blocks; b++) {
        int64_t start = x->chunk + b * AMX_BLOCK;
        if (start + AMX_BLOCK <= t->k_first || start >= t->k_end)
            continue;
        if (!(t->flags & HEED_TILE_OUTPUTS) && all_hidden(t, start / AMX_BLOCK - first_block))
            continue;
        if (t->prepared) {
            x->packed[b] =
                (const char *)t->prepared + (start / AMX_BLOCK - first_block) * l->block_bytes;
        } else {
            char *to = scratch + l->packed_at + b * l->block_bytes;
            pack_block(x->p, t, l, start, to);
            x->packed[b] = to;
        }
        for (int n = 0; n < AMX_BLOCK_UNITS; n++) {
            const int64_t k_step = (int64_t)l->k_steps * l->parts * 2048;
            const int64_t v_step = (int64_t)l->v_pairs * l->parts * 2048;
            x->k_at[b * AMX_BLOCK_UNITS + n] = x->packed[b] + AMX_HEADER_BYTES + n * k_step;
            x->v_at[b * AMX_BLOCK_UNITS + n] = x->packed[b] + l->v_at + n * v_step;
        }
        for (int n = 0; n < AMX_BLOCK / 32; n++)
            if (header_of(x, b)->odd_k[n] || header_of(x, b)->odd_v[n])
                odd |= 1u << b;
    }
    return odd;
}

/* Sets the fields that are the same for all groups and chunks. */
static void begin_run(amx_run *x, char *scratch)
{
    const heed_problem *p = x->p;
    x->s = (float *)(void *)(scratch + x->l->s_at);
    x->weights = scratch + x->l->p_at;
    x->exponent_scale = p->scale * AMX_LOG2_E;
    x->general = (p->features & (HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_BIAS)) != 0 ||
                 !(fabsf(x->exponent_scale) >= 0x1p-126f && fabsf(x->exponent_scale) < INFINITY);
    x->exact = keeps_exact(p, x->t, x->l);
    x->c = x->general ? 1 : x->exponent_scale;
    x->hidden = x->c > 0 ? -INFINITY : INFINITY;
}

heed_status AMX_NAME(run_tile)(const void *machine, const void *state, const heed_problem *problem,
                               heed_tile *tile, void *scratch)
{
    const amx_layout layout = amx_layout_of(problem);
    const int64_t chunk_keys = layout.chunk_blocks * AMX_BLOCK;
    const int64_t n_rows = tile->n_heads * tile->q_count;
    const int64_t groups = (n_rows + layout.group - 1) / layout.group;
    const int outputs = (tile->flags & HEED_TILE_OUTPUTS) != 0;
    char *base = scratch;
    amx_rows *rows = (amx_rows *)(void *)(base + layout.rows_at);
    const char *packed[AMX_CHUNK_BLOCKS] = {NULL};
    const char *k_at[AMX_CHUNK_UNITS] = {NULL}, *v_at[AMX_CHUNK_UNITS] = {NULL};
    uint32_t odd_scores = 0;
    tile_unit unit;
    amx_run x = {.p = problem,
                 .t = tile,
                 .l = &layout,
                 .unit = &unit,
                 .packed = packed,
                 .k_at = k_at,
                 .v_at = v_at,
                 .odd_scores = &odd_scores};
    amx_run three[3];
    (void)machine, (void)state;
    begin_run(&x, base);
    for (int64_t g = 0; g < groups; g++) {
        rows[g].fresh = 1;
        rows[g].odd_q =
            pack_q(problem, tile, &layout, g, base + layout.q_at + g * layout.q_group_bytes);
        reset_rows(&x, &rows[g]);
    }
    tile_begin(&unit);
    for (x.chunk = tile->k_first / chunk_keys * chunk_keys; x.chunk < tile->k_end;
         x.chunk += chunk_keys) {
        x.odd_blocks = find_blocks(&x, base);
        x.leaves = x.chunk + chunk_keys >= tile->k_end && !outputs; /* O is still in cache then */
        for (int i = 0; i < 3; i++) /* all but the rows, which differ by group */
            memcpy(&three[i], &x, offsetof(amx_run, row));
        groups_and_chunk(three, base, groups);
    }
    tile_end(&unit);
    for (int64_t g = 0; g < groups && tile->k_first >= tile->k_end && !outputs; g++) {
        choose_group(&x, base, g);
        leave_group(&x);
    }
    if (tile->flags & HEED_TILE_WHOLE && !outputs)
        tile->flags |= HEED_TILE_FINISHED;
    v_leave();
    return HEED_OK;
}
