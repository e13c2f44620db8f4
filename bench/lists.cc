/* Makes the ranges and key blocks of the rows that have them. */
#include "lists.h"

#include <stdexcept>

namespace heed_bench
{

namespace
{

void must(heed_status status)
{
    if (status != HEED_OK)
        throw std::runtime_error(heed_last_error());
}

uint32_t n_ranges(Mask mask)
{
    return mask == Mask::tree ? 8 : 1;
}

} // namespace

void describe_lists(const Shape &shape, heed_attn_desc *desc)
{
    if (has_ranges(shape.mask)) {
        desc->features |= HEED_HAS_RANGES;
        desc->n_ranges = n_ranges(shape.mask);
    } else if (block_of(shape.mask)) {
        desc->features |= HEED_HAS_KEY_BLOCKS;
        desc->block_keys = block_of(shape.mask);
        desc->block_rows = chooses(shape.mask) ? 1 : block_of(shape.mask);
    }
}

void Lists::make(const Shape &shape, heed_attn_args *args)
{
    if (has_ranges(shape.mask))
        make_ranges(shape, args);
    else if (block_of(shape.mask))
        make_blocks(shape, args);
}

void Lists::make_ranges(const Shape &shape, heed_attn_args *args)
{
    const uint32_t n = n_ranges(shape.mask);
    const std::vector<int32_t> lens(16, int32_t(shape.kv_len / 16));
    std::vector<int32_t> parents;
    ranges_.resize(size_t(shape.q_len) * n * 2);
    heed_ranges_args a = {};
    a.struct_size = sizeof a;
    a.rows = shape.q_len;
    a.keys = shape.kv_len;
    a.offset = shape.kv_len - shape.q_len;
    a.n_ranges = n;
    a.ranges = ranges_.data();
    if (shape.mask == Mask::documents16) {
        a.lens = lens.data();
        a.n_lens = 16;
        a.causal = 1;
        must(heed_ranges_lens(&a));
    } else if (shape.mask == Mask::prefix) {
        a.prefix = shape.kv_len / 4;
        must(heed_ranges_prefix(&a));
    } else if (shape.mask == Mask::chunked2048) {
        a.chunk = 2048;
        a.causal = 1;
        must(heed_ranges_chunks(&a));
    } else if (shape.mask == Mask::tree) {
        for (int64_t i = 0; i < shape.q_len; i++)
            parents.push_back(int32_t(parent_of(i)));
        a.parents = parents.data();
        must(heed_ranges_tree(&a));
    } else { /* causality and a window, expressed as ranges */
        for (int64_t i = 0; i < shape.q_len; i++) {
            const int64_t end = i + a.offset + 1;
            ranges_[size_t(2 * i)] =
                shape.mask == Mask::window_ranges && end > 512 ? int32_t(end - 512) : 0;
            ranges_[size_t(2 * i + 1)] = int32_t(end);
        }
    }
    args->ranges.data = ranges_.data();
    args->ranges.stride[2] = n;
    args->ranges.stride[3] = 1;
}

void Lists::make_blocks(const Shape &shape, heed_attn_args *args)
{
    const int64_t keys = block_of(shape.mask), blocks = shape.kv_len / keys;
    const int64_t row_words = (blocks + 63) / 64;
    if (chooses(shape.mask)) { /* choose() will fill them */
        words_.resize(size_t(shape.q_heads * row_words));
        args->key_blocks.stride[1] = row_words;
    } else {
        const int64_t rows = shape.q_len / keys;
        std::vector<int32_t> index;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t n = 0; n < blocks; n++)
                if (block_is_seen(r, n))
                    index.push_back(int32_t(n));
        words_.resize(size_t(rows * row_words));
        heed_key_blocks_args a = {};
        a.struct_size = sizeof a;
        a.rows = rows;
        a.blocks = blocks;
        a.row_stride = row_words;
        a.words = words_.data();
        a.index = index.data();
        a.per_row = int64_t(index.size()) / rows;
        must(heed_key_blocks_list(&a));
        args->key_blocks.stride[2] = row_words;
    }
    args->key_blocks.data = words_.data();
    args->key_blocks.stride[3] = 1;
}

void Lists::bound_keys(const Shape &shape, const heed_attn_desc &desc, const heed_attn_args &args,
                       const char *k, size_t set_bytes, size_t sets)
{
    const int64_t blocks = shape.kv_len / block_of(shape.mask);
    const size_t one = size_t(blocks) * shape.kv_heads * shape.qk_dim;
    bounds_.resize(2 * one * sets);
    scores_.resize(size_t(blocks));
    choice_.struct_size = sizeof choice_;
    choice_.q_heads = shape.q_heads;
    choice_.kv_heads = shape.kv_heads;
    choice_.dim = shape.qk_dim;
    choice_.type = desc.k_type;
    choice_.keys = shape.kv_len;
    choice_.block_keys = block_of(shape.mask);
    choice_.bounds_stride = blocks * shape.qk_dim;
    for (size_t set = 0; set < sets; set++) {
        heed_key_bounds_args a = choice_;
        a.x.data = k + set * set_bytes;
        for (int axis = 0; axis < 4; axis++)
            a.x.stride[axis] = args.k.stride[axis];
        a.least = bounds_.data() + 2 * one * set;
        a.greatest = a.least + one;
        must(heed_key_bounds(&a));
    }
    choice_.type = desc.q_type;
    choice_.x = args.q;
    choice_.top = top_blocks(shape);
    choice_.always_first = choice_.always_last = 1;
    choice_.shared = 1;
    choice_.scores = scores_.data();
    choice_.words = words_.data();
}

void Lists::choose(size_t set, heed_attn_args *args)
{
    if (bounds_.empty())
        return;
    const size_t one = size_t(choice_.bounds_stride) * choice_.kv_heads;
    choice_.least = bounds_.data() + 2 * one * set;
    choice_.greatest = choice_.least + one;
    must(heed_key_blocks_topk(&choice_));
    args->key_blocks.data = words_.data();
}

} // namespace heed_bench
