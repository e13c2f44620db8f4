/* AVX2 with FMA and F16C; part of vec.h. */
#ifndef HEED_SIMD_VEC_AVX2_H
#define HEED_SIMD_VEC_AVX2_H

#include <immintrin.h>

#define LANES 8
#define V_REGISTERS 16
#define V_ISA "avx2"
#if defined(HEED_SIMD_INT8) && defined(__AVXVNNI__) /* integer products of codes: integer.h */
#define HEED_ISA_FUNCTION(name) name##_vnni_avx2
#elif defined(HEED_SIMD_INT8)
#define HEED_ISA_FUNCTION(name) name##_int8_avx2
#else
#define HEED_ISA_FUNCTION(name) name##_avx2
#endif

typedef __m256 vf;
typedef __m256i vi;
typedef __m128i v_half;
typedef __m256 vm; /* all bits of a lane, of which some instructions look at the sign alone */

#define V_WIDE(operation) _mm256_##operation
#define V_WIDE_BITS(operation) _mm256_##operation##_si256 /* of all bits alike */
#include "x86.h"

V_INLINE vf v_ceil(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
V_INLINE vf v_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
V_INLINE vf v_from_bits(vi a)
{
    return _mm256_castsi256_ps(a);
}
V_INLINE vf v_and(vf a, vf b)
{
    return _mm256_and_ps(a, b);
}
V_INLINE vf v_or(vf a, vf b)
{
    return _mm256_or_ps(a, b);
}
V_INLINE vf v_xor(vf a, vf b)
{
    return _mm256_xor_ps(a, b);
}

V_INLINE vi vi_shl(vi a, int n)
{
    return _mm256_slli_epi32(a, n);
}
V_INLINE vi vi_shr(vi a, int n)
{
    return _mm256_srli_epi32(a, n);
}

V_INLINE vm m_from_bits(uint32_t bits)
{
    vi lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return v_from_bits(
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), lane), lane));
}
V_INLINE uint32_t m_bits(vm m)
{
    return (uint32_t)_mm256_movemask_ps(m);
}
V_INLINE vm m_first(int n)
{
    vi lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return v_from_bits(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane));
}
V_INLINE vm m_less(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
V_INLINE vm m_equal(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
V_INLINE vm m_nan(vf a)
{
    return _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
}
V_INLINE vm m_negative(vf a)
{
    return a;
}
V_INLINE vf v_select(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}

V_INLINE vf v_load_n(const float *p, int n)
{
    return _mm256_maskload_ps(p, v_bits(m_first(n)));
}
V_INLINE void v_store_n(float *p, vf a, int n)
{
    _mm256_maskstore_ps(p, v_bits(m_first(n)), a);
}
/* AVX2 has no masked 16-bit load: elements of a short one are copied one by one. */
V_INLINE __m128i v_load_half_n(const void *p, int n)
{
    uint16_t half[8] = {0};
    if (n >= LANES)
        return _mm_loadu_si128(p);
    for (int i = 0; i < n; i++)
        memcpy(&half[i], (const char *)p + 2 * i, 2);
    return _mm_loadu_si128((const __m128i *)half);
}
V_INLINE vf v_load_f16(const void *p)
{
    return v8_widen_f16(_mm_loadu_si128(p));
}
V_INLINE vf v_load_f16_n(const void *p, int n)
{
    return v8_widen_f16(v_load_half_n(p, n));
}
V_INLINE vf v_load_bf16(const void *p)
{
    return v8_widen_bf16(_mm_loadu_si128(p));
}
V_INLINE vf v_load_bf16_n(const void *p, int n)
{
    return v8_widen_bf16(v_load_half_n(p, n));
}
/* One shuffle puts each element in the upper half of its lane, beside zeros. */
V_INLINE vf v_load_bf16_shuffle(const void *p)
{
    const __m256i to = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, -1,
                                        -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    return v_from_bits(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(p)), to));
}
V_INLINE v_half v_narrow_f16(vf a)
{
    return v8_narrow_f16(a);
}
V_INLINE v_half v_narrow_bf16(vf a)
{
    return v8_narrow_bf16(a);
}
V_INLINE void v_store_half_n(void *p, v_half half, int n)
{
    uint16_t out[8];
    if (n >= LANES) {
        _mm_storeu_si128(p, half);
        return;
    }
    _mm_storeu_si128((__m128i *)out, half);
    for (int i = 0; i < n; i++)
        memcpy((char *)p + 2 * i, &out[i], 2);
}
V_INLINE vf v_of_i8(v_bytes a, int i)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(i ? _mm_srli_si128(a, 8) : a));
}
V_INLINE vf v_of_u8(v_bytes a, int i)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(i ? _mm_srli_si128(a, 8) : a));
}
/* Goes through an f16 that is 2^8 times too small: E4M3's subnormals fit into it, and it is widened
 * correctly whatever MXCSR says of subnormals. */
