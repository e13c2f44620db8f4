/*
 * Attention tile on the tile unit: bf16 products, f32 sums, softmax in f32 and fixed point.
 *
 * Work       groups of 32 rows x chunks of 512 keys: weights of a chunk are kept as bf16 while O of
 *            the group, 32 columns at a time, is in four tile registers. Up to 64 dims: groups of 16
 *            rows x chunks of 1024 keys, O in the registers, one group woven into the next.
 * Layout     K and V are packed per block of 128 keys (pack.h), by prepare or into scratch.
 * Edges      packing reads rows and keys of the tile only; what does not exist is zeros.
 * Numerics   blocks, chunks and units lie at absolute keys, and a row's reference depends on that
 *            row's scores block by block, so its bits do not depend on its tile or group.
 *            Sums of weights are those of the rounded weights that multiply V.
 * Tile state configured here, released before returning.
 * Compiled   with the ISA's flags -> runs only after probe(); with HEED_AMX_MODEL at baseline on
 * the model of the unit (tile.h), for tests.
 */
#include "fast_resident.h"

#ifdef HEED_AMX_MODEL
_Thread_local amx_model_count AMX_NAME(count);
#endif

/* The group's rows and what they see. */
static void begin_group(amx_run *x)
{
    const heed_tile *t = x->t;
    int64_t head = x->first_row / t->q_count, q = x->first_row % t->q_count;
    x->all_first = x->some_first = t->k_first;
    x->all_end = x->some_end = t->k_end;
    if (t->window_left >= HEED_UNBOUNDED && t->window_right >= HEED_UNBOUNDED) {
        for (int i = 0; i < x->n_rows; i++) {
            x->row[i] = (amx_row){head, t->q_first + q, t->k_first, t->k_end};
            if (++q == t->q_count) {
                q = 0;
                head++;
            }
        }
        return;
    }
    x->some_first = t->k_end;
    x->some_end = t->k_first;
    for (int i = 0; i < x->n_rows; i++) {
        amx_row *row = &x->row[i];
        row->head = head;
        row->q = t->q_first + q;
        heed_row_keys(t, row->q, &row->first, &row->end);
        x->all_first = row->first > x->all_first ? row->first : x->all_first;
        x->all_end = row->end < x->all_end ? row->end : x->all_end;
        x->some_first = row->first < x->some_first ? row->first : x->some_first;
        x->some_end = row->end > x->some_end ? row->end : x->some_end;
        if (++q == t->q_count) {
            q = 0;
            head++;
        }
    }
}

/* Can the fast path take this block? No value is out of the ordinary, and not all of it is hidden. */
static int block_is_plain(const amx_run *x, int block)
{
    const amx_header *header;
    if (x->l->parts > 1 || x->rows->odd_q || block_is(x, block, HEED_BLOCK_NONE))
        return 0;
    header = header_of(x, block); /* a hidden block may not be packed */
    for (int n = 0; n < AMX_BLOCK / 32; n++)
        if (header->odd_k[n] || (x->l->group == 16 && header->odd_v[n]))
            return 0;
    return 1;
}

enum { ROWS_MIXED, ROWS_KNOWN, ROWS_UNSEEN };

static int state_of_rows(const amx_run *x)
{
    int known = 0, unseen = 0;
    for (int i = 0; i < x->n_rows; i++) {
        known += fabsf(x->rows->reference[i]) <= AMX_ONE_STEP;
        unseen += x->rows->reference[i] == AMX_UNSEEN;
    }
    return known == x->n_rows ? ROWS_KNOWN : unseen == x->n_rows ? ROWS_UNSEEN : ROWS_MIXED;
}

static void copy_rows(amx_rows *to, const amx_rows *from, int n_rows)
{
    memcpy(to->reference, from->reference, sizeof to->reference);
    for (int i = 0; i < n_rows; i++)
        vf_store(to->sum[i], vf_load(from->sum[i]));
    to->odd_q = from->odd_q;
    to->fresh = from->fresh;
}

