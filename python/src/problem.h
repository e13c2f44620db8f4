/* One problem of attention, made from Python's arguments in the order of these functions. */
#ifndef HEED_PY_PROBLEM_H
#define HEED_PY_PROBLEM_H

#include "heed_py.h"

/* Everything that a call holds references to; problem_release releases them. */
typedef struct problem {
    heed_attn_desc desc;
    heed_attn_args args;
    array q, k, v, out, lse, weights, mask, bias, ranges, key_blocks, block_table;
    array k_scale, k_zero, v_scale, v_zero;
    numbers q_lens, kv_lens, offsets, q_starts, kv_starts, mask_from, alibi, sinks;
    bool packed;
    cache_object *cache; /* of the keys, which are read until the problem is released; else NULL */
} problem;

/* ---- attn_inputs.c: q, k and v, with heads, dims and lengths; scales of codes */
int read_inputs(problem *p, const attn_options *o, const attn_call *call, int64_t q_shape[4]);
int read_scales(problem *p, const attn_call *call);

/* ---- attn_masks.c: masks, and the numbers of heads and sequences */

/* What hides keys: each sets the view that is read, and the description's features and numbers. `pairs` is
 * [batch, q_heads, rows, keys]. */
int mask_of(array *a, PyObject *given, const int64_t pairs[4], heed_attn_desc *desc,
            heed_const_view *view);
int bias_of(array *a, PyObject *given, bool as_bf16, const int64_t pairs[4], heed_attn_desc *desc,
            heed_const_view *view);
int ranges_of(array *a, PyObject *given, const int64_t pairs[4], heed_attn_desc *desc,
              heed_const_view *view);
int key_blocks_of(array *a, PyObject *given, const int64_t pairs[4], heed_attn_desc *desc,
                  heed_const_view *view);
/* Takes the keys in front of all masks off *keys. */
int mask_from_of(numbers *from, PyObject *given, int64_t batch, int64_t *keys,
                 heed_attn_desc *desc);
int read_masks(problem *p, const attn_options *o, const attn_call *call);
int read_numbers(problem *p, const attn_options *o, const attn_call *call);

/* ---- attn_outputs.c: out, lse and weights, where they are not given; and what the caller gets */
int make_outputs(problem *p, const attn_options *o, const attn_call *call,
                 const int64_t q_shape[4]);
/* The same of a call that is only explained: what is given is read, and nothing is made. */
int describe_outputs(problem *p, const attn_options *o, const attn_call *call,
                     const int64_t q_shape[4]);
PyObject *problem_results(problem *p, const attn_call *call);

int floats_needed(const array *a, const char *name);
void view_of(heed_const_view *view, const array *a, const int64_t stride[4]);

#endif
