/* Attention by oneDNN without Heed, as its documentation shows it: products and softmax on whole
 * tensors. */
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
    /* Whether it can compute the shape: contiguous heads, no mask other than the causal one, and
     * either one query head for each key/value head or a single query row, in which case the heads
     * of a group become rows. In f32 and bf16. */
    static bool serves(const Shape &shape, uint32_t dtype);

    /* Throws if oneDNN has no primitive for the shape or there is no memory for the scores. */
    PlainOneDnn(const Shape &shape, const heed_attn_desc &desc, unsigned n_threads);
    ~PlainOneDnn();

    void run(const heed_attn_args &args);

    /* The bytes of scores, mask and scratchpads, which a call needs beside its arguments. */
    size_t extra_bytes() const;
    const char *implementation() const; /* oneDNN's name for that of the first product */

  private:
    struct Primitives;
    std::unique_ptr<Primitives> p_;
};

} // namespace heed_bench

#endif