/* Units [unit, end) of the chunk for the group; those before careful_to are not for the fast path. */
static void run_chunk(amx_run *x, int unit, int end, int careful_to)
{
    x->from = unit;
    while (unit < end) {
        int block = unit / AMX_BLOCK_UNITS, last = block, to = (block + 1) * AMX_BLOCK_UNITS;
        int state = unit < careful_to ? ROWS_MIXED : state_of_rows(x);
        to = to < end ? to : end;
        if (block_is(x, block, HEED_BLOCK_NONE)) { /* no product: nothing of it is even read */
            flush_o(x, unit);
            unit = x->from = to;
            continue;
        }
        while (state != ROWS_MIXED && last * AMX_BLOCK_UNITS < end && block_is_plain(x, last))
            last++;
        if (last > block) {
            amx_rows saved; /* where the run fails they go with O, which has to be as far as they */
            flush_o(x, unit);
            copy_rows(&saved, x->rows, x->n_rows);
            to = last * AMX_BLOCK_UNITS < end ? last * AMX_BLOCK_UNITS : end;
            to = x->l->group == 16 ? resident_units(x, unit, to, state == ROWS_UNSEEN)
                                   : fast_units(x, unit, to, state == ROWS_UNSEEN);
            if (to >= 0) {
                unit = to;
            } else if (to == -1) {
                copy_rows(x->rows, &saved, x->n_rows);
                careful_to = end;
            } else {
                careful_to = unit + 1;
            }
            continue;
        }
        careful_block(x, unit, to);
        unit = to;
    }
    flush_o(x, end);
}

/* Columns [32 pair, 32 pair + 32) of row i of O, in their order. */
AMX_INLINE void load_columns(const amx_run *x, int i, int pair, vf *low, vf *high)
{
    *low = vf_load((const float *)(const void *)(o_tile(x, pair, i / 16, 0) + i % 16 * 64));
    *high = vf_load((const float *)(const void *)(o_tile(x, pair, i / 16, 1) + i % 16 * 64));
    vf_in_order(low, high);
}

/* Writes 16 columns or less of an output row. */
static inline void store_out(const heed_problem *p, const heed_tile *t, char *row, int64_t d, int n,
                             vf y)
{
    uint16_t mask = (uint16_t)((1u << n) - 1);
    char *data = row + d * t->out.dim_stride * heed_dtype_bytes(p->out_type);
    float lanes[16];
    if (t->out.dim_stride == 1) {
        if (p->out_type == HEED_BF16)
            vf_store_bf16_some(data, mask, y);
        else if (p->out_type == HEED_F16)
            vf_store_f16_some(data, mask, y);
        else
            vf_store_some((float *)(void *)data, mask, y);
        return;
    }
    vf_store(lanes, y);
    for (int i = 0; i < n; i++)
        heed_store(p->out_type, data, i * t->out.dim_stride, lanes[i]);
}

/* Row i of O, times a factor. */
static void write_row(const amx_run *x, int i, char *out, float times)
{
    const heed_problem *p = x->p;
    const int v_dim = (int)p->v_dim, dense = x->t->out.dim_stride == 1;
    const vf factor = vf_set1(times), zero = vf_set1(0);
    for (int d = 0; d < v_dim; d += 32) {
        int n = v_dim - d;
        vf low, high;
        load_columns(x, i, d / 32, &low, &high);
        /* Adding 0 makes a flushed -0 the 0 that it is when more keys follow. */
        low = vf_fma(low, factor, zero);
        high = vf_fma(high, factor, zero);
        if (n >= 32 && dense && p->out_type == HEED_BF16) {
            vf_store_bf16_two(out + d * 2, low, high);
        } else if (n >= 32 && dense && p->out_type == HEED_F32) {
            vf_store((float *)(void *)(out + d * 4), low);
            vf_store((float *)(void *)(out + d * 4 + 64), high);
        } else {
            store_out(p, x->t, out, d, n < 16 ? n : 16, low);
            if (n > 16)
                store_out(p, x->t, out, d + 16, n < 32 ? n - 16 : 16, high);
        }
    }
}

