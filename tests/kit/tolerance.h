/* How far a result may be from the oracle's, derived for each row from its own numbers. */
#ifndef KIT_TOLERANCE_H
#define KIT_TOLERANCE_H

#include <math.h>

#include "reference_f64.h"

/** Unit roundoffs (half of an ulp of 1) of what goes into a result. See tolerance.c. */
typedef struct kit_tolerance {
    double product; /* relative error of one product q_d * k_d before any sum */
    double weight;  /* relative error of one weight before it meets its value */
    double lone;    /* relative error of one weight where lse and weights are made of it */
    double product_scatter, weight_scatter; /* one deviation of these, generously */
    double floor;                           /* weights below it may be flushed */
    double terms;                           /* products of parts that stand for one product */
    double value;                           /* relative error of one value */
    double value_floor;                     /* of a weighted value, which may underflow */
    double step_q;      /* error of scale * q, relative to the greatest of the row; 0: none */
    const float *sizes; /* with that: kit_problem.sizes, of k */
    double out;         /* rounding of the stored output */
    double out_floor, out_max; /* half of its smallest number, and its largest */
} kit_tolerance;

/** accuracy is resolved: HEED_ACCURACY_EXACT, _BF16 or _SPLIT; out_type a HEED_* type. */
kit_tolerance kit_tolerance_of(uint32_t accuracy, uint32_t out_type);

/** Adds what k or v of codes bring. sizes, with HEED_ACCURACY_INT8: kit_problem.sizes. */
void kit_tolerate_codes(kit_tolerance *how, uint32_t accuracy, uint32_t k_type, uint32_t v_type,
                        const float *sizes);

/** How rounding errors of n terms add up, in units of one: grow(n) in tolerance.c. */
static inline double kit_grow(double n)
{
    const double random = 6 * sqrt(n);
    return n < random ? n : random;
}

/** What one row may be off by: absolute, per element. Arrays as in reference_row. */
typedef struct kit_row_tolerance {
    double *raw, *softcapped, *score, *weight;
    double *out;     /* bound, without the rounding to the output type */
    double *typical; /* what a random error amounts to (one standard deviation, generously) */
    double *sum;     /* of weighted magnitudes, for typical */
    double lse;
} kit_row_tolerance;

/** Memory for rows of so many keys and dims, which free(to->raw) gives back. Returns 0, or -1 when
 * out of memory. */
int kit_row_tolerance_make(kit_row_tolerance *to, int64_t keys, int64_t dims);

/** Derives them. Rows that are NaN or see nothing get 0 everywhere. */
void kit_tolerate(const kit_tolerance *how, const reference_problem *problem,
                  const reference_row *row, kit_row_tolerance *to);

/** Whether `got`, an element of the output type, may stand for `want` that is known to +-bound. */
int kit_close(const kit_tolerance *how, double got, double want, double bound);

/** The same for an element of out, where an infinite v times a weight that underflowed in f32 may
 * be NaN. An lse or a score of -inf may not. */
int kit_close_out(const kit_tolerance *how, double got, double want, double bound);

#endif
