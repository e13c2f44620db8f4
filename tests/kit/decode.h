/* Elements of memory of any type: how long they are, and their value as the oracle reads it. */
#ifndef KIT_DECODE_H
#define KIT_DECODE_H

#include <heed/formats.h>

#include "reference_f64.h"

/** Bytes of an element, or of a block where elements share bytes. HEED_DTYPE_NONE is a byte. */
static inline uint32_t kit_bytes_of(uint32_t type)
{
    return heed_is_code(type)        ? heed_block_bytes(type)
           : type == HEED_F32        ? 4
           : type == HEED_DTYPE_NONE ? 1
                                     : 2;
}

/** The oracle's name of a type. */
static inline int kit_reads_as(uint32_t type)
{
    return type == HEED_F32    ? REFERENCE_F32
           : type == HEED_F16  ? REFERENCE_F16
           : type == HEED_BF16 ? REFERENCE_BF16
                               : REFERENCE_BYTE;
}

static inline double kit_decode(uint32_t type, const void *data, int64_t index)
{
    return reference_decode(kit_reads_as(type), data, index);
}

#endif