/* As heed_finish_row, bit for bit but for out: core finishes rows that see no key, and a row's bits
 * must not depend on who did. out is multiplied by the reciprocal in f32. */
static void finish_row(const amx_run *x, int i, float reference, float weights)
{
    const double log2_e = 1.4426950408889634, ln_2 = 0.6931471805599453;
    const heed_tile *t = x->t;
    int64_t r = x->first_row + i, head = x->row[i].head, q = x->row[i].q;
    int64_t at = head * t->out.head_stride + q * t->out.row_stride;
    char *out = (char *)t->out.data + at * heed_dtype_bytes(x->p->out_type);
    double m = weights == 0 ? -(double)INFINITY : (double)reference, sum = weights, scale = 1;
    if (t->sink && t->sink[head] != -INFINITY) {
        double sink = (double)t->sink[head] * log2_e, top = ceil(sink) > m ? ceil(sink) : m;
        scale = weights == 0 ? 0 : exp2(m - top);
        sum = sum * scale + exp2(sink - top);
        m = top;
    }
    if (weights != 0)
        write_row(x, i, out, (float)(scale / sum));
    else
        for (int d = 0; d < (int)x->p->v_dim; d += 16)
            store_out(x->p, t, out, d, (int)x->p->v_dim - d < 16 ? (int)x->p->v_dim - d : 16,
                      vf_set1(0));
    if (t->lse.data)
        heed_store(HEED_F32, t->lse.data, head * t->lse.head_stride + q * t->lse.row_stride,
                   (float)(sum == 0 ? -(double)INFINITY : m * ln_2 + log(sum)));
    t->row_max[r] = (float)m;
    t->row_sum[r] = (float)sum;
}

/* leave_group where rows end as they usually do: no sink, no lse, sums that are ordinary numbers.
 * Returns 0 where it is not so. */
static int leave_plain(const amx_run *x)
{
    const heed_tile *t = x->t;
    const heed_problem *p = x->p;
    const int usual = p->out_type == HEED_BF16 && t->out.dim_stride == 1 && p->v_dim % 32 == 0;
    const int pairs = x->l->v_pairs;
    if (!(t->flags & HEED_TILE_WHOLE) || t->sink || t->lse.data)
        return 0;
    for (int tile = 0; tile < x->n_rows; tile += 16) {
        const uint16_t exist = range_mask(0, x->n_rows, tile);
        const int n = x->n_rows - tile < 16 ? x->n_rows - tile : 16;
        float factor[16];
        vf rows[16], sum;
        for (int i = 0; i < 16; i++)
            rows[i] = vf_load(x->rows->sum[tile + i]);
        sum = vf_sums(rows);
        if (vf_within(sum, 0x1p100f, exist) != exist || vf_within(sum, 0x1p-100f, exist))
            return 0;
        vf_store(factor, vf_div(vf_set1(1), sum)); /* as the quotient in double, rounded */
        vf_store_some(t->row_max + x->first_row + tile, exist, vf_load(x->rows->reference + tile));
        vf_store_some(t->row_sum + x->first_row + tile, exist, sum);
        for (int i = 0; i < n; i++) {
            const amx_row *row = &x->row[tile + i];
            int64_t at = row->head * t->out.head_stride + row->q * t->out.row_stride;
            char *out = (char *)t->out.data + at * (int64_t)heed_dtype_bytes(p->out_type);
            if (!usual) {
                write_row(x, tile + i, out, factor[i]);
                continue;
            }
            for (int pair = 0; pair < pairs; pair++) { /* as write_row */
                const float *o =
                    (const float *)(const void *)(o_tile(x, pair, tile / 16, 0) + i * 64);
                const vf times = vf_set1(factor[i]), zero = vf_set1(0);
                vf_store_bf16_in_order(out + pair * 64, vf_fma(vf_load(o), times, zero),
                                       vf_fma(vf_load(o + 256), times, zero));
            }
        }
    }
    return 1;
}

