/*
 * The two products of the decode tile: scores of 16 keys, and 16 weighted values.
 *
 * A dot product is 16 partial sums, of the dims d with the same d % 16, added as i + (i + 8), then
 * i + (i + 4), i + (i + 2), i + (i + 1): on any vector width, so that AVX2 and AVX-512 give the
 * same bits. A weighted sum starts at zero for every block of 16 keys and is then added to the
 * row's: the error of a long running sum stays away.
 *
 * Compiled with HEED_SIMD_DOT both products are of pairs of bf16, vdpbf16ps: a dot product's
 * partial sums then are of the dims with the same d / 2 % 16, and weights come two keys to a word.
 *
 * Up to four rows of q are multiplied with each key that has been loaded. The last dims of a row
 * come by masked loads.
 *
 * Lines are prefetched one by one between the arithmetic: a burst of them would fill the core's
 * line buffers and then stop it.
 */
#ifndef HEED_SIMD_DECODE_PRODUCTS_H
#define HEED_SIMD_DECODE_PRODUCTS_H

#include "decode.h"
#ifdef HEED_SIMD_DOT
#include "../vec/dot.h"
#define PAIR 2 /* elements of a word of the products */
#define v_multiply v_dot
#else
#include "../vec/vec.h"
#define PAIR 1
#define v_multiply v_fma
#endif

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

/* The lines `ahead` (0: none) behind some bytes of a row. */
V_INLINE void fetch_row(const fetch *f, const char *row, int64_t ahead, int64_t bytes)
{
    for (int64_t o = 0; ahead && o < bytes; o += 64)
        fetch_line(f, row + ahead + o);
}

/* In runs, loads through `then` come behind x. A compiler that has registers to spare would load
 * the first lines of several rows before the others, which CPUs do not take for a stream. */
#if !defined(__GNUC__)
#define LOAD_AFTER(then, x) (void)(then)
#elif LANES == 16
#define LOAD_AFTER(then, x) __asm__("" : "+r"(then) : "v"(x))
#else
#define LOAD_AFTER(then, x) __asm__("" : "+r"(then) : "x"(x))
#endif

/*
 * dot_four_keys: for `rows` (constant, up to 4) rows of q and keys k[j..j + 3] their products, row
 * by row in quarters (AVX-512) or halves (AVX2) of a vector. q is zero from dim to the next
 * multiple of 16. Key after key, each from its first byte to its last: adjacent rows then are one
 * stream, which the CPU's own prefetching follows as it would not follow four rows side by side.
 * The lines `ahead` bytes on are fetched besides; in_order (constant) keeps the compiler from
 * mixing keys' loads.
 */
#define DOT_PARTS (4 * 4 / LANES) /* vectors of four products of four rows */

#ifdef __AVX512F__

V_INLINE __m512 fold_four(__m512 a, __m512 b, __m512 c, __m512 d)
{
    __m512 x = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
}

/* The four partial sums that are left of each row, in its quarter. *then is the key to load after
 * this one. */
V_INLINE __m512 dot_key(uint32_t type, int rows, const float *q, int64_t q_stride, const char *k,
                        int64_t dim, int64_t ahead, const fetch *f, int in_order, const char **then)
{
    const int64_t bytes = type == HEED_F32 ? 4 : 2;
    const float *q1 = q + q_stride, *q2 = q1 + q_stride, *q3 = q2 + q_stride;
    __m512 s0 = _mm512_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
#if PAIR == 2
    (void)bytes;
    for (int64_t d = 0; d < dim; d += DOT_WIDTH) {
        if (ahead)
            fetch_line(f, k + ahead + d * 2);
        vf x = v_from_bits(load_pairs(k + d * 2, 1, dim - d));
        s0 = v_dot(v_load(q + d / 2), x, s0);
        if (rows > 1)
            s1 = v_dot(v_load(q1 + d / 2), x, s1);
        if (rows > 2)
            s2 = v_dot(v_load(q2 + d / 2), x, s2);
        if (rows > 3)
            s3 = v_dot(v_load(q3 + d / 2), x, s3);
    }
#else
    for (int64_t d = 0; d < dim; d += 16) {
        if (ahead && (bytes == 4 || d % 32 == 0))
            fetch_line(f, k + ahead + d * bytes);
        __m512 x = v_load_type(type, k + d * bytes, dim - d < LANES ? (int)(dim - d) : LANES);
        s0 = _mm512_fmadd_ps(_mm512_loadu_ps(q + d), x, s0);
        if (rows > 1)
            s1 = _mm512_fmadd_ps(_mm512_loadu_ps(q1 + d), x, s1);
        if (rows > 2)
            s2 = _mm512_fmadd_ps(_mm512_loadu_ps(q2 + d), x, s2);
        if (rows > 3)
            s3 = _mm512_fmadd_ps(_mm512_loadu_ps(q3 + d), x, s3);
    }
#endif
    if (in_order)
        LOAD_AFTER(*then, s0);
    return fold_four(s0, s1, s2, s3);
}

