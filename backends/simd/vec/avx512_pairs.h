/* AVX512_BF16; part of pairs.h. */
#ifndef HEED_SIMD_AVX512_PAIRS_H
#define HEED_SIMD_AVX512_PAIRS_H

V_INLINE vf v_dot(vf x, vf y, vf sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)v_bits(x), (__m512bh)v_bits(y));
}
V_INLINE vi load_pairs(const char *p, int64_t stride, int64_t n)
{
    uint16_t x[DOT_WIDTH] = {0};
    if (stride == 1)
        return n >= DOT_WIDTH ? _mm512_loadu_si512(p)
                              : _mm512_maskz_loadu_epi16((__mmask32)((UINT64_C(1) << n) - 1), p);
    for (int64_t i = 0; i < n && i < DOT_WIDTH; i++)
        memcpy(&x[i], p + i * stride * 2, 2);
    return _mm512_loadu_si512(x);
}
V_INLINE void v_pair_rows(vi a, vi b, vf *first, vf *then)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    *first = v_from_bits(_mm512_permutex2var_epi16(a, low, b));
    *then = v_from_bits(_mm512_permutex2var_epi16(a, high, b));
}
V_INLINE vf v_narrow_pairs(vf low, vf high)
{
    return v_from_bits((vi)_mm512_cvtne2ps_pbh(high, low));
}
V_INLINE vf v_pair(vf even, vf odd)
{
    const __m512i turns =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return v_from_bits(_mm512_permutexvar_epi16(turns, v_bits(v_narrow_pairs(even, odd))));
}
V_INLINE void v_store_pairs(void *p, vf a)
{
    _mm256_storeu_si256(p, (__m256i)_mm512_cvtneps_pbh(a));
}
V_INLINE vf v_pairs_seen(vf w, vf x)
{
    __mmask32 hidden = _mm512_cmpeq_epi16_mask(v_bits(w), _mm512_set1_epi16((short)0x8000));
    return v_from_bits(_mm512_maskz_mov_epi16(~hidden, v_bits(x)));
}

#endif
