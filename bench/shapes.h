/* The shapes that Heed is measured on. The table is the only place that knows them: heed-bench
 * makes its rows from it, and bench/peers reads it through `heed-bench --shapes`.
 *
 * Names    b batch, h heads (hq query, hkv key/value), s q_len = kv_len, kv kv_len, d qk_dim =
 *          v_dim; of linear layers m rows, n outputs, k inputs.
 * Memory   MEMORY marks what reads every key or weight once per call: such rows go from one set of
 * them to the next, so that they come from memory and not from a cache.
 */
#ifndef HEED_BENCH_SHAPES_H
#define HEED_BENCH_SHAPES_H

#include <cstdint>

namespace heed_bench
{

enum class Mask {
    full,
    causal,    /* position of row i: i + kv_len - q_len */
    window512, /* causal, and 511 keys before the row's own */
    half,      /* a bool mask [q_len, kv_len], shared by all heads, that hides keys < kv_len / 2 */
    random     /* the same, that hides one of every four keys, another one in each row */
};

/* What becomes of a score besides. */
enum class Score {
    plain,
    bias,   /* plus a bias [q_len, kv_len] of the row's type, shared by all heads */
    softcap /* capped_at * tanh(s / capped_at) */
};
constexpr float capped_at = 50;

enum class Layout {
    head_major,  /* [batch, heads, rows, dim] */
    token_major, /* [batch, rows, heads, dim]: all four of q, k, v, out */
};

/* Where the keys of sequences lie, and how many they are. */
enum class Storage {
    padded,  /* kv_len of each */
    paged16, /* the same in pages of 16 keys, whose order is random */
    ragged,  /* packed behind each other: 100 to kv_len */
    equal    /* packed, the same keys as ragged in all, but as many of each sequence */
};

/* Lengths of 16 sequences, each 1.405 times the one before, and their mean. */
constexpr int64_t ragged_lens[] = {100,  140,  197,  277,  390,  547,  769,   1080,
                                   1517, 2131, 2994, 4206, 5909, 8302, 11663, 16384};
constexpr int64_t equal_len = 3538;

enum class Bound { compute, memory, latency };

struct Shape {
    const char *name;
    Bound bound;
    Layout layout;
    Mask mask;
    int64_t batch;
    uint32_t q_heads, kv_heads;
    int64_t q_len, kv_len;
    uint32_t qk_dim, v_dim;
    bool v_in_k; /* V is the first v_dim columns of K (multi-head latent attention) */
    bool simple; /* by heed_attention instead of heed_attn_run */
    Storage storage = Storage::padded;
    Score score = Score::plain;
};

/* A prefill of h heads, s rows and keys, head dim d. */
constexpr Shape prefill(const char *name, uint32_t h, int64_t s, uint32_t d, Mask mask,
                        Score score = Score::plain)
{
    return {name,  Bound::compute, Layout::head_major, mask, 1, h, h, s, s, d, d,
            false, false,          Storage::padded,    score};
}

/* q query rows of each of b sequences against kv keys: hq query heads on 8 key/value heads, D 128.
 */
constexpr Shape decode(const char *name, int64_t b, int64_t q, int64_t kv, Layout layout,
                       uint32_t hq = 32)
{
    const Mask mask = q > 1 ? Mask::causal : Mask::full;
    return {name, Bound::memory, layout, mask, b, hq, 8, q, kv, 128, 128, false, false};
}

/* 16 sequences, packed, tokens outside of heads. */
constexpr Shape packed(const char *name, Storage storage)
{
    return {
        name,  Bound::memory, Layout::token_major, Mask::full, 16, 32, 8, 1, 16384, 128, 128, false,
        false, storage};
}

constexpr Shape small(const char *name, int64_t s, bool simple)
{
    return {name,  Bound::latency, Layout::head_major, Mask::full, 4, 4, 4, s, s, 8, 8,
            false, simple};
}

constexpr Shape shapes[] = {
    prefill("prefill_b1_h8_s512_d64_full", 8, 512, 64, Mask::full),
    prefill("prefill_b1_h8_s512_d64_causal", 8, 512, 64, Mask::causal),
    prefill("prefill_b1_h8_s512_d128_full", 8, 512, 128, Mask::full),
    prefill("prefill_b1_h8_s512_d128_causal", 8, 512, 128, Mask::causal),
    prefill("prefill_b1_h8_s2048_d64_full", 8, 2048, 64, Mask::full),
    prefill("prefill_b1_h8_s2048_d64_causal", 8, 2048, 64, Mask::causal),
    prefill("prefill_b1_h8_s2048_d128_full", 8, 2048, 128, Mask::full),
    prefill("prefill_b1_h8_s2048_d128_causal", 8, 2048, 128, Mask::causal),
    prefill("prefill_b1_h8_s2048_d64_randommask", 8, 2048, 64, Mask::random),
    prefill("prefill_b1_h8_s2048_d64_bias", 8, 2048, 64, Mask::full, Score::bias),
    prefill("prefill_b1_h8_s2048_d64_softcap", 8, 2048, 64, Mask::full, Score::softcap),
    prefill("prefill_b1_h8_s4096_d64_full", 8, 4096, 64, Mask::full),
    prefill("prefill_b1_h8_s4096_d64_causal", 8, 4096, 64, Mask::causal),
    prefill("prefill_b1_h8_s4096_d64_halfmask", 8, 4096, 64, Mask::half),
    prefill("prefill_b1_h8_s8192_d64_full", 8, 8192, 64, Mask::full),
    prefill("prefill_b1_h8_s8192_d64_causal", 8, 8192, 64, Mask::causal),
    prefill("prefill_b1_h8_s8192_d128_full", 8, 8192, 128, Mask::full),
    prefill("prefill_b1_h8_s8192_d128_causal", 8, 8192, 128, Mask::causal),
    prefill("prefill_b1_h1_s65536_d64_full", 1, 65536, 64, Mask::full),
    {"bert_b4_h12_s128_d64", Bound::compute, Layout::head_major, Mask::full, 4, 12, 12, 128, 128,
     64, 64, false, false},
    {"vision_b1_h16_s5776_d72", Bound::compute, Layout::head_major, Mask::full, 1, 16, 16, 5776,
     5776, 72, 72, false, false},
    {"bshd_b1_h32_s512_d128_full", Bound::compute, Layout::token_major, Mask::full, 1, 32, 32, 512,
     512, 128, 128, false, false},
    prefill("window512_b1_h8_s4096_d64", 8, 4096, 64, Mask::window512),
    prefill("window512_b1_h8_s8192_d64", 8, 8192, 64, Mask::window512),
    decode("decode_b1_hq32_hkv8_kv1024_d128", 1, 1, 1024, Layout::head_major),
    decode("decode_b1_hq32_hkv8_kv8192_d128", 1, 1, 8192, Layout::head_major),
    decode("decode_b1_hq32_hkv8_kv32768_d128", 1, 1, 32768, Layout::head_major),
    decode("decode_b1_hq64_hkv8_kv8192_d128", 1, 1, 8192, Layout::head_major, 64),
    decode("decodetm_b1_hq32_hkv8_kv1024_d128", 1, 1, 1024, Layout::token_major),
    decode("decodetm_b1_hq32_hkv8_kv8192_d128", 1, 1, 8192, Layout::token_major),
    decode("decodetm_b1_hq32_hkv8_kv32768_d128", 1, 1, 32768, Layout::token_major),
    decode("batchdecode_b16_hq32_hkv8_kv1024_d128", 16, 1, 1024, Layout::head_major),
    decode("batchdecode_b16_hq32_hkv8_kv8192_d128", 16, 1, 8192, Layout::head_major),
    decode("batchdecode_b16_hq32_hkv8_kv32768_d128", 16, 1, 32768, Layout::head_major),
    {"paged16_kv8192", Bound::memory, Layout::head_major, Mask::full, 1, 32, 8, 1, 8192, 128, 128,
     false, false, Storage::paged16},
    packed("ragged_b16", Storage::ragged),
    packed("ragged_b16_equal", Storage::equal),
    decode("spec_q4_b1_hq32_hkv8_kv8192_d128", 1, 4, 8192, Layout::head_major),
    decode("spec_q16_b1_hq32_hkv8_kv8192_d128", 1, 16, 8192, Layout::head_major),
    {"mla_d576_dv512_kv8192", Bound::memory, Layout::head_major, Mask::full, 1, 16, 1, 1, 8192, 576,
     512, true, false},
    small("small_b4_h4_s10_d8", 10, false),
    small("small_b4_h4_s1_d8", 1, false),
    small("small_b4_h4_s10_d8_simple", 10, true),
};

constexpr bool is_packed(const Shape &shape)
{
    return shape.storage == Storage::ragged || shape.storage == Storage::equal;
}

/* Keys of sequence b. */
constexpr int64_t keys_of(const Shape &shape, int64_t b)
{
    return shape.storage == Storage::ragged  ? ragged_lens[b]
           : shape.storage == Storage::equal ? equal_len
                                             : shape.kv_len;
}

/* Keys of all sequences. */
constexpr int64_t all_keys(const Shape &shape)
{
    int64_t keys = 0;
    for (int64_t b = 0; b < shape.batch; b++)
        keys += keys_of(shape, b);
    return keys;
}

/* A linear layer of n outputs and k inputs on m rows; gelu: with a bias, and GELU behind it. */
struct LinearShape {
    const char *name;
    Bound bound;
    int64_t m;
    uint32_t n, k;
    bool gelu = false;
};

constexpr LinearShape linear_shapes[] = {
    {"linear_m512_n2048_k2048", Bound::compute, 512, 2048, 2048},
    {"linear_m2048_n2048_k2048", Bound::compute, 2048, 2048, 2048},
    {"linear_m1_n2048_k2048", Bound::memory, 1, 2048, 2048},
    /* all-MiniLM-L6-v2's, of one short sentence, of one of 128 tokens and of 32 such */
    {"linear_m16_n384_k384", Bound::compute, 16, 384, 384},
    {"linear_m16_n1536_k384", Bound::compute, 16, 1536, 384},
    {"linear_m16_n384_k1536", Bound::compute, 16, 384, 1536},
    {"linear_m128_n384_k384", Bound::compute, 128, 384, 384},
    {"linear_m128_n1536_k384", Bound::compute, 128, 1536, 384},
    {"linear_m128_n384_k1536", Bound::compute, 128, 384, 1536},
    {"linear_m4096_n384_k384", Bound::compute, 4096, 384, 384},
    {"linear_m4096_n1536_k384", Bound::compute, 4096, 1536, 384},
    {"linear_m4096_n384_k1536", Bound::compute, 4096, 384, 1536},
    {"linear_m128_n1536_k384_gelu", Bound::compute, 128, 1536, 384, true},
    {"linear_m4096_n1536_k384_gelu", Bound::compute, 4096, 1536, 384, true},
};

/* (row, key) pairs that are visible, of one head of one sequence. */
constexpr double visible_pairs(const Shape &shape)
{
    double pairs = 0;
    if (is_packed(shape)) /* one row each, which sees all: the mean */
        return double(all_keys(shape)) / double(shape.batch);
    const int64_t offset = shape.kv_len - shape.q_len;
    for (int64_t i = 0; i < shape.q_len; i++) {
        const int64_t seen = i + offset + 1;
        switch (shape.mask) {
        case Mask::full:
            pairs += double(shape.kv_len);
            break;
        case Mask::causal:
            pairs += double(seen);
            break;
        case Mask::window512:
            pairs += double(seen < 512 ? seen : 512);
            break;
        case Mask::half:
            pairs += double(shape.kv_len - shape.kv_len / 2);
            break;
        case Mask::random:
            pairs += double(shape.kv_len - shape.kv_len / 4);
            break;
        }
    }
    return pairs;
}

/* Operations of the two products over the visible pairs: what GFLOPS counts. */
constexpr double flops(const Shape &shape)
{
    return 2.0 * (shape.qk_dim + shape.v_dim) * visible_pairs(shape) * shape.q_heads *
           double(shape.batch);
}

/* Elements of K and V, each counted once: what GBps counts. */
constexpr double kv_elements(const Shape &shape)
{
    return double(all_keys(shape)) * shape.kv_heads *
           (shape.v_in_k ? shape.qk_dim : shape.qk_dim + shape.v_dim);
}

} // namespace heed_bench

#endif
