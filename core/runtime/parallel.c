/* The one place where the library starts threads: OpenMP's, where the caller brought none. */
#include "parallel.h"

#include "base/reason.h"
#include "fork.h"
#include "heed_config.h"

#if HEED_HAVE_OPENMP
#include <omp.h>
#endif

/* Takes the place of HEED_SERIAL_NANOSECONDS where OpenMP's workers sleep until they are called:
 * the second thread comes 40 to 60 us late. Break-even was at 80 to 150 us of work. */
#define SERIAL_NANOSECONDS_ASLEEP 120000.0

/* More than any machine has. An executor that offers more threads is taken to have this many. */
#define MOST_THREADS 4096

heed_status heed_check_executor(const heed_executor *in, heed_executor *out, heed_error *why)
{
    heed_status st = heed_read_struct("executor", in, sizeof *out, out, why);
    if (st == HEED_OK && !out->parallel_for)
        st = heed_fail(why, HEED_ERR_INVALID, "executor.parallel_for is NULL");
    if (st == HEED_OK && !out->n_threads)
        st = heed_fail(why, HEED_ERR_INVALID, "executor.n_threads is 0, at least 1 is required");
    if (st == HEED_OK && out->reserved)
        st = heed_fail(why, HEED_ERR_INVALID, "executor.reserved is %u, 0 is required",
                       out->reserved);
    return st;
}

heed_status heed_executor_of(const heed_context *context, const heed_executor *given,
                             heed_executor *copy, const heed_executor **out, heed_error *why)
{
    *out = context->user.executor;
    if (!given || given == *out)
        return HEED_OK;
    *out = copy;
    return heed_check_executor(given, copy, why);
}

uint32_t heed_threads_for(const heed_context *context, const heed_executor *executor)
{
    const uint32_t n = executor ? executor->n_threads : context->n_threads;
    const uint32_t most = n < MOST_THREADS ? n : MOST_THREADS;
    if (executor)
        return most;
#if HEED_HAVE_OPENMP
    /* For one thread the OpenMP runtime is not asked: LLVM's allocates memory when it
     * is first called. */
    if (most == 1 || heed_after_fork() || omp_in_parallel())
        return 1;
    return most;
#else
    return 1;
#endif
}

double heed_serial_limit(const heed_context *context, const heed_executor *executor)
{
    return !executor && context->workers_sleep ? SERIAL_NANOSECONDS_ASLEEP
                                               : HEED_SERIAL_NANOSECONDS;
}

uint32_t heed_parts_worth(double nanoseconds, double limit, int64_t n_tiles, uint32_t n_parts)
{
    int64_t most = n_tiles < n_parts ? n_tiles : n_parts;
    if (most < 2 || !(nanoseconds >= limit)) /* before the division, which small calls feel */
        return 1;
    const double worth = nanoseconds / (limit / 2);
    return worth < (double)most ? (uint32_t)worth : (uint32_t)most;
}

/* A separate function, because clang asks the OpenMP runtime for the thread at the beginning of the
 * function that holds the region, and LLVM's runtime allocates memory when it is first called. */
static void run_openmp(uint32_t n_parts, void (*body)(void *arg, uint32_t part), void *arg)
{
#if HEED_HAVE_OPENMP
#pragma omp parallel num_threads((int)n_parts)
    body(arg, (uint32_t)omp_get_thread_num());
#else
    (void)n_parts; /* one part does all the work */
    body(arg, 0);
#endif
}

void heed_parallel(const heed_executor *executor, uint32_t n_parts,
                   void (*body)(void *arg, uint32_t part), void *arg)
{
    if (n_parts == 1)
        body(arg, 0);
    else if (executor)
        executor->parallel_for(executor->user, n_parts, body, arg);
    else
        run_openmp(n_parts, body, arg);
}
