/*
 * Linear layers: f32, f16 or bf16 in, f32 arithmetic; compiled once per instruction set (vec/vec.h),
 * and once more with HEED_SIMD_DOT, where bf16 is multiplied as it is, in pairs: words.
 *
 * Work       Many rows: for each block of inputs, x's rows are copied (widened) once, unless they
 *            can be read as they lie, and each panel of w is widened once, unless a few steps widen it as
 *            they read it; then steps of 8 (AVX2: 4) rows meet a panel. Of a layer of few blocks, without
 *            copies, a step meets all blocks of a panel before the next step does. Few rows: every weight
 *            is read once, as it lies, by all of them (products.inc.h).
 * Layout     w in panels of [in_dim][3 vectors] in its own type, zeros behind the last column
 *            (pack.c). x, y and residual of any stride, no alignment needed.
 * Edges      the last columns by masked loads and stores; steps of fewer rows for the last ones.
 * Bits       sums of 256 inputs from zero, added in order: the same for every number of rows, tile
 *            and vector width.
 * Finish     bias, activation and residual once all blocks are in: of many rows panel by panel, whose
 *            sums are then near, or by the products themselves where y is f32 and needs no more than
 *            a bias; of few rows in one pass.
 */
#include <stdlib.h>

#include "../simd.h"
#include "act.inc.h"
#include "products.inc.h"

/* ---- x ----------------------------------------------------------------------------------------
 */

/* n elements of unit stride, widened. Inlined with the type known. */
V_INLINE void copy_row(uint32_t type, const char *from, int64_t n, float *to)
{
    const int64_t bytes = heed_dtype_bytes(type);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(to + i, v_load_type(type, from + i * bytes, LANES));
    if (i < n)
        v_store_n(to + i, v_load_type(type, from + i * bytes, (int)(n - i)), (int)(n - i));
}

/* How many words so many inputs are: the unit of all that follows. */
static int64_t words(int64_t inputs)
{
    return (inputs + WORD - 1) / WORD;
}

#define BLOCK (HEED_LINEAR_BLOCK / WORD)

/* Bytes of a word of x and of w. */
static int64_t word_bytes(uint32_t type)
{
    return WORD * (int64_t)heed_dtype_bytes(type);
}

#ifdef HEED_SIMD_DOT
/* Words [first, first + n) of all rows, rows `stride` apart. Behind an odd last input comes a 0. */
static void copy_x(const heed_linear_problem *problem, const heed_linear_tile *tile, int64_t first,
                   int64_t n, float *to, int64_t stride)
{
    const int64_t left = problem->in_dim - first * WORD, inputs = left < n * WORD ? left : n * WORD;
    for (int64_t r = 0; r < tile->rows; r++, to += stride) {
        const char *from = (const char *)tile->x.data +
                           (r * tile->x.row_stride + first * WORD * tile->x.col_stride) * 2;
        for (int64_t i = 0; i < inputs; i += DOT_WIDTH)
            v_store_n(to + i / WORD,
                      v_from_bits(load_pairs(from + i * tile->x.col_stride * 2, tile->x.col_stride,
                                             inputs - i)),
                      (int)words(inputs - i));
    }
}
#else
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
        else if (type == HEED_F32)
            copy_row(HEED_F32, from, n, to);
        else if (type == HEED_F16)
            copy_row(HEED_F16, from, n, to);
        else
            copy_row(HEED_BF16, from, n, to);
    }
}
#endif

/* Does x lie as the products read it: words side by side, and, where that matters, rows of a step in cache
 * sets apart? Then no copy of it is made. */
static int lies_ready(const heed_simd_tuning *tuning, const heed_linear_problem *problem,
                      const heed_linear_tile *tile)
{
    const int64_t row = llabs(tile->x.row_stride) * (int64_t)heed_dtype_bytes(problem->x_type);
    const int64_t beside = row % 4096;
    const int apart = tuning->x_any_sets || (beside >= 256 && beside <= 4096 - 256);
    return problem->x_type == (WORD == 2 ? HEED_BF16 : HEED_F32) && tile->x.col_stride == 1 &&
           tile->x.row_stride % WORD == 0 && problem->in_dim % WORD == 0 &&
           (uintptr_t)tile->x.data % sizeof(float) == 0 && apart;
}

/* ---- y ----------------------------------------------------------------------------------------
 */

/* What finishing is about, known where it is inlined: the usual types and strides cost no
 * decisions per vector. */
typedef struct ending {
    uint32_t activation, type; /* of y */
    int dense;                 /* the elements of a row of y and residual lie side by side */
} ending;

