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
V_INLINE v_bytes bytes_of(const vi c[1])
{
    return _mm512_cvtepi32_epi8(c[0]);
}
V_INLINE v_bytes bytes_held(const vi c[1])
{
    return _mm512_cvtsepi32_epi8(c[0]);
}
V_INLINE v4 v4_across(int how, const vf r[4])
{
    v8 h[4];
    V_UNROLL for (int i = 0; i < 4; i++) h[i] =
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
