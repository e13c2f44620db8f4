/* The form of a dense ggml mask, where it can be described by less than a number for each pair. */
#ifndef GGML_HEED_MASK_H
#define GGML_HEED_MASK_H

#include <stdint.h>

/* A row sees the keys [begin, end) of its spans, which ascend and may be empty, and no others.
 * Spans have the layout of heed_attn_args.ranges, of which a row has MASK_MOST at most. */
enum { MASK_MOST = 8 };

typedef struct mask_span {
    int32_t begin, end;
} mask_span;

/* The kinds of masks, from the least to the most specific. */
enum {
    MASK_DENSE,  /* any numbers */
    MASK_RANGES, /* 0 for some runs of keys of each row, -inf elsewhere */
    MASK_CAUSAL  /* one run, and the runs are those of a causal range, a window and a length */
};

typedef struct mask_form {
    int kind;
    int n_ranges;        /* the most runs that a row has, at least 1; not of MASK_DENSE */
    int64_t kv_len;      /* no row sees a key from here on; not of MASK_DENSE */
    int64_t offset;      /* MASK_CAUSAL: row i sees no key behind i + offset */
    int64_t window_left; /* MASK_CAUSAL: nor one before i + offset - window_left; -1: all of them */
} mask_form;

/* Finds the form of a mask of `rows` rows of n f16 numbers, row_bytes apart. spans [rows,
 * MASK_MOST] receive the keys that each row sees, unless the mask is MASK_DENSE. */
mask_form mask_find_form(const void *data, int64_t row_bytes, int64_t rows, int64_t n,
                         mask_span *spans);

#endif
