/* A problem made of bytes: whatever they are, it is valid, small but for one in a hundred, and lies
 * in memory of exactly its size, so that an address sanitizer sees the first byte too far. Nothing
 * but garbage lies where no row looks. */
#ifndef FUZZ_PROBLEM_H
#define FUZZ_PROBLEM_H

#include <heed/heed.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "fuzz_bytes.h"
#include "fuzz_view.h"

enum { FUZZ_MAX_BATCH = 3, FUZZ_MAX_HEADS = 12 };
enum {
    FUZZ_Q,
    FUZZ_K,
    FUZZ_V,
    FUZZ_MASK,
    FUZZ_BIAS,
    FUZZ_OUT,
    FUZZ_LSE,
    FUZZ_WEIGHTS,
    FUZZ_SCORES,
    FUZZ_TENSORS
};
#define FUZZ_CANARY 0xa5 /* every byte of an output before the call */

typedef struct fuzz_tensor {
    unsigned char *memory; /* NULL: the problem has no such tensor */
    size_t bytes;
    uint32_t element;
    int64_t dim[4];
    unsigned char *first; /* element [0, 0, 0, 0] */
    fuzz_view view;       /* in args */
} fuzz_tensor;

typedef struct fuzz_problem {
    heed_attn_desc desc;
    heed_attn_args args;
    heed_error error;
    fuzz_tensor tensor[FUZZ_TENSORS];
    int32_t q_lens[FUZZ_MAX_BATCH], kv_lens[FUZZ_MAX_BATCH], q_offsets[FUZZ_MAX_BATCH];
    int32_t q_starts[FUZZ_MAX_BATCH], kv_starts[FUZZ_MAX_BATCH];
    int32_t *table;          /* of pages; NULL without */
    int64_t q_rows, kv_rows; /* of packed tensors */
    float alibi_slope[FUZZ_MAX_HEADS], bias_slope[FUZZ_MAX_HEADS], sink[FUZZ_MAX_HEADS];
    int large; /* hundreds of rows by thousands of keys: judged by some of its rows */
    int tame; /* no NaN, Inf or huge value among what is visible: worth comparing with the oracle */
} fuzz_problem;

/** Makes the problem, outputs filled with the canary. Returns 0, or -1 when out of memory. */
int fuzz_build(fuzz_problem *problem, fuzz_bytes *bytes);
void fuzz_free(fuzz_problem *problem);

/** fuzz_values.c: fills all tensors. Returns 0, or -1 when out of memory. */
int fuzz_fill(fuzz_problem *problem, fuzz_bytes *bytes);

/** Prints what the problem is, for the report of a finding. */
void fuzz_describe(const fuzz_problem *problem, FILE *out);

void fuzz_reset_outputs(fuzz_problem *problem);
/** Whether no byte was written but the elements of rows i < q_lens[b] of outputs; none at all if
 * nothing was to be written. */
int fuzz_only_rows_written(const fuzz_problem *problem);
int fuzz_nothing_written(const fuzz_problem *problem);

int32_t fuzz_q_len(const fuzz_problem *problem, int64_t b);
int32_t fuzz_kv_len(const fuzz_problem *problem, int64_t b);
/** Elements from the view's data to element [b, h, i, d] of sequence b, packed or in pages or not.
 */
int64_t fuzz_at(const fuzz_problem *problem, int tensor, int64_t b, int64_t h, int64_t i,
                int64_t d);

/**
 * Spoils one thing that validation has to find; which one is said by the bytes.
 * Returns its name, or NULL if that thing does not exist in this problem.
 */
const char *fuzz_spoil(fuzz_problem *problem, fuzz_bytes *bytes);

#endif
