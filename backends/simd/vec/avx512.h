/* AVX-512 F, BW, DQ and VL; part of vec.h. */
#ifndef HEED_SIMD_VEC_AVX512_H
#define HEED_SIMD_VEC_AVX512_H

#include <immintrin.h>

#define LANES 16
#define V_REGISTERS 32
#define V_ISA "avx512"
#ifdef HEED_SIMD_DOT /* products of pairs of bf16: pairs.h */
#define HEED_ISA_FUNCTION(name) name##_dot_avx512
#elif defined(HEED_SIMD_INT8) /* integer products of codes: integer.h */
#define HEED_ISA_FUNCTION(name) name##_int8_avx512
#else
#define HEED_ISA_FUNCTION(name) name##_avx512
#endif

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;
typedef __m256i v_half;

#define V_WIDE(operation) _mm512_##operation
#define V_WIDE_BITS(operation) _mm512_##operation##_si512 /* of all bits alike */
#include "x86.h"

V_INLINE vf v_ceil(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
V_INLINE vf v_abs(vf a)
{
    return _mm512_abs_ps(a);
}
V_INLINE vf v_from_bits(vi a)
{
    return _mm512_castsi512_ps(a);
}
V_INLINE vf v_and(vf a, vf b)
{
    return v_from_bits(_mm512_and_si512(v_bits(a), v_bits(b)));
}
V_INLINE vf v_or(vf a, vf b)
{
    return v_from_bits(_mm512_or_si512(v_bits(a), v_bits(b)));
}
V_INLINE vf v_xor(vf a, vf b)
{
    return v_from_bits(_mm512_xor_si512(v_bits(a), v_bits(b)));
}

V_INLINE vi vi_shl(vi a, int n)
{
    return _mm512_slli_epi32(a, (unsigned)n);
}
V_INLINE vi vi_shr(vi a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}

V_INLINE vm m_from_bits(uint32_t bits)
{
    return (vm)bits;
}
V_INLINE uint32_t m_bits(vm m)
{
    return (uint32_t)m;
}
V_INLINE vm m_first(int n)
{
    return (vm)(n >= LANES ? 0xffffu : (1u << n) - 1u);
}
V_INLINE vm m_less(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
V_INLINE vm m_equal(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
V_INLINE vm m_nan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
V_INLINE vm m_negative(vf a)
{
    return _mm512_movepi32_mask(v_bits(a));
}
V_INLINE vf v_select(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}

V_INLINE vf v_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(m_first(n), p);
}
V_INLINE void v_store_n(float *p, vf a, int n)
{
    _mm512_mask_storeu_ps(p, m_first(n), a);
}
V_INLINE vf v_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
V_INLINE vf v_load_f16_n(const void *p, int n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m_first(n), p));
}
/* One shuffle puts each element in the upper half of its lane, beside zeros. */
V_INLINE vf v_widen_bf16(__m256i half)
{
    const __m512i to = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0,
                                        6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    return v_from_bits(
        _mm512_maskz_permutexvar_epi16(0xaaaaaaaau, to, _mm512_castsi256_si512(half)));
}
V_INLINE vf v_load_bf16(const void *p)
{
    return v_widen_bf16(_mm256_loadu_si256(p));
}
V_INLINE vf v_load_bf16_n(const void *p, int n)
{
    return v_widen_bf16(_mm256_maskz_loadu_epi16(m_first(n), p));
}
V_INLINE v_half v_narrow_f16(vf a)
{
    return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* To nearest even, a NaN stays one: as heed_bf16_of_f32. vcvtneps2bf16 would flush subnormals. */
V_INLINE v_half v_narrow_bf16(vf a)
{
    vi bits = v_bits(a), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), vi_set1(1));
    vi up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, vi_set1(0x7fff)));
    up = _mm512_mask_or_epi32(up, m_nan(a), bits, vi_set1(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}
V_INLINE void v_store_half_n(void *p, v_half half, int n)
{
    if (n >= LANES)
        _mm256_storeu_si256(p, half);
    else
        _mm256_mask_storeu_epi16(p, m_first(n), half);
}
V_INLINE vf v_load_bf16_shuffle(const void *p)
{
    return v_load_bf16(p);
}
V_INLINE vf v_of_i8(v_bytes a, int i)
{
    (void)i;
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(a));
}
V_INLINE vf v_of_u8(v_bytes a, int i)
{
    (void)i;
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(a));
}
/* Goes through an f16 that is 2^8 times too small: E4M3's subnormals fit into it, and it is widened
 * correctly whatever MXCSR says of subnormals. */
