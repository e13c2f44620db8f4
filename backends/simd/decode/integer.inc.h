/*
 * Scores of keys of codes by integer products, for accuracy int8. Each 32 dims of q * scale are
 * rounded to `unit`, a 127th of the greatest magnitude among them, times an int8. The products of
 * these int8 with a key's codes add up exactly. A block of 32 dims then adds (sum of products -
 * zero * sum of q) * unit to the score, or, in formats with factors d and m, (d * sum of products +
 * m * sum of q) * unit: in f32 and in the order of the dims. Where codes are multiplied with an
 * offset, their sum starts at minus the offset times the sum of q.
 *
 * A score is a function of its row of q and its key alone, so it does not matter which keys and
 * rows are worked on together. Exact products serve the rest: rows of q with an infinity, a NaN, or
 * a greatest magnitude outside [INTEGER_LEAST, INTEGER_MOST], whose quotients could leave the
 * range; keys whose scale is not lifted (scales.inc.h); and keys of formats with factors of which
 * one is an infinity or a NaN.
 *
 * Each key of a block of 16 has a lane: the words of keys are transposed once for all rows, and
 * scores need no sums across lanes. Included by decode.c, compiled with HEED_SIMD_INT8.
 */
#ifndef HEED_SIMD_DECODE_INTEGER_H
#define HEED_SIMD_DECODE_INTEGER_H

#include "../vec/integer.h"
#include "run.inc.h"
#include "scales.inc.h"

#define INTEGER_AT_ONCE 8 /* blocks of 32 dims whose factors are read together */

/* Bounds on the greatest magnitude of a row of q that is multiplied as integers. */
#define INTEGER_MOST 0x1p64f
#define INTEGER_LEAST 0x1p-64f

/* 32 elements of a row of q. */
struct integer_block {
    float unit, sum; /* sum: of the int8 */
    int32_t start;
    char q[INTEGER_ROOM];
};
_Static_assert(sizeof(struct integer_block) <= DECODE_INTEGER_BYTES, "room for them");

static int64_t integer_blocks(const heed_problem *p)
{
    return ((int64_t)p->qk_dim + 31) / 32;
}

/* The bits of the greatest magnitude: at least those of infinity if there is an
 * infinity or a NaN. */
static uint32_t greatest_bits(const float *x, int64_t n)
{
    uint32_t greatest = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = heed_bits_of_f32(x[i]) & 0x7fffffffu;
        greatest = bits > greatest ? bits : greatest;
    }
    return greatest;
}

static void round_block(uint32_t type, const float *x, struct integer_block *to)
{
    const float greatest = heed_f32_of_bits(greatest_bits(x, 32));
    const float each = greatest >= INTEGER_LEAST * 0x1p-40f ? 127 / greatest : 0;
    int16_t in_order[32], wide[32];
    int32_t sum = 0;
    to->unit = each > 0 ? greatest / 127 : 0;
    for (int i = 0; i < 32; i++) { /* adding 1.5 * 2^23 rounds to even, in the low bits */
        const uint32_t bits = heed_bits_of_f32(x[i] * each + 0x1.8p23f);
        in_order[i] = (int16_t)(int8_t)(bits & 0xff);
        sum += in_order[i];
    }
    to->sum = (float)sum;
    to->start = -integer_offset(type) * sum;
    for (int i = 0; i < 32; i++) {
        const int16_t n = in_order[integer_element(type, i)];
        if (!integer_is_wide(type))
            to->q[i] = (char)n;
        else /* each four in the order 0, 2, 1, 3 */
            wide[i / 4 * 4 + (i % 2 * 2 + i % 4 / 2)] = n;
    }
    if (integer_is_wide(type))
        memcpy(to->q, wide, sizeof wide);
}

