/* scores = scale * q k^T, then the mask and softmax in place, then out = scores v, by primitives on
 * tensors [batch * kv_heads, rows, dim]. With a single query row, the heads of a group become rows
 * of their kv head. Everything is of the row's type. A causal mask is added to all scores, since
 * primitives offer no other way; adding is a separate primitive, because as part of the product it
 * would run in oneDNN's reference loops. */
#include "plain_onednn.h"

#include <heed/kit.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <dnnl.hpp>
#include <limits>
#include <string>
#include <vector>

namespace heed_bench
{

namespace
{

using dnnl::memory;
using Tag = memory::format_tag;

/* Sets the number of OpenMP threads of this thread, which oneDNN uses. */
class Threads
{
  public:
    explicit Threads(unsigned n) : before_(omp_get_max_threads())
    {
        omp_set_num_threads(int(n));
    }
    ~Threads()
    {
        omp_set_num_threads(before_);
    }

  private:
    int before_;
};

dnnl::primitive_attr attributes(const dnnl::post_ops *after)
{
    dnnl::primitive_attr a;
    a.set_scratchpad_mode(dnnl::scratchpad_mode::user); /* makes its size known */
    if (after)
        a.set_post_ops(*after);
    return a;
}

#if DNNL_VERSION_MAJOR >= 3
dnnl::matmul::primitive_desc product(const dnnl::engine &engine, const memory::desc &a,
                                     const memory::desc &b, const memory::desc &c,
                                     const dnnl::primitive_attr &attr)
{
    return {engine, a, b, c, attr};
}
dnnl::softmax_forward::primitive_desc softmax(const dnnl::engine &engine, const memory::desc &s)
{
    return {engine,
            dnnl::prop_kind::forward_inference,
            dnnl::algorithm::softmax_accurate,
            s,
            s,
            2,
            attributes(nullptr)};
}
dnnl::binary::primitive_desc addition(const dnnl::engine &engine, const memory::desc &s,
                                      const memory::desc &mask)
{
    return {engine, dnnl::algorithm::binary_add, s, mask, s, attributes(nullptr)};
}
void append_scale(dnnl::post_ops *ops, float scale)
{
    ops->append_eltwise(dnnl::algorithm::eltwise_linear, scale, 0);
}
#else
dnnl::matmul::primitive_desc product(const dnnl::engine &engine, const memory::desc &a,
                                     const memory::desc &b, const memory::desc &c,
                                     const dnnl::primitive_attr &attr)
{
    return {dnnl::matmul::desc(a, b, c), attr, engine};
}
dnnl::softmax_forward::primitive_desc softmax(const dnnl::engine &engine, const memory::desc &s)
{
    return {dnnl::softmax_forward::desc(dnnl::prop_kind::forward_inference, s, 2),
            attributes(nullptr), engine};
}
dnnl::binary::primitive_desc addition(const dnnl::engine &engine, const memory::desc &s,
                                      const memory::desc &mask)
{
    return {dnnl::binary::desc(dnnl::algorithm::binary_add, s, mask, s), attributes(nullptr),
            engine};
}
void append_scale(dnnl::post_ops *ops, float scale)
{
    ops->append_eltwise(1, dnnl::algorithm::eltwise_linear, scale, 0);
}
#endif

} // namespace

struct PlainOneDnn::Primitives {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    dnnl::matmul::primitive_desc score_desc, value_desc;
    dnnl::matmul score, value;
    dnnl::softmax_forward weigh;
    dnnl::binary add;
    memory q, k, v, out, s, mask, score_pad, add_pad, weigh_pad, value_pad;
    std::string implementation;
    size_t extra = 0;
    unsigned n_threads = 1;

