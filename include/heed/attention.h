/** @file
 * Heed: attention. A description (desc) says once what is computed, args bring what one call has.
 *
 * b is a sequence of the batch, h a query head, g = h / (q_heads / kv_heads) its key/value head, i
 * a query row, j a key; pos(i) = i + offset of the sequence:
 *
 *     s = scale * sum_d q[b,h,i,d] * k[b,g,j,d]
 *     s = softcap * tanh(s / softcap)                         HEED_HAS_SOFTCAP
 *     s = s + alibi_slope[h] * (j - pos(i))                   HEED_HAS_ALIBI
 *     s = s + bias_slope[h] * bias[b,h,i,j]                   HEED_HAS_BIAS (slope 1 if not given)
 *     j is visible to i if j < kv_lens[b]
 *                       and mask[b,h,i,j] != 0                HEED_HAS_MASK
 *                       and bias[b,h,i,j] != -inf             HEED_HAS_BIAS
 *                       and j <= pos(i)                       HEED_HAS_CAUSAL
 *                       and pos(i) - window_left <= j <= pos(i) + window_right  HEED_HAS_WINDOW
 *                       and begin <= j < end of a range of row i                HEED_HAS_RANGES
 *                       and the bit of its blocks of rows and keys is set       HEED_HAS_KEY_BLOCKS
 *     m = max(s over visible j, sink[h]);  l = sum exp(s - m) + exp(sink[h] - m)
 *     weights = exp(s - m) / l on visible j, 0 elsewhere
 *     out = sum_j weights * v[b,g,j,:];    lse = m + ln(l)
 *
 * A row that sees no key gives out 0 and lse -inf (with a sink: lse = sink), never NaN. A NaN in q,
 * or in a visible k, v or bias, reaches the rows that see it; a key that a row may not see has no
 * influence on that row's out, lse, weights and biased scores, whatever bits it holds. To mask, use
 * the bool mask or a bias of -inf: a large negative filler leaves wrong weights on long rows, and a
 * row that sees nothing else gets the mean of V. -FLT_MAX is such a filler; scores below -2.35859e38,
 * the least whose product with log2(e) is an f32, may count as that, in lse too, and where a bias of
 * such a size meets a scaled q k below -4e32 the score may be -inf. Scores above the opposite of that
 * number may count as infinite, which gives NaN.
 *
 * Range    Backends whose scores are f32 at every step refuse a scale, softcap or scale / softcap that
 *          is neither 0 nor of a size from 2^-64 to 2^64; `naive` computes them. In those a score may
 *          be infinite or NaN where scale * q, or a sum of |q k| with or without scale (or scale /
 *          softcap), is above 2.35859e38; with keys of codes so may one whose sum of |q (c - zero)| is.
 *          Slopes are data of a run, which no plan looks at: one of such a size may count as infinite. A
 *          slope times a distance is added to a score in f32, which rounds their sum by up to 2^-24 of
 *          its size. Values are multiplied by weights of at most 256 (1 but for decode) and summed up
 *          in f32 before the division by the sum of the weights: values above 3.4e38 / (256 keys) may
 *          give an infinity or a NaN.
 * Codes    k and v may be codes of 8 to 4 bits: attention is computed over the numbers that the
 *          codes stand for. Codes, scales and zeros of a hidden key have no influence either.
 * Bits     An output row depends on that row's problem alone (heads, dims, types and options of the
 *          plan; the sequence's own lengths, offset and masks; strides too, without
 *          HEED_HAS_REPRODUCIBLE_CHUNKS), not on threads, batch, the plan's maxima, addresses, the
 *          host's rounding mode or which optional outputs are asked for. Where a result is a NaN, its
 *          sign and payload may be those of any NaN that reached it.
 * Source   Vaswani et al. 2017, arXiv:1706.03762, eq. 1; running maximum and sum after Milakov &
 *          Gimelshein 2018, arXiv:1805.02867; ALiBi after Press et al. 2021, arXiv:2108.12409;
 *          sinks after Xiao et al. 2023, arXiv:2309.17453, as a logit in the denominator.
 */
