/* Heed: the contract between core and a backend, and all that a backend outside the tree needs.
 *
 * A backend is a table of kernels. Core validates a problem, picks a kernel for each kind of sequence
 * when it makes a plan, cuts each sequence into tiles and hands them to the kernel's run, which turns
 * a tile into a softmax state. A kernel starts no threads, allocates nothing while running, changes no
 * process state and resolves no symbol of libheed: the helpers in kit.h are static inline. It returns
 * with MXCSR as it was and with the upper halves of vector registers clear.
 *
 * Structs begin with their size as whoever made them knew it, and grow at the end. So core asks
 * HEED_KERNEL_HAS before it uses a later member of a table; and a backend that may meet a core older than
 * its headers reads and writes later members of heed_cpu, tiles and tilings only within their struct_size.
 *
 * A plugin is a shared object that exports heed_backend_entry. `heed check --backend NAME` runs the
 * conformance suite on it. backends/naive is the one to read first, examples/plugin.c the smallest.
 */
#ifndef HEED_BACKEND_H
#define HEED_BACKEND_H

#include "attention.h"
#include "context.h"
#include "linear.h"
#include "status.h"
#include "tensor.h"

HEED_BEGIN_C

#define HEED_BACKEND_ABI 2u /* raised only when an existing member changes meaning */

/** heed_cpu.isa and .fast. A bit of isa says that the CPU has it and the OS has switched on its
 * registers (XGETBV), and that HEED_MAX_ISA allows it. */
#define HEED_ISA_SSE2 (UINT64_C(1) << 0)
#define HEED_ISA_AVX2 (UINT64_C(1) << 1) /* with AVX */
#define HEED_ISA_FMA (UINT64_C(1) << 2)
#define HEED_ISA_F16C (UINT64_C(1) << 3)
#define HEED_ISA_AVX512F (UINT64_C(1) << 4)
#define HEED_ISA_AVX512BW (UINT64_C(1) << 5)
#define HEED_ISA_AVX512DQ (UINT64_C(1) << 6)
#define HEED_ISA_AVX512VL (UINT64_C(1) << 7)
#define HEED_ISA_AVX512_BF16 (UINT64_C(1) << 8)
#define HEED_ISA_AVX512_FP16 (UINT64_C(1) << 9)
#define HEED_ISA_AVX512_VNNI (UINT64_C(1) << 10)
#define HEED_ISA_AMX_TILE (UINT64_C(1) << 11)
#define HEED_ISA_AMX_BF16 (UINT64_C(1) << 12)
#define HEED_ISA_AMX_INT8 (UINT64_C(1) << 13)
#define HEED_ISA_AVX_VNNI (UINT64_C(1) << 14)
#define HEED_ISA_AVX512_VBMI (UINT64_C(1) << 15)

/** The machine, as far as backends may decide by it. */
typedef struct heed_cpu {
    size_t struct_size;
    uint64_t isa;           /* what exists and the OS allows */
    uint64_t fast;          /* what is worth using here, a subset of isa */
    uint32_t family, model; /* shown by heed info, never decided on: hypervisors mask them */
    /* As the C library reports them, 0: unknown. l3_bytes may be the whole package's, more than the CPUs
     * at hand share; it is shown, and nothing here decides by it. */
    uint32_t l1d_bytes, l2_bytes, l3_bytes;
    uint32_t n_cores;                       /* that are online; 1 if that is unknown */
    char vendor[16];
} heed_cpu;

/** Query classes of a sequence, by q_lens[b]: HEED_QUERY_ONE, 1; HEED_QUERY_FEW and HEED_QUERY_SEVERAL,
 * 2 to 16; HEED_QUERY_MANY, more. Several are those that make at least 48 rows with all query heads of a
 * kv head; where they see up to 32 keys between them, without ranges and key blocks, 16, or 8 with a qk_dim
 * of up to 64. A plan chooses a kernel and its tiling once for each. With HEED_HAS_REPRODUCIBLE_CHUNKS
 * every sequence is HEED_QUERY_MANY. */