V_INLINE void finish_vector(const ending e, const heed_linear_tile *tile, const float *sums,
                            const char *residual, char *y, int64_t c, int n)
{
    const int64_t bytes = heed_dtype_bytes(e.type);
    const int64_t r_stride = e.dense ? 1 : tile->residual.col_stride;
    vf s = v_load(sums + c);
    if (tile->bias)
        s = v_add(s, v_load(tile->bias + c));
    s = v_activate(e.activation, s);
    if (residual)
        s = v_add(s, v_gather_type(e.type, residual + c * r_stride * bytes, r_stride, n));
    if (e.dense) {
        v_store_type(e.type, y + c * bytes, s, n);
    } else {
        float x[LANES];
        v_store(x, s);
        for (int i = 0; i < n && i < LANES; i++)
            heed_store(e.type, y, (c + i) * tile->y.col_stride, x[i]);
    }
}

V_INLINE void finish_as(const ending e, const heed_linear_tile *tile, const float *sums,
                        int64_t stride)
{
    const int64_t bytes = heed_dtype_bytes(e.type), cols = tile->col_end - tile->col_first;
    for (int64_t r = 0; r < tile->rows; r++, sums += stride) {
        char *y = (char *)tile->y.data + r * tile->y.row_stride * bytes;
        const char *residual = tile->residual.data;
        int64_t c = 0;
        if (residual)
            residual += r * tile->residual.row_stride * bytes;
        for (; c + LANES <= cols; c += LANES)
            finish_vector(e, tile, sums, residual, y, c, LANES);
        if (c < cols)
            finish_vector(e, tile, sums, residual, y, c, (int)(cols - c));
    }
}

V_INLINE void finish_activation(uint32_t activation, const heed_linear_problem *problem,
                                const heed_linear_tile *tile, const float *sums, int64_t stride)
{
    const int dense =
        tile->y.col_stride == 1 && (!tile->residual.data || tile->residual.col_stride == 1);
    if (dense && problem->y_type == HEED_F32)
        finish_as((ending){activation, HEED_F32, 1}, tile, sums, stride);
    else if (dense && problem->y_type == HEED_BF16)
        finish_as((ending){activation, HEED_BF16, 1}, tile, sums, stride);
    else if (dense && problem->y_type == HEED_F16)
        finish_as((ending){activation, HEED_F16, 1}, tile, sums, stride);
    else
        finish_as((ending){activation, problem->y_type, 0}, tile, sums, stride);
}

/* Sums become results. */
static void finish(const heed_linear_problem *problem, const heed_linear_tile *tile,
                   const float *sums, int64_t stride)
{
    switch (problem->activation) {
    case HEED_ACT_GELU:
        finish_activation(HEED_ACT_GELU, problem, tile, sums, stride);
        break;
    case HEED_ACT_GELU_TANH:
        finish_activation(HEED_ACT_GELU_TANH, problem, tile, sums, stride);
        break;
    case HEED_ACT_SILU:
        finish_activation(HEED_ACT_SILU, problem, tile, sums, stride);
        break;
    default:
        finish_activation(HEED_ACT_NONE, problem, tile, sums, stride);
    }
}

/* ---- few rows ---------------------------------------------------------------------------------
 */

typedef struct shape {
    int64_t panels;            /* of the tile */
    size_t w_row, panel_bytes; /* of a panel in memory */
    int64_t sums_stride;
} shape;

/* How w is asked for beside a block's products. In a layer that no cache near a core holds it is the next
 * block, or the first one of the next panels (to_next bytes away), in as many places as a row has lines: memory
 * gives more to many streams than to few. */
static linear_fetch plan_fetch(const heed_simd_tuning *tuning, const heed_linear_problem *problem,
                               int64_t rows, int64_t panels, int64_t block_bytes, int64_t to_next)
{
    const int64_t bytes = word_bytes(problem->w_type), row = LINEAR_PANEL * bytes;
    const int64_t lines = LINEAR_LINES(bytes), usual = tuning->linear_ahead_of;
    if (rows == 1 || problem->out_dim * bytes * words(problem->in_dim) < tuning->linear_far_bytes) {
        const int64_t each = bytes == 4 ? tuning->linear_ahead_word : tuning->linear_ahead_half;
        return (linear_fetch){panels < usual ? each * usual / panels : each, 64, 0};
    }
    return (linear_fetch){to_next, block_bytes / lines, row - row / lines};
}

