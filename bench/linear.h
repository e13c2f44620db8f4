/* The rows of linear layers: linear/<backend>/<dtype>/<shape>/threads:<n>. */
#ifndef HEED_BENCH_LINEAR_H
#define HEED_BENCH_LINEAR_H

#include <string>
#include <vector>

#include "problem.h"
#include "rows.h"

namespace heed_bench
{

/* Registers the rows of one backend. The pool must outlive the run. */
void register_linear_rows(const Selection &selection, const std::vector<unsigned> &threads,
                          const std::string &backend, double limit, Pool &pool, Skipped *skipped);

} // namespace heed_bench

#endif
