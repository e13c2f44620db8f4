/* Test problems of linear layers: what a case asks for (kit_linear_spec), and that spread out in
 * guarded memory with the oracle's result beside it (kit_linear). */
#ifndef KIT_LINEAR_H
#define KIT_LINEAR_H

#include <heed/heed.h>

#include "guard.h"
#include "tolerance.h"

/** How the tensors lie in memory. */
enum {
    KIT_LINEAR_DENSE,
    KIT_LINEAR_PADDED,    /* odd gaps after every row */
    KIT_LINEAR_ODD,       /* the same, at odd addresses */
    KIT_LINEAR_NEGATIVE,  /* rows run backwards */
    KIT_LINEAR_STRIDED,   /* every second element of a row */
    KIT_LINEAR_REVERSED,  /* rows run from their last element to their first */
    KIT_LINEAR_COLUMNS,   /* the row is the fastest axis */
    KIT_LINEAR_BROADCAST, /* all rows of x are one; so are those of a residual that is not y */
    KIT_LINEAR_MEMORIES,
    KIT_LINEAR_DRAWN = KIT_LINEAR_MEMORIES /* each tensor for itself: see strides.h */
};

/** Values of x and w. */
enum {
    KIT_LINEAR_NORMAL,
    KIT_LINEAR_SMALL,    /* sums near 0, where activations bend */
    KIT_LINEAR_LARGE,    /* sums of some hundred, where they have become 0 or the sum itself */
    KIT_LINEAR_DENORMAL, /* half of the values are subnormal in f32 */
    KIT_LINEAR_NAN_X,
    KIT_LINEAR_NAN_W,
    KIT_LINEAR_INF_X,
    KIT_LINEAR_MINUS_INF, /* sums of -inf, from the bias */
    KIT_LINEAR_OVERFLOW   /* results beyond the range of f16 and f32 */
};

enum { KIT_LINEAR_NO_RESIDUAL, KIT_LINEAR_RESIDUAL, KIT_LINEAR_IN_PLACE };

/** What a case asks for; zero is plain. */
typedef struct kit_linear_spec {
    int64_t rows, first_row; /* the first is row first_row of the case's data */
    uint32_t in_dim, out_dim, heads, layout;
    uint32_t x_type, w_type, y_type, bias_type; /* bias_type NONE: no bias */
    uint32_t activation, residual, accuracy;
    uint32_t memory, values;
    uint64_t places; /* KIT_LINEAR_DRAWN: which way the values lie */
    uint64_t seed;
} kit_linear_spec;

enum {
    KIT_LINEAR_X,
    KIT_LINEAR_W,
    KIT_LINEAR_BIAS,
    KIT_LINEAR_R,
    KIT_LINEAR_Y,
    KIT_LINEAR_TENSORS
};

/** A tensor of up to two axes. The weight's are always [in_dim, out_dim]. */
typedef struct kit_matrix {
    uint32_t type, bytes; /* bytes of an element; 0: absent */
    int64_t rows, cols, row_stride, col_stride;
    int64_t head_cols, head_stride; /* weight: column c is c % head_cols of head c / head_cols */
    int64_t first, elements;        /* to element 0, 0; of the buffer */
    guard_buffer buffer;
    heed_view view; /* as the library is given it */
} kit_matrix;

typedef struct kit_linear {
    kit_linear_spec spec;
    kit_matrix tensor[KIT_LINEAR_TENSORS];
    heed_linear_desc desc;
    heed_linear_args args;
    double *want, *bound, *typical; /* [rows, out_dim] */
    double *opposed; /* [rows, out_dim] 1: in f32 an infinite term may meet the other infinity */
} kit_linear;

/** Builds the problem with its buffers flush to one side. Returns 0, or -1 when out of memory. */
int kit_linear_build(kit_linear *problem, const kit_linear_spec *spec, int side);

/** Fills in desc, args and the weight's and the bias's strides from the spec and the tensors. */
void kit_linear_describe(kit_linear *problem);

/** Computes want, bound, typical and opposed. Returns 0, or -1 when out of memory. */
int kit_linear_solve(kit_linear *problem);

/** Is y[r, c] within its bound of what kit_linear_solve found? With an infinite bound it always
 * is. */
int kit_linear_is_right(const kit_linear *problem, const kit_tolerance *how, int64_t r, int64_t c);

/** Makes inputs read-only, and those of their pages inaccessible that hold none of their elements.
 * If `created`, the weight and the bias, which only the creation needs, become inaccessible
 * altogether. */
void kit_linear_seal(kit_linear *problem, int created);
void kit_linear_open(kit_linear *problem);

/** Fills y with canaries, or with the residual where it lies in y. */
void kit_linear_reset(kit_linear *problem);

/** Gives the memory back; a problem that failed to build is allowed. */
void kit_linear_free(kit_linear *problem);

/** Element [r, c] of a tensor, decoded, and its byte offset in the buffer. */
double kit_linear_value(const kit_linear *problem, int tensor, int64_t r, int64_t c);
int64_t kit_linear_at(const kit_matrix *m, int64_t r, int64_t c);

/** Whether nothing but elements of y was written in its buffer; else *where is a byte of it (-1:
 * outside it). */
int kit_linear_untouched(const kit_linear *problem, int64_t *where);

#endif
