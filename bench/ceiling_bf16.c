/* A loop of vdpbf16ps on 512-bit registers, and nothing else.
 *
 * Work      24 accumulators: a latency of 6 on two pipes needs 12 or more (12 reach 92 % on Zen 5).
 * Compiled  with -mavx512f -mavx512vl -mavx512bf16; runs only after ceiling.c has asked the CPU.
 */
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
#define START(i) __m512 acc##i = _mm512_set1_ps(value * (i + 1));
/* In volatile assembly, so that every compiler makes exactly this loop. */
#define STEP(i) __asm__ volatile("vdpbf16ps %1, %2, %0" : "+v"(acc##i) : "v"(a), "v"(b));
#define ADD(i) sum = _mm512_add_ps(sum, acc##i);

static volatile float start = 0.1f;

float heed_ceiling_run_dp_bf16(size_t iterations)
{
    const float value = start;
    const __m512 ones = _mm512_set1_ps(1), small = _mm512_set1_ps(0x1p-20f);
    const __m512bh a = _mm512_cvtne2ps_pbh(ones, ones), b = _mm512_cvtne2ps_pbh(small, small);
    __m512 sum = _mm512_setzero_ps();
    EACH(START)
    for (size_t n = 0; n < iterations; n++) {
        EACH(STEP)
        EACH(STEP)
    }
    EACH(ADD)
    return _mm512_cvtss_f32(sum);
}