#ifndef HEED_ATTENTION_H
#define HEED_ATTENTION_H

#include "context.h"
#include "tensor.h"

HEED_BEGIN_C

/** Where a row stands among the keys. Must be chosen with causal, window or ALiBi; acts on all three
 * alike. Offsets may be negative. */
enum {
    HEED_POS_UNSET,        /**< nothing depends on positions */
    HEED_POS_TOP_LEFT,     /**< pos(i) = i */
    HEED_POS_BOTTOM_RIGHT, /**< pos(i) = i + kv_lens[b] - q_lens[b], what a cache of keys wants */
    HEED_POS_GIVEN         /**< pos(i) = i + args.q_offsets[b] */
};

/**
 * @name Features
 * One bit per optional part of the semantics. The bits say what is present: an argument whose bit is
 * not set, or a bit without its argument, is HEED_ERR_INVALID.
 * @{
 */
#define HEED_HAS_SCALE (UINT64_C(1) << 0)      /**< desc.scale; without it 1 / sqrt(qk_dim) */
#define HEED_HAS_SOFTCAP (UINT64_C(1) << 1)    /**< desc.softcap */
#define HEED_HAS_CAUSAL (UINT64_C(1) << 2)     /**< rows see no key behind their position */
#define HEED_HAS_WINDOW (UINT64_C(1) << 3)     /**< desc.window_left, desc.window_right */
#define HEED_HAS_ALIBI (UINT64_C(1) << 4)      /**< args.alibi_slope */
#define HEED_HAS_MASK (UINT64_C(1) << 5)       /**< args.mask */
#define HEED_HAS_BIAS (UINT64_C(1) << 6)       /**< args.bias, in desc.bias_type */
#define HEED_HAS_BIAS_SLOPE (UINT64_C(1) << 7) /**< args.bias_slope */
#define HEED_HAS_SINK (UINT64_C(1) << 8)       /**< args.sink */
#define HEED_HAS_LSE (UINT64_C(1) << 9)        /**< args.lse is written */
#define HEED_HAS_WEIGHTS (UINT64_C(1) << 10)   /**< args.weights is written */
#define HEED_HAS_SCORES (UINT64_C(1) << 11)    /**< args.scores is written, of desc.scores_stage */
#define HEED_HAS_LENS (UINT64_C(1) << 12)      /**< args.q_lens, args.kv_lens or both */
#define HEED_HAS_PACKED (UINT64_C(1) << 13)    /**< rows behind each other: q_starts, kv_starts */
#define HEED_HAS_PAGES (UINT64_C(1) << 14)     /**< keys and values in pages: block_table */
/** args.k_quant, args.v_quant or both: scales of keys and values in HEED_I8 to HEED_F8_E4M3. Without it
 * the scale is 1 and the zero 0; the other types of codes have no use for it */
#define HEED_HAS_QUANT (UINT64_C(1) << 15)
/** Whole prefill = chunked prefill = token by token, any strides, contiguous or paged: the same
 * bits. May be slower. */
#define HEED_HAS_REPRODUCIBLE_CHUNKS (UINT64_C(1) << 16)
#define HEED_HAS_RANGES (UINT64_C(1) << 17)     /**< args.ranges, desc.n_ranges */
#define HEED_HAS_KEY_BLOCKS (UINT64_C(1) << 18) /**< args.key_blocks, desc.block_* */
#define HEED_HAS_MASK_FROM (UINT64_C(1) << 19)  /**< args.mask_from, with mask or bias */
/** @} */

