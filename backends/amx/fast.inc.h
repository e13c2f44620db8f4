/*
 * The fast path: runs of blocks without odd values, for rows that either all have a reference or
 * all begin here. The softmax of one unit of 32 keys is woven into the products of a later one:
 * after every two rows (a slot) comes a part of Q K of that unit, so that the tile unit and the
 * vector ports work at the same time. Products with keys that are hidden, by the causal range, a
 * window or the bool mask, are overwritten. Softcap, ALiBi and bias are applied between two units.
 */
#ifndef HEED_AMX_FAST_H
#define HEED_AMX_FAST_H

#include "careful.inc.h"

/* One unit: addresses and constants, so that nothing is computed between the tile operations. */
typedef struct fast_unit {
    const float *now;                /* its scores, [2][rows of a group][16] */
    float *next;                     /* where those of the next go */
    char *weights;                   /* [2][16] rows of 32 weights */
    float *sums;                     /* [32][16] */
    const float *addends;            /* [32] */
    const char *q, *k_next;          /* tiles of the group; K of the next unit */
    const char *p_before, *v_before; /* weights and V of the unit before (fast_resident.inc.h) */
    tile_unit *unit;
    float c;
    vi top; /* largest fixed point so far */
} fast_unit;

/* Weights of row i and 32 keys. */
AMX_INLINE vi fast_weights(const fast_unit *f, vf c, vi table, vi *top, int i, const int half)
{
    vf addend = v_set1(f->addends[i]);
    vi fixed = fixed_of(v_fma(v_load(f->now + i * 16), c, addend),
                        v_fma(v_load(f->now + half + i * 16), c, addend));
    vi weights = weights_of(fixed, table);
    *top = vi_max16(*top, fixed);
    vi_store(f->weights + i * 64, weights);
    return weights;
}

/* The same, added to the row's sum. */
AMX_INLINE void fast_row(const fast_unit *f, vf c, vi table, vi *top, int i, const int half)
{
    const vi weights = fast_weights(f, c, table, top, i, half);
    v_store(f->sums + i * 16, v_add_pairs(v_load(f->sums + i * 16), weights));
}

/*
 * Q times K of the next unit in parts, one after each slot of two rows. Tile loads and stores take
 * front-end time from the softmax and products do not, so it is loads that are saved: with up to
 * two steps of 32 dims Q stays in registers 0 to 3 ([row tile][step]); with more, 2 x 2 products
 * share their operands.
 */
AMX_INLINE void fast_op_resident(const fast_unit *f, const int steps, const int slot)
{
    tile_unit *u = f->unit;
    const int half = slot >= 7, at = slot - 7 * half;
    const char *k = f->k_next + half * steps * 1024;
    (void)u;
    if (at == 0) {
        tile_zero(u, 4);
        tile_zero(u, 5);
        tile_load(u, 6, k, 64);
        tile_product(u, 4, 0, 6);
    } else if (at == 1) {
        tile_product(u, 5, 2, 6);
    } else if (at == 2 && steps == 2) {
        tile_load(u, 7, k + 1024, 64);
        tile_product(u, 4, 1, 7);
    } else if (at == 3 && steps == 2) {
        tile_product(u, 5, 3, 7);
    } else if (at == 6) { /* well after the last product: a store would wait for it */
        tile_store(u, 4, f->next + half * 512, 64);
        tile_store(u, 5, f->next + half * 512 + 256, 64);
    }
}

AMX_INLINE void fast_op_shared(const fast_unit *f, const int steps, const int at)
{
    tile_unit *u = f->unit;
    const int step = at / 4;
    (void)u;
    if (at == 0) {
        TILE_ZERO_4(u)
    }
    if (at == 4 * steps) {
        tile_store(u, 0, f->next, 64);
        tile_store(u, 1, f->next + 256, 64);
    } else if (at == 4 * steps + 1) {
        tile_store(u, 2, f->next + 512, 64);
        tile_store(u, 3, f->next + 768, 64);
    } else if (at % 4 == 0) {
        tile_load(u, 4, f->q + step * 1024, 64);
        tile_load(u, 6, f->k_next + step * 1024, 64);
        tile_product(u, 0, 4, 6);
    } else if (at % 4 == 1) {
        tile_load(u, 5, f->q + (steps + step) * 1024, 64);
        tile_product(u, 1, 5, 6);
    } else if (at % 4 == 2) {
        tile_load(u, 7, f->k_next + (steps + step) * 1024, 64);
        tile_product(u, 2, 4, 7);
    } else {
        tile_product(u, 3, 5, 7);
    }
}

