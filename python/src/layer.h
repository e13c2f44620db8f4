/* What Linear, rotary and MultiHeadAttention share. */
#ifndef HEED_PY_LAYER_H
#define HEED_PY_LAYER_H

#include "docs.h"
#include "heed_py.h"

/* ---- linear.c */

/* An empty array may have no address, which would say that there is no array. */
void *there(const void *data);
/* An array of f32, f16 or bf16, or of the type that is wanted. */
int float_array(array *a, PyObject *object, const char *name, bool writable, uint32_t want);
int weight_layout_of(PyObject *object, uint32_t *out);
/* desc's layout, activation, accuracy and features are set; the rest is read off the arrays. */
int make_linear(heed_context *context, heed_linear_desc *desc, PyObject *weight, PyObject *bias,
                const char *weight_name, const char *bias_name, heed_linear **out);
extern PyObject *linear_type;
int linear_init(PyObject *module);

/* ---- rotary.c */

/* Rotary positions as the caller gave them; all borrowed, NULL where not given. */
typedef struct rotary_given {
    PyObject *style, *dims, *base, *scale, *mscale, *freq;
} rotary_given;

/* For rows of dim numbers; r's frequencies are held in `freq`. */
int rotary_numbers(heed_rotary_desc *r, numbers *freq, const rotary_given *given, int64_t dim);

#endif
