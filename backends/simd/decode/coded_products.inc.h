/*
 * The two products of runs with codes (coded.inc.h): scores of 16 keys, and 16 weighted values. Codes
 * are decoded in registers, once for up to four rows, to the bits that copies of the block give
 * (scales.inc.h).
 */
#ifndef HEED_SIMD_DECODE_CODED_PRODUCTS_H
#define HEED_SIMD_DECODE_CODED_PRODUCTS_H

#include "state.inc.h"

#define CODED_ROWS 4 /* the most that share a decoded vector */

/* Are zeros of this type subtracted in registers? */
V_INLINE int coded_has_zero(uint32_t type)
{
    return type == HEED_U8 || type == HEED_U4;
}

/* Vectors of a block of 32 dims. */
#define CODED_VECTORS (32 / LANES)

/* Does a table of all values of a block's codes take the place of arithmetic on each? */
#ifdef V_LOOKUP
#define CODED_TABLE(type) ((type) == HEED_U4 || ((type) >= HEED_Q4_0 && (type) <= HEED_IQ4_NL))
#else
#define CODED_TABLE(type) 0
#endif

/* Are codes decoded faster together, two times 2 * LANES of them? */
#ifdef V_TWO_E4M3
#define CODED_TWO(type) ((type) == HEED_F8_E4M3)
#else
#define CODED_TWO(type) 0
#endif

/* Are the factors of the type's blocks of 32 dims read beforehand? */
#ifdef CODED_FACTORS
#define CODED_HAS_FACTORS(type) code_has_blocks(type)
#else
#define CODED_HAS_FACTORS(type) ((void)(type), 0)
#endif

/* Floats from the factors of 32 dims to those of the next, and from a scale to what is added to its
 * multiples, in coded_factors. */
#define CODED_STEP(type) (CODED_HAS_FACTORS(type) ? DECODE_BLOCK : 0)
#define CODED_LEAST (CODED_MOST_BLOCKS * DECODE_BLOCK)

/* Are codes made floats that are V_BIAS too great, of which the multiple by a factor is subtracted in the
 * multiplication by it? Both products are exact: factors have 11 bits, codes 8 and V_BIAS 2. */
#if defined(V_BIAS) && defined(CODED_FACTORS)
#define CODED_BIASED(type) ((type) == HEED_Q8_0)
#else
#define CODED_BIASED(type) ((void)(type), 0)
#endif

/* What 32 codes are decoded with: a factor and what is added or subtracted, or a table of
 * 16 or 32 values. Or the values themselves (CODED_TWO). */
typedef struct coded_block {
    vf a, b;
    vf x[CODED_VECTORS];
    vi two; /* the codes (CODED_BIASED) */
} coded_block;

#ifdef V_LOOKUP
/* The numbers that the codes from `first` on stand for, before scale and zero. */
V_INLINE vf coded_numbers(uint32_t type, int first)
{
    static const float numbers[48] = {-16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5,
                                      -4,  -3,  -2,  -1,  0,   1,   2,   3,  4,  5,  6,  7,
                                      8,   9,   10,  11,  12,  13,  14,  15, 16, 17, 18, 19,
                                      20,  21,  22,  23,  24,  25,  26,  27, 28, 29, 30, 31};
    return type == HEED_IQ4_NL ? v_of_i8(bytes_load(heed_iq4), 0)
           : type == HEED_Q4_0 ? v_load(numbers + 8)
           : type == HEED_Q5_0 ? v_load(numbers + first)
                               : v_load(numbers + 16 + first);
}
#endif

