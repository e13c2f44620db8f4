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

/* The line about a row that is left out because a call is estimated to take that many seconds. */
std::string too_long(const std::string &name, double seconds);

/* The rows that are not measured, and why. */
struct Skipped {
    std::vector<std::string>
        left_out; /* lines: backends that cannot run, rows that take too long */
    std::vector<std::pair<std::string, std::string>> refused; /* name and reason of a row that its
                                                                 backend refuses */
    size_t n_rows = 0; /* the registered ones, which will be measured */
};

/* Registers the ceilings and every combination of backend, type, shape and threads with Google
 * Benchmark. */
Skipped register_rows(const Selection &selection);

/* Ends a row with an error; from then on any_failed() is true. */
void fail(benchmark::State &state, const std::string &why);
bool any_failed();

} // namespace heed_bench

#endif