/* The state of the group's rows, or their results. */
static void leave_group(const amx_run *x)
{
    heed_tile *t = x->t;
    if (leave_plain(x))
        return;
    for (int i = 0; i < x->n_rows; i++) {
        int64_t r = x->first_row + i;
        float sum = x->rows->reference[i] == AMX_UNSEEN ? 0 : vf_sum(vf_load(x->rows->sum[i]));
        if (t->flags & HEED_TILE_WHOLE) {
            finish_row(x, i, x->rows->reference[i], sum);
            continue;
        }
        t->row_max[r] = x->rows->reference[i];
        t->row_sum[r] = sum;
        for (int d = 0; sum != 0 && d < (int)x->p->v_dim; d += 32) {
            float columns[32];
            vf low, high;
            int n = (int)x->p->v_dim - d;
            load_columns(x, i, d / 32, &low, &high);
            vf_store(columns, low);
            vf_store(columns + 16, high);
            memcpy(t->acc + r * t->acc_stride + d, columns, (size_t)(n < 32 ? n : 32) * 4);
        }
    }
}

/* Weights and scores of units [unit, end) of one block for the group, from the final row_max and
 * row_sum. */
static void write_outputs(const amx_run *x, int unit, int end)
{
    const heed_problem *p = x->p;
    const heed_tile *t = x->t;
    for (int u = unit; u < end; u++) {
        products_with_k(x, u, x->s);
        for (int half = 0; half < 2; half++) {
            float *products = x->s + half * 512;
            int64_t j = x->chunk + u * AMX_UNIT + half * 16;
            const amx_header *header = header_of(x, u / AMX_BLOCK_UNITS);
            uint32_t odd_k = header->odd_k[u % AMX_BLOCK_UNITS] >> (16 * half);
            uint16_t tile_keys = range_mask(t->k_first, t->k_end, j);
            for (int i = 0; tile_keys && i < x->n_rows; i++) {
                int64_t r = x->first_row + i;
                amx_row row = x->row[i];
                uint16_t range = range_mask(row.first, row.end, j), seen = range;
                float lanes[2][16], sum = t->row_sum[r];
                vf stage, s;
                if (x->l->parts == 2)
                    for (int n = 0; n < 16; n++)
                        if ((range >> n & 1) && ((x->rows->odd_q >> i & 1) || (odd_k >> n & 1)))
                            products[i * 16 + n] = exact_product(p, t, &row, j + n);
                s = score_lanes(p, t, &row, j, vf_load(products + i * 16), &seen, &stage);
                if (p->scores_stage == HEED_SCORES_BIASED)
                    range = seen;
                vf_store(lanes[0], vf_select(range, stage, vf_set1(-INFINITY)));
                /* In log2 units by the roundings of the first pass. */
                if (x->general)
                    s = vf_mul(s, vf_set1(AMX_LOG2_E));
                else
                    s = vf_mul(vf_load(products + i * 16), vf_set1(x->exponent_scale));
                s = vf_mul(exp2_lanes(vf_sub(s, vf_set1(t->row_max[r]))), vf_set1(1.0f / sum));
                vf_store(lanes[1], vf_select(sum == 0 ? 0 : seen, s, vf_set1(0)));
                for (int n = 0; n < 16; n++) {
                    if (!(tile_keys >> n & 1))
                        continue;
                    if (t->scores.data)
                        heed_store(HEED_F32, t->scores.data,
                                   row.head * t->scores.head_stride + row.q * t->scores.row_stride +
                                       (j + n) * t->scores.dim_stride,
                                   lanes[0][n]);
                    if (t->weights.data)
                        heed_store(HEED_F32, t->weights.data,
                                   row.head * t->weights.head_stride +
                                       row.q * t->weights.row_stride +
                                       (j + n) * t->weights.dim_stride,
                                   lanes[1][n]);
                }
            }
        }
    }
}

/* Is a block of the tile hidden from all rows of all heads? */
static int all_hidden(const heed_tile *t, int64_t block)
{
    for (int64_t head = 0; head < t->n_heads; head++)
        if (!t->mask_blocks ||
            t->mask_blocks[head * t->mask_block_stride + block] != HEED_BLOCK_NONE)
            return 0;
    return 1;
}