V_INLINE vf v_of_e4m3(v_bytes a, int i)
{
    const __m128i nan = _mm_set1_epi16(0x3f80);
    __m128i x = _mm_slli_epi16(_mm_cvtepi8_epi16(i ? _mm_srli_si128(a, 8) : a), 7);
    x = _mm_and_si128(x, _mm_set1_epi16((short)0xbfff));
    x = _mm_or_si128(
        x, _mm_and_si128(_mm_cmpeq_epi16(_mm_and_si128(x, nan), nan), _mm_set1_epi16(0x7e00)));
    return _mm256_mul_ps(_mm256_cvtph_ps(x), v_set1(256.0f));
}
V_INLINE __m256i e4m3_table(const uint8_t table[16])
{
    return _mm256_broadcastsi128_si256(_mm_load_si128((const void *)table));
}
#define V_TWO_E4M3 1
V_INLINE void v_load_two_e4m3(const void *p, const void *q, vf x[4])
{
    /* Fours of codes, so that unpacking words leaves floats in order. */
    const __m256i order = _mm256_set_epi32(7, 5, 3, 1, 6, 4, 2, 0);
    const __m256i low_4 = _mm256_set1_epi8(0x0f), low_7 = _mm256_set1_epi8(0x7f);
    const __m256i both =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(p)), _mm_loadu_si128(q), 1);
    const __m256i codes = _mm256_permutevar8x32_epi32(both, order);
    const __m256i magnitude = _mm256_and_si256(codes, low_7);
    const __m256i small = _mm256_add_epi8(magnitude, _mm256_set1_epi8(E4M3_SMALL));
    __m256i top = _mm256_and_si256(_mm256_srli_epi16(codes, 4), low_4);
    __m256i low = _mm256_andnot_si256(low_4, _mm256_slli_epi16(codes, 4));
    top = _mm256_shuffle_epi8(e4m3_table(e4m3_tops), top);
    top = _mm256_xor_si256(top, _mm256_shuffle_epi8(e4m3_table(e4m3_small_tops), small));
    low = _mm256_xor_si256(low, _mm256_shuffle_epi8(e4m3_table(e4m3_small_lows), small));
    top = _mm256_or_si256(top, _mm256_and_si256(_mm256_cmpeq_epi8(magnitude, low_7), low_7));
    const __m256i a = _mm256_unpacklo_epi8(low, top), b = _mm256_unpackhi_epi8(low, top);
    const __m256i zero = _mm256_setzero_si256();
    x[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, a));
    x[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, a));
    x[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, b));
    x[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, b));
}
V_INLINE vf v_broadcast_f16(const void *p)
{
    short x;
    memcpy(&x, p, sizeof x);
    return _mm256_cvtph_ps(_mm_set1_epi16(x));
}
V_INLINE void v_store_low(float *p, vf a)
{
    v4_store(p, v8_low(a));
}
V_INLINE void v_store_high(float *p, vf a)
{
    v4_store(p, v8_high(a));
}
V_INLINE uint64_t bytes_set(const void *p, int n)
{
    const uint8_t *bytes = p;
    uint64_t bits = 0;
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(bytes + i));
        x = _mm256_cmpeq_epi8(x, _mm256_setzero_si256());
        bits |= (uint64_t) ~(uint32_t)_mm256_movemask_epi8(x) << i;
    }
    for (; i < n; i++)
        bits |= (uint64_t)(bytes[i] != 0) << i;
    return bits;
}

/* The power n is held as t = V_POWER_MAGIC + n. The low bits of t, n + 128, are the exponent of
 * 2^(n+1), or of 0 if n is -128. v_times_power multiplies by that, because adding n to the exponent
 * of a NaN could make it a number. */
#define V_POWER_UNIT 0.5f
V_INLINE vf v_split_power(vf x, vf *t)
{
    const vf magic = v_set1(V_POWER_MAGIC);
    x = v_max(v_set1(-128.0f), x); /* -inf too; in this order it lets a NaN through */
    *t = v_add(x, magic);
    return v_sub(x, v_sub(*t, magic));
}
V_INLINE vf v_power_of(vf t)
{
    return t;
}
V_INLINE vf v_times_power(vf p, vf t)
{
    return v_mul(p, v_from_bits(_mm256_slli_epi32(v_bits(t), 23)));
}

V_INLINE void v_transpose(vf r[LANES])
{
    vf t[LANES];
    v_transpose_in_fours(r);
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++)
        r[i] = t[i];
}
V_INLINE void v_transpose_fours(vf r[2])
{
    const vf a = r[0], b = r[1];
    r[0] = _mm256_permute2f128_ps(a, b, 0x20);
    r[1] = _mm256_permute2f128_ps(a, b, 0x31);
}
V_INLINE vf v_fold_two(vf a, vf b)
{
    return v_add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
V_INLINE vf v_fold(vf s[4][2], int i)
{
    const vf *a = s[2 * i], *b = s[2 * i + 1];
    return v_fold_two(v_add(a[0], a[1]), v_add(b[0], b[1]));
}

V_INLINE int v_eights_row(int i)
{
    return i;
}
V_INLINE vf v_eights(const float *at, int64_t stride, int64_t n, int i)
{
    return i < n ? v_load(at + i * stride) : v_zero();
}
V_INLINE void v_eights_columns(vf q[8])
{
    v_transpose(q);
}

#endif
