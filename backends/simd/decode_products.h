/*
 * The two products of the decode tile: scores of 16 keys, and 16 weighted values.
 *
 * A dot product is 16 partial sums, of the dims d with the same d % 16, added as i + (i + 8), then
 * i + (i + 4), i + (i + 2), i + (i + 1): on any vector width, so that AVX2 and AVX-512 give the
 * same bits. A weighted sum starts at zero for every block of 16 keys and is then added to the
 * row's: the error of a long running sum stays away.
 *
 * AVX-512 works on 4 keys x 4 rows, 16 accumulators; AVX2 on 4 keys x 2 rows, first the lower 8 of
 * 16 lanes and then the upper ones. The last dims of a row come by masked loads.
 *
 * Lines are prefetched one by one between the arithmetic: a burst of them would fill the core's
 * line buffers and then stop it.
 */
#ifndef HEED_SIMD_DECODE_PRODUCTS_H
#define HEED_SIMD_DECODE_PRODUCTS_H

#include "decode.h"
#include "vec.h"

/* How far ahead of the loads lines are fetched, in bytes; 0: not at all. */
typedef struct fetch {
    int64_t k, v;
    int near; /* to L1, else to L2 */
} fetch;

V_INLINE void fetch_line(const fetch *f, const char *at)
{
    if (f->near)
        _mm_prefetch(at, _MM_HINT_T0);
    else
        _mm_prefetch(at, _MM_HINT_T1);
}

/* dot_four_keys: for `rows` (constant) rows of q and keys k[j..j + 3] their products, row by row in
 * quarters (AVX-512) or halves (AVX2) of a vector. q is zero from dim to the next multiple of 16.
 * The lines `ahead` bytes on are fetched. */
#ifdef __AVX512F__
#define DECODE_DOT_ROWS 4

V_INLINE __m512 fold_four(__m512 a, __m512 b, __m512 c, __m512 d)
{
    __m512 x = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
}

V_INLINE __m512 dot_four_keys(uint32_t type, int rows, const float *q, int64_t q_stride,
                              const char *const *k, int j, int64_t dim, int64_t ahead,
                              const fetch *f)
{
    const int64_t bytes = type == HEED_F32 ? 4 : 2;
    const char *k0 = k[j], *k1 = k[j + 1], *k2 = k[j + 2], *k3 = k[j + 3];
    const float *q1 = q + q_stride, *q2 = q1 + q_stride, *q3 = q2 + q_stride;
    __m512 z = _mm512_setzero_ps();
    __m512 s00 = z, s01 = z, s02 = z, s03 = z, s10 = z, s11 = z, s12 = z, s13 = z;
    __m512 s20 = z, s21 = z, s22 = z, s23 = z, s30 = z, s31 = z, s32 = z, s33 = z;
    int64_t d = 0;
#define DOT_STEP(load)                                                                             \
    {                                                                                              \
        __m512 x0 = load(k0), x1 = load(k1), x2 = load(k2), x3 = load(k3);                         \
        __m512 y = _mm512_loadu_ps(q + d);                                                         \
        s00 = _mm512_fmadd_ps(y, x0, s00), s01 = _mm512_fmadd_ps(y, x1, s01);                      \
        s02 = _mm512_fmadd_ps(y, x2, s02), s03 = _mm512_fmadd_ps(y, x3, s03);                      \
        if (rows > 1) {                                                                            \
            y = _mm512_loadu_ps(q1 + d);                                                           \
            s10 = _mm512_fmadd_ps(y, x0, s10), s11 = _mm512_fmadd_ps(y, x1, s11);                  \
            s12 = _mm512_fmadd_ps(y, x2, s12), s13 = _mm512_fmadd_ps(y, x3, s13);                  \
        }                                                                                          \
        if (rows > 2) {                                                                            \
            y = _mm512_loadu_ps(q2 + d);                                                           \
            s20 = _mm512_fmadd_ps(y, x0, s20), s21 = _mm512_fmadd_ps(y, x1, s21);                  \
            s22 = _mm512_fmadd_ps(y, x2, s22), s23 = _mm512_fmadd_ps(y, x3, s23);                  \
        }                                                                                          \
        if (rows > 3) {                                                                            \
            y = _mm512_loadu_ps(q3 + d);                                                           \
            s30 = _mm512_fmadd_ps(y, x0, s30), s31 = _mm512_fmadd_ps(y, x1, s31);                  \
            s32 = _mm512_fmadd_ps(y, x2, s32), s33 = _mm512_fmadd_ps(y, x3, s33);                  \
        }                                                                                          \
    }
#define DOT_WHOLE(p) v_load_type(type, p + d * bytes, LANES)
#define DOT_FIRST(p) v_load_type(type, p + d * bytes, (int)(dim - d))
    for (; d + 16 <= dim; d += 16) {
        if (ahead && (bytes == 4 || d % 32 == 0)) {
            fetch_line(f, k0 + ahead + d * bytes);
            fetch_line(f, k1 + ahead + d * bytes);
            fetch_line(f, k2 + ahead + d * bytes);
            fetch_line(f, k3 + ahead + d * bytes);
        }
        DOT_STEP(DOT_WHOLE)
    }
    if (d < dim)
        DOT_STEP(DOT_FIRST)
#undef DOT_WHOLE
#undef DOT_FIRST
#undef DOT_STEP
    /* Quarter r of h_k: the four partial sums that are left of row r and key k. */
    __m512 h0 = fold_four(s00, s10, s20, s30), h1 = fold_four(s01, s11, s21, s31);
    __m512 h2 = fold_four(s02, s12, s22, s32), h3 = fold_four(s03, s13, s23, s33);
    __m512 x = _mm512_add_ps(_mm512_unpacklo_ps(h0, h1), _mm512_unpackhi_ps(h0, h1));
    __m512 y = _mm512_add_ps(_mm512_unpacklo_ps(h2, h3), _mm512_unpackhi_ps(h2, h3));
    __m512 sum = _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
    return sum;
}

