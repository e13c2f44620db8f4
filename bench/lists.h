/* Masks with structure as heed/masks.h makes them of a shape: ranges, key blocks, and blocks chosen anew
 * for each call. Public API only. */
#ifndef HEED_BENCH_LISTS_H
#define HEED_BENCH_LISTS_H

#include <heed/heed.h>

#include <cstdint>
#include <vector>

#include "shapes.h"

namespace heed_bench
{

/* What a description says of the shape's lists; nothing where it has none. */
void describe_lists(const Shape &shape, heed_attn_desc *desc);

class Lists
{
  public:
    /* Makes the ranges or the key blocks of the shape, if it has any, and gives them to args. Throws
     * std::runtime_error with Heed's sentence. */
    void make(const Shape &shape, heed_attn_args *args);

    /* Where blocks are chosen: the bounds of the keys of `sets` sets, set_bytes apart from k on, in the
     * strides of args.k; then the blocks for one of them, which a call pays for. */
    void bound_keys(const Shape &shape, const heed_attn_desc &desc, const heed_attn_args &args,
                    const char *k, size_t set_bytes, size_t sets);
    void choose(size_t set, heed_attn_args *args);

  private:
    std::vector<int32_t> ranges_;
    std::vector<uint64_t> words_;
    std::vector<float> bounds_, scores_; /* bounds: of each set the least, then the greatest */
    heed_key_bounds_args choice_ = {};

    void make_ranges(const Shape &shape, heed_attn_args *args);
    void make_blocks(const Shape &shape, heed_attn_args *args);
};

} // namespace heed_bench

#endif
