/* A bounded cache of plans, keyed by the description's value. A hit takes no lock. */
#ifndef HEED_CORE_PLAN_CACHE_H
#define HEED_CORE_PLAN_CACHE_H

#include <heed/heed.h>
#include <stdatomic.h>

enum { HEED_PLAN_CACHE_SLOTS = 64 };

/* A reader counts itself in, so that an evicted plan is let go only when no reader can still be
 * looking at it; until then it waits in `retired`. */
typedef struct heed_plan_cache {
    atomic_uint readers;
    uint32_t next; /* under the context's lock: where the next eviction looks */
    _Atomic(heed_plan *) slot[HEED_PLAN_CACHE_SLOTS];
    heed_plan *retired; /* under the context's lock: a list */
} heed_plan_cache;

/* A plan of an equal description, with a hold on it; NULL if there is none. */
heed_plan *heed_plan_cache_find(heed_plan_cache *cache, const heed_attn_desc *desc, uint64_t hash);

/* Puts a plan in, and the oldest out if there is no room. Under the context's lock. */
void heed_plan_cache_put(heed_plan_cache *cache, heed_plan *plan);

/* Forgets every plan. Under the context's lock, or when nobody else has the context. */
void heed_plan_cache_clear(heed_plan_cache *cache);

/* In a child after fork, which has none of the readers, and where a backend may be of no use that was
 * in the parent: every plan is retired, and made anew when it is asked for. With `torn` other threads
 * were changing the cache: what is in it is forgotten then, and stays in memory. */
void heed_plan_cache_forked(heed_plan_cache *cache, int torn);

#endif
