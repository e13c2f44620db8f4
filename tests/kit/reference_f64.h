/* The oracle: attention in float64, one row at a time, in the plainest loops that say what is
 * meant.
 *
 * It shares no code with the library, nor its headers: it has its own description of a problem and
 * its own decoding of f16 and bf16. It is never optimised. It reads every key below a sequence's
 * length, also those that no row may see, so run it while all of the memory is accessible.
 * */
#ifndef KIT_REFERENCE_F64_H
#define KIT_REFERENCE_F64_H

#include <stddef.h>
#include <stdint.h>

/** Element types; BYTE is for the mask, F64 for what is computed and never stored. */
enum { REFERENCE_F32 = 1, REFERENCE_F16, REFERENCE_BF16, REFERENCE_BYTE, REFERENCE_F64 };

/** Element [b, h, i, d] is at data + sum of index * stride, strides in elements, of any sign or 0;
 * with a table of places the terms of b and i are the table's. */
typedef struct reference_array {
    const void *data; /* NULL: absent */
    int type;
    int64_t stride[4];
    const int64_t *place; /* [batch, rows], or NULL */
    int64_t place_rows;
} reference_array;

/** The problem; options are absent if they are NULL, or as their comments say. */
typedef struct reference_problem {
    int64_t batch, q_heads, kv_heads, q_len, kv_len, qk_dim, v_dim;
    reference_array q, k, v, mask, bias;
    double scale;
    double softcap; /* 0: none */
    int causal;
    int64_t window_left, window_right; /* -1: unbounded */
    const int32_t *q_lens, *kv_lens;
    const int64_t *offset; /* per sequence; NULL: 0 */
    const float *alibi_slope, *bias_slope, *sink;
    /* Unless NULL, `listed` has to let row i see key j, too. Mask and bias begin at
     * mask_from[b]. */
    int (*listed)(const void *of, int64_t b, int64_t h, int64_t i, int64_t j);
    const void *listed_of;
    const int32_t *mask_from;
    int64_t every, some; /* of `every` rows each, visit the first `some`; 0: all rows */
} reference_problem;

/** One row's result. Arrays over keys have kv_len elements, arrays over dims v_dim. */
typedef struct reference_row {
    int64_t b, h, g, i;
    const double *q;         /* the query row */
    const double *k, *v;     /* keys and values of kv head g, [kv_lens[b], dim], decoded */
    int64_t n_keys;          /* kv_lens[b] */
    unsigned char *in_range; /* j < kv_lens[b], in the causal range and the window, and listed */
    unsigned char *visible;  /* and neither mask nor bias hides it */
    double *magnitude;       /* |scale| * sum |q_d k_d|: what the rounding of raw is relative to */
    double *raw, *softcapped, *alibi, *bias, *score; /* where in_range, else -inf (terms: 0) */
    double *weight;                                  /* where visible, else 0 */
    double max, lse;                                 /* max over visible scores and the sink */
    double *out;
} reference_row;

/** Called for every row i < q_lens[b] that is wanted, in order of b, h, i. */
typedef void (*reference_visit)(void *user, const reference_problem *problem,
                                const reference_row *row);

/** Computes all rows and hands each to visit. Returns 0, or -1 when out of memory. */
int reference_attention(const reference_problem *problem, reference_visit visit, void *user);

/** Where the whole tensors go, dense in the order of their axes; NULL: not wanted. Rows
 * i >= q_lens[b] are left alone. */
typedef struct reference_result {
    double *out;                       /* [batch, q_heads, q_len, v_dim] */
    double *lse;                       /* [batch, q_heads, q_len] */
    double *weights;                   /* [batch, q_heads, q_len, kv_len] */
    double *raw, *softcapped, *biased; /* the same; -inf where the stage says nothing */
} reference_result;

/** The same, into arrays. */
int reference_tensors(const reference_problem *problem, const reference_result *result);

/** One element, at any address. */
double reference_decode(int type, const void *data, int64_t index);

#endif
