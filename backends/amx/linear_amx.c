/*
 * Linear layers in bf16 on the tile unit: bf16 products, f32 sums.
 *
 * Work       x is read as tiles of 16 rows x 32 inputs where it lies, or copied into such tiles, a
 *            block of 2048 inputs at a time. 32 rows meet 32 columns: four tiles of sums, four
 *            products for four loads. A group of panels stays in the L2 cache while all rows meet
 *            it; meanwhile the weights of the next group are prefetched.
 * Layout     w in panels of 32 columns: [32 inputs][2 x 16 columns] tiles, a word holds two inputs
 *            of a column, zeros behind the last input and column. x, y and residual of any stride.
 * Edges      rows and columns that do not exist are zeros in tiles, and are not stored.
 * Bits       a sum takes 32 inputs at a time in ascending order and goes on from block to block: it
 *            has the same bits for every number of rows and in every tile.
 * Finish     bias, activation and residual of 32 x 32 sums are computed beside the first of the
 *            next products, which leave the vector units free.
 * Tile state is configured here and restored before returning.
 * Compiled   with the flags of attn_tile_amx.c.
 */
#include "lanes.h"
#include "tile.h"

/* Kept out of the loop of tile instructions in products(), where it would take registers. */
#define NOINLINE static __attribute__((noinline))

enum { STEP = 32, BLOCK_STEPS = AMX_LINEAR_BLOCK / STEP };

/* Bytes of weights in a group of panels. The L2 cache also holds x and the next group. */
enum { GROUP_BYTES = 128 << 10 };

/* Copies inputs [32 step, 32 step + 32 n) of all rows into tiles of 1 KiB: [row tile][n]. */
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

/* x as tiles, with distances in bytes: `row` from row to row of a tile, `step` to the tile of the
 * next 32 inputs, `row_tile` to that of the next 16 rows. */
typedef struct x_tiles {
    const char *at;
    int64_t row_tile, step, row;
} x_tiles;

/* Can x be read where it lies? It can where all tiles are whole and made of whole cache lines. */
static int lies_as_tiles(const heed_linear_problem *p, const heed_linear_tile *t)
{
    return t->x.col_stride == 1 && t->x.row_stride % 32 == 0 && (uintptr_t)t->x.data % 64 == 0 &&
           t->rows % 16 == 0 && p->in_dim % STEP == 0;
}

/* What the next group will need, prefetched in shares beside these products. */
typedef struct ahead {
    const char *at;
    int64_t share; /* bytes */
} ahead;

static inline void ask(ahead *a)
{
    for (const char *end = a->at + a->share; a->at < end; a->at += 64)
        V_PREFETCH_L2(a->at);
}

/* n elements of a row of y's type, 16 at most, as f32. */
static inline vf load_some(uint32_t type, const char *data, int64_t stride, int n)
{
    uint16_t mask = (uint16_t)((1u << n) - 1);
    float lanes[16] = {0};
    if (stride == 1)
        return type == HEED_F32    ? v_load_some((const float *)(const void *)data, mask)
               : type == HEED_BF16 ? v_load_bf16_some(data, mask)
                                   : v_load_f16_some(data, mask);
    for (int i = 0; i < n; i++)
        lanes[i] = heed_load(type, data, i * stride);
    return v_load(lanes);
}

static inline void store_some(uint32_t type, char *data, int64_t stride, int n, vf y)
{
    uint16_t mask = (uint16_t)((1u << n) - 1);
    float lanes[16];
    if (stride == 1 && n == 16 && type == HEED_BF16) {
        v_store_bf16(data, y);
    } else if (stride == 1 && n == 16 && type == HEED_F32) {
        v_store((float *)(void *)data, y);
    } else if (stride == 1 && type == HEED_F32) {
        v_store_some((float *)(void *)data, mask, y);
    } else if (stride == 1 && type == HEED_BF16) {
        v_store_bf16_some(data, mask, y);
    } else if (stride == 1) {
        v_store_f16_some(data, mask, y);
    } else {
        v_store(lanes, y);
        for (int i = 0; i < n; i++)
            heed_store(type, data, i * stride, lanes[i]);
    }
}

/* Sums of 32 columns and up to 32 rows that wait to become results. Of rows [row, end) a share is
 * finished beside each step of the products that follow. */
typedef struct waiting {
    const heed_linear_problem *problem;
    const heed_linear_tile *tile;
    const char *sums; /* [row tile][2][16 x 16], of row `first` on */
    int64_t first, row, end, col;
} waiting;

/* Rows finished beside a step: many, since the sums stay in cache for a few steps only. Activations
 * are as much work as the products and are spread further. */
enum { SHARE = 8, ACTIVATED_SHARE = 4 };

static inline const float *sums_of(const waiting *w, int64_t row)
{
    const int64_t at = row - w->first;
    return (const float *)(const void *)(w->sums + at / 16 * 2048 + at % 16 * 64);
}

