/* How a row is measured, of attention or of a linear layer: its memory, its calls beside the ceilings
 * of the machine, and what becomes of an exception. */
#ifndef HEED_BENCH_MEASURE_H
#define HEED_BENCH_MEASURE_H

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>

#include "ceiling.h"
#include "clock.h"
#include "problem.h"
#include "rows.h"

namespace heed_bench
{

/* Memory as a run wants it, aligned to 64 bytes; empty if there is none. */
using Workspace = std::unique_ptr<void, decltype(&std::free)>;
inline Workspace workspace_of(size_t bytes)
{
    return {std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free};
}

/* Measures a row. An exception becomes the error of that row and does not end the run. */
template <typename Measure>
void guarded(benchmark::State &state, Measure measure)
{
    try {
        measure();
    } catch (const TooLittleMemory &refusal) {
        state.SkipWithError(refusal.what());
    } catch (const std::exception &error) {
        fail(state, error.what());
    }
}

/* What a call does, and what limits it. */
struct Work {
    double flops, bytes; /* bytes that have to be read */
    int ceiling;         /* of the arithmetic; below 0: none is known */
    unsigned n_threads;
    std::function<double()> read; /* measures the GB/s of reading, where that is the limit */
};

/* Times calls and shows their speed beside that of the machine, which is measured right before. */
template <typename Call>
void time_calls(benchmark::State &state, const Work &work, const Call &call)
{
    let_workers_sleep(work.n_threads);
    const double peak =
        work.ceiling < 0 ? 0 : heed_ceiling_gflops(work.ceiling, work.n_threads, ceiling_seconds);
    double read = work.read ? work.read() : 0;
    int64_t calls = 0;
    const double cpu_start = cpu_seconds(), start = now();
    for (auto _ : state) {
        if (call() != HEED_OK)
            return fail(state, heed_last_error());
        calls++;
    }
    const double wall = now() - start, seconds = wall / double(calls);
    const double cpu = cpu_seconds() - cpu_start;
    const double gflops = work.flops / seconds * 1e-9, gbps = work.bytes / seconds * 1e-9;
    if (read > 0 && gbps > read) /* perhaps something else ran while it was measured */
        read = std::max(read, work.read());
    state.counters["GFLOPS"] = gflops;
    state.counters["GBps"] = gbps;
    state.counters["pct_cpu"] = 100 * cpu / (wall * work.n_threads);
    if (peak > 0) {
        state.counters["peak_GFLOPS"] = peak;
        state.counters["pct_peak"] = 100 * gflops / peak;
    }
    if (read > 0) {
        state.counters["read_GBps"] = read;
        state.counters["pct_read"] = 100 * gbps / read;
    }
}

} // namespace heed_bench

#endif
