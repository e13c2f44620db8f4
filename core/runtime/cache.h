/* A bounded cache of counted objects, found by value. A hit takes no lock. */
#ifndef HEED_CORE_CACHE_H
#define HEED_CORE_CACHE_H

#include <stdatomic.h>
#include <stdint.h>

enum { HEED_CACHE_SLOTS = 64 };

/* The first member of a cached object. Whoever lets go of the last hold destroys the object. */
typedef struct heed_cached {
    atomic_uint refs;
    uint32_t reserved;
    uint64_t hash; /* of its key */
    struct heed_cached *next_retired;
    void (*destroy)(struct heed_cached *object);
} heed_cached;

/* A reader counts itself in, so that an evicted object is let go only when no reader can still be
 * looking at it; until then it waits in `retired`. */
typedef struct heed_cache {
    atomic_uint readers;
    uint32_t next; /* under the owner's lock: where the next eviction looks */
    _Atomic(heed_cached *) slot[HEED_CACHE_SLOTS];
    heed_cached *retired; /* under the owner's lock: a list */
} heed_cache;

/* Returns an object of that hash for which has_key(object, key) is true, with a hold on it; NULL if
 * there is none. */
heed_cached *heed_cache_find(heed_cache *cache, uint64_t hash,
                             int (*has_key)(const heed_cached *object, const void *key),
                             const void *key);

/* Puts an object in. If all slots for its hash are taken, the object in one of them is retired,
 * each slot in turn. Under the owner's lock. */
void heed_cache_put(heed_cache *cache, heed_cached *object);

/* Forgets every object. Under the owner's lock, or when nobody else has the cache. */
void heed_cache_clear(heed_cache *cache);

/* For a child after fork, which has none of the parent's readers. An object that served the parent
 * may be of no use in the child, so every one is retired, and made anew when it is asked for.
 * `torn` says that another thread may have been changing the cache: its objects are then forgotten
 * and stay in memory. */
void heed_cache_forked(heed_cache *cache, int torn);

/* Lets one hold go. */
void heed_cached_unref(heed_cached *object);

#endif
