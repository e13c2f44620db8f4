/* Random numbers that are a function of what they are for: a seed and up to five coordinates. So a
 * sequence's data does not change with the batch it is in, the width of the tensors or the order in
 * which they are filled, and a case is replayed from its seed alone. */
#ifndef KIT_RANDOM_H
#define KIT_RANDOM_H

#include <stdint.h>

/** The finaliser of splitmix64 (Steele, Lea, Flood 2014): all input bits reach all output bits. */
static inline uint64_t kit_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/** Mixes one more coordinate in. */
static inline uint64_t kit_hash(uint64_t seed, int64_t coordinate)
{
    return kit_mix(seed ^ kit_mix((uint64_t)coordinate));
}

/** [0, 1) from the upper 53 bits. */
static inline double kit_uniform(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/** Nearly N(0, 1), within +-3.46: the sum of four 16-bit uniforms, scaled to variance 1. */
static inline double kit_normal(uint64_t bits)
{
    const uint64_t sum =
        (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return ((double)(int64_t)sum * 0x1p-16 - 2) * 1.7320508075688772;
}

/** The next number of a stream, for choices. */
static inline uint64_t kit_next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return kit_mix(*state);
}

/** The next number of a stream, in [0, n). */
static inline int64_t kit_below(uint64_t *state, int64_t n)
{
    return (int64_t)(kit_next(state) % (uint64_t)n);
}

/** The next number of a stream, in [-1, 1) and exact in f32. */
static inline float kit_next_float(uint64_t *state)
{
    return (float)(kit_next(state) >> 40) * 0x1p-23F - 1;
}

#endif
