/*
 * The sums of a group's rows: kept, scaled, saved and put back.
 *
 * A row is divided by the sum of its rounded weights, which multiply V: one that sees a single key
 * then has that key's value exactly. lse and weights are to have nothing of that rounding (5.2e-3
 * of a weight): where the call has one of them, a second sum is kept of weights in f32, between
 * the slots of the fast paths. The state of a row that core merges with others has it too,
 * whatever the outputs are, so that they change no bit of out: as a part of row_max (finish.inc.h).
 */
#ifndef HEED_AMX_SUMS_H
#define HEED_AMX_SUMS_H

#include "run.inc.h"

static inline int keeps_exact(const heed_problem *p, const heed_tile *t, const amx_layout *l)
{
    /* The sums of split accuracy are of weights in f32. */
    return l->parts == 1 && (!(t->flags & HEED_TILE_WHOLE) ||
                             (p->features & (HEED_HAS_LSE | HEED_HAS_WEIGHTS)) != 0);
}

static void reset_rows(const amx_run *x, amx_rows *rows)
{
    for (int i = 0; i < x->l->group; i += 16) {
        v_store(rows->reference + i, v_set1(AMX_UNSEEN));
        for (int k = 0; k < 16; k++) {
            v_store(rows->sum[i + k], v_set1(0));
            if (x->exact)
                v_store(rows->exact[i + k], v_set1(0));
        }
    }
}

/* Of the rows that there are. */
static void copy_rows(const amx_run *x, amx_rows *to, const amx_rows *from)
{
    memcpy(to->reference, from->reference, sizeof to->reference);
    for (int i = 0; i < x->n_rows; i++) {
        v_store(to->sum[i], v_load(from->sum[i]));
        if (x->exact)
            v_store(to->exact[i], v_load(from->exact[i]));
    }
    to->odd_q = from->odd_q;
    to->fresh = from->fresh;
}

static inline void scale_exact(const amx_run *x, int i, float factor)
{
    float *exact = x->rows->exact[i];
    if (x->exact)
        v_store(exact, v_mul(v_load(exact), v_set1(factor)));
}

static inline void scale_sum(const amx_run *x, int i, float factor)
{
    float *sum = x->rows->sum[i];
    v_store(sum, v_mul(v_load(sum), v_set1(factor)));
    scale_exact(x, i, factor);
}

/* Weights of row i and 32 keys, whose scores are at a and b, by the roundings of the second pass
 * (outputs.inc.h): the weight of a lone key is 1. Those of hidden keys are 0, and of a NaN. */
static inline void add_exact(const amx_run *x, int i, const float *a, const float *b)
{
    const vf c = v_set1(x->c), m = v_set1(x->rows->reference[i]);
    vf sum = v_load(x->rows->exact[i]);
    sum = v_add(sum, exp2_or_zero(v_sub(v_mul(v_load(a), c), m)));
    sum = v_add(sum, exp2_or_zero(v_sub(v_mul(v_load(b), c), m)));
    v_store(x->rows->exact[i], sum);
}

/* One unit of all rows, [2][rows of a group][16]. */
static inline void add_exact_unit(const amx_run *x, const float *s)
{
    for (int i = 0; i < x->n_rows; i++)
        add_exact(x, i, s + i * 16, s + (x->l->group + i) * 16);
}

#endif
