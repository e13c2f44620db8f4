/* How a problem is cut and laid out in scratch, and what a plan keeps: the primitives and a pool of
 * what the threads that run them need. */
#include "onednn.h"

#include <stdlib.h>

/* Rows of a tile, over the heads of its group: so many that a product is large, so few that scores,
 * sums and a block of keys stay in the second-level cache. */
#define TILE_ROWS 256
#define TILE_ROWS_WIDE 64 /* where a row of Q and O together has more than WIDE elements */
#define WIDE 1280

/* Below this many rows a product costs the same. */
#define LEAST_ROWS 8

#define LOG2_E 1.4426950408889634

static size_t place(size_t *at, int64_t elements, size_t bytes_each)
{
    size_t here = *at;
    *at += ((size_t)elements * bytes_each + 63) / 64 * 64;
    return here;
}

static void cut(const heed_problem *problem, heed_onednn_layout *l)
{
    int64_t group = problem->q_heads / problem->kv_heads, least;
    int64_t rows = problem->qk_dim + problem->v_dim > WIDE ? TILE_ROWS_WIDE : TILE_ROWS;
    l->key_block = 256;
    if (problem->query_class == HEED_QUERY_MANY) {
        l->query_rows = rows / group > 0 ? rows / group : 1;
        least = group;
    } else {
        /* With few rows a call costs as much as many keys: blocks are larger, as far as the copy of
         * one stays small. */
        int64_t dims = problem->qk_dim + problem->v_dim, few = rows / group;
        int one = problem->query_class == HEED_QUERY_ONE;
        l->query_rows = one || few < 1 ? 1 : few < 16 ? few : 16;
        l->key_chunk = 2048;
        /* oneDNN may add all weighted values of a block one after the other (it does on AVX2): for
         * 1024 keys the error is 0.42 u sqrt(1024 / 2) = 9.5 u, for 2048 it would be 13.4 u, of the
         * 16 u that are promised for heads of 64 (docs/accuracy.md). */
        l->key_block = dims <= 640 ? 1024 : l->key_block;
        least = problem->query_class == HEED_QUERY_ONE ? group : 2 * group;
    }
    least = least > LEAST_ROWS ? least : LEAST_ROWS;
    if (problem->query_class == HEED_QUERY_ONE)
        least = group; /* there is one size only */
    for (int64_t size = l->query_rows * group; l->n_sizes < HEED_ONEDNN_MOST_SIZES;
         size = (size + 1) / 2) {
        l->size[l->n_sizes++] = size;
        if (size <= least)
            break;
    }
}

static void choose_types(const heed_problem *problem, heed_onednn_layout *l)
{
    double scale = (double)problem->scale;
    l->bf16 = problem->accuracy == HEED_ACCURACY_BF16 && problem->q_type == HEED_BF16 &&
              problem->k_type == HEED_BF16 && problem->v_type == HEED_BF16 &&
              (heed_onednn_opened()->fast_bf16 ||
               (problem->query_class != HEED_QUERY_MANY && heed_onednn_opened()->has_bf16));
    l->natural = (problem->features & (HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_BIAS)) != 0;
    l->factor = (float)(l->natural ? scale : scale * LOG2_E);
}

static heed_gemm_shape score_shape(const heed_problem *problem, const heed_onednn_layout *l,
                                   int64_t i)
{
    return (heed_gemm_shape){.m = l->size[i],
                             .n = l->key_block,
                             .k = problem->qk_dim,
                             .type = l->bf16 ? dnnl_bf16 : dnnl_f32,
                             .transposed = 1};
}

static heed_gemm_shape value_shape(const heed_problem *problem, const heed_onednn_layout *l,
                                   int64_t i)
{
    return (heed_gemm_shape){.m = l->size[i],
                             .n = problem->v_dim,
                             .k = l->key_block,
                             .type = l->bf16 ? dnnl_bf16 : dnnl_f32};
}

/* Describes both products of every size, stopping at the first that fails. */
static dnnl_status_t describe_all(const heed_problem *problem, const heed_onednn_layout *l,
                                  heed_gemm *score, heed_gemm *value)
{
    const heed_onednn_library *library = heed_onednn_opened();
    dnnl_status_t status = dnnl_success;
    for (int64_t i = 0; i < l->n_sizes && status == dnnl_success; i++) {
        heed_gemm_shape shape = score_shape(problem, l, i);
        status = heed_gemm_describe(&score[i], library->engine, &shape);
        if (status == dnnl_success) {
            shape = value_shape(problem, l, i);
            status = heed_gemm_describe(&value[i], library->engine, &shape);
        }
    }
    return status;
}

