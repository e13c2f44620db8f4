/*
 * Linear layers: f32, f16 or bf16 in, f32 arithmetic; compiled once per instruction set (vec.h).
 *
 * Work       Many rows: for each block of inputs, x's rows are copied (widened) once and each panel
 *            of w is widened once; then steps of 8 (AVX2: 4) rows meet a panel. Few rows: every
 *            weight is read once, as it lies, by all of them (linear_products.h).
 * Layout     w in panels of [in_dim][3 vectors] in its own type, zeros behind the last column
 *            (linear_pack.c). x, y and residual of any stride, no alignment needed.
 * Edges      the last columns by masked loads and stores; steps of fewer rows for the last ones.
 * Bits       sums of 256 inputs from zero, added in order: the same for every number of rows, tile
 *            and vector width.
 * Finish     bias, activation and residual once all blocks are in, in one pass over the sums.
 */
#include "linear_act.h"
#include "linear_products.h"
#include "simd.h"

/* ---- x ----------------------------------------------------------------------------------------
 */

/* Inputs [first, first + n) of all rows, widened, rows `stride` apart. */
static void copy_x(const heed_linear_problem *problem, const heed_linear_tile *tile, int64_t first,
                   int64_t n, float *to, int64_t stride)
{
    const uint32_t type = problem->x_type;
    const int64_t bytes = heed_dtype_bytes(type);
    for (int64_t r = 0; r < tile->rows; r++, to += stride) {
        const char *from = (const char *)tile->x.data +
                           (r * tile->x.row_stride + first * tile->x.col_stride) * bytes;
        if (tile->x.col_stride != 1)
            for (int64_t i = 0; i < n; i++)
                to[i] = heed_load(type, from, i * tile->x.col_stride);
        else
            for (int64_t i = 0; i < n; i += LANES)
                v_store_n(to + i, v_load_type(type, from + i * bytes, (int)(n - i)), (int)(n - i));
    }
}

/* ---- y ----------------------------------------------------------------------------------------
 */

static vf load_elements(uint32_t type, const char *row, int64_t stride, int64_t c, int n)
{
    return v_gather_type(type, row + c * stride * (int64_t)heed_dtype_bytes(type), stride, n);
}

static void store_elements(uint32_t type, char *row, int64_t stride, int64_t c, vf v, int n)
{
    float x[LANES];
    if (stride == 1) {
        v_store_type(type, row + c * (int64_t)heed_dtype_bytes(type), v, n);
        return;
    }
    v_store(x, v);
    for (int i = 0; i < n && i < LANES; i++)
        heed_store(type, row, (c + i) * stride, x[i]);
}

/* Sums become results. Inlined with the activation known. */
V_INLINE void finish_as(uint32_t activation, const heed_linear_problem *problem,
                        const heed_linear_tile *tile, const float *sums, int64_t stride)
{
    const uint32_t type = problem->y_type;
    const int64_t bytes = heed_dtype_bytes(type), cols = tile->col_end - tile->col_first;
    for (int64_t r = 0; r < tile->rows; r++, sums += stride) {
        char *y = (char *)tile->y.data + r * tile->y.row_stride * bytes;
        const char *residual = (const char *)tile->residual.data;
        if (residual)
            residual += r * tile->residual.row_stride * bytes;
        for (int64_t c = 0; c < cols; c += LANES) {
            const int n = (int)(cols - c);
            vf s = v_load(sums + c);
            if (tile->bias)
                s = v_add(s, v_load(tile->bias + c));
            s = v_activate(activation, s);
            if (residual)
                s = v_add(s, load_elements(type, residual, tile->residual.col_stride, c, n));
            store_elements(type, y, tile->y.col_stride, c, s, n);
        }
    }
}

static void finish(const heed_linear_problem *problem, const heed_linear_tile *tile,
                   const float *sums, int64_t stride)
{
    switch (problem->activation) {
    case HEED_ACT_GELU:
        finish_as(HEED_ACT_GELU, problem, tile, sums, stride);
        break;
    case HEED_ACT_GELU_TANH:
        finish_as(HEED_ACT_GELU_TANH, problem, tile, sums, stride);
        break;
    case HEED_ACT_SILU:
        finish_as(HEED_ACT_SILU, problem, tile, sums, stride);
        break;
    default:
        finish_as(HEED_ACT_NONE, problem, tile, sums, stride);
    }
}

/* ---- few rows ---------------------------------------------------------------------------------
 */

#define AHEAD 2048 /* bytes of each stream: memory's latency times its bandwidth, and some */