V_INLINE void dot_four_keys(uint32_t type, int rows, const float *q, int64_t q_stride,
                            const char *const *k, int j, int64_t dim, int64_t ahead,
                            const int64_t *more, const fetch *f, int in_order, vf *sum)
{
    const char *k0 = k[j], *k1 = k[j + 1], *k2 = k[j + 2], *k3 = k[j + 3], *none = k0;
#define AHEAD(i) (more ? ahead + more[i] : ahead)
    __m512 h0 = dot_key(type, rows, q, q_stride, k0, dim, AHEAD(0), f, in_order, &k1);
    __m512 h1 = dot_key(type, rows, q, q_stride, k1, dim, AHEAD(1), f, in_order, &k2);
    __m512 h2 = dot_key(type, rows, q, q_stride, k2, dim, AHEAD(2), f, in_order, &k3);
    __m512 h3 = dot_key(type, rows, q, q_stride, k3, dim, AHEAD(3), f, in_order, &none);
#undef AHEAD
    __m512 x = _mm512_add_ps(_mm512_unpacklo_ps(h0, h1), _mm512_unpackhi_ps(h0, h1));
    __m512 y = _mm512_add_ps(_mm512_unpacklo_ps(h2, h3), _mm512_unpackhi_ps(h2, h3));
    *sum = _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
}

/* 16 scores of each row from four products of four keys. */
V_INLINE void store_scores(float *scores, int rows, vf s[4][DOT_PARTS])
{
    const vf *s0 = s[0], *s1 = s[1], *s2 = s[2], *s3 = s[3];
    vf a = _mm512_shuffle_f32x4(*s0, *s1, 0x44), b = _mm512_shuffle_f32x4(*s2, *s3, 0x44);
    vf c = _mm512_shuffle_f32x4(*s0, *s1, 0xee), d = _mm512_shuffle_f32x4(*s2, *s3, 0xee);
    v_store(scores, _mm512_shuffle_f32x4(a, b, 0x88));
    if (rows > 1)
        v_store(scores + DECODE_BLOCK, _mm512_shuffle_f32x4(a, b, 0xdd));
    if (rows > 2)
        v_store(scores + 2 * DECODE_BLOCK, _mm512_shuffle_f32x4(c, d, 0x88));
    if (rows > 3)
        v_store(scores + 3 * DECODE_BLOCK, _mm512_shuffle_f32x4(c, d, 0xdd));
}

#else

