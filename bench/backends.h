/* The backends of this machine, as the public API shows them. */
#ifndef HEED_BENCH_BACKENDS_H
#define HEED_BENCH_BACKENDS_H

#include <heed/heed.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heed_bench
{

struct Backend {
    std::string name;
    std::string refusal; /* why it cannot run here at all; empty if it can */
};

/* Every backend that the library knows, in its own order. */
std::vector<Backend> list_backends();

/* A context with one backend and a number of threads, kept for the life of the process, and the
 * number of bytes that it has allocated. */
struct Context {
    heed_context *handle = nullptr;
    std::string error; /* why heed_context_create failed */
    size_t bytes = 0, peak_bytes = 0;
};
Context &context_of(const std::string &backend, unsigned n_threads);

/* A plan, released with the object. */
class Plan
{
  public:
    Plan(heed_context *context, const heed_attn_desc &desc);
    ~Plan()
    {
        heed_attn_release(plan_);
    }
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;

    const heed_attn *get() const
    {
        return plan_;
    }
    const std::string &refusal() const
    {
        return refusal_;
    } /* is empty if there is a plan */
    /* The kernel for a sequence of q_len query rows; empty if unknown. */
    std::string kernel(int64_t q_len, int64_t kv_len) const;

  private:
    heed_attn *plan_ = nullptr;
    std::string refusal_;
};

/* The kind of ceiling (ceiling.h) that a kernel is compared with; -1 for none. */
int ceiling_of(const std::string &backend, const std::string &kernel, uint32_t dtype);

} // namespace heed_bench

#endif