    memory allocate(const memory::desc &desc)
    {
        extra += desc.get_size();
        return memory(desc, engine);
    }
    memory foreign(const memory::desc &desc) /* its address is set for each call */
    {
        return memory(desc, engine, DNNL_MEMORY_NONE);
    }
};

bool PlainOneDnn::serves(const Shape &shape, uint32_t dtype)
{
    return (dtype == HEED_F32 || dtype == HEED_BF16) && shape.layout == Layout::head_major &&
           (shape.mask == Mask::full ||
            (shape.mask == Mask::causal && shape.q_len == shape.kv_len)) &&
           (shape.q_heads == shape.kv_heads || shape.q_len == 1) && !shape.v_in_k &&
           !shape.simple && shape.storage == Storage::padded && shape.score == Score::plain;
}

PlainOneDnn::PlainOneDnn(const Shape &shape, const heed_attn_desc &desc, unsigned n_threads)
    : p_(new Primitives)
{
    const Threads threads(n_threads);
    const memory::data_type type =
        desc.q_type == HEED_BF16 ? memory::data_type::bf16 : memory::data_type::f32;
    const int64_t heads = shape.batch * shape.kv_heads, keys = shape.kv_len;
    const int64_t rows = shape.q_len * (shape.q_heads / shape.kv_heads);
    const memory::desc q({heads, rows, shape.qk_dim}, type, Tag::abc);
    const memory::desc k({heads, shape.qk_dim, keys}, type, Tag::acb);
    const memory::desc s({heads, rows, keys}, type, Tag::abc);
    const memory::desc v({heads, keys, shape.v_dim}, type, Tag::abc);
    const memory::desc out({heads, rows, shape.v_dim}, type, Tag::abc);

    dnnl::post_ops after;
    append_scale(&after, 1 / std::sqrt(float(shape.qk_dim)));
    if (shape.mask == Mask::causal) {
        const memory::desc mask({1, rows, keys}, memory::data_type::f32, Tag::abc);
        const auto add = addition(p_->engine, s, mask);
        p_->add = dnnl::binary(add);
        p_->add_pad = p_->allocate(add.scratchpad_desc());
        p_->mask = p_->allocate(mask);
        float *to = static_cast<float *>(p_->mask.get_data_handle());
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < keys; j++)
                to[i * keys + j] = j <= i ? 0 : -std::numeric_limits<float>::infinity();
    }
    p_->n_threads = n_threads;
    p_->score_desc = product(p_->engine, q, k, s, attributes(&after));
    p_->value_desc = product(p_->engine, s, v, out, attributes(nullptr));
    const auto weigh = softmax(p_->engine, s);
    p_->implementation = p_->score_desc.impl_info_str();
    p_->score = dnnl::matmul(p_->score_desc);
    p_->value = dnnl::matmul(p_->value_desc);
    p_->weigh = dnnl::softmax_forward(weigh);
    p_->q = p_->foreign(q);
    p_->k = p_->foreign(k);
    p_->v = p_->foreign(v);
    p_->out = p_->foreign(out);
    p_->s = p_->allocate(s);
    p_->score_pad = p_->allocate(p_->score_desc.scratchpad_desc());
    p_->value_pad = p_->allocate(p_->value_desc.scratchpad_desc());
    p_->weigh_pad = p_->allocate(weigh.scratchpad_desc());
}

PlainOneDnn::~PlainOneDnn() = default;

void PlainOneDnn::run(const heed_attn_args &args)
{
    const Threads threads(p_->n_threads);
    p_->q.set_data_handle(const_cast<void *>(args.q.data)); /* oneDNN has no read-only memory */
    p_->k.set_data_handle(const_cast<void *>(args.k.data));
    p_->v.set_data_handle(const_cast<void *>(args.v.data));
    p_->out.set_data_handle(args.out.data);
    p_->score.execute(p_->stream, {{DNNL_ARG_SRC, p_->q},
                                   {DNNL_ARG_WEIGHTS, p_->k},
                                   {DNNL_ARG_DST, p_->s},
                                   {DNNL_ARG_SCRATCHPAD, p_->score_pad}});
    if (p_->mask)
        p_->add.execute(p_->stream, {{DNNL_ARG_SRC_0, p_->s},
                                     {DNNL_ARG_SRC_1, p_->mask},
                                     {DNNL_ARG_DST, p_->s},
                                     {DNNL_ARG_SCRATCHPAD, p_->add_pad}});
    p_->weigh.execute(
        p_->stream,
        {{DNNL_ARG_SRC, p_->s}, {DNNL_ARG_DST, p_->s}, {DNNL_ARG_SCRATCHPAD, p_->weigh_pad}});
    p_->value.execute(p_->stream, {{DNNL_ARG_SRC, p_->s},
                                   {DNNL_ARG_WEIGHTS, p_->v},
                                   {DNNL_ARG_DST, p_->out},
                                   {DNNL_ARG_SCRATCHPAD, p_->value_pad}});
    p_->stream.wait();
}

size_t PlainOneDnn::extra_bytes() const
{
    return p_->extra;
}

const char *PlainOneDnn::implementation() const
{
    return p_->implementation.c_str();
}

} // namespace heed_bench
