/*
 * Scores of one row as the softmax needs them: which keys the row sees, and everything that is
 * applied to the products of Q and K before the exponential.
 */
#ifndef HEED_AMX_SCORES_H
#define HEED_AMX_SCORES_H

#include "amx.h"
#include "softmax.inc.h"

#define AMX_LOG2_E 1.4426950408889634f

/* A row of the tile: q is its row of the sequence, [first, end) its causal range and window. */
typedef struct amx_row {
    int64_t head, q, first, end;
} amx_row;

/* Keys j .. j + 15 that lie in [first, end). */
static inline uint16_t range_mask(int64_t first, int64_t end, int64_t j)
{
    int64_t low = first - j, high = end - j;
    uint32_t below = low <= 0 ? 0 : low >= 16 ? 0xffffu : (1u << low) - 1;
    uint32_t under = high <= 0 ? 0 : high >= 16 ? 0xffffu : (1u << high) - 1;
    return (uint16_t)(under & ~below);
}

/* The same of keys j .. j + 31. */
static inline uint32_t range_mask32(int64_t first, int64_t end, int64_t j)
{
    int64_t low = first - j, high = end - j;
    uint64_t below = low <= 0 ? 0 : low >= 32 ? 0xffffffffu : (UINT64_C(1) << low) - 1;
    uint64_t under = high <= 0 ? 0 : high >= 32 ? 0xffffffffu : (UINT64_C(1) << high) - 1;
    return (uint32_t)(under & ~below);
}

/* The bias of the keys that the mask names; others are 0. */
static inline vf bias_lanes(const heed_problem *p, const heed_tile *t, const amx_row *row,
                            int64_t j, uint16_t mask)
{
    int64_t at =
        row->head * t->bias.head_stride + row->q * t->bias.row_stride + j * t->bias.dim_stride;
    const char *data = (const char *)t->bias.data + at * heed_dtype_bytes(p->bias_type);
    float gathered[16] = {0};
    mask &= (uint16_t)~range_mask(0, t->mask_from, j);
    if (t->bias.dim_stride == 1)
        return p->bias_type == HEED_F32    ? v_load_some((const float *)(const void *)data, mask)
               : p->bias_type == HEED_BF16 ? v_load_bf16_some(data, mask)
                                           : v_load_f16_some(data, mask);
    for (int n = 0; n < 16; n++)
        if (mask >> n & 1)
            gathered[n] = heed_load(p->bias_type, data, n * t->bias.dim_stride);
    return v_load(gathered);
}

/* Those of keys j .. j + 15 that ranges and key blocks let the row see. */
static inline uint16_t listed_lanes(const heed_problem *p, const heed_tile *t, const amx_row *row,
                                    int64_t j)
{
    return heed_has_lists(t) ? (uint16_t)heed_listed_bits(p, t, row->head, row->q, j, 16) : 0xffff;
}

/* Is there anything for mask_lanes to look at? */
static inline int has_mask(const heed_tile *t)
{
    return t->mask.data || heed_has_lists(t);
}

/* Those of the keys in `mask` (which are in range) that the bool mask, ranges and key blocks let
 * the row see. */
static inline uint16_t mask_lanes(const heed_problem *p, const heed_tile *t, const amx_row *row,
                                  int64_t j, uint16_t mask)
{
    int64_t at =
        row->head * t->mask.head_stride + row->q * t->mask.row_stride + j * t->mask.dim_stride;
    const uint8_t *data = (const uint8_t *)t->mask.data + at;
    uint32_t seen = 0;
    mask &= listed_lanes(p, t, row, j);
    if (!t->mask.data)
        return mask;
    const uint16_t before = mask & range_mask(0, t->mask_from, j); /* no column in the mask */
    mask &= (uint16_t)~before;
    if (t->mask.dim_stride == 1)
        return bytes_set_of16(data, mask) | before;
    for (int n = 0; n < 16; n++)
        if (mask >> n & 1)
            seen |= (uint32_t)(data[n * t->mask.dim_stride] != 0) << n;
    return (uint16_t)seen | before;
}

/* first, first + 1, .. as floats. */
static inline vf distance_lanes(int64_t first)
{
    static const float step[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    float lanes[16];
    if (first > -(1 << 23) && first < 1 << 23) /* such sums are exact */
        return v_add(v_set1((float)first), v_load(step));
    for (int n = 0; n < 16; n++)
        lanes[n] = (float)(first + n);
    return v_load(lanes);
}

/* Products of Q and K, scaled and capped. scale / softcap is a normal number or 0 (simd/range.h). */
static inline vf capped(const heed_problem *p, vf products)
{
    return v_mul(v_tanh(v_mul(products, v_set1(p->scale / p->softcap))), v_set1(p->softcap));
}

/*
 * Turns one row's products with keys j .. j + 15 into scores in natural units, with everything
 * applied but the mask. *mask comes with the keys in range and loses those that mask and bias hide.
 * stage, if not NULL, receives the scores at the stage p->scores_stage, for all keys in range.
 */
static inline vf score_lanes(const heed_problem *p, const heed_tile *t, const amx_row *row,
                             int64_t j, vf products, uint16_t *mask, vf *stage)
{
    vf s = v_mul(products, v_set1(p->scale));
    if (stage)
        *stage = s;
    if (p->features & HEED_HAS_SOFTCAP) {
        s = capped(p, products);
        if (stage && p->scores_stage != HEED_SCORES_RAW)
            *stage = s;
    }
    if (has_mask(t))
        *mask = mask_lanes(p, t, row, j, *mask);
    if (t->alibi_slope) {
        s = v_fma(distance_lanes(j - row->q - t->q_offset), v_set1(t->alibi_slope[row->head]), s);
    }
    if (t->bias.data) {
        vf bias = bias_lanes(p, t, row, j, *mask);
        *mask &= (uint16_t)~m_equal(bias, v_set1(-INFINITY));
        s = v_fma(bias, v_set1(t->bias_slope ? t->bias_slope[row->head] : 1.0f), s);
    }
    if (stage && p->scores_stage == HEED_SCORES_BIASED)
        *stage = s;
    return s;
}

/* A product of row and key in f32 or wider, for the few that bf16 parts cannot carry: an infinity
 * times a low part of 0 would be NaN. */
static inline float exact_product(const heed_problem *p, const heed_tile *t, const amx_row *row,
                                  int64_t j)
{
    int64_t q_at = row->head * t->q.head_stride + row->q * t->q.row_stride;
    const heed_key key = heed_find_key(p, t, 0, j);
    double sum = 0;
    for (uint32_t d = 0; d < p->qk_dim; d++)
        sum += (double)heed_load(p->q_type, t->q.data, q_at + d * t->q.dim_stride) *
               heed_load_key(&key, d);
    return (float)sum;
}

#endif
