/* AVX-512 with BF16 and VBMI; part of words.h. */
#ifndef HEED_SIMD_AVX512_WORDS_H
#define HEED_SIMD_AVX512_WORDS_H

V_INLINE void v_store_some(float *p, uint16_t mask, vf x)
{
    _mm512_mask_storeu_ps(p, mask, x);
}
V_INLINE vf v_load_some(const float *p, uint16_t mask)
{
    return _mm512_maskz_loadu_ps(mask, p);
}
V_INLINE uint16_t m_within(vf x, float limit, uint16_t mask)
{
    return _mm512_mask_cmp_ps_mask(mask, _mm512_abs_ps(x), _mm512_set1_ps(limit), _CMP_LE_OQ);
}
V_INLINE float v_sum(vf x)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
V_INLINE float v_largest(vf x)
{
    return _mm512_reduce_max_ps(x);
}

/* Lane n is `op` over the lanes of r[n]: those 8 apart first, then 4, 2 and 1. */
#define LANES_BY_TREE(name, op)                                                                    \
    V_INLINE vf name(const vf r[16])                                                               \
    {                                                                                              \
        vf y[4];                                                                                   \
        for (int n = 0; n < 4; n++) {                                                              \
            vf a = op(_mm512_shuffle_f32x4(r[n], r[n + 4], 0x44),                                  \
                      _mm512_shuffle_f32x4(r[n], r[n + 4], 0xee));                                 \
            vf b = op(_mm512_shuffle_f32x4(r[n + 8], r[n + 12], 0x44),                             \
                      _mm512_shuffle_f32x4(r[n + 8], r[n + 12], 0xee));                            \
            y[n] = op(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));         \
        }                                                                                          \
        for (int n = 0; n < 4; n += 2) {                                                           \
            __m512d a = _mm512_castps_pd(y[n]), b = _mm512_castps_pd(y[n + 1]);                    \
            y[n] = op(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),                                  \
                      _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));                                 \
        }                                                                                          \
        return op(_mm512_shuffle_ps(y[0], y[2], 0x88), _mm512_shuffle_ps(y[0], y[2], 0xdd));       \
    }
LANES_BY_TREE(v_sums, v_add)       /* as v_sum, bit for bit */
LANES_BY_TREE(v_largest_of, v_max) /* no lane may be a NaN */
#undef LANES_BY_TREE

V_INLINE uint16_t m_not_below_inf(vf a)
{
    return _mm512_cmp_ps_mask(a, _mm512_set1_ps(0x1.fffffep127f), _CMP_NLE_UQ);
}
V_INLINE void vi_store(void *p, vi x)
{
    _mm512_storeu_si512(p, x);
}
V_INLINE vi vi_load_halves(const void *p, int n)
{
    return _mm512_maskz_loadu_epi16(n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1, p);
}
V_INLINE vi vi_add16(vi a, vi b)
{
    return _mm512_add_epi16(a, b);
}
V_INLINE vi vi_shr16(vi a, int n)
{
    return _mm512_srli_epi16(a, (unsigned)n);
}
V_INLINE vi vi_max16(vi a, vi b)
{
    return _mm512_max_epu16(a, b);
}
V_INLINE uint32_t vi_halves_from(vi a, uint16_t limit)
{
    return _mm512_cmpge_epu16_mask(a, _mm512_set1_epi16((short)limit));
}
V_INLINE vi vi_clear_halves(vi a, uint32_t which)
{
    return _mm512_maskz_mov_epi16(~which, a);
}
V_INLINE vi vi_pack(vi a, vi b)
{
    return _mm512_packus_epi32(a, b);
}
V_INLINE vi vi_join(vi a, vi b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
                              _mm512_cvtepi32_epi16(b), 1);
}
/* Needs AVX512_VBMI. */
V_INLINE vi vi_lookup(vi index, vi table)
{
    return _mm512_maskz_permutexvar_epi8(0x5555555555555555u, index, table);
}
V_INLINE void v_store_bf16(void *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(x));
}
V_INLINE void v_store_bf16_two(void *p, vf low, vf high)
{
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}
V_INLINE void v_store_bf16_some(void *p, uint16_t mask, vf x)
{
    _mm256_mask_storeu_epi16(p, mask, (__m256i)_mm512_cvtneps_pbh(x));
}
V_INLINE void v_store_f16_some(void *p, uint16_t mask, vf x)
{
    _mm256_mask_storeu_epi16(p, mask, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
V_INLINE vf v_load_bf16_some(const void *p, uint16_t mask)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
V_INLINE vf v_load_f16_some(const void *p, uint16_t mask)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}
V_INLINE uint16_t bytes_set_of16(const void *p, uint16_t mask)
{
    __m128i bytes = _mm_maskz_loadu_epi8(mask, p);
    return _mm_test_epi8_mask(bytes, bytes);
}
V_INLINE uint32_t bytes_set_of32(const void *p, uint32_t mask)
{
    __m256i bytes = _mm256_maskz_loadu_epi8(mask, p);
    return _mm256_test_epi8_mask(bytes, bytes);
}
/* Two additions: beside tile products they are cheaper than vdpbf16ps. */
V_INLINE vf v_add_pairs(vf acc, vi pairs)
{
    acc = _mm512_add_ps(
        acc, _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000))));
    return _mm512_add_ps(acc, _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
}
V_INLINE void vi_interleave(vi a, vi b, vi *low, vi *high)
{
    *low = _mm512_unpacklo_epi16(a, b);
    *high = _mm512_unpackhi_epi16(a, b);
}
V_INLINE void v_in_order(vf *low, vf *high)
{
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    const __m512d a = _mm512_castps_pd(*low), b = _mm512_castps_pd(*high);
    *low = _mm512_castpd_ps(_mm512_permutex2var_pd(a, first, b));
    *high = _mm512_castpd_ps(_mm512_permutex2var_pd(a, second, b));
}
V_INLINE void v_store_bf16_in_order(void *p, vf low, vf high)
{
    const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
    _mm512_storeu_si512(p,
                        _mm512_permutexvar_epi64(order, (__m512i)_mm512_cvtne2ps_pbh(high, low)));
}
V_INLINE vi vi_load_quarters(const char *p0, const char *p1, const char *p2, const char *p3)
{
    vi y = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p0));
    y = _mm512_mask_broadcast_i32x4(y, 0x00f0, _mm_loadu_si128((const __m128i *)(const void *)p1));
    y = _mm512_mask_broadcast_i32x4(y, 0x0f00, _mm_loadu_si128((const __m128i *)(const void *)p2));
    return _mm512_mask_broadcast_i32x4(y, 0xf000,
                                       _mm_loadu_si128((const __m128i *)(const void *)p3));
}
V_INLINE void vi_transpose_quarters(vi r[4])
{
    vi a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    vi c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    r[0] = _mm512_unpacklo_epi64(a, c);
    r[1] = _mm512_unpackhi_epi64(a, c);
    r[2] = _mm512_unpacklo_epi64(b, d);
    r[3] = _mm512_unpackhi_epi64(b, d);
}
V_INLINE void vi_transpose(vi r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#endif
