/* A shape as a call of Heed: description, arguments, memory. Public API only. */
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

/* Thrown where the machine is too small for a row, which is not the row's failure. */
struct TooLittleMemory : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* Random memory that all rows share: one buffer that grows and is filled with N(0,1) numbers of one
 * type, so that set-up is a copy of a few hundred megabytes at most once per type. Inputs are views
 * into it. The numbers repeat after about a million, which no timing sees. */
class Pool
{
  public:
    Pool() = default;
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;
    ~Pool();

    /* At least `bytes` of numbers of this type, 4096-aligned; valid until the next call. Throws
     * TooLittleMemory if the machine has not so much to spare, std::runtime_error if it has but
     * gives none. */
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

/* Asks for huge pages, if there are any; nothing happens for 0 bytes. */
constexpr size_t huge_page = size_t(1) << 21;
void advise_huge_pages(void *memory, size_t bytes);

/* Bytes of K and V that memory-bound rows rotate over: four times the last cache as it reports
 * itself, at least 1 GiB (or it would be too little for a fast core) and at most 2 GiB (some report
 * hundreds of megabytes). A row with a single set beyond 2 GiB uses just that. */
size_t rotation_bytes();

/* What a row's name says of types: q, k, v and out are of one, and "f32split" allows sums of bf16
 * products, which plain f32 does not. Types of codes are those of k and v, beside q and out in bf16; those
 * that take scales have one for each key of a head. "q8_0int8" allows integer dot products. */
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
    /* Throws as Pool does. */
    Problem(const Shape &shape, const Type &type, Pool &pool);

    heed_attn_desc desc;
    heed_attn_args args;

    /* Goes on to the next set of keys and values, and chooses among its blocks where the mask says so. */
    void next();
    size_t sets() const
    {
        return sets_;
    }
    double kv_bytes() const
    {
        return kv_bytes_;
    } /* of one set, what GBps counts */

  private:
    char *first_k_;
    size_t set_bytes_, sets_, at_ = 0, v_offset_, set_scales_ = 0;
    double kv_bytes_;
    std::vector<char> q_, out_;
    std::vector<float> scales_; /* of every set: of its keys, then of its values */
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