/* Points x at group g of the tile. */
static void choose_group(amx_run *x, char *scratch, int64_t g)
{
    const amx_layout *l = x->l;
    int64_t n_rows = x->t->n_heads * x->t->q_count - g * l->group;
    x->first_row = (int32_t)(g * l->group);
    x->n_rows = (int32_t)(n_rows < l->group ? n_rows : l->group);
    x->q = scratch + l->q_at + g * l->q_group_bytes;
    x->o = scratch + l->o_at + g * l->o_group_bytes;
    x->rows = (amx_rows *)(void *)(scratch + l->rows_at) + g;
    begin_group(x);
}

/* The units of the chunk that some row of the group sees. Returns whether there are any. */
static int units_of_group(const amx_run *x, int *unit, int *end)
{
    const heed_tile *t = x->t;
    int64_t low = x->some_first, high = x->some_end;
    if (t->flags & HEED_TILE_OUTPUTS) {
        low = t->k_first;
        high = t->k_end;
    }
    low = low > x->chunk ? low : x->chunk;
    if (high > x->chunk + x->l->chunk_blocks * AMX_BLOCK)
        high = x->chunk + x->l->chunk_blocks * AMX_BLOCK;
    *unit = (int)((low - x->chunk) / AMX_UNIT);
    *end = (int)((high - x->chunk + AMX_UNIT - 1) / AMX_UNIT);
    return low < high;
}

/* A group against the chunk whose blocks are packed, by itself. */
static void group_alone(amx_run *x, int unit, int end, int careful_to)
{
    if (x->n_rows < x->l->group) { /* rows that do not exist: any finite weights */
        int64_t keys = x->t->k_end - x->chunk, chunk_keys = x->l->chunk_blocks * AMX_BLOCK;
        keys = keys < chunk_keys ? keys : chunk_keys;
        memset(x->weights, 0, (size_t)((keys + AMX_UNIT - 1) / AMX_UNIT * 2048 * x->l->parts));
    }
    if (x->t->flags & HEED_TILE_OUTPUTS)
        write_outputs(x, unit, end);
    else
        run_chunk(x, unit, end, careful_to);
}

/* Can the whole of the group's part of the chunk go the resident path? */
static int is_resident(const amx_run *x, int unit, int end)
{
    if (x->l->group != 16 || x->rows->odd_q || end < unit + 2 || x->t->flags & HEED_TILE_OUTPUTS)
        return 0;
    for (int block = unit / AMX_BLOCK_UNITS; block * AMX_BLOCK_UNITS < end; block++)
        if (x->odd_blocks >> block & 1 || block_is(x, block, HEED_BLOCK_NONE))
            return 0;
    /* A fresh group at the start of a chunk has seen nothing. */
    return x->rows->fresh || state_of_rows(x) != ROWS_MIXED;
}

/* Points x at the first group from *g on that sees something of the chunk; groups that do not are left
 * on the way. Returns 0 where there is none. */
static int next_group(amx_run *x, char *scratch, int64_t *g, int64_t groups, int *unit, int *end)
{
    for (; *g < groups; ++*g) {
        choose_group(x, scratch, *g);
        if (units_of_group(x, unit, end))
            return 1;
        if (x->leaves)
            leave_group(x);
    }
    return 0;
}

/* Products of one unit more of the group after, beside O. */
static void resident_more(resident *r)
{
    const amx_run *y = r->after;
    const int unit = r->after_first + r->after_have;
    fast_unit f = {.unit = y->unit, .q = y->q, .k_next = k_tile(y, unit, 0, 0)};
    f.next = ring_scores(y, r->after_have++);
    for (int part = 0; part < 4; part++)
        resident_qk(&f, y->l->k_steps, part);
    resident_store(&f, 0);
    resident_store(&f, 1);
    if (!seen_by_all(y, unit))
        hide_keys(y, unit, f.next);
}

