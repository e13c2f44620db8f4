/** @file
 * Heed: makers of masks with structure, for HEED_HAS_RANGES and HEED_HAS_KEY_BLOCKS. Functions on
 * the caller's memory and thread: no context, no plan, no allocation.
 *
 * Ranges    int32_t {begin, end}, dense [rows, n_ranges][2], for args.ranges with stride[2] =
 *           n_ranges and stride[3] = 1. A row that needs fewer has empty ranges behind its last
 *           one.
 * Position  row i stands at key i + offset: with as many rows as keys 0, for the last rows of a
 *           cache keys - rows.
 */
#ifndef HEED_MASKS_H
#define HEED_MASKS_H

#include <stddef.h>

#include "status.h"
#include "tensor.h"

HEED_BEGIN_C

/** What ranges are made of. Each function names the inputs that it reads; the others are NULL or 0. */
typedef struct heed_ranges_args {
    size_t struct_size; /**< sizeof(heed_ranges_args) */
    heed_error *error;  /**< receives the sentence of a failure; NULL: heed_last_error() */
    int64_t rows;       /**< query rows, 0 to 2^31 - 1 */
    int64_t keys;       /**< keys of the sequence, 0 to 2^31 - 1 */
    /** the key at which row 0 stands, -(2^31 - 1) to 2^31 - 1; rows may stand outside the keys */
    int64_t offset;
    uint32_t n_ranges; /**< intervals of a row in `ranges`, 1 to 8; not read if only counted */
    uint32_t causal;   /**< 1: rows see no key behind their own besides; else 0 */
    int32_t *ranges;   /**< [rows, n_ranges][2] receives them; NULL with needed: only counted */
    /** receives the most intervals that a row has, even if that is too many; NULL: not wanted */
    uint32_t *needed;
    /** heed_ranges_segments: [keys] which document, image or other segment a key belongs to, from 0
     * on; negative: padding, in no segment */
    const int32_t *segments;
    /** the same for rows, [rows]; NULL: a row is in the segment of the key where it stands */
    const int32_t *row_segments;
    const int32_t *lens;    /**< heed_ranges_lens: [n_lens] keys of documents behind each other */
    int64_t n_lens;         /**< heed_ranges_lens: documents */
    int64_t prefix;         /**< heed_ranges_prefix: keys that every row sees */
    int64_t chunk;          /**< heed_ranges_chunks: keys of a chunk, 1 to 2^31 - 1 */
    const int32_t *parents; /**< heed_ranges_tree: [rows] the row of each one's parent, -1: none */
    /** heed_ranges_columns: [keys] rows [start, end) do not see the key; NULL: there are none */
    const int32_t *hidden_start;
    const int32_t *hidden_end;    /**< heed_ranges_columns: [keys]; NULL: up to the last row */
    const int32_t *hidden_start2; /**< heed_ranges_columns: a second interval of rows */
    const int32_t *hidden_end2;   /**< heed_ranges_columns: of the second; NULL: to the last row */
} heed_ranges_args;

/**
 * Rows see the keys of their own segment: documents packed in one sequence, images between text. A
 * row that stands outside the keys sees none, unless row_segments names its segment. Negative
 * segments are padding: such keys are seen by no row, not even by those of padding, and such rows
 * see no key.
 *
 * Work     rows + keys steps where no segment comes before that of the key (or row) before, padding may
 *          follow them all, and rows name segments that keys have; else keys for each change of segment
 *          from row to row.
 * Errors   HEED_ERR_INVALID an argument is missing or out of range, or a row has more intervals
 *          than n_ranges: the sentence names how many, and so does *needed. HEED_ERR_ABI. ranges is
 *          untouched. The same for the other heed_ranges functions.
 * Threads  safe.
 */
HEED_API heed_status heed_ranges_segments(const heed_ranges_args *args);

/** Rows see the keys of the document in which they stand; lens add up to `keys` at the most, and
 * keys behind the last document are in none. Errors and threads as heed_ranges_segments. */
HEED_API heed_status heed_ranges_lens(const heed_ranges_args *args);

/** Rows see the first `prefix` keys and those up to their own: a prefix language model. causal is 0.
 * Errors and threads as heed_ranges_segments. */
HEED_API heed_status heed_ranges_prefix(const heed_ranges_args *args);

/** Rows see the keys of the chunk in which they stand: chunk c has keys c * chunk to c * chunk + chunk - 1.
 * Errors and threads as heed_ranges_segments. */
HEED_API heed_status heed_ranges_chunks(const heed_ranges_args *args);

/**
 * Rows are nodes of a tree of drafted tokens, each the key i + offset, a parent before its children: a
 * row sees all keys before `offset`, the nodes from the root to it, and itself. causal is 0.
 *
 * Source   Miao et al. 2023, SpecInfer, arXiv:2305.09781, whose tree attention this is.
 * Errors and threads as heed_ranges_segments.
 */
HEED_API heed_status heed_ranges_tree(const heed_ranges_args *args);

/**
 * Key j is hidden from rows [hidden_start[j], hidden_end[j]) and, if given, from the second interval.
 * A window of w keys before a row's own, and the first f keys besides: causal, offset 0, hidden_start
 * j + w + 1 from key f on, and for keys before it `rows`; rows have two intervals at the most.
 *
 * Work     keys for each row at which one of the intervals begins or ends, and rows.
 * Source   Wang et al. 2024, FlashMask, arXiv:2410.01359: with causal = 1 the column-wise description
 *          of LTStart and LTEnd; without it, UTStart and UTEnd are the second interval.
 * Errors and threads as heed_ranges_segments.
 */
