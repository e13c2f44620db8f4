/* Open addressing over a short run of slots; eviction under the context's lock. */
#include "plan_cache.h"

#include "plan.h"

enum { PROBES = 8 };

heed_plan *heed_plan_cache_find(heed_plan_cache *cache, const heed_attn_desc *desc, uint64_t hash)
{
    heed_plan *found = NULL;
    atomic_fetch_add(&cache->readers, 1);
    for (uint32_t i = 0; i < PROBES && !found; i++) {
        heed_plan *plan = atomic_load(&cache->slot[(hash + i) % HEED_PLAN_CACHE_SLOTS]);
        if (plan && plan->hash == hash && !memcmp(&plan->desc, desc, sizeof *desc)) {
            atomic_fetch_add(&plan->refs, 1);
            found = plan;
        }
    }
    atomic_fetch_sub(&cache->readers, 1);
    return found;
}

/* Lets retired plans go if no reader is inside: one that comes now finds their slots empty. */
static void drain(heed_plan_cache *cache)
{
    if (atomic_load(&cache->readers) != 0)
        return;
    while (cache->retired) {
        heed_plan *plan = cache->retired;
        cache->retired = plan->next_retired;
        heed_plan_unref(plan);
    }
}

static void retire(heed_plan_cache *cache, uint32_t slot)
{
    heed_plan *plan = atomic_exchange(&cache->slot[slot], NULL);
    if (plan) {
        plan->next_retired = cache->retired;
        cache->retired = plan;
    }
}

void heed_plan_cache_put(heed_plan_cache *cache, heed_plan *plan)
{
    uint32_t slot = 0, i;
    for (i = 0; i < PROBES; i++) {
        slot = (uint32_t)((plan->hash + i) % HEED_PLAN_CACHE_SLOTS);
        if (!atomic_load(&cache->slot[slot]))
            break;
    }
    if (i == PROBES) {
        slot = (uint32_t)((plan->hash + cache->next++ % PROBES) % HEED_PLAN_CACHE_SLOTS);
        retire(cache, slot);
    }
    atomic_fetch_add(&plan->refs, 1);
    atomic_store(&cache->slot[slot], plan);
    drain(cache);
}

void heed_plan_cache_clear(heed_plan_cache *cache)
{
    for (uint32_t i = 0; i < HEED_PLAN_CACHE_SLOTS; i++)
        retire(cache, i);
    drain(cache);
}

void heed_plan_cache_forked(heed_plan_cache *cache, int torn)
{
    atomic_store(&cache->readers, 0);
    if (torn)
        cache->retired = NULL;
    for (uint32_t i = 0; i < HEED_PLAN_CACHE_SLOTS; i++)
        if (torn)
            atomic_store(&cache->slot[i], NULL);
        else
            retire(cache, i);
}
