/* The kernels on the model of the tile unit, in plain loops, against other builds of them, bit for
 * bit: whole tiles of attention and of linear layers on ordinary numbers and on NaN, infinities,
 * denormals and huge numbers.
 *
 *   model            the model alone: no tile state is left in use after a tile, and keys and
 *                    values in pages give the same bits
 *   model lanes      against the model compiled with AVX-512
 *   model emulated   against what is compiled for the hardware, on emulated tile instructions
 *   model hardware   against the hardware
 * The last two also check that a host's tile configuration is as it was, and that there is none
 * where there was none. What cannot run here is skipped.
 *
 *   model --here     can tile instructions be emulated here? */
#define HEED_AMX_MODEL /* its counters */
#include "base/cpu.h"
#include "emulate.h"
#include "tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../draw.h"

enum { ROWS = 70, KEYS = 700, DIM = 72, CASES = 24, PAGE = 20, PAGES = KEYS / PAGE };

static uint16_t q[ROWS][DIM], k[KEYS][DIM], v[KEYS][DIM];
static uint16_t k_paged[PAGES][PAGE][DIM], v_paged[PAGES][PAGE][DIM];
static int32_t pages[PAGES];

/* Case 0 is plain; others have rare special values, or scores that rise, fall or are far apart. */
static void fill(int c)
{
    static const uint16_t special[] = {0x7fc0, 0x7f80, 0xff80, 0x8000, 0x0001, 0x8040,
                                       0x7f00, 0xff00, 0x0080, 0xffc0, 0x7f81, 0x5f00};
    float scale_k = c % 4 == 3 ? 100.0f : 1.0f;
    for (int i = 0; i < ROWS; i++)
        for (int d = 0; d < DIM; d++)
            q[i][d] = heed_bf16_of_f32(normal());
    for (int j = 0; j < KEYS; j++)
        for (int d = 0; d < DIM; d++) {
            float x = normal() * scale_k;
            if (c % 6 == 4) /* later keys score higher (5: lower) for rows that point up */
                x = x * 0.1f + (float)j * 0.01f;
            if (c % 6 == 5)
                x = x * 0.1f - (float)j * 0.01f;
            k[j][d] = heed_bf16_of_f32(x);
            v[j][d] = heed_bf16_of_f32(normal());
            if (c % 3 == 1 && below(5000) == 0)
                k[j][d] = special[below(12)];
            if (c % 3 != 0 && below(2000) == 0)
                v[j][d] = special[below(12)];
        }
    if (c % 8 == 7)
        q[below(ROWS)][below(DIM)] = special[below(12)];
    for (int n = 0; n < PAGES; n++) {
        pages[n] = (n * 13 + c) % PAGES; /* 13 and 35 have no common factor */
        memcpy(k_paged[pages[n]], k[n * PAGE], sizeof k_paged[0]);
        memcpy(v_paged[pages[n]], v[n * PAGE], sizeof v_paged[0]);
    }
}

typedef heed_status run_tile(const void *machine, const void *state, const heed_problem *problem,
                             heed_tile *tile, void *scratch);

static void run(run_tile *kernel, int c, int paged, float out[ROWS][DIM], float lse[ROWS])
{
    const heed_backend *b = heed_amx_model_backend();
    heed_problem p = {.struct_size = sizeof p,
                      .features = HEED_HAS_LSE,
                      .q_heads = 1,
                      .kv_heads = 1,
                      .qk_dim = c % 2 ? DIM : 64,
                      .v_dim = c % 5 ? DIM : 33,
                      .q_type = HEED_BF16,
                      .k_type = HEED_BF16,
                      .v_type = HEED_BF16,
                      .out_type = HEED_F32,
                      .query_class = HEED_QUERY_MANY,
                      .accuracy = c % 4 == 2 ? HEED_ACCURACY_SPLIT : HEED_ACCURACY_BF16,
                      .scale = 0.125f,
                      .window_left = -1,
                      .window_right = -1};
    heed_tiling tiling = {.struct_size = sizeof tiling};
    static float row_max[ROWS], row_sum[ROWS], acc[ROWS][DIM];
    static const float scale = 1.0f / 64, zero = 3;
    if (c % 8 == 2) { /* the first DIM bytes of each row are codes, among them E4M3's NaNs */
        p.features |= HEED_HAS_QUANT;
        p.k_type = HEED_I8;
        p.v_type = HEED_F8_E4M3;
    }
    const int64_t row = p.k_type == HEED_I8 ? DIM * 2 : DIM;
    if (b->attn[0]->tiling(NULL, &p, &tiling) != HEED_OK)
        abort();
    void *scratch = aligned_alloc(64, (tiling.scratch_bytes + 63) / 64 * 64);
    heed_tile t = {.struct_size = sizeof t,
                   .flags = HEED_TILE_WHOLE,
                   .n_heads = 1,
                   .kv_heads = 1,
                   .group = 1,
                   .q_count = ROWS,
                   .q_len = ROWS,
                   .k_end = KEYS - c,
                   .kv_len = KEYS,
                   .q_offset = KEYS - ROWS - c,
                   .window_left = c % 7 == 6 ? 300 : HEED_UNBOUNDED,
                   .window_right = c % 2 ? 0 : HEED_UNBOUNDED,
                   .q = {q, 0, DIM, 1},
                   .k = {k, 0, row, 1},
                   .v = {v, 0, row, 1},
                   .k_quant = {.scale = &scale, .zero = &zero},
                   .v_quant = {.scale = &scale},
                   .out = {out, 0, DIM, 1},
                   .lse = {lse, 0, 1, 0},
                   .row_max = row_max,
                   .row_sum = row_sum,
                   .acc = acc[0],
                   .acc_stride = DIM};
    if (paged) {
        p.page_len = PAGE;
        t.pages = pages;
        t.k_page_stride = t.v_page_stride = PAGE * row;
        t.k.data = k_paged;
        t.v.data = v_paged;
    }
    if (!scratch || kernel(NULL, NULL, &p, &t, scratch) != HEED_OK ||
        !(t.flags & HEED_TILE_FINISHED))
        abort();
    free(scratch);
}

