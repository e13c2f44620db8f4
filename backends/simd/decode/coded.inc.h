/*
 * Runs with keys or values of codes: every row sees every key, rows are whole blocks of 32 dims,
 * and keys are contiguous or in pages of whole blocks of keys. Codes are decoded in registers, once
 * for up to four rows, to the bits that copies of the block give (scales.inc.h). Lines of a later
 * block are fetched meanwhile. K and V may each be of any type. Included by decode.c.
 */
#ifndef HEED_SIMD_DECODE_CODED_H
#define HEED_SIMD_DECODE_CODED_H

#include "run.inc.h"
#include "scales.inc.h"

/* Bytes from a load to the line that is fetched meanwhile, in a stream, into L2 and into L1. With 4096
 * in place of 2048 integer products by AVX-512 take 0.90 to 1.01 of the time, those by AVX2 1.05 to
 * 1.08, other products 1.00 to 1.06 (Zen 5, cold). */
#define CODED_AHEAD 2048
#ifdef HEED_SIMD_INT8
#define CODED_NEAR (256 * LANES)
#else
#define CODED_NEAR 2048
#endif
/* Where a block of all heads lies in a page, the head so many after this one is fetched into L1, which
 * would have no room for the next block of all. */
#define CODED_HEADS 2
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

/* What 32 codes are decoded with: a factor and what is added or subtracted, or a table of
 * 16 or 32 values. Or the values themselves (CODED_TWO). */
typedef struct coded_block {
    vf a, b;
    vf x[CODED_VECTORS];
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

V_INLINE coded_block coded_begin(uint32_t type, const char *at, const float *zero)
{
    coded_block of = {.a = v_zero(), .b = v_zero()};
    if (code_has_blocks(type)) {
        of.a = code_scale(type, at, 0);
        of.b = code_least(type, at, 0);
    } else if (coded_has_zero(type)) {
        of.b = v_broadcast(zero);
    }
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
            const float *from = q;
            V_UNROLL for (int i = 0; i < keys; i++)
            {
                V_UNROLL for (int n = 0; n < 4; n++) V_UNROLL for (int c = 0; c < DOT_PARTS; c++)
                    a[i][n][c] = v_zero();
            }
            for (int64_t e = 0; e < bytes; e += size, from += 32) {
                coded_block of[4];
                V_UNROLL for (int i = 0; i < keys; i++)
                {
                    V_UNROLL for (int64_t n = 0; n < size; n += 64)
                        fetch_line(&f, key + i * row + e + side->ahead + n);
                    of[i] = coded_begin(type, key + i * row + e, side->zero + j + o + i);
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
                        const float *zero, vf x[2 * CODED_VECTORS])
{
    const int64_t size = heed_offset_bytes(type, 32);
    coded_block of[2];
    V_UNROLL for (int i = 0; i < blocks; i++) of[i] = coded_begin(type, value + i * size, zero);
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
                            const coded_side *side, int64_t e, const float *weights, float *acc,
                            int64_t stride)
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
            coded_row(type, blocks, halves, upper, value, side->zero + j, x[0]);
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
    float *acc = d->tile->acc + r * stride;
    int64_t e = 0;
    if (SUMS / rows >= 2 * CODED_VECTORS)
        for (; e + size < bytes; e += 2 * size, acc += 64)
            coded_columns(type, rows, 2, 2, 0, side, e, weights, acc, stride);
    for (; e < bytes; e += size, acc += 32) {
        if (SUMS / rows >= CODED_VECTORS) {
            coded_columns(type, rows, 1, 2, 0, side, e, weights, acc, stride);
        } else {
            coded_columns(type, rows, 1, 1, 0, side, e, weights, acc, stride);
            coded_columns(type, rows, 1, 1, 1, side, e, weights, acc, stride);
        }
    }
}

typedef void coded_scorer(const decode *d, int64_t r, const coded_side *side, float *scores);
typedef void coded_adder(const decode *d, int64_t r, const coded_side *side, const float *weights);

#ifdef HEED_SIMD_INT8 /* scores come from integer.inc.h */
#define CODED_OF_ROWS CODED_VALUES_OF_ROWS
#else
#define CODED_OF_ROWS(type, rows)                                                                  \
    V_NOINLINE void scores_##type##_##rows(const decode *d, int64_t r, const coded_side *side,     \
                                           float *scores)                                          \
    {                                                                                              \
        coded_scores(type, rows, d, r, side, scores);                                              \
    }                                                                                              \
    CODED_VALUES_OF_ROWS(type, rows)
#endif
#define CODED_VALUES_OF_ROWS(type, rows)                                                           \
    V_NOINLINE void values_##type##_##rows(const decode *d, int64_t r, const coded_side *side,     \
                                           const float *weights)                                   \
    {                                                                                              \
        coded_values(type, rows, d, r, side, weights);                                             \
    }
