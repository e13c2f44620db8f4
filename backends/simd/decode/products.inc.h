/*
 * The two products of the decode tile: scores of 16 keys, and 16 weighted values.
 *
 * A dot product is 16 partial sums, of the dims d with the same d % 16, added as i + (i + 8), then
 * i + (i + 4), i + (i + 2), i + (i + 1): on any vector width, so that AVX2 and AVX-512 give the
 * same bits. A weighted sum starts at zero for every block of 16 keys and is then added to the
 * row's, which avoids the rounding errors of one long running sum.
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
#include "../vec/pairs.h"
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
        V_PREFETCH_L1(at);
    else
        V_PREFETCH_L2(at);
}

/* How far ahead the lines of a stream are fetched: the usual bytes or, where a block has more, a block and
 * a half. Within a block it would be too shortly before their loads, as K and V are read in turns. */
V_INLINE int64_t fetch_distance(int64_t usual, int64_t block_bytes)
{
    return block_bytes > usual ? block_bytes + block_bytes / 2 : usual;
}

/* Fetches the lines that lie `ahead` bytes (0: none) behind some bytes of a row. */
V_INLINE void fetch_row(const fetch *f, const char *row, int64_t ahead, int64_t bytes)
{
    for (int64_t o = 0; ahead && o < bytes; o += 64)
        fetch_line(f, row + ahead + o);
}

/* Vectors of sums that registers hold beside the operands, and the dims of one row in them. */
#define SUMS (V_REGISTERS / 2)
#define SUM_DIMS (SUMS * LANES)

/* Vectors that hold the 16 partial sums of a dot product, and four sums of each of
 * up to four rows. */
#define DOT_PARTS (16 / LANES)
#define DOT_VECTORS(rows) ((4 * (rows) + LANES - 1) / LANES)

/* Sums are named variables, not arrays: prefill/products.inc.h says why. */
#if 16 / LANES == 1
#define EACH_PART(f, r) f(r, 0)
#define DOT_LAST s00
#elif 16 / LANES == 2
#define EACH_PART(f, r) f(r, 0) f(r, 1)
#define DOT_LAST s01
#else
#define EACH_PART(f, r) f(r, 0) f(r, 1) f(r, 2) f(r, 3)
#define DOT_LAST s03
#endif

/*
 * Multiplies a key, k, with `rows` rows of q, and where keys (constant) is 2 also l, for which q is not
 * loaded again. h[0] and h[1] get the four partial sums that are left of each, row by row. *then is the key
 * to load after these: in runs (in_order, constant) loads through it come after the sums. A compiler with
 * registers to spare would otherwise load the first lines of several keys before the rest of them, which
 * CPUs do not take for a stream.
 */
