/* The table that the demo prints: a line for each shape, a column for each backend. */
#ifndef HEED_BENCH_TABLE_H
#define HEED_BENCH_TABLE_H

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

namespace heed_bench
{

/* Collects rows as they are measured; prints nothing before print(). */
class TableReporter : public benchmark::BenchmarkReporter
{
  public:
    bool ReportContext(const Context &) override
    {
        return true;
    }
    void ReportRuns(const std::vector<Run> &runs) override;
    /* Records that the backend of the named row refuses it. */
    void refuse(const std::string &row_name);

    /* Prints the median speed of each row: GFLOP/s, GB/s for decode, microseconds per call for
     * small ones. */
    void print() const;

  private:
    std::string &cell(const std::string &row_name);

    std::vector<std::string> backends_, shapes_; /* in order of appearance, as "dtype shape" */
    std::map<std::pair<std::string, std::string>, std::string> cells_; /* by shape and backend */
};

} // namespace heed_bench

#endif
