/* The keys and values of all sequences, in pages, which sequences take as they grow and return when
 * they end. */
#ifndef DECODER_CACHE_H
#define DECODER_CACHE_H

#include "llama.h"

/** The cache of all layers; page p belongs to the same sequence in every layer. */
typedef struct cache {
    int64_t page_len, n_pages;
    uint32_t type; /* of keys and values: any of Heed's, codes included */
    int32_t *free_pages, n_free;
    char **keys, **values; /* of each layer, [n_pages, kv_heads, page_len, head_dim] */
    /* of each layer, for types that have them: a scale and a zero for every key of a head, then for
     * every value, [4, n_pages, kv_heads, page_len] */
    float **scales;
    int64_t n_layers;
} cache;

/** The pages of a sequence, in order. It is empty if it is all zero. */
typedef struct sequence {
    int32_t *pages;
    int32_t n_pages;
    int32_t length; /* tokens whose keys and values are in the pages */
} sequence;

heed_status cache_create(const llama *m, uint32_t type, int64_t page_len, int64_t n_pages,
                         cache *out, heed_error *why);
void cache_free(cache *c);

/** Gives a sequence pages for `length` tokens; refuses if there are not enough pages. */
heed_status cache_reserve(cache *c, sequence *s, int64_t length, heed_error *why);

/** Takes back the pages of a sequence and empties it. */
void cache_release(cache *c, sequence *s);

#endif
