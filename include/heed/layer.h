/** @file
 * Heed: the attention layer: projections, rotary positions, cache, attention and output projection
 * as one object with one workspace.
 *
 *     q = x_q Wq + bq,  k = x_kv Wk + bk,  v = x_kv Wv + bv     heed_linear objects; each optional
 *     heads of q and k turned by their positions               rotary
 *     k and v appended to a cache                              HEED_MHA_HAS_CACHE
 *     o = attention of every head, heads side by side          heed_attn_desc, with all that it can
 *     y = o Wo + bo + residual                                 optional
 *
 * Head h of q is columns [h * qk_dim, (h + 1) * qk_dim) of its projection, and so on.
 * Without a projection the input itself is q, k or v: with none at all, the layer is
 * attention over its inputs.
 *
 * Bits     A row of y depends on its sequence's rows of x (and cache), the weights and the
 *          descriptions alone: not on threads or parts, the batch, the place in it or strides (but,
 *          as in attention, a cache's may count). With HEED_HAS_REPRODUCIBLE_CHUNKS in attn a cache's
 *          strides do not count either, and the same rows through a cache in pieces of any size give
 *          the same bits as at once.
 * Source   Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2.
 */
#ifndef HEED_LAYER_H
#define HEED_LAYER_H

#include "attention.h"
#include "linear.h"
#include "rotary.h"

HEED_BEGIN_C

#define HEED_MHA_HAS_CROSS (UINT64_C(1) << 0) /**< keys and values come from args.x_kv */
#define HEED_MHA_HAS_CACHE (UINT64_C(1) << 1) /**< and are appended to args.k_cache, args.v_cache */
/** q_proj, k_proj and v_proj are applied to each head's slice of x instead of to the whole row:
 * in_dim is d_model / q_heads (d_kv / kv_heads for k and v), out_dim is qk_dim or v_dim. */
#define HEED_MHA_HAS_SHARED_PROJ (UINT64_C(1) << 2)

/** A layer: immutable, counted, shareable between threads; holds context and projections. */
typedef struct heed_mha heed_mha;

/** What a layer is. */
typedef struct heed_mha_desc {
    size_t struct_size; /**< sizeof(heed_mha_desc) */
    uint64_t features;  /**< HEED_MHA_HAS_* bits */
    /** as for heed_attn_create, with these differences: HEED_HAS_LENS and HEED_HAS_PACKED are about
     * the rows of x_q, x_kv and y; HEED_HAS_PAGES needs a cache; k_type and v_type are the cache's
     * where there is one, and may then be types of codes; max_kv_len counts all keys, those in the
     * cache, too; max_rows of 0 means max_batch * max_q_len. Copied */
    const heed_attn_desc *attn;
    heed_linear *q_proj; /**< [d_model, q_heads * qk_dim]; NULL: the input is taken as it is */
    heed_linear *k_proj; /**< [d_kv, kv_heads * qk_dim]; NULL: likewise */
    heed_linear *v_proj; /**< [d_kv, kv_heads * v_dim]; NULL: likewise */
    /** q, k and v side by side, in place of the three; not with HEED_MHA_HAS_CROSS */
    heed_linear *qkv_proj;
    heed_linear *kv_proj; /**< k and v side by side, in place of two */
    /** [q_heads * v_dim, any]; NULL: y is o. With HEED_LINEAR_HAS_RESIDUAL args.residual is added */
    heed_linear *out_proj;
    uint32_t d_model; /**< columns of x_q */
    uint32_t d_kv;    /**< columns of x_kv; 0 without HEED_MHA_HAS_CROSS */
    /** the type of x_q. What a projection reads and writes has the type that its desc says: q that of
     * attn.q_type, o that of attn.out_type, and without a cache k and v those of attn.k_type and
     * v_type */
    uint32_t x_type;
    uint32_t kv_type; /**< the type of x_kv; HEED_DTYPE_NONE without HEED_MHA_HAS_CROSS */
    /** of q and k. Row i of q stands at i + the offset that attn.position means (where that is
     * HEED_POS_UNSET: behind the keys that the cache holds; 0 in cross-attention), key j at j, unless
     * args.positions says otherwise */
    heed_rotary_desc rotary;
    /** with HEED_MHA_HAS_CROSS: most rows of x_kv in a call, all sequences together; 0:
     * max_batch * max_kv_len. Else 0 */
    int64_t max_kv_rows;
} heed_mha_desc;

/** What changes from call to call. Views of rows have three axes, [batch, row, column], and
 * stride[3] is 0. */
