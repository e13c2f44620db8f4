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
V_INLINE vi vi_signs_of_words(vi a)
{
    return V_WIDE(srai_epi16)(a, 15);
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
V_INLINE v4 v4_sub(v4 a, v4 b)
{
    return _mm_sub_ps(a, b);
}
V_INLINE m4 m4_less(v4 a, v4 b)
{
    return _mm_cmplt_ps(a, b);
}
V_INLINE v4 v4_abs(v4 a)
{
    return _mm_andnot_ps(_mm_set1_ps(-0.0f), a);
}
V_INLINE void v4_store_halves(void *p, v4 a)
{
    _mm_storel_epi64(p, _mm_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

V_INLINE v8 across_pick(int how, v8 a, v8 b)
{
    return how == ACROSS_LEAST  ? _mm256_min_ps(a, b)
           : how == ACROSS_MOST ? _mm256_max_ps(a, b)
                                : _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a),
                                                                       _mm256_castps_si256(b)));
}
V_INLINE v8 across_halves(int how, v8 a, v8 b)
{
    return across_pick(how, _mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
/* Across each of four v8: its halves first, then neighbouring pairs of lanes, with two vectors side
 * by side, then the two lanes that are left. */
V_INLINE v4 across_eights(int how, const v8 r[4])
{
    const v8 x = across_halves(how, r[0], r[1]), y = across_halves(how, r[2], r[3]);
    v8 z = across_pick(how, _mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xdd));
    z = across_pick(how, z, _mm256_permute_ps(z, 0xb1)); /* 0 0 2 2 | 1 1 3 3 */
    return _mm_blend_ps(v8_low(z), v8_high(z), 10);
}

#endif
