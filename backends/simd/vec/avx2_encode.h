/* AVX2; part of encode.h. */
#ifndef HEED_SIMD_AVX2_ENCODE_H
#define HEED_SIMD_AVX2_ENCODE_H

#include "x86_encode.h"

V_INLINE vm m_unordered(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_UNORD_Q);
}
V_INLINE vm m_or(vm p, vm q)
{
    return _mm256_or_ps(p, q);
}
V_INLINE int m_any(vm m)
{
    return _mm256_movemask_ps(m) != 0;
}
V_INLINE vm m_fifth(vi c)
{
    return v_from_bits(vi_shl(c, 27));
}
V_INLINE v_bytes bytes_held(const vi c[2], int is_signed)
{
    const __m256i x = _mm256_permute4x64_epi64(_mm256_packs_epi32(c[0], c[1]), 0xd8);
    const __m128i low = _mm256_castsi256_si128(x), high = _mm256_extracti128_si256(x, 1);
    return is_signed ? _mm_packs_epi16(low, high) : _mm_packus_epi16(low, high);
}
/* The lower half has four bytes of each of the four vectors. */
V_INLINE vi many_in_order(vi a)
{
    return _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
V_INLINE void many_store(void *p, vi a)
{
    _mm256_storeu_si256(p, a);
}
#define BLOCKS_AT_ONCE(vectors) (4 / (vectors)) /* packing as many at a time costs less */
V_INLINE void blocks_store(char *const at[], const vi c[4], int vectors, int is_signed)
{
    const vi a = many_held(c, is_signed);
    if (vectors == 4) {
        many_store(at[0], a);
    } else {
        bytes_store(at[0], _mm256_castsi256_si128(a));
        bytes_store(at[1], _mm256_extracti128_si256(a, 1));
    }
}
V_INLINE void many_store_pairs(void *p, vi a)
{
    const __m256i pairs = pairs_of(a), x = _mm256_packus_epi16(pairs, pairs);
    _mm_storeu_si128(p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(x, 0x08)));
}
V_INLINE v8 v8_across(int how, const vf r[8])
{
    return across_eights(how, r);
}
/* Eight at a time, by the low three bits; the bits above choose among them. */
V_INLINE vf v_table16(const void *table, vi i)
{
    const vf low = _mm256_permutevar8x32_ps(v_load(table), i);
    const vf high = _mm256_permutevar8x32_ps(v_load((const float *)table + 8), i);
    return v_select(v_from_bits(vi_shl(i, 28)), high, low);
}
V_INLINE vf v_table(const void *table, vi i)
{
    return v_select(v_from_bits(vi_shl(i, 27)), v_table16((const float *)table + 16, i),
                    v_table16(table, i));
}

#endif