static int same(float a, float b)
{
    return a != a ? b != b : heed_bits_of_f32(a) == heed_bits_of_f32(b);
}

/* How many values differ; the first five are shown. lse may be NULL. */
static int report_differences(const char *what, int c, const char *x_name, float x[ROWS][DIM],
                              const float *x_lse, const char *y_name, float y[ROWS][DIM],
                              const float *y_lse)
{
    int bad = 0;
    for (int i = 0; i < ROWS; i++)
        for (int d = x_lse ? -1 : 0; d < DIM; d++) {
            float a = d < 0 ? x_lse[i] : x[i][d], b = d < 0 ? y_lse[i] : y[i][d];
            if (!same(a, b) && bad++ < 5)
                printf("%s %d row %d dim %d: %s %a, %s %a\n", what, c, i, d, x_name, (double)a,
                       y_name, (double)b);
        }
    return bad;
}

typedef heed_status linear_tile(const void *machine, const void *state,
                                const heed_linear_problem *problem, const heed_linear_tile *tile,
                                void *scratch);

/* A linear layer: x is k with its special values, in the odd cases with three blocks of inputs; w
 * is v. */
static void run_linear(linear_tile *kernel, int c, float y[ROWS][DIM])
{
    const heed_backend *b = heed_amx_model_backend();
    heed_linear_problem p = {.struct_size = sizeof p,
                             .in_dim = c % 2 ? 600 : 70,
                             .out_dim = c % 3 ? DIM : 33,
                             .x_type = HEED_BF16,
                             .w_type = HEED_BF16,
                             .y_type = HEED_F32,
                             .accuracy = HEED_ACCURACY_BF16};
    heed_linear_weight weight = {v, DIM, 1, 0, p.out_dim};
    heed_linear_tiling tiling = {.struct_size = sizeof tiling};
    heed_linear_tile t = {.struct_size = sizeof t,
                          .rows = c % 4 ? ROWS : 5,
                          .col_end = p.out_dim,
                          .x = {k, DIM, 1},
                          .y = {y, DIM, 1}};
    if (b->linear[0]->tiling(NULL, &p, &tiling) != HEED_OK)
        abort();
    int64_t panels = (p.out_dim + tiling.panel_cols - 1) / tiling.panel_cols;
    char *packed = aligned_alloc(64, (size_t)panels * tiling.panel_bytes);
    void *scratch = aligned_alloc(64, tiling.scratch_bytes);
    t.packed = packed;
    if (!packed || !scratch)
        abort();
    for (int64_t n = 0; n < panels; n++) {
        int64_t first = n * tiling.panel_cols, end = first + tiling.panel_cols;
        b->linear[0]->pack(NULL, &p, &weight, first, end < p.out_dim ? end : p.out_dim,
                           packed + (size_t)n * tiling.panel_bytes);
    }
    if (kernel(NULL, NULL, &p, &t, scratch) != HEED_OK)
        abort();
    free(packed);
    free(scratch);
}

/* A host's tile configuration: in the odd cases there is one, with tiles that no kernel uses. */
static void host_config(int c, uint8_t config[64])
{
    memset(config, 0, 64);
    if (c % 2 == 0)
        return;
    config[0] = 1;
    for (int n = 0; n < 3; n++) {
        config[16 + 2 * n] = 32;
        config[48 + n] = (uint8_t)(c % 16 + 1);
    }
}