V_INLINE vf v_of_e4m3(v_bytes a, int i)
{
    const __m256i magnitude = _mm256_set1_epi16(0x3f80), signs = _mm256_set1_epi16((short)0xbfff);
    const __m256i x = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(a), 7), signs);
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(x, magnitude), magnitude);
    const __m256i half = _mm256_mask_mov_epi16(x, nan, _mm256_set1_epi16(0x7e00));
    (void)i;
    return _mm512_mul_ps(_mm512_cvtph_ps(half), v_set1(256.0f));
}
#define V_TWO_E4M3 1
/* A vector's bytes as the lower and upper bytes of bf16. */
#ifdef __AVX512VBMI__
/* Tables of all magnitudes: eight of each exponent e, of which the first are subnormal and the last is a
 * NaN. */
#define E4M3_EIGHT(x) x, x, x, x, x, x, x, x
#define E4M3_TOPS(e) E4M3_EIGHT(((e) + 120) >> 1)
#define E4M3_LOWS(e)                                                                               \
    ((e)&1) << 7, ((e)&1) << 7 | 0x10, ((e)&1) << 7 | 0x20, ((e)&1) << 7 | 0x30,                   \
        ((e)&1) << 7 | 0x40, ((e)&1) << 7 | 0x50, ((e)&1) << 7 | 0x60, ((e)&1) << 7 | 0x70
#define E4M3_NORMAL(OF)                                                                            \
    OF(1), OF(2), OF(3), OF(4), OF(5), OF(6), OF(7), OF(8), OF(9), OF(10), OF(11), OF(12), OF(13), \
        OF(14)
V_INLINE void e4m3_bytes(__m512i codes, __m512i *low, __m512i *top)
{
    static const _Alignas(64)
        uint8_t tops[128] = {0,    0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c, E4M3_NORMAL(E4M3_TOPS),
                             0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x7f};
    static const _Alignas(64) uint8_t lows[128] = {
        0, 0, 0x80, 0xc0, 0, 0x20, 0x40, 0x60, E4M3_NORMAL(E4M3_LOWS), E4M3_LOWS(15)};
    const __m512i signs = _mm512_set1_epi8((char)0x80);
    const __m512i magnitude =
        _mm512_permutex2var_epi8(_mm512_load_si512(tops), codes, _mm512_load_si512(tops + 64));
    *low = _mm512_permutex2var_epi8(_mm512_load_si512(lows), codes, _mm512_load_si512(lows + 64));
    *top = _mm512_or_si512(magnitude, _mm512_and_si512(codes, signs));
}
#else
V_INLINE __m512i e4m3_table(const uint8_t table[16])
{
    return _mm512_broadcast_i32x4(_mm_load_si128((const void *)table));
}
V_INLINE void e4m3_bytes(__m512i codes, __m512i *lows, __m512i *tops)
{
    const __m512i low_4 = _mm512_set1_epi8(0x0f), low_7 = _mm512_set1_epi8(0x7f);
    const __m512i magnitude = _mm512_and_si512(codes, low_7);
    const __m512i small = _mm512_add_epi8(magnitude, _mm512_set1_epi8(E4M3_SMALL));
    __m512i top = _mm512_and_si512(_mm512_srli_epi16(codes, 4), low_4);
    __m512i low = _mm512_andnot_si512(low_4, _mm512_slli_epi16(codes, 4));
    top = _mm512_shuffle_epi8(e4m3_table(e4m3_tops), top);
    top = _mm512_xor_si512(top, _mm512_shuffle_epi8(e4m3_table(e4m3_small_tops), small));
    low = _mm512_xor_si512(low, _mm512_shuffle_epi8(e4m3_table(e4m3_small_lows), small));
    top = _mm512_mask_mov_epi8(top, _mm512_cmpeq_epi8_mask(magnitude, low_7), low_7);
    *lows = low;
    *tops = top;
}
#endif
V_INLINE void v_load_two_e4m3(const void *p, const void *q, vf x[4])
{
    /* Fours of codes, so that unpacking words leaves floats in order. */
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i both =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(p)), _mm256_loadu_si256(q), 1);
    __m512i low, top;
    e4m3_bytes(_mm512_permutexvar_epi32(order, both), &low, &top);
    const __m512i a = _mm512_unpacklo_epi8(low, top), b = _mm512_unpackhi_epi8(low, top);
    const __m512i zero = _mm512_setzero_si512();
    x[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, a));
    x[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, a));
    x[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, b));
    x[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, b));
}
#if defined(__AVX512VBMI__) && defined(__AVX512VNNI__)
#define V_BIAS 0x1.8p23f
V_INLINE vi vi_load_two_i8(const void *p)
{
#define TWO_I8(n) (n), (n) + 16, 0, 0
    static const _Alignas(64)
        uint8_t order[64] = {TWO_I8(0),  TWO_I8(1),  TWO_I8(2),  TWO_I8(3), TWO_I8(4),  TWO_I8(5),
                             TWO_I8(6),  TWO_I8(7),  TWO_I8(8),  TWO_I8(9), TWO_I8(10), TWO_I8(11),
                             TWO_I8(12), TWO_I8(13), TWO_I8(14), TWO_I8(15)};
#undef TWO_I8
    return _mm512_permutexvar_epi8(_mm512_load_si512(order),
                                   _mm512_castsi256_si512(_mm256_loadu_si256(p)));
}
/* Added to the bits of V_BIAS, whose unit in the last place is 1. */
V_INLINE vf v_biased_i8(vi two, int i)
{
    return v_from_bits(_mm512_dpbusd_epi32(v_bits(v_set1(V_BIAS)), vi_set1(i ? 0x100u : 1u), two));
}
#endif
#define V_LOOKUP 1
V_INLINE vi vi_of_bytes(v_bytes a)
{
    return _mm512_cvtepu8_epi32(a);
}
V_INLINE vi vi_nibbles(const void *p)
{
    const __m512i by = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
    const __m512i of = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i x = _mm512_castsi128_si512(_mm_loadl_epi64(p));
    return _mm512_srlv_epi32(_mm512_permutexvar_epi32(of, x), by);
}
V_INLINE vf v_lookup(vf table, vi i)
{
    return _mm512_permutexvar_ps(i, table);
}
V_INLINE vf v_lookup_two(vf low, vf high, vi i)
{
    return _mm512_permutex2var_ps(low, i, high);
}
V_INLINE vi vi_fifth(vi i, uint32_t bits)
{
    const vi four = _mm512_and_si512(i, vi_set1(15));
    return _mm512_mask_or_epi32(four, (__mmask16)bits, four, vi_set1(16));
}
V_INLINE vf v_broadcast_f16(const void *p)
{
    short x;
    memcpy(&x, p, sizeof x);
    return _mm512_cvtph_ps(_mm256_set1_epi16(x));
}
V_INLINE void v_store_low(float *p, vf a)
{
    _mm256_storeu_ps(p, _mm512_castps512_ps256(a));
}
V_INLINE void v_store_high(float *p, vf a)
{
    _mm256_storeu_ps(p, _mm512_extractf32x8_ps(a, 1));
}
V_INLINE uint64_t bytes_set(const void *p, int n)
{
    __mmask64 inside = n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
    __m512i x = _mm512_maskz_loadu_epi8(inside, p);
    return _mm512_test_epi8_mask(x, x);
}

