/* Registers and measures the rows of linear layers. */
#include "linear.h"

#include <benchmark/benchmark.h>
#include <heed/kit.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "backends.h"
#include "measure.h"
#include "shapes.h"

namespace heed_bench
{

namespace
{

struct LinearRow {
    std::string name, backend;
    const Type *type;
    const LinearShape *shape;
    unsigned n_threads;
};

heed_linear_desc describe_linear(const LinearShape &shape, uint32_t dtype)
{
    heed_linear_desc desc = {};
    desc.struct_size = sizeof desc;
    desc.in_dim = shape.k;
    desc.out_dim = shape.n;
    desc.x_type = desc.w_type = desc.y_type = dtype;
    if (shape.gelu) {
        desc.features = HEED_LINEAR_HAS_BIAS;
        desc.bias_type = dtype;
        desc.activation = HEED_ACT_GELU;
    }
    return desc;
}

/* Why the backend refuses the layer; empty if it does not. */
std::string refusal_of(const std::string &backend, const LinearShape &shape, const Type &type)
{
    Context &context = context_of(backend, 1);
    if (!context.handle)
        return context.error;
    const heed_linear_desc desc = describe_linear(shape, type.dtype);
    heed_error why = {};
    if (heed_linear_supported(context.handle, &desc, &why) == HEED_OK)
        return "";
    return why.text[0] ? why.text : "it gives no reason";
}

double weight_bytes(const LinearShape &shape, uint32_t dtype)
{
    return double(shape.n) * shape.k * heed_dtype_bytes(dtype);
}

double linear_flops(const LinearShape &shape)
{
    return 2.0 * double(shape.m) * shape.n * shape.k;
}

/* The layers of a row: one, or several to rotate over where reading the weights is the limit. All
 * have the same weights, each in its own memory. */
class Layers
{
  public:
    Layers(const LinearRow &row, Pool &pool) : context_(context_of(row.backend, row.n_threads))
    {
        if (!context_.handle)
            throw std::runtime_error(context_.error);
        const heed_linear_desc desc = describe_linear(*row.shape, row.type->dtype);
        const size_t bytes = size_t(weight_bytes(*row.shape, row.type->dtype));
        const size_t n = row.shape->bound == Bound::memory ? rotation_bytes() / bytes + 1 : 1;
        heed_const_view weight = {};
        weight.data = pool.normal(row.type->dtype, bytes);
        heed_const_view bias = {};
        bias.data = weight.data; /* any numbers will do */
        bias.stride[0] = 1;
        weight.stride[0] = row.shape->n;
        weight.stride[1] = 1;
        for (size_t i = 0; i < n; i++) {
            heed_linear *one = nullptr;
            if (heed_linear_create(context_.handle, &desc, &weight,
                                   row.shape->gelu ? &bias : nullptr, &one) != HEED_OK) {
                release();
                throw std::runtime_error(heed_last_error());
            }
            all_.push_back(one);
        }
    }
    ~Layers()
    {
        release();
    }
    Layers(const Layers &) = delete;
    Layers &operator=(const Layers &) = delete;

    const heed_linear *next()
    {
        at_ = at_ + 1 < all_.size() ? at_ + 1 : 0;
        return all_[at_];
    }
    std::string kernel() const
    {
        heed_kernel_info info{};
        info.struct_size = sizeof info;
        return heed_linear_kernel_of(all_[0], &info) == HEED_OK ? info.kernel : "";
    }

  private:
    void release()
    {
        for (heed_linear *one : all_)
            heed_linear_release(one);
    }