/**
 * Accuracy of the two products. A backend may be more accurate than asked.
 *
 * Relative L2 error of out in f32 for inputs from N(0,1): EXACT below 2^-24 (8 + sqrt(qk_dim)),
 * which is 1e-6 for head dims of 64 to 128 and 8e-6 for 16384; SPLIT adds 1e-5 to that, and BF16
 * 2.5e-3. lse and weights are made from weights that are not rounded to bf16: lse is off by no more
 * than scores are, and a weight by as much relative to itself, plus 1e-5 for exponentials and sums
 * in f32. A row that sees one key gives it a weight of 1 within 1e-4.
 *
 * Keys and values of codes count as the f32 numbers that they stand for (formats.h): EXACT is held
 * to the same bound with them. INT8 adds an error of |scale| max|q| sum |k| / 254 to a score, max
 * being over the elements of q that share a step (a row at the most), and of 2^-22 |scale| sum |q|
 * (|code| + |zero|) in units of k, because codes and zeros may be summed separately; for inputs
 * from N(0,1) that is 7e-3 of out more than EXACT.
 */
enum {
    HEED_ACCURACY_DEFAULT, /**< BF16 where q, k and v are all bf16, EXACT elsewhere */
    HEED_ACCURACY_EXACT,   /**< products and sums in f32 or wider */
    /** scale * q and the weights may be rounded to bf16 before the products, sums in f32; the same as
     * EXACT unless q, k and v are all bf16 */
    HEED_ACCURACY_BF16,
    /** f32 and f16 products, and those of the f32 numbers of codes, may be sums of three bf16 ones,
     * each off by at most 2^-15 of its size. A score is then off by 2^-15 |scale| sum |q k|, and a
     * weight's share in out by 2^-15 of it more */
    HEED_ACCURACY_SPLIT,
    /** with keys of codes, for integer dot products: scale * q may be rounded to int8 relative to
     * the greatest of each 32 elements (or of a row). Sums are exact, weights and values as with
     * EXACT. The same as DEFAULT with other keys */
    HEED_ACCURACY_INT8
};

/** Stages of the optional scores output. Scores of keys that a stage does not cover are -inf. */
enum {
    HEED_SCORES_NONE, /**< there is no such output */
    /** scale * q k of every j < kv_lens[b] inside the row's causal range, window, ranges and key blocks,
     * whatever mask and bias say */
    HEED_SCORES_RAW,
    HEED_SCORES_SOFTCAPPED, /**< of the same keys, behind the soft cap */
    HEED_SCORES_BIASED      /**< s, of the visible keys */
};

/** A plan: immutable, counted, shareable between threads; holds its context. */
typedef struct heed_attn heed_attn;

/** The description of a problem: everything that decides which code runs. One per kind of layer. */
typedef struct heed_attn_desc {
    size_t struct_size; /**< sizeof(heed_attn_desc) */
    uint64_t features;  /**< HEED_HAS_* bits */
    /** 1 to 2^20, and a multiple of kv_heads (multi-head attention: equal; multi-query: kv_heads is 1).
     * Query heads g * n .. g * n + n - 1 share key/value head g, n = q_heads / kv_heads */
    uint32_t q_heads;
    uint32_t kv_heads;     /**< 1 to 2^20 */
    uint32_t qk_dim;       /**< columns of a row of q and of k; 1 to 2^20 */
    uint32_t v_dim;        /**< columns of a row of v and of out; 1 to 2^20 */
    uint32_t q_type;       /**< HEED_F32, HEED_F16 or HEED_BF16 */
    uint32_t k_type;       /**< the same, independent of q_type, or any type of codes */
    uint32_t v_type;       /**< the same, independent of q_type and k_type, or any type of codes */
    uint32_t out_type;     /**< HEED_F32, HEED_F16 or HEED_BF16, independent of the others */
    uint32_t bias_type;    /**< the same with HEED_HAS_BIAS, else HEED_DTYPE_NONE */
    uint32_t position;     /**< HEED_POS_*; required with causal, window or ALiBi */
    uint32_t scores_stage; /**< HEED_SCORES_* with HEED_HAS_SCORES, else 0 */
    uint32_t page_len;     /**< keys of a page with HEED_HAS_PAGES, else 0 */
    uint32_t accuracy;     /**< HEED_ACCURACY_* */
    uint32_t n_ranges;     /**< with HEED_HAS_RANGES 1 to 8: intervals of a row, else 0 */
    uint32_t block_rows;   /**< with HEED_HAS_KEY_BLOCKS: rows that share a bit; else 0 */
    uint32_t block_keys;   /**< with HEED_HAS_KEY_BLOCKS: keys that share a bit; else 0 */
    float scale;           /**< with HEED_HAS_SCALE any finite value, negative too, else 0 */
    float softcap;         /**< with HEED_HAS_SOFTCAP finite and >= 0 (0: off), else 0 */
    /** with HEED_HAS_WINDOW: keys seen before self, which comes on top; -1: unbounded. Else 0 or -1 */
    int64_t window_left;
    int64_t window_right; /**< the same, of keys behind self */
    /** the most sequences that a call will bring. The maxima size the workspace and never change a bit
     * of the results; each is at most 2^31 - 1 */
    int64_t max_batch;
    int64_t max_q_len;  /**< the most rows of one sequence */
    int64_t max_kv_len; /**< the most keys of one sequence */
    /** with HEED_HAS_PACKED and q_starts: rows that q and out have, else 0. It bounds q_starts and
     * sizes nothing; heed_attention makes a plan for each value, so round it up where memory permits */
    int64_t max_rows;
} heed_attn_desc;

