/* The structured masks of a shape, made by heed/masks.h: ranges, key blocks, and key blocks that
 * each call chooses anew. Uses only the public API. */
#ifndef HEED_BENCH_LISTS_H
#define HEED_BENCH_LISTS_H

#include <heed/heed.h>

#include <cstdint>
#include <vector>

#include "shapes.h"

namespace heed_bench
{

/* Describes the lists of the shape in desc; does nothing if it has none. */
void describe_lists(const Shape &shape, heed_attn_desc *desc);

class Lists
{
  public:
    /* Makes the ranges or the key blocks of the shape, if it has any, and puts them into args.
     * Throws std::runtime_error with Heed's error message. */
    void make(const Shape &shape, heed_attn_args *args);

    /* For masks whose blocks are chosen in the call: bound_keys computes the bounds of the keys of
     * `sets` sets, which are set_bytes apart from k on and have the strides of args.k; choose then
     * chooses the blocks for one of them, and its time counts. */
    void bound_keys(const Shape &shape, const heed_attn_desc &desc, const heed_attn_args &args,
                    const char *k, size_t set_bytes, size_t sets);
    void choose(size_t set, heed_attn_args *args);

  private:
    std::vector<int32_t> ranges_;
    std::vector<uint64_t> words_;
    std::vector<float> bounds_, scores_; /* bounds_: for each set the least, then the greatest */
    heed_key_bounds_args choice_ = {};

    void make_ranges(const Shape &shape, heed_attn_args *args);
    void make_blocks(const Shape &shape, heed_attn_args *args);
};

} // namespace heed_bench

#endif
