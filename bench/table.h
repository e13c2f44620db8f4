/* The demo's output: shapes down, backends across. */
#ifndef HEED_BENCH_TABLE_H
#define HEED_BENCH_TABLE_H

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

namespace heed_bench
{

/* Gathers rows as they are measured; says nothing until print(). */
class TableReporter : public benchmark::BenchmarkReporter
{
  public:
    bool ReportContext(const Context &) override
    {
        return true;
    }
    void ReportRuns(const std::vector<Run> &runs) override;
    /* A row that its backend does not serve, by its name. */
    void refuse(const std::string &row_name);

    /* Median speed of each row: GFLOP/s, GB/s for decode, microseconds a call for small ones. */
    void print() const;

  private:
    std::string &cell(const std::string &row_name);

    std::vector<std::string> backends_,
        shapes_; /* in order of appearance; shapes as "dtype shape" */
    std::map<std::pair<std::string, std::string>, std::string> cells_; /* by shape and backend */
};

} // namespace heed_bench

#endif
