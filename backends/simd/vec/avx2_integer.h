/* AVX2, with AVX-VNNI or without; part of integer.h. */
#ifndef HEED_SIMD_AVX2_INTEGER_H
#define HEED_SIMD_AVX2_INTEGER_H

#ifdef __AVXVNNI__
#define INTEGER_ROOM 32
#define INTEGER_SIGNED 0
#else
#define INTEGER_ROOM 64
#define INTEGER_SIGNED 1
#endif

/* Without vpdpbusd: two products of 8-bit codes would saturate vpmaddubsw, 2 * 255 * 127. */
V_INLINE int integer_is_wide(uint32_t type)
{
    return INTEGER_SIGNED &&
           (type == HEED_I8 || type == HEED_U8 || type == HEED_Q8_0 || type == HEED_IQ4_NL);
}
/* Loads rows 4 apart side by side, so that words then only move inside fours. */
V_INLINE vi vi_two_rows(const char *at, int64_t stride)
{
    const __m256i x = _mm256_castsi128_si256(_mm_loadu_si128((const void *)at));
    return _mm256_inserti128_si256(x, _mm_loadu_si128((const void *)(at + 4 * stride)), 1);
}
V_INLINE void vi_columns(const char *at, int64_t stride, vi c[4])
{
    const vi r0 = vi_two_rows(at, stride), r1 = vi_two_rows(at + stride, stride);
    const vi r2 = vi_two_rows(at + 2 * stride, stride), r3 = vi_two_rows(at + 3 * stride, stride);
    const vi a = _mm256_unpacklo_epi32(r0, r1), b = _mm256_unpackhi_epi32(r0, r1);
    const vi x = _mm256_unpacklo_epi32(r2, r3), y = _mm256_unpackhi_epi32(r2, r3);
    c[0] = _mm256_unpacklo_epi64(a, x);
    c[1] = _mm256_unpackhi_epi64(a, x);
    c[2] = _mm256_unpacklo_epi64(b, y);
    c[3] = _mm256_unpackhi_epi64(b, y);
}
V_INLINE void vi_columns_two(const char *at, int64_t stride, vi c[8])
{
    vi_columns(at, stride, c);
    vi_columns(at + 16, stride, c + 4);
}
V_INLINE vi vi_lookup(v_bytes table, vi a)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), a);
}
V_INLINE vi vi_fifths(vi bits, int i)
{
    const vi from = _mm256_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0, 0x0c0c0c0c, 0x08080808,
                                     0x04040404, 0);
    const vi one = vi_set1(i % 2 ? 0x80402010u : 0x08040201u);
    const vi byte =
        _mm256_shuffle_epi8(bits, _mm256_add_epi8(from, _mm256_set1_epi8((char)(i / 2))));
    return vi_and(_mm256_cmpeq_epi8(vi_and(byte, one), one), _mm256_set1_epi8(16));
}
#ifdef __AVXVNNI__
V_INLINE vi integer_dot(uint32_t type, vi sums, const vi c[4], const char *q)
{
    (void)type;
    V_UNROLL for (int i = 0; i < 4; i++) sums =
        _mm256_dpbusd_avx_epi32(sums, c[i], vi_broadcast(q + 4 * i));
    return sums;
}
#else
/* With codes below 32, four words of two products each add up to 4 * 2 * 31 * 127 at most, which an
 * int16 holds. If wide, q has the first and the third of each four elements, then the other two. */
V_INLINE vi integer_dot(uint32_t type, vi sums, const vi c[4], const char *q)
{
    if (!integer_is_wide(type)) {
        vi words = _mm256_maddubs_epi16(c[0], vi_broadcast(q));
        V_UNROLL for (int i = 1; i < 4; i++) words =
            _mm256_add_epi16(words, _mm256_maddubs_epi16(c[i], vi_broadcast(q + 4 * i)));
        return vi_add(sums, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
    }
    V_UNROLL for (int i = 0; i < 4; i++)
    {
        const vi even = type == HEED_U8 ? vi_and(c[i], vi_set1(0x00ff00ffu))
                                        : _mm256_srai_epi16(_mm256_slli_epi16(c[i], 8), 8);
        const vi odd = type == HEED_U8 ? _mm256_srli_epi16(c[i], 8) : _mm256_srai_epi16(c[i], 8);
        sums = vi_add(sums, _mm256_madd_epi16(even, vi_broadcast(q + 8 * i)));
        sums = vi_add(sums, _mm256_madd_epi16(odd, vi_broadcast(q + 8 * i + 4)));
    }
    return sums;
}
#endif

#endif
