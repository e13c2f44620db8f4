/* What AVX2 and AVX-512 have in common: vectors of four and eight floats, bytes, and what is the same
 * instruction in either width. Part of vec.h; the including file defines V_WIDE and V_WIDE_BITS. */
#ifndef HEED_SIMD_VEC_X86_H
#define HEED_SIMD_VEC_X86_H

#if defined(__GNUC__)
#define V_IN_REGISTER(v) __asm__("" : "+v"(v));
#define V_AFTER(then, v) __asm__("" : "+r"(then) : "v"(v))
#endif

V_INLINE void v_leave(void)
{
    _mm256_zeroupper();
}

typedef __m256 v8;
typedef __m128 v4;
typedef __m128 m4;

V_INLINE v8 v8_zero(void)
{
    return _mm256_setzero_ps();
}
V_INLINE v8 v8_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
V_INLINE void v8_store(float *p, v8 a)
{
    _mm256_storeu_ps(p, a);
}
V_INLINE v8 v8_broadcast(const void *p)
{
    float x; /* at any address: the load folds into the broadcast */
    memcpy(&x, p, sizeof x);
    return _mm256_set1_ps(x);
}
V_INLINE v8 v8_mul(v8 a, v8 b)
{
    return _mm256_mul_ps(a, b);
}
V_INLINE v8 v8_fma(v8 a, v8 b, v8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}
V_INLINE v8 v8_of(v4 low, v4 high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}
V_INLINE v4 v8_low(v8 a)
{
    return _mm256_castps256_ps128(a);
}
V_INLINE v4 v8_high(v8 a)
{
    return _mm256_extractf128_ps(a, 1);
}

