/* What the x86 backends decide about a linear layer, and its weights' way into panels: compiled for
 * the baseline CPU. */
#include "layout.h"
#include "../simd.h"

size_t heed_simd_linear_panel_bytes(const heed_linear_problem *problem, uint32_t lanes,
                                    uint32_t word)
{
    const size_t row = HEED_LINEAR_PANEL((size_t)lanes) * heed_dtype_bytes(problem->w_type);
    return ((problem->in_dim + word - 1) / word * word * row + 63) / 64 * 64;
}

/* Inputs that lie side by side in a panel. */
static uint32_t word_of(const heed_simd_tuning *tuning, const heed_linear_problem *problem)
{
    return heed_simd_linear_dot_covers(tuning, problem) ? 2 : 1;
}

heed_status heed_simd_linear_tiling(const heed_simd_tuning *tuning,
                                    const heed_linear_problem *problem, heed_linear_tiling *out)
{
    heed_linear_layout layout;
    heed_linear_lay_out((int)tuning->lanes, problem->out_dim, &layout);
    out->rows = HEED_LINEAR_ROWS;
    out->panel_cols = HEED_LINEAR_PANEL(tuning->lanes);
    out->cols = out->panel_cols * HEED_LINEAR_TILE_PANELS;
    out->flush = HEED_FLUSH_RESULTS | HEED_FLUSH_INPUTS;
    out->panel_bytes =
        heed_simd_linear_panel_bytes(problem, tuning->lanes, word_of(tuning, problem));
    out->scratch_bytes = layout.bytes;
    out->kernel = word_of(tuning, problem) == 2 ? "linear, bf16 by vdpbf16ps" : "linear, f32";
    return HEED_OK;
}

/* The larger of arithmetic and the weights' way from memory. */
double heed_simd_linear_cost(const heed_simd_tuning *tuning, const heed_linear_problem *problem,
                             int64_t rows)
{
    const double weights = (double)problem->in_dim * problem->out_dim;
    const double adds_per_ns = (tuning->lanes == 16 ? 82 : 52) * word_of(tuning, problem);
    const double work = (double)rows * weights / adds_per_ns;
    const double read = weights * heed_dtype_bytes(problem->w_type) / 20;
    return 200 + (double)rows * problem->out_dim * 0.2 + (rows > 0 && read > work ? read : work);
}

heed_status heed_simd_linear_pack(const heed_simd_tuning *tuning,
                                  const heed_linear_problem *problem,
                                  const heed_linear_weight *weight, int64_t col_first,
                                  int64_t col_end, void *panel)
{
    const int64_t cols = HEED_LINEAR_PANEL(tuning->lanes), word = word_of(tuning, problem);
    const size_t bytes = heed_dtype_bytes(problem->w_type);
    memset(panel, 0, heed_simd_linear_panel_bytes(problem, tuning->lanes, (uint32_t)word));
    for (int64_t c = col_first; c < col_end; c++) {
        const char *from =
            (const char *)weight->data + heed_linear_weight_at(weight, 0, c) * (int64_t)bytes;
        char *to = (char *)panel + (size_t)((c - col_first) * word) * bytes;
        for (int64_t i = 0; i < problem->in_dim; i++)
            memcpy(to + (size_t)(i / word * word * cols + i % word) * bytes,
                   from + i * weight->in_stride * (int64_t)bytes, bytes);
    }
    return HEED_OK;
}
