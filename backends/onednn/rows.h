/* What surrounds the two products, row by row: compiled once per instruction set (rows.c). */
#ifndef HEED_ONEDNN_ROWS_H
#define HEED_ONEDNN_ROWS_H

#include <heed/backend.h>

/* Columns of a block of scores come in multiples of this, and so do vectors of every width. */
#define HEED_ONEDNN_COLUMNS 16

/* One row of a block of scores. Column 0 is the block's first key. */
typedef struct heed_onednn_row {
    float *s;                                  /* [width]: products in, scores out */
    int64_t width, first, end;                 /* columns; those in the row's range: first <= end */
    const uint8_t *mask;                       /* of column 0, NULL if there is none (to look at) */
    const uint8_t *listed;                     /* the same of ranges and key blocks; stride 1 */
    const void *bias;                          /* the tensor, NULL as above */
    int64_t mask_stride, bias_at, bias_stride; /* elements; bias_at is column 0's */
    uint32_t bias_type, stage;                 /* HEED_SCORES_*: where to stop */
    float factor;                              /* products times this are scores */
    float softcap, alibi_slope, bias_slope;
    int32_t distance; /* from the row in its sequence to the key of column 0, ... */
    float q_offset;   /* ... less this: positions may lie beyond an int32_t */
    uint32_t has_softcap, has_alibi, to_log2;
} heed_onednn_row;

typedef struct heed_onednn_rows {
    const char *isa;
    /* Products to scores, hidden ones to -inf. Returns the greatest; a NaN is never that. */
    float (*score)(const heed_onednn_row *row);
    /* s = 2^(s - m), to p too if it is not NULL, there as bf16. Returns their sum. */
    float (*weigh)(float *s, int64_t n, float m, uint16_t *p);
    /* acc = acc * factor + o */
    void (*accumulate)(float *acc, const float *o, int64_t n, float factor);
    int (*all_finite)(const float *x, int64_t n);
    /* n elements to f32, times factor if that is not 1. */
    void (*pack)(float *to, uint32_t type, const void *from, int64_t at, int64_t stride, int64_t n,
                 float factor);
    float (*exp2)(float x); /* x <= 0 */
} heed_onednn_rows;

extern const heed_onednn_rows heed_onednn_rows_plain, heed_onednn_rows_avx2,
    heed_onednn_rows_avx512;

#endif
