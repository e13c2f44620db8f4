/* Vectors of floats: the few operations that the kernels need, for the instruction set that the
 * including file is compiled for. AVX-512 (F, BW, DQ, VL) where those flags are given, else AVX2
 * with FMA and F16C.
 *
 *     vf   LANES floats          vi   LANES int32          vm   a lane mask
 *
 * Everything is static inline and no function reads or writes memory beyond what its n says, so the
 * last lanes at the end of a row may lie on an unmapped page.
 */
#ifndef HEED_SIMD_VEC_H
#define HEED_SIMD_VEC_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <heed/backend.h>

#include "lanes8.h"

#if defined(__AVX512F__)

#define LANES 16
#ifdef HEED_SIMD_DOT /* products of pairs of bf16: dot.h */
#define HEED_ISA_FUNCTION(name) name##_dot_avx512
#else
#define HEED_ISA_FUNCTION(name) name##_avx512
#endif

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

V_INLINE vf v_zero(void)
{
    return _mm512_setzero_ps();
}
V_INLINE vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
/* *p in every lane: one load instruction. */
V_INLINE vf v_broadcast(const void *p)
{
    float x;
    memcpy(&x, p, sizeof x); /* p need not be aligned, as *p would have to be */
    return _mm512_set1_ps(x);
}
V_INLINE vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
V_INLINE void v_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
V_INLINE vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
V_INLINE vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
V_INLINE vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
V_INLINE vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
V_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
/* b where either is a NaN, and b of two zeros: the instruction's rule, relied upon. */
V_INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
V_INLINE vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
V_INLINE vf v_ceil(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
V_INLINE vf v_abs(vf a)
{
    return _mm512_abs_ps(a);
}
V_INLINE vi v_bits(vf a)
{
    return _mm512_castps_si512(a);
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
V_INLINE vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}
V_INLINE vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
V_INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
V_INLINE vf vi_to_float(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

/* Lane masks. Bit l of the integer form is lane l. */
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
V_INLINE vm m_less(vf a, vf b) /* false for a NaN */
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
V_INLINE vm m_negative(vf a) /* the sign bit, of -0 and NaN too */
{
    return _mm512_movepi32_mask(v_bits(a));
}
V_INLINE vf v_select(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}

/* The first n lanes from memory, 0 in the others; n from 0 on, LANES and more is all. */
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
/* An element is the upper half of its lane: one shuffle beside zeros puts it there. */
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
V_INLINE __m256i v_narrow_f16(vf a)
{
    return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* To nearest even, a NaN stays one: as heed_bf16_of_f32. vcvtneps2bf16 would flush subnormals. */
V_INLINE __m256i v_narrow_bf16(vf a)
{
    vi bits = v_bits(a), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), vi_set1(1));
    vi up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, vi_set1(0x7fff)));
    up = _mm512_mask_or_epi32(up, m_nan(a), bits, vi_set1(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}
V_INLINE void v_store_half_n(void *p, __m256i half, int n)
{
    if (n >= LANES)
        _mm256_storeu_si256(p, half);
    else
        _mm256_mask_storeu_epi16(p, m_first(n), half);
}

/* Rows become columns: lane i of row j and lane j of row i change places. */
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

#elif defined(__AVX2__)

#define LANES 8
#define HEED_ISA_FUNCTION(name) name##_avx2

typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm; /* all bits of a lane, of which some instructions look at the sign alone */

V_INLINE vf v_zero(void)
{
    return _mm256_setzero_ps();
}
V_INLINE vf v_set1(float x)
{
    return _mm256_set1_ps(x);
}
V_INLINE vf v_broadcast(const void *p)
{
    float x; /* at any address: the load folds into the broadcast */
    memcpy(&x, p, sizeof x);
    return _mm256_set1_ps(x);
}
V_INLINE vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
V_INLINE void v_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
}
V_INLINE vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
V_INLINE vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
V_INLINE vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
V_INLINE vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
V_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
V_INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
V_INLINE vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
V_INLINE vf v_ceil(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
V_INLINE vf v_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
V_INLINE vi v_bits(vf a)
{
    return _mm256_castps_si256(a);
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
V_INLINE vi vi_load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
V_INLINE vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}
V_INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
V_INLINE vf vi_to_float(vi a)
{
    return _mm256_cvtepi32_ps(a);
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
/* AVX2 has no masked 16-bit load: a short one goes through 8, 4 and 2 bytes. */
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
    return widen_f16_8(_mm_loadu_si128(p));
}
V_INLINE vf v_load_f16_n(const void *p, int n)
{
    return widen_f16_8(v_load_half_n(p, n));
}
V_INLINE vf v_widen_bf16(__m128i half)
{
    return widen_bf16_8(half);
}
V_INLINE vf v_load_bf16(const void *p)
{
    return v_widen_bf16(_mm_loadu_si128(p));
}
V_INLINE vf v_load_bf16_n(const void *p, int n)
{
    return v_widen_bf16(v_load_half_n(p, n));
}
V_INLINE __m128i v_narrow_f16(vf a)
{
    return narrow_f16_8(a);
}
V_INLINE __m128i v_narrow_bf16(vf a)
{
    return narrow_bf16_8(a);
}
V_INLINE void v_store_half_n(void *p, __m128i half, int n)
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

V_INLINE void v_transpose(vf r[LANES])
{
    transpose_8(r);
}

#else
#error "vec.h needs the flags of AVX2 or AVX-512"
#endif

/* ---- any element type -------------------------------------------------------------------------
 */

/* n elements of unit stride, widened to f32. type is a HEED_F32, HEED_F16 or HEED_BF16. */
V_INLINE vf v_load_type(uint32_t type, const void *p, int n)
{
    if (type == HEED_F32)
        return n >= LANES ? v_load(p) : v_load_n(p, n);
    if (type == HEED_F16)
        return n >= LANES ? v_load_f16(p) : v_load_f16_n(p, n);
    return n >= LANES ? v_load_bf16(p) : v_load_bf16_n(p, n);
}

/* Rounded once, to nearest even. */
V_INLINE void v_store_type(uint32_t type, void *p, vf a, int n)
{
    if (type == HEED_F32) {
        if (n >= LANES)
            v_store(p, a);
        else
            v_store_n(p, a, n);
    } else {
        v_store_half_n(p, type == HEED_F16 ? v_narrow_f16(a) : v_narrow_bf16(a), n);
    }
}

/* n elements that lie `stride` elements apart. */
V_INLINE vf v_gather_type(uint32_t type, const void *p, int64_t stride, int n)
{
    float x[LANES] = {0};
    if (stride == 1)
        return v_load_type(type, p, n);
    for (int i = 0; i < n && i < LANES; i++)
        x[i] = heed_load(type, p, i * stride);
    return v_load(x);
}

#include "math.h"

#endif