V_INLINE __m256 fold_two(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* The four partial sums that are left of each row: of rows 0 and 1 in the halves of h[0], of 2 and
 * 3 in those of h[1]. *then is the key to load after this one. */
V_INLINE void dot_key(uint32_t type, int rows, const float *q, int64_t q_stride, const char *k,
                      int64_t dim, int64_t ahead, const fetch *f, int in_order, __m256 h[2],
                      const char **then)
{
    const int64_t bytes = type == HEED_F32 ? 4 : 2;
    const float *q1 = q + q_stride, *q2 = q1 + q_stride, *q3 = q2 + q_stride;
    __m256 l0 = _mm256_setzero_ps(), l1 = l0, l2 = l0, l3 = l0, u0 = l0, u1 = l0, u2 = l0, u3 = l0;
#define DOT_ROW(n, q)                                                                              \
    if (rows > n) {                                                                                \
        l##n = _mm256_fmadd_ps(_mm256_loadu_ps(q + d), x, l##n);                                   \
        u##n = _mm256_fmadd_ps(_mm256_loadu_ps(q + d + 8), y, u##n);                               \
    }
    for (int64_t d = 0; d < dim; d += 16) {
        const int n = dim - d < 16 ? (int)(dim - d) : 16;
        if (ahead && (bytes == 4 || d % 32 == 0))
            fetch_line(f, k + ahead + d * bytes);
        __m256 x = v_load_type(type, k + d * bytes, n);
        __m256 y = n > 8 ? v_load_type(type, k + (d + 8) * bytes, n - 8) : _mm256_setzero_ps();
        DOT_ROW(0, q)
        DOT_ROW(1, q1)
        DOT_ROW(2, q2)
        DOT_ROW(3, q3)
    }
#undef DOT_ROW
    if (in_order)
        LOAD_AFTER(*then, u0);
    h[0] = fold_two(_mm256_add_ps(l0, u0), _mm256_add_ps(l1, u1));
    if (rows > 2)
        h[1] = fold_two(_mm256_add_ps(l2, u2), _mm256_add_ps(l3, u3));
}

V_INLINE void dot_four_keys(uint32_t type, int rows, const float *q, int64_t q_stride,
                            const char *const *k, int j, int64_t dim, int64_t ahead,
                            const int64_t *more, const fetch *f, int in_order, vf *sums)
{
    const char *key = k[j], *then;
    __m256 h[4][2];
    for (int i = 0; i < 4; i++, key = then) {
        then = i < 3 ? k[j + i + 1] : key;
        dot_key(type, rows, q, q_stride, key, dim, more ? ahead + more[i] : ahead, f, in_order,
                h[i], &then);
    }
    for (int r = 0; 2 * r < rows; r++) {
        __m256 x = _mm256_add_ps(_mm256_unpacklo_ps(h[0][r], h[1][r]),
                                 _mm256_unpackhi_ps(h[0][r], h[1][r]));
        __m256 y = _mm256_add_ps(_mm256_unpacklo_ps(h[2][r], h[3][r]),
                                 _mm256_unpackhi_ps(h[2][r], h[3][r]));
        sums[r] = _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xee));
    }
}

V_INLINE void store_scores(float *scores, int rows, vf s[4][DOT_PARTS])
{
    for (int r = 0; r < rows; r += 2, scores += 2 * DECODE_BLOCK) {
        const vf s0 = s[0][r / 2], s1 = s[1][r / 2], s2 = s[2][r / 2], s3 = s[3][r / 2];
        v_store(scores, _mm256_permute2f128_ps(s0, s1, 0x20));
        v_store(scores + 8, _mm256_permute2f128_ps(s2, s3, 0x20));
        if (r + 1 < rows) {
            v_store(scores + DECODE_BLOCK, _mm256_permute2f128_ps(s0, s1, 0x31));
            v_store(scores + DECODE_BLOCK + 8, _mm256_permute2f128_ps(s2, s3, 0x31));
        }
    }
}
#endif

/* A block's values: each row's address, or (constant) `even` and the first's, and the bytes from
 * one to the next. */
typedef struct value_rows {
    int even;
    const char *const *each;
    const char *first;
    int64_t step;
    const int64_t *more; /* to `ahead`, of each row; NULL: none */
} value_rows;

V_INLINE const char *value_row(const value_rows *v, int64_t i)
{
    return v->even ? v->first + i * v->step : v->each[i];
}

V_INLINE int64_t value_ahead(const value_rows *v, int64_t i, int64_t ahead)
{
    return v->more && ahead ? ahead + v->more[i] : ahead;
}

/*
 * acc[row, 0..] += sum over n words of keys of weights[row, index] * value, for `rows` (1 to 4,
 * constant) rows and `vectors` (1, 2, 4 or 8, constant) vectors of dims, or the first `few` dims
 * where that is not 0 and vectors is PAIR. v, one row for each key of a word, and index (where
 * not even) name them; rows of weights are DECODE_BLOCK apart. The lines `ahead` bytes on are
 * fetched. Every sum has a register: rows * vectors are at most 8 or, of AVX-512, 16.
 */
#define WEIGH_ALL(r, DO, n0, n1, n2, n3, n4, n5, n6, n7)                                           \
    DO(r, 0, n0)                                                                                   \
    if (vectors > 1)                                                                               \
        DO(r, 1, n1)                                                                               \
    if (vectors > 2) {                                                                             \
        DO(r, 2, n2)                                                                               \
        DO(r, 3, n3)                                                                               \
    }                                                                                              \
    if (vectors > 4) {                                                                             \
        DO(r, 4, n4)                                                                               \
        DO(r, 5, n5)                                                                               \
        DO(r, 6, n6)                                                                               \
        DO(r, 7, n7)                                                                               \
    }