/* factor: the place of the first factor among those that have been read beforehand. */
V_INLINE coded_block coded_begin(uint32_t type, const char *at, const float *zero,
                                 const float *factor)
{
    coded_block of = {.a = v_zero(), .b = v_zero(), .two = vi_zero()};
    if (CODED_HAS_FACTORS(type)) {
        of.a = v_broadcast(factor);
        if (code_has_least(type) || CODED_BIASED(type))
            of.b = v_broadcast(factor + CODED_LEAST);
    } else if (code_has_blocks(type)) {
        of.a = code_scale(type, at, 0);
        of.b = code_least(type, at, 0);
    } else if (coded_has_zero(type)) {
        of.b = v_broadcast(zero);
    }
#ifdef V_BIAS
    if (CODED_BIASED(type))
        of.two = vi_load_two_i8(at + 2);
#endif
#ifdef V_LOOKUP
    if (CODED_TABLE(type)) {
        const vf scale = of.a, least = of.b;
        of.a = type == HEED_U4 ? v_sub(coded_numbers(type, 0), least)
                               : code_value(type, coded_numbers(type, 0), scale, least);
        of.b = type == HEED_Q5_0 || type == HEED_Q5_1
                   ? code_value(type, coded_numbers(type, 16), scale, least)
                   : v_zero();
    }
#endif
    return of;
}

/* Where the factors of key j begin, if they have been read beforehand. */
V_INLINE const float *coded_factor(uint32_t type, const coded_side *side, int64_t j)
{
    return CODED_HAS_FACTORS(type) ? side->factors->scale[0] + j : side->zero;
}

#ifdef V_TWO_E4M3
/* Decodes n blocks (constant), `step` bytes apart: two at once, or both halves of one. */
V_INLINE void coded_begin_two(int n, const char *at, int64_t step, coded_block *of)
{
    vf x[4];
#if CODED_VECTORS == 2
    V_UNROLL for (int i = 0; i < n; i += 2)
    {
        const int then = i + 1 < n ? i + 1 : i;
        v_load_two_e4m3(at + i * step, at + then * step, x);
        V_UNROLL for (int c = 0; c < 2; c++) of[i].x[c] = x[c];
        V_UNROLL for (int c = 0; c < 2 && then > i; c++) of[then].x[c] = x[2 + c];
    }
#else
    V_UNROLL for (int i = 0; i < n; i++)
    {
        v_load_two_e4m3(at + i * step, at + i * step + 16, x);
        V_UNROLL for (int c = 0; c < 4; c++) of[i].x[c] = x[c];
    }
#endif
}
#endif

/* Loads 16 dims of a row as floats: the lower or the upper half of the block at `at`. */
V_INLINE void coded_load(uint32_t type, const char *at, int upper, const coded_block *of,
                         vf x[DOT_PARTS])
{
    if (!heed_is_code(type)) {
        const int64_t bytes = type == HEED_F32 ? 4 : 2;
        V_UNROLL for (int c = 0; c < DOT_PARTS; c++) x[c] =
            v_load_type(type, at + (upper * 16 + c * LANES) * bytes, LANES);
        return;
    }
    if (CODED_TWO(type)) {
        V_UNROLL for (int c = 0; c < DOT_PARTS; c++) x[c] = of->x[upper * DOT_PARTS + c];
        return;
    }
#ifdef V_BIAS
    if (CODED_BIASED(type)) {
        x[0] = v_fma(v_biased_i8(of->two, upper), of->a, of->b);
        return;
    }
#endif
#ifdef V_LOOKUP
    if (type == HEED_U4) {
        x[0] = v_lookup(of->a, vi_nibbles(at + upper * 8));
        return;
    }
    if (CODED_TABLE(type)) {
        const int head = code_has_least(type) ? 4 : 2;
        const int has_fifth = type == HEED_Q5_0 || type == HEED_Q5_1;
        vi i = vi_of_bytes(bytes_load(at + head + (has_fifth ? 4 : 0)));
        if (upper)
            i = vi_shr(i, 4);
        if (has_fifth) {
            uint16_t bits;
            memcpy(&bits, at + head + 2 * upper, sizeof bits);
            x[0] = v_lookup_two(of->a, of->b, vi_fifth(i, bits));
        } else {
            x[0] = v_lookup(of->a, i);
        }
        return;
    }
#endif
    const v_bytes bytes = code_bytes(type, at, upper * 16, 16);
    V_UNROLL for (int c = 0; c < DOT_PARTS; c++)
    {
        x[c] = code_number(type, bytes, c);
        if (code_has_blocks(type))
            x[c] = code_value(type, x[c], of->a, of->b);
        else if (coded_has_zero(type))
            x[c] = v_sub(x[c], of->b);
    }
}