enum { HEED_QUERY_ONE, HEED_QUERY_FEW, HEED_QUERY_SEVERAL, HEED_QUERY_MANY };

/** What kind of problem: no batch, no lengths, no thread count, no plan maxima, because those may
 * not reach a kernel. Members as in heed_attn_desc, but resolved: scale is always set, accuracy is
 * never DEFAULT and is INT8 only with keys of codes, and a feature that its value switches off
 * (softcap 0, window -1, -1) has lost its bit. */
typedef struct heed_problem {
    size_t struct_size;
    uint64_t features;
    uint32_t q_heads, kv_heads, qk_dim, v_dim;
    uint32_t q_type, k_type, v_type, out_type;
    uint32_t bias_type, scores_stage, page_len, query_class;
    uint32_t accuracy, reserved;
    float scale, softcap;
    int64_t window_left, window_right;
    uint32_t n_ranges, block_rows, block_keys, reserved_lists; /* 0 without their feature */
} heed_problem;

/** heed_tiling.flush: set in MXCSR around the backend's tiles. */
#define HEED_FLUSH_RESULTS 1u /* FTZ */
#define HEED_FLUSH_INPUTS 2u  /* DAZ */

/** How core cuts a problem for a kernel. A function of the machine and the problem alone. */
typedef struct heed_tiling {
    size_t struct_size;
    uint32_t query_rows; /* rows i of a tile (of every head in it); at least 1. Runs start at multiples */
    uint32_t key_block;  /* keys of a block: the unit of mask_blocks and prepare; at least 1 */
    uint32_t key_chunk;  /* keys are cut at multiples of it; 0: not cut; else a multiple of key_block */
    uint32_t state_log2; /* 0: row_max in natural units; 1: in log2 units */
    uint32_t flush;
    /* The most adjacent kv heads, of one sequence and key range, that a tile has; 0 counts as
     * 1. Core may give it fewer. kv_heads_beside counts where heads lie side by side in memory
     * (in pages, or where a key's rows of all heads follow each other), because one head's
     * share is a short piece of memory there; elsewhere kv_heads counts. With prepare_bytes a
     * tile has one kv head. */
    uint32_t kv_heads, kv_heads_beside;
    uint32_t wants_seen;  /* 1: tiles get `seen` where core has it; else 0 */
    size_t scratch_bytes; /* per part; comes aligned to 64 bytes */
    size_t prepare_bytes; /* per key block; 0 without prepare. A multiple of 64 */
} heed_tiling;

/** A tensor as a tile sees it: element (head, row, dim) is at data + (head * head_stride + row *
 * row_stride + dim * dim_stride) elements. Head 0 is the tile's first head (kv head of k and v),
 * row and key 0 are the sequence's. Strides have any sign, no alignment may be assumed. For mask,
 * bias, weights and scores dim is the key. For k and v in a type of codes whose elements share
 * bytes, dims are adjacent and all other offsets are whole blocks: heed_offset_bytes (formats.h)
 * gives them in bytes. Frozen. */
typedef struct heed_rows {
    void *data;
    int64_t head_stride, row_stride, dim_stride;
} heed_rows;

#define HEED_TILE_SAME_KV 1u  /* the last tile on this scratch had the same sequence and kv head */
#define HEED_TILE_WHOLE 2u    /* the key range is not cut: the backend may finish the rows itself */
#define HEED_TILE_FINISHED 4u /* set by the backend when it did */
#define HEED_TILE_OUTPUTS 8u  /* second pass: write weights and scores, nothing else */
/* The next tile on this scratch has the same rows and later keys, unless ranges or key blocks hide all
 * of these. */
#define HEED_TILE_GOES_ON 16u

/** heed_tile.mask_blocks */
enum { HEED_BLOCK_NONE, HEED_BLOCK_ALL, HEED_BLOCK_MIXED };