HEED_API heed_status heed_ranges_columns(const heed_ranges_args *args);

/** What key blocks are made of: bits [rows, blocks], bit n % 64 of word n / 64 of a row. */
typedef struct heed_key_blocks_args {
    size_t struct_size;   /**< sizeof(heed_key_blocks_args) */
    heed_error *error;    /**< receives the sentence of a failure; NULL: heed_last_error() */
    int64_t rows;         /**< blocks of query rows, 0 to 2^31 - 1 */
    int64_t blocks;       /**< blocks of keys, 0 to 2^31 - 1 */
    int64_t row_stride;   /**< words from row to row, at least blocks / 64 rounded up */
    uint64_t *words;      /**< receives them; bits behind the last block are 0 */
    const int32_t *index; /**< blocks of keys that a row sees, in any order; -1 is none */
    const int64_t *start; /**< heed_key_blocks_csr: [rows + 1] row r has index[start[r]] and on */
    int64_t per_row;      /**< heed_key_blocks_list: a row has index[r * per_row] and on; else 0 */
} heed_key_blocks_args;

/** Key blocks from compressed sparse rows. Errors: HEED_ERR_INVALID an argument is missing or out of
 * range, a start descends, or a block does not exist; HEED_ERR_ABI. words are untouched. Thread-safe. */
HEED_API heed_status heed_key_blocks_csr(const heed_key_blocks_args *args);

/** Key blocks from per_row indices for each row. Errors and threads as heed_key_blocks_csr. */
HEED_API heed_status heed_key_blocks_list(const heed_key_blocks_args *args);

/** The bounds of blocks of keys, and what is chosen by them. */
typedef struct heed_key_bounds_args {
    size_t struct_size; /**< sizeof(heed_key_bounds_args) */
    heed_error *error;  /**< receives the sentence of a failure; NULL: heed_last_error() */
    uint32_t q_heads;   /**< a multiple of kv_heads; heed_key_blocks_topk */
    uint32_t kv_heads;  /**< at least 1 */
    uint32_t dim;       /**< columns of a row of q and k, at least 1 */
    /** of k in heed_key_bounds, of q in heed_key_blocks_topk: HEED_F32, HEED_F16 or HEED_BF16 */
    uint32_t type;
    int64_t keys;        /**< of the sequence, 0 to 2^31 - 1 */
    uint32_t block_keys; /**< keys of a block, 1 to 2^31 - 1 */
    uint32_t page_len;   /**< with pages: keys of a page; else 0 */
    /** k: [1 or n_pages, kv_heads, keys or page_len, dim]; q: [1, q_heads, 1, dim] */
    heed_const_view x;
    /** key j is row j % page_len of page pages[j / page_len] of x; NULL: dense */
    const int32_t *pages;
    int64_t first_block; /**< heed_key_bounds: blocks before it are left as they are; else 0 */
    /** f32 [kv_heads, blocks, dim], the least of each column of a block; blocks = keys / block_keys
     * rounded up, and heads are bounds_stride elements apart */
    float *least;
    float *greatest;       /**< the greatest, as least */
    int64_t bounds_stride; /**< at least blocks * dim, so that a cache can grow */
    int64_t top;           /**< heed_key_blocks_topk: blocks to choose for each head, at least 1 */
    int64_t always_first;  /**< heed_key_blocks_topk: so many of them are the sequence's first */
    int64_t always_last;   /**< heed_key_blocks_topk: and so many its last */
    /** heed_key_blocks_topk: 1: query heads of a kv head choose together; dim is at most 256 then */
    uint32_t shared;
    uint32_t reserved;     /**< 0 */
    float *scores;         /**< heed_key_blocks_topk: [blocks] room for their bounds */
    uint64_t *words;       /**< heed_key_blocks_topk: receives [q_heads, blocks / 64 rounded up] */
} heed_key_bounds_args;

/**
 * Finds the least and the greatest of every column of K over the keys of each block, from first_block on:
 * after an append, the block of the first new key. A NaN makes both NaN.
 *
 * Errors   HEED_ERR_INVALID an argument is missing or out of range, strides reach beyond the address
 *          space, or a page of keys that are read is negative; HEED_ERR_ABI. Nothing is written.
 * Threads  safe.
 */
HEED_API heed_status heed_key_bounds(const heed_key_bounds_args *args);

/**
 * Chooses for one query row of each head the `top` blocks that may hold the greatest q k: those of
 * the greatest bounds sum_d max(q_d least_d, q_d greatest_d). With a negative scale the caller
 * hands in -q. Of equal bounds the earlier block is chosen, and all blocks if there are no more
 * than `top`. A block whose bound is NaN is chosen before any other. With shared a block's bound is
 * the greatest among the query heads of a kv head.
 *
 * Source   Tang et al. 2024, Quest, arXiv:2406.10774.
 * Numerics f32; the bound is no proof to the last bit, and a choice among nearly equal blocks may differ
 *          between machines.
 * Errors   as heed_key_bounds; words are untouched.
 * Threads  safe.
 */
HEED_API heed_status heed_key_blocks_topk(const heed_key_bounds_args *args);

HEED_END_C

#endif
