/* oneDNN as its documentation shows it, without Heed: products and softmax on whole tensors. */
#ifndef HEED_BENCH_PLAIN_ONEDNN_H
#define HEED_BENCH_PLAIN_ONEDNN_H

#include <heed/heed.h>

#include <cstddef>
#include <memory>

#include "shapes.h"

namespace heed_bench
{

class PlainOneDnn
{
  public:
    /* Contiguous heads, no mask but the causal one, and either a key/value head of its own for
     * every query head, or one query row, so that the heads of a group fold into rows. f32 and
     * bf16. */
    static bool serves(const Shape &shape, uint32_t dtype);

    /* Throws if oneDNN has no primitive for it, or there is no memory for the scores. */
    PlainOneDnn(const Shape &shape, const heed_attn_desc &desc, unsigned n_threads);
    ~PlainOneDnn();

    void run(const heed_attn_args &args);

    /* Scores, mask and scratchpads: what a call needs beside its arguments. */
    size_t extra_bytes() const;
    const char *implementation() const; /* of the first product, in oneDNN's words */

  private:
    struct Primitives;
    std::unique_ptr<Primitives> p_;
};

} // namespace heed_bench

#endif