/* Rounds the rows of q to integers, and marks those that exact products are for. */
static void round_queries(decode *d)
{
    const heed_problem *p = d->problem;
    const int64_t blocks = integer_blocks(p);
    const uint32_t least = heed_bits_of_f32(INTEGER_LEAST), most = heed_bits_of_f32(INTEGER_MOST);
    for (int64_t r = 0; r < d->rows; r++) {
        struct integer_block *to = d->integers + r * blocks;
        const float *q = d->q + r * d->q_stride;
        const uint32_t greatest = greatest_bits(q, p->qk_dim);
        if (greatest && (greatest < least || greatest > most)) {
            d->all_integer = 0;
            memset(to, 0, (size_t)blocks * sizeof *to);
            to->unit = -1; /* the mark */
            continue;
        }
        for (int64_t e = 0; e < blocks; e++) {
            float x[32] = {0};
            const int64_t n = d->q_stride - e * 32;
            memcpy(x, q + e * 32, (size_t)(n < 32 ? n : 32) * sizeof *x);
            round_block(p->k_type, x, &to[e]);
        }
    }
}

static int is_integer_row(const decode *d, int64_t r)
{
    return d->integers[r * integer_blocks(d->problem)].unit >= 0;
}

/* What precedes the codes in some blocks of 32 dims, for each of LANES keys: factors only where they are
 * not known before. */
typedef struct integer_heads {
    uint16_t scale[INTEGER_AT_ONCE][LANES], least[INTEGER_AT_ONCE][LANES];
    uint32_t fifths[INTEGER_AT_ONCE][LANES];
} integer_heads;

V_INLINE void integer_load_heads(uint32_t type, int known, const char *key, int64_t row,
                                 int64_t blocks, integer_heads *to)
{
    const int64_t size = heed_offset_bytes(type, 32);
    for (int i = 0; i < LANES; i++, key += row)
        for (int64_t e = 0; e < blocks; e++) {
            if (!known)
                memcpy(&to->scale[e][i], key + e * size, 2);
            if (!known && code_has_least(type))
                memcpy(&to->least[e][i], key + e * size + 2, 2);
            if (type == HEED_Q5_0 || type == HEED_Q5_1)
                memcpy(&to->fifths[e][i], key + e * size + (code_has_least(type) ? 4 : 2), 4);
        }
}

/* Fetches what belongs to bytes [at, at + size) of LANES rows of `bytes` bytes, the first of them
 * `first`: lines of the side's share as they lie, or of the same rows `ahead` a line of each,
 * whenever byte `at` is in a new one. */
V_INLINE void integer_fetch(const coded_side *side, int first, const char *key, int64_t at,
                            int64_t size, int64_t bytes)
{
    if (side->share) {
        const char *from = side->share + first * bytes + at * LANES;
        V_UNROLL for (int64_t n = 0; n < LANES * size; n += 64) fetch_line(side->f, from + n);
    } else if (side->ahead && (at == 0 || at / 64 != (at - size) / 64)) {
        for (int i = 0; i < LANES; i++)
            fetch_line(side->f, key + i * side->row + side->ahead);
    }
}

/* A block's part of the scores of LANES keys, from the sum of its products. */
V_INLINE vf integer_part(uint32_t type, int has_zero, vi sums, const struct integer_block *q,
                         vf scale, vf least)
{
    const vf x = vi_to_float(sums);
    if (code_has_least(type))
        return v_fma(scale, x, v_mul(least, v_broadcast(&q->sum)));
    if (code_has_blocks(type))
        return v_mul(scale, x);
    return has_zero ? v_fnma(least, v_broadcast(&q->sum), x) : x;
}

/* Scores of LANES keys from `first` on and `rows` (constant) rows. Returns a bit for each key that
 * needs exact products. */
