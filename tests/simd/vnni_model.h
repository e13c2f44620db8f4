/* vpdpbusd of AVX-VNNI, by AVX2: included before all else, so that kernels that are compiled with AVX-VNNI
 * run on CPUs that have none. */
#include <immintrin.h>

#define __AVXVNNI__ 1
#define _mm256_dpbusd_avx_epi32 model_dpbusd

static inline __m256i model_dpbusd(__m256i sums, __m256i a, __m256i b)
{
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(0xff)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
    return _mm256_add_epi32(sums, _mm256_add_epi32(even, odd));
}
