/* The work around the two products, row by row. Compiled once per instruction set (rows.c). */
#ifndef HEED_ONEDNN_ROWS_H
#define HEED_ONEDNN_ROWS_H

#include <heed/backend.h>

/* One row of a block of scores. Column 0 is the block's first key. */
typedef struct heed_onednn_row {
    float *s;                                  /* [width]: products in, scores out */
    int64_t width, first, end;                 /* columns; [first, end) are in the row's range */
    const uint8_t *mask;                       /* at column 0; NULL where none has to be applied */
    const uint8_t *listed;                     /* the same of ranges and key blocks; stride 1 */
    const void *bias;                          /* the tensor, NULL as above */
    int64_t mask_stride, bias_at, bias_stride; /* elements; bias_at is column 0's */
    uint32_t bias_type, stage;                 /* HEED_SCORES_*: where to stop */
    float factor;                              /* products times this are scores */
    float softcap, alibi_slope, bias_slope;
    int32_t distance; /* of column 0 from `near` of the row's position, with ALiBi ... */
    float far;        /* ... and what that leaves out: simd/distance.h */
    uint32_t has_softcap, has_alibi, to_log2;
} heed_onednn_row;

typedef struct heed_onednn_rows {
    const char *isa;
    /* Turns products into scores, hidden ones into -inf. Returns the greatest that is not a NaN. */
    float (*score)(const heed_onednn_row *row);
    /* s = 2^(s - m), also stored as bf16 in p if that is not NULL. Returns the sum. */
    float (*weigh)(float *s, int64_t n, float m, uint16_t *p);
    /* acc = acc * factor + o */
    void (*accumulate)(float *acc, const float *o, int64_t n, float factor);
    int (*all_finite)(const float *x, int64_t n);
    /* Converts n elements to f32 and multiplies them by factor. */
    void (*pack)(float *to, uint32_t type, const void *from, int64_t at, int64_t stride, int64_t n,
                 float factor);
    float (*exp2)(float x); /* x <= 0 */
} heed_onednn_rows;

extern const heed_onednn_rows heed_onednn_rows_plain, heed_onednn_rows_avx2,
    heed_onednn_rows_avx512;

#endif