/**
 * Everything that may change from call to call.
 *
 * Ownership      all memory is the caller's and must stay as it is until the call has ended. out may
 *                share a buffer with inputs, but no element.
 * Alignment      arrays of int32_t and float are naturally aligned, and so are the numbers of ranges and
 *                key_blocks. Other views need no alignment.
 */
typedef struct heed_attn_args {
    size_t struct_size; /**< sizeof(heed_attn_args) */
    heed_error *error;  /**< receives the sentence of a failure; NULL: heed_last_error() */
    const heed_executor *executor; /**< threads for this call; NULL: the context's */
    int64_t batch;     /**< sequences, at most the plan's max_batch; 0 is a valid, empty problem */
    int64_t q_len;     /**< rows of the longest, at most the plan's; may be 0 */
    int64_t kv_len;    /**< keys of the longest, at most the plan's; may be 0 */
    heed_const_view q; /**< [batch, q_heads, q_len, qk_dim] */
    heed_const_view k; /**< [batch, kv_heads, kv_len, qk_dim] */
    heed_const_view v; /**< [batch, kv_heads, kv_len, v_dim]; may be a view of k's memory */
    heed_view out;     /**< [batch, q_heads, q_len, v_dim] */
    /** HEED_HAS_MASK: [batch, q_heads, q_len, kv_len] bytes, nonzero = attend; broadcast by strides
     * of 0 */
    heed_const_view mask;
    heed_const_view bias; /**< HEED_HAS_BIAS: the same shape in bias_type; -inf masks */
    heed_view lse;        /**< HEED_HAS_LSE: f32 [batch, q_heads, q_len], natural logarithm */
    heed_view weights;    /**< HEED_HAS_WEIGHTS: f32 [batch, q_heads, q_len, kv_len] */
    heed_view scores;     /**< HEED_HAS_SCORES: the same shape */
    /** HEED_HAS_QUANT: scales of k, if its type takes them; scale NULL: 1 everywhere */
    heed_quant k_quant;
    heed_quant v_quant;   /**< HEED_HAS_QUANT: the same for v */
    /** HEED_HAS_LENS: [batch] rows of each sequence, at most q_len; NULL: q_len. Rows i >= q_lens[b]
     * are not written, and memory past a length is not read */
    const int32_t *q_lens;
    /** HEED_HAS_LENS: [batch] keys of each sequence, at most kv_len; NULL: kv_len */
    const int32_t *kv_lens;
    const int32_t *q_offsets; /**< HEED_POS_GIVEN: [batch] position of each sequence's row 0 */
    /** HEED_HAS_PACKED: [batch]; q, out and lse are then [1, q_heads, max_rows, ...], and row i of
     * sequence b is row q_starts[b] + i of theirs (their stride[0] is not used). mask, bias, weights
     * and scores keep their shapes. NULL: q is not packed */
    const int32_t *q_starts;
    /** HEED_HAS_PACKED: [batch], the same for k and v, as [1, kv_heads, 2^31 - 1, ...]: so many rows
     * have to be addressable by their strides, which leaves 2 GB from row to row. NULL: not packed */
    const int32_t *kv_starts;
    /** HEED_HAS_PAGES: [batch, block_table_stride] page numbers; k and v are then
     * [n_pages, kv_heads, page_len, ...], and key j of sequence b is row j % page_len of page
     * block_table[b][j / page_len]. Only entries of keys that some row sees by length, causality, window,
     * ranges and key blocks are read and have to be pages, also where mask or bias hide such a key */
    const int32_t *block_table;
    int64_t block_table_stride; /**< HEED_HAS_PAGES: entries from one sequence to the next, below 2^31 */
    int64_t n_pages;            /**< HEED_HAS_PAGES: pages that k and v have */
    const float *alibi_slope;   /**< HEED_HAS_ALIBI: [q_heads] */
    const float *bias_slope;    /**< HEED_HAS_BIAS_SLOPE: [q_heads] */
    const float *sink; /**< HEED_HAS_SINK: [q_heads]; -inf is none, +inf makes rows with keys NaN */
    /** HEED_HAS_RANGES: pairs of int32_t {begin, end}, [batch, q_heads, q_len, n_ranges]; strides in
     * pairs, 0 broadcasts. Row i sees key j only if begin <= j < end of one of them. Those of a row
     * ascend, do not overlap and end at kv_lens[b] at the latest; begin == end is none. Like lengths they
     * are read and checked when the run begins (HEED_CONTEXT_TRUST_LENGTHS: not checked). What they and
     * key_blocks hide from all rows is not read: such pages and their entries of block_table need not
     * be there. heed/masks.h makes them */
    heed_const_view ranges;
    /** HEED_HAS_KEY_BLOCKS: words of uint64_t, [batch, q_heads, q_len / block_rows, kv_len / block_keys /
     * 64], each rounded up; strides in words, 0 broadcasts. Row i sees key j only if bit n % 64 of word
     * n / 64 of row block i / block_rows is set, n = j / block_keys. Bits behind the last block may be
     * anything */
    heed_const_view key_blocks;
    /** HEED_HAS_MASK_FROM: [batch], 0 to kv_lens[b]; column 0 of mask and bias is key mask_from[b],
     * and the keys before it are visible to them, with bias 0. Mask and bias have a column for each
     * key from it to kv_len */
    const int32_t *mask_from;
} heed_attn_args;

