/* A test problem: what a case asks for (kit_spec), and that spread out in guarded memory with a
 * description for the library and one for the oracle (kit_problem).
 *
 * All memory starts as poison (NaN, Inf or noise), and only what some row reaches is then written:
 * whatever a hidden or padding element does to a result is a finding. Outputs start as canaries.
 */
#ifndef KIT_PROBLEM_H
#define KIT_PROBLEM_H

#include <heed/heed.h>

#include "guard.h"
#include "reference_f64.h"

enum { KIT_MAX_BATCH = 8, KIT_MAX_HEADS = 96 };

/** How the tensors lie in memory. */
enum {
    KIT_BHSD,         /* as written */
    KIT_BSHD,         /* heads inside tokens */
    KIT_PACKED,       /* q, k and v of a token side by side in one buffer (not with pages) */
    KIT_PACKED_OUT,   /* and out with them */
    KIT_KV_PAIRS,     /* k and v of a head side by side in one buffer */
    KIT_PADDED,       /* odd gaps after every axis */
    KIT_NEGATIVE,     /* every axis but dim runs backwards */
    KIT_DIM_MAJOR,    /* keys are the fastest axis of k, rows of the others: dim stride > 1 */
    KIT_DIM_REVERSED, /* dim stride -2 */
    KIT_SHARED,       /* zero strides: all kv heads, and all sequences' q, are one */
    KIT_V_IN_K,       /* v is the first v_dim columns of k (MLA) */
    KIT_ODD,          /* as KIT_PADDED, at odd addresses */
    KIT_LAYOUTS,
    KIT_DRAWN = KIT_LAYOUTS /* by the seed, each tensor for itself: see strides.h */
};

/** How the rows of sequences follow each other; a layout says how a token's elements do. */
enum {
    KIT_PADDED_ROWS,  /* each sequence has as many rows as the widest */
    KIT_RAGGED_Q,     /* q, out and lse are packed: q_starts */
    KIT_RAGGED_KV,    /* k and v: kv_starts */
    KIT_RAGGED,       /* all of them */
    KIT_PAGED,        /* k and v in pages: block_table */
    KIT_PAGED_RAGGED, /* and q is packed */
    KIT_STORAGES
};

/** Which pages the sequences have. */
enum {
    KIT_PAGES_SHUFFLED, /* in random order, with unused pages between them */
    KIT_PAGES_IN_ORDER,
    KIT_PAGES_SHARED, /* shuffled; all sequences have one prefix, whose pages they share */
    KIT_PAGES_DRAWN   /* any page for any sequence, even twice for one */
};

/** Values of q, k, v. */
enum {
    KIT_NORMAL,
    KIT_HUGE,          /* scores of 1e7 and more */
    KIT_OVERFLOW_LOW,  /* every third key's score overflows to -inf */
    KIT_OVERFLOW_ALL,  /* every score overflows to -inf */
    KIT_OVERFLOW_LONG, /* the scores of the first 1100 keys overflow to -inf */
    KIT_OVERFLOW_HIGH, /* every 13th key's score overflows to +inf */
    KIT_DENORMAL,      /* half of the values are subnormal */
    KIT_TINY_V,        /* v is subnormal in f32 and bf16, and small in f16 */
    KIT_MEAN_ONE,      /* v around 1 */
    KIT_EQUAL_KEYS,    /* all keys of a head equal */
    KIT_CONSTANT_V,    /* all values of a head equal */
    KIT_NAN_Q,
    KIT_NAN_K,
    KIT_NAN_V, /* a NaN here and there */
    KIT_NAN_BIAS,
    KIT_INF_K,
    KIT_INF_V,
    KIT_BIG_V,        /* v near the largest f16: sums that overflow in f16 */
    KIT_CREEPING,     /* every key's score is about 0.03 above the one before it */
    KIT_RISING,       /* every key's score is about 0.3 above the one before it */
    KIT_FALLING,      /* or below */
    KIT_APART,        /* five kinds of keys whose scores are 1e4 apart */
    KIT_SIGNED_ZEROS, /* q and k are 0 or -0, and half of v */
    KIT_SPREAD,       /* scores of standard deviation `spread` */
    /* For half of the rows the level of the scores depends on the key; see `rise`. 8 dims or
     * more. */
    KIT_STEPS,  /* up by `rise` at a key of every `period`, eight times; then back down */
    KIT_DROPS,  /* down */
    KIT_SAW,    /* up and down by several times `rise` */
    KIT_SPIKES, /* up for one key of a period, by once, twice or four times `rise` */
    KIT_ONCE,   /* up for one key of a row only; two kinds of rows share its period */
    KIT_WILD    /* one in 16 is any pattern of bits: beyond what an oracle can follow */
};

