/* How a problem is cut and laid out in scratch, and its plan. */
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

/* Writes the shapes of a plan's products, and returns how many there are. */
static uint32_t shapes_of(const heed_problem *problem, const heed_onednn_layout *l,
                          heed_gemm_shape shape[HEED_ONEDNN_MOST_PRODUCTS])
{
    const dnnl_data_type_t type = l->bf16 ? dnnl_bf16 : dnnl_f32;
    for (int64_t i = 0; i < l->n_sizes; i++) {
        shape[2 * i] = (heed_gemm_shape){.m = l->size[i],
                                         .n = l->key_block,
                                         .k = problem->qk_dim,
                                         .type = type,
                                         .transposed = 1};
        shape[2 * i + 1] = (heed_gemm_shape){
            .m = l->size[i], .n = problem->v_dim, .k = l->key_block, .type = type};
    }
    return 2 * (uint32_t)l->n_sizes;
}

heed_status heed_onednn_lay_out(const heed_problem *problem, heed_onednn_layout *l, heed_error *why)
{
    heed_gemm_shape shape[HEED_ONEDNN_MOST_PRODUCTS];
    size_t scratchpad;
    memset(l, 0, sizeof *l);
    cut(problem, l);
    choose_types(problem, l);
    heed_status st = heed_onednn_ask(shape, shapes_of(problem, l, shape), &scratchpad, why);
    if (st != HEED_OK)
        return st;

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

void heed_onednn_plan_destroy(void *state)
{
    heed_onednn_plan *plan = state;
    heed_onednn_products_destroy(&plan->products);
    free(plan);
}

heed_status heed_onednn_plan_create(const void *machine, const heed_problem *problem, void **state)
{
    heed_gemm_shape shape[HEED_ONEDNN_MOST_PRODUCTS];
    heed_onednn_plan *plan = malloc(sizeof *plan);
    heed_status st = plan ? heed_onednn_lay_out(problem, &plan->layout, NULL) : HEED_ERR_NOMEM;
    (void)machine;
    if (st == HEED_OK)
        st = heed_onednn_products_create(&plan->products, shape,
                                         shapes_of(problem, &plan->layout, shape));
    if (st == HEED_OK)
        *state = plan;
    else
        free(plan);
    return st;
}