#define V_POWER_UNIT 1.0f
V_INLINE vf v_split_power(vf x, vf *n)
{
    vf r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    *n = v_sub(x, r);
    return r;
}
V_INLINE vf v_power_of(vf t)
{
    return v_sub(t, v_set1(V_POWER_MAGIC));
}
V_INLINE vf v_times_power(vf p, vf n)
{
    return _mm512_scalef_ps(p, n);
}

V_INLINE void v_transpose(vf r[LANES])
{
    vf t[LANES];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int h = 0; h < 2; h++) {
            __m512d a = _mm512_castps_pd(t[i + h]), b = _mm512_castps_pd(t[i + h + 2]);
            r[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}
V_INLINE void v_transpose_fours(vf r[4])
{
    const vf a = _mm512_shuffle_f32x4(r[0], r[1], 0x44), b = _mm512_shuffle_f32x4(r[2], r[3], 0x44);
    const vf c = _mm512_shuffle_f32x4(r[0], r[1], 0xee), d = _mm512_shuffle_f32x4(r[2], r[3], 0xee);
    r[0] = _mm512_shuffle_f32x4(a, b, 0x88);
    r[1] = _mm512_shuffle_f32x4(a, b, 0xdd);
    r[2] = _mm512_shuffle_f32x4(c, d, 0x88);
    r[3] = _mm512_shuffle_f32x4(c, d, 0xdd);
}
V_INLINE vf v_fold_two(vf a, vf b)
{
    return v_add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
V_INLINE vf v_fold(vf s[4][1], int i)
{
    const vf x = v_fold_two(s[0][0], s[1][0]), y = v_fold_two(s[2][0], s[3][0]);
    (void)i;
    return v_add(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
}

/* A vector has two rows that are 4 apart, so that at the end only whole fours have to be moved. */
V_INLINE int v_eights_row(int i)
{
    return i < 4 ? i : i + 4;
}
V_INLINE vf v_eights(const float *at, int64_t stride, int64_t n, int i)
{
    const int r = v_eights_row(i);
    vf q = r < n ? _mm512_zextps256_ps512(_mm256_loadu_ps(at + r * stride)) : v_zero();
    if (r + 4 < n)
        q = _mm512_insertf32x8(q, _mm256_loadu_ps(at + (r + 4) * stride), 1);
    return q;
}
V_INLINE void v_eights_columns(vf q[8])
{
    vf t[8];
    v_transpose_in_fours(q);
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(q[i], q[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(q[i], q[i + 4], 0xdd);
    }
    for (int i = 0; i < 8; i++)
        q[i] = t[i];
}

#endif
