/*
 * The tile unit: eight registers of 16 rows x 64 bytes and the bf16 product, on the instructions or
 * on plain loops (HEED_AMX_MODEL), so that the same kernels run on any machine.
 *
 * The model follows the pseudo-code of TDPBF16PS in the Intel 64 and IA-32 Architectures Software
 * Developer's Manual, volume 2: even and odd elements of a row are summed apart, from zero, by fused
 * multiply-adds; their sum is added to the accumulator. Denormal inputs, accumulators and results
 * count as zero, rounding is to nearest even, MXCSR has no say. tests/amx compares it with the
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
#define TILE_BYTES 1024 /* 16 rows of 64 bytes, stored without gaps */

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
 * moved before the store that it depends on. These say so. */
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

/* A host may configure its tiles once for each thread and count on it: what it has is put back by
 * tile_end. What its registers hold is lost, which no caller of a function can count on. */
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

/* Where nothing was configured, the thread has no tile state afterwards that the system would have to
 * save. */
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

/* What the calling thread has done: tests reason from it where nothing can be timed. */
typedef struct amx_model_count {
    int64_t in_use; /* whose configuration there is: 0 nobody's, 1 ours, other numbers a host's */
    int64_t begins, ends, products, loads, stores;
} amx_model_count;

extern _Thread_local amx_model_count AMX_NAME(count);

static inline float model_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t model_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Denormals become zeros of their sign. */
static inline float model_flush(float x)
{
    uint32_t bits = model_bits(x);
    return bits & 0x7f800000u ? x : model_float(bits & 0x80000000u);
}

/* The larger quiet NaN rules of the unit's fused multiply-add are those of x86: the first NaN among
 * multiplicand, multiplier and addend, made quiet; an invalid operation gives the negative default. */
static inline float model_fma(float a, float b, float c)
{
    float y, product = a * b;
    if (a != a || b != b || c != c)
        return model_float(model_bits(a != a ? a : b != b ? b : c) | 0x400000u);
    /* A product of two bf16 values has 16 significant bits: unless it leaves the exponent range it
     * is exact in f32, and adding it rounds once. */
    if (fabsf(product) <= 0x1p126f && (fabsf(product) >= 0x1p-100f || a == 0 || b == 0))
        y = product + c;
    else
        y = fmaf(a, b, c);
    return y != y ? model_float(0xffc00000u) : model_flush(y);
}

static inline float model_add(float a, float b)
{
    float y = a + b;
    if (a != a || b != b)
        return model_float(model_bits(a != a ? a : b) | 0x400000u);
    return y != y ? model_float(0xffc00000u) : model_flush(y);
}

static inline void tile_load(tile_unit *unit, int n, const void *p, int64_t row_bytes)
{
    AMX_NAME(count).loads++;
    for (int row = 0; row < TILE_ROWS; row++)
        memcpy(unit->reg[n][row], (const char *)p + row * row_bytes, 64);
}

static inline void tile_store(tile_unit *unit, int n, void *p, int64_t row_bytes)
{
    AMX_NAME(count).stores++;
    for (int row = 0; row < TILE_ROWS; row++)
        memcpy((char *)p + row * row_bytes, unit->reg[n][row], 64);
}

static inline void tile_zero(tile_unit *unit, int n)
{
    memset(unit->reg[n], 0, sizeof unit->reg[n]);
}

static inline void tile_product(tile_unit *unit, int c, int a, int b)
{
    float odd_b[16][16], even_b[16][16];
    AMX_NAME(count).products++;
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < 16; n++) {
            even_b[k][n] = model_flush(model_float(unit->reg[b][k][n] << 16));
            odd_b[k][n] = model_flush(model_float(unit->reg[b][k][n] & 0xffff0000u));
        }
    for (int m = 0; m < TILE_ROWS; m++) {
        float even[16] = {0}, odd[16] = {0};
        for (int k = 0; k < 16; k++) {
            float even_a = model_flush(model_float(unit->reg[a][m][k] << 16));
            float odd_a = model_flush(model_float(unit->reg[a][m][k] & 0xffff0000u));
            for (int n = 0; n < 16; n++) {
                even[n] = model_fma(even_a, even_b[k][n], even[n]);
                odd[n] = model_fma(odd_a, odd_b[k][n], odd[n]);
            }
        }
        for (int n = 0; n < 16; n++) {
            float sum = model_add(even[n], odd[n]);
            float old = model_flush(model_float(unit->reg[c][m][n]));
            unit->reg[c][m][n] = model_bits(model_add(old, sum));
        }
    }
}

/* Garbage, as the hardware may hold before it is configured would be zeros: an accumulator that is
 * not cleared then shows in the results of the model. */
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
#endif
