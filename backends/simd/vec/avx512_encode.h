/* AVX-512; part of encode.h. */
#ifndef HEED_SIMD_AVX512_ENCODE_H
#define HEED_SIMD_AVX512_ENCODE_H

#include "x86_encode.h"

V_INLINE vm m_unordered(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}
V_INLINE vm m_or(vm p, vm q)
{
    return (vm)(p | q);
}
V_INLINE int m_any(vm m)
{
    return m != 0;
}
V_INLINE vm m_fifth(vi c)
{
    return _mm512_test_epi32_mask(c, vi_set1(16));
}
V_INLINE v_bytes bytes_held(const vi c[1], int is_signed)
{
    return is_signed ? _mm512_cvtsepi32_epi8(c[0])
                     : _mm512_cvtusepi32_epi8(_mm512_max_epi32(c[0], vi_zero()));
}
/* The first quarter has four bytes of each of the four vectors. */
V_INLINE vi many_in_order(vi a)
{
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), a);
}
V_INLINE void many_store(void *p, vi a)
{
    _mm512_storeu_si512(p, a);
}
#define BLOCKS_AT_ONCE(vectors) 1
V_INLINE void blocks_store(char *const at[], const vi *c, int vectors, int is_signed)
{
    (void)is_signed;
    V_UNROLL for (int i = 0; i < vectors; i++)
        bytes_store(at[0] + 16 * i, _mm512_cvtepi32_epi8(c[i]));
}
V_INLINE void many_store_pairs(void *p, vi a)
{
    _mm256_storeu_si256(p, _mm512_cvtepi16_epi8(pairs_of(a)));
}
V_INLINE v8 v8_across(int how, const vf r[8])
{
    v8 h[8];
    V_UNROLL for (int i = 0; i < 8; i++) h[i] =
        across_pick(how, _mm512_castps512_ps256(r[i]), _mm512_extractf32x8_ps(r[i], 1));
    return across_eights(how, h);
}
V_INLINE vf v_table(const void *table, vi i)
{
    return v_lookup_two(v_load(table), v_load((const float *)table + 16), i);
}
V_INLINE vf v_table16(const void *table, vi i)
{
    return v_lookup(v_load(table), i);
}

#endif
