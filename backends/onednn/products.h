/* Some products of oneDNN, and a pool of what the threads that run them need: what a plan keeps. */
#ifndef HEED_ONEDNN_PRODUCTS_H
#define HEED_ONEDNN_PRODUCTS_H

#include <stdatomic.h>

#include <heed/backend.h>

#include "dnnl_gemm.h"

#define HEED_ONEDNN_MOST_PRODUCTS 16

/* What a thread takes from the pool for the length of a tile: memory objects hold addresses, so
 * they cannot be shared. */
typedef struct heed_onednn_slot {
    _Alignas(64) atomic_int taken;
    int threads; /* OpenMP's number of them before */
    dnnl_stream_t stream;
    heed_gemm_memory memory[HEED_ONEDNN_MOST_PRODUCTS];
} heed_onednn_slot;

typedef struct heed_onednn_products {
    heed_gemm gemm[HEED_ONEDNN_MOST_PRODUCTS];
    uint32_t n, n_slots;
    heed_onednn_slot *slot;
} heed_onednn_products;

/* Asks oneDNN whether it has products of n shapes, and for the size of the largest scratchpad. */
heed_status heed_onednn_ask(const heed_gemm_shape *shape, uint32_t n, size_t *scratchpad_bytes,
                            heed_error *why);

/* Makes them. After a failure there is nothing to destroy. */
heed_status heed_onednn_products_create(heed_onednn_products *products,
                                        const heed_gemm_shape *shape, uint32_t n);
void heed_onednn_products_destroy(heed_onednn_products *products);

/* Takes a slot, and keeps the thread's products to one thread until it is given back. NULL in a
 * child after fork that may not use oneDNN: supports() says why. There are as many slots as cores,
 * 16 to 256: only a caller with more threads ever waits. */
heed_onednn_slot *heed_onednn_take(const heed_onednn_products *products);
void heed_onednn_give(heed_onednn_slot *slot);

/* Runs product number i, as heed_gemm_execute. */
static inline dnnl_status_t heed_onednn_multiply(const heed_onednn_products *products,
                                                 const heed_onednn_slot *slot, int64_t i,
                                                 const void *a, const void *b, float *c,
                                                 void *scratchpad)
{
    return heed_gemm_execute(&products->gemm[i], slot->stream, &slot->memory[i], a, b, c,
                             scratchpad);
}

#endif
