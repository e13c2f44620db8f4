/*
 * The sums of a group's rows: how they are kept, scaled, saved and put back.
 *
 * A row is divided by the sum of the rounded weights that multiply V: a row that sees a single key
 * then has that key's value exactly. lse and weights must be free of that rounding (5.2e-3 of a
 * weight): where the call asks for one of them, a second sum, of weights in f32, is computed
 * between the slots of the fast paths. The state of a row that core merges with others includes
 * that sum (as a part of row_max, finish.inc.h) whatever the outputs are, so that no bit of out
 * depends on them.
 */
#ifndef HEED_AMX_SUMS_H
#define HEED_AMX_SUMS_H

#include "run.inc.h"

static inline int keeps_exact(const heed_problem *p, const heed_tile *t, const amx_layout *l)
{
    /* With split accuracy the first sum is of weights in f32 already. */
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

/* Copies the group's rows, as many as there are. */
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

/* Adds the weights of row i and 32 keys, whose scores are at a and b, with the roundings of the
 * second pass (outputs.inc.h): the weight of a lone key is 1. Hidden keys and NaNs add 0. */
static inline void add_exact(const amx_run *x, int i, const float *a, const float *b)
{
    const vf c = v_set1(x->c), m = v_set1(x->rows->reference[i]);
    vf sum = v_load(x->rows->exact[i]);
    sum = v_add(sum, exp2_or_zero(v_sub(v_mul(v_load(a), c), m)));
    sum = v_add(sum, exp2_or_zero(v_sub(v_mul(v_load(b), c), m)));
    v_store(x->rows->exact[i], sum);
}

/* The same for one unit and all rows; s is [2][rows of a group][16]. */
static inline void add_exact_unit(const amx_run *x, const float *s)
{
    for (int i = 0; i < x->n_rows; i++)
        add_exact(x, i, s + i * 16, s + (x->l->group + i) * 16);
}

#endif