V_INLINE uint32_t integer_lanes(uint32_t type, int rows, int has_zero, const decode *d, int64_t r,
                                const coded_side *side, int first, float *scores)
{
    const int64_t size = heed_offset_bytes(type, 32), blocks = integer_blocks(d->problem);
    const int64_t row = side->row;
    const int head = !code_has_blocks(type) ? 0
                                            : (code_has_least(type) ? 4 : 2) +
                                                  (type == HEED_Q5_0 || type == HEED_Q5_1 ? 4 : 0);
    const char *key = side->at + first * row;
    const coded_factors *factors = side->factors;
    const struct integer_block *q = d->integers + r * blocks;
    vf s[4], scale = v_zero(), least = has_zero ? v_load(side->zero + first) : v_zero();
    vf wild = v_zero(); /* NaN where a factor is no finite number */
    integer_heads heads;
    V_UNROLL for (int n = 0; n < rows; n++) s[n] = v_zero();
    for (int64_t e = 0; e < blocks; e++, q++, key += size) {
        const int64_t slot = e % INTEGER_AT_ONCE, left = blocks - e;
        vi fifths = vi_zero(), sums[4], column[8], c[4];
        if (code_has_blocks(type)) {
            if (slot == 0 && (!factors || type == HEED_Q5_0 || type == HEED_Q5_1))
                integer_load_heads(type, factors != NULL, key, row,
                                   left < INTEGER_AT_ONCE ? left : INTEGER_AT_ONCE, &heads);
            scale = v_load_type(HEED_F16,
                                factors ? &factors->halves[0][e][first] : heads.scale[slot], LANES);
            wild = v_fma(scale, v_zero(), wild);
            if (code_has_least(type)) {
                least = v_load_type(
                    HEED_F16, factors ? &factors->halves[1][e][first] : heads.least[slot], LANES);
                wild = v_fma(least, v_zero(), wild);
            }
            if (type == HEED_Q5_0 || type == HEED_Q5_1)
                fifths = vi_load(heads.fifths[slot]);
        }
        integer_fetch(side, first, key, e * size, size, blocks * size);
        V_UNROLL for (int n = 0; n < rows; n++) sums[n] = vi_set1((uint32_t)q[n * blocks].start);
        V_UNROLL for (int u = 0; u < 2; u++)
        {
            if (u == 0 && integer_has_nibbles(type))
                vi_columns(key + head, row, column);
            else if (u == 0)
                vi_columns_two(key + head, row, column);
            integer_codes(type, integer_has_nibbles(type) ? column : column + 4 * u, u, fifths, c);
            V_UNROLL for (int n = 0; n < rows; n++) sums[n] = integer_dot(
                type, sums[n], c, q[n * blocks].q + (integer_is_wide(type) ? 32 : 16) * u);
        }
        V_UNROLL for (int n = 0; n < rows; n++)
        {
            const struct integer_block *of = &q[n * blocks];
            s[n] = v_fma(integer_part(type, has_zero, sums[n], of, scale, least),
                         v_broadcast(&of->unit), s[n]);
        }
    }
    V_UNROLL for (int n = 0; n < rows; n++) v_store(scores + n * DECODE_BLOCK + first, s[n]);
    return (m_bits(m_nan(wild)) & m_bits(m_first(LANES))) << first;
}

typedef uint32_t integer_products(const decode *d, int64_t r, const coded_side *side,
                                  float *scores);

#define INTEGER_ROWS 4 /* at the most */
#define INTEGER_OF_ROWS(type, rows, has_zero)                                                      \
    V_NOINLINE uint32_t integers_##type##_##rows(const decode *d, int64_t r,                       \
                                                 const coded_side *side, float *scores)            \
    {                                                                                              \
        uint32_t exact = 0;                                                                        \
        V_UNROLL for (int i = 0; i < DECODE_BLOCK; i += LANES) exact |=                            \
            integer_lanes(type, rows, has_zero, d, r, side, i, scores);                            \
        return exact;                                                                              \
    }
#define INTEGER_OF(type, has_zero)                                                                 \
    INTEGER_OF_ROWS(type, 1, has_zero)                                                             \
    INTEGER_OF_ROWS(type, 2, has_zero)                                                             \
    INTEGER_OF_ROWS(type, 3, has_zero)                                                             \
    INTEGER_OF_ROWS(type, 4, has_zero)
