/*
 * Linear layers in bf16 on the tile unit: bf16 products, f32 sums.
 *
 * Work       for each block of 512 inputs, x's rows are copied once as tiles of 16 rows x 32
 * inputs; then 32 rows meet 32 columns: four tiles of sums, four products for four loads. The
 *            weights of a block and panel, 32 KiB, stay near while all rows meet them.
 * Layout     w in panels of 32 columns: [32 inputs][2 x 16 columns] tiles, a word two inputs of a
 *            column, zeros behind the last input and column. x, y and residual of any stride.
 * Edges      rows and columns that do not exist are zeros in tiles, and are not stored.
 * Bits       a sum goes over 32 inputs at a time in ascending order, from one block on to the next:
 *            the same for every number of rows and every tile.
 * Finish     bias, activation and residual once all blocks are in, in one pass over the sums.
 * Tile state configured here, released before returning.
 * Compiled   as attn_tile_amx.c
 */
#include "lanes.h"
#include "tile.h"

enum { STEP = 32, BLOCK_STEPS = 16 };

/* Inputs [32 step, 32 step + 32 n) of all rows as tiles: [row tile][n] of 1 KiB. */
static void copy_x(const heed_linear_problem *p, const heed_linear_tile *t, int64_t step, int64_t n,
                   char *to)
{
    const int64_t row_tiles = (t->rows + 15) / 16;
    for (int64_t r = 0; r < row_tiles * 16; r++) {
        const uint16_t *from = (const uint16_t *)t->x.data + r * t->x.row_stride;
        char *row = to + (r / 16 * n * 16 + r % 16) * 64;
        for (int64_t s = 0; s < n; s++) {
            int64_t first = (step + s) * STEP, left = (int64_t)p->in_dim - first;
            int count = r < t->rows ? (int)(left < STEP ? left : STEP) : 0;
            uint16_t gathered[STEP] = {0};
            if (t->x.col_stride == 1) {
                vi_store(row + s * 1024, count == STEP ? vi_load(from + first)
                                         : count > 0   ? vi_load_halves(from + first, count)
                                                       : vi_zero());
                continue;
            }
            for (int i = 0; i < count; i++)
                memcpy(&gathered[i], from + (first + i) * t->x.col_stride, 2);
            vi_store(row + s * 1024, vi_load(gathered));
        }
    }
}

/* Sums of 16 or 32 rows and one panel over n steps; sums: [row tile][2][16 x 16], from zero if
 * `fresh`. */
static inline void products(tile_unit *u, const char *x, const char *w, int64_t n, int two,
                            int fresh, char *sums)
{
    const char *x1 = x + n * 1024;
    (void)u;
    if (fresh) {
        tile_zero(u, 0);
        tile_zero(u, 1);
        tile_zero(u, 2);
        tile_zero(u, 3);
    } else {
        tile_load(u, 0, sums, 64);
        tile_load(u, 1, sums + 1024, 64);
        if (two) {
            tile_load(u, 2, sums + 2048, 64);
            tile_load(u, 3, sums + 3072, 64);
        }
    }
    for (; n > 0; n--, x += 1024, x1 += 1024, w += 2048) {
        tile_load(u, 6, w, 64);
        tile_load(u, 4, x, 64);
        tile_product(u, 0, 4, 6);
        tile_load(u, 7, w + 1024, 64);
        tile_product(u, 1, 4, 7);
        if (two) {
            tile_load(u, 5, x1, 64);
            tile_product(u, 2, 5, 6);
            tile_product(u, 3, 5, 7);
        }
    }
    tile_store(u, 0, sums, 64);
    tile_store(u, 1, sums + 1024, 64);
    if (two) {
        tile_store(u, 2, sums + 2048, 64);
        tile_store(u, 3, sums + 3072, 64);
    }
}

/* n elements of a row of y's type, 16 at most, as f32. */
static inline vf load_some(uint32_t type, const char *data, int64_t stride, int n)
{
    uint16_t mask = (uint16_t)((1u << n) - 1);
    float lanes[16] = {0};
    if (stride == 1)
        return type == HEED_F32    ? vf_load_some((const float *)(const void *)data, mask)
               : type == HEED_BF16 ? vf_load_bf16_some(data, mask)
                                   : vf_load_f16_some(data, mask);
    for (int i = 0; i < n; i++)
        lanes[i] = heed_load(type, data, i * stride);
    return vf_load(lanes);
}