heed_status heed_onednn_lay_out(const heed_problem *problem, heed_onednn_layout *l, heed_error *why)
{
    const heed_onednn_library *library = heed_onednn_opened();
    heed_gemm score[HEED_ONEDNN_MOST_SIZES] = {{0}}, value[HEED_ONEDNN_MOST_SIZES] = {{0}};
    size_t scratchpad = 0;
    heed_status st = heed_onednn_use(why);
    if (st != HEED_OK)
        return st;
    memset(l, 0, sizeof *l);
    cut(problem, l);
    choose_types(problem, l);

    int before = heed_onednn_one(&library->threads);
    dnnl_status_t status = describe_all(problem, l, score, value);
    heed_onednn_many(&library->threads, before);
    for (int64_t i = 0; i < l->n_sizes; i++) {
        scratchpad =
            score[i].scratchpad_bytes > scratchpad ? score[i].scratchpad_bytes : scratchpad;
        scratchpad =
            value[i].scratchpad_bytes > scratchpad ? value[i].scratchpad_bytes : scratchpad;
        heed_gemm_destroy(&score[i]);
        heed_gemm_destroy(&value[i]);
    }
    if (status != dnnl_success)
        return heed_refuse(why, "oneDNN has no product of these sizes: %s",
                           heed_dnnl_status_name(status));

    size_t each = l->bf16 ? sizeof(uint16_t) : sizeof(float);
    int64_t rows = l->size[0];
    l->q_at = place(&l->bytes, rows * problem->qk_dim, each);
    l->s_at = place(&l->bytes, rows * l->key_block, sizeof(float));
    l->p_at = l->bf16 ? place(&l->bytes, rows * l->key_block, each) : l->s_at;
    l->k_at = place(&l->bytes, l->key_block * problem->qk_dim, each);
    l->v_at = place(&l->bytes, l->key_block * problem->v_dim, each);
    l->o_at = place(&l->bytes, rows * problem->v_dim, sizeof(float));
    l->spoilt_at = place(&l->bytes, l->key_block, 1);
    l->listed_at = place(&l->bytes, l->key_block, 1);
    l->mask_at = place(&l->bytes, l->key_block, 1);
    l->bias_at = place(&l->bytes, l->key_block, sizeof(float));
    l->needed_at = place(&l->bytes, l->key_block / 64 + 1, sizeof(uint64_t));
    l->rescale_at = place(&l->bytes, rows, sizeof(float));
    l->scratchpad_at = place(&l->bytes, (int64_t)scratchpad, 1);
    return HEED_OK;
}

static void destroy_slot(heed_onednn_slot *slot)
{
    for (int i = 0; i < HEED_ONEDNN_MOST_SIZES; i++) {
        heed_gemm_memory_destroy(&slot->score[i]);
        heed_gemm_memory_destroy(&slot->value[i]);
    }
    if (slot->stream)
        dnnl_stream_destroy(slot->stream);
}

void heed_onednn_plan_destroy(void *state)
{
    heed_onednn_plan *plan = state;
    if (!plan || heed_onednn_is_lost())
        return; /* in such a child nothing of it can be destroyed */
    for (uint32_t i = 0; plan->slot && i < plan->n_slots; i++)
        destroy_slot(&plan->slot[i]);
    free(plan->slot);
    for (int i = 0; i < HEED_ONEDNN_MOST_SIZES; i++) {
        heed_gemm_destroy(&plan->score[i]);
        heed_gemm_destroy(&plan->value[i]);
    }
    free(plan);
}

static dnnl_status_t create_slot(const heed_onednn_plan *plan, heed_onednn_slot *slot)
{
    const heed_onednn_library *library = heed_onednn_opened();
    dnnl_status_t status =
        dnnl_stream_create(&slot->stream, library->engine, dnnl_stream_default_flags);
    for (int64_t i = 0; i < plan->layout.n_sizes && status == dnnl_success; i++) {
        status = heed_gemm_memory_create(&slot->score[i], library->engine, &plan->score[i]);
        if (status == dnnl_success)
            status = heed_gemm_memory_create(&slot->value[i], library->engine, &plan->value[i]);
    }
    return status;
}

static dnnl_status_t create_all(const heed_problem *problem, heed_onednn_plan *plan)
{
    dnnl_status_t status = describe_all(problem, &plan->layout, plan->score, plan->value);
    for (int64_t i = 0; i < plan->layout.n_sizes && status == dnnl_success; i++) {
        status = heed_gemm_create(&plan->score[i]);
        if (status == dnnl_success)
            status = heed_gemm_create(&plan->value[i]);
    }
    for (uint32_t i = 0; i < plan->n_slots && status == dnnl_success; i++)
        status = create_slot(plan, &plan->slot[i]);
    return status;
}

heed_status heed_onednn_plan_create(const heed_problem *problem, void **state)
{
    const heed_onednn_library *library = heed_onednn_opened();
    heed_onednn_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return HEED_ERR_NOMEM;
    heed_status st = heed_onednn_lay_out(problem, &plan->layout, NULL);
    if (st == HEED_OK) {
        plan->n_slots = library->n_slots;
        plan->slot = aligned_alloc(64, plan->n_slots * sizeof *plan->slot);
        st = plan->slot ? HEED_OK : HEED_ERR_NOMEM;
    }
    if (st == HEED_OK) {
        memset(plan->slot, 0, plan->n_slots * sizeof *plan->slot);
        int before = heed_onednn_one(&library->threads);
        dnnl_status_t status = create_all(problem, plan);
        heed_onednn_many(&library->threads, before);
        st = status == dnnl_success         ? HEED_OK
             : status == dnnl_out_of_memory ? HEED_ERR_NOMEM
                                            : HEED_ERR_BACKEND;
    }
    if (st != HEED_OK) {
        heed_onednn_plan_destroy(plan); /* safe on a half-built plan */
        return st;
    }
    *state = plan;
    return HEED_OK;
}
