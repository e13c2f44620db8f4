/* heed-bench: compares the backends of this machine with each other and with its ceilings.
 *
 *     heed-bench --benchmark_out=heed.json               everything; the console shows it too
 *     heed-bench --quick --benchmark_out=quick.json      two minutes
 *     heed-bench --benchmark_filter='attn/avx2/f32/.*d64_full/threads:1'
 *
 * Rows      attn/<backend>/<dtype>/<shape>/threads:<n>, linear/... in the same way, and
 *           ceiling/<kind>/threads:<n>; the shapes are in shapes.h. Each repetition of a row
 *           measures its ceiling right before its timed loop.
 * Refused   a shape that a backend refuses has no row: it is listed with the reason on stderr and
 *           in the context of the JSON.
 * Exit      0; 1 if the filter matches nothing, a row failed or what was measured cannot be written;
 *           2 for a wrong option.
 */
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <regex>
#include <string>
#include <vector>

#include "machine.h"
#include "rows.h"
#include "shapes.h"
#include "table.h"

namespace
{

using heed_bench::Selection;

const char usage[] =
    "heed-bench [OPTION]... [--benchmark_OPTION]...\n"
    "  --quick           two minutes: f32 and bf16, 1 thread, short calls\n"
    "  --demo            a table of a few shapes, backends beside each other, in under 30 s\n"
    "  --threads=N[,N]   numbers of threads (1 and all CPUs)\n"
    "  --limit=SECONDS   leave out what is estimated to take longer a call (15; naive: 1;\n"
    "                    --demo: 1; --quick: 0.3)\n"
    "  --shapes          print the shapes as JSON and end\n"
    "  --linear-shapes   the same of linear layers\n"
    "Google Benchmark's own options, such as --benchmark_filter, --benchmark_out,\n"
    "--benchmark_repetitions (5) and --benchmark_min_time (0.1):\n";

void print_shapes()
{
    static const char *const bounds[] = {"compute", "memory", "latency"};
    static const char *const layouts[] = {"bhsd", "bshd"};
    static const char *const scores[] = {"plain", "bias", "softcap"};
    const char *separator = "[";
    for (const heed_bench::Shape &s : heed_bench::shapes) {
        if (s.storage != heed_bench::Storage::padded || heed_bench::chooses(s.mask))
            continue; /* the peers do not compute these */
        std::printf(
            "%s\n {\"name\": \"%s\", \"bound\": \"%s\", \"layout\": \"%s\", \"mask\": \"%s\", "
            "\"score\": \"%s\", \"capped_at\": %g, "
            "\"batch\": %lld, \"q_heads\": %u, \"kv_heads\": %u, \"q_len\": "
            "%lld, "
            "\"kv_len\": %lld, \"qk_dim\": %u, \"v_dim\": %u, \"v_in_k\": %s, "
            "\"simple\": %s, \"flops\": %.0f, \"kv_elements\": %.0f}",
            separator, s.name, bounds[int(s.bound)], layouts[int(s.layout)],
            heed_bench::mask_names[int(s.mask)], scores[int(s.score)],
            double(heed_bench::capped_at), (long long)s.batch, s.q_heads, s.kv_heads,
            (long long)s.q_len, (long long)s.kv_len, s.qk_dim, s.v_dim, s.v_in_k ? "true" : "false",
            s.simple ? "true" : "false", heed_bench::flops(s), heed_bench::kv_elements(s));
        separator = ",";
    }
    std::printf("\n]\n");
}

void print_linear_shapes()
{
    const char *separator = "[";
    for (const heed_bench::LinearShape &s : heed_bench::linear_shapes) {
        std::printf("%s\n {\"name\": \"%s\", \"bound\": \"%s\", \"m\": %lld, \"n\": %u, \"k\": %u, "
                    "\"gelu\": %s}",
                    separator, s.name, s.bound == heed_bench::Bound::memory ? "memory" : "compute",
                    (long long)s.m, s.n, s.k, s.gelu ? "true" : "false");
        separator = ",";
    }
    std::printf("\n]\n");
}

bool parse_threads(const char *text, std::vector<unsigned> *threads)
{
    threads->clear();
    for (;;) {
        char *end;
        const unsigned long n = std::strtoul(text, &end, 10);
        if (end == text || n == 0 || n > heed_bench::usable_cpus())
            return false;
        threads->push_back(unsigned(n));
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
}

/* Removes this program's own options from the command line. False, with a line on stderr, for a
 * wrong one. */
bool parse(std::vector<char *> *words, Selection *selection, double *limit, bool *quick,
           bool *shapes, bool *linear_shapes)
{
    std::vector<char *> rest;
    for (char *word : *words) {
        if (std::strcmp(word, "--quick") == 0) {
            *quick = true;
        } else if (std::strcmp(word, "--demo") == 0) {
            selection->demo = true;
        } else if (std::strcmp(word, "--shapes") == 0) {
            *shapes = true;
        } else if (std::strcmp(word, "--linear-shapes") == 0) {
            *linear_shapes = true;
        } else if (std::strcmp(word, "--help") == 0) {
            std::fputs(usage, stdout);
            rest.push_back(word);
        } else if (std::strncmp(word, "--threads=", 10) == 0) {
            if (!parse_threads(word + 10, &selection->threads)) {
                std::fprintf(stderr,
                             "heed-bench: --threads wants numbers from 1 to %u, got \"%s\"\n",
                             heed_bench::usable_cpus(), word + 10);
                return false;
            }
        } else if (std::strncmp(word, "--limit=", 8) == 0) {
            char *end;
            *limit = std::strtod(word + 8, &end);
            if (end == word + 8 || *end != '\0' || !(*limit > 0)) {
                std::fprintf(stderr, "heed-bench: --limit wants seconds, got \"%s\"\n", word + 8);
                return false;
            }
        } else {
            rest.push_back(word);
        }
    }
    *words = rest;
    return true;
}

/* Google Benchmark's filter, applied to names before there are rows, so that the rows which it
 * drops are neither estimated nor reported as left out. */
std::function<bool(const std::string &)> filter_of(const std::vector<char *> &words)
{
    static const char option[] = "--benchmark_filter=";
    std::string filter;
    for (const char *word : words)
        if (word && std::strncmp(word, option, sizeof option - 1) == 0)
            filter = word + sizeof option - 1;
    if (filter.empty() || filter == "all" || filter == ".")
        return [](const std::string &) { return true; };
    const bool negative = filter[0] == '-';
    const std::regex pattern(filter.substr(negative), std::regex::extended);
    return [=](const std::string &name) {
        return std::regex_search(name + "/real_time", pattern) != negative;
    };
}

/* The JSON of --benchmark_out, of which Google Benchmark does not ask whether it could be written. */
class JsonFile : public benchmark::JSONReporter
{
  public:
    bool lost = false;

    void Finalize() override
    {
        JSONReporter::Finalize();
        lost = !GetOutputStream().flush();
    }
};

/* Whether there is such a file: with --benchmark_out_format it may be another kind. */
bool writes_json(const std::vector<char *> &words)
{
    bool out = false, json = true;
    for (const char *word : words) {
        out = out || (word && std::strncmp(word, "--benchmark_out=", 16) == 0 && word[16]);
        if (word && std::strncmp(word, "--benchmark_out_format=", 23) == 0)
            json = std::strcmp(word + 23, "json") == 0;
    }
    return out && json;
}

/* Adds to the JSON what has no row, and why. */
void add_context(const heed_bench::Skipped &skipped)
{
    std::string left_out, refused;
    for (const auto &[name, value] : heed_bench::machine_context())
        benchmark::AddCustomContext(name, value);
    for (const std::string &line : skipped.left_out)
        left_out += (left_out.empty() ? "" : "; ") + line;
    for (const auto &[name, reason] : skipped.refused)
        refused += (refused.empty() ? "" : "\n") + name + ": " + reason;
    benchmark::AddCustomContext("left_out", left_out);
    benchmark::AddCustomContext("refused", refused);
}

/* Prints the same for the user. */
void tell(const heed_bench::Skipped &skipped)
{
    for (const std::string &line : skipped.left_out)
        std::fprintf(stderr, "left out: %s\n", line.c_str());
    for (const auto &[name, reason] : skipped.refused)
        std::fprintf(stderr, "refused: %s: %s\n", name.c_str(), reason.c_str());
}

/* Says what went wrong. Returns the exit status. */
int conclude(size_t n_rows, const heed_bench::Skipped &skipped, const JsonFile &file)
{
    if (n_rows == 0 && skipped.refused.empty()) {
        std::fputs("heed-bench: the filter matches no row\n", stderr);
        return 1;
    }
    if (heed_bench::any_failed())
        std::fputs("heed-bench: a row failed\n", stderr);
    if (file.lost)
        std::fputs("heed-bench: the file of --benchmark_out cannot be written\n", stderr);
    return heed_bench::any_failed() || file.lost;
}

int run(int argc, char **argv)
{
    Selection selection;
    double limit = 0; /* not given */
    bool quick = false, shapes = false, linear_shapes = false;
    std::vector<char *> words(argv + 1, argv + argc);
    if (!parse(&words, &selection, &limit, &quick, &shapes, &linear_shapes))
        return 2;
    if (shapes || linear_shapes) {
        if (shapes)
            print_shapes();
        else
            print_linear_shapes();
        return 0;
    }
    /* These come first, so that the user's options take precedence. The table of the demo needs the
     * repetitions. */
    const bool hurry = quick || selection.demo;
    static char repetitions[] = "--benchmark_repetitions=5", time[] = "--benchmark_min_time=0.1";
    static char few[] = "--benchmark_repetitions=3", short_time[] = "--benchmark_min_time=0.01";
    static char medians[] = "--benchmark_display_aggregates_only=true";
    static char all_rows[] = "--benchmark_display_aggregates_only=false";
    selection.wanted = filter_of(words);
    words.insert(words.begin(), {argv[0], selection.demo ? all_rows : medians,
                                 hurry ? few : repetitions, hurry ? short_time : time});
    if (hurry) {
        selection.limit = selection.naive_limit = selection.demo ? 1 : 0.3;
        selection.f16 = false;
        if (selection.threads.empty())
            selection.threads = {1};
    }
    if (limit > 0)
        selection.limit = selection.naive_limit = limit;
    const bool to_file = writes_json(words);
    words.push_back(nullptr);
    int n_words = int(words.size()) - 1;
    benchmark::Initialize(&n_words, words.data());
    if (benchmark::ReportUnrecognizedArguments(n_words, words.data()))
        return 2;

    const heed_bench::Skipped skipped = heed_bench::register_rows(selection);
    add_context(skipped);
    heed_bench::TableReporter table;
    benchmark::BenchmarkReporter *const shown = selection.demo ? &table : nullptr;
    JsonFile file;
    size_t n_rows = 0;
    if (skipped.n_rows > 0)
        n_rows = benchmark::RunSpecifiedBenchmarks(shown, to_file ? &file : nullptr);
    if (selection.demo && n_rows > 0) {
        for (const auto &[name, reason] : skipped.refused)
            table.refuse(name);
        table.print();
    }
    tell(skipped);
    return conclude(n_rows, skipped, file);
}

} // namespace

int main(int argc, char **argv)
{
    try {
        int status = run(argc, argv);
        if (status == 0 &&
            (!std::cout.flush() || std::fflush(stdout) != 0 || std::ferror(stdout))) {
            std::fputs("heed-bench: stdout cannot be written\n", stderr);
            status = 1;
        }
        return status;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "heed-bench: %s\n", error.what());
        return 1;
    }
}
