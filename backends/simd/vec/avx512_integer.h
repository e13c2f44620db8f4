/* AVX-512 VNNI; part of integer.h. */
#ifndef HEED_SIMD_AVX512_INTEGER_H
#define HEED_SIMD_AVX512_INTEGER_H

#define INTEGER_ROOM 32
#define INTEGER_SIGNED 0

V_INLINE int integer_is_wide(uint32_t type)
{
    (void)type;
    return 0;
}
/* Loads rows 4 apart side by side, so that words then only move inside fours. */
V_INLINE vi vi_four_rows(const char *at, int64_t stride)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)at));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(at + 4 * stride)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(at + 8 * stride)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(at + 12 * stride)), 3);
}
/* Rows i to i + 3 and those 4 behind them side by side: c[i] has their i-th words in fours of lanes. */
V_INLINE void vi_words_of_fours(vi r0, vi r1, vi r2, vi r3, vi c[4])
{
    const vi a = _mm512_unpacklo_epi32(r0, r1), b = _mm512_unpackhi_epi32(r0, r1);
    const vi x = _mm512_unpacklo_epi32(r2, r3), y = _mm512_unpackhi_epi32(r2, r3);
    c[0] = _mm512_unpacklo_epi64(a, x);
    c[1] = _mm512_unpackhi_epi64(a, x);
    c[2] = _mm512_unpacklo_epi64(b, y);
    c[3] = _mm512_unpackhi_epi64(b, y);
}
V_INLINE void vi_columns(const char *at, int64_t stride, vi c[4])
{
    vi_words_of_fours(vi_four_rows(at, stride), vi_four_rows(at + stride, stride),
                      vi_four_rows(at + 2 * stride, stride), vi_four_rows(at + 3 * stride, stride),
                      c);
}
V_INLINE vi vi_two_rows(const char *at, int64_t stride)
{
    const vi x = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)at));
    return _mm512_inserti64x4(x, _mm256_loadu_si256((const void *)(at + 4 * stride)), 1);
}
V_INLINE void vi_columns_two(const char *at, int64_t stride, vi c[8])
{
    vi r[2][4], x[2][4];
    V_UNROLL for (int i = 0; i < 8; i++) r[i / 4][i % 4] =
        vi_two_rows(at + (i / 4 * 8 + i % 4) * stride, stride);
    V_UNROLL for (int i = 0; i < 2; i++)
        vi_words_of_fours(r[i][0], r[i][1], r[i][2], r[i][3], x[i]);
    V_UNROLL for (int i = 0; i < 4; i++)
    {
        c[i] = _mm512_shuffle_i32x4(x[0][i], x[1][i], 0x88);
        c[i + 4] = _mm512_shuffle_i32x4(x[0][i], x[1][i], 0xdd);
    }
}
V_INLINE vi vi_lookup(v_bytes table, vi a)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), a);
}
V_INLINE vi vi_fifths(vi bits, int i)
{
    const vi from = _mm512_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0, 0x0c0c0c0c, 0x08080808,
                                     0x04040404, 0, 0x0c0c0c0c, 0x08080808, 0x04040404, 0,
                                     0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    const vi byte =
        _mm512_shuffle_epi8(bits, _mm512_add_epi8(from, _mm512_set1_epi8((char)(i / 2))));
    return _mm512_maskz_mov_epi8(
        _mm512_test_epi8_mask(byte, vi_set1(i % 2 ? 0x80402010u : 0x08040201u)),
        _mm512_set1_epi8(16));
}
V_INLINE vi integer_dot(uint32_t type, vi sums, const vi c[4], const char *q)
{
    (void)type;
    V_UNROLL for (int i = 0; i < 4; i++) sums =
        _mm512_dpbusd_epi32(sums, c[i], vi_broadcast(q + 4 * i));
    return sums;
}

#endif
