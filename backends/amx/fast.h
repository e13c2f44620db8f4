/*
 * Runs of whole blocks that every row of the group sees as they are: weights relative to the rows'
 * known references, with the softmax of one unit of 32 keys woven into the products of its
 * neighbours. Between every two rows of the softmax stand a part of Q K of the next unit and of P V
 * (the first 32 columns) of the one before, so that the tile unit and the vector ports work at once.
 */
#ifndef HEED_AMX_FAST_H
#define HEED_AMX_FAST_H

#include "careful.h"

/* Constants and state of a run, in registers for its length. */
typedef struct fast_state {
    vf c;
    vi table, top;
    float addend[AMX_GROUP];
} fast_state;

/* Row i of the unit whose scores are at s [2][32][16]. */
AMX_INLINE void fast_row(amx_run *x, fast_state *f, int unit, const float *s, int i)
{
    vf addend = vf_set1(f->addend[i]);
    vi fixed = fixed_of(vf_fma(vf_load(s + i * 16), f->c, addend),
                        vf_fma(vf_load(s + 512 + i * 16), f->c, addend));
    vi weights = weights_of(fixed, f->table);
    float *sum = x->rows->sum[i];
    f->top = vi_max16(f->top, fixed);
    vi_store(p_tile(x, unit, 0, i / 16) + i % 16 * 64, weights);
    vf_store(sum, vf_add_pairs(vf_load(sum), weights));
}

/* Part `at` of the products of Q with unit `unit`, to s [2][32][16]. steps is a constant. There are
 * 4 * steps parts; the two halves are stored by fast_store. */
AMX_INLINE void fast_qk(amx_run *x, int unit, const int steps, const int at)
{
    tile_unit *u = x->unit;
    const int half = at / (2 * steps), step = at / 2 % steps;
    (void)u;
    if (at % 2 == 0) {
        if (step == 0) {
            tile_zero(u, 4);
            tile_zero(u, 5);
        }
        tile_load(u, 6, k_tile(x, unit, half, step), 64);
        tile_load(u, 7, q_tile(x, 0, step), 64);
        tile_product(u, 4, 7, 6);
    } else {
        tile_load(u, 7, q_tile(x, 1, step), 64);
        tile_product(u, 5, 7, 6);
    }
}

AMX_INLINE void fast_store(amx_run *x, float *s)
{
    tile_unit *u = x->unit;
    (void)u;
    (void)x;
    tile_store(u, 4, s, 64);
    tile_store(u, 5, s + 256, 64);
}

/* Product `at` of 4 of the weights of a unit with the first 32 columns. 1 and 3 use what 0 and 2
 * left in register 6. */
AMX_INLINE void fast_pv(amx_run *x, int unit, const int at)
{
    tile_unit *u = x->unit;
    (void)u;
    if (at % 2 == 0)
        tile_load(u, 6, v_tile(x, unit, 0, 0) + at / 2 * 1024, 64);
    tile_load(u, 7, p_tile(x, unit, 0, at % 2), 64);
    if (at == 0)
        tile_product(u, 0, 7, 6);
    else if (at == 1)
        tile_product(u, 2, 7, 6);
    else if (at == 2)
        tile_product(u, 1, 7, 6);
    else
        tile_product(u, 3, 7, 6);
}

/* Operation `at` of a unit's list: Q K of the first half, two of P V, store, Q K of the second half,
 * one of P V, store, the last of P V. A store stands apart from the last product into its tile. */
AMX_INLINE void fast_op(amx_run *x, int unit, float *next, const int steps, const int qk,
                        const int pv, const int at)
{
    const int half = 2 * steps;
    if (at < half) {
        if (qk)
            fast_qk(x, unit + 1, steps, at);
    } else if (at < half + 2) {
        if (pv)
            fast_pv(x, unit - 1, at - half);
    } else if (at == half + 2) {
        if (qk)
            fast_store(x, next);
    } else if (at < 2 * half + 3) {
        if (qk)
            fast_qk(x, unit + 1, steps, at - 3);
    } else if (at == 2 * half + 3) {
        if (pv)
            fast_pv(x, unit - 1, 2);
    } else if (at == 2 * half + 4) {
        if (qk)
            fast_store(x, next + 512);
    } else if (pv) {
        fast_pv(x, unit - 1, 3);
    }
}

