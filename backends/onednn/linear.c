/*
 * Linear layers by oneDNN's matrix product: one primitive, always of ROWS rows and COLS columns.
 *
 * Work       a tile's rows are copied (widened) to scratch, ROWS at a time with zeros behind the last
 *            one, and meet each panel; bias, activation and residual follow element by element
 *            (heed_linear_finish in kit.h).
 * Layout     w in panels [in_dim][COLS], in bf16 where the products are, else in f32: oneDNN 2.6 has
 *            no products of mixed types.
 * Bits       oneDNN may sum in another order for another number of rows. There is only one number,
 *            so that a row's bits do not depend on how many rows come with it: one row costs as
 *            much as ROWS.
 * Kept       each layer has its own primitive (oneDNN stores the code of equal ones once) and a
 *            pool of what the threads that run it need.
 */
#include <stdlib.h>

#include "linear.h"

#define ROWS 16
#define COLS 64
#define MOST_INPUTS (1 << 20) /* scratch holds ROWS rows of them */

static int is_bf16(const heed_linear_problem *problem)
{
    return problem->accuracy == HEED_ACCURACY_BF16 && heed_onednn_opened()->has_bf16;
}

static heed_gemm_shape shape_of(const heed_linear_problem *problem)
{
    return (heed_gemm_shape){.m = ROWS,
                             .n = COLS,
                             .k = problem->in_dim,
                             .type = is_bf16(problem) ? dnnl_bf16 : dnnl_f32};
}

static void plan_destroy(void *state)
{
    heed_onednn_products_destroy(state);
    free(state);
}

static heed_status plan_create(const void *machine, const heed_linear_problem *problem,
                               void **state)
{
    const heed_gemm_shape shape = shape_of(problem);
    heed_onednn_products *p = malloc(sizeof *p);
    heed_status st = p ? heed_onednn_products_create(p, &shape, 1) : HEED_ERR_NOMEM;
    (void)machine;
    if (st == HEED_OK)
        *state = p;
    else
        free(p);
    return st;
}

static heed_status supports(const void *machine, const heed_linear_problem *problem,
                            heed_error *why)
{
    const heed_gemm_shape shape = shape_of(problem);
    size_t scratchpad_bytes;
    (void)machine;
    if (problem->in_dim > MOST_INPUTS)
        return heed_refuse(why, "its rows of %u inputs are longer than %d", problem->in_dim,
                           MOST_INPUTS);
    return heed_onednn_ask(&shape, 1, &scratchpad_bytes, why);
}

/* In nanoseconds, as measured for attention's products. Steps of rows and columns count in full. */
static double cost(const void *machine, const heed_linear_problem *problem, int64_t rows)
{
    const heed_onednn_library *library = machine;
    const double steps = ceil((double)rows / ROWS) * ceil((double)problem->out_dim / COLS);
    const double slower = (double)library->slower;
    return steps * (1500 + 0.0138 * slower * ROWS * COLS * problem->in_dim) +
           (double)rows * problem->out_dim * (problem->activation == HEED_ACT_NONE ? 2 : 30);
}

static size_t element(const heed_linear_problem *problem)
{
    return is_bf16(problem) ? 2 : 4;
}

static size_t x_bytes(const heed_linear_problem *problem)
{
    return (ROWS * problem->in_dim * element(problem) + 63) / 64 * 64;
}

static size_t panel_bytes(const heed_linear_problem *problem)
{
    return COLS * problem->in_dim * element(problem);
}

static heed_status tiling(const void *machine, const heed_linear_problem *problem,
                          heed_linear_tiling *out)
{
    const heed_gemm_shape shape = shape_of(problem);
    size_t scratchpad_bytes;
    (void)machine;
    heed_status st = heed_onednn_ask(&shape, 1, &scratchpad_bytes, NULL);
    if (st != HEED_OK)
        return st;
    out->rows = 8 * ROWS;
    out->panel_cols = COLS;
    out->cols = 4 * COLS;
    out->flush = HEED_FLUSH_RESULTS | HEED_FLUSH_INPUTS;
    out->panel_bytes = panel_bytes(problem);
    out->scratch_bytes =
        x_bytes(problem) + ROWS * COLS * sizeof(float) + (scratchpad_bytes + 63) / 64 * 64;
    return HEED_OK;
}

