/* Converts rows of numbers to rows of codes, many numbers at a time. The bits are those that the
 * functions of formats.h make one number or block at a time. */
#ifndef HEED_CORE_CODES_H
#define HEED_CORE_CODES_H

#include <heed/kit.h>

/* The same as heed_widen_range. */
void heed_widen_range_fast(const float *x, int64_t n, float *least, float *most);

/* heed_encode_by for n numbers that share a scale and zero; each code is a byte. */
void heed_codes_by(uint32_t type, const float *x, int64_t n, float scale, float zero,
                   uint8_t *code);

/* Encodes n numbers, a multiple of 32, in one of the Q formats. */
void heed_encode_blocks(uint32_t type, const float *x, int64_t n, void *row);

#endif
