/* The rows of heed-bench: which there are, and how each is measured. */
#ifndef HEED_BENCH_ROWS_H
#define HEED_BENCH_ROWS_H

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace heed_bench
{

struct Selection {
    bool demo = false;
    double limit = 15;             /* rows whose call is estimated to take longer are left out */
    double naive_limit = 1;        /* the same for naive, which is only for comparison */
    std::vector<unsigned> threads; /* 1 and all usable CPUs unless given */
    bool f16 = true;
    std::function<bool(const std::string &)> wanted; /* whether the filter keeps a name */
};

/* The rows that are not measured, and why, and how many are. */
struct Skipped {
    std::vector<std::string>
        left_out; /* lines: backends that cannot run, rows that take too long */
    std::vector<std::pair<std::string, std::string>> refused; /* name and reason of a row that its
                                                                 backend refuses */
    size_t n_rows = 0; /* the registered ones, which will be measured */

    /* Registers a row, or leaves it out if a call is estimated to take longer than the limit. */
    template <typename... Arguments>
    void add(const std::string &name, double seconds, double limit, Arguments... measure)
    {
        if (seconds > limit)
            return leave_out(name, seconds);
        n_rows++;
        benchmark::RegisterBenchmark(name.c_str(), measure...)
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
    }

  private:
    void leave_out(const std::string &name, double seconds);
};

/* Registers the ceilings and every combination of backend, type, shape and threads with Google
 * Benchmark. */
Skipped register_rows(const Selection &selection);

/* Ends a row with an error; from then on any_failed() is true. */
void fail(benchmark::State &state, const std::string &why);
bool any_failed();

} // namespace heed_bench

#endif
