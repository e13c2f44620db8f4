/* How a tensor lies in memory, by bytes. */
#ifndef FUZZ_LAYOUT_H
#define FUZZ_LAYOUT_H

#include "fuzz_bytes.h"

/** Axes in any order, with gaps, backwards, and for inputs broadcast. Returns the elements that up
 * to four axes span; *first is the one that the view points at. */
static inline int64_t fuzz_lay_out(fuzz_bytes *bytes, int n_axes, const int64_t *dim,
                                   int64_t *stride, int is_input, int64_t *first)
{
    uint32_t draw = fuzz_byte(bytes);
    const uint32_t odd = fuzz_byte(bytes); /* bits: backwards, gap */
    const uint32_t broadcast = is_input && fuzz_rarely(bytes, 6) ? fuzz_byte(bytes) : 0;
    int order[4] = {0, 1, 2, 3};
    int64_t step = 1, high = 0;
    for (int i = n_axes - 1; i > 0; i--) { /* 0 leaves the last axis the fastest */
        const int other = i - (int)(draw % (uint32_t)(i + 1)), axis = order[i];
        draw /= (uint32_t)(i + 1);
        order[i] = order[other];
        order[other] = axis;
    }
    *first = 0;
    for (int i = n_axes - 1; i >= 0; i--) {
        const int axis = order[i];
        const int64_t n = dim[axis] > 0 ? dim[axis] : 1;
        stride[axis] = broadcast >> axis & 1 ? 0 : step + (odd >> (axis + 4) & 1) * (odd & 7);
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
