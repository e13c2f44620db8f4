/* The keys and values of all sequences, in pages. */
#include "cache.h"

#include <heed/formats.h>
#include <stdlib.h>

heed_status cache_create(const llama *m, uint32_t type, int64_t page_len, int64_t n_pages,
                         cache *out, heed_error *why)
{
    if (n_pages > INT32_MAX) /* a block table has no numbers for more */
        return refuse(why, "a cache of %lld pages; at most %d are possible", (long long)n_pages,
                      INT32_MAX);
    const int64_t rows = n_pages * page_len * m->kv_heads, len = heed_block_len(type);
    const size_t bytes = (size_t)(rows * ((m->head_dim + len - 1) / len) * heed_block_bytes(type));
    cache c = {.page_len = page_len, .n_pages = n_pages, .type = type, .n_layers = m->n_layers};
    c.free_pages = malloc((size_t)n_pages * sizeof *c.free_pages);
    c.keys = calloc((size_t)m->n_layers, sizeof *c.keys);
    c.values = calloc((size_t)m->n_layers, sizeof *c.values);
    c.scales = calloc((size_t)m->n_layers, sizeof *c.scales);
    int good = c.free_pages && c.keys && c.values && c.scales;
    for (int64_t l = 0; good && l < m->n_layers; l++)
        good = (c.keys[l] = malloc(bytes)) && (c.values[l] = malloc(bytes)) &&
               (!heed_takes_scale(type) ||
                (c.scales[l] = malloc(4 * (size_t)rows * sizeof *c.scales[l])));
    if (!good) {
        cache_free(&c);
        return no_memory(why, "the cache");
    }
    while (c.n_free < n_pages) {
        c.free_pages[c.n_free] = (int32_t)(n_pages - 1 - c.n_free);
        c.n_free++;
    }
    *out = c;
    return HEED_OK;
}

void cache_free(cache *c)
{
    for (int64_t l = 0; l < c->n_layers; l++) {
        free(c->keys ? c->keys[l] : NULL);
        free(c->values ? c->values[l] : NULL);
        free(c->scales ? c->scales[l] : NULL);
    }
    free(c->keys);
    free(c->values);
    free(c->scales);
    free(c->free_pages);
    *c = (cache){0};
}

heed_status cache_reserve(cache *c, sequence *s, int64_t length, heed_error *why)
{
    int64_t need = (length + c->page_len - 1) / c->page_len;
    if (need <= s->n_pages)
        return HEED_OK;
    if (need - s->n_pages > c->n_free)
        return refuse(why, "the cache of %lld pages is full", (long long)c->n_pages);
    int32_t *pages = realloc(s->pages, (size_t)need * sizeof *pages);
    if (!pages)
        return no_memory(why, "a sequence's pages");
    s->pages = pages;
    while (s->n_pages < need)
        s->pages[s->n_pages++] = c->free_pages[--c->n_free];
    return HEED_OK;
}

void cache_release(cache *c, sequence *s)
{
    while (s->n_pages > 0)
        c->free_pages[c->n_free++] = s->pages[--s->n_pages];
    free(s->pages);
    *s = (sequence){0};
}