static inline void store_some(uint32_t type, char *data, int64_t stride, int n, vf y)
{
    uint16_t mask = (uint16_t)((1u << n) - 1);
    float lanes[16];
    if (stride == 1 && n == 16 && type == HEED_BF16) {
        vf_store_bf16(data, y);
    } else if (stride == 1 && n == 16 && type == HEED_F32) {
        vf_store((float *)(void *)data, y);
    } else if (stride == 1 && type == HEED_F32) {
        vf_store_some((float *)(void *)data, mask, y);
    } else if (stride == 1 && type == HEED_BF16) {
        vf_store_bf16_some(data, mask, y);
    } else if (stride == 1) {
        vf_store_f16_some(data, mask, y);
    } else {
        vf_store(lanes, y);
        for (int i = 0; i < n; i++)
            heed_store(type, data, i * stride, lanes[i]);
    }
}

/* 16 sums of a row from column c on, and the bias. */
static inline vf sum_and_bias(const heed_linear_tile *t, const char *row_sums, int64_t panel_sums,
                              int64_t c)
{
    const char *at = row_sums + c / AMX_PANEL * panel_sums + c % AMX_PANEL / 16 * 1024;
    vf s = vf_load((const float *)(const void *)at);
    return t->bias ? vf_add(s, vf_load(t->bias + c)) : s;
}

static void finish(const heed_linear_problem *p, const heed_linear_tile *t, const char *sums,
                   int64_t panel_sums)
{
    const int64_t bytes = heed_dtype_bytes(p->y_type), cols = t->col_end - t->col_first;
    const int activated = p->activation != HEED_ACT_NONE;
    float row[AMX_LINEAR_COLS];
    for (int64_t r = 0; r < t->rows; r++) {
        char *y = (char *)t->y.data + r * t->y.row_stride * bytes;
        const char *residual = t->residual.data, *from = sums + r / 16 * 2048 + r % 16 * 64;
        if (activated) {
            for (int64_t c = 0; c < cols; c += 16)
                vf_store(row + c, sum_and_bias(t, from, panel_sums, c));
            AMX_NAME(activate)(p->activation, row, (cols + 15) / 16 * 16);
        }
        if (residual)
            residual += r * t->residual.row_stride * bytes;
        for (int64_t c = 0; c < cols; c += 16) {
            int n = (int)(cols - c < 16 ? cols - c : 16);
            vf s = activated ? vf_load(row + c) : sum_and_bias(t, from, panel_sums, c);
            if (residual)
                s = vf_add(s, load_some(p->y_type, residual + c * t->residual.col_stride * bytes,
                                        t->residual.col_stride, n));
            store_some(p->y_type, y + c * t->y.col_stride * bytes, t->y.col_stride, n, s);
        }
    }
}

heed_status AMX_NAME(linear_pack)(const heed_linear_problem *p, const heed_linear_weight *weight,
                                  int64_t col_first, int64_t col_end, void *panel)
{
    uint16_t *to = panel;
    for (int64_t i = 0; i < (int64_t)heed_amx_linear_steps(p) * STEP; i += 2)
        for (int64_t c = col_first; c < col_first + AMX_PANEL; c++)
            for (int64_t half = 0; half < 2; half++) {
                int64_t at = c - col_first;
                uint16_t w = 0;
                if (c < col_end && i + half < (int64_t)p->in_dim)
                    memcpy(&w,
                           (const uint16_t *)weight->data +
                               heed_linear_weight_at(weight, i + half, c),
                           2);
                to[i / STEP * 1024 + at / 16 * 512 + i % STEP / 2 * 32 + at % 16 * 2 + half] = w;
            }
    return HEED_OK;
}

heed_status AMX_NAME(linear_tile)(const heed_linear_problem *p, const heed_linear_tile *t,
                                  void *scratch)
{
    const int64_t steps = heed_amx_linear_steps(p), row_tiles = (t->rows + 15) / 16;
    const int64_t panels = (t->col_end - t->col_first + AMX_PANEL - 1) / AMX_PANEL;
    const int64_t panel_sums = row_tiles * 2048;
    char *x = scratch, *sums = x + AMX_LINEAR_ROWS * BLOCK_STEPS * 64;
    tile_unit unit;
    for (int64_t step = 0; step < steps; step += BLOCK_STEPS) {
        int64_t n = steps - step < BLOCK_STEPS ? steps - step : BLOCK_STEPS;
        copy_x(p, t, step, n, x);
        tile_begin(&unit);
        for (int64_t panel = 0; panel < panels; panel++) {
            const char *w = (const char *)t->packed + (panel * steps + step) * 2048;
            for (int64_t r = 0; r < row_tiles; r += 2)
                products(&unit, x + r * n * 1024, w, n, r + 1 < row_tiles, step == 0,
                         sums + panel * panel_sums + r * 2048);
        }
        tile_end(&unit);
    }
    finish(p, t, sums, panel_sums);
    return HEED_OK;
}
