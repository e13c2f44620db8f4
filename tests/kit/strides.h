/* Draws strides of all kinds, for layouts that have no name. */
#ifndef KIT_STRIDES_H
#define KIT_STRIDES_H

#include <stdint.h>

/** Axes of an input that are broadcast (stride 0), in about one draw of six: bit a for axis a. */
static inline int kit_draw_same(uint64_t draw)
{
    return (draw >> 24) % 6 == 5 ? (int)(draw >> 16 & 15) : 0;
}

/** The stride of an axis of one element means nothing: it may be any number, of which these are some. */
static inline int64_t kit_any_stride(int n)
{
    static const int64_t any[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2 + 2};
    return any[n % 3];
}

/** Lays up to four axes out in any order, with gaps, some of them backwards and those in `same`
 * with a stride of 0. Returns the elements that they span; *first is the one that the view points
 * at. A draw of 0 is dense. */
static inline int64_t kit_draw_strides(uint64_t draw, int n_axes, const int64_t *dim, int same,
                                       int64_t *stride, int64_t *first)
{
    uint32_t which = (uint32_t)(draw & 255);
    const uint32_t odd = (uint32_t)(draw >> 8 & 255); /* bits: backwards, gap */
    int order[4] = {0, 1, 2, 3};
    int64_t step = 1, high = 0;
    for (int i = n_axes - 1; i > 0; i--) { /* 0 leaves the last axis the fastest */
        const int other = i - (int)(which % (uint32_t)(i + 1)), axis = order[i];
        which /= (uint32_t)(i + 1);
        order[i] = order[other];
        order[other] = axis;
    }
    *first = 0;
    for (int i = n_axes - 1; i >= 0; i--) {
        const int axis = order[i];
        const int64_t n = dim[axis] > 0 ? dim[axis] : 1;
        stride[axis] = same >> axis & 1 ? 0 : step + (odd >> (axis + 4) & 1) * (odd & 7);
        high += stride[axis] * (n - 1);
        if (stride[axis])
            step = stride[axis] * n;
        if (odd >> axis & 1) {
            *first += stride[axis] * (n - 1);
            stride[axis] = -stride[axis];
        }
    }
    return high + 1;
}

#endif