/**
 * Would heed_attn_create find a backend for this problem? Builds no plan.
 *
 * why      receives the reason if not; NULL: heed_last_error()
 * Errors   as heed_attn_create: UNSUPPORTED, not INVALID, if a row is not whole blocks of its type.
 * Threads  safe.
 */
HEED_API heed_status heed_attn_supported(heed_context *context, const heed_attn_desc *desc,
                                         heed_error *why);

/**
 * Makes a plan, or returns the one that the context has cached for an equal description (no lock is
 * taken then).
 *
 * out      receives the plan, to be given back by heed_attn_release; written on success only
 * Errors   HEED_ERR_INVALID     desc is inconsistent, or HEED_BACKEND names an unknown backend;
 *          HEED_ERR_UNSUPPORTED every permitted backend refuses, or what is asked for is reserved;
 *          HEED_ERR_BACKEND     those that do not refuse could make no plan;
 *          HEED_ERR_NOMEM; HEED_ERR_ABI an impossible struct_size, or an unknown tail that is not zero.
 * Threads  safe.
 */
HEED_API heed_status heed_attn_create(heed_context *context, const heed_attn_desc *desc,
                                      heed_attn **out);

/** Takes one more hold on a plan, to be given back by heed_attn_release. Thread-safe. */
HEED_API void heed_attn_retain(heed_attn *plan);

/** Gives a plan back; NULL is allowed. No run of the caller's may be under way. Thread-safe. */
HEED_API void heed_attn_release(heed_attn *plan);