/* 16 scores of each row from four products of four keys. */
V_INLINE void store_scores(float *scores, int rows, const vf s[4])
{
    vf a = _mm512_shuffle_f32x4(s[0], s[1], 0x44), b = _mm512_shuffle_f32x4(s[2], s[3], 0x44);
    vf c = _mm512_shuffle_f32x4(s[0], s[1], 0xee), d = _mm512_shuffle_f32x4(s[2], s[3], 0xee);
    v_store(scores, _mm512_shuffle_f32x4(a, b, 0x88));
    if (rows > 1)
        v_store(scores + DECODE_BLOCK, _mm512_shuffle_f32x4(a, b, 0xdd));
    if (rows > 2)
        v_store(scores + 2 * DECODE_BLOCK, _mm512_shuffle_f32x4(c, d, 0x88));
    if (rows > 3)
        v_store(scores + 3 * DECODE_BLOCK, _mm512_shuffle_f32x4(c, d, 0xdd));
}

#else
#define DECODE_DOT_ROWS 2

/* Eight of every 16 dims, from `from` (0 or 8) on. */
V_INLINE void dot_half(uint32_t type, int rows, const float *q, const float *q1,
                       const char *const *k, int j, int64_t dim, int64_t from, int64_t ahead,
                       const fetch *f, __m256 sums[8])
{
    const int64_t bytes = type == HEED_F32 ? 4 : 2;
    const char *k0 = k[j], *k1 = k[j + 1], *k2 = k[j + 2], *k3 = k[j + 3];
    __m256 z = _mm256_setzero_ps();
    __m256 s00 = z, s01 = z, s02 = z, s03 = z, s10 = z, s11 = z, s12 = z, s13 = z;
    int64_t d = from;
#define DOT_STEP(load)                                                                             \
    {                                                                                              \
        __m256 y0 = _mm256_loadu_ps(q + d), y1 = y0, x;                                            \
        if (rows > 1)                                                                              \
            y1 = _mm256_loadu_ps(q1 + d);                                                          \
        x = load(k0), s00 = _mm256_fmadd_ps(y0, x, s00);                                           \
        if (rows > 1)                                                                              \
            s10 = _mm256_fmadd_ps(y1, x, s10);                                                     \
        x = load(k1), s01 = _mm256_fmadd_ps(y0, x, s01);                                           \
        if (rows > 1)                                                                              \
            s11 = _mm256_fmadd_ps(y1, x, s11);                                                     \
        x = load(k2), s02 = _mm256_fmadd_ps(y0, x, s02);                                           \
        if (rows > 1)                                                                              \
            s12 = _mm256_fmadd_ps(y1, x, s12);                                                     \
        x = load(k3), s03 = _mm256_fmadd_ps(y0, x, s03);                                           \
        if (rows > 1)                                                                              \
            s13 = _mm256_fmadd_ps(y1, x, s13);                                                     \
    }
#define DOT_WHOLE(p) v_load_type(type, p + d * bytes, LANES)
#define DOT_FIRST(p) v_load_type(type, p + d * bytes, (int)(dim - d))
    for (; d + 8 <= dim; d += 16) {
        if (ahead && (bytes == 4 || d % 32 == 0)) {
            fetch_line(f, k0 + ahead + d * bytes);
            fetch_line(f, k1 + ahead + d * bytes);
            fetch_line(f, k2 + ahead + d * bytes);
            fetch_line(f, k3 + ahead + d * bytes);
        }
        DOT_STEP(DOT_WHOLE)
    }
    if (d < dim)
        DOT_STEP(DOT_FIRST)
#undef DOT_WHOLE
#undef DOT_FIRST
#undef DOT_STEP
    sums[0] = s00, sums[1] = s01, sums[2] = s02, sums[3] = s03;
    sums[4] = s10, sums[5] = s11, sums[6] = s12, sums[7] = s13;
}