/** One key of 300 holds a NaN or an infinity, in k or in v. */
enum { KIT_ODD_NOTHING, KIT_ODD_NAN_K, KIT_ODD_INF_K, KIT_ODD_NAN_V, KIT_ODD_INF_V };

enum { KIT_POISON_NAN, KIT_POISON_INF, KIT_POISON_NOISE, KIT_POISONS };
enum { KIT_LENS_FULL, KIT_LENS_KV, KIT_LENS_Q, KIT_LENS_BOTH, KIT_LENS_ZEROS, KIT_LENS_GIVEN };
enum { KIT_OFFSET_END, KIT_OFFSET_NEGATIVE, KIT_OFFSET_MIXED, KIT_OFFSET_EXTREME, KIT_OFFSET_SEEN };
enum { KIT_UNLISTED_Q = 1, KIT_UNLISTED_KV = 2 };
#define KIT_FAR (INT64_C(1) << 40) /* a window_left that the library is given as INT64_MAX */
enum {
    KIT_MASK_RANDOM,
    KIT_MASK_EMPTY_ROWS,
    KIT_MASK_ALL,
    KIT_MASK_NONE,
    KIT_MASK_BLOCKS,
    KIT_MASK_FIRST_KEYS,
    KIT_MASK_TREE,
    KIT_MASK_ISLANDS, /* a key of every 512 is hidden from all; rows miss blocks of 128 keys */
    KIT_MASK_LISTS    /* what ranges and key blocks say: KIT_LISTS_AS_MASK */
};
/** Ranges of rows; see lists.c. */
enum {
    KIT_RANGES_RANDOM,
    KIT_RANGES_DOCUMENTS,
    KIT_RANGES_PREFIX,
    KIT_RANGES_CHUNKS,
    KIT_RANGES_CAUSAL,
    KIT_RANGES_WINDOW,
    KIT_RANGES_FIRST_AND_WINDOW, /* two */
    KIT_RANGES_TREE,             /* eight */
    KIT_RANGES_ALL,
    KIT_RANGES_EMPTY_ROWS,
    KIT_RANGES_HOLES,
    KIT_RANGES_KINDS
};
enum {
    KIT_BLOCKS_HALF,
    KIT_BLOCKS_QUARTER,
    KIT_BLOCKS_BAND,
    KIT_BLOCKS_ALL,
    KIT_BLOCKS_EMPTY_ROWS,
    KIT_BLOCKS_HOLES,
    KIT_BLOCKS_KINDS
};
/** kit_spec.lists: which lists there are. AS_MASK: the library gets a bool mask of what they say
 * instead (KIT_MASK_LISTS). */
enum { KIT_LISTS_RANGES = 1, KIT_LISTS_BLOCKS = 2, KIT_LISTS_AS_MASK = 4 };
enum {
    KIT_BIAS_NORMAL,
    KIT_BIAS_INF,
    KIT_BIAS_EMPTY_ROWS,
    KIT_BIAS_FILLER,
    KIT_BIAS_LEAST /* the least number of its type for all keys of rows 1, 4, 7, ... and some others */
};
enum { KIT_SINK_NORMAL, KIT_SINK_SOME_OFF, KIT_SINK_OFF, KIT_SINK_HUGE, KIT_SINK_INFINITE };

/** What shares a scale, of keys or values in codes that take one; along all other axes it
 * differs. */
enum {
    KIT_SCALES_NONE,       /* there are none: 1, and no zeros */
    KIT_SCALES_TENSOR,     /* all */
    KIT_SCALES_HEAD,       /* all sequences, keys and dims of a head */
    KIT_SCALES_TOKEN,      /* a row */
    KIT_SCALES_CHANNELS,   /* all sequences and keys of a head, dim by dim */
    KIT_SCALES_GROUPS,     /* adjacent dims of a row; the last group may be short */
    KIT_SCALES_KEY_GROUPS, /* adjacent dims of four keys */
    KIT_SCALES_IN_LINE,    /* a row: a header of 8 bytes in front of the codes */
    KIT_SCALES_PAIRS,      /* a row: each zero lies behind its scale */
    KIT_SCALES
};

/** The scales of k or of v. A type that takes no scales has none, whatever is set here. */
typedef struct kit_scales {
    uint32_t kind, zeros; /* zeros: there are some, if the type takes them */
} kit_scales;

/** One sequence: which data (id), where its rows start in that data, its lengths and offset. */
typedef struct kit_sequence {
    int64_t id, first_row;
    int32_t q_len, kv_len, offset;
} kit_sequence;

