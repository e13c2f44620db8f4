/* A tile of a linear layer has the same bits in every order in which a CPU would have its products formed:
 * all rows block by block, or some rows with all blocks, x copied or as it lies. Nothing is written behind
 * scratch memory. */
#include <heed/kit.h>

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../backends/simd/simd.h"
#include "../kit/random.h"
#include "here.h"

/* A row of x is APART numbers long, whole pages of memory, or has a gap behind it. */
enum { MOST_IN = 1100, OUT = 150, MOST_PANEL = 48, MOST_ROWS = 37, APART = 2048, BEHIND = 4096 };

static float x[MOST_ROWS * APART], w[MOST_IN * OUT], residual[MOST_ROWS * OUT];
static float bias[OUT + MOST_PANEL]; /* of whole panels */

/* A kernel, and what it takes a word of; pairs: bf16 products of two inputs. */
typedef struct kernel {
    const char *name;
    uint32_t lanes, word;
    heed_simd_linear_run *run;
} kernel;

typedef struct shape {
    uint32_t in_dim, x_type, w_type, y_type;
    int64_t rows, x_stride;
    int with_residual;
} shape;

static void *must_have(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory)
        exit(99);
    return memory;
}

static void fill(uint32_t type, void *data, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        heed_store(type, data, i, kit_next_float(&seed));
}

/* Packs the weights into panels. */
static char *pack(const kernel *k, const heed_simd_tuning *tuning,
                  const heed_linear_problem *problem, const heed_linear_tiling *tiling)
{
    const heed_linear_weight weight = {w, OUT, 1, 0, OUT};
    const int64_t cols = tiling->panel_cols, panels = (OUT + cols - 1) / cols;
    char *packed = must_have((size_t)panels * tiling->panel_bytes);
    for (int64_t p = 0; p < panels; p++) {
        const int64_t end = (p + 1) * cols < OUT ? (p + 1) * cols : OUT;
        (k->word == 2 ? heed_simd_linear_bf16_pack : heed_simd_linear_pack)(
            tuning, problem, &weight, p * cols, end, packed + (size_t)p * tiling->panel_bytes);
    }
    return packed;
}

/* Forms y in one of the orders. Returns how many bytes of scratch behind what the kernel asked for it has
 * changed. */
static size_t run(const kernel *k, const heed_simd_tuning *tuning, const shape *s, char *y)
{
    const heed_linear_problem problem = {.struct_size = sizeof problem,
                                         .in_dim = s->in_dim,
                                         .out_dim = OUT,
                                         .x_type = s->x_type,
                                         .w_type = s->w_type,
                                         .y_type = s->y_type,
                                         .accuracy = k->word == 2 ? HEED_ACCURACY_BF16
                                                                  : HEED_ACCURACY_EXACT};
    heed_linear_tiling tiling = {.struct_size = sizeof tiling};
    (k->word == 2 ? heed_simd_linear_bf16_tiling : heed_simd_linear_tiling)(tuning, &problem,
                                                                            &tiling);
    char *packed = pack(k, tuning, &problem, &tiling);
    const size_t used = (tiling.scratch_bytes + 63) / 64 * 64;
    unsigned char *scratch = must_have(used + BEHIND);
    memset(scratch, 0xff, used); /* NaN */
    memset(scratch + used, 0xa5, BEHIND);
    const heed_linear_tile tile = {.struct_size = sizeof tile,
                                   .rows = s->rows,
                                   .col_end = OUT,
                                   .x = {x, s->x_stride, 1},
                                   .y = {y, OUT + 1, 1},
                                   .residual = {s->with_residual ? residual : NULL, OUT, 1},
                                   .packed = packed,
                                   .bias = bias};
    size_t changed = k->run(tuning, NULL, &problem, &tile, scratch) != HEED_OK;
    for (size_t i = used; i < used + BEHIND; i++)
        changed += scratch[i] != 0xa5;
    free(scratch);
    free(packed);
    return changed;
}

/* Compares the orders on one shape. Returns how many differ. */
static int check(const kernel *k, const shape *s)
{
    static float y[2][MOST_ROWS * (OUT + 1)];
    const heed_simd_tuning orders[] = {
        {.lanes = k->lanes, .linear_blocks = 1},
        {.lanes = k->lanes, .linear_blocks = 1, .x_any_sets = 1},
        {.lanes = k->lanes, .linear_blocks = 3, .x_any_sets = 1},
        {.lanes = k->lanes, .linear_blocks = 4},
        {.lanes = k->lanes, .linear_blocks = 4, .x_any_sets = 1},
    };
    int bad = 0;
    fill(s->x_type, x, MOST_ROWS * APART, 1);
    fill(s->w_type, w, MOST_IN * OUT, 2);
    fill(s->y_type, residual, MOST_ROWS * OUT, 3);
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        memset(y[o > 0], 0x77, sizeof y[0]);
        const size_t changed = run(k, &orders[o], s, (char *)y[o > 0]);
        const int differs = o > 0 && memcmp(y[0], y[1], sizeof y[0]) != 0;
        if (changed || differs)
            printf("%s, %u inputs, x %u, w %u, y %u, %lld rows %lld apart, order %zu: %s\n",
                   k->name, s->in_dim, s->x_type, s->w_type, s->y_type, (long long)s->rows,
                   (long long)s->x_stride, o, changed ? "scratch is overrun" : "y differs");
        bad += changed || differs;
    }
    return bad;
}

static int all(const kernel *k)
{
    static const uint32_t in_dims[] = {255, 256, 384, 600, 1024, MOST_IN};
    static const int64_t rows[] = {9, 16, MOST_ROWS}, strides[] = {MOST_IN + 164, APART};
    const int pairs = k->word == 2;
    int bad = 0, n = 0;
    for (size_t i = 0; i < sizeof in_dims / sizeof *in_dims; i++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int which = 0; which < 16; which++, n++) {
                const shape s = {.in_dim = in_dims[i],
                                 .x_type = pairs || which & 1 ? HEED_BF16 : HEED_F32,
                                 .w_type = pairs || which & 2 ? HEED_BF16 : HEED_F32,
                                 .y_type = which & 4 ? HEED_BF16 : HEED_F32,
                                 .rows = rows[r],
                                 .x_stride = strides[which >> 3],
                                 .with_residual = which >> 2 & 1};
                bad += check(k, &s);
            }
    printf("%s: %d layers in each order, %d differ\n", k->name, n, bad);
    return bad;
}

int main(void)
{
    static const kernel avx2 = {"AVX2", 8, 1, heed_linear_tile_avx2};
    static const kernel avx512 = {"AVX-512", 16, 1, heed_linear_tile_avx512};
    if (!runs_here(8))
        return 77;
    fill(HEED_F32, bias, OUT, 4);
    int bad = all(&avx2);
    if (runs_here(16))
        bad += all(&avx512);
#if HEED_AVX512_HAVE_DOT
    static const kernel dot = {"pairs", 16, 2, heed_linear_tile_dot_avx512};
    if (runs_here(16) && __builtin_cpu_supports("avx512bf16"))
        bad += all(&dot);
#endif
    return bad != 0;
}
