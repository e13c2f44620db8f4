/* Vectors of 8 floats whatever the instruction set: what AVX2's vec.h and the kernels that stay at
 * 8 lanes (small/small.c) share. */
#ifndef HEED_SIMD_LANES8_H
#define HEED_SIMD_LANES8_H

#include <immintrin.h>

#if defined(__GNUC__)
#define V_INLINE static inline __attribute__((always_inline, unused))
#define V_NOINLINE static __attribute__((noinline, unused))
/* Loaded once: gcc would read memory again for each use, to save the register. */
#define V_IN_REGISTER(v) __asm__("" : "+v"(v));
#else
#define V_IN_REGISTER(v)
#define V_INLINE static inline
#define V_NOINLINE static
#endif

/* The polynomial of v_exp2 (math.h), times unit. */
#define EXP2_C5(unit) (0.0013197716f * (unit))
#define EXP2_C4(unit) (0.00967165f * (unit))
#define EXP2_C3(unit) (0.055509835f * (unit))
#define EXP2_C2(unit) (0.2402224f * (unit))
#define EXP2_C1(unit) (0.69314677f * (unit))

/* 2^x; see v_exp2. Adding 1.5 * 2^23 + 128 (even, so that a tie goes to an even n) leaves n + 128
 * in the low bits: the exponent of 2^(n + 1), and of 0 for -inf. A product, because adding to the
 * exponent of a NaN could make a number of it. The order of max's operands lets a NaN through. */
V_INLINE __m256 exp2_8(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(12582912.0f + 128.0f);
    x = _mm256_max_ps(_mm256_set1_ps(-128.0f), x);
    __m256 t = _mm256_add_ps(x, magic), r = _mm256_sub_ps(x, _mm256_sub_ps(t, magic));
    __m256 p = _mm256_fmadd_ps(r, _mm256_set1_ps(EXP2_C5(0.5f)), _mm256_set1_ps(EXP2_C4(0.5f)));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_C3(0.5f)));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_C2(0.5f)));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_C1(0.5f)));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}

/* Eight f16 or bf16. */
V_INLINE __m256 widen_f16_8(__m128i half)
{
    return _mm256_cvtph_ps(half);
}
V_INLINE __m256 widen_bf16_8(__m128i half)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
V_INLINE __m128i narrow_f16_8(__m256 a)
{
    return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* To nearest even, a NaN stays one: as heed_bf16_of_f32. */
V_INLINE __m128i narrow_bf16_8(__m256 a)
{
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    up = _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(quiet), nan));
    up = _mm256_srli_epi32(up, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(up), _mm256_extracti128_si256(up, 1));
}

/* Rows become columns. */
V_INLINE void transpose_8(__m256 r[8])
{
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++)
        r[i] = t[i];
}

#endif
