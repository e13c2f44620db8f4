/** @file
 * Heed: element types and views of the caller's memory. */
#ifndef HEED_TENSOR_H
#define HEED_TENSOR_H

#include "version.h"

HEED_BEGIN_C

/** Element types. Q8_0 and I8 are reserved for low-precision keys and values: naming one is
 * HEED_ERR_UNSUPPORTED until they are served. */
enum {
    HEED_DTYPE_NONE, /**< there is no such tensor */
    HEED_F32,        /**< IEEE binary32 */
    HEED_F16,        /**< IEEE binary16 */
    HEED_BF16,       /**< the upper half of an f32 */
    HEED_I8,         /**< reserved: signed bytes, read by a heed_quant */
    /** reserved: blocks of 32 int8 and one f16 scale in 34 bytes; strides count elements */
    HEED_Q8_0
};

/**
 * A view of the caller's memory that a call writes: an output, or a cache that is appended to.
 * Frozen: embedded in others, never grows.
 *
 * Shape    axes are [batch, head, row, dim] whatever their order in memory; a tensor with fewer
 *          axes uses the first ones and the rest of stride[] is 0. For mask, bias, weights and
 *          scores "dim" is the key.
 * Units    strides in elements, of any sign. In a heed_const_view 0 broadcasts; no two elements of an
 *          output are one.
 * Memory   no alignment is required, not even that of the element. Only elements inside the shape
 *          are touched.
 */
typedef struct heed_view {
    void *data;        /**< element [0, 0, 0, 0]; NULL: there is no such tensor */
    int64_t stride[4]; /**< of batch, head, row and dim, in elements */
} heed_view;

/** A view of memory that a call only reads; the same layout, and everything that heed_view says.
 * Frozen. */
typedef struct heed_const_view {
    const void *data;  /**< as in heed_view */
    int64_t stride[4]; /**< as in heed_view; 0 broadcasts */
} heed_const_view;

/** What one call has written, as another reads it. */
static inline heed_const_view heed_as_const(heed_view view)
{
    heed_const_view same = {view.data,
                            {view.stride[0], view.stride[1], view.stride[2], view.stride[3]}};
    return same;
}

/**
 * How the codes of a low-precision tensor are read: a code c stands for (c - zero) * scale.
 * Reserved: a description with HEED_HAS_QUANT, and args that give one of these, are refused until they
 * are served. Frozen: embedded in others, never grows.
 *
 * Shape    scale and zero are [batch, kv_head, key / key_group, dim / group], where keys lie in pages
 *          [page, kv_head, key of the page / key_group, dim / group].
 * Units    strides in floats, the same for both; 0 broadcasts, so that one scale may serve a tensor, a
 *          head, a token of a head, a channel or a group of keys.
 */
typedef struct heed_quant {
    const float *scale; /**< NULL: the tensor has none, and the rest of this struct is 0 */
    const float *zero;  /**< NULL: 0 everywhere */
    int64_t stride[4];  /**< of scale and of zero */
    uint32_t group;     /**< adjacent elements of a row that share a scale; 0: the whole row */
    uint32_t key_group; /**< adjacent keys that share a scale; 0: each has its own */
} heed_quant;

HEED_END_C

#endif
