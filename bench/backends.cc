/* Gets backends, contexts, plans and kernels from the public API. */
#include "backends.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "ceiling.h"
#include "problem.h"

namespace heed_bench
{

namespace
{

/* Why this backend refuses even the simplest problem; empty if it does not. */
std::string trial(const std::string &name)
{
    Context &context = context_of(name, 1);
    if (!context.handle)
        return context.error;
    std::string first;
    for (uint32_t dtype : {HEED_F32, HEED_BF16, HEED_F16}) {
        heed_attn_desc desc = {};
        desc.struct_size = sizeof desc;
        desc.q_heads = desc.kv_heads = 1;
        desc.qk_dim = desc.v_dim = 64;
        desc.q_type = desc.k_type = desc.v_type = desc.out_type = dtype;
        desc.max_batch = 1;
        desc.max_q_len = desc.max_kv_len = 512;
        heed_error why = {};
        if (heed_attn_supported(context.handle, &desc, &why) == HEED_OK)
            return "";
        if (first.empty())
            first = why.text;
    }
    return first.empty() ? "it gives no reason" : first;
}

/* The ceiling for code whose instructions are not known, that of another library or of a plugin:
 * the best that this CPU has for the type. It is measured, because vdpbf16ps is faster than f32
 * products on some CPUs and slower on others. -1 if no kind runs here. */
int best_ceiling(uint32_t dtype)
{
    static std::map<int, double> rates; /* GFLOP/s of a thread; 0 if the kind cannot run */
    std::vector<int> kinds = {HEED_CEILING_FMA_AVX2, HEED_CEILING_FMA_AVX512};
    if (dtype == HEED_BF16)
        kinds.insert(kinds.end(), {HEED_CEILING_DP_BF16, HEED_CEILING_AMX_BF16});
    int best = -1;
    for (int kind : kinds) {
        const auto [rate, fresh] = rates.try_emplace(kind, 0);
        if (fresh)
            rate->second = heed_ceiling_gflops(kind, 1, 1e-3);
        if (rate->second > (best < 0 ? 0 : rates[best]))
            best = kind;
    }
    return best;
}

/* The names in HEED_BACKEND, a comma-separated list. The contexts of rows name their backend, which
 * takes precedence over the environment, so the list has to be read here. */
std::vector<std::string> wanted()
{
    const char *list = std::getenv("HEED_BACKEND");
    std::istringstream in(list ? list : "");
    std::vector<std::string> names;
    for (std::string name; std::getline(in, name, ',');)
        names.push_back(name);
    return names;
}

/* The allocator of a context, which counts bytes. */
void *allocate(void *user, size_t bytes, size_t align)
{
    void *memory = nullptr;
    if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes) != 0)
        return nullptr;
    advise_huge_pages(memory, align >= huge_page ? bytes : 0); /* as the library itself does */
    Context &context = *static_cast<Context *>(user);
    const size_t now = __atomic_add_fetch(&context.bytes, bytes, __ATOMIC_RELAXED);
    if (now > context.peak_bytes) /* a race only makes the statistic a little inexact */
        context.peak_bytes = now;
    return memory;
}

void release(void *user, void *memory, size_t bytes)
{
    __atomic_sub_fetch(&static_cast<Context *>(user)->bytes, bytes, __ATOMIC_RELAXED);
    std::free(memory);
}

} // namespace

Context &context_of(const std::string &backend, unsigned n_threads)
{
    static std::map<std::pair<std::string, unsigned>, std::unique_ptr<Context>> contexts;
    std::unique_ptr<Context> &slot = contexts[{backend, n_threads}];
    if (!slot) {
        slot = std::make_unique<Context>();
        heed_context_options options = {};
        options.struct_size = sizeof options;
        options.backends = backend.c_str();
        options.n_threads = n_threads;
        options.user = slot.get();
        options.alloc = allocate;
        options.release = release;
        if (heed_context_create(&options, &slot->handle) != HEED_OK)
            slot->error = heed_last_error();
    }
    return *slot;
}

std::vector<Backend> list_backends()
{
    heed_context *context = nullptr;
    if (heed_context_create(nullptr, &context) != HEED_OK)
        throw std::runtime_error(heed_last_error());
    std::vector<Backend> backends;
    const std::vector<std::string> names = wanted();
    heed_backend_info info{};
    info.struct_size = sizeof info;
    for (uint32_t i = 0; heed_context_backend(context, i, &info) == HEED_OK; i++) {
        const bool named = std::count(names.begin(), names.end(), info.name) != 0;
        std::string reason = names.empty() || named ? info.reason : "HEED_BACKEND does not name it";
        if (reason.empty())
            reason = trial(info.name);
        backends.push_back({info.name, reason});
    }
    heed_context_release(context);
    for (const std::string &name : names)
        if (std::none_of(backends.begin(), backends.end(),
                         [&](const Backend &backend) { return backend.name == name; }))
            throw std::runtime_error("HEED_BACKEND names '" + name + "', which is no backend");
    return backends;
}

Plan::Plan(heed_context *context, const heed_attn_desc &desc)
{
    if (heed_attn_create(context, &desc, &plan_) != HEED_OK) {
        plan_ = nullptr;
        refusal_ = heed_last_error();
    }
}

std::string Plan::kernel(int64_t q_len, int64_t kv_len) const
{
    heed_kernel_info info{};
    info.struct_size = sizeof info;
    return heed_attn_kernel_of(plan_, q_len, kv_len, &info) == HEED_OK ? info.kernel : "";
}

int ceiling_of(const std::string &backend, const std::string &kernel, uint32_t dtype)
{
    const auto says = [&](const char *word) { return kernel.find(word) != std::string::npos; };
    if (backend == "naive")
        return -1;
    if (backend == "amx")
        return HEED_CEILING_AMX_BF16;
    if (says("_bf16"))
        return HEED_CEILING_DP_BF16;
    if (backend == "avx512")
        return says("avx2") ? HEED_CEILING_FMA_AVX2 : HEED_CEILING_FMA_AVX512;
    if (backend == "avx2")
        return HEED_CEILING_FMA_AVX2;
    return best_ceiling(dtype);
}

} // namespace heed_bench
