/*
 * The fast path of heads of up to 64 dims (fast.h has the others): groups of 16 rows, whose O stays in
 * four registers while keys go by. One slot is 32 keys: between the rows of their softmax stand the
 * products Q K of the unit after the next and P V of the one before the last, so that the tile unit and the
 * vector ports work at once and a product's result is looked at long after it was begun.
 */
#ifndef HEED_AMX_FAST_RESIDENT_H
#define HEED_AMX_FAST_RESIDENT_H

#include "fast.h"

/* Registers: 0-3 O ([32 columns][column tile]), 4 and 5 S of the two halves, 6 K or V, 7 Q or P. */

/* Q K of one unit in four parts. */
AMX_INLINE void resident_qk(const fast_unit *f, const int steps, const int part)
{
    tile_unit *u = f->unit;
    const int step = part / 2;
    (void)u;
    if (step >= steps)
        return;
    if (part % 2 == 0) {
        tile_load(u, 7, f->q + step * 1024, 64);
        tile_load(u, 6, f->k_next + step * 1024, 64);
        if (step == 0)
            tile_zero(u, 4);
        tile_product(u, 4, 7, 6);
    } else {
        tile_load(u, 6, f->k_next + (steps + step) * 1024, 64);
        if (step == 0)
            tile_zero(u, 5);
        tile_product(u, 5, 7, 6);
    }
}

/* P V of one unit in four parts. */
AMX_INLINE void resident_pv(const fast_unit *f, const int pairs, const int part)
{
    tile_unit *u = f->unit;
    (void)u;
    if (part >= 2 * pairs)
        return;
    if (part == 0)
        tile_load(u, 7, f->p_before, 64);
    tile_load(u, 6, f->v_before + part * 1024, 64);
    if (part == 0)
        tile_product(u, 0, 7, 6);
    else if (part == 1)
        tile_product(u, 1, 7, 6);
    else if (part == 2)
        tile_product(u, 2, 7, 6);
    else
        tile_product(u, 3, 7, 6);
}

/* Both halves of S, [2][16 rows][16]. Scores and weights of adjacent units lie so that no load has the
 * low 12 bits of a store shortly before it. */
AMX_INLINE void resident_store(const fast_unit *f, const int half)
{
    tile_unit *u = f->unit;
    (void)u;
    if (half == 0)
        tile_store(u, 4, f->next, 64);
    else
        tile_store(u, 5, f->next + 256, 64);
}

/* What stands before row `row` of the softmax. */
AMX_INLINE void resident_op(const fast_unit *f, const int steps, const int next, const int before,
                            const int row)
{
    if (next && row < 8 && row % 2 == 0)
        resident_qk(f, steps, row / 2);
    if (before && row >= 8 && row % 2 == 0)
        resident_pv(f, steps, (row - 8) / 2);
    if (next && row == 13)
        resident_store(f, 0);
    if (next && row == 15)
        resident_store(f, 1);
}

#define RESIDENT_ROW(n)                                                                            \
    resident_op(f, steps, next, before, n);                                                        \
    fast_row(f, c, table, &top, n, 256);

/* One slot. next: with Q K of a later unit, before: with P V of an earlier one. */
AMX_INLINE void resident_slot(fast_unit *state, const int steps, const int next, const int before)
{
    const fast_unit copy = *state, *const f = &copy; /* no store can change what is local */
    const vf c = vf_set1(f->c);
    const vi table = vi_load(exp2_table);
    vi top = f->top;
    RESIDENT_ROW(0)
    RESIDENT_ROW(1)
    RESIDENT_ROW(2)
    RESIDENT_ROW(3)
    RESIDENT_ROW(4)
    RESIDENT_ROW(5)
    RESIDENT_ROW(6)
    RESIDENT_ROW(7)
    RESIDENT_ROW(8)
    RESIDENT_ROW(9)
    RESIDENT_ROW(10)
    RESIDENT_ROW(11)
    RESIDENT_ROW(12)
    RESIDENT_ROW(13)
    RESIDENT_ROW(14)
    RESIDENT_ROW(15)
    state->top = top;
}

#define RESIDENT_KIND(steps, next, before)                                                         \
    static void resident_##steps##next##before(fast_unit *f)                                       \
    {                                                                                              \
        resident_slot(f, steps, next, before);                                                     \
    }
RESIDENT_KIND(1, 0, 0)
RESIDENT_KIND(1, 0, 1)
RESIDENT_KIND(1, 1, 0)
RESIDENT_KIND(1, 1, 1)
RESIDENT_KIND(2, 0, 0)
RESIDENT_KIND(2, 0, 1)
RESIDENT_KIND(2, 1, 0)
RESIDENT_KIND(2, 1, 1)

static fast_kind *const resident_kinds[2][2][2] = {
    {{resident_100, resident_101}, {resident_110, resident_111}},
    {{resident_200, resident_201}, {resident_210, resident_211}}};