V_INLINE void dot_keys(uint32_t type, int rows, int keys, const float *q, int64_t q_stride,
                       const char *k, const char *l, int64_t dim, int64_t ahead, const fetch *f,
                       int in_order, vf h[][DOT_PARTS], const char **then)
{
    const int64_t bytes = type == HEED_F32 ? 4 : 2;
    const float *q0 = q, *q1 = q + q_stride, *q2 = q1 + q_stride, *q3 = q2 + q_stride;
#define DOT_ZERO(r, p) vf s##r##p = v_zero(), t##r##p = v_zero();
    EACH_PART(DOT_ZERO, 0)
    EACH_PART(DOT_ZERO, 1)
    EACH_PART(DOT_ZERO, 2)
    EACH_PART(DOT_ZERO, 3)
#undef DOT_ZERO
    int64_t d = 0;
#if PAIR == 2
#define DOT_LOAD(key, p, n) v_from_bits(load_pairs(key + d * bytes, 1, n))
#define DOT_SOME(key, p) DOT_LOAD(key, p, dim - d)
#else
#define DOT_LOAD(key, p, n) v_load_type(type, key + (d + p * LANES) * bytes, n)
#define DOT_SOME(key, p)                                                                           \
    (dim - d > p * LANES ? DOT_LOAD(key, p, (int)(dim - d) - p * LANES) : v_zero())
#endif
#define DOT_WHOLE(r, p)                                                                            \
    const vf x##p = DOT_LOAD(k, p, LANES * PAIR);                                                  \
    const vf y##p = keys == 2 ? DOT_LOAD(l, p, LANES * PAIR) : x##p;
#define DOT_REST(r, p) const vf x##p = DOT_SOME(k, p), y##p = keys == 2 ? DOT_SOME(l, p) : x##p;
#define DOT_ADD(r, p)                                                                              \
    if (rows > r) {                                                                                \
        const vf of_q = v_load(q##r + d / PAIR + p * LANES);                                       \
        s##r##p = v_multiply(of_q, x##p, s##r##p);                                                 \
        if (keys == 2)                                                                             \
            t##r##p = v_multiply(of_q, y##p, t##r##p);                                             \
    }
#define DOT_STEP(LOAD)                                                                             \
    {                                                                                              \
        if (ahead && (PAIR == 2 || bytes == 4 || d % 32 == 0))                                     \
            fetch_line(f, k + ahead + d * bytes);                                                  \
        EACH_PART(LOAD, 0)                                                                         \
        EACH_PART(DOT_ADD, 0)                                                                      \
        EACH_PART(DOT_ADD, 1)                                                                      \
        EACH_PART(DOT_ADD, 2)                                                                      \
        EACH_PART(DOT_ADD, 3)                                                                      \
    }
    for (; d + 16 * PAIR <= dim; d += 16 * PAIR)
        DOT_STEP(DOT_WHOLE)
    if (d < dim) /* apart, because loads of a part would keep the sums out of registers */
        DOT_STEP(DOT_REST)
#undef DOT_LOAD
#undef DOT_SOME
#undef DOT_WHOLE
#undef DOT_REST
#undef DOT_ADD
#undef DOT_STEP
    if (in_order)
        V_AFTER(*then, DOT_LAST);
#define DOT_S(r, p) s##r##p,
#define DOT_T(r, p) t##r##p,
    vf s[4][DOT_PARTS] = {
        {EACH_PART(DOT_S, 0)}, {EACH_PART(DOT_S, 1)}, {EACH_PART(DOT_S, 2)}, {EACH_PART(DOT_S, 3)}};
    vf t[4][DOT_PARTS] = {
        {EACH_PART(DOT_T, 0)}, {EACH_PART(DOT_T, 1)}, {EACH_PART(DOT_T, 2)}, {EACH_PART(DOT_T, 3)}};
#undef DOT_S
#undef DOT_T
    for (int i = 0; i < DOT_PARTS; i++)
        if (i * LANES < 4 * rows) {
            h[0][i] = v_fold(s, i);
            if (keys == 2)
                h[1][i] = v_fold(t, i);
        }
}

/* Adds up the partial sums that are left of four keys. Each four lanes of the result belong to a
 * row, with a lane for each key. */
V_INLINE vf dot_rows(vf h0, vf h1, vf h2, vf h3)
{
    const vf x = v_add(v_zip_low(h0, h1), v_zip_high(h0, h1));
    const vf y = v_add(v_zip_low(h2, h3), v_zip_high(h2, h3));
    return v_add(v_low_pairs(x, y), v_high_pairs(x, y));
}

/*
 * Products of `rows` (constant, up to 4) rows of q with keys k[j..j + 3]: row by row, four lanes
 * each. q is zero from dim to the next multiple of 16. Keys are read one after the other, each from
 * its first byte to its last: adjacent rows are then one stream, which the CPU's own prefetching
 * follows, as it would not follow four rows side by side. The lines `ahead` bytes on are fetched
 * besides; in_order (constant) keeps the compiler from mixing the loads of keys.
 */
V_INLINE void dot_four_keys(uint32_t type, int rows, const float *q, int64_t q_stride,
                            const char *const *k, int j, int64_t dim, int64_t ahead,
                            const int64_t *more, const fetch *f, int in_order, vf *sums)
{
    vf h[4][DOT_PARTS];
#if V_REGISTERS > 16
    /* Written out: registers hold what is left of four keys beside the sums of one. */
    const char *k0 = k[j], *k1 = k[j + 1], *k2 = k[j + 2], *k3 = k[j + 3], *none = k0;
#define DOT_KEY(i, then)                                                                           \
    dot_keys(type, rows, 1, q, q_stride, k##i, k##i, dim, more ? ahead + more[i] : ahead, f,       \
             in_order, h + i, &then);
    if (rows == 4 && !in_order && !ahead) { /* near: they need not be one stream */
        dot_keys(type, rows, 2, q, q_stride, k0, k1, dim, 0, f, 0, h, &none);
        dot_keys(type, rows, 2, q, q_stride, k2, k3, dim, 0, f, 0, h + 2, &none);
    } else {
        DOT_KEY(0, k1)
        DOT_KEY(1, k2)
        DOT_KEY(2, k3)
        DOT_KEY(3, none)
    }
#undef DOT_KEY
#else
    const char *key = k[j], *then;
    for (int i = 0; i < 4; i++, key = then) {
        then = i < 3 ? k[j + i + 1] : key;
        dot_keys(type, rows, 1, q, q_stride, key, key, dim, more ? ahead + more[i] : ahead, f,
                 in_order, h + i, &then);
    }
#endif
    const int used = DOT_VECTORS(rows);
    for (int i = 0; i < used; i++)
        sums[i] = dot_rows(h[0][i], h[1][i], h[2][i], h[3][i]);
}

/* Stores 16 scores of each row. s[j] holds the products with keys 4 * j to 4 * j + 3. */
V_INLINE void store_scores(float *scores, int rows, vf s[4][DOT_PARTS])
{
    const int fours = LANES / 4; /* four lanes each in a vector */
    V_UNROLL for (int r = 0; r < rows; r += fours) V_UNROLL for (int j = 0; j < 4; j += fours)
    {
        vf x[LANES / 4];
        V_UNROLL for (int i = 0; i < fours; i++) x[i] = s[j + i][r / fours];
        v_transpose_fours(x);
        V_UNROLL for (int i = 0; i < fours; i++) if (r + i < rows)
            v_store(scores + (r + i) * DECODE_BLOCK + 4 * j, x[i]);
    }
}

/* Where a block's values lie: at the addresses `each`, or with `even` (constant) from `first` on,
 * `step` bytes apart. */
typedef struct value_rows {
    int even;
    const char *const *each;
    const char *first;
    int64_t step;
    const int64_t *more; /* to `ahead`, of each row; NULL: none */
    const char *next;    /* lines are fetched from here on instead, in order; NULL: they are not */
} value_rows;

V_INLINE const char *value_row(const value_rows *v, int64_t i)
{
    return v->even ? v->first + i * v->step : v->each[i];
}

/* Fetches what goes with `bytes` bytes of row i, at `value`: a constant, a part of 64 or a multiple. */
V_INLINE void fetch_value(const fetch *f, const value_rows *v, int64_t i, const char *value,
                          int64_t ahead, int64_t bytes)
{
    if (!v->next)
        fetch_row(f, value, v->more && ahead ? ahead + v->more[i] : ahead, bytes);
    else if (i * bytes % 64 == 0)
        for (int64_t o = 0; o < bytes; o += 64)
            fetch_line(f, v->next + i * bytes + o);
}

/*
 * acc[row, d..] += sum over n words of keys of weights[row, index] * value, for `rows` (1 to 4,
 * constant) rows and `vectors` (1, 2, 4 or 8, constant) vectors of dims, or only `few` dims where
 * that is not 0 and vectors is PAIR. v has a value for each key of a word. index has the place of
 * each word's weights, where v is not even; rows of weights are DECODE_BLOCK apart. The lines
 * `ahead` bytes on are fetched. Every sum has a register: rows * vectors is at most SUMS.
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
        fetch_value(f, v, 2 * i, value, ahead, vectors * LANES * size);
        fetch_value(f, v, 2 * i + 1, second, ahead, vectors * LANES * size);
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
        fetch_value(f, v, i, value, ahead, vectors * LANES * size);
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
