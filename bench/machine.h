/* What a figure means without its machine: nothing. The lines that go into the JSON's context. */
#ifndef HEED_BENCH_MACHINE_H
#define HEED_BENCH_MACHINE_H

#include <string>
#include <utility>
#include <vector>

namespace heed_bench
{

/* CPUs that this process may run on. */
unsigned usable_cpus();

/* Names and values: machine, system, compiler, commit, Heed's version, bytes of rotation. */
std::vector<std::pair<std::string, std::string>> machine_context();

} // namespace heed_bench

#endif
