/* The shapes that Heed is measured on. The tables here are the only place that has them: heed-bench
 * makes its rows from them, and bench/peers reads them through `heed-bench --shapes`.
 *
 * Names    b batch, h heads (hq query, hkv key/value), s q_len = kv_len, kv kv_len, d qk_dim =
 *          v_dim; for linear layers m rows, n outputs, k inputs.
 * Memory   the bound `memory` marks shapes that read every key or weight once in a call: their rows
 *          go from one set of them to the next, so that they come from memory, not from a cache.
 */
#ifndef HEED_BENCH_SHAPES_H
#define HEED_BENCH_SHAPES_H

#include <cstdint>

namespace heed_bench
{

enum class Mask {
    full,
    causal,    /* the position of row i is i + kv_len - q_len */
    window512, /* causal, and 511 keys before the row's own */
    half,      /* a bool mask [q_len, kv_len], shared by all heads, that hides keys < kv_len / 2 */
    random,    /* the same, but hides one of every four keys, a different one in each row */
    documents16,   /* ranges: 16 documents of the same length, causal in each */
    prefix,        /* ranges: the first quarter of the keys, and those up to the row's own */
    chunked2048,   /* ranges: causal in chunks of 2048 keys */
    causal_ranges, /* ranges with the meaning of causal */
    window_ranges, /* ranges with the meaning of window512 */
    tree,          /* ranges: the rows are drafts that branch in three, after the cached keys */
    blocks64,      /* key blocks: a quarter of the blocks of 64 rows and 64 keys */
    blocks128,     /* the same with 128 */
    top64,         /* key blocks of 64 keys: the 12 % with greatest bounds, chosen in the call */
    top256         /* the same with 256 keys */
};

constexpr const char *mask_names[] = {"full",          "causal",        "window512", "half",
                                      "random",        "documents16",   "prefix",    "chunked2048",
                                      "causal_ranges", "window_ranges", "tree",      "blocks64",
                                      "blocks128",     "top64",         "top256"};

constexpr bool has_ranges(Mask mask)
{
    return mask >= Mask::documents16 && mask <= Mask::tree;
}

/* Whether key blocks are chosen in the call. */
constexpr bool chooses(Mask mask)
{
    return mask == Mask::top64 || mask == Mask::top256;
}

/* The keys of a key block; 0 if the mask has none. */
constexpr uint32_t block_of(Mask mask)
{
    return mask == Mask::blocks64 || mask == Mask::top64 ? 64
           : mask == Mask::blocks128                     ? 128
           : mask == Mask::top256                        ? 256
                                                         : 0;
}

/* Whether block n is seen in the row of blocks r: one of every four is, a different one in each
 * row. */
constexpr bool block_is_seen(int64_t r, int64_t n)
{
    return (n + 3 * r + (n / 4) * (r / 4)) % 4 == 0;
}

constexpr int64_t parent_of(int64_t draft)
{
    return draft > 0 ? (draft - 1) / 3 : -1;
}

/* What is done to scores besides masking. */
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

/* Where the keys of the sequences lie, and how many there are. */
enum class Storage {
    padded,  /* each sequence has kv_len keys */
    paged16, /* the same, in pages of 16 keys in random order */
    ragged,  /* packed one after another: 100 to kv_len keys */
    equal    /* packed, as many keys as ragged in all, the same number for each sequence */
};

/* The lengths of 16 sequences, each 1.405 times the one before, and their mean. */
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
    bool simple; /* computed by heed_attention, not heed_attn_run */
    Storage storage = Storage::padded;
    Score score = Score::plain;
};

/* A prefill with h heads, s rows and s keys, and a head dim of d. */
constexpr Shape prefill(const char *name, uint32_t h, int64_t s, uint32_t d, Mask mask,
                        Score score = Score::plain)
{
    return {name,  Bound::compute, Layout::head_major, mask, 1, h, h, s, s, d, d,
            false, false,          Storage::padded,    score};
}

/* b sequences, each with q query rows and kv keys: hq query heads on 8 key/value heads, head dim
 * 128. */
constexpr Shape decode(const char *name, int64_t b, int64_t q, int64_t kv, Layout layout,
                       uint32_t hq = 32, Score score = Score::plain)
{
    const Mask mask = q > 1 ? Mask::causal : Mask::full;
    return {name,  Bound::memory, layout,          mask, b, hq, 8, q, kv, 128, 128,
            false, false,         Storage::padded, score};
}

/* 64 drafted tokens with 8192 keys before them. */
constexpr Shape drafts(const char *name, Mask mask)
{
    return {name,  Bound::memory, Layout::head_major, mask, 1, 32, 8, 64, 8256, 128, 128,
            false, false};
}