/**
 * One tile: query rows [q_first, q_first + q_count) of the n_heads query heads that share kv_heads
 * adjacent kv heads, against keys [k_first, k_end) of one sequence.
 *
 * Heads     query head h of the tile has its kv head h / group. A row's bits may not
 *           depend on how many kv heads its tile has. heed_tile_of_head (kit.h) gives one of them.
 * Rows      state row r is head r / q_count, query row q_first + r % q_count; n_heads * q_count
 *           rows.
 * Range     row i sees no key outside [i + q_offset - window_left, i + q_offset + window_right];
 *           causal is window_right = 0, and unbounded is HEED_UNBOUNDED. heed_row_keys (kit.h)
 *           gives a row's keys in the tile. No row of the tile sees a key outside [k_first, k_end)
 *           of its chunk: core has cut the range down to what some row sees, so its ends are at any
 *           key. Key blocks start at multiples of key_block: the first and last of a tile may be
 *           partial.
 * Codes     k and v may be of any type of codes where the kernel has HEED_HAS_QUANT among its
 *           features, with or without scales; other kernels get none. heed_load_key (kit.h) reads
 *           any. k_quant and v_quant are the call's with scale and zero moved to the tile's first
 *           kv head and the sequence's key 0, or in pages to page 0: heed_scale_at(&tile->k_quant,
 *           page, head, key, d) gives the place, for page 0 and the sequence's key, or for a page
 *           and the key's row in it. The scale is NULL where there are none. Scales and zeros of
 *           hidden keys may be anything, too.
 * Lists     ranges and key_blocks, what a row sees besides: heed_next_listed and heed_listed_bits
 *           (kit.h) read them, and heed_row_span gives the keys from a row's first to its last by
 *           range, causality, window and ranges. Keys that no row of the tile may see by all of
 *           these may lie in memory that is not there, and their entries of pages may hold
 *           anything: heed_listed_keys finds them. Mask and bias say nothing of memory.
 * Memory    nothing outside the tile's rows and keys may be read. Within, a key that a row may not
 *           see may hold anything: it must not reach that row's result (0 * NaN is NaN).
 * State     per row: row_max m, row_sum = sum exp(s - m), acc = sum exp(s - m) * v over the visible
 *           keys; with state_log2 exp(s - m) is 2^(s * log2(e) - m). m is near the greatest visible
 *           score: the kernels of this library leave it up to 1 above and, where they raise it only
 *           now and then, up to 8 below (log2 units), with weights of up to 2^8. A row that sees one
 *           key of weight has to get that key's value exactly, with huge scores too. Scores of -inf
 *           have weight 0. A row_sum of 0 says that the row saw nothing of weight: its row_max is
 *           then ignored, and acc has to be 0. A NaN in what the row sees makes row_sum or acc NaN,
 *           a v of weight 0 in acc: other keys, in another tile, may give the row weight.
 * Finish    on a WHOLE tile the backend may instead write out and lse, sink included, as
 *           heed_finish_row in kit.h does, and set FINISHED. If the problem has weights or scores
 *           it then leaves the final row_max (unit as always) and row_sum, with the sink in them;
 *           a row_sum of 0 stays 0.
 * Outputs   with HEED_TILE_OUTPUTS row_max and row_sum are final (sink included); the backend
 *           writes weights and scores of every (row, key) of the tile. Keys that are not visible
 *           get weight 0 and score -inf, but a raw score where mask and bias alone hide them
 *           (heed/attention.h). It does not touch out, lse or the state.
 */
