/* What every kind of row asks of time. */
#ifndef HEED_BENCH_CLOCK_H
#define HEED_BENCH_CLOCK_H

#include <chrono>
#include <ctime>
#include <thread>

namespace heed_bench
{

constexpr double ceiling_seconds = 5e-3;

inline double now()
{
    using clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

/* Of all threads of this process. */
inline double cpu_seconds()
{
    struct timespec t = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

/* Workers of an OpenMP runtime go on spinning for a while after a call, and would take the CPUs of
 * the threads that measure a ceiling. */
inline void let_workers_sleep(unsigned n_threads)
{
    if (n_threads > 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

} // namespace heed_bench

#endif