/* 32 elements that lie side by side. */
static inline void load_dense(uint32_t type, const char *from, vf *low, vf *high)
{
    if (type == HEED_F32) {
        *low = v_load((const float *)(const void *)from);
        *high = v_load((const float *)(const void *)(from + 64));
    } else {
        *low = v_load_bf16_some(from, 0xffff);
        *high = v_load_bf16_some(from + 32, 0xffff);
    }
}

static inline void store_dense(uint32_t type, char *to, vf low, vf high)
{
    if (type == HEED_F32) {
        v_store((float *)(void *)to, low);
        v_store((float *)(void *)(to + 64), high);
    } else {
        v_store_bf16_two(to, low, high);
    }
}

/* Writes sums plus bias, activated, of n rows from w->row on. */
static void activate_rows(const waiting *w, int64_t n, float *to)
{
    const float *bias = w->tile->bias ? w->tile->bias + w->col : NULL;
    for (int64_t r = 0; r < n; r++)
        for (int half = 0; half < 2; half++) {
            vf s = v_load(sums_of(w, w->row + r) + 256 * half);
            v_store(to + r * AMX_PANEL + 16 * half, bias ? v_add(s, v_load(bias + 16 * half)) : s);
        }
    AMX_NAME(activate)(w->problem->activation, to, n * AMX_PANEL);
}

/* Finishes rows up to `end`, whose 32 columns lie side by side in y and residual. */
static inline void finish_dense(uint32_t type, const waiting *w, int64_t end)
{
    const heed_linear_tile *t = w->tile;
    const int64_t bytes = heed_dtype_bytes(type), y_row = t->y.row_stride * bytes;
    const int64_t residual_row = t->residual.row_stride * bytes;
    const int activated = w->problem->activation != HEED_ACT_NONE;
    const float *bias = t->bias ? t->bias + w->col : NULL;
    const char *residual = t->residual.data;
    char *y = (char *)t->y.data + w->row * y_row + w->col * bytes;
    float rows[SHARE * AMX_PANEL];
    if (residual)
        residual += w->row * residual_row + w->col * bytes;
    if (activated)
        activate_rows(w, end - w->row, rows);
    for (int64_t r = w->row; r < end; r++, y += y_row) {
        const float *from = activated ? rows + (r - w->row) * AMX_PANEL : sums_of(w, r);
        vf s[2] = {v_load(from), v_load(from + (activated ? 16 : 256))}, more[2];
        if (bias && !activated) {
            s[0] = v_add(s[0], v_load(bias));
            s[1] = v_add(s[1], v_load(bias + 16));
        }
        if (residual) {
            load_dense(type, residual, &more[0], &more[1]);
            s[0] = v_add(s[0], more[0]);
            s[1] = v_add(s[1], more[1]);
            residual += residual_row;
        }
        store_dense(type, y, s[0], s[1]);
    }
}

/* The same with any strides, any type and up to 32 columns. */
static void finish_any(const waiting *w, int64_t end)
{
    const heed_linear_tile *t = w->tile;
    const uint32_t type = w->problem->y_type;
    const int64_t bytes = heed_dtype_bytes(type), left = t->col_end - t->col_first - w->col;
    float rows[SHARE * AMX_PANEL];
    activate_rows(w, end - w->row, rows);
    for (int64_t r = w->row; r < end; r++)
        for (int64_t c = 0; c < AMX_PANEL && c < left; c += 16) {
            const int n = (int)(left - c < 16 ? left - c : 16);
            vf s = v_load(rows + (r - w->row) * AMX_PANEL + c);
            if (t->residual.data)
                s = v_add(s, load_some(type,
                                       (const char *)t->residual.data +
                                           (r * t->residual.row_stride +
                                            (w->col + c) * t->residual.col_stride) *
                                               bytes,
                                       t->residual.col_stride, n));
            store_some(type,
                       (char *)t->y.data +
                           (r * t->y.row_stride + (w->col + c) * t->y.col_stride) * bytes,
                       t->y.col_stride, n, s);
        }
}

/* Finishes the next share of rows: bias, activation, residual. */
NOINLINE void finish_share(waiting *w)
{
    const heed_linear_tile *t = w->tile;
    const uint32_t type = w->problem->y_type;
    const int64_t share = w->problem->activation == HEED_ACT_NONE ? SHARE : ACTIVATED_SHARE;
    const int64_t end = w->row + share < w->end ? w->row + share : w->end;
    const int dense = t->col_end - t->col_first - w->col >= AMX_PANEL && t->y.col_stride == 1 &&
                      (!t->residual.data || t->residual.col_stride == 1);
    if (dense && type == HEED_BF16)
        finish_dense(HEED_BF16, w, end);
    else if (dense && type == HEED_F32)
        finish_dense(HEED_F32, w, end);
    else
        finish_any(w, end);
    w->row = end;
}

static void finish_rest(waiting *w)
{
    while (w->row < w->end)
        finish_share(w);
}

/* Lets the sums of row tiles r and r + 1 and a panel wait. The cache lines of y that they go to are
 * prefetched, since each may be on a page of its own. */
