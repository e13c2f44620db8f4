/* Makes, lends and destroys what products.h describes. */
#include "products.h"

#include <sched.h>
#include <stdlib.h>

#include "onednn.h"

/* Stops at the first that fails. */
static dnnl_status_t describe(const heed_gemm_shape *shape, uint32_t n, heed_gemm *gemm)
{
    dnnl_status_t status = dnnl_success;
    for (uint32_t i = 0; i < n && status == dnnl_success; i++)
        status = heed_gemm_describe(&gemm[i], heed_onednn_opened()->engine, &shape[i]);
    return status;
}

heed_status heed_onednn_ask(const heed_gemm_shape *shape, uint32_t n, size_t *scratchpad_bytes,
                            heed_error *why)
{
    const heed_onednn_library *library = heed_onednn_opened();
    heed_gemm gemm[HEED_ONEDNN_MOST_PRODUCTS] = {{0}};
    const heed_status st = heed_onednn_use(why);
    if (st != HEED_OK)
        return st;
    const int before = heed_onednn_one(&library->threads);
    const dnnl_status_t status = describe(shape, n, gemm);
    *scratchpad_bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (gemm[i].scratchpad_bytes > *scratchpad_bytes)
            *scratchpad_bytes = gemm[i].scratchpad_bytes;
        heed_gemm_destroy(&gemm[i]);
    }
    heed_onednn_many(&library->threads, before);
    return status == dnnl_success ? HEED_OK
           : status == dnnl_out_of_memory
               ? HEED_ERR_NOMEM /* which is no refusal */
               : heed_refuse(why, "oneDNN has no product of these sizes: %s",
                             heed_dnnl_status_name(status));
}

static dnnl_status_t fill_slot(const heed_onednn_products *p, heed_onednn_slot *slot)
{
    dnnl_engine_t engine = heed_onednn_opened()->engine;
    dnnl_status_t status = dnnl_stream_create(&slot->stream, engine, dnnl_stream_default_flags);
    for (uint32_t i = 0; i < p->n && status == dnnl_success; i++)
        status = heed_gemm_memory_create(&slot->memory[i], engine, &p->gemm[i]);
    return status;
}

static dnnl_status_t fill(heed_onednn_products *p, const heed_gemm_shape *shape)
{
    dnnl_status_t status = describe(shape, p->n, p->gemm);
    for (uint32_t i = 0; i < p->n && status == dnnl_success; i++)
        status = heed_gemm_create(&p->gemm[i]);
    for (uint32_t i = 0; i < p->n_slots && status == dnnl_success; i++)
        status = fill_slot(p, &p->slot[i]);
    return status;
}

heed_status heed_onednn_products_create(heed_onednn_products *p, const heed_gemm_shape *shape,
                                        uint32_t n)
{
    const heed_onednn_library *library = heed_onednn_opened();
    const heed_status st = heed_onednn_use(NULL);
    if (st != HEED_OK)
        return st;
    *p = (heed_onednn_products){.n = n, .n_slots = library->n_slots};
    p->slot = aligned_alloc(64, p->n_slots * sizeof *p->slot);
    if (!p->slot)
        return HEED_ERR_NOMEM;
    memset(p->slot, 0, p->n_slots * sizeof *p->slot);
    const int before = heed_onednn_one(&library->threads);
    const dnnl_status_t status = fill(p, shape);
    heed_onednn_many(&library->threads, before);
    if (status == dnnl_success)
        return HEED_OK;
    heed_onednn_products_destroy(p);
    return status == dnnl_out_of_memory ? HEED_ERR_NOMEM : HEED_ERR_BACKEND;
}

void heed_onednn_products_destroy(heed_onednn_products *p)
{
    if (heed_onednn_is_lost())
        return; /* in such a child nothing of it can be destroyed */
    for (heed_onednn_slot *slot = p->slot; slot < p->slot + p->n_slots; slot++) {
        for (uint32_t i = 0; i < p->n; i++)
            heed_gemm_memory_destroy(&slot->memory[i]);
        if (slot->stream)
            dnnl_stream_destroy(slot->stream);
    }
    free(p->slot);
    for (uint32_t i = 0; i < p->n; i++)
        heed_gemm_destroy(&p->gemm[i]);
}

static heed_onednn_slot *find_free(const heed_onednn_products *p)
{
    for (;;) {
        for (uint32_t i = 0; i < p->n_slots; i++) {
            int free_one = 0;
            if (atomic_load_explicit(&p->slot[i].taken, memory_order_relaxed) == 0 &&
                atomic_compare_exchange_strong(&p->slot[i].taken, &free_one, 1))
                return &p->slot[i];
        }
        sched_yield();
    }
}

heed_onednn_slot *heed_onednn_take(const heed_onednn_products *p)
{
    if (heed_onednn_is_lost())
        return NULL;
    heed_onednn_slot *slot = find_free(p);
    slot->threads = heed_onednn_one(&heed_onednn_opened()->threads);
    return slot;
}

void heed_onednn_give(heed_onednn_slot *slot)
{
    heed_onednn_many(&heed_onednn_opened()->threads, slot->threads);
    atomic_store(&slot->taken, 0);
}