typedef struct heed_tile {
    size_t struct_size;
    uint32_t flags, kv_head, first_head, n_heads, kv_heads;
    uint32_t group; /* n_heads / kv_heads */
    int64_t q_first, q_count, q_len, k_first, k_end, kv_len, q_offset, window_left, window_right;
    heed_rows q, k, v, out, mask, bias, lse, weights, scores; /* data is NULL where absent */
    heed_quant k_quant, v_quant;
    /* NULL: contiguous. Else key j is row j % page_len of page pages[j / page_len] */
    const int32_t *pages;
    int64_t k_page_stride, v_page_stride;
    const float *alibi_slope, *bias_slope, *sink; /* of the tile's first head; NULL where absent */
    /* Per head and key block from the first of the tile on: HEED_BLOCK_*, of mask, bias, ranges and
     * key_blocks together. NONE: every pair is hidden. ALL: nothing hides a pair, and a bias, if there
     * is one, is 0. NULL: none of them is present. */
    const uint8_t *mask_blocks;
    int64_t mask_block_stride; /* from head to head; 0 where they share a mask */
    /* The prepared data of the tile's first key block; the next block's is prepare_bytes on. NULL:
     * the kernel prepares in scratch, to the same bits. With ranges or key_blocks the data of
     * blocks that are NONE for all heads may be missing, but not in the second pass. */
    const void *prepared;
    /* acc [n_heads * q_count, v_dim], rows acc_stride apart, each aligned to 64 bytes. Core does not
     * initialise the state. */
    float *row_max, *row_sum, *acc;
    int64_t acc_stride;
    /* Pairs of int32_t, strides in pairs, dim is the interval; words of uint64_t, row is the block of
     * rows (from the sequence's row 0) and dim the word. data is NULL where absent. */
    heed_rows ranges, key_blocks;
    /* The first key of which mask and bias have a column (where its dim is still the key): those before
     * it have none, are visible to both and have bias 0. 0 without HEED_HAS_MASK_FROM. */
    int64_t mask_from;
    /* What mask and bias together let rows see. Given only if the kernel wants it, heads share
     * their masks and every bias is 0 or -inf; else NULL. Row i has the words from (i -
     * q_first) * seen_stride on, key j is bit j % 64 of word j / 64; bits of blocks that are
     * not MIXED say nothing. */
    const uint64_t *seen;
    int64_t seen_stride;
} heed_tile;

#define HEED_UNBOUNDED (INT64_C(1) << 60)

/* ---- linear layers ----------------------------------------------------------------------------
 *
 * Core cuts the outputs into panels of panel_cols columns, has each packed once, and cuts a call into
 * tiles of rows x whole panels. The sum of one output element is formed inside one tile, over all of
 * in_dim, in an order that depends on in_dim alone: rows, tiles and panels may not change its bits.
 */

/** What kind of layer: members as in heed_linear_desc, but resolved: accuracy is never DEFAULT, and
 * BF16 only where x and w are bf16. Rows are not in it, because they may not reach a bit. */
typedef struct heed_linear_problem {
    size_t struct_size;
    uint64_t features;
    uint32_t in_dim, out_dim, x_type, w_type;
    uint32_t y_type, bias_type, activation, accuracy;
} heed_linear_problem;

/** How core cuts a layer for a kernel. A function of the machine and the problem alone. */
typedef struct heed_linear_tiling {
    size_t struct_size;
    uint32_t rows;        /* most of a tile; at least 1. Core may cut finer, at any row */
    uint32_t cols;        /* most of a tile; a multiple of panel_cols. Core may cut finer, at panels */
    uint32_t panel_cols;  /* at least 1 */
    uint32_t flush;       /* HEED_FLUSH_*, around tiles */
    size_t panel_bytes;   /* of one packed panel; a multiple of 64 */
    size_t scratch_bytes; /* per part; comes aligned to 64 bytes */
} heed_linear_tiling;

/** The caller's weights: w[i, c] is element i * in_stride + c / head_cols * head_stride + c %
 * head_cols * out_stride (heed_linear_weight_at in kit.h). Strides have any sign. */
typedef struct heed_linear_weight {
    const void *data;
    int64_t in_stride, out_stride, head_stride, head_cols;
} heed_linear_weight;

/** A matrix as a tile sees it: element (row, col) is at data + row * row_stride + col * col_stride
 * elements. Strides have any sign, no alignment may be assumed. Frozen. */
typedef struct heed_matrix {
    void *data;
    int64_t row_stride, col_stride;
} heed_matrix;

/**
 * One tile: rows [0, rows) of x against columns [col_first, col_end) of the layer. col_first is a
 * multiple of panel_cols, col_end too unless it is out_dim.
 *
 * x          its row 0 is the tile's first; columns 0 to in_dim
 * y, residual   their row 0 is the tile's first, and their column 0 is col_first. residual.data is
 *            NULL without HEED_LINEAR_HAS_RESIDUAL; it may be y, element for element
 * packed     the panel of col_first; the next is panel_bytes on. Aligned to 64 bytes
 * bias       f32, of col_first; readable up to whole panels. NULL without HEED_LINEAR_HAS_BIAS
 */
