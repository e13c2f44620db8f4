/* Lending slots of the workspace to what is open, without locks. */
#ifndef HEED_CORE_LEASE_H
#define HEED_CORE_LEASE_H

#include "workspace.h"

#define HEED_NO_SLOT UINT32_MAX

/* The lease's slot, taking a free one if it has none yet. With `must`, at least one of the slots is
 * known to be free (heed_workspace_slots), so the search ends; else HEED_NO_SLOT when none is free.
 */
static inline uint32_t heed_lease_slot(heed_lease *lease, char *slots, size_t stride,
                                       uint32_t n_slots, uint32_t start, int must)
{
    unsigned held = atomic_load_explicit(&lease->slot_plus_1, memory_order_acquire);
    if (held)
        return held - 1;
    for (uint32_t i = 0; must || i < n_slots; i++) {
        uint32_t n = (start + i) % n_slots;
        heed_slot *slot = (heed_slot *)(slots + n * stride);
        unsigned none = 0;
        if (atomic_load_explicit(&slot->taken, memory_order_relaxed) ||
            !atomic_compare_exchange_strong(&slot->taken, &none, 1))
            continue;
        if (atomic_compare_exchange_strong(&lease->slot_plus_1, &none, n + 1))
            return n;
        atomic_store_explicit(&slot->taken, 0, memory_order_release); /* another was faster */
        return none - 1;
    }
    return HEED_NO_SLOT;
}

/* Counts one tile of the lease as done; true for the last of `n`. */
static inline int heed_lease_done(heed_lease *lease, uint32_t n)
{
    return atomic_fetch_add_explicit(&lease->done, 1, memory_order_acq_rel) + 1 == n;
}

#endif