static void begin_to_wait(waiting *w, const char *sums, int64_t r, int64_t panel)
{
    const heed_linear_tile *t = w->tile;
    const int64_t bytes = heed_dtype_bytes(w->problem->y_type);
    w->sums = sums;
    w->first = w->row = r * 16;
    w->end = w->first + 32 < t->rows ? w->first + 32 : t->rows;
    w->col = panel * AMX_PANEL;
    for (int64_t row = w->first; row < w->end; row++)
        V_PREFETCH_WRITE((char *)t->y.data +
                         (row * t->y.row_stride + w->col * t->y.col_stride) * bytes);
}

/* Adds the products of 16 or 32 rows with one panel over n steps to sums, [row tile][2][16 x 16],
 * which start from zero if `fresh`. */
static inline void products(tile_unit *u, const x_tiles *tiles, int64_t row_tile, const char *w,
                            int64_t n, int two, int fresh, char *sums, ahead *next, waiting *before)
{
    const int64_t row = tiles->row, apart = tiles->step;
    const char *x = tiles->at + row_tile * tiles->row_tile, *x1 = x + tiles->row_tile;
    (void)u;
    if (fresh) {
        TILE_ZERO_4(u)
    } else {
        tile_load(u, 0, sums, 64);
        tile_load(u, 1, sums + 1024, 64);
        if (two) {
            tile_load(u, 2, sums + 2048, 64);
            tile_load(u, 3, sums + 3072, 64);
        }
    }
    for (; n > 0; n--, x += apart, x1 += apart, w += 2048) {
        tile_load(u, 6, w, 64);
        tile_load(u, 4, x, row);
        tile_product(u, 0, 4, 6);
        tile_load(u, 7, w + 1024, 64);
        tile_product(u, 1, 4, 7);
        if (two) {
            tile_load(u, 5, x1, row);
            tile_product(u, 2, 5, 6);
            tile_product(u, 3, 5, 7);
        }
        ask(next);
        if (before->row < before->end)
            finish_share(before);
    }
    tile_store(u, 0, sums, 64);
    tile_store(u, 1, sums + 1024, 64);
    if (two) {
        tile_store(u, 2, sums + 2048, 64);
        tile_store(u, 3, sums + 3072, 64);
    }
}

heed_status AMX_NAME(linear_pack)(const void *machine, const heed_linear_problem *p,
                                  const heed_linear_weight *weight, int64_t col_first,
                                  int64_t col_end, void *panel)
{
    (void)machine;
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

heed_status AMX_NAME(linear_tile)(const void *machine, const void *state,
                                  const heed_linear_problem *p, const heed_linear_tile *t,
                                  void *scratch)
{
    (void)machine, (void)state;
    const int64_t steps = heed_amx_linear_steps(p), row_tiles = (t->rows + 15) / 16;
    const int64_t panels = (t->col_end - t->col_first + AMX_PANEL - 1) / AMX_PANEL;
    const int64_t panel_sums = row_tiles * 2048, pairs = (row_tiles + 1) / 2;
    const int direct = lies_as_tiles(p, t);
    char *x = scratch, *sums = x + heed_amx_linear_x_bytes(p);
    waiting before = {.problem = p, .tile = t};
    int64_t turn = 0;
    tile_unit unit;
    for (int64_t step = 0; step < steps; step += BLOCK_STEPS) {
        const int64_t n = steps - step < BLOCK_STEPS ? steps - step : BLOCK_STEPS;
        const int64_t group = GROUP_BYTES > n * 2048 ? GROUP_BYTES / (n * 2048) : 1;
        const char *w = (const char *)t->packed + step * 2048;
        x_tiles tiles = {x, n * 1024, 1024, 64};
        if (direct)
            tiles = (x_tiles){(const char *)t->x.data + step * 64, t->x.row_stride * 32, 64,
                              t->x.row_stride * 2};
        else
            copy_x(p, t, step, n, x);
        tile_begin(&unit);
        for (int64_t first = 0; first < panels; first += group) {
            const int64_t end = first + group < panels ? first + group : panels;
            ahead next = {end < panels ? w + end * steps * 2048 : w + n * 2048,
                          (2048 / pairs + 63) / 64 * 64};
            /* Not where nothing follows, nor where rows are so few that it would come too late. */
            if (pairs == 1 || (end == panels && step + n == steps))
                next.share = 0;
            for (int64_t r = 0; r < row_tiles; r += 2)
                for (int64_t panel = first; panel < end; panel++) {
                    /* With a single block of inputs two buffers of sums are enough: the one that
                     * waits and the next. */
                    char *to = sums + (n == steps ? (turn ^= 4096) : panel * panel_sums + r * 2048);
                    products(&unit, &tiles, r, w + panel * steps * 2048, n, r + 1 < row_tiles,
                             step == 0, to, &next, &before);
                    finish_rest(&before);
                    if (step + n == steps)
                        begin_to_wait(&before, to, r, panel);
                }
        }
        tile_end(&unit);
    }
    finish_rest(&before);
    v_leave();
    return HEED_OK;
}
