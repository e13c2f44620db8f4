/* A call's threads, for its work between runs: copying, merging and finishing rows. */
#ifndef HEED_CORE_CREW_H
#define HEED_CORE_CREW_H

#include "runtime/parallel.h"

typedef struct heed_crew {
    const heed_executor *executor; /* as of heed_executor_of */
    uint32_t n_threads;
    double limit; /* heed_serial_limit */
} heed_crew;

/* Rows [first, end) of something; no row depends on another. */
typedef void heed_crew_rows(void *arg, int64_t first, int64_t end);

/* Does n rows of so many nanoseconds each, in pieces that are taken by as many threads as that is
 * worth, in the library's own floating-point environment. */
void heed_crew_do(const heed_crew *crew, int64_t n, int64_t nanoseconds, heed_crew_rows *rows,
                  void *arg);

/* Nanoseconds for a row of one head on a core of a Zen 4 with the rows in its caches: for copying
 * so many bytes, and for merging so many parts of `dim` numbers each into out_type. Measured with
 * 64 and 128 dims and 1 to 8 parts; right within a quarter. Whole numbers, because a host may let inexact
 * results trap where these are asked for; that of all heads and the most parts is below 2^58. */
static inline int64_t heed_copy_nanoseconds(int64_t bytes)
{
    return 5 + bytes / 32;
}

static inline int64_t heed_merge_nanoseconds(uint32_t n_parts, int64_t dim, uint32_t out_type)
{
    return 10 + n_parts * (26 + 19 * dim / 100) + (out_type == HEED_F32 ? 2 : 15) * dim / 10;
}

#endif