/* Scores of 16 keys, as many keys at a time as leave each sum a register. */
V_INLINE void coded_scores(uint32_t type, int rows, const decode *d, int64_t r,
                           const coded_side *side, float *scores)
{
    const int keys = SUMS / DOT_PARTS / rows >= 4 ? 4 : SUMS / DOT_PARTS / rows >= 2 ? 2 : 1;
    const int64_t size = heed_offset_bytes(type, 32), dims = d->problem->qk_dim;
    const int64_t stride = d->q_stride, row = side->row, bytes = size * (dims / 32);
    const float *q = d->q + r * stride;
    const char *key = side->at;
    const fetch f = *side->f;
    vf s[DECODE_BLOCK / 4][DOT_PARTS];
    for (int j = 0; j < DECODE_BLOCK; j += 4) {
        vf h[4][DOT_PARTS];
        V_UNROLL for (int o = 0; o < 4; o += keys, key += keys * row)
        {
            vf a[4][4][DOT_PARTS];
            const float *from = q, *factor = coded_factor(type, side, j + o);
            V_UNROLL for (int i = 0; i < keys; i++)
            {
                V_UNROLL for (int n = 0; n < 4; n++) V_UNROLL for (int c = 0; c < DOT_PARTS; c++)
                    a[i][n][c] = v_zero();
            }
            for (int64_t e = 0; e < bytes; e += size, from += 32, factor += CODED_STEP(type)) {
                coded_block of[4];
                V_UNROLL for (int i = 0; i < keys; i++)
                {
                    V_UNROLL for (int64_t n = 0; n < size; n += 64)
                        fetch_line(&f, key + i * row + e + side->ahead + n);
                    of[i] =
                        coded_begin(type, key + i * row + e, side->zero + j + o + i, factor + i);
                }
#ifdef V_TWO_E4M3
                if (CODED_TWO(type))
                    coded_begin_two(keys, key + e, row, of);
#endif
                V_UNROLL for (int u = 0; u < 2; u++)
                {
                    vf x[4][DOT_PARTS];
                    V_UNROLL for (int i = 0; i < keys; i++)
                        coded_load(type, key + i * row + e, u, &of[i], x[i]);
                    V_UNROLL for (int n = 0; n < rows; n++)
                        V_UNROLL for (int c = 0; c < DOT_PARTS; c++)
                    {
                        const vf y = v_load(from + n * stride + u * 16 + c * LANES);
                        V_UNROLL for (int i = 0; i < keys; i++) a[i][n][c] =
                            v_fma(y, x[i][c], a[i][n][c]);
                    }
                }
            }
            V_UNROLL for (int i = 0; i < keys; i++)
                V_UNROLL for (int c = 0; c < DOT_VECTORS(rows); c++) h[o + i][c] = v_fold(a[i], c);
        }
        V_UNROLL for (int c = 0; c < DOT_VECTORS(rows); c++) s[j / 4][c] =
            dot_rows(h[0][c], h[1][c], h[2][c], h[3][c]);
    }
    store_scores(scores, rows, s);
}

/* Loads a value's dims, of `blocks` blocks or the lower or upper half of one, as coded_columns takes
 * them. */
V_INLINE void coded_row(uint32_t type, int blocks, int halves, int upper, const char *value,
                        const float *zero, const float *factor, vf x[2 * CODED_VECTORS])
{
    const int64_t size = heed_offset_bytes(type, 32);
    coded_block of[2];
    V_UNROLL for (int i = 0; i < blocks; i++) of[i] =
        coded_begin(type, value + i * size, zero, factor + i * CODED_STEP(type));
#ifdef V_TWO_E4M3
    if (CODED_TWO(type))
        coded_begin_two(blocks, value, size, of);
#endif
    V_UNROLL for (int i = 0; i < blocks; i++)
    {
        coded_load(type, value + i * size, upper, &of[i], x + i * halves * DOT_PARTS);
        if (halves == 2)
            coded_load(type, value + i * size, 1, &of[i], x + (i * halves + 1) * DOT_PARTS);
    }
}

