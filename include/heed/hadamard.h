/** @file
 * Heed: the Walsh-Hadamard transform, which spreads what few elements of a head carry over all of
 * them before they are rounded to few bits. A function on the caller's memory and thread: no
 * context, no plan, no allocation.
 *
 * It is orthogonal, so q and k that are both transformed have the products they had before: keys
 * may be appended transformed (HEED_APPEND_HADAMARD_K) where q is transformed too. Values that were
 * appended transformed give a transformed output: transformed once more it is that of plain values.
 */
#ifndef HEED_HADAMARD_H
#define HEED_HADAMARD_H

#include <stddef.h>

#include "status.h"
#include "tensor.h"

HEED_BEGIN_C

/** What is transformed. */
typedef struct heed_hadamard_args {
    size_t struct_size; /**< sizeof(heed_hadamard_args) */
    heed_error *error;  /**< receives the sentence of a failure; NULL: heed_last_error() */
    int64_t batch;      /**< first axis of x and y */
    int64_t len;        /**< rows, the third axis */
    uint32_t heads;     /**< at least 1 */
    uint32_t dim;       /**< columns of a row; a multiple of group */
    /** adjacent elements that are transformed together: a power of two up to 4096 */
    uint32_t group;
    uint32_t x_type;   /**< HEED_F32, HEED_F16 or HEED_BF16 */
    uint32_t y_type;   /**< the same, independent of x_type */
    uint32_t reserved; /**< 0 */
    heed_const_view x; /**< [batch, heads, len, dim] */
    heed_view y;       /**< as x. May be x, element for element, else shares no element with it */
} heed_hadamard_args;

/**
 * Transforms every group of adjacent elements x of a row: y[i] = sum over j of x[j] * (-1)^(bits that i and
 * j have in common) / sqrt(group). It is its own inverse.
 *
 * Numerics  sums in f32, of pairs, then of pairs of those; one product, one rounding at the end.
 * Errors    HEED_ERR_INVALID an argument is missing, superfluous or out of range; HEED_ERR_ABI.
 *           y is untouched.
 * Threads   safe; runs on the calling thread.
 */
HEED_API heed_status heed_hadamard(const heed_hadamard_args *args);

HEED_END_C

#endif