/* 16 packed sequences, in which each token has its heads together. */
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
    /* Structured masks; some are followed by shapes to compare them with. */
    prefill("documents16_s8192_d128", 8, 8192, 128, Mask::documents16),
    {"documents16apart_s8192_d128", Bound::compute, Layout::head_major, Mask::causal, 16, 8, 8, 512,
     512, 128, 128, false, false},
    prefill("prefixlm_s4096_d64", 8, 4096, 64, Mask::prefix),
    prefill("chunked2048_s8192_d128", 8, 8192, 128, Mask::chunked2048),
    prefill("causalranges_s8192_d128", 8, 8192, 128, Mask::causal_ranges),
    prefill("windowranges_s8192_d64", 8, 8192, 64, Mask::window_ranges),
    prefill("blocksparse25_s8192_d128_b64", 8, 8192, 128, Mask::blocks64),
    prefill("blocksparse25_s8192_d128_b128", 8, 8192, 128, Mask::blocks128),
    drafts("tree64_kv8192", Mask::tree),
    drafts("tree64full_kv8192", Mask::full),
    {"topk_kv65536", Bound::memory, Layout::head_major, Mask::top64, 1, 32, 8, 1, 65536, 128, 128,
     false, false},
    {"topk_kv65536_b256", Bound::memory, Layout::head_major, Mask::top256, 1, 32, 8, 1, 65536, 128,
     128, false, false},
    decode("decode_b1_hq32_hkv8_kv65536_d128", 1, 1, 65536, Layout::head_major),
    decode("decode_b1_hq32_hkv8_kv1024_d128", 1, 1, 1024, Layout::head_major),
    decode("decode_b1_hq32_hkv8_kv8192_d128", 1, 1, 8192, Layout::head_major),
    decode("decode_b1_hq32_hkv8_kv32768_d128", 1, 1, 32768, Layout::head_major),
    decode("decode_b1_hq32_hkv8_kv8192_d128_softcap", 1, 1, 8192, Layout::head_major, 32,
           Score::softcap),
    decode("decode_b1_hq64_hkv8_kv8192_d128", 1, 1, 8192, Layout::head_major, 64),
    decode("decodetm_b1_hq32_hkv8_kv128_d128", 1, 1, 128, Layout::token_major),
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

/* The number of keys of sequence b. */
constexpr int64_t keys_of(const Shape &shape, int64_t b)
{
    return shape.storage == Storage::ragged  ? ragged_lens[b]
           : shape.storage == Storage::equal ? equal_len
                                             : shape.kv_len;
}

/* The number of keys of all sequences. */
constexpr int64_t all_keys(const Shape &shape)
{
    int64_t keys = 0;
    for (int64_t b = 0; b < shape.batch; b++)
        keys += keys_of(shape, b);
    return keys;
}

/* A linear layer with n outputs and k inputs, on m rows; gelu: with a bias, followed by GELU. */
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
    /* those of all-MiniLM-L6-v2: for a short sentence, for one of 128 tokens, for 32 of those */
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

/* The number of blocks that are chosen. */
constexpr int64_t top_blocks(const Shape &shape)
{
    return shape.kv_len / block_of(shape.mask) * 12 / 100;
}

/* The number of keys that row i sees. */
constexpr int64_t keys_seen(const Shape &shape, int64_t i)
{
    const int64_t keys = shape.kv_len, before = i + keys - shape.q_len + 1;
    int64_t drafts = 0;
    switch (shape.mask) {
    case Mask::full:
        break;
    case Mask::causal:
    case Mask::causal_ranges:
        return before;
    case Mask::window512:
    case Mask::window_ranges:
        return before < 512 ? before : 512;
    case Mask::half:
        return keys - keys / 2;
    case Mask::random:
        return keys - keys / 4;
    case Mask::documents16:
        return (before - 1) % (keys / 16) + 1;
    case Mask::prefix:
        return before > keys / 4 ? before : keys / 4;
    case Mask::chunked2048:
        return (before - 1) % 2048 + 1;
    case Mask::tree:
        for (int64_t at = i; at >= 0; at = parent_of(at))
            drafts++;
        return keys - shape.q_len + drafts;
    case Mask::blocks64:
    case Mask::blocks128:
        return keys / 4;
    case Mask::top64:
    case Mask::top256:
        return top_blocks(shape) * block_of(shape.mask);
    }
    return keys;
}

/* The number of visible pairs of a row and a key, in one head of one sequence. */
constexpr double visible_pairs(const Shape &shape)
{
    double pairs = 0;
    if (is_packed(shape)) /* one row each, which sees all keys: their mean */
        return double(all_keys(shape)) / double(shape.batch);
    for (int64_t i = 0; i < shape.q_len; i++)
        pairs += double(keys_seen(shape, i));
    return pairs;
}

/* The operations of the two products over the visible pairs, which GFLOPS counts. */
constexpr double flops(const Shape &shape)
{
    return 2.0 * (shape.qk_dim + shape.v_dim) * visible_pairs(shape) * shape.q_heads *
           double(shape.batch);
}

/* The elements of K and V, each counted once, whose bytes GBps counts. */
constexpr double kv_elements(const Shape &shape)
{
    return double(all_keys(shape)) * shape.kv_heads *
           (shape.v_in_k ? shape.qk_dim : shape.qk_dim + shape.v_dim);
}

} // namespace heed_bench

#endif
