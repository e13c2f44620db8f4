/* The products of all rows of a decode tile, with K and V in turns: one copy for each type
 * and number of rows. */
#ifndef HEED_SIMD_DECODE_ROWS_H
#define HEED_SIMD_DECODE_ROWS_H

#include "visible.inc.h"

/* Vectors of dims that more than two rows are weighed with at a time: registers hold their sums. */
#define WEIGH_VECTORS (SUMS / 4)

/* The words of keys of a block whose values count, in order. */
typedef struct weighed {
    const char *const *v;
    const uint8_t *index;
    const float *weights;
    int n;
} weighed;

V_INLINE void some_values(uint32_t type, int rows, int vectors, const decode *d, int64_t r,
                          const weighed *k, int64_t i, int64_t ahead)
{
    const float *w = k->weights + r * DECODE_BLOCK;
    float *acc = d->tile->acc + r * d->tile->acc_stride;
    const value_rows v = {.each = k->v};
    int64_t stride = d->tile->acc_stride, left = d->problem->v_dim - i;
    if (left >= vectors * LANES) {
        weigh_keys(type, rows, vectors, 0, w, &v, k->index, k->n, i, acc, stride, ahead, &d->fetch);
        return;
    }
    for (; left >= PAIR * LANES; left -= PAIR * LANES, i += PAIR * LANES)
        weigh_keys(type, rows, PAIR, 0, w, &v, k->index, k->n, i, acc, stride, 0, &d->fetch);
    if (left > 0)
        weigh_keys(type, rows, PAIR, (int)left, w, &v, k->index, k->n, i, acc, stride, 0,
                   &d->fetch);
}

/*
 * For `rows` (constant) rows from r on: scores of the next block (NULL: none), and weighted values
 * of the keys of this one (n = 0: none). The two are formed in turns, so that K and V are read side
 * by side: memory gives 6 % more that way than when one is read after the other, and nothing waits
 * for the weights of the next block meanwhile.
 */
V_INLINE void some_rows(uint32_t type, int rows, const decode *d, int64_t r, const block *next,
                        const weighed *k, int ahead)
{
    const int vectors = rows > 2 ? WEIGH_VECTORS : 4;
    const int64_t pieces = (d->problem->v_dim + vectors * LANES - 1) / (vectors * LANES);
    const int64_t k_ahead = ahead ? d->fetch.k : 0, v_ahead = ahead ? d->fetch.v : 0;
    int64_t piece = 0;
    vf s[DECODE_BLOCK / 4][DOT_PARTS];
    for (int j = 0; j < DECODE_BLOCK; j += 4) {
        if (next)
            dot_four_keys(type, rows, d->q + r * d->q_stride, d->q_stride, next->k, j,
                          d->problem->qk_dim, k_ahead, NULL, &d->fetch, 0, s[j / 4]);
#if PAIR == 2
        if (next)
            s[j / 4][0] = v_mul(s[j / 4][0], v_set1(d->unit));
#endif
        for (; k->n && piece < pieces * (j + 4) / DECODE_BLOCK; piece++)
            some_values(type, rows, vectors, d, r, k, piece * vectors * LANES, v_ahead);
    }
    if (next)
        store_scores(next->scores + r * DECODE_BLOCK, rows, s);
}

/* Works on rows [r, end). The first rows of the tile fetch what is needed later. */
V_INLINE void all_rows(uint32_t type, const decode *d, int64_t r, int64_t end, const block *next,
                       const weighed *k)
{
    int ahead = r == 0;
    for (; r + 4 <= end; r += 4, ahead = 0)
        some_rows(type, 4, d, r, next, k, ahead);
    if (end - r == 3)
        some_rows(type, 3, d, r, next, k, ahead);
    else if (end - r == 2)
        some_rows(type, 2, d, r, next, k, ahead);
    else if (end - r == 1)
        some_rows(type, 1, d, r, next, k, ahead);
}

#define PRODUCTS_OF(name, type)                                                                    \
    V_NOINLINE void rows_##name(const decode *d, int64_t r, int64_t end, const block *next,        \
                                const weighed *k)                                                  \
    {                                                                                              \
        all_rows(type, d, r, end, next, k);                                                        \
    }
#if PAIR == 1
PRODUCTS_OF(f32, HEED_F32)
PRODUCTS_OF(f16, HEED_F16)
#endif
PRODUCTS_OF(bf16, HEED_BF16)
#undef PRODUCTS_OF

static void products(const decode *d, uint32_t type, int64_t r, int64_t end, const block *next,
                     const weighed *k)
{
    (void)type;
#if PAIR == 1
    if (type == HEED_F32)
        rows_f32(d, r, end, next, k);
    else if (type == HEED_F16)
        rows_f16(d, r, end, next, k);
    else
#endif
        rows_bf16(d, r, end, next, k);
}

#endif
