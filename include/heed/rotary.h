/* Heed: rotary position embeddings, the positions that keys are stored with. A function on the caller's
 * memory and thread: no context, no plan, no allocation.
 */
#ifndef HEED_ROTARY_H
#define HEED_ROTARY_H

#include <stddef.h>

#include "status.h"
#include "tensor.h"

HEED_BEGIN_C

/** Which elements of a head a rotation turns together: dims i and i + dims / 2 (HALF: GPT-NeoX, and
 * Llama as transformers stores it), or 2 i and 2 i + 1 (INTERLEAVED: GPT-J, Llama as published). */
enum { HEED_ROTARY_NONE, HEED_ROTARY_HALF, HEED_ROTARY_INTERLEAVED };

/**
 * A rotary position embedding: pair i of a row at position p is turned by the angle
 * p / scale * base^(-2 i / dims), and multiplied by mscale. Frozen: embedded in others.
 *
 * style     HEED_ROTARY_*; with NONE everything else is 0
 * dims      even: only the first so many dims of a head are turned, the rest stays as it is
 * base      0: 10000
 * scale     positions are divided by it (linear scaling); 0: 1
 * mscale    0: 1
 * freq      [dims / 2] takes the place of base^(-2 i / dims), for other scalings; NULL: none
 * Source    Su et al. 2021, arXiv:2104.09864; linear scaling after Chen et al. 2023,
 *           arXiv:2306.15595; mscale after Peng et al. 2023, arXiv:2309.00071.
 */
typedef struct heed_rotary_desc {
    uint32_t style, dims;
    float base, scale, mscale;
    uint32_t reserved;
    const float *freq;
} heed_rotary_desc;

/**
 * What is rotated.
 *
 * error      receives the sentence of a failure; NULL: heed_last_error()
 * batch, heads, len, dim   of x and y
 * x_type, y_type   HEED_F32, HEED_F16 or HEED_BF16, each its own
 * x, y       [batch, heads, len, dim], or with starts [1, heads, rows, dim]. y may be x, element
 *            for element, and shares no element with it otherwise
 * offsets    [batch] position of each sequence's row 0; NULL: 0
 * positions  [batch, len] position of every row, for trees of tokens: of sequence b from
 *            b * positions_stride on; then there are no offsets. NULL: they follow each other
 * lens, starts, rows   as in heed_kv_append_args
 */
typedef struct heed_rotary_args {
    size_t struct_size;
    heed_error *error;
    heed_rotary_desc rotary;
    int64_t batch, len;
    uint32_t heads, dim, x_type, y_type;
    heed_const_view x;
    heed_view y;
    const int32_t *offsets, *positions, *lens, *starts;
    int64_t positions_stride, rows;
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
