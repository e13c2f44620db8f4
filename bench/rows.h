/* The rows of the suite: which there are, and how one is measured. */
#ifndef HEED_BENCH_ROWS_H
#define HEED_BENCH_ROWS_H

#include <functional>
#include <string>
#include <vector>

namespace heed_bench
{

struct Selection {
    bool demo = false;
    double limit = 15;             /* rows whose call is estimated to take longer are left out */
    double naive_limit = 1;        /* the same for naive, which is there to be compared with */
    std::vector<unsigned> threads; /* 1 and all usable CPUs unless given */
    bool f16 = true;
    std::function<bool(const std::string &)> wanted; /* by name: what the filter will keep */
};

/* The line that says so of a row whose call is estimated to take too many seconds. */
std::string too_long(const std::string &name, double seconds);

/* Registers the ceilings and every backend x type x shape x threads with Google Benchmark. Returns
 * a line for each row or backend that was left out, with the reason. */
std::vector<std::string> register_rows(const Selection &selection);

} // namespace heed_bench

#endif
