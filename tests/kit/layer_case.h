/* A test layer: what a case asks for, spread out in guarded memory for heed_mha, and the same in
 * float64 with a bound for every intermediate result. See mha.c. */
#ifndef KIT_LAYER_CASE_H
#define KIT_LAYER_CASE_H

#include "case.h"

enum { LAYER_BATCH = 4 };

/** Projections of q, k and v. */
enum {
    LAYER_NONE,
    LAYER_SEPARATE,
    LAYER_FUSED,
    LAYER_PAIR,
    LAYER_SHARED,
    LAYER_PER_HEAD,
    LAYER_ONLY_Q
};
enum { LAYER_NO_CACHE, LAYER_CONTIGUOUS, LAYER_PAGES };
/** How the rows of sequences lie. */
enum { LAYER_DENSE, LAYER_GAPS, LAYER_LENS, LAYER_PACKED, LAYER_PACKED_GAPS };
/** Lists that say which row sees which key, as bits: layer_lists.c. */
enum { LAYER_RANGES = 1, LAYER_BLOCKS = 2, LAYER_FROM = 4 };

typedef struct layer_spec {
    uint32_t q_heads, kv_heads, qk_dim, v_dim, d_model, d_kv; /* d_kv: cross-attention */
    uint32_t batch, projections, cache, rows;
    int64_t q_len, kv_len, capacity;
    int bias, out, residual, out_in; /* out: columns; out_in: weights [out, in] */
    uint32_t x_type, w_type, mid_type, kv_type,
        y_type;        /* kv_type: of k and v as attention reads them */
    uint64_t features; /* of attention */
    uint32_t lists;    /* LAYER_FROM goes with HEED_HAS_MASK */
    uint32_t position;
    heed_rotary_desc rotary;
    int positions; /* with rotary: rows have positions of their own */
    int no_new;    /* no new keys: cross-attention to what the cache holds */
    double spread; /* bound of the ratio of the largest row of x to the smallest; 0: 1 */
    uint64_t seed;
} layer_spec;

/** Numbers, each with a bound of its error and one standard deviation of a random error. */
typedef struct layer_numbers {
    double *value, *error, *typical;
} layer_numbers;

enum {
    LAYER_X,
    LAYER_XKV,
    LAYER_Y,
    LAYER_RESIDUAL,
    LAYER_K,
    LAYER_V,
    LAYER_LSE,
    LAYER_WEIGHTS,
    LAYER_BUFFERS
};

typedef struct layer {
    layer_spec spec;
    guard_buffer buffer[LAYER_BUFFERS];
    unsigned char *cache_before[2];
    int32_t q_lens[LAYER_BATCH], kv_lens[LAYER_BATCH], q_starts[LAYER_BATCH],
        kv_starts[LAYER_BATCH];
    int32_t cache_lens[LAYER_BATCH], table[256];
    unsigned char *mask;
    guard_buffer ranges, key_blocks;
    int32_t mask_from[LAYER_BATCH];
    guard_buffer positions;
    float slope[16], sink[16];
    heed_linear *linear[6];      /* q, k, v, qkv, kv, out */
    double *weight[6], *bias[6]; /* as float64: [in, out]; per head where shared */
    heed_attn_desc attn;
    heed_mha_desc desc;
    heed_mha_args args;
    heed_mha *mha;
} layer;

/** Builds it, with its linear layers and the layer. Returns 0, or -1 with the outcome set. */
int layer_build(heed_context *context, layer *l, const layer_spec *spec, int side,
                kit_outcome *outcome);
void layer_free(layer *l);

/** Fills y, lse and weights with canaries and the cache with what it held before. */
void layer_reset(layer *l);

/** Holds y, lse, weights and the cache after a run against float64. */
void layer_check(const layer *l, kit_outcome *outcome);

/** Offset in y, in elements, of row i of sequence b. */
int64_t layer_y_row(const layer *l, int64_t b, int64_t i);

/** layer_lists.c: may row i see key j by ranges and key blocks? `of` is the layer. */
int layer_listed(const void *of, int64_t b, int64_t h, int64_t i, int64_t j);
/** Put the lists into the description of attention, and (made there) into the args. The second
 * returns 0, or -1 when out of memory. */
void layer_describe_lists(layer *l);
int layer_make_lists(layer *l, int side);

/** The position that row i of x_q is turned by; `offset` is that of row 0 where rows have none of their own. */
int64_t layer_position(const layer *l, int64_t b, int64_t i, int64_t offset);

/** mha_mistakes.c: how many mistakes a caller may make. */
size_t layer_mistakes(void);

/** Makes mistake `which` in a good layer or its run, if they can have it; `pick` chooses among its
 * kinds. Each call that meets the mistake has to refuse it. `known`: it is the layer of the kit's
 * own case. Returns whether the mistake was made; the memory of outputs is left read-only. */
int layer_refuses(heed_context *context, layer *l, int known, size_t which, uint32_t pick,
                  kit_outcome *outcome);

/* ---- the cases ---- */

/** The layer of a case of mha.c, by its variant; the variant of a layer by its name, in f32. */
layer_spec layer_complete(const kit_case *c);
int layer_variant(const char *name);

/** mha_refusals.c */
void layer_refusal_cases(kit_list *list);

#endif
