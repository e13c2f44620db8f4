/* Describes the machine, without which figures mean nothing: lines for the context of the JSON. */
#ifndef HEED_BENCH_MACHINE_H
#define HEED_BENCH_MACHINE_H

#include <string>
#include <utility>
#include <vector>

namespace heed_bench
{

/* The number of CPUs that this process may run on. */
unsigned usable_cpus();

/* Names and values: the machine, system, compiler, commit, version of Heed and rotation_bytes(). */
std::vector<std::pair<std::string, std::string>> machine_context();

} // namespace heed_bench

#endif
