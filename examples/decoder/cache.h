/* Keys and values of all sequences, in pages that they share as they grow and end. */
#ifndef DECODER_CACHE_H
#define DECODER_CACHE_H

#include "llama.h"

/** Page p of every layer belongs to one sequence. */
typedef struct cache {
    int64_t page_len, n_pages;
    uint32_t type; /* of keys and values: any that Heed has, codes too */
    int32_t *free_pages, n_free;
    char **keys, **values; /* of each layer, [n_pages, kv_heads, page_len, head_dim] */
    /* of each layer and of types that take them: a scale and a zero of every key of a head, then of every
     * value, [4, n_pages, kv_heads, page_len] */
    float **scales;
    int64_t n_layers;
} cache;

/** The pages of a sequence, in order. All zero is an empty one. */
typedef struct sequence {
    int32_t *pages;
    int32_t n_pages;
    int32_t length; /* tokens whose keys and values are there */
} sequence;

heed_status cache_create(const llama *m, uint32_t type, int64_t page_len, int64_t n_pages,
                         cache *out, heed_error *why);
void cache_free(cache *c);

/** Gives a sequence pages for `length` tokens; refuses if there are not enough. */
heed_status cache_reserve(cache *c, sequence *s, int64_t length, heed_error *why);

/** Takes a sequence's pages back and empties it. */
void cache_release(cache *c, sequence *s);

#endif
