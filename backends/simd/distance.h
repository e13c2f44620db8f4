/* Distances from a row to keys, which ALiBi multiplies by its slope, in 32 bits. */
#ifndef HEED_SIMD_DISTANCE_H
#define HEED_SIMD_DISTANCE_H

#include <heed/kit.h>

/* Key j of the sequence is j - near keys behind the row, minus far. For positions that keys can have
 * near is the position itself and far is 0, so that a distance below 2^24 is exact as a float
 * however large both numbers are. Of other positions near is the nearest from which no key of
 * the sequence is 2^31 or more away; then both parts of a distance have one sign, and their sum in
 * f32 is off by roundings alone. */
typedef struct heed_row_position {
    int32_t near;
    float far;
} heed_row_position;

static inline heed_row_position heed_position_of(const heed_tile *tile, int64_t query)
{
    const int64_t position = query + tile->q_offset, least = tile->kv_len - 1 - INT32_MAX;
    const int64_t near = position < least ? least : position > INT32_MAX ? INT32_MAX : position;
    return (heed_row_position){(int32_t)near, (float)(position - near)};
}

#endif