V_INLINE v8 v8_widen_f16(__m128i half)
{
    return _mm256_cvtph_ps(half);
}
V_INLINE v8 v8_widen_bf16(__m128i half)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
V_INLINE __m128i v8_narrow_f16(v8 a)
{
    return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* To nearest even, a NaN stays one: as heed_bf16_of_f32. */
V_INLINE __m128i v8_narrow_bf16(v8 a)
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
V_INLINE v8 v8_load_half(uint32_t type, const void *p)
{
    const __m128i half = _mm_loadu_si128(p);
    return type == HEED_F16 ? v8_widen_f16(half) : v8_widen_bf16(half);
}
V_INLINE void v8_store_half(uint32_t type, void *p, v8 a)
{
    _mm_storeu_si128(p, type == HEED_F16 ? v8_narrow_f16(a) : v8_narrow_bf16(a));
}

V_INLINE v4 v4_zero(void)
{
    return _mm_setzero_ps();
}
V_INLINE v4 v4_set1(float x)
{
    return _mm_set1_ps(x);
}
V_INLINE v4 v4_load(const float *p)
{
    return _mm_loadu_ps(p);
}
V_INLINE void v4_store(float *p, v4 a)
{
    _mm_storeu_ps(p, a);
}
V_INLINE v4 v4_add(v4 a, v4 b)
{
    return _mm_add_ps(a, b);
}
V_INLINE v4 v4_max(v4 a, v4 b)
{
    return _mm_max_ps(a, b);
}
V_INLINE v4 v4_div(v4 a, v4 b)
{
    return _mm_div_ps(a, b);
}
V_INLINE m4 m4_equal(v4 a, v4 b)
{
    return _mm_cmpeq_ps(a, b);
}
V_INLINE uint32_t m4_bits(m4 m)
{
    return (uint32_t)_mm_movemask_ps(m);
}
V_INLINE v4 v4_select(m4 m, v4 yes, v4 no)
{
    return _mm_blendv_ps(no, yes, m);
}

typedef __m128i v_bytes;

/* E4M3 as bf16, of which it is a subset, by tables of its bytes: the upper one by the sign and the
 * three upper bits of the exponent, beside a lower one of the exponent's last bit and the mantissa; and
 * what is to be changed in both for subnormals, whose magnitudes are below 8. E4M3_SMALL is added
 * to a magnitude so that it is an index there, and else above 7 (entries of 0) or negative. */
static const _Alignas(16) uint8_t e4m3_tops[16] = {60,  61,  62,  63,  64,  65,  66,  67,
                                                   188, 189, 190, 191, 192, 193, 194, 195};
static const _Alignas(16) uint8_t e4m3_small_tops[16] = {60, 7, 7, 7};
static const _Alignas(16) uint8_t e4m3_small_lows[16] = {0,    0x10, 0xa0, 0xf0,
                                                         0x40, 0x70, 0x20, 0x10};
#define E4M3_SMALL 0x70

V_INLINE v_bytes bytes_load(const void *p)
{
    return _mm_loadu_si128(p);
}
V_INLINE v_bytes bytes_load8(const void *p)
{
    return _mm_loadl_epi64(p);
}
V_INLINE v_bytes bytes_load_n(const void *p, int n)
{
    uint8_t x[16] = {0};
    memcpy(x, p, (size_t)(n < 16 ? n : 16));
    return bytes_load(x);
}
V_INLINE v_bytes bytes_set1(int x)
{
    return _mm_set1_epi8((char)x);
}
V_INLINE v_bytes bytes_sub(v_bytes a, v_bytes b)
{
    return _mm_sub_epi8(a, b);
}
V_INLINE v_bytes bytes_or(v_bytes a, v_bytes b)
{
    return _mm_or_si128(a, b);
}
V_INLINE v_bytes bytes_low(v_bytes a)
{
    return _mm_and_si128(a, bytes_set1(15));
}
V_INLINE v_bytes bytes_high(v_bytes a)
{
    return _mm_and_si128(_mm_srli_epi16(a, 4), bytes_set1(15));
}
V_INLINE v_bytes bytes_zip(v_bytes a, v_bytes b)
{
    return _mm_unpacklo_epi8(a, b);
}
V_INLINE v_bytes bytes_lookup(v_bytes table, v_bytes a)
{
    return _mm_shuffle_epi8(table, a);
}
V_INLINE v_bytes bytes_fifth(uint32_t bits)
{
    const __m128i of = _mm_set_epi8(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i one = _mm_set1_epi64x((long long)0x8040201008040201ull);
    const __m128i x = _mm_and_si128(_mm_shuffle_epi8(_mm_cvtsi32_si128((int)bits), of), one);
    return _mm_and_si128(_mm_cmpeq_epi8(x, one), bytes_set1(16));
}

V_INLINE uint32_t bytes_set16(const void *p)
{
    const __m128i bytes = _mm_loadu_si128(p);
    return 0xffffu & ~(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
}

/* ---- of both widths: one text, by the names that the instructions have in each ---------------- */

V_INLINE vf v_zero(void)
{
    return V_WIDE(setzero_ps)();
}
V_INLINE vf v_set1(float x)
{
    return V_WIDE(set1_ps)(x);
}
V_INLINE vf v_broadcast(const void *p)
{
    float x; /* at any address: the load folds into the broadcast */
    memcpy(&x, p, sizeof x);
    return V_WIDE(set1_ps)(x);
}
V_INLINE vf v_load(const float *p)
{
    return V_WIDE(loadu_ps)(p);
}
V_INLINE void v_store(float *p, vf a)
{
    V_WIDE(storeu_ps)(p, a);
}
V_INLINE vf v_add(vf a, vf b)
{
    return V_WIDE(add_ps)(a, b);
}
V_INLINE vf v_sub(vf a, vf b)
{
    return V_WIDE(sub_ps)(a, b);
}
V_INLINE vf v_mul(vf a, vf b)
{
    return V_WIDE(mul_ps)(a, b);
}
V_INLINE vf v_div(vf a, vf b)
{
    return V_WIDE(div_ps)(a, b);
}
V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return V_WIDE(fmadd_ps)(a, b, c);
}
V_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return V_WIDE(fnmadd_ps)(a, b, c);
}
V_INLINE vf v_max(vf a, vf b)
{
    return V_WIDE(max_ps)(a, b);
}
V_INLINE vf v_min(vf a, vf b)
{
    return V_WIDE(min_ps)(a, b);
}
V_INLINE vi v_bits(vf a)
{
    return V_WIDE_BITS(castps)(a);
}

V_INLINE vi vi_load(const void *p)
{
    return V_WIDE_BITS(loadu)(p);
}
V_INLINE vi vi_zero(void)
{
    return V_WIDE_BITS(setzero)();
}
V_INLINE vi vi_set1(uint32_t x)
{
    return V_WIDE(set1_epi32)((int32_t)x);
}
V_INLINE vi vi_add(vi a, vi b)
{
    return V_WIDE(add_epi32)(a, b);
}
V_INLINE vi vi_sub(vi a, vi b)
{
    return V_WIDE(sub_epi32)(a, b);
}
V_INLINE vi vi_and(vi a, vi b)
{
    return V_WIDE_BITS(and)(a, b);
}
V_INLINE vf vi_to_float(vi a)
{
    return V_WIDE(cvtepi32_ps)(a);
}
V_INLINE vi vi_or(vi a, vi b)
{
    return V_WIDE_BITS(or)(a, b);
}
V_INLINE vi vi_xor(vi a, vi b)
{
    return V_WIDE_BITS(xor)(a, b);
}

V_INLINE vf v_zip_low(vf a, vf b)
{
    return V_WIDE(unpacklo_ps)(a, b);
}
V_INLINE vf v_zip_high(vf a, vf b)
{
    return V_WIDE(unpackhi_ps)(a, b);
}
V_INLINE vf v_low_pairs(vf a, vf b)
{
    return V_WIDE(shuffle_ps)(a, b, 0x44);
}
V_INLINE vf v_high_pairs(vf a, vf b)
{
    return V_WIDE(shuffle_ps)(a, b, 0xee);
}
#define v_spread(a, i) V_WIDE(permute_ps)(a, (i)*0x55)
/* Transposes the 4 x 4 floats of each four of the first four vectors, and of the last four. */
V_INLINE void v_transpose_in_fours(vf r[8])
{
    vf t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = v_zip_low(r[i], r[i + 1]);
        t[i + 1] = v_zip_high(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = v_low_pairs(t[i], t[i + 2]);
        r[i + 1] = v_high_pairs(t[i], t[i + 2]);
        r[i + 2] = v_low_pairs(t[i + 1], t[i + 3]);
        r[i + 3] = v_high_pairs(t[i + 1], t[i + 3]);
    }
}

#endif
