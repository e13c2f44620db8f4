/* CPU time, and waiting for threads to sleep: used for rows of every kind. */
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

/* The CPU seconds of all threads of this process. */
inline double cpu_seconds()
{
    struct timespec t = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

/* Gives the workers of an OpenMP runtime time to fall asleep: after a call they spin for a while,
 * and would take CPUs from the threads that measure a ceiling. */
inline void let_workers_sleep(unsigned n_threads)
{
    if (n_threads > 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

} // namespace heed_bench

#endif
