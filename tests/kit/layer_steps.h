/* The steps of a test layer around attention, in float64: projections, rotary positions, storing in
 * the cache. Each step computes numbers, bounds of their errors and deviations from those of the
 * step before; layer_oracle.c says how. */
#ifndef KIT_LAYER_STEPS_H
#define KIT_LAYER_STEPS_H

#include "layer_case.h"

#include <math.h>

#define LAYER_U 0x1p-24

static inline double unit_of(uint32_t type)
{
    return type == HEED_F32 ? LAYER_U : type == HEED_F16 ? 0x1p-11 : 0x1p-8;
}

static inline double floor_of(uint32_t type)
{
    return type == HEED_F16 ? 0x1p-25 : 0x1p-126;
}

/* Bound of the error of x +- e once it is stored. */
static inline double layer_stored(uint32_t type, double x, double e)
{
    return e + unit_of(type) * (fabs(x) + e) + floor_of(type);
}

static inline double square(double x)
{
    return x * x;
}

/* Deviation of a stored number whose variance was `before`; at most the bound of its error. */
static inline double layer_scatter(uint32_t type, double x, double before, double error)
{
    return fmin(sqrt(before + square(unit_of(type) * fabs(x) + floor_of(type))), error);
}

/** Allocates n zeros of each; layer_drop frees them. */
layer_numbers layer_numbers_of(int64_t n);
void layer_drop(layer_numbers x);

/** The same numbers from element n on. */
layer_numbers layer_from(layer_numbers x, int64_t n);

/** Columns [first, first + n) of what linear layer `which` makes: `out` numbers of `in`. */
typedef struct layer_columns {
    int which;
    int64_t in, out, first, n;
} layer_columns;

/** Projects one row to these columns. x is exact where its error and typical are NULL. */
void layer_project(const layer *l, layer_columns of, uint32_t y_type, layer_numbers x,
                   layer_numbers y);

/** q, k or v (0, 1, 2) of one row of the input: heads * dim numbers. */
void layer_source(const layer *l, int which, double *x, layer_numbers y);

/** Rotates a row of heads * dim numbers to a position. */
void layer_turn(const layer *l, int64_t heads, int64_t position, uint32_t type, layer_numbers x);

/** Adds to the errors of n numbers the rounding with which the cache stores them. */
void layer_append(uint32_t type, int64_t n, layer_numbers x);

#endif