/** What a case asks for. Zero is plain: the enumerators above start with the plainest. */
typedef struct kit_spec {
    uint32_t q_type, k_type, v_type, out_type, bias_type;
    uint32_t q_heads, kv_heads, qk_dim, v_dim, batch;
    int64_t q_len, kv_len; /* the widths */
    uint64_t features;
    uint32_t position, scores_stage, accuracy;
    float scale, softcap;
    int64_t window_left, window_right;
    uint32_t layout, values, poison;
    float spread; /* KIT_SPREAD */
    float rise;   /* KIT_STEPS and the following: in log2 units; weights go by 2^rise */
    uint32_t period;
    uint32_t lone; /* one row of so many sees rises; 0: every second */
    uint32_t odd;  /* KIT_ODD_*, beside any values */
    uint32_t storage, page_len, pages;
    uint32_t mask_form, mask_kind; /* form: bit a set broadcasts axis a (b, h, i, j) */
    uint32_t bias_form, bias_kind;
    uint32_t lists, n_ranges, block_rows, block_keys;
    uint32_t ranges_form, ranges_kind; /* forms as of masks, without keys */
    uint32_t blocks_form, blocks_kind, from_kind;
    uint32_t lens, offsets, sinks;
    kit_scales k_scales, v_scales;
    uint32_t unlisted; /* KIT_UNLISTED_*: lengths (all the width) that the library is not given */
    kit_sequence sequence[KIT_MAX_BATCH]; /* with KIT_LENS_GIVEN */
    uint64_t seed;
} kit_spec;

enum {
    KIT_Q,
    KIT_K,
    KIT_V,
    KIT_OUT,
    KIT_MASK,
    KIT_BIAS,
    KIT_K_SCALE, /* [batch, kv_heads, key / key_group, dim / group] */
    KIT_K_ZERO,
    KIT_V_SCALE,
    KIT_V_ZERO,
    KIT_LSE,
    KIT_WEIGHTS,
    KIT_SCORES,
    KIT_TENSORS
};

/* Of types whose elements share bytes, dims are counted in blocks here: bytes, dim, shape, stride
 * and first are those of blocks, and block_len is the number of elements in one. */
typedef struct kit_tensor {
    uint32_t type;  /* HEED_*; HEED_DTYPE_NONE for mask bytes */
    uint32_t bytes; /* of an element; 0: the problem has no such tensor */
    uint32_t block_len; /* 1 but for such types */
    uint32_t buffer;
    int64_t dim[4];              /* as the problem says: [batch, heads, rows, dim] */
    int64_t shape[4], stride[4]; /* as it lies: packed rows are one sequence's, pages a batch */
    const int64_t *place;        /* with other than padded rows: elements to row [b, i], or NULL */
    int64_t first;               /* elements from the buffer's start to element 0, 0, 0, 0 */
} kit_tensor;

typedef struct kit_problem {
    kit_spec spec;
    kit_sequence sequence[KIT_MAX_BATCH];
    kit_tensor tensor[KIT_TENSORS];
    guard_buffer buffer[KIT_TENSORS];
    int64_t elements[KIT_TENSORS]; /* of each buffer */
    int32_t q_lens[KIT_MAX_BATCH], kv_lens[KIT_MAX_BATCH], q_offsets[KIT_MAX_BATCH];
    int64_t offset[KIT_MAX_BATCH]; /* as the position says */
    int32_t q_starts[KIT_MAX_BATCH], kv_starts[KIT_MAX_BATCH];
    int64_t q_rows, kv_rows; /* of all sequences, with gaps, where they are packed */
    int64_t n_pages, table_stride;
    guard_buffer table;   /* the memory of block_table */
    int32_t *block_table; /* as the library gets it: entries that no row reaches are garbage */
    int32_t *true_table;  /* as the oracle reads */
    int64_t *places;      /* what tensor[].place points to */
    guard_buffer ranges, key_blocks; /* of 8 bytes */
    int64_t ranges_stride[4], blocks_stride[4];
    int32_t mask_from[KIT_MAX_BATCH];
    int64_t least_from;     /* of them; 0 without */
    unsigned char *reached; /* [batch, kv_len] by some row; NULL without lists */
    /* k and v of codes as numbers, [batch, kv_heads, kv_len, dim]; NULL of other types */
    float *decoded[2];
    float *
        sizes; /* with INT8 accuracy, as k: a bound of |code| + |zero or least value| */
    float alibi_slope[KIT_MAX_HEADS], bias_slope[KIT_MAX_HEADS], sink[KIT_MAX_HEADS];
    heed_attn_desc desc;
    heed_attn_args args;
    reference_problem reference;
} kit_problem;