static void few_rows(const heed_simd_tuning *tuning, const heed_linear_problem *problem,
                     const heed_linear_tile *tile, const shape *s, float *sums, float *x_copy)
{
    const linear_kernels *k =
        &linear_table[WORD == 2 ? 0 : problem->w_type - HEED_F32][tile->rows - 1];
    const int direct = problem->x_type == HEED_F32 && tile->x.col_stride == 1;
    const int64_t all = words(problem->in_dim);
    const int64_t most = k->panels < tuning->linear_streams ? k->panels : tuning->linear_streams;
    for (int64_t first = 0; first < all; first += HEED_LINEAR_FEW_INPUTS) {
        int64_t end = all - first < HEED_LINEAR_FEW_INPUTS ? all : first + HEED_LINEAR_FEW_INPUTS;
        const float *x = (const float *)tile->x.data + first;
        int64_t x_stride = tile->x.row_stride;
        if (!direct) {
            copy_x(problem, tile, first, end - first, x_copy, HEED_LINEAR_FEW_INPUTS);
            x = x_copy;
            x_stride = HEED_LINEAR_FEW_INPUTS;
        }
        for (int64_t p = 0; p < s->panels;) {
            const int64_t together = s->panels - p < most ? s->panels - p : most;
            for (int64_t i = first; i < end; i += BLOCK) {
                int64_t n = end - i < BLOCK ? end - i : BLOCK;
                const int64_t row = (int64_t)s->w_row, bytes = n * row;
                const int64_t to_next =
                    i + n < end ? bytes : together * (int64_t)s->panel_bytes - (i - first) * row;
                k->of[together - 1](
                    (const char *)tile->packed + (size_t)p * s->panel_bytes + (size_t)i * s->w_row,
                    s->panel_bytes, x + (i - first), x_stride, n, sums + p * LINEAR_PANEL,
                    s->sums_stride, i == 0,
                    plan_fetch(tuning, problem, tile->rows, together, bytes, to_next));
            }
            p += together;
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

/* So many bytes of each row, to be fetched; NULL: none. */
typedef struct share {
    const char *at;
    int64_t bytes, row; /* from row to row */
} share;

/* What the next block and the next tile need is fetched in small shares beside the products: products
 * that came upon it cold would wait for one cache line after another. */
typedef struct ahead {
    const char *w;  /* of the next panel */
    int64_t w_step; /* bytes for each input of each step of rows: a line at most */
    share x, y;
} ahead;

/* Panel p's share of the next words of x, `span` at the most. Behind the last ones come, if the next tile
 * is of the rows behind this tile's, their first ones. */
static share share_of_x(const heed_linear_problem *problem, const heed_linear_tile *tile,
                        int64_t panels, int64_t p, int64_t next, int64_t span)
{
    const int64_t all = words(problem->in_dim), bytes = word_bytes(problem->x_type);
    share x = {.row = tile->x.row_stride * (int64_t)heed_dtype_bytes(problem->x_type)};
    if (tile->x.col_stride != 1)
        return x;
    x.at = (const char *)tile->x.data + (next < all ? next * bytes : tile->rows * x.row);
    const int64_t left = next < all ? all - next : all;
    const int64_t lines = ((left < span ? left : span) * bytes + 63) / 64;
    x.at += lines * p / panels * 64;
    x.bytes = (lines * (p + 1) / panels - lines * p / panels) * 64;
    return x;
}

/* Beside panel p of the tile and n words of it from word i on, `span` unless they are the last. */
static ahead plan_ahead(const heed_linear_problem *problem, const heed_linear_tile *tile,
                        const shape *s, int64_t p, int64_t i, int64_t n, int64_t span)
{
    const char *w = (const char *)tile->packed + (size_t)i * s->w_row;
    const int64_t step = HEED_LINEAR_FEW(LANES), steps = (tile->rows + step - 1) / step;
    ahead a = {.w = p + 1 < s->panels ? w + (size_t)(p + 1) * s->panel_bytes
                                      : w + (size_t)n * s->w_row,
               .x = share_of_x(problem, tile, s->panels, p, i + n, span)};
    a.w_step = ((int64_t)s->w_row + steps - 1) / steps;
    if (a.w_step > 64)
        a.w_step = 64;
    if (i + n == words(problem->in_dim) && tile->y.col_stride == 1) {
        const int64_t bytes = heed_dtype_bytes(problem->y_type);
        a.y = (share){.at = (const char *)tile->y.data + p * LINEAR_PANEL * bytes,
                      .bytes = LINEAR_PANEL * bytes,
                      .row = tile->y.row_stride * bytes};
    }
    return a;
}

V_INLINE void fetch_share(share *of, int64_t rows)
{
    if (of->at)
        for (int64_t r = 0; r < rows; r++, of->at += of->row)
            for (int64_t at = 0; at < of->bytes; at += 64)
                V_PREFETCH_L2(of->at + at);
}

/* Panels whose columns are whole cache lines of y: they are finished together. */
enum { FINISHED = 48 / LINEAR_PANEL };

/* Sums of panels [first, end) become results while they are near. */
static void finish_panels(const heed_linear_problem *problem, const heed_linear_tile *tile,
                          int64_t first, int64_t end, const float *sums, int64_t stride)
{
    const int64_t at = first * LINEAR_PANEL, bytes = heed_dtype_bytes(problem->y_type);
    heed_linear_tile part = *tile;
    if (part.col_end > tile->col_first + end * LINEAR_PANEL)
        part.col_end = tile->col_first + end * LINEAR_PANEL;
    part.col_first += at;
    part.y.data = (char *)part.y.data + at * part.y.col_stride * bytes;
    if (part.residual.data)
        part.residual.data = (char *)part.residual.data + at * part.residual.col_stride * bytes;
    if (part.bias)
        part.bias += at;
    finish(problem, &part, sums + at, stride);
}

/* So many of the tile's first panels have results that are sums and a bias: they go straight to y, which
 * saves their way through the sums' memory. */
static int64_t plain_panels(const heed_linear_problem *problem, const heed_linear_tile *tile)
{
    if (problem->y_type != HEED_F32 || problem->activation != HEED_ACT_NONE ||
        tile->residual.data || tile->y.col_stride != 1 ||
        (uintptr_t)tile->y.data % sizeof(float) != 0)
        return 0;
    return (tile->col_end - tile->col_first) / (FINISHED * LINEAR_PANEL) * FINISHED;
}

/* Where a panel's sums go from a block of inputs. */
typedef struct target {
    float *to;
    int64_t stride;
    const float *bias; /* added to them; NULL: none */
} target;

static target target_of(const heed_linear_tile *tile, const shape *s, float *sums, int64_t p,
                        int to_y)
{
    const int64_t col = p * LINEAR_PANEL;
    if (!to_y)
        return (target){sums + col, s->sums_stride, NULL};
    return (target){(float *)tile->y.data + col, tile->y.row_stride,
                    tile->bias ? tile->bias + col : NULL};
}

/* How many words of a panel a step of rows meets before the next step does: a block, since copies are made of
 * one, or all. Their sums then wait in L1 for the next block, in the room of w's copy, which is not made. */
static int64_t words_at_once(const heed_simd_tuning *tuning, const heed_linear_problem *problem,
                             int64_t all, int ready)
{
    const int lies = ready && (WORD == 2 || problem->w_type == HEED_F32);
    return lies && all <= tuning->linear_blocks * BLOCK ? all : BLOCK;
}

/* So many steps of rows read w of 16 bits as it lies, each widening it as it goes, which costs less than a
 * widened copy of a panel: of 9, 12, 16, 20 and 24 rows by AVX-512 products are 1.4, 1.3, 1.2, 1.1 and 1.05
 * times as fast, of 5, 8, 9 and 12 by AVX2 1.4, 1.2, 1.15 and 1.05 times; beyond that 0.9 (Intel Ice Lake). On a
 * Zen 5 1.5, 1.35, 1.2, 1.17 and 1.15, by AVX2 1.45, 1.35, 1.26 and 1.24 times. */
enum { STEPS_AS_IT_LIES = 3 };

static int is_read_as_it_lies(const heed_linear_problem *problem, const heed_linear_tile *tile)
{
    return WORD == 1 && problem->w_type != HEED_F32 &&
           tile->rows <= STEPS_AS_IT_LIES * HEED_LINEAR_FEW(LANES);
}

/* A block of a panel, what is read after it, and the rows' words for it. */
typedef struct meeting {
    const char *w, *next;
    const float *x;
    int64_t x_stride, n;
    int first; /* sums hold nothing yet */
} meeting;

/* All rows meet a block, step after step; each step fetches its part of the next block. */
static void meet_as_it_lies(const heed_linear_problem *problem, const heed_linear_tile *tile,
                            const shape *s, const meeting *m, float *sums)
{
    const linear_kernels *k = linear_table[problem->w_type - HEED_F32];
    const int64_t step = HEED_LINEAR_FEW(LANES), steps = (tile->rows + step - 1) / step;
    const int64_t row = (int64_t)s->w_row, lines = LINEAR_LINES(2), part = m->n * row / steps;
    for (int64_t r = 0, to_next = m->next - m->w; r < tile->rows; r += step, to_next += part) {
        const int64_t rows = tile->rows - r < step ? tile->rows - r : step;
        k[rows - 1].of[0](m->w, s->panel_bytes, m->x + r * m->x_stride, m->x_stride, m->n,
                          sums + r * s->sums_stride, s->sums_stride, m->first,
                          (linear_fetch){to_next, part / lines, row - row / (lines * steps)});
    }
}

static void many_rows(const heed_simd_tuning *tuning, const heed_linear_problem *problem,
                      const heed_linear_tile *tile, const shape *s, float *sums, float *x_copy,
                      int64_t x_stride, float *w_copy)
{
    const int64_t step = HEED_LINEAR_FEW(LANES);
    const int as_it_lies = is_read_as_it_lies(problem, tile);
    const int64_t all = words(problem->in_dim);
    const int64_t plain = as_it_lies ? 0 : plain_panels(problem, tile);
    const int ready = lies_ready(tuning, problem, tile);
    const int64_t span = words_at_once(tuning, problem, all, ready);
    const float *x = x_copy;
    if (ready)
        x_stride = tile->x.row_stride / WORD;
    for (int64_t i = 0; i < all; i += span) {
        const int64_t left = all - i;
        const int64_t n = left < span ? left : span;
        if (ready)
            x = (const float *)tile->x.data + i;
        else
            copy_x(problem, tile, i, n, x_copy, x_stride);
        for (int64_t p = 0; p < s->panels; p++) {
            const char *w =
                (const char *)tile->packed + (size_t)p * s->panel_bytes + (size_t)i * s->w_row;
            const int to_y = i + n == all && p < plain;
            const target t = target_of(tile, s, sums, p, to_y);
            ahead a = plan_ahead(problem, tile, s, p, i, n, span);
            if (as_it_lies) {
                meet_as_it_lies(problem, tile, s, &(meeting){w, a.w, x, x_stride, n, i == 0},
                                sums + p * LINEAR_PANEL);
            } else if (WORD == 1 && problem->w_type != HEED_F32) {
                widen(problem->w_type, w, n, w_copy);
                w = (const char *)w_copy;
            }
            for (int64_t r = 0; r < tile->rows && !as_it_lies; r += step) {
                const int64_t rows = tile->rows - r < step ? tile->rows - r : step;
                fetch_share(&a.x, rows);
                fetch_share(&a.y, rows);
                const target there = {t.to + r * t.stride, t.stride, t.bias};
                const target held = span > BLOCK
                                        ? (target){w_copy, LINEAR_PANEL, NULL}
                                        : target_of(tile, s, sums + r * s->sums_stride, p, 0);
                for (int64_t b = 0; b < n; b += BLOCK) {
                    const int64_t some = n - b < BLOCK ? n - b : BLOCK;
                    const target *to = b + some < n ? &held : &there;
                    linear_near[rows - 1](w + (size_t)b * s->w_row, x + r * x_stride + b, x_stride,
                                          some, held.to, held.stride, i + b == 0, to->to,
                                          to->stride, to->bias, a.w, a.w_step);
                    a.w += some * a.w_step;
                }
            }
            if (i + n == all && !to_y && ((p + 1) % FINISHED == 0 || p + 1 == s->panels))
                finish_panels(problem, tile, p / FINISHED * FINISHED, p + 1, sums, s->sums_stride);
        }
    }
}

heed_status HEED_ISA_FUNCTION(heed_linear_tile)(const void *machine, const void *state,
                                                const heed_linear_problem *problem,
                                                const heed_linear_tile *tile, void *scratch)
{
    (void)state;
    heed_linear_layout layout;
    shape s;
    heed_linear_lay_out(LANES, problem->out_dim, &layout);
    s.panels = (tile->col_end - tile->col_first + LINEAR_PANEL - 1) / LINEAR_PANEL;
    s.w_row = LINEAR_PANEL * (size_t)word_bytes(problem->w_type);
    s.panel_bytes = heed_simd_linear_panel_bytes(problem, LANES, WORD);
    s.sums_stride = s.panels * LINEAR_PANEL;
    float *sums = (float *)((char *)scratch + layout.sums);
    float *x = (float *)((char *)scratch + layout.x), *w = (float *)((char *)scratch + layout.w);
    if (tile->rows <= HEED_LINEAR_FEW(LANES)) {
        few_rows(machine, problem, tile, &s, sums, x);
        finish(problem, tile, sums, s.sums_stride);
    } else {
        many_rows(machine, problem, tile, &s, sums, x, layout.x_stride, w);
    }
    v_leave();
    return HEED_OK;
}