static void reset_rows(amx_rows *rows, int n)
{
    for (int i = 0; i < n; i += 16) {
        vf_store(rows->reference + i, vf_set1(AMX_UNSEEN));
        for (int k = 0; k < 16; k++)
            vf_store(rows->sum[i + k], vf_set1(0));
    }
}

/* A group and its units of the chunk; open: its rows begin here. */
typedef struct group_at {
    amx_run *x;
    int64_t g;
    int unit, end, open;
} group_at;

static int is_open(const amx_run *x)
{
    return x->rows->fresh || state_of_rows(x) == ROWS_UNSEEN;
}

/* Groups one after another on the resident path, from `now`, which has its first scores: until one
 * has no successor that can follow at once, or has to leave the path. *then is the next group, not
 * begun; returns whether there is one. */
static int resident_groups(resident *r, group_at *now, group_at *then, amx_run **spare,
                           char *scratch, int64_t groups)
{
    amx_rows saved;
    int status, to, more, follows;
    for (;;) {
        amx_run *x = now->x, *y = then->x;
        then->g = now->g + 1;
        more = next_group(y, scratch, &then->g, groups, &then->unit, &then->end);
        follows = more && is_resident(y, then->unit, then->end);
        y->second_set = !x->second_set;
        r->after = y;
        r->after_first = then->unit;
        r->after_have = r->after_want = 0;
        if (follows) {
            then->open = is_open(y);
            r->after_want = resident_first(then->unit, then->end, then->open);
        }
        if (!now->open)
            copy_rows(&saved, x->rows, x->n_rows);
        to = resident_slots(r, &status);
        if (status == 2) { /* O in memory is as it was */
            if (now->open)
                reset_rows(x->rows, x->l->group);
            else
                copy_rows(x->rows, &saved, x->n_rows);
            group_alone(x, now->unit, now->end, now->end);
            break;
        }
        if (status == 0 && follows) {
            const unsigned at = r->at + (unsigned)(now->end - now->unit);
            while (r->after_have < r->after_want)
                resident_more(r);
            if (!then->open || resident_references(y, r->after_want)) {
                r->before = x;
                r->before_end = now->end;
                r->x = y;
                r->at = at;
                r->first = then->unit;
                r->end = then->end;
                r->have = then->unit + r->after_want;
                *now = *then;
                then->x = *spare;
                *spare = x; /* it is still needed in the next group's first slots */
                continue;
            }
        }
        resident_end(r, to);
        if (status == 1)
            resident_raise(r, to);
        if (to < now->end)
            group_alone(x, to, now->end, 0);
        break;
    }
    if (now->x->leaves)
        leave_group(now->x);
    return more;
}

/* All groups against the chunk whose blocks are packed. Those that can follow each other do so without
 * a gap: the last slots of one have the first products of the next, whose first slots have the last
 * products of the one. */
static void groups_and_chunk(amx_run three[3], char *scratch, int64_t groups)
{
    group_at now = {.x = &three[0]}, then = {.x = &three[1]};
    amx_run *spare = &three[2];
    int more = next_group(now.x, scratch, &now.g, groups, &now.unit, &now.end);
    while (more) {
        amx_run *x = now.x;
        resident r = {.x = x, .first = now.unit, .end = now.end};
        group_at swap;
        int begun = 0;
        if (is_resident(x, now.unit, now.end)) {
            const int first = resident_first(now.unit, now.end, now.open = is_open(x));
            r.have = now.unit + first;
            *x->odd_scores = 0;
            resident_products(x, now.unit, r.have);
            begun = !now.open || resident_references(x, first);
        }
        if (begun) {
            more = resident_groups(&r, &now, &then, &spare, scratch, groups);
        } else {
            group_alone(x, now.unit, now.end, 0);
            if (x->leaves)
                leave_group(x);
            then.g = now.g + 1;
            more = next_group(then.x, scratch, &then.g, groups, &then.unit, &then.end);
        }
        swap = now;
        now = then;
        then = swap;
    }
}

