/* Open addressing over a short run of slots; eviction under the owner's lock. */
#include "cache.h"

#include <stddef.h>

enum { PROBES = 8 };

heed_cached *heed_cache_find(heed_cache *cache, uint64_t hash,
                             int (*has_key)(const heed_cached *object, const void *key),
                             const void *key)
{
    heed_cached *found = NULL;
    atomic_fetch_add(&cache->readers, 1);
    for (uint32_t i = 0; i < PROBES && !found; i++) {
        heed_cached *object = atomic_load(&cache->slot[(hash + i) % HEED_CACHE_SLOTS]);
        if (object && object->hash == hash && has_key(object, key)) {
            atomic_fetch_add(&object->refs, 1);
            found = object;
        }
    }
    atomic_fetch_sub(&cache->readers, 1);
    return found;
}

void heed_cached_unref(heed_cached *object)
{
    if (atomic_fetch_sub(&object->refs, 1) == 1)
        object->destroy(object);
}

/* Lets retired objects go if no reader is inside. A reader that comes later finds
 * their slots empty. */
static void drain(heed_cache *cache)
{
    if (atomic_load(&cache->readers) != 0)
        return;
    while (cache->retired) {
        heed_cached *object = cache->retired;
        cache->retired = object->next_retired;
        heed_cached_unref(object);
    }
}

static void retire(heed_cache *cache, uint32_t slot)
{
    heed_cached *object = atomic_exchange(&cache->slot[slot], NULL);
    if (object) {
        object->next_retired = cache->retired;
        cache->retired = object;
    }
}

void heed_cache_put(heed_cache *cache, heed_cached *object)
{
    uint32_t slot = 0, i;
    for (i = 0; i < PROBES; i++) {
        slot = (uint32_t)((object->hash + i) % HEED_CACHE_SLOTS);
        if (!atomic_load(&cache->slot[slot]))
            break;
    }
    if (i == PROBES) {
        slot = (uint32_t)((object->hash + cache->next++ % PROBES) % HEED_CACHE_SLOTS);
        retire(cache, slot);
    }
    atomic_fetch_add(&object->refs, 1);
    atomic_store(&cache->slot[slot], object);
    drain(cache);
}

void heed_cache_clear(heed_cache *cache)
{
    for (uint32_t i = 0; i < HEED_CACHE_SLOTS; i++)
        retire(cache, i);
    drain(cache);
}

void heed_cache_forked(heed_cache *cache, int torn)
{
    atomic_store(&cache->readers, 0);
    if (torn)
        cache->retired = NULL;
    for (uint32_t i = 0; i < HEED_CACHE_SLOTS; i++)
        if (torn)
            atomic_store(&cache->slot[i], NULL);
        else
            retire(cache, i);
}