#define INTEGER_LISTED(type, has_zero)                                                             \
    [type] = {integers_##type##_1, integers_##type##_2, integers_##type##_3, integers_##type##_4},
#define INTEGER_EACH(DO)                                                                           \
    DO(HEED_I8, 1)                                                                                 \
    DO(HEED_U8, 1)                                                                                 \
    DO(HEED_U4, 1)                                                                                 \
    DO(HEED_Q8_0, 0)                                                                               \
    DO(HEED_Q4_0, 0)                                                                               \
    DO(HEED_Q4_1, 0)                                                                               \
    DO(HEED_Q5_0, 0)                                                                               \
    DO(HEED_Q5_1, 0)                                                                               \
    DO(HEED_IQ4_NL, 0)
INTEGER_EACH(INTEGER_OF)
static integer_products *const integer_scores_of[][INTEGER_ROWS] = {INTEGER_EACH(INTEGER_LISTED)};
#undef INTEGER_OF
#undef INTEGER_OF_ROWS
#undef INTEGER_LISTED

/* ---- blocks outside of runs ---- */

/* Is a factor of some block of 32 dims of a row not a finite number? */
static int has_wild_factor(uint32_t type, const char *row, int64_t blocks)
{
    for (int64_t e = 0; e < blocks; e++, row += heed_block_bytes(type))
        for (int64_t i = 0; i < (code_has_least(type) ? 2 : 1); i++)
            if (!isfinite(heed_load(HEED_F16, row, i)))
                return 1;
    return 0;
}

/* Makes the keys of a block ready: copies the codes of keys that some row sees, with zeros for the
 * others, and decodes them to floats too if not all are multiplied as integers. */
static void integer_keys(decode *d, block *b)
{
    const heed_problem *p = d->problem;
    const heed_rows *k = &d->tile->k;
    const int64_t blocks = integer_blocks(p), row = blocks * heed_offset_bytes(p->k_type, 32);
    const int64_t bytes = heed_offset_bytes(p->k_type, p->qk_dim);
    find_scales(d, &d->tile->k_quant, d->lift_k, b->base, b->any, &b->k_scales);
    memset(d->k_codes, 0, (size_t)(DECODE_BLOCK * row));
    b->integers = 0;
    for (int j = 0; j < DECODE_BLOCK; j++) {
        char *to = d->k_codes + j * row;
        const code_key *key = &b->k_scales.key[j];
        d->k_zeros[j] = 0;
        if (!(b->any >> j & 1))
            continue;
        if (k->dim_stride == 1)
            memcpy(to, b->k[j], (size_t)bytes);
        for (int64_t i = 0; i < bytes && k->dim_stride != 1; i++)
            to[i] = b->k[j][i * k->dim_stride];
        if (key->scale || (code_has_blocks(p->k_type) && has_wild_factor(p->k_type, to, blocks)))
            continue;
        b->integers |= 1u << j;
        if (key->zero)
            d->k_zeros[j] = *key->zero;
    }
    b->exact = !d->all_integer || b->integers != b->any;
    if (b->exact)
        copy_codes(d, b, 0);
    else
        for (int j = 0; j < DECODE_BLOCK && k->dim_stride == 1; j++)
            fetch_row(&d->fetch, b->k[j], b->ahead.k, bytes);
}

/* Writes the scores of a block that integer products give over those of exact products. */
static void integer_scores(const decode *d, const block *b)
{
    const int64_t row = integer_blocks(d->problem) * heed_offset_bytes(d->problem->k_type, 32);
    const coded_side side = {.at = d->k_codes, .row = row, .zero = d->k_zeros};
    for (int64_t r = 0, n; r < d->rows; r += n) {
        float some[INTEGER_ROWS * DECODE_BLOCK];
        n = d->rows - r < INTEGER_ROWS ? d->rows - r : INTEGER_ROWS;
        integer_scores_of[d->problem->k_type][n - 1](d, r, &side, some);
        for (int64_t i = 0; i < n; i++) {
            if (!is_integer_row(d, r + i))
                continue;
            for (int j = 0; j < DECODE_BLOCK; j++)
                if (b->integers >> j & 1)
                    b->scores[(r + i) * DECODE_BLOCK + j] = some[i * DECODE_BLOCK + j];
        }
    }
}

#endif