#define KIT_CANARY 0xff /* every byte of an output before the call: a NaN in every type */

/** Builds the problem with its buffers flush to one side. More than KIT_MAX_BATCH sequences or
 * KIT_MAX_HEADS query heads end the process. Returns 0, or -1 when out of memory. */
int kit_build(kit_problem *problem, const kit_spec *spec, int side);

/** Builds a problem whose results are held against those of `first`, which has run and is open; the
 * oracle cannot take it. Copies what first holds if it is the same. Returns as kit_build. */
int kit_build_again(kit_problem *problem, const kit_spec *spec, int side, const kit_problem *first);

/** Fills the outputs with canaries again. */
void kit_reset_outputs(kit_problem *problem);

/** After the oracle has run: makes inputs read-only, and pages inaccessible that no row reaches. */
void kit_seal(kit_problem *problem);

/** Gives the memory back; a problem that failed to build is allowed. */
void kit_free(kit_problem *problem);

/** Checks that nothing but the elements of rows i < q_lens[b] was written in output t. Returns 0,
 * else -1 with *where the byte in its buffer (-1: outside it). */
int kit_untouched(const kit_problem *problem, int t, int64_t *where);

/** The keys [*first, *end) that some row of sequence b reaches by lengths, causal range and
 * window. */
void kit_reach(const kit_problem *problem, int64_t b, int64_t *first, int64_t *end);

/** The same of one row. */
void kit_row_reach(const kit_problem *problem, int64_t b, int64_t i, int64_t *first, int64_t *end);

/** Do ranges and key blocks let row i see key j? */
int kit_is_listed(const kit_problem *problem, int64_t b, int64_t h, int64_t i, int64_t j);

/** Does some row of sequence b see key j, which is in kit_reach, by all of these together? */
int kit_reaches(const kit_problem *problem, int64_t b, int64_t j);

/** Byte offset in its buffer of element [b, h, i, d] of tensor t. */
int64_t kit_at(const kit_tensor *t, int64_t b, int64_t h, int64_t i, int64_t d);

/* ---- scales: codes.c ---- */

/** The layout of the scales of k (is_v 0) or v; kind is 0 if there are none. */
typedef struct kit_scaling {
    uint32_t kind, zeros;
    uint32_t same;             /* bit a set: axis a broadcasts */
    uint32_t group, key_group; /* as in heed_quant */
} kit_scaling;

kit_scaling kit_scaling_of(const kit_spec *spec, int is_v);

/** Byte offset in its buffer of the scale or zero (tensor t) of dim d of key j. */
int64_t kit_scale_at(const kit_problem *problem, int t, int64_t b, int64_t g, int64_t j, int64_t d);

/* ---- the parts of kit_build ---- */

/** storage.c: starts, pages and block tables of what kit_choose chose. Returns 0, or -1 when out of
 * memory. */
int kit_store(kit_problem *problem);
/** layout.c: sets the tensors' shapes, strides and buffers, and elements[]. */
void kit_lay_out(kit_problem *problem);
/** storage.c: where each row of q, k, v, out and lse lies. Returns as kit_store. */
int kit_place(kit_problem *problem);
/** fill.c: the side arrays (slopes, sinks) and the sequences' lengths and offsets. */
void kit_choose(kit_problem *problem);
/** lists.c: who sees what by lists, and where masks begin. Returns 0, or -1 when out of memory. */
int kit_choose_lists(kit_problem *problem);
/** lists.c: the library's lists. Returns as kit_choose_lists. */
int kit_make_lists(kit_problem *problem, int side);
/** lists.c: puts them into desc, args and reference. */
void kit_describe_lists(kit_problem *problem);
/** lists.c: gives their memory back. */
void kit_free_lists(kit_problem *problem);
/** fill.c: poisons everything and writes what is reached. */
void kit_fill(kit_problem *problem);
/** codes.c: writes the scales and zeros of key j. */
void kit_fill_scales(kit_problem *problem, int is_v, int64_t b, int64_t g, int64_t j);
/** codes.c: writes block n of key j so that it stands for the numbers x; with KIT_NORMAL values its
 * codes are drawn from `bits` instead. Where x is not finite, neither is the code or its scale. */
void kit_fill_block(kit_problem *problem, int which, int64_t b, int64_t g, int64_t j, int64_t n,
                    const double *x, uint64_t bits);
/** codes.c: the numbers that k and v stand for. Returns as kit_store. */
int kit_decode_codes(kit_problem *problem);

#endif