/* Weighs values in one block of 32 dims, or two (`blocks`, constant). With halves = 1 it takes only
 * the lower or the upper half of a block, so that every sum has a register. */
V_INLINE void coded_columns(uint32_t type, int rows, int blocks, int halves, int upper,
                            const coded_side *side, int64_t e, const float *factor,
                            const float *weights, float *acc, int64_t stride)
{
    const int64_t size = heed_offset_bytes(type, 32), row = side->row;
    const char *value = side->at + e;
    const fetch f = *side->f;
    vf a[4][2 * CODED_VECTORS];
    const int vectors = blocks * halves * DOT_PARTS;
    const int keys = CODED_TWO(type) && vectors == 2 ? 2 : 1; /* together */
    V_UNROLL for (int n = 0; n < rows; n++) V_UNROLL for (int c = 0; c < vectors; c++) a[n][c] =
        v_zero();
    for (int j = 0; j < DECODE_BLOCK; j += keys, value += keys * row) {
        vf x[2][2 * CODED_VECTORS];
        if (!upper)
            V_UNROLL for (int i = 0; i < keys; i++)
                V_UNROLL for (int64_t n = 0; n < blocks * size; n += 64)
                    fetch_line(&f, value + i * row + side->ahead + n);
        if (keys == 1)
            coded_row(type, blocks, halves, upper, value, side->zero + j, factor + j, x[0]);
#ifdef V_TWO_E4M3
        if (keys == 2) {
            vf two[4];
            v_load_two_e4m3(value + upper * 16, value + row + upper * 16, two);
            V_UNROLL for (int c = 0; c < 4; c++) x[c / 2][c % 2] = two[c];
        }
#endif
        V_UNROLL for (int i = 0; i < keys; i++) V_UNROLL for (int n = 0; n < rows; n++)
        {
            const vf y = v_broadcast(&weights[n * DECODE_BLOCK + j + i]);
            V_UNROLL for (int c = 0; c < vectors; c++) a[n][c] = v_fma(y, x[i][c], a[n][c]);
        }
    }
    V_UNROLL for (int n = 0; n < rows; n++) V_UNROLL for (int c = 0; c < vectors; c++)
    {
        float *to = acc + n * stride + upper * 16 + c * LANES;
        v_store(to, v_add(v_load(to), a[n][c]));
    }
}

V_INLINE void coded_values(uint32_t type, int rows, const decode *d, int64_t r,
                           const coded_side *side, const float *weights)
{
    const int64_t size = heed_offset_bytes(type, 32), stride = d->tile->acc_stride;
    const int64_t bytes = size * (d->problem->v_dim / 32);
    const float *factor = coded_factor(type, side, 0);
    float *acc = d->tile->acc + r * stride;
    int64_t e = 0;
    if (SUMS / rows >= 2 * CODED_VECTORS)
        for (; e + size < bytes; e += 2 * size, acc += 64, factor += 2 * CODED_STEP(type))
            coded_columns(type, rows, 2, 2, 0, side, e, factor, weights, acc, stride);
    for (; e < bytes; e += size, acc += 32, factor += CODED_STEP(type)) {
        if (SUMS / rows >= CODED_VECTORS) {
            coded_columns(type, rows, 1, 2, 0, side, e, factor, weights, acc, stride);
        } else {
            coded_columns(type, rows, 1, 1, 0, side, e, factor, weights, acc, stride);
            coded_columns(type, rows, 1, 1, 1, side, e, factor, weights, acc, stride);
        }
    }
}