heed_status AMX_NAME(prepare)(const void *state, const heed_problem *problem, const heed_tile *kv,
                              void *prepared)
{
    const amx_layout layout = amx_layout_of(problem);
    (void)state;
    pack_block(problem, kv, &layout, kv->k_first / AMX_BLOCK * AMX_BLOCK, prepared);
    return HEED_OK;
}

heed_status AMX_NAME(run_tile)(const void *state, const heed_problem *problem, heed_tile *tile,
                               void *scratch)
{
    const amx_layout layout = amx_layout_of(problem);
    const int64_t chunk_keys = layout.chunk_blocks * AMX_BLOCK;
    const int outputs = (tile->flags & HEED_TILE_OUTPUTS) != 0;
    char *base = scratch;
    int64_t n_rows = tile->n_heads * tile->q_count,
            groups = (n_rows + layout.group - 1) / layout.group;
    int64_t first_block = tile->k_first / AMX_BLOCK;
    amx_rows *rows = (amx_rows *)(void *)(base + layout.rows_at);
    const char *packed[AMX_CHUNK_BLOCKS] = {NULL};
    tile_unit unit;
    amx_run x = {.p = problem, .t = tile, .l = &layout, .unit = &unit, .packed = packed};
    amx_run three[3];
    uint32_t odd_scores = 0;
    (void)state;
    x.s = (float *)(void *)(base + layout.s_at);
    x.weights = base + layout.p_at;
    x.exponent_scale = problem->scale * AMX_LOG2_E;
    x.general = (problem->features & (HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_BIAS)) != 0 ||
                !(fabsf(x.exponent_scale) >= 0x1p-126f && fabsf(x.exponent_scale) < INFINITY);
    x.c = x.general ? 1 : x.exponent_scale;
    x.hidden = x.c > 0 ? -INFINITY : INFINITY;
    x.odd_scores = &odd_scores;
    for (int64_t g = 0; g < groups; g++) {
        rows[g].fresh = 1;
        rows[g].odd_q =
            pack_q(problem, tile, &layout, g, base + layout.q_at + g * layout.q_group_bytes);
        reset_rows(&rows[g], layout.group);
    }
    for (int i = 0; i < 3; i++)
        memcpy(&three[i], &x, offsetof(amx_run, row));
    tile_begin(&unit);
    for (x.chunk = tile->k_first / chunk_keys * chunk_keys; x.chunk < tile->k_end;
         x.chunk += chunk_keys) {
        uint32_t odd_blocks = 0;
        for (int b = 0; b < layout.chunk_blocks; b++) {
            int64_t start = x.chunk + b * AMX_BLOCK;
            if (start + AMX_BLOCK <= tile->k_first || start >= tile->k_end)
                continue;
            if (!outputs && all_hidden(tile, start / AMX_BLOCK - first_block))
                continue;
            if (tile->prepared) {
                x.packed[b] = (const char *)tile->prepared +
                              (start / AMX_BLOCK - first_block) * layout.block_bytes;
            } else {
                char *to = base + layout.packed_at + b * layout.block_bytes;
                pack_block(problem, tile, &layout, start, to);
                x.packed[b] = to;
            }
            for (int n = 0; n < AMX_BLOCK / 32; n++)
                if (header_of(&x, b)->odd_k[n] || header_of(&x, b)->odd_v[n])
                    odd_blocks |= 1u << b;
        }
        for (int i = 0; i < 3; i++) {
            three[i].chunk = x.chunk;
            three[i].odd_blocks = odd_blocks;
            three[i].leaves = x.chunk + chunk_keys >= tile->k_end && !outputs; /* O is still near */
        }
        groups_and_chunk(three, base, groups);
    }
    tile_end(&unit);
    for (int64_t g = 0; g < groups && tile->k_first >= tile->k_end && !outputs; g++) {
        choose_group(&x, base, g);
        leave_group(&x);
    }
    if (tile->flags & HEED_TILE_WHOLE && !outputs)
        tile->flags |= HEED_TILE_FINISHED;
    return HEED_OK;
}