typedef struct heed_linear_tile {
    size_t struct_size;
    int64_t rows, col_first, col_end;
    heed_matrix x, y, residual;
    const void *packed;
    const float *bias;
} heed_linear_tile;

/* ---- rows of a cache ---------------------------------------------------------------------------
 *
 * Appending encodes the new rows: heed_kv_append and layers with a cache hand them over here, and do
 * themselves what a kernel leaves to them.
 */

/** Rows of numbers that become rows of a cache. Elements of a row are adjacent on both sides; strides are
 * elements from row to row, of any sign and no alignment, whole blocks on the side of the cache. The sides
 * share no memory. */
typedef struct heed_append_rows {
    size_t struct_size;
    uint32_t from_type; /* HEED_F32, HEED_F16 or HEED_BF16 */
    uint32_t to_type;   /* any, but not from_type */
    int64_t n_rows, dim;
    const void *from;
    void *to;
    int64_t from_stride, to_stride;
    /* Scale and zero of row 0, scale_stride floats from row to row, for types that take them. With
     * fresh_scale every row gets a new one, and a zero if fresh_zero is not NULL either
     * (heed_fresh_scale in formats.h). Without it the given ones count; NULL: 1 and 0. */
    const float *scale, *zero;
    float *fresh_scale, *fresh_zero;
    int64_t scale_stride;
    /* Elements from `from` to what the next call will read, so that a kernel may prefetch it; 0:
     * unknown. There need be no memory there. */
    int64_t next;
} heed_append_rows;

/** A kernel that encodes rows. Its bytes are those of heed_encode (formats.h),
 * whatever the numbers. */
typedef struct heed_append_kernel {
    size_t struct_size;
    const char *name; /* as heed_attn_kernel.name */
    double cost;      /* nanoseconds for a row of 128 numbers, of one core: the cheapest is taken */
    /* Can it run here? Asked without a call of open, because appending needs no context. */
    heed_status (*supports)(const heed_cpu *cpu, heed_error *why);
    /* HEED_ERR_UNSUPPORTED: it does not do such rows, and has written nothing. */
    heed_status (*run)(const heed_append_rows *rows);
} heed_append_kernel;

/* ---- the table ---------------------------------------------------------------------------------
 *
 * `machine` is what the backend's open made for the context, `state` what the kernel's plan_create
 * made for the plan or layer; each is NULL where there is no such function. Every function may be
 * called from any thread, many at once. The structs are append-only: a shorter one lacks the last
 * members, and this library ignores those members of a longer one that it does not know.
 */

/** heed_attn_kernel.flags: for sequences whose rows see no key outside one range of HEED_FEW_KEYS
 * keys (by length, causality, window and ranges). Such a kernel is taken for these where it costs less
 * than the one that the plan has for the query class, and may hand a tile to that one's function. */
#define HEED_KERNEL_FEW_KEYS 1u
#define HEED_FEW_KEYS 32

/** A kernel of attention. */
typedef struct heed_attn_kernel {
    size_t struct_size;
    const char *name;  /* [a-z0-9_]+, at most 31 characters; what heed explain shows */
    uint64_t features; /* every HEED_HAS_* bit that it knows; core refuses other problems */
    uint32_t flags, reserved;
    /* Can it run this problem? A refusal names the one condition that failed. HEED_ERR_NOMEM is no
     * refusal: then no plan is made, rather than one with another kernel and other bits. */
    heed_status (*supports)(const void *machine, const heed_problem *problem, heed_error *why);
    /* Estimated nanoseconds of one core for one sequence with all its heads. */
    double (*cost)(const void *machine, const heed_problem *problem, int64_t q_len, int64_t kv_len);
    /* Core has set struct_size and zeroed the rest. */
    heed_status (*tiling)(const void *machine, const heed_problem *problem, heed_tiling *out);
    /* One tile. scratch is the part's own. */
    heed_status (*run)(const void *machine, const void *state, const heed_problem *problem,
                       heed_tile *tile, void *scratch);
    /* Optional, with prepare_bytes: moves the data of one key block [k_first, k_end) of kv into
     * another form, and computes no sum. Only k, v, their quant, pages and the key range of kv are
     * set. */
    heed_status (*prepare)(const void *machine, const void *state, const heed_problem *problem,
                           const heed_tile *kv, void *prepared);
    /* Optional, both or neither: what a plan keeps, such as generated code. */
    heed_status (*plan_create)(const void *machine, const heed_problem *problem, void **state);
    void (*plan_destroy)(void *state);
} heed_attn_kernel;

