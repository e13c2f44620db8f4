/* Makes the descriptions, arguments and memory of the rows. */
#include "problem.h"

#include <heed/kit.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>

namespace heed_bench
{

namespace
{

constexpr size_t page = 4096;
constexpr float code_scale = 0.03f; /* for types of codes with scales */

size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* The bytes that Linux reports as available without swapping; 0 if it reports none. */
size_t available_bytes()
{
    unsigned long long kib = 0;
    if (FILE *file = std::fopen("/proc/meminfo", "r")) {
        char line[128];
        while (std::fgets(line, sizeof line, file))
            if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
                break;
        std::fclose(file);
    }
    return size_t(kib) << 10;
}

/* About a million numbers of one type; their count is odd, so that rows are not equal. */
std::vector<char> numbers(uint32_t dtype)
{
    constexpr size_t count = (size_t(1) << 20) + 7;
    const size_t len = heed_block_len(dtype), blocks = count / len, size = heed_block_bytes(dtype);
    std::vector<char> table(blocks * size);
    std::mt19937 bits(20240607);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < blocks; i++) {
        float x[32];
        for (size_t j = 0; j < len; j++)
            x[j] = normal(bits);
        if (heed_is_code(dtype))
            heed_encode(dtype, x, int64_t(len), table.data() + i * size, code_scale, 0);
        else
            heed_store(dtype, table.data(), int64_t(i), x[0]);
    }
    return table;
}

} // namespace

Pool::~Pool()
{
    if (base_)
        munmap(base_, capacity_);
}

char *Pool::normal(uint32_t dtype, size_t bytes)
{
    bytes = round_up(bytes, page);
    if (bytes > capacity_) {
        if (base_)
            munmap(base_, capacity_);
        base_ = nullptr;
        capacity_ = filled_ = 0;
        const size_t room = available_bytes();
        if (room && bytes > room / 10 * 8)
            throw TooLittleMemory("needs " + std::to_string(bytes >> 20) + " MiB of memory, " +
                                  std::to_string(room >> 20) + " MiB are available");
        void *fresh =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (fresh == MAP_FAILED)
            throw std::runtime_error("no memory for " + std::to_string(bytes >> 20) + " MiB");
        base_ = static_cast<char *>(fresh);
        capacity_ = bytes;
    }
    if (dtype != dtype_) {
        dtype_ = dtype;
        filled_ = 0;
    }
    if (filled_ < bytes) {
        const std::vector<char> table = numbers(dtype);
        for (size_t at = filled_; at < bytes;) {
            const size_t phase = at % table.size(),
                         part = std::min(table.size() - phase, bytes - at);
            std::memcpy(base_ + at, table.data() + phase, part);
            at += part;
        }
        filled_ = bytes;
    }
    return base_;
}

