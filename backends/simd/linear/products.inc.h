/* The product of a linear layer, in the orientation of prefill's scores: columns of w lie in the
 * lanes, a panel of 3 vectors of them, and elements of x are broadcast.
 *
 * Registers  8 rows x 3 sums, 3 of w, 1 broadcast; of 16 registers 4 x 3, 3, 1. Of few rows, some
 *            panels together: enough sums in flight for one row, and more streams of memory. The
 *            sums have names, not indices: compilers keep arrays of them in memory where a loop is
 *            not unrolled.
 * Bits       Every sum is one chain of fused multiply-adds in ascending order of i from zero,
 *            whatever the vector width and whichever rows and panels share a call.
 */
#ifndef HEED_SIMD_LINEAR_PRODUCTS_H
#define HEED_SIMD_LINEAR_PRODUCTS_H

#include "../vec/vec.h"
#include "layout.h"

/* With HEED_SIMD_DOT a step takes a word of each, a pair of bf16, where it else takes a float. */
#ifdef HEED_SIMD_DOT
#include "../vec/pairs.h"
#define WORD 2 /* inputs */
#define v_step v_dot
#else
#define WORD 1
#define v_step v_fma
#endif

#define LINEAR_PANEL HEED_LINEAR_PANEL(LANES)
#define LINEAR_LINES(bytes) ((LINEAR_PANEL * (bytes) + 63) / 64) /* of an input's row of a panel */

/* Where w, which comes from memory, is asked for: LINES lines for each input, `ahead` bytes behind its row
 * and `apart` from each other; `slower`: the bytes by which a row outruns them. */
typedef struct linear_fetch {
    int64_t ahead, apart, slower;
} linear_fetch;

/* A block's product: sums[row][panel * LINEAR_PANEL + column] (+)= x[row][i] * w[panel][i][column].
 *
 * w             first input's row of the first panel; panels are panel_bytes apart
 * x, x_stride   f32, unit stride along i; rows x_stride floats apart
 * n             inputs, or words of them
 * sums_stride   floats between rows
 * first         sums hold nothing yet
 */
#define LINEAR_ARGS                                                                                \
    const char *w, size_t panel_bytes, const float *x, int64_t x_stride, int64_t n, float *sums,   \
        int64_t sums_stride, int first, linear_fetch fetch
typedef void (*linear_kernel)(LINEAR_ARGS);

/* clang-format off */
#define ROWS_1(f, p) f(p, 0)
#define ROWS_2(f, p) ROWS_1(f, p) f(p, 1)
#define ROWS_3(f, p) ROWS_2(f, p) f(p, 2)
#define ROWS_4(f, p) ROWS_3(f, p) f(p, 3)
#define ROWS_5(f, p) ROWS_4(f, p) f(p, 4)
#define ROWS_6(f, p) ROWS_5(f, p) f(p, 5)
#define ROWS_7(f, p) ROWS_6(f, p) f(p, 6)
#define ROWS_8(f, p) ROWS_7(f, p) f(p, 7)
#define PANELS_1(f, rows) f(rows, 0)
#define PANELS_2(f, rows) PANELS_1(f, rows) f(rows, 1)
#define PANELS_3(f, rows) PANELS_2(f, rows) f(rows, 2)
#define PANELS_4(f, rows) PANELS_3(f, rows) f(rows, 3)
#define PANELS_5(f, rows) PANELS_4(f, rows) f(rows, 4)
#define PANELS_6(f, rows) PANELS_5(f, rows) f(rows, 5)
#define PANELS_7(f, rows) PANELS_6(f, rows) f(rows, 6)
#define PANELS_8(f, rows) PANELS_7(f, rows) f(rows, 7)
/* clang-format on */

#define X_POINTER(p, r) const float *x##r = x + r * x_stride;
#define X_LOAD(p, r) const vf b##r = v_broadcast(x##r + i);
#define W_POINTER(rows, p) const char *w##p = w + p * panel_bytes;
#define SUMS(p, r) vf s##p##r##_0 = v_zero(), s##p##r##_1 = v_zero(), s##p##r##_2 = v_zero();
#define SUMS_OF(rows, p) ROWS_##rows(SUMS, p)

/* One vector of w meets every row. */
#define FMA_0(p, r) s##p##r##_0 = v_step(w_0, b##r, s##p##r##_0);
#define FMA_1(p, r) s##p##r##_1 = v_step(w_1, b##r, s##p##r##_1);
#define FMA_2(p, r) s##p##r##_2 = v_step(w_2, b##r, s##p##r##_2);
#define FMA_EACH(p, r)                                                                             \
    {                                                                                              \
        const vf b##r = v_broadcast(x##r + i);                                                     \
        FMA_0(p, r) FMA_1(p, r) FMA_2(p, r)                                                        \
    }
#define W_VECTOR(p, v) v_load_type(W_TYPE, w##p + v * LANES * W_BYTES, LANES)