/** A kernel of linear layers. */
typedef struct heed_linear_kernel {
    size_t struct_size;
    const char *name; /* as heed_attn_kernel.name */
    /* Can it run this layer? As heed_attn_kernel.supports. */
    heed_status (*supports)(const void *machine, const heed_linear_problem *problem,
                            heed_error *why);
    /* Estimated nanoseconds of one core for so many rows. */
    double (*cost)(const void *machine, const heed_linear_problem *problem, int64_t rows);
    /* Core has set struct_size and zeroed the rest. */
    heed_status (*tiling)(const void *machine, const heed_linear_problem *problem,
                          heed_linear_tiling *out);
    /* Packs columns [col_first, col_end), at most panel_cols of them. The panel's bytes hold anything
     * before, and those that run does not read may do so behind it. Several threads pack panels of one
     * layer at once. */
    heed_status (*pack)(const void *machine, const heed_linear_problem *problem,
                        const heed_linear_weight *weight, int64_t col_first, int64_t col_end,
                        void *panel);
    /* One tile. scratch is the part's own. */
    heed_status (*run)(const void *machine, const void *state, const heed_linear_problem *problem,
                       const heed_linear_tile *tile, void *scratch);
    /* Optional, both or neither: what a layer keeps beside its panels, such as generated code. */
    heed_status (*plan_create)(const void *machine, const heed_linear_problem *problem,
                               void **state);
    void (*plan_destroy)(void *state);
} heed_linear_kernel;

/** A backend: a list of kernels, of attention, of linear layers or of both; and what encodes rows. */
struct heed_backend {
    uint32_t abi;         /* HEED_BACKEND_ABI that it was compiled with */
    uint32_t struct_size; /* sizeof(heed_backend) that it was compiled with */
    const char *name;     /* [a-z0-9_]+, at most 31 characters: what HEED_BACKEND accepts */
    const char *summary;  /* a line for people */
    /* Optional: can it run on this machine? Called once per context. *machine, NULL before,
     * receives what the kernels want to know of the machine: it is passed to all of them and never
     * changed. A refusal names the one condition that failed. If it can run, `why` may say what was
     * decided by this machine's speed, which heed info shows. HEED_ERR_NOMEM is no refusal: then
     * heed_context_create fails if the backend is linked in, or heed_context_register does. */
    heed_status (*open)(const heed_cpu *cpu, const void **machine, heed_error *why);
    void (*close)(const void *machine); /* optional: once for each open that succeeded */
    const heed_attn_kernel *const *attn;
    const heed_linear_kernel *const *linear;
    uint32_t n_attn, n_linear; /* one of them may be 0 */
    const heed_append_kernel *append; /* optional */
};

/** True when the struct was built knowing `member` and filled it in. */
#define HEED_KERNEL_HAS(kernel, member)                                                            \
    ((size_t)((const char *)(&(kernel)->member + 1) - (const char *)(kernel)) <=                   \
         (kernel)->struct_size &&                                                                  \
     (kernel)->member)

/**
 * The one symbol that a plugin exports: its table, or NULL if it cannot serve this host.
 *
 * host_abi, host_struct_size   HEED_BACKEND_ABI and sizeof(heed_backend) of the library that asks
 * Ownership  the table and its strings live as long as the process; a plugin is never unloaded.
 */
HEED_API const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size);

HEED_END_C

#include "kit.h"

#endif
