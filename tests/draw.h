/* Draws from one stream of random numbers, which begins where a test sets random_state. */
#ifndef HEED_TESTS_DRAW_H
#define HEED_TESTS_DRAW_H

#include "kit/random.h"

static uint64_t random_state;

static inline uint32_t below(uint32_t n)
{
    return (uint32_t)kit_below(&random_state, n);
}

static inline float normal(void)
{
    return (float)kit_normal(kit_next(&random_state));
}

#endif
