/* The steps of a test layer around attention, in float64: projections, rotary positions, the way into
 * the cache. Each makes numbers with a bound of their error and a deviation from those of the step
 * before; layer_oracle.c says how these are reckoned. */
#ifndef KIT_LAYER_STEPS_H
#define KIT_LAYER_STEPS_H

#include "layer_case.h"

#include <math.h>

#define LAYER_U 0x1p-24

static inline double layer_grow(double n)
{
    return n < 36 ? n : 6 * sqrt(n);
}

static inline double unit_of(uint32_t type)
{
    return type == HEED_F32 ? LAYER_U : type == HEED_F16 ? 0x1p-11 : 0x1p-8;
}

static inline double floor_of(uint32_t type)
{
    return type == HEED_F16 ? 0x1p-25 : 0x1p-126;
}

/* Error of storing x +- e. */
static inline double layer_stored(uint32_t type, double x, double e)
{
    return e + unit_of(type) * (fabs(x) + e) + floor_of(type);
}

static inline double square(double x)
{
    return x * x;
}

/* Deviation of what is stored, whose variance was `before`; never more than its error. */
static inline double layer_scatter(uint32_t type, double x, double before, double error)
{
    return fmin(sqrt(before + square(unit_of(type) * fabs(x) + floor_of(type))), error);
}

/** Zeros, n of each; layer_drop frees them. */
layer_numbers layer_numbers_of(int64_t n);
void layer_drop(layer_numbers x);

/** Those from element n on. */
layer_numbers layer_from(layer_numbers x, int64_t n);

/** Columns [first, first + n) of what linear layer `which` makes: `out` numbers of `in`. */
typedef struct layer_columns {
    int which;
    int64_t in, out, first, n;
} layer_columns;

/** One row through them. Of x, error and typical may be absent: it is exact. */
void layer_project(const layer *l, layer_columns of, uint32_t y_type, layer_numbers x,
                   layer_numbers y);

/** q, k or v (0, 1, 2) of one row of the input: heads * dim numbers. */
void layer_source(const layer *l, int which, double *x, layer_numbers y);

/** Turns a row of heads * dim numbers at a position. */
void layer_turn(const layer *l, int64_t heads, int64_t position, uint32_t type, layer_numbers x);

/** n numbers on their way into the cache. */
void layer_append(uint32_t type, int64_t n, layer_numbers x);

#endif