/* Q K of up to four units at once, before O is loaded: a tile is stored when the next have begun. */
#define RESIDENT_OPEN(s0, s1, n)                                                                   \
    if (unit + (n) < end) {                                                                        \
        const char *k = k_tile(x, unit + (n), 0, 0);                                               \
        tile_load(u, 7, x->q, 64);                                                                 \
        tile_load(u, 6, k, 64);                                                                    \
        tile_zero(u, s0);                                                                          \
        tile_zero(u, s1);                                                                          \
        tile_product(u, s0, 7, 6);                                                                 \
        tile_load(u, 6, k + steps * 1024, 64);                                                     \
        tile_product(u, s1, 7, 6);                                                                 \
        if (steps > 1) {                                                                           \
            tile_load(u, 7, x->q + 1024, 64);                                                      \
            tile_load(u, 6, k + 1024, 64);                                                         \
            tile_product(u, s0, 7, 6);                                                             \
            tile_load(u, 6, k + 3072, 64);                                                         \
            tile_product(u, s1, 7, 6);                                                             \
        }                                                                                          \
    }
#define RESIDENT_OPENED(s0, s1, n)                                                                 \
    if (unit + (n) < end) {                                                                        \
        tile_store(u, s0, scores_at(x, unit + (n)), 64);                                           \
        tile_store(u, s1, scores_at(x, unit + (n)) + 256, 64);                                     \
    }

static void resident_products(const amx_run *x, int unit, int end)
{
    tile_unit *u = x->unit;
    const int steps = x->l->k_steps;
    (void)u;
    RESIDENT_OPEN(0, 1, 0)
    RESIDENT_OPEN(2, 3, 1)
    RESIDENT_OPENED(0, 1, 0)
    RESIDENT_OPEN(4, 5, 2)
    RESIDENT_OPENED(2, 3, 1)
    RESIDENT_OPEN(0, 1, 3)
    RESIDENT_OPENED(4, 5, 2)
    RESIDENT_OPENED(0, 1, 3)
    for (; unit < end; unit++)
        hide_keys(x, unit, scores_at(x, unit));
}

static inline void resident_load_o(const amx_run *x)
{
    tile_unit *u = x->unit;
    (void)u;
    if (x->rows->fresh) {
        tile_zero(u, 0);
        tile_zero(u, 1);
        tile_zero(u, 2);
        tile_zero(u, 3);
        return;
    }
    tile_load(u, 0, o_tile(x, 0, 0, 0), 64);
    tile_load(u, 1, o_tile(x, 0, 0, 1), 64);
    if (x->l->v_pairs > 1) {
        tile_load(u, 2, o_tile(x, 1, 0, 0), 64);
        tile_load(u, 3, o_tile(x, 1, 0, 1), 64);
    }
}

static inline void resident_store_o(const amx_run *x)
{
    tile_unit *u = x->unit;
    (void)u;
    tile_store(u, 0, o_tile(x, 0, 0, 0), 64);
    tile_store(u, 1, o_tile(x, 0, 0, 1), 64);
    if (x->l->v_pairs > 1) {
        tile_store(u, 2, o_tile(x, 1, 0, 0), 64);
        tile_store(u, 3, o_tile(x, 1, 0, 1), 64);
    }
}

static inline void resident_before(const amx_run *x, fast_unit *f, int unit)
{
    f->p_before = p_tile(x, unit % AMX_BLOCK_UNITS, 0, 0);
    f->v_before = v_tile(x, unit, 0, 0);
}

/* As fast_units, but O comes along: after -1 and -2 it is in memory as it was. Weights of one block are
 * kept, so that the lines written stay in L1: the tile unit loads them only when they are there. */
static int resident_units(amx_run *x, int unit, int end, int open)
{
    float addends[16];
    const int steps = x->l->k_steps, first = unit;
    int have, status = 0, ready;
    fast_unit f = {.sums = x->rows->sum[0],
                   .addends = addends,
                   .q = x->q,
                   .unit = x->unit,
                   .c = x->exponent_scale,
                   .top = vi_zero()};
    flush_o(x, unit);
    ready = open ? (unit / AMX_BLOCK_UNITS + 1) * AMX_BLOCK_UNITS : unit + 2;
    have = ready < end ? ready : end;
    resident_products(x, unit, have);
    if (open && !open_references(x, unit, have))
        return -2;
    /* Rows that do not exist have scores of 0, and small weights. */
    for (int i = 0; i < 16; i++)
        addends[i] = fixed_addend(i < x->n_rows ? x->rows->reference[i] : 64);
    resident_load_o(x);
    for (; unit < end && !status; unit++) {
        const int next = have < end && have <= unit + 2;
        f.now = scores_at(x, unit);
        f.weights = p_tile(x, unit % AMX_BLOCK_UNITS, 0, 0);
        if (next) {
            f.next = scores_at(x, have);
            f.k_next = k_tile(x, have, 0, 0);
        }
        if (unit >= first + 2)
            resident_before(x, &f, unit - 2);
        resident_kinds[steps - 1][next][unit >= first + 2](&f);
        if (next) {
            if (!seen_by_all(x, have))
                hide_keys(x, have, f.next);
            have++;
        }
        if (unit % AMX_BLOCK_UNITS == AMX_BLOCK_UNITS - 1 || unit + 1 == end)
            status = fast_check(f.top);
    }
    if (status == 2)
        return -1;
    for (int last = unit - 2 < first ? first : unit - 2; last < unit; last++) {
        resident_before(x, &f, last);
        for (int part = 0; part < 4; part++)
            resident_pv(&f, steps, part);
    }
    resident_store_o(x);
    x->rows->fresh = 0;
    x->from = unit;
    if (status == 1) {
        int block = (unit - 1) / AMX_BLOCK_UNITS * AMX_BLOCK_UNITS;
        block = block > first ? block : first;
        raise_references(x, block, unit, block % AMX_BLOCK_UNITS);
    }
    return unit;
}

#endif