/* The tile operations that follow slot `slot` of 16. */
AMX_INLINE void fast_op(const fast_unit *f, const int steps, const int slot)
{
    const int ops = 4 * steps;
    if (steps == 0)
        return;
    if (steps <= 2) {
        if (slot < 14)
            fast_op_resident(f, steps, slot);
        return;
    }
    if (slot >= 14) {
        fast_op_shared(f, steps, ops + slot - 14);
        return;
    }
    if (slot >= 12)
        return;
    fast_op_shared(f, steps, slot * ops / 12);
    if (slot * ops / 12 + 1 < (slot + 1) * ops / 12)
        fast_op_shared(f, steps, slot * ops / 12 + 1);
}

#define EACH_OF_16(each)                                                                           \
    each(0) each(1) each(2) each(3) each(4) each(5) each(6) each(7) each(8) each(9) each(10)       \
        each(11) each(12) each(13) each(14) each(15)
#define FAST_SLOT(n)                                                                               \
    fast_row(f, c, table, &top, 2 * (n), 512);                                                     \
    fast_row(f, c, table, &top, 2 * (n) + 1, 512);                                                 \
    fast_op(f, steps, n);

/* Softmax of a unit with Q K of the next unit woven in, or by itself where steps is 0. */
AMX_INLINE void fast_woven(fast_unit *state, const int steps)
{
    const fast_unit copy = *state, *const f = &copy; /* a local, which no store can change */
    const vf c = v_set1(f->c);
    const vi table = vi_load(exp2_table);
    vi top = f->top;
    EACH_OF_16(FAST_SLOT)
    state->top = top;
}

#define FAST_KIND(steps)                                                                           \
    static void fast_kind_##steps(fast_unit *f)                                                    \
    {                                                                                              \
        fast_woven(f, steps);                                                                      \
    }
FAST_KIND(0)
FAST_KIND(1)
FAST_KIND(2)
FAST_KIND(3)
FAST_KIND(4)

static void fast_soft(fast_unit *f, int n_rows)
{
    for (int i = 0; i < n_rows; i++)
        fast_row(f, v_set1(f->c), vi_load(exp2_table), &f->top, i, 512);
}

typedef void fast_kind(fast_unit *f);
static fast_kind *const fast_kinds[] = {fast_kind_0, fast_kind_1, fast_kind_2, fast_kind_3,
                                        fast_kind_4};

/* Do all rows of the group see the whole unit, with no more to apply than a factor? */
AMX_INLINE int seen_by_all(const amx_run *x, int unit)
{
    int64_t j = x->chunk + unit * AMX_UNIT;
    return !x->general && !x->t->mask_blocks && x->all_first <= j && x->all_end >= j + AMX_UNIT;
}

/* Is softcap all that is applied to products? Nothing but their causal range and window may hide
 * keys then. */
static inline int only_capped(const amx_run *x)
{
    return x->p->features & HEED_HAS_SOFTCAP && !has_mask(x->t) && !x->t->alibi_slope &&
           !x->t->bias.data;
}

/* general_scores where only_capped: no score is a NaN then, as no product is (amx_header). */
static void capped_scores(const amx_run *x, int unit, float *s)
{
    const int64_t j = x->chunk + unit * AMX_UNIT, apart = x->l->group * 16;
    const vf hidden = v_set1(-INFINITY), log2_e = v_set1(AMX_LOG2_E);
    const int ranged = x->all_first > j || x->all_end < j + AMX_UNIT;
    for (int i = 0; i < x->n_rows; i++, s += 16) {
        vf a = v_mul(capped(x->p, v_load(s)), log2_e);
        vf b = v_mul(capped(x->p, v_load(s + apart)), log2_e);
        if (ranged) {
            const uint32_t seen = range_mask32(x->row[i].first, x->row[i].end, j);
            a = v_select((uint16_t)seen, a, hidden);
            b = v_select((uint16_t)(seen >> 16), b, hidden);
        }
        v_store(s, a);
        v_store(s + apart, b);
    }
}

/* Turns the products of a unit into scores in log2 units, with the roundings of transform_row.
 * Those of hidden keys become -inf. */
