/* Rows of numbers to rows of codes, many at a time: the same bits as formats.h has one by one. */
#ifndef HEED_CORE_CODES_H
#define HEED_CORE_CODES_H

#include <heed/kit.h>

/* heed_widen_range. */
void heed_widen_range_fast(const float *x, int64_t n, float *least, float *most);

/* heed_encode_by of n numbers that share a scale and zero, a byte each. */
void heed_codes_by(uint32_t type, const float *x, int64_t n, float scale, float zero,
                   uint8_t *code);

/* heed_encode of n numbers to one of the Q formats. */
void heed_encode_blocks(uint32_t type, const float *x, int64_t n, void *row);

#endif
