/* A shape as a call of Heed: its description, arguments and memory. Uses only the public API. */
#ifndef HEED_BENCH_PROBLEM_H
#define HEED_BENCH_PROBLEM_H

#include <heed/heed.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "lists.h"
#include "shapes.h"

namespace heed_bench
{

/* Thrown if the machine has too little memory for a row, which does not count as a failure of the
 * row. */
struct TooLittleMemory : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* Random memory that all rows share: one buffer that grows and is filled with N(0,1) numbers of one
 * type, so that setting up costs a copy of a few hundred megabytes at most once for each type.
 * Inputs are views into it. The numbers repeat after about a million, which does not affect
 * times. */
class Pool
{
  public:
    Pool() = default;
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;
    ~Pool();

    /* At least `bytes` of numbers of this type, 4096-aligned and valid until the next call. Throws
     * TooLittleMemory if the machine has not that much available, std::runtime_error if the
     * allocation fails all the same. */
    char *normal(uint32_t dtype, size_t bytes);
    const char *data() const
    {
        return base_;
    }
    size_t bytes() const
    {
        return filled_;
    }

  private:
    char *base_ = nullptr;
    size_t capacity_ = 0, filled_ = 0;
    uint32_t dtype_ = HEED_DTYPE_NONE;
};

/* Asks the system for huge pages, where it has them; does nothing for 0 bytes. */
constexpr size_t huge_page = size_t(1) << 21;
void advise_huge_pages(void *memory, size_t bytes);

/* The bytes of K and V over which memory-bound rows rotate: four times the size that the last-level
 * cache reports, at least 1 GiB (less would be too little for a fast core) and at most 2 GiB (some
 * caches report hundreds of megabytes). A row whose single set is larger than 2 GiB uses that set
 * alone. */
size_t rotation_bytes();

/* The type in a row's name: that of q, k, v and out. "f32split" allows sums of bf16 products, which
 * plain f32 does not. Types of codes are those of k and v, with q and out in bf16; a type with
 * scales has one for each key of a head. "q8_0int8" allows integer dot products. */
struct Type {
    const char *name;
    uint32_t dtype, accuracy;
    uint32_t codes = HEED_DTYPE_NONE;
};
constexpr Type types[] = {{"f32", HEED_F32, HEED_ACCURACY_DEFAULT},
                          {"f16", HEED_F16, HEED_ACCURACY_DEFAULT},
                          {"bf16", HEED_BF16, HEED_ACCURACY_DEFAULT},
                          {"f32split", HEED_F32, HEED_ACCURACY_SPLIT},
                          {"f16split", HEED_F16, HEED_ACCURACY_SPLIT},
                          {"i8", HEED_BF16, HEED_ACCURACY_DEFAULT, HEED_I8},
                          {"q8_0", HEED_BF16, HEED_ACCURACY_DEFAULT, HEED_Q8_0},
                          {"q4_0", HEED_BF16, HEED_ACCURACY_DEFAULT, HEED_Q4_0},
                          {"f8", HEED_BF16, HEED_ACCURACY_DEFAULT, HEED_F8_E4M3},
                          {"i8int8", HEED_BF16, HEED_ACCURACY_INT8, HEED_I8},
                          {"q8_0int8", HEED_BF16, HEED_ACCURACY_INT8, HEED_Q8_0},
                          {"q4_0int8", HEED_BF16, HEED_ACCURACY_INT8, HEED_Q4_0}};

/* The description of a shape in a type. */
heed_attn_desc describe(const Shape &shape, const Type &type);

class Problem
{
  public:
    /* Throws what Pool throws. */
    Problem(const Shape &shape, const Type &type, Pool &pool);

    heed_attn_desc desc;
    heed_attn_args args;

    /* Moves on to the next set of keys and values, and chooses among its blocks if the mask asks
     * for it. */
    void next();
    size_t sets() const
    {
        return sets_;
    }
    double kv_bytes() const
    {
        return kv_bytes_;
    } /* the bytes of one set, which GBps counts */

  private:
    char *first_k_;
    size_t set_bytes_, sets_, at_ = 0, v_offset_, set_scales_ = 0;
    double kv_bytes_;
    std::vector<char> q_, out_;
    std::vector<float> scales_; /* for each set those of keys, then those of values */
    std::vector<unsigned char> mask_;
    std::vector<int32_t> lens_, starts_, table_;
    Lists lists_;

    void store(const Shape &shape);
    void place(const Shape &shape);
    void add_scales(const Shape &shape);
    void fill_mask(const Shape &shape);
};

} // namespace heed_bench

#endif