#define CODED_OF(type)                                                                             \
    CODED_OF_ROWS(type, 1)                                                                         \
    CODED_OF_ROWS(type, 2)                                                                         \
    CODED_OF_ROWS(type, 3)                                                                         \
    CODED_OF_ROWS(type, 4)
#define CODED_SCORES(type)                                                                         \
    [type] = {scores_##type##_1, scores_##type##_2, scores_##type##_3, scores_##type##_4},
#define CODED_VALUES(type)                                                                         \
    [type] = {values_##type##_1, values_##type##_2, values_##type##_3, values_##type##_4},
#define CODED_EACH(DO) DO(HEED_F32) DO(HEED_F16) DO(HEED_BF16) CODE_EACH(DO)
CODED_EACH(CODED_OF)
#ifndef HEED_SIMD_INT8
static coded_scorer *const coded_scores_of[][CODED_ROWS] = {CODED_EACH(CODED_SCORES)};
#endif
static coded_adder *const coded_values_of[][CODED_ROWS] = {CODED_EACH(CODED_VALUES)};
#undef CODED_OF
#undef CODED_OF_ROWS
#undef CODED_VALUES_OF_ROWS
#undef CODED_SCORES
#undef CODED_VALUES

/* Can K (or V), of codes or of plain numbers, be made floats in registers? */
static int suits_side(uint32_t type, const heed_rows *rows, const heed_quant *quant, uint32_t dim)
{
    return rows->dim_stride == 1 && dim % 32 == 0 &&
           (!quant->scale || (lifts(type, quant, dim) && (!quant->zero || coded_has_zero(type))));
}

static int suits_codes(const decode *d)
{
    const heed_problem *p = d->problem;
    const heed_tile *t = d->tile;
    return PAIR == 1 && (heed_is_code(p->k_type) || heed_is_code(p->v_type)) && !d->masked &&
           suits_side(p->k_type, &t->k, &t->k_quant, p->qk_dim) &&
           suits_side(p->v_type, &t->v, &t->v_quant, p->v_dim) &&
           (!t->pages || p->page_len % DECODE_BLOCK == 0);
}

/* Scales and zeros of a block of keys: the caller's where they lie side by side, else copies. */
typedef struct coded_scale {
    const float *after, *zero;
    float scales[DECODE_BLOCK], zeros[DECODE_BLOCK];
} coded_scale;

/* Finds scales and zeros of the block of keys from `at` on. Returns 0 if a scale
 * cannot be lifted. */
static int coded_scales(const heed_quant *quant, place at, coded_scale *to)
{
    const int64_t first = heed_scale_at(quant, at.page, 0, at.row, 0);
    const int64_t step = quant->key_group ? 0 : quant->stride[2];
    uint32_t lifted = ~0u;
    to->zero = to->zeros; /* 0 where there are none */
    if (!quant->scale)
        return 1;
    to->after = quant->scale + first;
    if (quant->zero)
        to->zero = quant->zero + first;
    if (step != 1) {
        for (int i = 0; i < DECODE_BLOCK; i++) {
            const int64_t n =
                step ? first + i * step : heed_scale_at(quant, at.page, 0, at.row + i, 0);
            to->scales[i] = quant->scale[n];
            if (quant->zero)
                to->zeros[i] = quant->zero[n];
        }
        to->after = to->scales;
        to->zero = to->zeros;
    }
    for (int i = 0; i < DECODE_BLOCK; i += LANES)
        lifted &= can_lift_all(v_load(to->after + i), v_load(to->zero + i));
    return lifted == ~0u;
}

/* Fetches the scales and zeros of a block of keys. In pages no stream leads there, and all of a
 * block's products would wait for them. */
V_INLINE void fetch_scales(const heed_quant *quant, place at)
{
    const int64_t first = heed_scale_at(quant, at.page, 0, at.row, 0);
    const int64_t step = quant->key_group ? 0 : quant->stride[2];
    const int keys = llabs(step) > 1 ? 1 : DECODE_BLOCK - 1; /* each, or the first and the last */
    if (!quant->scale)
        return;
    for (int i = 0; i < DECODE_BLOCK; i += keys) {
        V_PREFETCH_L1(quant->scale + first + i * step);
        if (quant->zero)
            V_PREFETCH_L1(quant->zero + first + i * step);
    }
}

/* The same block for further rows, when it is in L1. */
V_INLINE coded_side coded_again(const coded_side *side)
{
    return (coded_side){.at = side->at, .row = side->row, .zero = side->zero, .f = side->f};
}

V_INLINE uint32_t coded_scores_of_rows(const decode *d, int64_t r, const coded_side *k,
                                       float *scores)
{
    const int64_t left = d->rows - r, n = left < CODED_ROWS ? left : CODED_ROWS;
#ifdef HEED_SIMD_INT8
    return integer_scores_of[d->problem->k_type][n - 1](d, r, k, scores + r * DECODE_BLOCK);
#else
    coded_scores_of[d->problem->k_type][n - 1](d, r, k, scores + r * DECODE_BLOCK);
    return 0;
#endif
}

/* Scores of all rows. Returns 0 if the block has to be left to each_block. */
V_INLINE int coded_scores_ready(const decode *d, const coded_side *k, float *scores)
{
    if (coded_scores_of_rows(d, 0, k, scores) != 0)
        return 0; /* which no rows after the first four change */
    if (d->rows > CODED_ROWS) {
        const coded_side again = coded_again(k);
        for (int64_t r = CODED_ROWS; r < d->rows; r += CODED_ROWS)
            coded_scores_of_rows(d, r, &again, scores);
    }
    return 1;
}

/* A block of a head whose weights are known, and whose values have not been added yet. */
typedef struct coded_weighed {
    const decode *of; /* NULL: there is none */
    const float *weights;
    const coded_side *v;
} coded_weighed;

V_INLINE void coded_add(const decode *d, int64_t r, const coded_side *v, const float *weights)
{
    const int64_t left = d->rows - r, n = left < CODED_ROWS ? left : CODED_ROWS;
    coded_values_of[d->problem->v_type][n - 1](d, r, v, weights + r * DECODE_BLOCK);
}

V_INLINE void coded_finish(coded_weighed *b)
{
    const decode *d = b->of;
    if (!d)
        return;
    coded_add(d, 0, b->v, b->weights);
    if (d->rows > CODED_ROWS) {
        const coded_side again = coded_again(b->v);
        for (int64_t r = CODED_ROWS; r < d->rows; r += CODED_ROWS)
            coded_add(d, r, &again, b->weights);
    }
    b->of = NULL;
}

/* Turns scores into weights, which are multiplied by V's lifted scales (NULL: there are none). */
V_INLINE void coded_weigh(decode *d, block *b, float *scores, const float *k_after,
                          const float *v_after)
{
    b->scores = scores;
    for (int64_t r = 0; r < d->rows; r++) {
        if (d->lift_k)
            scale_scores(scores + r * DECODE_BLOCK, k_after);
        if (d->terms)
            finish_scores(d, b, r);
        weigh_scores(d, scores, r, 0xffffu, v_after);
    }
}

/* A side whose rows lie one behind the other; at and zero are to be filled in. */
V_INLINE coded_side coded_stream(const heed_simd_tuning *tuning, int64_t row)
{
    return (coded_side){.row = row,
                        .ahead = tuning->fetched ? CODED_NEAR : CODED_AHEAD,
                        .f = tuning->fetched ? &near_fetch : &run_fetch};
}

/* Where a head's block begins, or, of heads beyond the last, the next block of the first ones. */
V_INLINE const char *coded_place(const char *at, const char *next, int64_t head, int64_t heads,
                                 int64_t step)
{
    return head < heads ? at + head * step : next + (head - heads) * step;
}

/* Works on keys [first, end), whole blocks, of adjacent kv heads. A block of which not every scale
 * can be lifted is left to each_block. Values are added after the next block's scores: from products
 * to weights is a chain of some hundred cycles, in which nothing else would be ready to run. */
static void run_coded(const heed_simd_tuning *tuning, decode *d, int64_t heads,
                      const decode_room *room, int64_t first, int64_t end)
{
    const heed_problem *p = d->problem;
    const heed_tile *t = d->tile;
    const int64_t k_head = heed_offset_bytes(p->k_type, t->k.head_stride);
    const int64_t v_head = heed_offset_bytes(p->v_type, t->v.head_stride);
    const int64_t k_size = heed_offset_bytes(p->k_type, p->qk_dim);
    const int stream = !t->pages && heads == 1 && d->k_row == k_size &&
                       d->v_row == heed_offset_bytes(p->v_type, p->v_dim);
    const int beside = k_head == k_size && d->k_row == heads * k_size;
    coded_scale k_scale = {.zeros = {0}}, v_scale[2] = {{.zeros = {0}}, {.zeros = {0}}};
    const int64_t later = tuning->fetched && t->pages && heads > CODED_HEADS ? CODED_HEADS : heads;
    coded_side k = coded_stream(tuning, d->k_row);
    coded_side v[2] = {coded_stream(tuning, d->v_row), coded_stream(tuning, d->v_row)};
    coded_weighed before = {.of = NULL};
    place at = find_place(d, first), next;
    int turn = 0;
    block b; /* for finish_scores alone */
    for (int64_t key = first; key < end; key += DECODE_BLOCK, at = next) {
        b.base = b.first = key;
        b.end = key + DECODE_BLOCK;
        next = key + DECODE_BLOCK < end ? find_place(d, key + DECODE_BLOCK) : at;
        const char *k_at = (const char *)t->k.data + at.page * d->k_page + at.row * d->k_row;
        const char *v_at = (const char *)t->v.data + at.page * d->v_page + at.row * d->v_row;
        const char *k_next = (const char *)t->k.data + next.page * d->k_page + next.row * d->k_row;
        const char *v_next = (const char *)t->v.data + next.page * d->v_page + next.row * d->v_row;
        for (int64_t h = 0; h < heads; h++) {
            decode *of = &d[h];
            float *scores = room->scores[turn];
            const coded_scale *v_of = &v_scale[turn];
            k.at = k_at + h * k_head;
            v[turn].at = v_at + h * v_head;
            if (!stream) {
                k.ahead = coded_place(k_at, k_next, h + later, heads, k_head) - k.at;
                v[turn].ahead = coded_place(v_at, v_next, h + later, heads, v_head) - v[turn].at;
            }
            const int k_lifts = coded_scales(&of->tile->k_quant, at, &k_scale);
            const int v_lifts = coded_scales(&of->tile->v_quant, at, &v_scale[turn]);
            k.zero = k_scale.zero, v[turn].zero = v_of->zero;
            k.share = beside               ? k_next + h * DECODE_BLOCK * k_size
                      : d->k_row == k_size ? k.at + k.ahead
                                           : NULL;
            if (!k_lifts || !v_lifts || !of->all_integer || !coded_scores_ready(of, &k, scores)) {
                coded_finish(&before);
                each_block(of, room, key, key + DECODE_BLOCK);
                continue;
            }
            if (!stream) {
                fetch_scales(&of->tile->k_quant, next);
                fetch_scales(&of->tile->v_quant, next);
            }
            coded_finish(&before);
            coded_weigh(of, &b, scores, k_scale.after, d->lift_v ? v_of->after : NULL);
            before = (coded_weighed){of, scores, &v[turn]};
            turn = !turn;
        }
    }
    coded_finish(&before);
}

#endif
