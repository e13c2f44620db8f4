/*
 * The tile unit: eight registers of 16 rows x 64 bytes and the bf16 product, on the instructions or
 * on plain loops (HEED_AMX_MODEL), so that the same kernels run on any machine.
 *
 * The model follows the pseudo-code of TDPBF16PS in the Intel 64 and IA-32 Architectures Software
 * Developer's Manual, volume 2: even and odd elements of a row are summed apart, from zero, by fused
 * multiply-adds; their sum is added to the accumulator. Denormal inputs, accumulators and results
 * count as zero, rounding is to nearest even, MXCSR has no effect. tests/amx compares it with the
 * hardware bit for bit.
 *
 * Every register is used with its full 16 x 64 bytes: fewer columns would not be faster, and rows
 * that a problem does not have are zeros in memory.
 */
#ifndef HEED_AMX_TILE_H
#define HEED_AMX_TILE_H

#include "amx.h"

#include <stdint.h>

#define TILE_ROWS 16

#ifndef HEED_AMX_MODEL

/* What LDTILECFG reads and STTILECFG writes. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

typedef struct tile_unit {
    tile_config before; /* the thread's configuration when we came; all zero: none */
} tile_unit;

/* The compilers' tile intrinsics do not say that they touch memory (gcc 12), so that a load could be
 * moved before the store that it depends on. These macros do. */
#define tile_load(unit, n, p, row_bytes)                                                           \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #n                                               \
                     :                                                                             \
                     : "r"(p), "r"((int64_t)(row_bytes))                                           \
                     : "memory")
#define tile_store(unit, n, p, row_bytes)                                                          \
    __asm__ volatile("tilestored %%tmm" #n ", (%0,%1,1)" ::"r"(p), "r"((int64_t)(row_bytes))       \
                     : "memory")
#define tile_zero(unit, n) __asm__ volatile("tilezero %%tmm" #n ::)
/* Accumulator c += rows of a times columns of b. */
#define tile_product(unit, c, a, b)                                                                \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

/* A host may configure its tiles once per thread and rely on that, so tile_end restores its
 * configuration. The contents of its tile registers are lost: no caller may expect a function to
 * keep them. */
static inline void tile_begin(tile_unit *unit)
{
    tile_config config = {.palette = 1};
    for (int n = 0; n < 8; n++) {
        config.row_bytes[n] = 64;
        config.rows[n] = TILE_ROWS;
    }
    __asm__ volatile("sttilecfg %0" : "=m"(unit->before));
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

/* Where nothing was configured before, the tiles are released, so that the thread has no tile state
 * that the system would have to save. */
static inline void tile_end(const tile_unit *unit)
{
    if (unit->before.palette != 0)
        __asm__ volatile("ldtilecfg %0" ::"m"(unit->before));
    else
        __asm__ volatile("tilerelease" ::);
}

#else

#include <math.h>
#include <string.h>

typedef struct tile_unit {
    uint32_t reg[8][16][16];
    int64_t before; /* the thread's in_use when we came */
} tile_unit;

/* Counts what the calling thread has done, for tests, which cannot time the model. */
typedef struct amx_model_count {
    int64_t in_use; /* whose configuration is loaded: 0 nobody's, 1 ours, other numbers a host's */
    int64_t begins, ends, products, loads;
} amx_model_count;

extern _Thread_local amx_model_count AMX_NAME(count);

/* Denormals become zeros of their sign. */
static inline float model_flush(float x)
{
    uint32_t bits = heed_bits_of_f32(x);
    return bits & 0x7f800000u ? x : heed_f32_of_bits(bits & 0x80000000u);
}

/* NaNs follow the rules of x86's fused multiply-add: the result is the first NaN among
 * multiplicand, multiplier and addend, made quiet; invalid operations give the negative default. */
static inline float model_fma(float a, float b, float c)
{
    float y, product = a * b;
    if (a != a || b != b || c != c)
        return heed_f32_of_bits(heed_bits_of_f32(a != a ? a : b != b ? b : c) | 0x400000u);
    /* A product of two bf16 values has 16 significant bits: unless it leaves the exponent range it
     * is exact in f32, and adding it rounds once. */
    if (fabsf(product) <= 0x1p126f && (fabsf(product) >= 0x1p-100f || a == 0 || b == 0))
        y = product + c;
    else
        y = fmaf(a, b, c);
    return y != y ? heed_f32_of_bits(0xffc00000u) : model_flush(y);
}

static inline float model_add(float a, float b)
{
    float y = a + b;
    if (a != a || b != b)
        return heed_f32_of_bits(heed_bits_of_f32(a != a ? a : b) | 0x400000u);
    return y != y ? heed_f32_of_bits(0xffc00000u) : model_flush(y);
}

static inline void tile_load(tile_unit *unit, int n, const void *p, int64_t row_bytes)
{
    AMX_NAME(count).loads++;
    for (int row = 0; row < TILE_ROWS; row++)
        memcpy(unit->reg[n][row], (const char *)p + row * row_bytes, 64);
}

static inline void tile_store(tile_unit *unit, int n, void *p, int64_t row_bytes)
{
    for (int row = 0; row < TILE_ROWS; row++)
        memcpy((char *)p + row * row_bytes, unit->reg[n][row], 64);
}

static inline void tile_zero(tile_unit *unit, int n)
{
    memset(unit->reg[n], 0, sizeof unit->reg[n]);
}

/* The least and the greatest stored exponent among the elements of n words that are not 0. If all
 * are 0, these are exponents that model_is_tame accepts beside those of any normal numbers. */
typedef struct model_sizes {
    uint32_t least, most;
} model_sizes;

static inline model_sizes model_sizes_of(const uint32_t *words, int n)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t odd = words[i] & 0x7fff0000u, even = words[i] << 16 & 0x7fff0000u;
        least = odd - 1 < least ? odd - 1 : least; /* 0 - 1 wraps round: zeros do not count */
        least = even - 1 < least ? even - 1 : least;
        most = odd > most ? odd : most;
        most = even > most ? even : most;
    }
    return least == UINT32_MAX ? (model_sizes){254, 1} : (model_sizes){(least + 1) >> 23, most >> 23};
}

