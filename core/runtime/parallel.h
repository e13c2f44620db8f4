/* Threads: how many a call may use, and running parts on them. */
#ifndef HEED_CORE_PARALLEL_H
#define HEED_CORE_PARALLEL_H

#include "context.h"

/* Copies an executor if it can be used. */
heed_status heed_check_executor(const heed_executor *in, heed_executor *out, heed_error *why);

/* The executor of a call: the one that its args give (which may be NULL), else the context's, else
 * none, which means OpenMP. *out points at `copy` or at the context's; NULL: none. */
heed_status heed_executor_of(const heed_context *context, const heed_executor *given,
                             heed_executor *copy, const heed_executor **out, heed_error *why);

/* Threads that a call may use here and now. */
uint32_t heed_threads_for(const heed_context *context, const heed_executor *executor);

/* Below this a second thread costs more than it brings. Measured fork-join times are 0.5 to 2 us
 * while the workers spin, and on two virtual CPUs of a Zen 4 from 1.4 to 5.5 us from one hour to
 * the next: break-even was at 2.6 to 10 us of work. */
#define HEED_SERIAL_NANOSECONDS 8000.0

/* Nanoseconds of work of one core below which the threads of a call are not worth waking.
 * executor: as of heed_executor_of. */
double heed_serial_limit(const heed_context *context, const heed_executor *executor);

/* How many parts, 1 to n_parts, are worth using for so much work in so many tiles. Each has at
 * least limit / 2 to do. */
uint32_t heed_parts_worth(double nanoseconds, double limit, int64_t n_tiles, uint32_t n_parts);

/* Runs body(arg, part) for each part < n_parts, which is at least 1: on the executor's threads if
 * there is one, else on OpenMP's. */
void heed_parallel(const heed_executor *executor, uint32_t n_parts,
                   void (*body)(void *arg, uint32_t part), void *arg);

#endif
