/* Size arithmetic that notices overflow. Each returns 0 on success, 1 on overflow, and may be
 * chained by |=. */
#ifndef HEED_CORE_CHECKED_H
#define HEED_CORE_CHECKED_H

#include <stddef.h>
#include <stdint.h>

static inline int heed_mul_size(size_t a, size_t b, size_t *out)
{
    return __builtin_mul_overflow(a, b, out);
}

static inline int heed_add_size(size_t a, size_t b, size_t *out)
{
    return __builtin_add_overflow(a, b, out);
}

/* Rounds up to a multiple of `to`, a power of two. */
static inline int heed_round_size(size_t a, size_t to, size_t *out)
{
    int bad = __builtin_add_overflow(a, to - 1, out);
    *out &= ~(to - 1);
    return bad;
}

static inline int64_t heed_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* a / b for numbers that are not negative. They are almost always small, and a 32-bit division
 * takes half the time of a 64-bit one. */
static inline int64_t heed_divide(int64_t a, int64_t b)
{
    return (uint64_t)(a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

static inline int64_t heed_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t heed_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
