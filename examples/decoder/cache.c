/* Keys and values of all sequences, in pages. */
#include "cache.h"

#include <stdlib.h>

heed_status cache_create(const llama *m, int64_t page_len, int64_t n_pages, cache *out,
                         heed_error *why)
{
    size_t bytes =
        (size_t)(n_pages * page_len * m->kv_heads * m->head_dim) * (m->type == HEED_F32 ? 4 : 2);
    cache c = {.page_len = page_len, .n_pages = n_pages, .n_layers = m->n_layers};
    c.free_pages = malloc((size_t)n_pages * sizeof *c.free_pages);
    c.keys = calloc((size_t)m->n_layers, sizeof *c.keys);
    c.values = calloc((size_t)m->n_layers, sizeof *c.values);
    int good = c.free_pages && c.keys && c.values;
    for (int64_t l = 0; good && l < m->n_layers; l++)
        good = (c.keys[l] = malloc(bytes)) && (c.values[l] = malloc(bytes));
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
    }
    free(c->keys);
    free(c->values);
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
