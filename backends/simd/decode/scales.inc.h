/*
 * Scales and zeros of the keys of a block of codes.
 *
 * Where each key of a head has one scale it is lifted out of the products: scores are multiplied by
 * K's, and weights, once they have been summed, by V's, which is one multiplication for each row in
 * place of one for each element. A key whose scale is so large or small, or whose zero is so large,
 * that a product of q below 2^90 could leave the range of floats where that of the decoded numbers does
 * not, or the reverse, is decoded with its scale instead; the bits of other keys do not depend on that.
 */
#ifndef HEED_SIMD_DECODE_SCALES_H
#define HEED_SIMD_DECODE_SCALES_H

#include "pages.inc.h"

#define SCALE_MOST 0x1p64f
#define SCALE_LEAST 0x1p-64f
#define ZERO_MOST 0x1p24f

/* Does each key of a head have exactly one scale, and no factor besides? */
static int lifts(uint32_t type, const heed_quant *quant, uint32_t dim)
{
    return heed_takes_scale(type) && quant->scale &&
           (quant->group == 0 || quant->group >= dim || quant->stride[3] == 0);
}

V_INLINE int can_lift(float scale, float zero)
{
    const float size = fabsf(scale);
    return (scale == 0 || (size >= SCALE_LEAST && size < SCALE_MOST)) && fabsf(zero) < ZERO_MOST;
}

/* can_lift for LANES keys at once, a bit each, in the low bits. The bits above are set. */
V_INLINE uint32_t can_lift_all(vf scale, vf zero)
{
    const vf size = v_abs(scale);
    const uint32_t no_scale = m_bits(m_equal(size, v_zero()));
    const uint32_t small = m_bits(m_less(size, v_set1(SCALE_LEAST)));
    const uint32_t below = m_bits(m_less(size, v_set1(SCALE_MOST)));
    const uint32_t near = m_bits(m_less(v_abs(zero), v_set1(ZERO_MOST)));
    return ((no_scale | (below & ~small)) & near) | ~m_bits(m_first(LANES));
}

/* Finds the scales of the keys that `which` names; other keys get factor 1 and no scale. */
static void find_scales(const decode *d, const heed_quant *quant, int lift, int64_t base,
                        uint32_t which, code_scales *to)
{
    for (int i = 0; i < DECODE_BLOCK; i++) {
        to->after[i] = 1;
        to->key[i] = (code_key){NULL, NULL, 0, 1};
        if (!quant->scale || !(which >> i & 1))
            continue;
        const place at = find_place(d, base + i);
        code_key *key = &to->key[i];
        *key = code_key_of(quant, at.page, at.row);
        if (lift && can_lift(*key->scale, key->zero ? *key->zero : 0)) {
            to->after[i] = *key->scale;
            key->scale = NULL;
        }
    }
}

/* Decodes the keys (or values) of a block that some row sees to floats, with zeros up to a multiple
 * of 16 dims. b's rows then point there, those of hidden keys to the first that is seen. */
static void copy_codes(const decode *d, block *b, int is_v)
{
    const uint32_t type = is_v ? d->problem->v_type : d->problem->k_type;
    const int64_t dim = is_v ? d->problem->v_dim : d->problem->qk_dim;
    const int64_t dim_stride = is_v ? d->tile->v.dim_stride : d->tile->k.dim_stride;
    const code_scales *scales = is_v ? &b->v_scales : &b->k_scales;
    const char **rows = is_v ? b->v : b->k;
    float *to = is_v ? d->v_copy : d->k_copy;
    const int64_t bytes = dim_stride == 1 ? heed_offset_bytes(type, dim) : 0;
    const int64_t padded = decode_padded(dim);
    const float *first = to + __builtin_ctz(b->any) * padded;
    for (int j = 0; j < DECODE_BLOCK; j++, to += padded) {
        fetch_row(&d->fetch, rows[j], is_v ? b->ahead.v : b->ahead.k, bytes);
        if (!(b->any >> j & 1)) {
            rows[j] = (const char *)first;
            continue;
        }
        code_row(type, rows[j], dim_stride, 0, dim, &scales->key[j], to);
        for (int64_t i = dim; i < padded; i++)
            to[i] = 0;
        rows[j] = (const char *)to;
    }
}

/* Multiplies the scores of a row by lifted scales of K. */
V_INLINE void scale_scores(float *scores, const float *after)
{
    for (int i = 0; i < DECODE_BLOCK; i += LANES)
        v_store(scores + i, v_mul(v_load(scores + i), v_load(after + i)));
}

#endif