#ifdef CODED_FACTORS
/* Makes what has been collected floats. Returns 0 if some that the products need to be finite are not. */
V_INLINE int coded_widen(uint32_t type, int64_t dims, coded_factors *of)
{
    vf wild = v_zero();
    for (int64_t e = 0; e < dims / 32; e++)
        V_UNROLL for (int j = 0; j < DECODE_BLOCK; j += LANES)
        {
            const vf x = v_load_type(HEED_F16, &of->halves[0][e][j], LANES);
            v_store(&of->scale[e][j], x);
#ifdef V_BIAS
            if (CODED_BIASED(type)) {
                v_store(&of->least[e][j], v_mul(x, v_set1(-V_BIAS)));
                wild = v_fma(x, v_zero(), wild);
            }
#endif
            if (code_has_least(type))
                v_store(&of->least[e][j], v_load_type(HEED_F16, &of->halves[1][e][j], LANES));
        }
    return (m_bits(m_nan(wild)) & m_bits(m_first(LANES))) == 0;
}
#endif

typedef void coded_scorer(const decode *d, int64_t r, const coded_side *side, float *scores);
typedef void coded_adder(const decode *d, int64_t r, const coded_side *side, const float *weights);

typedef int coded_widener(int64_t dims, coded_factors *of);

/* The products with a type, of one to four rows, and what makes its factors ready for them (NULL: they read
 * them themselves). */
struct heed_simd_coded {
    coded_scorer *scores[CODED_ROWS];
    coded_adder *values[CODED_ROWS];
    coded_widener *widen;
};

#ifdef HEED_SIMD_INT8 /* scores come from integer.inc.h */
#define CODED_SCORES_OF_ROWS(type, rows)
#define CODED_SCORES(type) NULL
#else
#define CODED_SCORES_OF_ROWS(type, rows)                                                           \
    V_NOINLINE void scores_##type##_##rows(const decode *d, int64_t r, const coded_side *side,     \
                                           float *scores)                                          \
    {                                                                                              \
        coded_scores(type, rows, d, r, side, scores);                                              \
    }
#define CODED_SCORES(type)                                                                         \
    scores_##type##_1, scores_##type##_2, scores_##type##_3, scores_##type##_4
#endif
#define CODED_OF_ROWS(type, rows)                                                                  \
    CODED_SCORES_OF_ROWS(type, rows)                                                               \
    V_NOINLINE void values_##type##_##rows(const decode *d, int64_t r, const coded_side *side,     \
                                           const float *weights)                                   \
    {                                                                                              \
        coded_values(type, rows, d, r, side, weights);                                             \
    }
#ifdef CODED_FACTORS
#define CODED_WIDENER_OF(type)                                                                     \
    V_NOINLINE int widen_##type(int64_t dims, coded_factors *of)                                   \
    {                                                                                              \
        return coded_widen(type, dims, of);                                                        \
    }
#define CODED_WIDENER(type) (type) >= HEED_Q8_0 && (type) <= HEED_IQ4_NL ? widen_##type : NULL
#else
#define CODED_WIDENER_OF(type)
#define CODED_WIDENER(type) NULL
#endif
#define CODED_OF(type)                                                                             \
    CODED_WIDENER_OF(type)                                                                         \
    CODED_OF_ROWS(type, 1)                                                                         \
    CODED_OF_ROWS(type, 2)                                                                         \
    CODED_OF_ROWS(type, 3)                                                                         \
    CODED_OF_ROWS(type, 4)
#define CODED_LISTED(type)                                                                         \
    [type] = {{CODED_SCORES(type)},                                                                \
              {values_##type##_1, values_##type##_2, values_##type##_3, values_##type##_4},        \
              CODED_WIDENER(type)},
#ifndef CODED_EACH
#define CODED_EACH(DO) DO(HEED_F32) DO(HEED_F16) DO(HEED_BF16) CODE_EACH(DO)
#endif
CODED_EACH(CODED_OF)
static const heed_simd_coded coded_of[] = {CODED_EACH(CODED_LISTED)};
#undef CODED_OF
#undef CODED_OF_ROWS
#undef CODED_WIDENER_OF
#undef CODED_WIDENER
#undef CODED_SCORES_OF_ROWS
#undef CODED_SCORES
#undef CODED_LISTED

#endif