#define WEIGH_ROW_OF(r, DO)                                                                        \
    WEIGH_ALL(r, DO, s##r##0, s##r##1, s##r##2, s##r##3, s##r##4, s##r##5, s##r##6, s##r##7)
V_INLINE void weigh_keys(uint32_t type, int rows, int vectors, int few, const float *weights,
                         const value_rows *v, const uint8_t *index, int n, int64_t d, float *acc,
                         int64_t acc_stride, int64_t ahead, const fetch *f)
{
    const int64_t size = type == HEED_F32 ? 4 : 2;
    vf z = v_zero();
#define WEIGH_ZERO(r)                                                                              \
    vf s##r##0 = z, s##r##1 = z, s##r##2 = z, s##r##3 = z;                                         \
    vf s##r##4 = z, s##r##5 = z, s##r##6 = z, s##r##7 = z;
    WEIGH_ZERO(0)
    WEIGH_ZERO(1)
    WEIGH_ZERO(2)
    WEIGH_ZERO(3)
#undef WEIGH_ZERO
    for (int i = 0; i < n; i++) {
        const float *w = weights + (v->even ? i : index[i]);
        vf y, x0 = z, x1 = z, x2 = z, x3 = z, x4 = z, x5 = z, x6 = z, x7 = z;
#if PAIR == 2
        const char *value = value_row(v, 2 * i) + d * size;
        const char *second = value_row(v, 2 * i + 1) + d * size;
        const int64_t left = few ? few : DOT_WIDTH;
        fetch_row(f, value, value_ahead(v, 2 * i, ahead), vectors * LANES * size);
        fetch_row(f, second, value_ahead(v, 2 * i + 1, ahead), vectors * LANES * size);
        v_pair_rows(load_pairs(value, 1, left), load_pairs(second, 1, left), &x0, &x1);
#define WEIGH_PAIR(n, first, then)                                                                 \
    if (vectors > n)                                                                               \
        v_pair_rows(load_pairs(value + n * 32, 1, DOT_WIDTH),                                      \
                    load_pairs(second + n * 32, 1, DOT_WIDTH), &first, &then);
        WEIGH_PAIR(2, x2, x3)
        WEIGH_PAIR(4, x4, x5)
        WEIGH_PAIR(6, x6, x7)
#undef WEIGH_PAIR
#else
        const char *value = value_row(v, i) + d * size;
        fetch_row(f, value, value_ahead(v, i, ahead), vectors * LANES * size);
#define WEIGH_LOAD(r, n, x) x = v_load_type(type, value + n * LANES * size, few ? few : LANES);
        WEIGH_ALL(0, WEIGH_LOAD, x0, x1, x2, x3, x4, x5, x6, x7)
#undef WEIGH_LOAD
#endif
#define WEIGH_ADD(r, n, s) s = v_multiply(y, x##n, s);
#define WEIGH_ROW(r)                                                                               \
    if (rows > r) {                                                                                \
        y = v_broadcast(&w[r * DECODE_BLOCK]);                                                     \
        WEIGH_ROW_OF(r, WEIGH_ADD)                                                                 \
    }
        WEIGH_ROW(0)
        WEIGH_ROW(1)
        WEIGH_ROW(2)
        WEIGH_ROW(3)
#undef WEIGH_ROW
#undef WEIGH_ADD
    }
    acc += d;
#define WEIGH_STORE(r, n, s) v_store(to + n * LANES, v_add(v_load(to + n * LANES), s));
#define WEIGH_ROW(r)                                                                               \
    if (rows > r) {                                                                                \
        float *to = acc + r * acc_stride;                                                          \
        if (few) {                                                                                 \
            v_store_n(to, v_add(v_load_n(to, few), s##r##0), few);                                 \
            if (few > LANES)                                                                       \
                v_store_n(to + LANES, v_add(v_load_n(to + LANES, few - LANES), s##r##1),           \
                          few - LANES);                                                            \
        } else {                                                                                   \
            WEIGH_ROW_OF(r, WEIGH_STORE)                                                           \
        }                                                                                          \
    }
    WEIGH_ROW(0)
    WEIGH_ROW(1)
    WEIGH_ROW(2)
    WEIGH_ROW(3)
#undef WEIGH_ROW
#undef WEIGH_STORE
}
#undef WEIGH_ROW_OF
#undef WEIGH_ALL

#endif