static void general_scores(const amx_run *x, int unit, float *s)
{
    const int64_t j = x->chunk + unit * AMX_UNIT;
    const heed_tile *t = x->t;
    const uint32_t type = x->p->bias_type;
    /* There is nothing but a bias, whose elements lie side by side. */
    const int usual = !(x->p->features & HEED_HAS_SOFTCAP) && !has_mask(t) && !t->alibi_slope &&
                      j >= t->mask_from && t->bias.data && t->bias.dim_stride == 1 &&
                      x->all_first <= j && x->all_end >= j + AMX_UNIT;
    const vf scale = v_set1(x->p->scale), hidden = v_set1(-INFINITY);
    unsigned odd = 0;
    for (int i = 0; i < x->n_rows; i++) {
        const amx_row *row = &x->row[i];
        float *p = s + i * 16;
        int64_t at = row->head * t->bias.head_stride + row->q * t->bias.row_stride + j;
        const vf slope = v_set1(usual && t->bias_slope ? t->bias_slope[row->head] : 1.0f);
        for (int half = 0; half < 2; half++, p += x->l->group * 16, at += 16) {
            uint16_t mask = range_mask(row->first, row->end, j + half * 16);
            vf y;
            if (usual) { /* as score_lanes */
                const char *data = (const char *)t->bias.data + at * (type == HEED_F32 ? 4 : 2);
                vf bias = type == HEED_F32    ? v_load((const float *)(const void *)data)
                          : type == HEED_BF16 ? v_load_bf16_some(data, 0xffff)
                                              : v_load_f16_some(data, 0xffff);
                mask = (uint16_t)~m_equal(bias, hidden);
                y = v_fma(bias, slope, v_mul(v_load(p), scale));
            } else {
                y = score_lanes(x->p, t, row, j + half * 16, v_load(p), &mask, NULL);
            }
            y = v_select(mask, v_to_log2(y), hidden);
            odd |= (unsigned)m_not_below_inf(y);
            v_store(p, y);
        }
    }
    if (odd)
        *x->odd_scores = 1;
}

/* Hides the keys of a unit that rows may not see: at the edges of their ranges, and by the mask.
 * With x->general, general_scores does so along with everything else. */
static void hide_keys(const amx_run *x, int unit, float *s)
{
    const int64_t j = x->chunk + unit * AMX_UNIT;
    const heed_rows *m = &x->t->mask;
    const int masked = !block_is(x, unit / AMX_BLOCK_UNITS, HEED_BLOCK_ALL);
    const int ranged = x->all_first > j || x->all_end < j + AMX_UNIT;
    const int bytes =
        m->data && m->dim_stride == 1 && j >= x->t->mask_from && !heed_has_lists(x->t);
    const vf hidden = v_set1(x->hidden);
    if (x->general) {
        if (only_capped(x))
            capped_scores(x, unit, s);
        else
            general_scores(x, unit, s);
        return;
    }
    if (!masked && !ranged)
        return;
    for (int i = 0; i < x->n_rows; i++) {
        const amx_row *row = &x->row[i];
        float *p = s + i * 16;
        uint32_t seen = ranged ? range_mask32(row->first, row->end, j) : ~0u;
        if (masked && bytes)
            seen = bytes_set_of32((const char *)m->data + row->head * m->head_stride +
                                      row->q * m->row_stride + j,
                                  seen);
        else if (masked)
            seen = mask_lanes(x->p, x->t, row, j, (uint16_t)seen) |
                   (uint32_t)mask_lanes(x->p, x->t, row, j + 16, (uint16_t)(seen >> 16)) << 16;
        if (seen != ~0u) { /* no load: it would wait for what the tile unit stored */
            v_store_some(p, (uint16_t)~seen, hidden);
            v_store_some(p + x->l->group * 16, (uint16_t)(~seen >> 16), hidden);
        }
    }
}

/* Scores of a run's first units have places of their own; later units take turns in the few places
 * behind those, so that little of it is pushed out of L1 by K and V before it is read again. */
#define FAST_AHEAD 1 /* most units whose scores are computed before their turn */
_Static_assert((AMX_BLOCK_UNITS + FAST_AHEAD + 1) * AMX_GROUP * AMX_UNIT * 4 <= AMX_SCORES_BYTES,
               "scores of a run on the fast path");

static inline float *scores_at(const amx_run *x, int unit)
{
    const int n = unit - x->run_first;
    const int place = n < AMX_BLOCK_UNITS ? n : AMX_BLOCK_UNITS + n % (FAST_AHEAD + 1);
    return x->s + place * x->l->group * 32;
}

