/* The clock that waits and measurements go by. For files with _GNU_SOURCE. */
#ifndef HEED_CORE_CLOCK_H
#define HEED_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since some moment; never set back. */
static inline int64_t heed_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

#endif
