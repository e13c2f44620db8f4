/*
 * Sixteen lanes of 32 bits (or 32 of 16): the few vector operations that the kernels need, on
 * AVX-512 or on plain loops (HEED_AMX_MODEL without HEED_AMX_LANES). Both give the same bits for
 * everything but the payload and sign of a NaN.
 *
 *   vf  16 x f32      vi  16 x 32 bits or 32 x 16 bits      a mask is a uint16_t, bit n = lane n
 */
#ifndef HEED_AMX_LANES_H
#define HEED_AMX_LANES_H

#include <heed/backend.h>

#include <stdint.h>

#if !defined(HEED_AMX_MODEL) || defined(HEED_AMX_LANES)

#include <immintrin.h>

typedef __m512 vf;
typedef __m512i vi;

/* Asks for a line, wherever it may be; for the second cache to read, for the first to write. */
static inline void prefetch_to_read(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

static inline void prefetch_to_write(void *p)
{
    __builtin_prefetch(p, 1);
}

static inline vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

static inline void vf_store_some(float *p, uint16_t mask, vf x)
{
    _mm512_mask_storeu_ps(p, mask, x);
}

static inline vf vf_load_some(const float *p, uint16_t mask)
{
    return _mm512_maskz_loadu_ps(mask, p);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* a > b ? a : b, so b where either is a NaN. */
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf vf_ceil(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}

/* Lanes of the mask that lie in [-limit, limit]. */
static inline uint16_t vf_within(vf x, float limit, uint16_t mask)
{
    return _mm512_mask_cmp_ps_mask(mask, _mm512_abs_ps(x), _mm512_set1_ps(limit), _CMP_LE_OQ);
}

/* The sum of the lanes by a fixed tree: lane n with n + 8, then + 4, + 2, + 1. */
static inline float vf_sum(vf x)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

/* The largest lane; no lane may be a NaN. */
static inline float vf_largest(vf x)
{
    return _mm512_reduce_max_ps(x);
}

/* Lane n is `op` over the lanes of r[n]: those 8 apart first, then 4, 2 and 1. */
#define LANES_BY_TREE(name, op)                                                                    \
    static inline vf name(const vf r[16])                                                          \
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
LANES_BY_TREE(vf_sums, vf_add)       /* as vf_sum, bit for bit */
LANES_BY_TREE(vf_largest_of, vf_max) /* no lane may be a NaN */
#undef LANES_BY_TREE

static inline uint16_t vf_is_nan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}

/* NaN or +inf. */
static inline uint16_t vf_not_below_inf(vf a)
{
    return _mm512_cmp_ps_mask(a, _mm512_set1_ps(0x1.fffffep127f), _CMP_NLE_UQ);
}

static inline uint16_t vf_equal(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

static inline uint16_t vf_above_zero(vf a)
{
    return _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_GT_OQ);
}

static inline vf vf_select(uint16_t mask, vf yes, vf no)
{
    return _mm512_mask_blend_ps(mask, no, yes);
}

static inline vi vf_bits(vf x)
{
    return _mm512_castps_si512(x);
}

static inline vf vi_float(vi x)
{
    return _mm512_castsi512_ps(x);
}

static inline vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline void vi_store(void *p, vi x)
{
    _mm512_storeu_si512(p, x);
}

/* The first n 16-bit elements at p, zeros after. */
static inline vi vi_load_halves(const void *p, int n)
{
    return _mm512_maskz_loadu_epi16(n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1, p);
}

static inline vi vi_zero(void)
{
    return _mm512_setzero_si512();
}

static inline vi vi_set1(uint32_t x)
{
    return _mm512_set1_epi32((int32_t)x);
}

static inline vi vi_sub32(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

static inline vi vi_add32(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

static inline vi vi_shr32(vi a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}

static inline vi vi_shl32(vi a, int n)
{
    return _mm512_slli_epi32(a, (unsigned)n);
}

static inline vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

static inline vi vi_andnot(vi a, vi b)
{
    return _mm512_andnot_si512(a, b);
}

static inline vi vi_add16(vi a, vi b)
{
    return _mm512_add_epi16(a, b);
}

static inline vi vi_shr16(vi a, int n)
{
    return _mm512_srli_epi16(a, (unsigned)n);
}

static inline vi vi_max16(vi a, vi b)
{
    return _mm512_max_epu16(a, b);
}

/* Lanes of 16 bits that are at least limit, unsigned: bit n = half n. */
static inline uint32_t vi_halves_from(vi a, uint16_t limit)
{
    return _mm512_cmpge_epu16_mask(a, _mm512_set1_epi16((short)limit));
}

/* Elements of 16 bits that are at least limit, unsigned, become 0. */
static inline vi vi_clear_halves(vi a, uint32_t which)
{
    return _mm512_maskz_mov_epi16(~which, a);
}

/* Two times sixteen signed words saturated to unsigned 16 bits. Each group of four words of a is
 * followed by the same group of b: half 8g + i is a[4g + i], half 8g + 4 + i is b[4g + i]. */
static inline vi vi_pack(vi a, vi b)
{
    return _mm512_packus_epi32(a, b);
}

/* The low halves of a's words, then b's. */
static inline vi vi_join(vi a, vi b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
                              _mm512_cvtepi32_epi16(b), 1);
}

/* A table of 64 bytes, looked up by the low six bits of each 16-bit lane. Needs AVX512_VBMI. */
static inline vi vi_lookup(vi index, vi table)
{
    return _mm512_maskz_permutexvar_epi8(0x5555555555555555u, index, table);
}

/* Sixteen f32 to bf16, to nearest even, a denormal to zero. */
static inline void vf_store_bf16(void *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(x));
}

/* Of low and then high. */
static inline void vf_store_bf16_two(void *p, vf low, vf high)
{
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

static inline void vf_store_bf16_some(void *p, uint16_t mask, vf x)
{
    _mm256_mask_storeu_epi16(p, mask, (__m256i)_mm512_cvtneps_pbh(x));
}

static inline void vf_store_f16_some(void *p, uint16_t mask, vf x)
{
    _mm256_mask_storeu_epi16(p, mask, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline vf vf_load_bf16_some(const void *p, uint16_t mask)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline vf vf_load_f16_some(const void *p, uint16_t mask)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}

/* Which of the 16 bytes at p that the mask names are not 0. */
static inline uint16_t bytes_set(const void *p, uint16_t mask)
{
    __m128i bytes = _mm_maskz_loadu_epi8(mask, p);
    return _mm_test_epi8_mask(bytes, bytes);
}

/* The same of 32. */
static inline uint32_t bytes_set32(const void *p, uint32_t mask)
{
    __m256i bytes = _mm256_maskz_loadu_epi8(mask, p);
    return _mm256_test_epi8_mask(bytes, bytes);
}

/* acc[n] + the two bf16 of lane n, the odd one first. Two additions: beside tile products they are
 * cheaper than vdpbf16ps. */
static inline vf vf_add_pairs(vf acc, vi pairs)
{
    acc = _mm512_add_ps(
        acc, _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000))));
    return _mm512_add_ps(acc, _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
}

/* Halves a[c] b[c] of 32 columns, in the order that is cheapest: of each eight the first four go to
 * low and the others to high, and word 4 g + i is of column 8 g + i (high: 8 g + 4 + i). */
static inline void vi_interleave(vi a, vi b, vi *low, vi *high)
{
    *low = _mm512_unpacklo_epi16(a, b);
    *high = _mm512_unpackhi_epi16(a, b);
}

/* Back to columns 0-15 and 16-31. */
static inline void vf_in_order(vf *low, vf *high)
{
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    const __m512d a = _mm512_castps_pd(*low), b = _mm512_castps_pd(*high);
    *low = _mm512_castpd_ps(_mm512_permutex2var_pd(a, first, b));
    *high = _mm512_castpd_ps(_mm512_permutex2var_pd(a, second, b));
}

/* vf_in_order, then both to bf16. */
static inline void vf_store_bf16_in_order(void *p, vf low, vf high)
{
    const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
    _mm512_storeu_si512(p,
                        _mm512_permutexvar_epi64(order, (__m512i)_mm512_cvtne2ps_pbh(high, low)));
}

/* Four words each of four addresses: words 4 n to 4 n + 3 are p[n]'s. */
static inline vi vi_load_quarters(const char *p0, const char *p1, const char *p2, const char *p3)
{
    vi y = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p0));
    y = _mm512_mask_broadcast_i32x4(y, 0x00f0, _mm_loadu_si128((const __m128i *)(const void *)p1));
    y = _mm512_mask_broadcast_i32x4(y, 0x0f00, _mm_loadu_si128((const __m128i *)(const void *)p2));
    return _mm512_mask_broadcast_i32x4(y, 0xf000,
                                       _mm_loadu_si128((const __m128i *)(const void *)p3));
}

/* Transposes 4 x 4 words within each quarter. */
static inline void vi_transpose_quarters(vi r[4])
{
    vi a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    vi c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    r[0] = _mm512_unpacklo_epi64(a, c);
    r[1] = _mm512_unpackhi_epi64(a, c);
    r[2] = _mm512_unpacklo_epi64(b, d);
    r[3] = _mm512_unpackhi_epi64(b, d);
}

/* Transposes 16 x 16 words in place: 2 x 2, 4 x 4, then quarters of the registers. */
static inline void vi_transpose(vi r[16])
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

#else
#include "tile.h"

#include "lanes_model.h"
#endif

#endif