typedef struct shape {
    int64_t panels;            /* of the tile */
    size_t w_row, panel_bytes; /* of a panel in memory */
    int64_t sums_stride;
} shape;

static void few_rows(const heed_linear_problem *problem, const heed_linear_tile *tile,
                     const shape *s, float *sums, float *x_copy)
{
    const linear_kernels *k = &linear_table[problem->w_type - HEED_F32][tile->rows - 1];
    const int direct = problem->x_type == HEED_F32 && tile->x.col_stride == 1;
    for (int64_t first = 0; first < problem->in_dim; first += HEED_LINEAR_FEW_INPUTS) {
        int64_t end = problem->in_dim - first < HEED_LINEAR_FEW_INPUTS
                          ? problem->in_dim
                          : first + HEED_LINEAR_FEW_INPUTS;
        const float *x = (const float *)tile->x.data + first;
        int64_t x_stride = tile->x.row_stride;
        if (!direct) {
            copy_x(problem, tile, first, end - first, x_copy, HEED_LINEAR_FEW_INPUTS);
            x = x_copy;
            x_stride = HEED_LINEAR_FEW_INPUTS;
        }
        for (int64_t p = 0; p < s->panels;) {
            const int wide = k->wide && s->panels - p >= k->panels;
            for (int64_t i = first; i < end; i += HEED_LINEAR_BLOCK) {
                int64_t n = end - i < HEED_LINEAR_BLOCK ? end - i : HEED_LINEAR_BLOCK;
                (wide ? k->wide : k->tall)((const char *)tile->packed + (size_t)p * s->panel_bytes +
                                               (size_t)i * s->w_row,
                                           s->panel_bytes, x + (i - first), x_stride, n,
                                           sums + p * LINEAR_PANEL, s->sums_stride, i == 0, AHEAD);
            }
            p += wide ? k->panels : 1;
        }
    }
}

/* ---- many rows --------------------------------------------------------------------------------
 */

static void widen(uint32_t type, const char *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n * LINEAR_PANEL; i += LANES)
        v_store(to + i, v_load_type(type, from + 2 * i, LANES));
}

static void many_rows(const heed_linear_problem *problem, const heed_linear_tile *tile,
                      const shape *s, float *sums, float *x_copy, int64_t x_stride, float *w_copy)
{
    const linear_kernels *kernel = linear_table[0];
    for (int64_t i = 0; i < problem->in_dim; i += HEED_LINEAR_BLOCK) {
        const int64_t left = problem->in_dim - i;
        const int64_t n = left < HEED_LINEAR_BLOCK ? left : HEED_LINEAR_BLOCK;
        copy_x(problem, tile, i, n, x_copy, x_stride);
        for (int64_t p = 0; p < s->panels; p++) {
            const char *w =
                (const char *)tile->packed + (size_t)p * s->panel_bytes + (size_t)i * s->w_row;
            if (problem->w_type != HEED_F32) {
                widen(problem->w_type, w, n, w_copy);
                w = (const char *)w_copy;
            }
            for (int64_t r = 0; r < tile->rows; r += HEED_LINEAR_FEW(LANES)) {
                int64_t rows = tile->rows - r;
                rows = rows < HEED_LINEAR_FEW(LANES) ? rows : HEED_LINEAR_FEW(LANES);
                kernel[rows - 1].tall(w, 0, x_copy + r * x_stride, x_stride, n,
                                      sums + r * s->sums_stride + p * LINEAR_PANEL, s->sums_stride,
                                      i == 0, 0);
            }
        }
    }
}

heed_status HEED_ISA_FUNCTION(heed_linear_tile)(const heed_linear_problem *problem,
                                                const heed_linear_tile *tile, void *scratch)
{
    heed_linear_layout layout;
    shape s;
    heed_linear_lay_out(LANES, &layout);
    s.panels = (tile->col_end - tile->col_first + LINEAR_PANEL - 1) / LINEAR_PANEL;
    s.w_row = LINEAR_PANEL * (size_t)heed_dtype_bytes(problem->w_type);
    s.panel_bytes = heed_simd_linear_panel_bytes(problem, LANES);
    s.sums_stride = s.panels * LINEAR_PANEL;
    float *sums = (float *)((char *)scratch + layout.sums);
    float *x = (float *)((char *)scratch + layout.x), *w = (float *)((char *)scratch + layout.w);
    if (tile->rows <= HEED_LINEAR_FEW(LANES))
        few_rows(problem, tile, &s, sums, x);
    else
        many_rows(problem, tile, &s, sums, x, layout.x_stride, w);
    finish(problem, tile, sums, s.sums_stride);
    return HEED_OK;
}
