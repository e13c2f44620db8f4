/* Sequences that grow in a cache, chosen by the input bytes. See fuzz_cache.c. */
#ifndef FUZZ_CACHE_H
#define FUZZ_CACHE_H

#include <heed/formats.h>
#include <heed/heed.h>

#include "fuzz_bytes.h"
#include "guard.h"

enum {
    FUZZ_CACHE_BATCH = 3,
    FUZZ_CACHE_TOKENS = 1500, /* every sequence has fewer */
    FUZZ_CACHE_HEADS = 12,
    FUZZ_CACHE_PAIRS = 80
};
#define FUZZ_CACHE_CANARY 0xff /* a NaN in every type */

typedef struct fuzz_cache {
    int64_t batch, capacity, table_stride, n_pages;
    int64_t most; /* tokens of the longest sequence */
    uint32_t kv_heads, group, qk_dim, v_dim, page_len, q_type, accuracy;
    uint32_t type[2], cache_type[2]; /* of keys and values */
    int values_are_keys, attended;
    uint64_t features, random;
    int64_t window, period;
    double spread, rise; /* of scores */
    float scale, softcap, slope[FUZZ_CACHE_HEADS], sink[FUZZ_CACHE_HEADS], freq[FUZZ_CACHE_PAIRS];
    heed_rotary_desc rotary;
    int32_t tokens[FUZZ_CACHE_BATCH], there[FUZZ_CACHE_BATCH];
    int32_t *table;
    void *q, *rows[2], *turned_q, *turned_k; /* dense [batch, heads, most, dim] */
    void *out, *lse, *whole_out, *whole_lse;
    guard_buffer buffer[2]; /* the caches */
    heed_view cache[2];
    unsigned char *image[2]; /* what the caches should hold */
    /* the current piece */
    int packed;
    int64_t len, packed_rows;
    int32_t now[FUZZ_CACHE_BATCH], starts[FUZZ_CACHE_BATCH];
} fuzz_cache;

/** The offset of a row of the piece in a view, in elements. */
static inline int64_t fuzz_cache_piece_row(const fuzz_cache *c, const heed_view *view, int64_t b,
                                           int64_t h, int64_t i)
{
    return (c->packed ? 0 : b * view->stride[0]) + h * view->stride[1] +
           (c->packed ? c->starts[b] + i : i) * view->stride[2];
}

/** The offset of key j of sequence b in the cache's view, in elements. */
static inline int64_t fuzz_cache_key(const fuzz_cache *c, int side, int64_t b, int64_t h, int64_t j)
{
    const heed_view *view = &c->cache[side];
    if (c->page_len) {
        b = c->table[b * c->table_stride + j / c->page_len];
        j %= c->page_len;
    }
    return b * view->stride[0] + h * view->stride[1] + j * view->stride[2];
}

/** The bytes of a row of the cache; codes may share a byte. */
static inline size_t fuzz_cache_row_bytes(const fuzz_cache *c, int side)
{
    return (size_t)heed_offset_bytes(c->cache_type[side], side ? c->v_dim : c->qk_dim);
}

/** The description of the attention, without what depends on the layout of its tensors. */
static inline heed_attn_desc fuzz_cache_attention(const fuzz_cache *c)
{
    return (heed_attn_desc){
        .struct_size = sizeof(heed_attn_desc),
        .features = c->features,
        .q_heads = c->kv_heads * c->group,
        .kv_heads = c->kv_heads,
        .qk_dim = c->qk_dim,
        .v_dim = c->v_dim,
        .q_type = c->q_type,
        .k_type = c->cache_type[0],
        .v_type = c->cache_type[1],
        .out_type = c->q_type,
        .accuracy = c->accuracy,
        .scale = c->features & HEED_HAS_SCALE ? c->scale : 0,
        .softcap = c->features & HEED_HAS_SOFTCAP ? c->softcap : 0,
        .window_left = c->features & HEED_HAS_WINDOW ? c->window : 0,
        .window_right = c->features & HEED_HAS_WINDOW ? -1 : 0,
        .max_rows = 0,
    };
}

/** Turns bytes into sequences. Returns 0, or -1 when memory runs out; call fuzz_cache_destroy in
 * either case. */
int fuzz_cache_build(fuzz_cache *c, fuzz_bytes *bytes);
void fuzz_cache_destroy(fuzz_cache *c);

/** Rotates whole sequences with heed_rotary. This and the next two are in fuzz_cache_whole.c. */
void fuzz_cache_turn(const fuzz_cache *c, void *from, void *to, uint32_t type, uint32_t heads);
/** Compares the rotation of whole sequences with float64. */
void fuzz_cache_judge_rotary(const fuzz_cache *c, const void *from, const void *to, uint32_t type,
                             uint32_t heads);
/** Attends to all tokens at once, and compares the attention in pieces with that. */
void fuzz_cache_at_once(fuzz_cache *c, heed_context *context);

#endif