void advise_huge_pages(void *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    if (bytes)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

constexpr size_t rotation_least = size_t(1) << 30, rotation_most = size_t(2) << 30;

size_t rotation_bytes()
{
    const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t four = l3 > 0 ? 4 * size_t(l3) : 0;
    return std::clamp(four, rotation_least, rotation_most);
}

namespace
{

/* Sets the strides of [batch, heads, rows, dim], in elements. */
void set_strides(int64_t (&of)[4], Layout layout, uint32_t heads, int64_t rows, uint32_t dim)
{
    const int64_t head = layout == Layout::head_major ? rows * dim : dim;
    const int64_t row = layout == Layout::head_major ? dim : int64_t(heads) * dim;
    const int64_t stride[4] = {int64_t(heads) * rows * dim, head, row, 1};
    std::copy(stride, stride + 4, of);
}

} // namespace

heed_attn_desc describe(const Shape &shape, const Type &type)
{
    heed_attn_desc desc = {};
    desc.struct_size = sizeof desc;
    desc.q_heads = shape.q_heads;
    desc.kv_heads = shape.kv_heads;
    desc.qk_dim = shape.qk_dim;
    desc.v_dim = shape.v_dim;
    desc.q_type = desc.k_type = desc.v_type = desc.out_type = type.dtype;
    if (type.codes)
        desc.k_type = desc.v_type = type.codes;
    if (heed_takes_scale(type.codes))
        desc.features |= HEED_HAS_QUANT;
    desc.accuracy = type.accuracy;
    desc.max_batch = shape.batch;
    desc.max_q_len = shape.q_len;
    desc.max_kv_len = shape.kv_len;
    if (shape.mask == Mask::causal || shape.mask == Mask::window512) {
        desc.features |= HEED_HAS_CAUSAL;
        desc.position = HEED_POS_BOTTOM_RIGHT;
    }
    if (shape.mask == Mask::window512) {
        desc.features |= HEED_HAS_WINDOW;
        desc.window_left = 511;
        desc.window_right = -1;
    }
    if (shape.mask == Mask::half || shape.mask == Mask::random)
        desc.features |= HEED_HAS_MASK;
    describe_lists(shape, &desc);
    if (shape.score == Score::bias) {
        desc.features |= HEED_HAS_BIAS;
        desc.bias_type = type.dtype;
    }
    if (shape.score == Score::softcap) {
        desc.features |= HEED_HAS_SOFTCAP;
        desc.softcap = capped_at;
    }
    if (shape.storage == Storage::paged16) {
        desc.features |= HEED_HAS_PAGES;
        desc.page_len = 16;
    }
    if (is_packed(shape))
        desc.features |= HEED_HAS_PACKED | HEED_HAS_LENS;
    return desc;
}

Problem::Problem(const Shape &shape, const Type &type, Pool &pool)
    : desc(describe(shape, type)), args()
{
    args.struct_size = sizeof args;
    args.batch = shape.batch;
    args.q_len = shape.q_len;
    args.kv_len = shape.kv_len;
    if (shape.mask == Mask::half || shape.mask == Mask::random) {
        fill_mask(shape);
        args.mask.data = mask_.data();
        args.mask.stride[2] = shape.kv_len;
        args.mask.stride[3] = 1;
    }
    const size_t size = heed_dtype_bytes(type.dtype), batch = size_t(shape.batch);
    const size_t q_bytes = batch * shape.q_heads * size_t(shape.q_len) * shape.qk_dim * size;
    const size_t keys = shape.kv_heads * size_t(all_keys(shape));
    const uint32_t kv_type = desc.k_type;
    const auto bytes_of = [=](size_t n) { return size_t(heed_offset_bytes(kv_type, int64_t(n))); };
    const size_t k_bytes = bytes_of(keys * shape.qk_dim);
    const size_t v_bytes = shape.v_in_k ? 0 : bytes_of(keys * shape.v_dim);
    set_scales_ = heed_takes_scale(kv_type) ? 2 * keys : 0;
    kv_bytes_ = double(k_bytes + v_bytes + set_scales_ * sizeof(float));
    v_offset_ = shape.v_in_k ? 0 : k_bytes;
    set_bytes_ = round_up(k_bytes + v_bytes, 64);
    sets_ = 1;
    if (shape.bound == Bound::memory) {
        const size_t most = std::max(rotation_most / set_bytes_, size_t(1));
        sets_ = std::min(round_up(rotation_bytes(), set_bytes_) / set_bytes_, most);
    }

    const size_t q_room = type.codes ? 0 : round_up(q_bytes, page);
    const size_t sets_room = round_up(sets_ * set_bytes_, page);
    const size_t bias_bytes =
        shape.score == Score::bias ? size_t(shape.q_len * shape.kv_len) * size : 0;
    if (type.codes) {
        const std::vector<char> some = numbers(type.dtype);
        q_.resize(q_bytes);
        for (size_t i = 0; i < q_bytes; i++)
            q_[i] = some[i % some.size()];
    }
    char *memory = pool.normal(kv_type, q_room + sets_room + bias_bytes);
    if (bias_bytes > 0) {
        args.bias.data = memory + q_room + sets_room;
        args.bias.stride[2] = shape.kv_len;
        args.bias.stride[3] = 1;
    }
    out_.resize(batch * shape.q_heads * size_t(shape.q_len) * shape.v_dim * size + 64);
    first_k_ = memory + q_room;
    args.q.data = type.codes ? q_.data() : memory;
    args.out.data = out_.data() + (64 - reinterpret_cast<uintptr_t>(out_.data()) % 64) % 64;
    place(shape);
    store(shape);
    if (set_scales_)
        add_scales(shape);
    lists_.make(shape, &args);
    if (chooses(shape.mask)) {
        lists_.bound_keys(shape, desc, args, first_k_, set_bytes_, sets_);
        lists_.choose(0, &args);
    }
}

/* Sets the keys and values of the first set, and all strides. */
void Problem::place(const Shape &shape)
{
    args.k.data = first_k_;
    args.v.data = first_k_ + v_offset_;
    set_strides(args.q.stride, shape.layout, shape.q_heads, shape.q_len, shape.qk_dim);
    set_strides(args.out.stride, shape.layout, shape.q_heads, shape.q_len, shape.v_dim);
    set_strides(args.k.stride, shape.layout, shape.kv_heads, shape.kv_len, shape.qk_dim);
    set_strides(args.v.stride, shape.layout, shape.kv_heads, shape.kv_len,
                shape.v_in_k ? shape.qk_dim : shape.v_dim);
}

/* Makes scales, dense [batch or page, kv_heads, keys]. */
void Problem::add_scales(const Shape &shape)
{
    const int64_t keys = shape.storage == Storage::paged16 ? 16 : shape.kv_len;
    scales_.assign(sets_ * set_scales_, code_scale);
    args.k_quant.scale = scales_.data();
    args.v_quant.scale = scales_.data() + set_scales_ / 2;
    for (heed_quant *quant : {&args.k_quant, &args.v_quant}) {
        quant->stride[0] = shape.kv_heads * keys;
        quant->stride[1] = keys;
        quant->stride[2] = 1;
    }
}

void Problem::fill_mask(const Shape &shape)
{
    mask_.resize(size_t(shape.q_len * shape.kv_len));
    std::minstd_rand bits(1);
    for (int64_t i = 0; i < shape.q_len; i++) {
        unsigned char *row = mask_.data() + i * shape.kv_len;
        std::fill_n(row, shape.kv_len, 1);
        if (shape.mask == Mask::half)
            std::fill_n(row, shape.kv_len / 2, 0);
        else
            for (int64_t j = 0; j + 4 <= shape.kv_len; j += 4)
                row[j + int64_t(bits() >> 8 & 3)] = 0;
    }
}

/* Sets the lengths and starts of packed rows, and the table of pages, in an order drawn by the
 * random generator of Park and Miller. */
void Problem::store(const Shape &shape)
{
    if (is_packed(shape)) {
        int64_t at = 0;
        for (int64_t b = 0; b < shape.batch; b++) {
            lens_.push_back(int32_t(keys_of(shape, b)));
            starts_.push_back(int32_t(at));
            at += keys_of(shape, b);
        }
        args.kv_lens = lens_.data();
        args.kv_starts = starts_.data();
    }
    if (shape.storage != Storage::paged16)
        return;
    const int64_t pages = shape.kv_len / 16;
    for (int64_t i = 0; i < pages; i++)
        table_.push_back(int32_t(i));
    std::shuffle(table_.begin(), table_.end(), std::minstd_rand(1));
    args.block_table = table_.data();
    args.block_table_stride = args.n_pages = pages;
    set_strides(args.k.stride, shape.layout, shape.kv_heads, 16, shape.qk_dim);
    set_strides(args.v.stride, shape.layout, shape.kv_heads, 16, shape.v_dim);
}

void Problem::next()
{
    at_ = at_ + 1 < sets_ ? at_ + 1 : 0;
    char *k = first_k_ + at_ * set_bytes_;
    args.k.data = k;
    args.v.data = k + v_offset_;
    if (set_scales_) {
        args.k_quant.scale = scales_.data() + at_ * set_scales_;
        args.v_quant.scale = args.k_quant.scale + set_scales_ / 2;
    }
    lists_.choose(at_, &args);
}

} // namespace heed_bench