/**
 * Tells which backend and kernel each query class of the plan uses (HEED_QUERY_ONE ... in
 * heed/backend.h), its tiling and workspace, and for each other the one condition that excluded it, or
 * its cost: an estimate for one core and one sequence of the length that is said, not of the maxima.
 *
 * json, text, bytes, errors   as heed_context_backends.
 */
HEED_API heed_status heed_attn_explain(const heed_attn *plan, uint32_t json, char *text,
                                       size_t *bytes);

/**
 * Tells which kernel runs the sequences of q_len rows that see n_keys keys between them: from the
 * first to the last by length, causality, window and ranges.
 *
 * q_len, n_keys   at least 0; q_len at most the plan's max_q_len
 * out      receives it; written on success only
 * Errors   HEED_ERR_INVALID an argument is NULL or out of range; HEED_ERR_ABI an impossible
 *          struct_size
 * Threads  safe.
 */
HEED_API heed_status heed_attn_kernel_of(const heed_attn *plan, int64_t q_len, int64_t n_keys,
                                         heed_kernel_info *out);

/**
 * The workspace of a run with n_parts parts, in bytes; 0 if that overflows or n_parts is 0. Align it
 * to 64 bytes. It depends on the plan's maxima, but hardly on max_kv_len (a mask's summary has a byte
 * per head and key block), and not on batch x kv_len together.
 */
HEED_API size_t heed_attn_workspace_bytes(const heed_attn *plan, uint32_t n_parts);

/**
 * Attention in one call: a cached plan and a cached workspace of the context. The max_batch, max_q_len
 * and max_kv_len of desc are not looked at: the args size the plan.
 *
 * Errors   those of heed_attn_create and heed_attn_run.
 * Threads  safe; concurrent calls may allocate a workspace of their own.
 */
HEED_API heed_status heed_attention(heed_context *context, const heed_attn_desc *desc,
                                    const heed_attn_args *args);

/**
 * Runs planned attention.
 *
 * workspace, bytes   the caller's, 64-byte aligned; as many parts are used as it holds, at most the
 *          context's threads. NULL and 0: the context lends one. NULL with bytes is HEED_ERR_INVALID.
 * Errors   HEED_ERR_INVALID  an argument is missing, superfluous, out of range or inconsistent;
 *          HEED_ERR_NOMEM    bytes < heed_attn_workspace_bytes(plan, 1);
 *          HEED_ERR_BACKEND  a backend failed: outputs are unspecified.
 *          Outputs are untouched after the first two.
 * Threads  the plan is read-only: calls may share it, each with its own workspace. The call runs on
 *          one thread below a few microseconds of work (a tenth of a millisecond where
 *          OMP_WAIT_POLICY is passive), inside an OpenMP parallel region of the runtime that Heed
 *          uses, and in a child after fork. An engine that calls from threads of its own, which
 *          Heed cannot see, passes an executor, uses parts, or makes its context with n_threads 1.
 * Fork     the backend onednn is refused in a child whose parent had used it, since other threads
 *          may have held oneDNN's locks: a plan of the parent's that needs it fails there with
 *          HEED_ERR_BACKEND, and a new plan takes another backend.
 * Tiles    where a backend uses the tile registers of AMX, it restores a thread's configuration of
 *          them afterwards, but not their contents.
 * Memory   with a workspace the call allocates nothing and takes no lock (what the OpenMP runtime
 *          itself does aside, and oneDNN where the backend onednn runs: each of its matrix products
 *          makes and frees up to 6 small pieces of memory in oneDNN 2.6, up to 8 in 3.2, and takes
 *          a lock on CPUs without AVX-512). Where there is no memory for one of them, as for a plan's
 *          many, oneDNN 2.6 itself ends the process.
 */
HEED_API heed_status heed_attn_run(const heed_attn *plan, const heed_attn_args *args,
                                   void *workspace, size_t bytes);

