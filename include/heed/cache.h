/** @file
 * Heed: the key/value cache. A function on the caller's memory and thread: no context, no plan, no
 * allocation.
 *
 * A cache is contiguous, [batch, kv_heads, capacity, dim] in any order of axes, or lies in pages,
 * [n_pages, kv_heads, page_len, dim], with a block table that says which page holds keys
 * [n * page_len, (n + 1) * page_len) of a sequence. It is what heed_attn_args calls k and v.
 * A step of generation appends the new keys and values behind the cache_lens[b] that are there, and
 * then attends with kv_lens[b] = cache_lens[b] + lens[b].
 */
#ifndef HEED_CACHE_H
#define HEED_CACHE_H

#include <stddef.h>

#include "status.h"
#include "tensor.h"

HEED_BEGIN_C

/** Options of appending: how new rows become rows of a cache. */
enum {
    /** every new row of a head gets a scale of its own, and U8 and U4 a zero, which are written to k_quant
     * and v_quant: formats.h has the formulas. Needs group 0 and key_group 0 or 1 */
    HEED_APPEND_FRESH_SCALES = 1,
    HEED_APPEND_HADAMARD_K = 2, /**< keys are transformed first, as by heed_hadamard */
    HEED_APPEND_HADAMARD_V = 4  /**< the same for values */
};

/** What is appended where. */
typedef struct heed_kv_append_args {
    size_t struct_size; /**< sizeof(heed_kv_append_args) */
    heed_error *error;  /**< receives the sentence of a failure; NULL: heed_last_error() */
    int64_t batch;      /**< sequences of this call */
    int64_t len;        /**< the most new rows that one of them has */
    /** keys that a sequence's cache can hold: the contiguous cache's third axis, or with pages at most
     * block_table_stride * page_len */
    int64_t capacity;
    uint32_t kv_heads; /**< at least 1 */
    uint32_t qk_dim;   /**< columns of a row of k; at least 1 */
    uint32_t v_dim;    /**< of v; 0: there are no values to append (they are a view of the keys) */
    uint32_t page_len; /**< keys of a page; 0: the cache is contiguous */
    uint32_t k_type;   /**< HEED_F32, HEED_F16 or HEED_BF16 */
    uint32_t v_type;   /**< the same, independent of k_type */
    /** the same, independent of k_type, or any type of codes; what is appended is rounded to
     * nearest even, or encoded as formats.h says */
    uint32_t k_cache_type;
    uint32_t v_cache_type; /**< the same, independent of k_cache_type */
    /** new rows [batch, kv_heads, len, qk_dim], or with starts [1, kv_heads, rows, qk_dim] */
    heed_const_view k;
    heed_const_view v; /**< as k, of v_dim columns; not given where v_dim is 0 */
    /** [batch, kv_heads, capacity, qk_dim], or [n_pages, kv_heads, page_len, qk_dim] */
    heed_view k_cache;
    heed_view v_cache;   /**< apart from k_cache, of v_dim columns; not given where v_dim is 0 */
    const int32_t *lens; /**< [batch] new rows of each sequence, 0 to len; NULL: len */
    /** [batch] with packed rows: row i of sequence b is row starts[b] + i. NULL: not packed */
    const int32_t *starts;
    const int32_t *cache_lens; /**< [batch] keys that are there already; NULL: none */
    /** [batch, block_table_stride] with pages; only entries of keys that are written are read */
    const int32_t *block_table;
    int64_t block_table_stride; /**< with pages: entries from one sequence to the next, else 0 */
    int64_t n_pages;            /**< with pages: how many the caches have, else 0 */
    int64_t rows;               /**< with starts: rows that k and v have, else 0 */
    /** scales of k_cache, if its type takes them; scale NULL: 1 everywhere. Those of new keys are
     * read, or written with HEED_APPEND_FRESH_SCALES; no others are */
    heed_quant_out k_quant;
    heed_quant_out v_quant; /**< the same for v_cache */
    uint64_t options;       /**< HEED_APPEND_* */
    /** with HEED_APPEND_HADAMARD_*: adjacent elements that are transformed together */
    uint32_t hadamard;
    uint32_t reserved; /**< 0 */
} heed_kv_append_args;

/**
 * Appends keys and values to a cache: rows 0 .. lens[b] - 1 of sequence b become its keys
 * cache_lens[b] .. cache_lens[b] + lens[b] - 1.
 *
 * Numerics  a row's bytes depend on its elements alone, and on the scales where those are given.
 * Errors   HEED_ERR_INVALID  an argument is missing, superfluous or out of range; a sequence would
 *          grow beyond capacity; a page number is none of the cache's; HEED_ERR_ABI. Nothing has
 *          been written then, of any sequence.
 * Threads  safe, where no two calls write the same keys, and nobody reads them meanwhile.
 */
HEED_API heed_status heed_kv_append(const heed_kv_append_args *args);

HEED_END_C

#endif
