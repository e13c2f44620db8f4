/* Prints the demo's table. */
#include "table.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace heed_bench
{

namespace
{

void note(std::vector<std::string> *list, const std::string &item)
{
    if (std::find(list->begin(), list->end(), item) == list->end())
        list->push_back(item);
}

std::string number(double x, const char *unit)
{
    char text[32];
    std::snprintf(text, sizeof text, x < 10 ? "%.2f %s" : "%.0f %s", x, unit);
    return text;
}

} // namespace

/* The cell of attn/<backend>/<dtype>/<shape>/threads:<n>; adds its line and column if they are
 * new. */
std::string &TableReporter::cell(const std::string &row_name)
{
    std::string attn, backend, dtype, shape;
    std::istringstream name(row_name);
    std::getline(name, attn, '/');
    std::getline(name, backend, '/');
    std::getline(name, dtype, '/');
    std::getline(name, shape, '/');
    const std::string line =
        dtype + std::string(10 - std::min(dtype.size(), size_t(9)), ' ') + shape;
    note(&backends_, backend);
    note(&shapes_, line);
    return cells_[{line, backend}];
}

void TableReporter::refuse(const std::string &row_name)
{
    cell(row_name) = "refused";
}

void TableReporter::ReportRuns(const std::vector<Run> &runs)
{
    std::vector<double> gflops, gbps, seconds;
    std::string name;
    bool failed = false;
    for (const Run &run : runs) {
        if (run.run_type != Run::RT_Iteration)
            continue;
        name = run.run_name.function_name;
        failed |= run.error_occurred;
        if (run.error_occurred)
            continue;
        gflops.push_back(run.counters.at("GFLOPS"));
        gbps.push_back(run.counters.at("GBps"));
        seconds.push_back(run.real_accumulated_time / double(run.iterations));
    }
    if (name.empty())
        return;
    const auto median = [](std::vector<double> &x) {
        std::sort(x.begin(), x.end());
        return x[x.size() / 2];
    };
    std::string &text = cell(name);
    if (failed || seconds.empty())
        text = "failed";
    else if (name.find("decode") != std::string::npos)
        text = number(median(gbps), "GB/s");
    else if (name.find("small") != std::string::npos)
        text = number(median(seconds) * 1e6, "us");
    else
        text = number(median(gflops), "GFLOP/s");
}

void TableReporter::print() const
{
    std::printf("%-44s", "type      shape");
    for (const std::string &backend : backends_)
        std::printf(" %14s", backend.c_str());
    std::printf("\n");
    for (const std::string &shape : shapes_) {
        std::printf("%-44s", shape.c_str());
        for (const std::string &backend : backends_) {
            const auto cell = cells_.find({shape, backend});
            std::printf(" %14s", cell == cells_.end() ? "-" : cell->second.c_str());
        }
        std::printf("\n");
    }
}

} // namespace heed_bench
