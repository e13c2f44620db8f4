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

heed_status heed_simd_linear_supports(const void *machine, const heed_linear_problem *problem,
                                      heed_error *why)
{
    (void)machine, (void)problem, (void)why; /* any dims and types */
    return HEED_OK;
}

heed_status heed_simd_linear_bf16_supports(const void *machine, const heed_linear_problem *problem,
                                           heed_error *why)
{
    const heed_simd_tuning *tuning = machine;
    if (problem->accuracy != HEED_ACCURACY_BF16)
        return heed_refuse(why, "it is for accuracy bf16");
    return tuning->dot_bf16 ? HEED_OK
                            : heed_refuse(why, "vdpbf16ps does not exist or is slow here");
}

static heed_status tiling(const heed_simd_tuning *tuning, const heed_linear_problem *problem,
                          uint32_t word, heed_linear_tiling *out)
{
    heed_linear_layout layout;
    heed_linear_lay_out((int)tuning->lanes, problem->out_dim, &layout);
    out->rows = HEED_LINEAR_ROWS;
    out->panel_cols = HEED_LINEAR_PANEL(tuning->lanes);
    out->cols = out->panel_cols * HEED_LINEAR_TILE_PANELS;
    out->flush = HEED_FLUSH_RESULTS | HEED_FLUSH_INPUTS;
    out->panel_bytes = heed_simd_linear_panel_bytes(problem, tuning->lanes, word);
    out->scratch_bytes = layout.bytes;
    return HEED_OK;
}

heed_status heed_simd_linear_tiling(const void *machine, const heed_linear_problem *problem,
                                    heed_linear_tiling *out)
{
    return tiling(machine, problem, 1, out);
}

heed_status heed_simd_linear_bf16_tiling(const void *machine, const heed_linear_problem *problem,
                                         heed_linear_tiling *out)
{
    return tiling(machine, problem, 2, out);
}

/* The larger of arithmetic and the weights' way from memory. */
static double cost(const heed_simd_tuning *tuning, const heed_linear_problem *problem, int64_t rows,
                   uint32_t word)
{
    const double weights = (double)problem->in_dim * problem->out_dim;
    const double adds_per_ns = (tuning->lanes == 16 ? 82 : 52) * word;
    const double work = (double)rows * weights / adds_per_ns;
    const double read = weights * heed_dtype_bytes(problem->w_type) / 20;
    return 200 + (double)rows * problem->out_dim * 0.2 + (rows > 0 && read > work ? read : work);
}

double heed_simd_linear_cost(const void *machine, const heed_linear_problem *problem, int64_t rows)
{
    return cost(machine, problem, rows, 1);
}

/* Where one row waits for memory the two cost the same: this one is taken. */
double heed_simd_linear_bf16_cost(const void *machine, const heed_linear_problem *problem,
                                  int64_t rows)
{
    return 0.99 * cost(machine, problem, rows, 2);
}

/* n words, `step` bytes apart in the panel. bytes: of a word, known where it is inlined. */
static inline void spread(const char *from, int64_t n, size_t bytes, size_t step, char *to)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * step, from + (size_t)i * bytes, bytes);
}

/* Inputs that lie side by side, as rows of OUT_IN do, word by word: some of them for all columns before
 * the next, as long as the panel's lines that they share are near. Returns how many inputs that are. */
static int64_t pack_adjacent(const heed_linear_problem *problem, int64_t cols, int64_t word,
                             const heed_linear_weight *weight, int64_t col_first, int64_t col_end,
                             char *panel)
{
    enum { NEAR = 256 };
    const size_t bytes = heed_dtype_bytes(problem->w_type), unit = bytes * (size_t)word;
    const size_t step = unit * (size_t)cols;
    const int64_t words = problem->in_dim / word;
    for (int64_t first = 0; first < words; first += NEAR) {
        const int64_t n = words - first < NEAR ? words - first : NEAR;
        for (int64_t c = col_first; c < col_end; c++) {
            const int64_t at = heed_linear_weight_at(weight, first * word, c);
            const char *from = (const char *)weight->data + at * (int64_t)bytes;
            char *to = panel + (size_t)first * step + (size_t)(c - col_first) * unit;
            if (unit == 2)
                spread(from, n, 2, step, to);
            else
                spread(from, n, 4, step, to);
        }
    }
    return words * word;
}

/* word: inputs that lie side by side in a panel. */
static heed_status pack(const heed_simd_tuning *tuning, const heed_linear_problem *problem,
                        int64_t word, const heed_linear_weight *weight, int64_t col_first,
                        int64_t col_end, void *panel)
{
    const int64_t cols = HEED_LINEAR_PANEL(tuning->lanes);
    const size_t bytes = heed_dtype_bytes(problem->w_type);
    memset(panel, 0, heed_simd_linear_panel_bytes(problem, tuning->lanes, (uint32_t)word));
    const int64_t done = weight->in_stride == 1
                             ? pack_adjacent(problem, cols, word, weight, col_first, col_end, panel)
                             : 0;
    for (int64_t c = col_first; c < col_end; c++) {
        const char *from =
            (const char *)weight->data + heed_linear_weight_at(weight, 0, c) * (int64_t)bytes;
        char *to = (char *)panel + (size_t)((c - col_first) * word) * bytes;
        for (int64_t i = done; i < problem->in_dim; i++)
            memcpy(to + (size_t)(i / word * word * cols + i % word) * bytes,
                   from + i * weight->in_stride * (int64_t)bytes, bytes);
    }
    return HEED_OK;
}

heed_status heed_simd_linear_pack(const void *machine, const heed_linear_problem *problem,
                                  const heed_linear_weight *weight, int64_t col_first,
                                  int64_t col_end, void *panel)
{
    return pack(machine, problem, 1, weight, col_first, col_end, panel);
}

heed_status heed_simd_linear_bf16_pack(const void *machine, const heed_linear_problem *problem,
                                       const heed_linear_weight *weight, int64_t col_first,
                                       int64_t col_end, void *panel)
{
    return pack(machine, problem, 2, weight, col_first, col_end, panel);
}
