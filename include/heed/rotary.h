/** @file
 * Heed: rotary position embeddings, the positions that keys are stored with. A function on the caller's
 * memory and thread: no context, no plan, no allocation.
 */
#ifndef HEED_ROTARY_H
#define HEED_ROTARY_H

#include <stddef.h>

#include "status.h"
#include "tensor.h"

HEED_BEGIN_C

/** Which elements of a head a rotation turns together. */
enum {
    HEED_ROTARY_NONE, /**< nothing is turned */
    HEED_ROTARY_HALF, /**< i and i + dims / 2: GPT-NeoX, and Llama as transformers stores it */
    HEED_ROTARY_INTERLEAVED /**< 2 i and 2 i + 1: GPT-J, Llama as published */
};

/**
 * A rotary position embedding: pair i of a row at position p is turned by the angle
 * p / scale * base^(-2 i / dims), and multiplied by mscale. Frozen: embedded in others.
 *
 * Source    Su et al. 2021, arXiv:2104.09864; linear scaling after Chen et al. 2023,
 *           arXiv:2306.15595; mscale after Peng et al. 2023, arXiv:2309.00071.
 */
typedef struct heed_rotary_desc {
    uint32_t style; /**< HEED_ROTARY_*; with NONE everything else is 0 */
    uint32_t dims;  /**< even: only the first so many dims of a head are turned, the rest stays */
    float base;     /**< 0: 10000 */
    float scale;    /**< positions are divided by it (linear scaling); 0: 1 */
    float mscale;   /**< 0: 1 */
    uint32_t reserved; /**< 0 */
    /** [dims / 2] takes the place of base^(-2 i / dims), for other scalings; NULL: none */
    const float *freq;
} heed_rotary_desc;

/** What is rotated. */
typedef struct heed_rotary_args {
    size_t struct_size;      /**< sizeof(heed_rotary_args) */
    heed_error *error;       /**< receives the sentence of a failure; NULL: heed_last_error() */
    heed_rotary_desc rotary; /**< the rotation */
    int64_t batch;           /**< sequences of x and y */
    int64_t len;             /**< the most rows that one of them has */
    uint32_t heads;          /**< at least 1 */
    uint32_t dim;            /**< columns of a row; at least 1 */
    uint32_t x_type;         /**< HEED_F32, HEED_F16 or HEED_BF16 */
    uint32_t y_type;         /**< the same, independent of x_type */
    heed_const_view x;       /**< [batch, heads, len, dim], or with starts [1, heads, rows, dim] */
    heed_view y; /**< as x. May be x, element for element, else shares no element with it */
    const int32_t *offsets; /**< [batch] position of each sequence's row 0; NULL: 0 */
    /** [batch, len] position of every row, for trees of tokens; those of sequence b begin at
     * b * positions_stride. Then there are no offsets. NULL: positions follow each other */
    const int32_t *positions;
    const int32_t *lens;   /**< [batch] rows of each sequence, 0 to len; NULL: len */
    const int32_t *starts; /**< [batch] with packed rows: a sequence's first. NULL: not packed */
    int64_t positions_stride; /**< with positions: from one sequence to the next, else 0 */
    int64_t rows;             /**< with starts: rows that x and y have, else 0 */
} heed_rotary_args;

/**
 * Rotates queries or keys by their positions.
 *
 * Numerics  angles, sines and cosines in f64, products in f32, one rounding at the end. A row's
 *           bits depend on its elements and its position alone.
 * Errors    HEED_ERR_INVALID an argument is missing, superfluous or out of range; HEED_ERR_ABI.
 *           y is untouched.
 * Threads   safe; runs on the calling thread.
 */
HEED_API heed_status heed_rotary(const heed_rotary_args *args);

HEED_END_C

#endif
