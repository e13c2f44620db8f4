/* A loop of f32 FMA on 256-bit registers, and nothing else.
 *
 * Work      12 independent accumulators: two pipes with a latency of 4 need 8, some cores need 10.
 * Compiled  with -mavx2 -mfma; runs only after ceiling.c has asked the CPU.
 */
#include <immintrin.h>

#include "ceiling_kernels.h"

#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define START(i) __m256 acc##i = _mm256_set1_ps(factors[2] * (i + 1));
#define STEP(i) acc##i = _mm256_fmadd_ps(acc##i, a, b);
#define ADD(i) sum = _mm256_add_ps(sum, acc##i);

/* acc = acc * a + b tends to b / (1 - a), so it never overflows or becomes denormal. */
static volatile float factors[3] = {0.999f, 0.0005f, 0.1f};

float heed_ceiling_run_fma_avx2(size_t iterations)
{
    const __m256 a = _mm256_set1_ps(factors[0]), b = _mm256_set1_ps(factors[1]);
    __m256 sum = _mm256_setzero_ps();
    EACH(START)
    for (size_t n = 0; n < iterations; n++) {
        EACH(STEP)
        EACH(STEP)
    }
    EACH(ADD)
    return _mm256_cvtss_f32(sum);
}
