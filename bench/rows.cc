/* Registers and measures the rows. */
#include "rows.h"

#include <benchmark/benchmark.h>
#include <heed/kit.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "backends.h"
#include "linear.h"
#include "machine.h"
#include "measure.h"
#if HEED_BENCH_PLAIN_ONEDNN
#include "plain_onednn.h"
#endif
#include "problem.h"
#include "shapes.h"

namespace heed_bench
{

namespace
{

Pool pool;
bool failed = false;

struct Row {
    std::string name, backend;
    const Type *type;
    const Shape *shape;
    unsigned n_threads;
    double estimate; /* in seconds of a call */
};

void measure(benchmark::State &state, const Row &row)
{
    Context &context = context_of(row.backend, row.n_threads);
    if (!context.handle)
        return fail(state, context.error);
    Problem problem(*row.shape, *row.type, pool);
    const Plan plan(context.handle, problem.desc);
    if (!plan.refusal().empty())
        return fail(state, plan.refusal());
    const size_t bytes = heed_attn_workspace_bytes(plan.get(), row.n_threads);
    const Workspace workspace = workspace_of(bytes);
    if (!workspace)
        return fail(state, "no memory for the workspace");
    const std::string kernel = plan.kernel(row.shape->q_len, row.shape->kv_len);
    state.SetLabel(kernel.empty() ? row.backend : kernel);
    const auto call = [&] {
        return row.shape->simple ? heed_attention(context.handle, &problem.desc, &problem.args)
                                 : heed_attn_run(plan.get(), &problem.args, workspace.get(), bytes);
    };

    /* The row whose memory has been touched by an untimed call; long calls do not need one. */
    static std::string warm;
    if (warm != row.name && row.estimate < 0.05 && call() != HEED_OK)
        return fail(state, heed_last_error());
    warm = row.name;

    Work work = {flops(*row.shape), problem.kv_bytes(),
                 ceiling_of(row.backend, kernel, row.type->dtype), row.n_threads, nullptr};
    /* Of keys that are chosen in the call nobody knows here how many are read. */
    if (row.shape->bound == Bound::memory && !chooses(row.shape->mask))
        work.read = [&] {
            return heed_ceiling_read_gbps(pool.data(), pool.bytes(), row.n_threads,
                                          ceiling_seconds);
        };
    const size_t bytes_before = context.peak_bytes = context.bytes;
    time_calls(state, work, [&] {
        problem.next();
        return call();
    });
    state.counters["bytes_extra"] = double(bytes + context.peak_bytes - bytes_before);
}

void measure_row(benchmark::State &state, const Row &row)
{
    guarded(state, [&] { measure(state, row); });
}

#if HEED_BENCH_PLAIN_ONEDNN
/* Measures what oneDNN does without Heed, in the same process, to compare with attn/onednn. */
void measure_plain(benchmark::State &state, const Row &row)
{
    guarded(state, [&] {
        Problem problem(*row.shape, *row.type, pool);
        PlainOneDnn plain(*row.shape, problem.desc, row.n_threads);
        state.SetLabel(plain.implementation());
        plain.run(problem.args);
        let_workers_sleep(row.n_threads);
        int64_t calls = 0;
        const double start = now();
        for (auto _ : state) {
            problem.next();
            plain.run(problem.args);
            calls++;
        }
        const double seconds = (now() - start) / double(calls);
        state.counters["GFLOPS"] = flops(*row.shape) / seconds * 1e-9;
        state.counters["GBps"] = problem.kv_bytes() / seconds * 1e-9;
        state.counters["bytes_extra"] = double(plain.extra_bytes());
    });
}

#endif

void measure_ceiling(benchmark::State &state, int kind, unsigned n_threads)
{
    double sum = 0;
    let_workers_sleep(n_threads);
    for (auto _ : state)
        sum += heed_ceiling_gflops(kind, n_threads, ceiling_seconds);
    state.counters["GFLOPS"] = sum / double(state.iterations());
}

void measure_read(benchmark::State &state, unsigned n_threads)
{
    guarded(state, [&] {
        pool.normal(HEED_F32, rotation_bytes());
        heed_ceiling_read_gbps(pool.data(), pool.bytes(), n_threads, 1e-3); /* chooses a form */
        double sum = 0;
        for (auto _ : state)
            sum += heed_ceiling_read_gbps(pool.data(), pool.bytes(), n_threads, ceiling_seconds);
        state.counters["GBps"] = sum / double(state.iterations());
        state.SetLabel(heed_ceiling_read_form(n_threads));
    });
}

/* The GFLOP/s of a backend on one head of 256 rows, for estimates; 0 if it refuses. */
double probe_rate(const std::string &backend, const Type &type)
{
    constexpr Shape shape = prefill("probe", 1, 256, 64, Mask::full);
    Context &context = context_of(backend, 1);
    if (!context.handle)
        return 0;
    Problem problem(shape, type, pool);
    const Plan plan(context.handle, problem.desc);
    if (!plan.refusal().empty())
        return 0;
    double best = 0;
    for (int i = 0; i < 3; i++) {
        const double start = now();
        if (heed_attn_run(plan.get(), &problem.args, nullptr, 0) != HEED_OK)
            return 0;
        best = std::max(best, flops(shape) / (now() - start) * 1e-9);
    }
    return best;
}

/* The estimated seconds of one call, from the backend's rate and that of a slow memory. It decides
 * which rows take too long, and is not reported. */
double estimate(const Shape &shape, uint32_t dtype, double rate)
{
    const double memory = kv_elements(shape) * heed_dtype_bytes(dtype) / 8e9;
    return std::max(flops(shape) / (rate * 1e9), memory);
}

/* Why the backend refuses the shape; empty if it does not. */
std::string refusal_of(const std::string &backend, const Shape &shape, const Type &type)
{
    Context &context = context_of(backend, 1);
    if (!context.handle)
        return context.error;
    const heed_attn_desc desc = describe(shape, type);
    heed_error why = {};
    if (heed_attn_supported(context.handle, &desc, &why) == HEED_OK)
        return "";
    return why.text[0] ? why.text : "it gives no reason";
}

/* Whether the shape is measured with caches of codes too: decode, for which they are made, and a
 * prefill. */
bool has_codes(const Shape &shape)
{
    for (const char *name :
         {"decode_b1_hq32_hkv8_kv8192_d128", "paged16_kv8192", "prefill_b1_h8_s2048_d128_causal"})
        if (std::strcmp(shape.name, name) == 0)
            return true;
    return false;
}

/* Whether the combination gets a row. The split accuracy has rows only for a backend that needs it
 * to support the type. */
bool worth_a_row(const std::string &backend, const Shape &shape, const Type &type)
{
    if (type.codes && !has_codes(shape))
        return false;
    if (type.accuracy != HEED_ACCURACY_SPLIT)
        return true;
    const Type plain = {"", type.dtype, HEED_ACCURACY_DEFAULT};
    return refusal_of(backend, shape, type).empty() && !refusal_of(backend, shape, plain).empty();
}

bool in_demo(const Shape &shape)
{
    for (const char *name : {"prefill_b1_h8_s512_d64_full", "prefill_b1_h8_s512_d64_causal",
                             "prefill_b1_h8_s512_d128_full", "bert_b4_h12_s128_d64",
                             "decode_b1_hq32_hkv8_kv1024_d128", "small_b4_h4_s10_d8"})
        if (std::strcmp(shape.name, name) == 0)
            return true;
    return false;
}

#if HEED_BENCH_PLAIN_ONEDNN
void register_plain(const Selection &selection, const std::vector<unsigned> &threads,
                    Skipped *skipped)
{
    for (const Type &type : types)
        for (const Shape &shape : shapes)
            for (unsigned n : threads) {
                const std::string name = std::string("plain_onednn/") + type.name + "/" +
                                         shape.name + "/threads:" + std::to_string(n);
                if (type.accuracy == HEED_ACCURACY_SPLIT || type.codes ||
                    !PlainOneDnn::serves(shape, type.dtype) || !selection.wanted(name))
                    continue;
                const double seconds = estimate(shape, type.dtype, 50) / n;
                const Row row = {name, "", &type, &shape, n, seconds};
                skipped->add(name, seconds, selection.limit, measure_plain, row);
            }
}
#endif

} // namespace

void Skipped::leave_out(const std::string &name, double seconds)
{
    char text[64];
    std::snprintf(text, sizeof text, ": about %.2g s a call", seconds);
    left_out.push_back(name + text);
}

void fail(benchmark::State &state, const std::string &why)
{
    failed = true;
    state.SkipWithError(why.c_str());
}

bool any_failed()
{
    return failed;
}

/* Registers the ceilings that rows are compared with. */
static void register_ceilings(const Selection &selection, const std::vector<unsigned> &threads,
                              Skipped *skipped)
{
    for (unsigned n : threads) {
        const std::string suffix = "/threads:" + std::to_string(n);
        for (int kind = 0; kind < HEED_CEILING_COUNT; kind++) {
            const std::string name = std::string("ceiling/") + heed_ceiling_name(kind) + suffix;
            if (!selection.wanted(name))
                continue;
            if (const char *refusal = heed_ceiling_refusal(kind)) {
                skipped->refused.emplace_back(name, refusal);
                continue;
            }
            skipped->n_rows++;
            benchmark::RegisterBenchmark(name.c_str(), measure_ceiling, kind, n)->UseRealTime();
        }
        const std::string name = "ceiling/read" + suffix;
        if (!selection.wanted(name))
            continue;
        skipped->n_rows++;
        benchmark::RegisterBenchmark(name.c_str(), measure_read, n)->UseRealTime();
    }
}

static void register_attention(const Selection &selection, const std::vector<unsigned> &threads,
                               const Backend &backend, double limit, Skipped *skipped)
{
    for (const Type &type : types) {
        if (type.dtype == HEED_F16 && !selection.f16)
            continue;
        double rate = -1; /* measured when a row needs it */
        for (const Shape &shape : shapes) {
            if ((selection.demo && !in_demo(shape)) || !worth_a_row(backend.name, shape, type))
                continue;
            for (unsigned n : threads) {
                const std::string name = "attn/" + backend.name + "/" + type.name + "/" +
                                         shape.name + "/threads:" + std::to_string(n);
                if (!selection.wanted(name))
                    continue;
                const std::string refusal = refusal_of(backend.name, shape, type);
                if (!refusal.empty()) {
                    skipped->refused.emplace_back(name, refusal);
                    continue;
                }
                if (rate < 0)
                    rate = probe_rate(backend.name, type);
                const double seconds = rate > 0 ? estimate(shape, type.dtype, rate) / n : 0;
                const Row row = {name, backend.name, &type, &shape, n, seconds};
                skipped->add(name, seconds, limit, measure_row, row);
            }
        }
    }
}

Skipped register_rows(const Selection &selection)
{
    Skipped skipped;
    std::vector<unsigned> threads = selection.threads;
    if (threads.empty()) {
        threads = {1};
        if (usable_cpus() > 1)
            threads.push_back(usable_cpus());
    }
    if (!selection.demo)
        register_ceilings(selection, threads, &skipped);
    for (const Backend &backend : list_backends()) {
        if (!backend.refusal.empty()) {
            skipped.left_out.push_back("backend " + backend.name + ": " + backend.refusal);
            continue;
        }
        const double limit = backend.name == "naive" ? selection.naive_limit : selection.limit;
        register_attention(selection, threads, backend, limit, &skipped);
        if (!selection.demo)
            register_linear_rows(selection, threads, backend.name, limit, pool, &skipped);
#if HEED_BENCH_PLAIN_ONEDNN
        /* By now the backend has kept oneDNN from using instructions that fail on this machine. */
        if (backend.name == "onednn" && !selection.demo)
            register_plain(selection, threads, &skipped);
#endif
    }
    return skipped;
}

} // namespace heed_bench