V_INLINE __m256 fold_two(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

V_INLINE __m256 dot_four_keys(uint32_t type, int rows, const float *q, int64_t q_stride,
                              const char *const *k, int j, int64_t dim, int64_t ahead,
                              const fetch *f)
{
    __m256 low[8], high[8];
    dot_half(type, rows, q, q + q_stride, k, j, dim, 0, ahead, f, low);
    dot_half(type, rows, q, q + q_stride, k, j, dim, 8, 0, f, high);
    __m256 h0 = fold_two(_mm256_add_ps(low[0], high[0]), _mm256_add_ps(low[4], high[4]));
    __m256 h1 = fold_two(_mm256_add_ps(low[1], high[1]), _mm256_add_ps(low[5], high[5]));
    __m256 h2 = fold_two(_mm256_add_ps(low[2], high[2]), _mm256_add_ps(low[6], high[6]));
    __m256 h3 = fold_two(_mm256_add_ps(low[3], high[3]), _mm256_add_ps(low[7], high[7]));
    __m256 x = _mm256_add_ps(_mm256_unpacklo_ps(h0, h1), _mm256_unpackhi_ps(h0, h1));
    __m256 y = _mm256_add_ps(_mm256_unpacklo_ps(h2, h3), _mm256_unpackhi_ps(h2, h3));
    __m256 sum = _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xee));
    return sum;
}

V_INLINE void store_scores(float *scores, int rows, const vf s[4])
{
    v_store(scores, _mm256_permute2f128_ps(s[0], s[1], 0x20));
    v_store(scores + 8, _mm256_permute2f128_ps(s[2], s[3], 0x20));
    if (rows > 1) {
        v_store(scores + DECODE_BLOCK, _mm256_permute2f128_ps(s[0], s[1], 0x31));
        v_store(scores + DECODE_BLOCK + 8, _mm256_permute2f128_ps(s[2], s[3], 0x31));
    }
}
#endif

/*
 * acc[row, 0..] += sum over n keys of weights[row, index] * value, for `rows` (1, 2 or 4, constant)
 * rows and `vectors` (constant) vectors of dims, or the first `few` dims where that is not 0.
 * values and index name the keys; rows of weights are DECODE_BLOCK apart. The
 * lines `ahead` bytes on are fetched.
 */
V_INLINE void weigh_keys(uint32_t type, int rows, int vectors, int few, const float *weights,
                         const char *const *values, const uint8_t *index, int n, int64_t d,
                         float *acc, int64_t acc_stride, int64_t ahead, const fetch *f)
{
    const int64_t size = type == HEED_F32 ? 4 : 2;
    vf z = v_zero();
    vf s00 = z, s01 = z, s02 = z, s03 = z, s10 = z, s11 = z, s12 = z, s13 = z;
    vf s20 = z, s21 = z, s22 = z, s23 = z, s30 = z, s31 = z, s32 = z, s33 = z;
    for (int i = 0; i < n; i++) {
        const char *value = values[i] + d * size;
        const float *w = weights + index[i];
        vf y, x0, x1 = z, x2 = z, x3 = z;
        if (ahead)
            for (int64_t o = 0; o < vectors * LANES * size; o += 64)
                fetch_line(f, value + ahead + o);
        if (few) {
            x0 = v_load_type(type, value, few);
        } else {
            x0 = v_load_type(type, value, LANES);
            if (vectors > 1)
                x1 = v_load_type(type, value + LANES * size, LANES);
            if (vectors > 2)
                x2 = v_load_type(type, value + 2 * LANES * size, LANES);
            if (vectors > 2)
                x3 = v_load_type(type, value + 3 * LANES * size, LANES);
        }
#define WEIGH_ROW(r)                                                                               \
    if (rows > r) {                                                                                \
        y = v_set1(w[r * DECODE_BLOCK]);                                                           \
        s##r##0 = v_fma(y, x0, s##r##0);                                                           \
        if (vectors > 1)                                                                           \
            s##r##1 = v_fma(y, x1, s##r##1);                                                       \
        if (vectors > 2)                                                                           \
            s##r##2 = v_fma(y, x2, s##r##2), s##r##3 = v_fma(y, x3, s##r##3);                      \
    }
        WEIGH_ROW(0)
        WEIGH_ROW(1)
        WEIGH_ROW(2)
        WEIGH_ROW(3)
#undef WEIGH_ROW
    }
    acc += d;
#define WEIGH_ADD(r)                                                                               \
    if (rows > r) {                                                                                \
        float *to = acc + r * acc_stride;                                                          \
        if (few) {                                                                                 \
            v_store_n(to, v_add(v_load_n(to, few), s##r##0), few);                                 \
        } else {                                                                                   \
            v_store(to, v_add(v_load(to), s##r##0));                                               \
            if (vectors > 1)                                                                       \
                v_store(to + LANES, v_add(v_load(to + LANES), s##r##1));                           \
            if (vectors > 2) {                                                                     \
                v_store(to + 2 * LANES, v_add(v_load(to + 2 * LANES), s##r##2));                   \
                v_store(to + 3 * LANES, v_add(v_load(to + 3 * LANES), s##r##3));                   \
            }                                                                                      \
        }                                                                                          \
    }
    WEIGH_ADD(0)
    WEIGH_ADD(1)
    WEIGH_ADD(2)
    WEIGH_ADD(3)
#undef WEIGH_ADD
}

#endif