static void fast_products(const amx_run *x, int unit)
{
    float *s = scores_at(x, unit);
    products_with_k(x, unit, s);
    hide_keys(x, unit, s);
}

/* Sets the first references of all rows from the scores of units [unit, end) of one block, as
 * careful_block would. Returns 0 if a row has seen nothing or its reference is too large for this
 * path; some rows may have their references by then. */
static int open_references(const amx_run *x, int unit, int end)
{
    const vf c = v_set1(x->c);
    for (int tile = 0; tile < 32; tile += 16) {
        vi rows[16];
        vf top = v_set1(-INFINITY);
        uint16_t exist = range_mask(0, x->n_rows, tile);
        if (!exist)
            break;
        for (int i = 0; i < 16; i++) {
            vf most = v_set1(-INFINITY);
            for (int u = unit; u < end; u++) {
                const float *s = scores_at(x, u) + (tile + i) * 16;
                most = v_max(v_mul(v_load(s), c), most);
                most = v_max(v_mul(v_load(s + x->l->group * 16), c), most);
            }
            rows[i] = v_bits(most);
        }
        vi_transpose(rows);
        for (int i = 0; i < 16; i++)
            top = v_max(v_from_bits(rows[i]), top);
        top = v_add(v_ceil(top), v_set1(AMX_MARGIN));
        if (m_within(top, AMX_ONE_STEP, exist) != exist)
            return 0;
        v_store_some(x->rows->reference + tile, exist, top);
    }
    return 1;
}

/* What the largest fixed-point value of a block means. 1: a reference may have to be raised; 2: a
 * weight may be wrong; 0: neither. */
static inline int fast_check(vi top)
{
    return vi_halves_from(top, AMX_TOO_LARGE) ? 2 : vi_halves_from(top, AMX_RAISE_FIXED) != 0;
}

/*
 * Products with K, weights and sums of units [unit, end); open says that the rows begin here.
 * Returns the unit that it has come to; -1 where a score is too far above its row's reference or
 * not finite, which spoils the sums; -2 where the rows cannot begin here; the sums are unchanged.
 */
static int fast_units(amx_run *x, int unit, int end, int open)
{
    float addends[AMX_GROUP];
    const int steps = x->l->k_steps, woven = x->n_rows > 16 && steps <= 4;
    int have, status = 0, first = unit; /* have: the first unit without products */
    fast_unit f = {.sums = x->rows->sum[0],
                   .addends = addends,
                   .q = x->q,
                   .unit = x->unit,
                   .c = x->c,
                   .top = vi_zero()};
    *x->odd_scores = 0;
    x->run_first = unit;
    fast_products(x, unit);
    have = unit + 1;
    if (open) {
        for (; have < end && have % AMX_BLOCK_UNITS != 0; have++)
            fast_products(x, have);
        if (!open_references(x, unit, have))
            return -2;
    } else if (have < end) {
        fast_products(x, have++);
    }
    for (int i = 0; i < AMX_GROUP; i++)
        addends[i] = fixed_addend(i < x->n_rows ? x->rows->reference[i] : AMX_NO_ROW);
    if (woven && steps <= 2)
        load_q(x);
    for (; unit < end && !status; unit++) {
        int next = have < end && have <= unit + FAST_AHEAD;
        f.now = scores_at(x, unit);
        f.next = scores_at(x, have);
        f.weights = p_tile(x, unit, 0, 0);
        if (next)
            f.k_next = k_tile(x, have, 0, 0);
        if (woven)
            fast_kinds[next ? steps : 0](&f);
        else
            fast_soft(&f, x->n_rows);
        if (x->exact)
            add_exact_unit(x, f.now);
        if (next) {
            if (woven)
                hide_keys(x, have, f.next);
            else
                fast_products(x, have);
            have++;
        }
        if (unit % AMX_BLOCK_UNITS == AMX_BLOCK_UNITS - 1 || unit + 1 == end)
            status = *x->odd_scores ? 2 : fast_check(f.top);
    }
    if (status == 2)
        return -1;
    if (status == 1) {
        int block = (unit - 1) / AMX_BLOCK_UNITS * AMX_BLOCK_UNITS;
        block = block > first ? block : first;
        raise_references(x, block, unit, block, AMX_CHUNK_BLOCKS * AMX_BLOCK_UNITS);
    }
    return unit;
}

#endif