/* Stores element `at` of an array in the type that the product takes. */
static void put(int bf16, void *to, int64_t at, uint32_t type, const void *from, int64_t index)
{
    if (bf16)
        memcpy((char *)to + 2 * at, (const char *)from + 2 * index, 2);
    else
        ((float *)to)[at] = heed_load(type, from, index);
}

/* Stores one row of x in that type. */
static void put_row(int bf16, void *to, int64_t n, uint32_t type, const void *from, int64_t index,
                    int64_t stride)
{
    if (stride == 1 && type == (bf16 ? HEED_BF16 : HEED_F32)) {
        const size_t each = bf16 ? 2 : 4;
        memcpy(to, (const char *)from + index * (int64_t)each, (size_t)n * each);
        return;
    }
    for (int64_t k = 0; k < n; k++)
        put(bf16, to, k, type, from, index + k * stride);
}

static heed_status pack(const void *machine, const heed_linear_problem *problem,
                        const heed_linear_weight *weight, int64_t col_first, int64_t col_end,
                        void *panel)
{
    (void)machine;
    const int bf16 = is_bf16(problem);
    memset(panel, 0, panel_bytes(problem));
    for (int64_t i = 0; i < problem->in_dim; i++)
        for (int64_t c = col_first; c < col_end; c++)
            put(bf16, panel, i * COLS + (c - col_first), problem->w_type, weight->data,
                heed_linear_weight_at(weight, i, c));
    return HEED_OK;
}

static dnnl_status_t multiply(const heed_linear_problem *problem, const heed_linear_tile *tile,
                              const heed_onednn_products *p, const heed_onednn_slot *with,
                              char *scratch)
{
    float *sums = (float *)(void *)(scratch + x_bytes(problem));
    char *scratchpad = (char *)(sums + ROWS * COLS);
    const int bf16 = is_bf16(problem);
    const int64_t in_dim = problem->in_dim, cols = tile->col_end - tile->col_first;
    dnnl_status_t status = dnnl_success;
    for (int64_t r = 0; r < tile->rows && status == dnnl_success; r += ROWS) {
        const int64_t rows = tile->rows - r < ROWS ? tile->rows - r : ROWS;
        memset(scratch + (size_t)(rows * in_dim) * element(problem), 0,
               (size_t)((ROWS - rows) * in_dim) * element(problem));
        for (int64_t i = 0; i < rows; i++)
            put_row(bf16, scratch + (size_t)(i * in_dim) * element(problem), in_dim,
                    problem->x_type, tile->x.data, (r + i) * tile->x.row_stride,
                    tile->x.col_stride);
        for (int64_t c = 0; c < cols && status == dnnl_success; c += COLS) {
            const char *w = (const char *)tile->packed + (size_t)(c / COLS) * panel_bytes(problem);
            status = heed_onednn_multiply(p, with, 0, scratch, w, sums, scratchpad);
            for (int64_t i = 0; i < rows && status == dnnl_success; i++)
                for (int64_t j = 0; j < COLS && c + j < cols; j++)
                    heed_linear_finish(problem, tile, r + i, c + j, (double)sums[i * COLS + j]);
        }
    }
    return status;
}

static heed_status run(const void *machine, const void *state, const heed_linear_problem *problem,
                       const heed_linear_tile *tile, void *scratch)
{
    heed_onednn_slot *slot = heed_onednn_take(state);
    (void)machine;
    if (!slot)
        return HEED_ERR_BACKEND;
    const dnnl_status_t status = multiply(problem, tile, state, slot, scratch);
    heed_onednn_give(slot);
    return status == dnnl_success ? HEED_OK : HEED_ERR_BACKEND;
}

const heed_linear_kernel heed_onednn_linear = {
    .struct_size = sizeof heed_onednn_linear,
    .name = "products",
    .supports = supports,
    .cost = cost,
    .tiling = tiling,
    .pack = pack,
    .run = run,
    .plan_create = plan_create,
    .plan_destroy = plan_destroy,
};