typedef struct heed_mha_args {
    size_t struct_size; /**< sizeof(heed_mha_args) */
    heed_error *error;  /**< receives the sentence of a failure; NULL: heed_last_error() */
    const heed_executor *executor; /**< threads for this call; NULL: the context's */
    int64_t batch;                 /**< as in heed_attn_args */
    int64_t q_len;                 /**< as in heed_attn_args */
    int64_t kv_len;                /**< with HEED_MHA_HAS_CROSS: rows of x_kv; else 0 */
    /** with HEED_MHA_HAS_CACHE: keys that a sequence's cache can hold (heed_kv_append), and the width
     * of mask, bias, weights and scores; else 0 */
    int64_t capacity;
    heed_const_view x_q; /**< [batch, q_len, d_model], or with q_starts [1, rows, d_model] */
    /** HEED_MHA_HAS_CROSS: [batch, kv_len, d_kv], or packed with kv_starts. With a cache and kv_len 0
     * nothing is appended: the cache holds all keys */
    heed_const_view x_kv;
    /** [batch, q_len, columns of out_proj or q_heads * v_dim]; packed as x_q is. With out_proj it may be
     * x_q or x_kv, element for element */
    heed_view y;
    heed_const_view residual; /**< as y, in its type; it may be y, element for element */
    /** as in heed_attn_args; the keys of mask, bias, weights and scores are those of the call or,
     * with a cache, of the cache */
    heed_const_view mask;
    heed_const_view bias; /**< as in heed_attn_args */
    heed_view lse;        /**< [batch, q_heads, q_len], packed as x_q is */
    heed_view weights;    /**< as in heed_attn_args */
    heed_view scores;     /**< as in heed_attn_args */
    heed_view k_cache;    /**< HEED_MHA_HAS_CACHE: as in heed_kv_append_args */
    heed_view v_cache;    /**< HEED_MHA_HAS_CACHE: as in heed_kv_append_args */
    /** HEED_HAS_LENS: [batch] rows of each sequence of x_q. Rows past them are not read or written */
    const int32_t *q_lens;
    const int32_t *kv_lens;   /**< HEED_HAS_LENS with HEED_MHA_HAS_CROSS: the same of x_kv */
    const int32_t *q_offsets; /**< HEED_POS_GIVEN: [batch] */
    /** HEED_HAS_PACKED: [batch] first row of each sequence of x_q, lse and y */
    const int32_t *q_starts;
    const int32_t *kv_starts; /**< HEED_HAS_PACKED with HEED_MHA_HAS_CROSS: the same of x_kv */
    /** HEED_MHA_HAS_CACHE: [batch] keys that the cache holds before the call; NULL: none. The caller
     * adds what was appended */
    const int32_t *cache_lens;
    const int32_t *block_table; /**< HEED_HAS_PAGES: as in heed_attn_args */
    int64_t block_table_stride; /**< HEED_HAS_PAGES: as in heed_attn_args */
    int64_t n_pages;            /**< HEED_HAS_PAGES: as in heed_attn_args */
    const float *alibi_slope;   /**< as in heed_attn_args */
    const float *bias_slope;    /**< as in heed_attn_args */
    const float *sink;          /**< as in heed_attn_args */
    heed_const_view ranges;     /**< as in heed_attn_args, over the keys that mask has */
    heed_const_view key_blocks; /**< as in heed_attn_args */
    const int32_t *mask_from;   /**< as in heed_attn_args */
    /** HEED_HAS_QUANT, which needs a cache: scales of k_cache, as in heed_kv_append_args */
    heed_quant_out k_quant;
    heed_quant_out v_quant; /**< the same for v_cache */
    /** with HEED_HAS_QUANT: HEED_APPEND_FRESH_SCALES, if new rows are to get scales of their own,
     * or 0; else 0 */
    uint64_t append;
    /** with rotary: [batch, q_len] position that each row of x_q is turned by, and its key where there is
     * no HEED_MHA_HAS_CROSS, for trees of tokens; those of sequence b begin at b * positions_stride. Which
     * keys a row sees does not go by them. NULL: as heed_mha_desc.rotary says */
    const int32_t *positions;
    int64_t positions_stride; /**< with positions: from one sequence to the next, else 0 */
} heed_mha_args;

/**
 * Makes a layer. Its projections are held, not copied.
 *
 * out      receives the layer, to be given back by heed_mha_release; written on success only
 * Errors   those of heed_attn_create; HEED_ERR_INVALID also if the parts do not fit together.
 * Threads  safe.
 */
HEED_API heed_status heed_mha_create(heed_context *context, const heed_mha_desc *desc,
                                     heed_mha **out);

/** Takes one more hold on a layer, to be given back by heed_mha_release. Thread-safe. */
HEED_API void heed_mha_retain(heed_mha *mha);

/** Gives a layer back; NULL is allowed. No run of the caller's may be under way. Thread-safe. */
HEED_API void heed_mha_release(heed_mha *mha);

/** Tells what heed_attn_explain and heed_linear_explain tell of the layer's parts; json, text,
 * bytes, errors as there. */
HEED_API heed_status heed_mha_explain(const heed_mha *mha, uint32_t json, char *text,
                                      size_t *bytes);

/** The workspace of a run with n_parts parts, in bytes; 0 if that overflows or n_parts is 0. Align
 * it to 64 bytes. It holds the rows between the steps, so it grows with max_rows and max_kv_rows.
 */
HEED_API size_t heed_mha_workspace_bytes(const heed_mha *mha, uint32_t n_parts);

/**
 * Runs the layer.
 *
 * workspace, bytes, errors, threads, memory   as heed_attn_run. A failure found before running
 * leaves outputs and caches untouched.
 */
HEED_API heed_status heed_mha_run(const heed_mha *mha, const heed_mha_args *args, void *workspace,
                                  size_t bytes);

/**
 * Begins a run whose parts the caller's own threads do by heed_run_part, as heed_attn_begin. Between
 * the steps of the layer a part waits for others that are still at work; one part alone completes
 * everything.
 *
 * A part that waits keeps its core, since giving it up would be a system call. So more parts than
 * there are free cores cost time, where those of a plan or a linear layer do not: 128 rows of d_model
 * 1024 by 8 threads on 2 cores took three times as long as by 2. Tokens one by one lose little. The
 * same holds for the threads of an executor and of heed_mha_run.
 */
HEED_API heed_status heed_mha_begin(const heed_mha *mha, const heed_mha_args *args,
                                    uint32_t n_parts, void *workspace, size_t bytes);

HEED_END_C

#endif