/**
 * Begins a run whose parts the caller's own threads do: checks everything, copies the args and
 * writes the schedule. Any number of parts from 1 to n_parts then completes the call.
 *
 * workspace, bytes   as heed_attn_workspace_bytes(plan, n_parts) says; its contents do not matter,
 *          not even those of a run that failed or was never finished
 * Errors   as heed_attn_run; outputs are untouched.
 * Threads  one thread begins the run, and that happens before every part.
 */
HEED_API heed_status heed_attn_begin(const heed_attn *plan, const heed_attn_args *args,
                                    uint32_t n_parts, void *workspace, size_t bytes);

/** What is merged. Views have three axes, [rows, heads, dim], and stride[3] is not used. */
typedef struct heed_merge_args {
    size_t struct_size;    /**< sizeof(heed_merge_args) */
    heed_error *error;     /**< receives the sentence of a failure; NULL: heed_last_error() */
    int64_t rows;          /**< of every view */
    int64_t heads;         /**< of every view */
    int64_t dim;           /**< of a, b and out */
    heed_const_view a;     /**< f32 [rows, heads, dim] */
    heed_const_view a_lse; /**< f32 [rows, heads], natural logarithm */
    heed_const_view b;     /**< as a */
    heed_const_view b_lse; /**< as a_lse */
    heed_view out;         /**< [rows, heads, dim] in out_type, rounded once */
    heed_view lse;         /**< f32 [rows, heads]; data may be NULL */
    uint32_t out_type;     /**< HEED_F32, HEED_F16 or HEED_BF16 */
    uint32_t reserved;     /**< 0 */
} heed_merge_args;

/**
 * Merges two partial results over disjoint sets of keys into the result over their union:
 * lse = ln(exp(a_lse) + exp(b_lse)), out = a * exp(a_lse - lse) + b * exp(b_lse - lse).
 *
 * Memory   out may be a or b, and lse a_lse or b_lse, element for element.
 * Empty    a part with lse -inf has no influence, whatever a or b holds there; two of them give 0
 *          and -inf. A sink belongs to exactly one part.
 * Errors   HEED_ERR_INVALID, HEED_ERR_ABI; outputs are untouched.
 * Threads  safe; runs on the calling thread.
 */
HEED_API heed_status heed_merge(const heed_merge_args *args);

/** What heed_merge_parts merges: as heed_merge_args, but any number of parts. */
typedef struct heed_merge_parts_args {
    size_t struct_size; /**< sizeof(heed_merge_parts_args) */
    heed_error *error;  /**< receives the sentence of a failure; NULL: heed_last_error() */
    int64_t rows;       /**< of every view */
    int64_t heads;      /**< of every view */
    int64_t dim;        /**< of the parts and out */
    uint32_t n_parts;   /**< any number; with 0 only the sink is left */
    uint32_t out_type;  /**< HEED_F32, HEED_F16 or HEED_BF16 */
    const heed_const_view *parts; /**< [n_parts] of f32 [rows, heads, dim] */
    const heed_const_view *lses;  /**< [n_parts] of f32 [rows, heads], natural logarithms */
    const float *sink; /**< [heads], a logit that no part has had yet; -inf is none. NULL: none */
    heed_view out;     /**< [rows, heads, dim] in out_type, rounded once */
    heed_view lse;     /**< f32 [rows, heads]; data may be NULL */
} heed_merge_parts_args;

/**
 * Merges any number of partial results over disjoint sets of keys: lse = ln(sum_i exp(lse_i) +
 * exp(sink)), out = sum_i part_i * exp(lse_i - lse), summed in f64 in the order of the parts. With
 * two parts and no sink it is heed_merge, bit for bit.
 *
 * Memory   out may be one of the parts, and lse one of theirs, element for element.
 * Empty    as in heed_merge. A NaN stays one.
 * Errors   HEED_ERR_INVALID, HEED_ERR_ABI; outputs are untouched.
 * Threads  safe; runs on the calling thread.
 */
HEED_API heed_status heed_merge_parts(const heed_merge_parts_args *args);

HEED_END_C

#endif