#define FETCH(p)                                                                                   \
    for (int line = 0; line < LINEAR_LINES(W_BYTES); line++)                                       \
        V_PREFETCH_L1(w##p + fetch.ahead + line * fetch.apart);
#define NO_FETCH(p)

/* Several panels: each element of x stays in a register. */
#define WIDE_VECTOR(rows, p, v)                                                                    \
    {                                                                                              \
        const vf w_##v = W_VECTOR(p, v);                                                           \
        ROWS_##rows(FMA_##v, p)                                                                    \
    }
#define STEP_WIDE(rows, p)                                                                         \
    {                                                                                              \
        FETCH(p)                                                                                   \
        WIDE_VECTOR(rows, p, 0)                                                                    \
        WIDE_VECTOR(rows, p, 1)                                                                    \
        WIDE_VECTOR(rows, p, 2)                                                                    \
        w##p += LINEAR_PANEL * W_BYTES;                                                            \
    }
/* One panel: its three vectors do. */
#define STEP_TALL(rows, ask)                                                                       \
    {                                                                                              \
        ask(0) vf w_0 = W_VECTOR(0, 0), w_1 = W_VECTOR(0, 1), w_2 = W_VECTOR(0, 2);                \
        V_IN_REGISTER(w_0)                                                                         \
        V_IN_REGISTER(w_1)                                                                         \
        V_IN_REGISTER(w_2) ROWS_##rows(FMA_EACH, 0) w0 += LINEAR_PANEL * W_BYTES;                  \
    }

#define ADD(p, r, from)                                                                            \
    {                                                                                              \
        s##p##r##_0 = v_add(v_load(from), s##p##r##_0);                                            \
        s##p##r##_1 = v_add(v_load(from + LANES), s##p##r##_1);                                    \
        s##p##r##_2 = v_add(v_load(from + 2 * LANES), s##p##r##_2);                                \
    }
#define STORE(p, r, to)                                                                            \
    {                                                                                              \
        v_store(to, s##p##r##_0);                                                                  \
        v_store(to + LANES, s##p##r##_1);                                                          \
        v_store(to + 2 * LANES, s##p##r##_2);                                                      \
    }
#define PUT(p, r)                                                                                  \
    {                                                                                              \
        float *to = sums + r * sums_stride + p * LINEAR_PANEL;                                     \
        if (!first)                                                                                \
            ADD(p, r, to)                                                                          \
        STORE(p, r, to)                                                                            \
    }
#define PUT_OF(rows, p) ROWS_##rows(PUT, p)

#define DEFINE_WIDE(name, rows, panels)                                                            \
    V_NOINLINE void name(LINEAR_ARGS)                                                              \
    {                                                                                              \
        ROWS_##rows(X_POINTER, 0) PANELS_##panels(W_POINTER, 0) PANELS_##panels(SUMS_OF, rows);    \
        for (int64_t i = 0; i < n; i++, fetch.ahead -= fetch.slower) {                             \
            ROWS_##rows(X_LOAD, 0) PANELS_##panels(STEP_WIDE, rows)                                \
        }                                                                                          \
        PANELS_##panels(PUT_OF, rows)                                                              \
    }
#define DEFINE_TALL(name, rows)                                                                    \
    V_NOINLINE void name(LINEAR_ARGS)                                                              \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        (void)panel_bytes;                                                                         \
        ROWS_##rows(X_POINTER, 0) W_POINTER(0, 0) SUMS_OF(rows, 0);                                \
        for (; i < n; i++, fetch.ahead -= fetch.slower)                                            \
            STEP_TALL(rows, FETCH)                                                                 \
        PUT_OF(rows, 0)                                                                            \
    }

#define PUT_NEAR(p, r)                                                                             \
    {                                                                                              \
        const float *from = sums + r * sums_stride;                                                \
        float *to = out + r * out_stride;                                                          \
        if (!first)                                                                                \
            ADD(p, r, from)                                                                        \
        if (bias)                                                                                  \
            ADD(p, r, bias)                                                                        \
        STORE(p, r, to)                                                                            \
    }

/* One panel that is in a cache. Beside each input's products, one line of what comes next is asked
 * for: in bursts before them, the queue of misses would fill and the products wait for it.
 *
 * out, out_stride   where the sums go: back to `sums`, or from the last block on to y
 * bias              added behind all sums; NULL: none
 * next, next_step   an address, and by how many bytes it grows with each input
 */
#define NEAR_ARGS                                                                                  \
    const char *w, const float *x, int64_t x_stride, int64_t n, const float *sums,                 \
        int64_t sums_stride, int first, float *out, int64_t out_stride, const float *bias,         \
        const char *next, int64_t next_step
typedef void (*linear_near_kernel)(NEAR_ARGS);
#define DEFINE_NEAR(name, rows)                                                                    \
    V_NOINLINE void name(NEAR_ARGS)                                                                \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        const int64_t panel_bytes = 0;                                                             \
        ROWS_##rows(X_POINTER, 0) W_POINTER(0, 0) SUMS_OF(rows, 0);                                \
        V_UNROLL_4 for (; i < n; i++, next += next_step)                                           \
        {                                                                                          \
            V_PREFETCH_L2(next);                                                                   \
            STEP_TALL(rows, NO_FETCH)                                                              \
        }                                                                                          \
        ROWS_##rows(PUT_NEAR, 0)                                                                   \
    }

/* By rows: the kernels of one panel and of several, as many as registers hold sums of; and their table. */
/* clang-format off */
#define DEFINE_1_TO_4(t, rows)                                                                     \
    DEFINE_TALL(linear_##t##_##rows, rows)                                                         \
    DEFINE_WIDE(linear_##t##_##rows##_2, rows, 2)                                                  \
    DEFINE_WIDE(linear_##t##_##rows##_3, rows, 3)                                                  \
    DEFINE_WIDE(linear_##t##_##rows##_4, rows, 4)
#define DEFINE_1_TO_2(t, rows)                                                                     \
    DEFINE_TALL(linear_##t##_##rows, rows)                                                         \
    DEFINE_WIDE(linear_##t##_##rows##_2, rows, 2)
#define OF_4(t, rows)                                                                              \
    linear_##t##_##rows, linear_##t##_##rows##_2, linear_##t##_##rows##_3, linear_##t##_##rows##_4
#define OF_2(t, rows) linear_##t##_##rows, linear_##t##_##rows##_2
#if HEED_LINEAR_FEW(LANES) == 8
#define DEFINE_KERNELS(t)                                                                          \
    DEFINE_1_TO_4(t, 1)                                                                            \
    DEFINE_WIDE(linear_##t##_1_5, 1, 5)                                                            \
    DEFINE_WIDE(linear_##t##_1_6, 1, 6)                                                            \
    DEFINE_WIDE(linear_##t##_1_7, 1, 7)                                                            \
    DEFINE_WIDE(linear_##t##_1_8, 1, 8)                                                            \
    DEFINE_1_TO_4(t, 2)                                                                            \
    DEFINE_1_TO_2(t, 3)                                                                            \
    DEFINE_1_TO_2(t, 4)                                                                            \
    DEFINE_TALL(linear_##t##_5, 5)                                                                 \
    DEFINE_TALL(linear_##t##_6, 6)                                                                 \
    DEFINE_TALL(linear_##t##_7, 7)                                                                 \
    DEFINE_TALL(linear_##t##_8, 8)
#define TABLE(t)                                                                                   \
    {{8, {OF_4(t, 1), linear_##t##_1_5, linear_##t##_1_6, linear_##t##_1_7, linear_##t##_1_8}},    \
     {4, {OF_4(t, 2)}}, {2, {OF_2(t, 3)}}, {2, {OF_2(t, 4)}}, {1, {linear_##t##_5}},               \
     {1, {linear_##t##_6}}, {1, {linear_##t##_7}}, {1, {linear_##t##_8}}}
#else
#define DEFINE_KERNELS(t)                                                                          \
    DEFINE_1_TO_4(t, 1)                                                                            \
    DEFINE_1_TO_2(t, 2)                                                                            \
    DEFINE_TALL(linear_##t##_3, 3)                                                                 \
    DEFINE_TALL(linear_##t##_4, 4)
#define TABLE(t)                                                                                   \
    {{4, {OF_4(t, 1)}}, {2, {OF_2(t, 2)}}, {1, {linear_##t##_3}}, {1, {linear_##t##_4}}}
#endif
/* clang-format on */

/* Every kernel for weights of one type. */
#define W_TYPE HEED_F32
#define W_BYTES 4
DEFINE_KERNELS(f32)
#undef W_TYPE
#undef W_BYTES
#ifndef HEED_SIMD_DOT
#define W_TYPE HEED_F16
#define W_BYTES 2
DEFINE_KERNELS(f16)
#undef W_TYPE
#define W_TYPE HEED_BF16
DEFINE_KERNELS(bf16)
#undef W_TYPE
#undef W_BYTES
#endif

typedef struct linear_kernels {
    int64_t panels;      /* the most that one takes */
    linear_kernel of[8]; /* by their number, from 1 */
} linear_kernels;

/* For a block of a panel that is in a cache, by number of rows. */
#define W_TYPE HEED_F32
#define W_BYTES 4
DEFINE_NEAR(linear_near_1, 1)
DEFINE_NEAR(linear_near_2, 2)
DEFINE_NEAR(linear_near_3, 3)
DEFINE_NEAR(linear_near_4, 4)
#if HEED_LINEAR_FEW(LANES) == 8
DEFINE_NEAR(linear_near_5, 5)
DEFINE_NEAR(linear_near_6, 6)
DEFINE_NEAR(linear_near_7, 7)
DEFINE_NEAR(linear_near_8, 8)
#endif
static const linear_near_kernel linear_near[HEED_LINEAR_FEW(LANES)] = {
    linear_near_1, linear_near_2, linear_near_3, linear_near_4,
#if HEED_LINEAR_FEW(LANES) == 8
    linear_near_5, linear_near_6, linear_near_7, linear_near_8,
#endif
};
#undef W_TYPE
#undef W_BYTES

/* By type of w (from HEED_F32) and number of rows (from 1). */
static const linear_kernels linear_table[][HEED_LINEAR_FEW(LANES)] = {
    TABLE(f32),
#ifndef HEED_SIMD_DOT
    TABLE(f16),
    TABLE(bf16),
#endif
};

#endif