/* Can 32 products of numbers of these sizes be summed in plain arithmetic, unless a sum ends as a
 * NaN? The products are exact, from 2^-110 to below 2^122: multiplying and then adding rounds as a
 * fused multiply-add does, and no sum is denormal. */
static inline int model_is_tame(model_sizes a, model_sizes b)
{
    return a.least >= 1 && b.least >= 1 && a.least + b.least >= 144 && a.most + b.most <= 374;
}

/* Adds one row of the product to that row of the accumulator. */
static inline void model_row(const uint32_t a[16], float (*even_b)[16], float (*odd_b)[16],
                             uint32_t to[16])
{
    float even[16] = {0}, odd[16] = {0};
    for (int k = 0; k < 16; k++) {
        const float even_a = model_flush(heed_f32_of_bits(a[k] << 16));
        const float odd_a = model_flush(heed_f32_of_bits(a[k] & 0xffff0000u));
        for (int n = 0; n < 16; n++) {
            even[n] = model_fma(even_a, model_flush(even_b[k][n]), even[n]);
            odd[n] = model_fma(odd_a, model_flush(odd_b[k][n]), odd[n]);
        }
    }
    for (int n = 0; n < 16; n++)
        to[n] = heed_bits_of_f32(
            model_add(model_flush(heed_f32_of_bits(to[n])), model_add(even[n], odd[n])));
}

/* The same for tame elements, in loops that compilers vectorise. Returns 0 and changes nothing if a
 * NaN is in the accumulator or comes out. */
static inline int model_tame_row(const uint32_t a[16], float (*even_b)[16], float (*odd_b)[16],
                                 uint32_t to[16])
{
    float even[16] = {0}, odd[16] = {0};
    uint32_t all[16];
    int nan = 0;
    for (int k = 0; k < 16; k++) {
        const float even_a = heed_f32_of_bits(a[k] << 16),
                    odd_a = heed_f32_of_bits(a[k] & 0xffff0000u);
        for (int n = 0; n < 16; n++) {
            even[n] = even_a * even_b[k][n] + even[n];
            odd[n] = odd_a * odd_b[k][n] + odd[n];
        }
    }
    for (int n = 0; n < 16; n++) {
        const float y = model_flush(heed_f32_of_bits(to[n])) + (even[n] + odd[n]);
        nan |= y != y;
        all[n] = heed_bits_of_f32(model_flush(y));
    }
    if (!nan)
        memcpy(to, all, sizeof all);
    return !nan;
}

static inline void tile_product(tile_unit *unit, int c, int a, int b)
{
    float even_b[16][16], odd_b[16][16];
    const model_sizes sizes = model_sizes_of(unit->reg[b][0], 16 * 16);
    AMX_NAME(count).products++;
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < 16; n++) {
            even_b[k][n] = heed_f32_of_bits(unit->reg[b][k][n] << 16);
            odd_b[k][n] = heed_f32_of_bits(unit->reg[b][k][n] & 0xffff0000u);
        }
    for (int m = 0; m < TILE_ROWS; m++) {
        const uint32_t *row = unit->reg[a][m];
        if (!model_is_tame(model_sizes_of(row, 16), sizes) ||
            !model_tame_row(row, even_b, odd_b, unit->reg[c][m]))
            model_row(row, even_b, odd_b, unit->reg[c][m]);
    }
}

/* Fills the registers with garbage. The hardware clears them when it is configured, which would
 * hide an accumulator that the kernels forget to clear; on the model it shows in the results. */
static inline void tile_begin(tile_unit *unit)
{
    memset(unit, 0x41, sizeof *unit);
    unit->before = AMX_NAME(count).in_use;
    AMX_NAME(count).in_use = 1;
    AMX_NAME(count).begins++;
}

static inline void tile_end(tile_unit *unit)
{
    AMX_NAME(count).in_use = unit->before;
    AMX_NAME(count).ends++;
    memset(unit, 0x7f, sizeof *unit);
}

#endif

/* Registers 0 to 3. */
#define TILE_ZERO_4(unit)                                                                          \
    tile_zero(unit, 0);                                                                            \
    tile_zero(unit, 1);                                                                            \
    tile_zero(unit, 2);                                                                            \
    tile_zero(unit, 3);

#endif
