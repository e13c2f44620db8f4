/* What AVX2 and AVX-512 have in common of encode.h. */
#ifndef HEED_SIMD_X86_ENCODE_H
#define HEED_SIMD_X86_ENCODE_H

V_INLINE vi vi_round(vf a)
{
    return V_WIDE(cvtps_epi32)(a);
}
V_INLINE vi vi_cut(vf a)
{
    return V_WIDE(cvttps_epi32)(a);
}
V_INLINE vi vi_max(vi a, vi b)
{
    return V_WIDE(max_epi32)(a, b);
}
V_INLINE vi vi_max_words(vi a, vi b)
{
    return V_WIDE(max_epu16)(a, b);
}
V_INLINE vi vi_min_words(vi a, vi b)
{
    return V_WIDE(min_epu16)(a, b);
}
/* Flips all bits of what is below 0, and the sign of the others. */
V_INLINE vi vi_sort_halves(vi a)
{
    return vi_xor(a, vi_or(V_WIDE(srai_epi16)(a, 15), V_WIDE(set1_epi16)((short)0x8000)));
}

V_INLINE void bytes_store(void *p, v_bytes a)
{
    _mm_storeu_si128(p, a);
}
#define ENCODE_PAIR 0x1001 /* as two bytes: the first by 1, the second by 16 */
V_INLINE v_bytes bytes_pairs(v_bytes a, v_bytes b)
{
    const __m128i by = _mm_set1_epi16(ENCODE_PAIR), most = _mm_set1_epi8(15);
    return _mm_packus_epi16(_mm_maddubs_epi16(_mm_min_epu8(a, most), by),
                            _mm_maddubs_epi16(_mm_min_epu8(b, most), by));
}
/* The pairs of bytes_pairs, in 16 bits each. */
V_INLINE vi pairs_of(vi a)
{
    return V_WIDE(maddubs_epi16)(V_WIDE(min_epu8)(a, V_WIDE(set1_epi8)(15)),
                                 V_WIDE(set1_epi16)(ENCODE_PAIR));
}
V_INLINE vi many_in_order(vi a);
V_INLINE vi many_held(const vi c[4], int is_signed)
{
    const vi low = V_WIDE(packs_epi32)(c[0], c[1]), high = V_WIDE(packs_epi32)(c[2], c[3]);
    return many_in_order(is_signed ? V_WIDE(packs_epi16)(low, high)
                                   : V_WIDE(packus_epi16)(low, high));
}

V_INLINE v8 v8_set1(float x)
{
    return _mm256_set1_ps(x);
}
V_INLINE v8 v8_sub(v8 a, v8 b)
{
    return _mm256_sub_ps(a, b);
}
V_INLINE v8 v8_div(v8 a, v8 b)
{
    return _mm256_div_ps(a, b);
}
V_INLINE v8 v8_abs(v8 a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
typedef __m256 m8;
V_INLINE m8 m8_less(v8 a, v8 b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
V_INLINE m8 m8_equal(v8 a, v8 b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
V_INLINE m8 m8_ordered(v8 a, v8 b)
{
    return _mm256_cmp_ps(a, b, _CMP_ORD_Q);
}
V_INLINE uint32_t m8_bits(m8 m)
{
    return (uint32_t)_mm256_movemask_ps(m);
}
V_INLINE v8 v8_select(m8 m, v8 yes, v8 no)
{
    return _mm256_blendv_ps(no, yes, m);
}

V_INLINE v8 across_pick(int how, v8 a, v8 b)
{
    const __m256i p = _mm256_castps_si256(a), q = _mm256_castps_si256(b);
    switch (how) {
    case ACROSS_LEAST:
        return _mm256_min_ps(a, b);
    case ACROSS_MOST:
        return _mm256_max_ps(a, b);
    case ACROSS_BITS:
        return _mm256_castsi256_ps(_mm256_max_epi32(p, q));
    case ACROSS_LEAST_HALF:
        return _mm256_castsi256_ps(_mm256_min_epu16(p, q));
    default:
        return _mm256_castsi256_ps(_mm256_max_epu16(p, q));
    }
}
/* Two vectors side by side: their halves first, of b's in the upper half; then pairs of lanes within
 * each half, of b's in the upper two lanes. */
V_INLINE v8 across_halves(int how, v8 a, v8 b)
{
    return across_pick(how, _mm256_blend_ps(a, b, 0xf0), _mm256_permute2f128_ps(a, b, 0x21));
}
V_INLINE v8 across_fours(int how, v8 a, v8 b)
{
    return across_pick(how, _mm256_blend_ps(a, b, 0xcc), _mm256_shuffle_ps(a, b, 0x4e));
}
V_INLINE v8 across_eights(int how, const v8 r[8])
{
    const v8 x = across_fours(how, across_halves(how, r[0], r[4]), across_halves(how, r[1], r[5]));
    const v8 y = across_fours(how, across_halves(how, r[2], r[6]), across_halves(how, r[3], r[7]));
    return across_pick(how, _mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xdd));
}
V_INLINE v8 v8_across(int how, const vf r[8]);
V_INLINE v8 v8_across_halves(int how, uint32_t type, int sorted, const vi r[8])
{
    vf x[8];
    V_UNROLL for (int i = 0; i < 8; i++) x[i] = v_from_bits(r[i]);
    const v8 two = v8_across(how, x);
    const __m256i above = _mm256_srli_epi32(_mm256_castps_si256(two), 16);
    __m256i a = _mm256_castps_si256(across_pick(how, two, _mm256_castsi256_ps(above)));
    if (sorted) /* what was not below 0 has its sign set */
        a = _mm256_xor_si256(_mm256_xor_si256(a, _mm256_set1_epi16(-1)),
                             _mm256_srli_epi16(_mm256_srai_epi16(a, 15), 1));
    if (type == HEED_BF16)
        return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
    a = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
    a = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, a), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(a));
}

#endif