#define FAST_SLOT(n)                                                                               \
    fast_row(x, f, unit, now, 2 * (n));                                                            \
    fast_row(x, f, unit, now, 2 * (n) + 1);                                                        \
    if ((n) * ops / 16 < ((n) + 1) * ops / 16)                                                     \
        fast_op(x, unit, next, steps, qk, pv, (n) * ops / 16);                                     \
    if ((n) * ops / 16 + 1 < ((n) + 1) * ops / 16)                                                 \
        fast_op(x, unit, next, steps, qk, pv, (n) * ops / 16 + 1);

/* Softmax of `unit` with Q K of the next (qk) and P V of the one before (pv) woven in. */
AMX_INLINE void fast_unit(amx_run *x, fast_state *f, int unit, const int steps, const int qk,
                          const int pv)
{
    const float *now = x->s + unit % 2 * 1024;
    float *next = x->s + (unit + 1) % 2 * 1024;
    const int ops = 4 * steps + 6;
    FAST_SLOT(0)
    FAST_SLOT(1)
    FAST_SLOT(2)
    FAST_SLOT(3)
    FAST_SLOT(4)
    FAST_SLOT(5)
    FAST_SLOT(6)
    FAST_SLOT(7)
    FAST_SLOT(8)
    FAST_SLOT(9)
    FAST_SLOT(10)
    FAST_SLOT(11)
    FAST_SLOT(12)
    FAST_SLOT(13)
    FAST_SLOT(14)
    FAST_SLOT(15)
}

/* At a block's end: 0 to go on, 1 if a reference may have to be raised, 2 if a weight may be wrong. */
static inline int fast_check(const fast_state *f)
{
    return vi_halves_from(f->top, AMX_TOO_LARGE) ? 2 : vi_halves_from(f->top, AMX_RAISE_FIXED) != 0;
}

/* Units [unit, end), steps constant; returns fast_check, and in *done where it stopped: at `end` or
 * at the end of the block that it tells of. */
AMX_INLINE int fast_units(amx_run *x, fast_state *f, int unit, int end, const int steps, int *done)
{
    int status = 0;
    products_with_k(x, unit, 0, x->s + unit % 2 * 1024);
    products_with_k(x, unit, 1, x->s + unit % 2 * 1024 + 512);
    fast_unit(x, f, unit, steps, 1, 0);
    for (unit++; unit < end - 1; unit++) {
        fast_unit(x, f, unit, steps, 1, 1);
        if (unit % AMX_BLOCK_UNITS == AMX_BLOCK_UNITS - 1 && (status = fast_check(f)) != 0)
            break;
    }
    if (!status) {
        fast_unit(x, f, unit, steps, 0, 1);
        status = fast_check(f);
    }
    x->live_to = unit;
    *done = unit + 1;
    return status;
}

/* The same for any number of steps and rows, one after another: with so many dims the products take
 * most of the time anyway. */
static int plain_units(amx_run *x, fast_state *f, int unit, int end, int *done)
{
    int status = 0;
    for (; unit < end && !status; unit++) {
        products_with_k(x, unit, 0, x->s);
        products_with_k(x, unit, 1, x->s + 512);
        for (int i = 0; i < x->n_rows; i++)
            fast_row(x, f, unit, x->s, i);
        if (unit % AMX_BLOCK_UNITS == AMX_BLOCK_UNITS - 1)
            status = fast_check(f);
    }
    *done = unit;
    return status;
}

/* Works on whole blocks from `unit` on; returns the unit that it has come to. Where a score turns
 * out to be too far above its row's reference it restores the sums, returns -1 and leaves O and the
 * weights to be made again from x->from. */
static int fast_blocks(amx_run *x, int unit, int end)
{
    fast_state f = {.c = vf_set1(x->exponent_scale), .table = vi_load(exp2_table), .top = vi_zero()};
    int status, done;
    for (int i = 0; i < AMX_GROUP; i++)
        f.addend[i] = fixed_addend(i < x->n_rows ? x->rows->reference[i] : 0);
    if (x->n_rows <= 16 || x->l->k_steps > 4) {
        status = plain_units(x, &f, unit, end, &done);
    } else {
        if (!x->live) {
            load_o(x, 0);
            x->live_to = x->from;
            x->live = 1;
        }
        products_with_v(x, 0, x->live_to, unit);
        x->live_to = unit;
        status = x->l->k_steps == 1   ? fast_units(x, &f, unit, end, 1, &done)
                 : x->l->k_steps == 2 ? fast_units(x, &f, unit, end, 2, &done)
                 : x->l->k_steps == 3 ? fast_units(x, &f, unit, end, 3, &done)
                                      : fast_units(x, &f, unit, end, 4, &done);
    }
    if (status == 2)
        return -1;
    if (status == 1)
        raise_references(x, done - AMX_BLOCK_UNITS, done);
    return done;
}

#endif
