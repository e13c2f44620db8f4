/* What Linear, rotary and MultiHeadAttention share. */
#ifndef HEED_PY_LAYER_H
#define HEED_PY_LAYER_H

#include "docs.h"
#include "heed_py.h"

/* ---- linear.c */

/* An array of f32, f16 or bf16, or of the type that is wanted. With as_bf16, or where bf16 is wanted,
 * uint16 is taken for it. */
int float_array(array *a, PyObject *object, const char *name, bool writable, uint32_t want,
                bool as_bf16);
int weight_layout_of(PyObject *object, uint32_t *out);
/* Completes desc, whose layout, activation, accuracy and features are set, from the arrays, and
 * makes the layer. The weight has the type desc->w_type if that is set. */
int make_linear(heed_context *context, heed_linear_desc *desc, PyObject *weight, PyObject *bias,
                const char *weight_name, const char *bias_name, bool as_bf16, heed_linear **out);
extern PyObject *linear_type;
int linear_init(PyObject *module);

/* ---- rotary.c */

/* Rotary positions as the caller gave them; all borrowed, NULL where not given. */
typedef struct rotary_given {
    PyObject *style, *dims, *base, *scale, *mscale, *freq;
} rotary_given;

/* Fills r for rows of dim numbers. `freq` holds r's frequencies. */
int rotary_numbers(heed_rotary_desc *r, numbers *freq, const rotary_given *given, int64_t dim);
/* Reads positions [batch, rows] or, for a single sequence, [rows]. */
int positions_of(array *a, PyObject *given, int64_t batch, int64_t rows, const int32_t **positions,
                 int64_t *stride);

#endif