    Context &context_;
    std::vector<heed_linear *> all_;
    size_t at_ = 0;
};

/* The GB/s at which weights could be read: measured on memory in huge pages, like that of the
 * weights. */
double read_ceiling(unsigned n_threads)
{
    static char *const buffer = [] {
        void *memory = nullptr;
        if (posix_memalign(&memory, huge_page, rotation_bytes()) == 0) {
            advise_huge_pages(memory, rotation_bytes());
            std::memset(memory, 1, rotation_bytes());
        }
        return static_cast<char *>(memory);
    }();
    return buffer ? heed_ceiling_read_gbps(buffer, rotation_bytes(), n_threads, ceiling_seconds)
                  : 0;
}

/* The layers of a row, made once: a row is measured several times, and packing a gigabyte takes
 * seconds. */
Layers &layers_of(const LinearRow &row, Pool &pool)
{
    static std::string name;
    static std::unique_ptr<Layers> layers;
    if (name != row.name) {
        layers.reset();
        layers = std::make_unique<Layers>(row, pool);
        name = row.name;
    }
    return *layers;
}

void measure(benchmark::State &state, const LinearRow &row, Pool &pool)
{
    Layers &layers = layers_of(row, pool);
    const LinearShape &shape = *row.shape;
    const size_t size = heed_dtype_bytes(row.type->dtype);
    const std::string kernel = layers.kernel();
    state.SetLabel(kernel);

    const size_t x_bytes = size_t(shape.m) * shape.k * size;
    char *numbers = pool.normal(row.type->dtype, x_bytes);
    std::vector<char> y(size_t(shape.m) * shape.n * size);
    heed_linear_args args = {};
    args.struct_size = sizeof args;
    args.rows = shape.m;
    args.x.data = numbers;
    args.x.stride[0] = shape.k;
    args.y.data = y.data();
    args.y.stride[0] = shape.n;
    args.x.stride[1] = args.y.stride[1] = 1;
    const size_t bytes = heed_linear_workspace_bytes(layers.next(), row.n_threads);
    const Workspace workspace = workspace_of(bytes);
    if (!workspace)
        return fail(state, "no memory for the workspace");
    const auto call = [&] { return heed_linear_run(layers.next(), &args, workspace.get(), bytes); };
    if (call() != HEED_OK)
        return fail(state, heed_last_error());

    Work work = {linear_flops(shape), weight_bytes(shape, row.type->dtype),
                 ceiling_of(row.backend, kernel, row.type->dtype), row.n_threads, nullptr};
    if (shape.bound == Bound::memory)
        work.read = [&] { return read_ceiling(row.n_threads); };
    time_calls(state, work, call);
    state.counters["bytes_extra"] = double(bytes);
}

void measure_row(benchmark::State &state, const LinearRow &row, Pool *pool)
{
    guarded(state, [&] { measure(state, row, *pool); });
}

/* The estimated seconds of a call, from the backend's speed on a small layer; 0 if it refuses
 * that. */
double estimate(const std::string &backend, const LinearShape &shape, const Type &type, Pool &pool)
{
    constexpr LinearShape small = {"probe", Bound::compute, 32, 64, 256};
    try {
        Layers layers({"", backend, &type, &small, 1}, pool);
        std::vector<float> y(size_t(small.m) * small.n);
        heed_linear_args args = {};
        args.struct_size = sizeof args;
        args.rows = small.m;
        args.x.data = pool.normal(type.dtype, size_t(small.m) * small.k * sizeof(float));
        args.x.stride[0] = small.k;
        args.y.data = y.data();
        args.y.stride[0] = small.n;
        args.x.stride[1] = args.y.stride[1] = 1;
        double best = 1;
        for (int i = 0; i < 3; i++) {
            const double start = now();
            heed_linear_run(layers.next(), &args, nullptr, 0);
            best = std::min(best, now() - start);
        }
        return best * linear_flops(shape) / linear_flops(small);
    } catch (const std::exception &) {
        return 0; /* the row will show why */
    }
}

} // namespace

void register_linear_rows(const Selection &selection, const std::vector<unsigned> &threads,
                          const std::string &backend, double limit, Pool &pool, Skipped *skipped)
{
    for (const Type &type : types)
        for (const LinearShape &shape : linear_shapes)
            for (unsigned n : threads) {
                const std::string name = "linear/" + backend + "/" + type.name + "/" + shape.name +
                                         "/threads:" + std::to_string(n);
                if (type.accuracy != HEED_ACCURACY_DEFAULT || type.codes ||
                    !selection.wanted(name) || (type.dtype == HEED_F16 && !selection.f16))
                    continue;
                const std::string refusal = refusal_of(backend, shape, type);
                if (!refusal.empty()) {
                    skipped->refused.emplace_back(name, refusal);
                    continue;
                }
                const LinearRow row = {name, backend, &type, &shape, n};
                skipped->add(name, estimate(backend, shape, type, pool) / n, limit, measure_row,
                             row, &pool);
            }
}

} // namespace heed_bench
