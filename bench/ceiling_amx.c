/* Two loops of tdpbf16ps: one with operands that stay in tiles, and one that loads them as a block
 * of 2 x 2 result tiles needs them.
 *
 * Work      a round is 8 products. In registers: 6 accumulators, operands of zeros. Fed: two steps
 *           of 2 loads of A, 2 of B and 4 products, random data, all from L1 (16 KiB).
 * Compiled  with -mamx-tile -mamx-bf16; runs only after ceiling.c has the kernel's permission.
 *           Leaves no tile state behind.
 */
#include <immintrin.h>
#include <stdint.h>

#include "ceiling_kernels.h"

/* Configures palette 1: 8 tiles of 16 rows of 64 bytes. */
static void configure(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    _tile_loadconfig(&config);
}

static float finish(void)
{
    _Alignas(64) float result[256];
    _tile_stored(0, result, 64);
    __asm__ volatile("" : : : "memory"); /* the compiler does not know that the intrinsic writes */
    _tile_release();
    return result[0];
}

float heed_ceiling_run_amx_bf16(size_t iterations)
{
    configure();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (size_t n = 0; n < iterations; n++) {
        _tile_dpbf16ps(0, 6, 7);
        _tile_dpbf16ps(1, 6, 7);
        _tile_dpbf16ps(2, 6, 7);
        _tile_dpbf16ps(3, 6, 7);
        _tile_dpbf16ps(0, 6, 7);
        _tile_dpbf16ps(1, 6, 7);
        _tile_dpbf16ps(2, 6, 7);
        _tile_dpbf16ps(3, 6, 7);
    }
    return finish();
}

_Alignas(64) static uint16_t a[4][512], b[4][512];

/* Random numbers of +-[1, 2) * 2^-8: their sums stay far from overflow. */
static void fill(uint16_t *x, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (uint16_t)(0x3b80u | (seed >> 24 & 0x7f) | (seed >> 8 & 0x8000u));
    }
}

void heed_ceiling_prepare_amx_bf16_fed(void)
{
    fill(a[0], 4 * 512, 1);
    fill(b[0], 4 * 512, 2);
}

float heed_ceiling_run_amx_bf16_fed(size_t iterations)
{
    configure();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t n = 0; n < iterations; n++) {
        _tile_loadd(4, a[0], 64);
        _tile_loadd(6, b[0], 64);
        _tile_loadd(7, b[1], 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a[1], 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        _tile_loadd(4, a[2], 64);
        _tile_loadd(6, b[2], 64);
        _tile_loadd(7, b[3], 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a[3], 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    return finish();
}
