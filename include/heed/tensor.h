/** @file
 * Heed: element types and views of the caller's memory. */
#ifndef HEED_TENSOR_H
#define HEED_TENSOR_H

#include "version.h"

HEED_BEGIN_C

/**
 * Element types. Those after BF16 are codes of keys and values in few bits: formats.h says what a
 * code stands for, and where its bits lie.
 *
 * I8 to F8_E4M3 take scales, and U8 and U4 mostly zeros too, from a heed_quant; without one the
 * scale is 1 and the zero 0. The codes of a row of U4 are whole bytes, those of the Q formats whole
 * blocks of 32 elements that carry their scales: the row's length is a multiple of 2 or 32, dims
 * are adjacent (stride[3] is 1), and the other strides count elements as always, in multiples of 2
 * or 32.
 */
enum {
    HEED_DTYPE_NONE, /**< there is no such tensor */
    HEED_F32,        /**< IEEE binary32 */
    HEED_F16,        /**< IEEE binary16 */
    HEED_BF16,       /**< the upper half of an f32 */
    HEED_I8,         /**< int8 c: (c - zero) * scale */
    HEED_U8,         /**< uint8 c: (c - zero) * scale */
    HEED_U4,         /**< two c of 0 to 15 a byte, the first in the low bits: (c - zero) * scale */
    HEED_F8_E4M3,    /**< OCP FP8 E4M3, the greatest is 448, NaN but no infinity: value * scale */
    HEED_Q8_0,       /**< 34 bytes: f16 d, int8 c: d * c */
    HEED_Q4_0,       /**< 18 bytes: f16 d, c of 4 bits: d * (c - 8) */
    HEED_Q4_1,       /**< 20 bytes: f16 d and m, c of 4 bits: d * c + m */
    HEED_Q5_0,       /**< 22 bytes: f16 d, c of 5 bits: d * (c - 16) */
    HEED_Q5_1,       /**< 24 bytes: f16 d and m, c of 5 bits: d * c + m */
    HEED_IQ4_NL      /**< 18 bytes: f16 d, c of 4 bits, an index into a table of 16: d * table[c] */
};

/**
 * A view of the caller's memory that a call writes: an output, or a cache that is appended to.
 * Frozen: embedded in others, never grows.
 *
 * Shape    axes are [batch, head, row, dim] whatever their order in memory; a tensor with fewer
 *          axes uses the first ones and the rest of stride[] is 0. For mask, bias, weights and
 *          scores "dim" is the key.
 * Units    strides in elements, of any sign. In a heed_const_view 0 broadcasts; no two elements of
 *          an output may be the same memory.
 * Memory   no alignment is required, not even that of the element, unless a call asks for it. Only
 *          elements inside the shape are touched.
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
 * Scales and zeros of a tensor of I8, U8, U4 or F8_E4M3: a code c stands for (c - zero) * scale. Those of
 * a key that no row sees have no influence, whatever they are. Frozen: embedded in others, never
 * grows.
 *
 * Shape    scale and zero are [batch, kv_head, key / key_group, dim / group], where keys lie in pages
 *          [page, kv_head, key of the page / key_group, dim / group].
 * Units    strides in floats, the same for both; 0 broadcasts, so that one scale may serve a tensor, a
 *          head, a token of a head, a channel or a group of keys. Without groups in a row stride[3] is
 *          0. Floats are naturally aligned; they may lie in line with the codes, as a header of each
 *          row.
 * Packed   keys of a call with kv_starts have their scales behind each other too: key j of sequence b
 *          has those of key kv_starts[b] + j, stride[0] is not used, and kv_starts[b] is a multiple of
 *          key_group.
 */
typedef struct heed_quant {
    const float *scale; /**< NULL: the tensor has none, and the rest of this struct is 0 */
    const float *zero;  /**< NULL: 0 everywhere, as F8_E4M3 requires */
    int64_t stride[4];  /**< of scale and of zero */
    uint32_t group;     /**< adjacent elements of a row that share a scale; 0: the whole row */
    uint32_t key_group; /**< adjacent keys that share a scale; 0: each has its own */
} heed_quant;

/**
 * Scales and zeros that a call may write: those of a cache that is appended to. The same layout, and
 * everything that heed_quant says. Frozen.
 */
typedef struct heed_quant_out {
    float *scale;       /**< as in heed_quant */
    float *zero;        /**< as in heed_quant */
    int64_t stride[4];  /**< as in heed_quant; those that are written cannot broadcast */
    uint32_t group;     /**< as in heed_quant */
    uint32_t key_group; /**< as in heed_quant */
} heed_quant_out;

/** What one call has written, as another reads it. */
static inline heed_quant heed_quant_as_const(heed_quant_out quant)
{
    heed_quant same = {quant.scale,
                       quant.zero,
                       {quant.stride[0], quant.stride[1], quant.stride[2], quant.stride[3]},
                       quant.group,
                       quant.key_group};
    return same;
}

HEED_END_C

#endif
