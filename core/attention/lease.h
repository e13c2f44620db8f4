/* Lending pieces of the workspace, without locks. */
#ifndef HEED_CORE_LEASE_H
#define HEED_CORE_LEASE_H

#include "workspace.h"

#define HEED_NO_PIECE UINT32_MAX

static inline char *heed_piece(const heed_pool *pool, uint32_t n)
{
    return pool->base + n * pool->stride;
}

/* Takes a free piece. With `must`, at least one is known to be free at any moment (workspace.c), so
 * the search ends; without it the result is HEED_NO_PIECE if none is. Each part begins its search
 * where it did before, because that memory is near to it. */
static inline uint32_t heed_take(const heed_pool *pool, uint32_t part, int must)
{
    uint32_t at = part * pool->share % pool->n;
    for (uint32_t i = 0; must || i < pool->n; i++) {
        unsigned char none = 0;
        if (!atomic_load_explicit(&pool->taken[at], memory_order_relaxed) &&
            atomic_compare_exchange_strong(&pool->taken[at], &none, 1))
            return at;
        if (++at == pool->n)
            at = 0;
    }
    return HEED_NO_PIECE;
}

static inline void heed_give(const heed_pool *pool, uint32_t n)
{
    atomic_store_explicit(&pool->taken[n], 0, memory_order_release);
}

/* Returns the lease's piece. A lease that has none yet takes a free one, whose first `clean` bytes
 * are set to 0. */
static inline uint32_t heed_lease_piece(heed_lease *lease, const heed_pool *pool, size_t clean,
                                        uint32_t part, int must)
{
    unsigned held = atomic_load_explicit(&lease->piece_plus_1, memory_order_acquire);
    if (held)
        return held - 1;
    const uint32_t n = heed_take(pool, part, must);
    if (n == HEED_NO_PIECE)
        return n;
    memset(heed_piece(pool, n), 0, clean);
    if (atomic_compare_exchange_strong(&lease->piece_plus_1, &held, n + 1))
        return n;
    heed_give(pool, n); /* another part was faster */
    return held - 1;
}

/* Counts one tile of the lease as done; true for the last of `n`. */
static inline int heed_lease_done(heed_lease *lease, uint32_t n)
{
    return atomic_fetch_add_explicit(&lease->done, 1, memory_order_acq_rel) + 1 == n;
}

#endif