static void configure(int c)
{
    uint8_t config[64];
    host_config(c, config);
#ifdef __x86_64__
    __asm__ volatile("ldtilecfg (%0)" ::"r"(config) : "memory");
#endif
}

static int is_configured(int c)
{
    uint8_t config[64] = {2}, want[64];
    host_config(c, want);
#ifdef __x86_64__
    __asm__ volatile("sttilecfg (%0)" ::"r"(config) : "memory");
#endif
    return !memcmp(config, want, 64);
}

/* Does the measurement that decides take the emulated unit for fast? It is slow, so it must not. */
static int taken_for_fast(void)
{
    heed_error note = {""};
    double product_ns, fma_ns, factor;
    heed_rates_amx(&product_ns, &fma_ns);
    factor = heed_amx_judge(product_ns, fma_ns, &note);
    printf("%s\n", note.text);
    return factor == 1;
}

/* What the model is compared with. */
typedef struct build {
    const char *name;
    run_tile *kernel; /* NULL: nothing */
    linear_tile *linear;
    int on_unit; /* it uses tile instructions */
} build;

/* Returns 0, with the reason printed, if it cannot run here. */
static int find_build(const char *name, build *other)
{
    const void *machine = NULL;
    heed_error why = {""};
    heed_cpu cpu;
    const int emulated = !strcmp(name, "emulated");
    *other = (build){.name = name};
    heed_cpu_detect(&cpu);
    if ((emulated || !strcmp(name, "--here")) && heed_amx_emulate(&cpu, &machine, &why) != HEED_OK)
        goto cannot;
    if (!strcmp(name, "hardware") || emulated) {
        other->kernel = heed_amx_run_tile;
        other->linear = heed_amx_linear_tile;
        other->on_unit = 1;
    } else if (!strcmp(name, "lanes")) {
        other->kernel = heed_amx_lanes_run_tile;
        other->linear = heed_amx_lanes_linear_tile;
    }
    if (other->kernel && strcmp(name, "hardware") != 0)
        cpu.isa |= HEED_ISA_AMX_TILE | HEED_ISA_AMX_BF16;
    if (other->kernel && heed_amx_isa(&cpu, &why) != HEED_OK)
        goto cannot;
    if (!strcmp(name, "hardware") && heed_amx_backend()->open(&cpu, &machine, &why) != HEED_OK)
        goto cannot;
    return 1;
cannot:
    printf("cannot run here: %s\n", why.text);
    return 0;
}

/* Returns how much is wrong in case c; *compared counts the values. */
static int compare_case(const build *by, int c, int *compared)
{
    static float model[ROWS][DIM], other[ROWS][DIM], model_lse[ROWS], other_lse[ROWS];
    static float model_y[ROWS][DIM], other_y[ROWS][DIM];
    int bad = 0;
    fill(c);
    memset(model, 0, sizeof model);
    run(heed_amx_model_run_tile, c, 0, model, model_lse);
    memset(other, 0, sizeof other);
    run(heed_amx_model_run_tile, c, 1, other, other_lse);
    *compared += ROWS * (DIM + 1);
    bad += report_differences("case", c, "contiguous", model, model_lse, "paged", other, other_lse);
    if (heed_amx_model_count.in_use || heed_amx_model_count.begins != heed_amx_model_count.ends) {
        printf("case %d: tile state is left in use\n", c);
        bad++;
    }
    if (!by->kernel)
        return bad;
    if (by->on_unit)
        configure(c);
    run(by->kernel, c, 0, other, other_lse);
    if (by->on_unit && !is_configured(c) && ++bad)
        printf("case %d: attention does not put the tile configuration back\n", c);
    run_linear(heed_amx_model_linear_tile, c, model_y);
    run_linear(by->linear, c, other_y);
    if (by->on_unit && !is_configured(c) && ++bad)
        printf("case %d: a linear layer does not put the tile configuration back\n", c);
    *compared += ROWS * (2 * DIM + 1);
    bad += report_differences("case", c, "model", model, model_lse, by->name, other, other_lse);
    bad += report_differences("linear case", c, "model", model_y, NULL, by->name, other_y, NULL);
    return bad;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    build other;
    int bad = 0, compared = 0;
    if (!find_build(name, &other))
        return 77;
    if (!strcmp(name, "--here"))
        return 0;
    for (int c = 0; c < CASES; c++)
        bad += compare_case(&other, c, &compared);
    if (other.on_unit)
        configure(1);
    if (!strcmp(name, "emulated"))
        bad += taken_for_fast();
    if (other.on_unit && !is_configured(1) && ++bad)
        printf("measuring rates does not put the tile configuration back\n");
    printf("%d values compared, %d wrong\n", compared, bad);
    return bad != 0;
}
