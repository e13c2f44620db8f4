/* Two loops of f32 FMA on 512-bit registers: one with operands in registers, and one that loads
 * them as a register tile needs them.
 *
 * Work      24 accumulators. The fed form is the tile of 8 keys x 48 query rows: in each step 3
 * vector loads and 8 broadcasts for 24 FMAs, all from L1 (14 KiB). Some cores lower their clock for
 * it, so it is closer to what a real kernel can reach. Compiled  with -mavx512f -mavx512vl; runs
 * only after ceiling.c has asked the CPU.
 * */
#include <immintrin.h>

#include "ceiling_kernels.h"

#define EACH(F)                                                                                    \
    F(0)                                                                                           \
    F(1)                                                                                           \
    F(2)                                                                                           \
    F(3)                                                                                           \
    F(4)                                                                                           \
    F(5)                                                                                           \
    F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15) F(16) F(17) F(18) F(19) F(20) F(21)    \
        F(22) F(23)
#define START(i) __m512 acc##i = _mm512_set1_ps(factors[2] * (i + 1));
/* In volatile assembly, so that every compiler makes exactly this loop. */
#define FMA(acc, x, y) __asm__ volatile("vfmadd231ps %1, %2, %0" : "+v"(acc) : "v"(x), "v"(y));
#define STEP(i) FMA(acc##i, a, b)
#define ADD(i) sum = _mm512_add_ps(sum, acc##i);
#define ZERO(i) __m512 acc##i = _mm512_setzero_ps();

/* The sums grow by 2^-24 in each step, so they neither overflow nor become denormal. */
static volatile float factors[3] = {0x1p-12f, 0x1p-12f, 0.1f};

float heed_ceiling_run_fma_avx512(size_t iterations)
{
    const __m512 a = _mm512_set1_ps(factors[0]), b = _mm512_set1_ps(factors[1]);
    __m512 sum = _mm512_setzero_ps();
    EACH(START)
    for (size_t n = 0; n < iterations; n++) {
        EACH(STEP)
        EACH(STEP)
    }
    EACH(ADD)
    return _mm512_cvtss_f32(sum);
}

#define KEYS 8
#define ROWS 48
#define DIM 64
#define KEY(j, a0, a1, a2)                                                                         \
    k = _mm512_set1_ps(key[j * DIM + d]);                                                          \
    FMA(acc##a0, k, q0)                                                                            \
    FMA(acc##a1, k, q1)                                                                            \
    FMA(acc##a2, k, q2)

_Alignas(64) static float query[DIM * ROWS], key[KEYS * DIM];

static void fill(float *x, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) * 0x1p-23f - 1;
    }
}

void heed_ceiling_prepare_fma_avx512_fed(void)
{
    fill(query, DIM * ROWS, 1);
    fill(key, KEYS * DIM, 2);
}

float heed_ceiling_run_fma_avx512_fed(size_t iterations)
{
    __m512 sum = _mm512_setzero_ps(), k;
    EACH(ZERO)
    for (size_t n = 0; n < iterations; n++) {
        const float *q = query;
        __asm__ volatile("" : "+r"(q) : : "memory"); /* keeps the loads inside the loop */
        for (int d = 0; d < DIM; d++, q += ROWS) {
            const __m512 q0 = _mm512_load_ps(q), q1 = _mm512_load_ps(q + 16),
                         q2 = _mm512_load_ps(q + 32);
            KEY(0, 0, 1, 2)
            KEY(1, 3, 4, 5)
            KEY(2, 6, 7, 8)
            KEY(3, 9, 10, 11)
            KEY(4, 12, 13, 14)
            KEY(5, 15, 16, 17)
            KEY(6, 18, 19, 20)
            KEY(7, 21, 22, 23)
        }
    }
    EACH(ADD)
    return _mm512_cvtss_f32(sum);
}
