/*
 * The naive backend's linear layers: three loops.
 *
 * Serves     every problem: any type, any stride, any alignment.
 * Layout     a panel is one column of w, [in_dim] in w_type: nothing is widened or padded.
 * Numerics   sums, bias, activation and residual in f64, rounded once, to y's type.
 * Bits       each element is summed by itself, in ascending order of i.
 */
#include "naive.h"

#define ROWS 16
#define COLS 64

static heed_status supports(const void *machine, const heed_linear_problem *problem,
                            heed_error *why)
{
    (void)machine, (void)problem, (void)why;
    return HEED_OK;
}

/* f16 is unpacked bit by bit. Measured like attention's cost, on one core near 3 GHz. */
static double cost(const void *machine, const heed_linear_problem *problem, int64_t rows)
{
    (void)machine;
    return 20 + (double)rows * problem->out_dim *
                    (10 + (problem->w_type == HEED_F16 ? 2.0 : 1.0) * problem->in_dim);
}

static heed_status tiling(const void *machine, const heed_linear_problem *problem,
                          heed_linear_tiling *out)
{
    (void)machine;
    out->rows = ROWS;
    out->cols = COLS;
    out->panel_cols = 1;
    out->panel_bytes = ((size_t)problem->in_dim * heed_dtype_bytes(problem->w_type) + 63) / 64 * 64;
    out->scratch_bytes = problem->in_dim * sizeof(double);
    return HEED_OK;
}

static heed_status pack(const void *machine, const heed_linear_problem *problem,
                        const heed_linear_weight *weight, int64_t col_first, int64_t col_end,
                        void *panel)
{
    const size_t bytes = heed_dtype_bytes(problem->w_type);
    (void)machine, (void)col_end; /* a panel has one column */
    for (int64_t i = 0; i < problem->in_dim; i++)
        memcpy((char *)panel + (size_t)i * bytes,
               (const char *)weight->data +
                   heed_linear_weight_at(weight, i, col_first) * (int64_t)bytes,
               bytes);
    return HEED_OK;
}

static heed_status run(const void *machine, const void *state, const heed_linear_problem *problem,
                       const heed_linear_tile *tile, void *scratch)
{
    const int64_t in_dim = problem->in_dim, bytes = heed_dtype_bytes(problem->w_type);
    const int64_t panel_bytes = (in_dim * bytes + 63) / 64 * 64;
    double *x = scratch;
    (void)machine, (void)state;
    for (int64_t r = 0; r < tile->rows; r++) {
        for (int64_t i = 0; i < in_dim; i++)
            x[i] = (double)heed_load(problem->x_type, tile->x.data,
                                     r * tile->x.row_stride + i * tile->x.col_stride);
        for (int64_t c = 0; c < tile->col_end - tile->col_first; c++) {
            const char *w = (const char *)tile->packed + c * panel_bytes;
            double s = 0;
            for (int64_t i = 0; i < in_dim; i++)
                s += x[i] * (double)heed_load(problem->w_type, w, i);
            heed_linear_finish(problem, tile, r, c, s);
        }
    }
    return HEED_OK;
}

const heed_linear_kernel heed_naive_linear = {
    .struct_size = sizeof heed_naive_linear,
    .name = "loops",
    .supports = supports,
    .cost = cost,
    .tiling = tiling,
    .pack = pack,
    .run = run,
};
