/*
 * Decodes the codes that keys and values are stored in (heed/formats.h), to the bits of
 * heed_decode: each operation is one of f32, and d * c of the Q formats is exact, so that
 * AVX2 and AVX-512 agree.
 *
 *     code_bytes(type, row, e, n)       codes e to e + 15 of a row, as bytes for code_number. e is
 *                                       a multiple of 16; only the first n are read, 16 but at the
 *                                       end of a row
 *     code_number(type, bytes, i)       LANES of them as floats, from byte i * LANES on, without
 *                                       scale and zero
 *     code_scale(type, row, e)          of a Q format, the factor of the block that holds element e ...
 *     code_least(type, row, e)          ... and what is added (Q4_1, Q5_1; else nothing is)
 *     code_value(type, x, scale, least) the value. Other formats: least is the zero
 *     code_row(type, ...)               a row, of any strides and scales
 */
#ifndef HEED_SIMD_VEC_CODES_H
#define HEED_SIMD_VEC_CODES_H

#include "vec.h"

/* Does a factor precede the codes of each block of the format? */
V_INLINE int code_has_blocks(uint32_t type)
{
    return type >= HEED_Q8_0 && type <= HEED_IQ4_NL;
}

V_INLINE int code_has_least(uint32_t type)
{
    return type == HEED_Q4_1 || type == HEED_Q5_1;
}

V_INLINE const char *code_block(uint32_t type, const char *row, int64_t e)
{
    return row + e / 32 * (int64_t)heed_block_bytes(type);
}

V_INLINE v_bytes code_bytes(uint32_t type, const char *row, int64_t e, int n)
{
    if (type == HEED_U4) {
        const v_bytes x = n < 16 ? bytes_load_n(row + e / 2, n / 2) : bytes_load8(row + e / 2);
        return bytes_zip(bytes_low(x), bytes_high(x));
    }
    if (!code_has_blocks(type))
        return n < 16 ? bytes_load_n(row + e, n) : bytes_load(row + e);
    const char *block = code_block(type, row, e);
    const int upper = e % 32 != 0;
    if (type == HEED_Q8_0)
        return bytes_load(block + 2 + e % 32);
    const int has_fifth = type == HEED_Q5_0 || type == HEED_Q5_1;
    const char *fifth = block + (code_has_least(type) ? 4 : 2);
    const v_bytes pairs = bytes_load(has_fifth ? fifth + 4 : fifth);
    const v_bytes x = upper ? bytes_high(pairs) : bytes_low(pairs);
    if (has_fifth) {
        uint16_t bits;
        memcpy(&bits, fifth + 2 * upper, sizeof bits);
        const v_bytes five = bytes_or(x, bytes_fifth(bits));
        return type == HEED_Q5_0 ? bytes_sub(five, bytes_set1(16)) : five;
    }
    return type == HEED_Q4_0     ? bytes_sub(x, bytes_set1(8))
           : type == HEED_IQ4_NL ? bytes_lookup(bytes_load(heed_iq4), x)
                                 : x;
}

V_INLINE vf code_number(uint32_t type, v_bytes bytes, int i)
{
    return type == HEED_F8_E4M3 ? v_of_e4m3(bytes, i)
           : type == HEED_U8    ? v_of_u8(bytes, i)
                                : v_of_i8(bytes, i);
}

V_INLINE vf code_scale(uint32_t type, const char *row, int64_t e)
{
    return v_broadcast_f16(code_block(type, row, e));
}

V_INLINE vf code_least(uint32_t type, const char *row, int64_t e)
{
    return code_has_least(type) ? v_broadcast_f16(code_block(type, row, e) + 2) : v_zero();
}

V_INLINE vf code_value(uint32_t type, vf x, vf scale, vf least)
{
    if (code_has_blocks(type))
        return code_has_least(type) ? v_fma(scale, x, least) : v_mul(scale, x);
    return v_mul(type == HEED_F8_E4M3 ? x : v_sub(x, least), scale);
}

/* Scales and zeros of a key, in the formats that take them: those of dim d lie d / group * step
 * floats on. Where they are NULL, all scales are 1, all zeros 0. */
typedef struct code_key {
    const float *scale, *zero;
    int64_t step;
    uint32_t group; /* at least 1 */
} code_key;

/* The scales or zeros of LANES dims from d on, of which n exist. */
V_INLINE vf code_each(const code_key *key, const float *from, float none, int64_t d, int64_t n)
{
    float x[LANES] = {0};
    if (!from)
        return v_set1(none);
    if (key->step == 0)
        return v_set1(*from);
    if (key->group == 1 && key->step == 1)
        return v_load_n(from + d, (int)(n < LANES ? n : LANES));
    if (key->group % 16 == 0) /* LANES dims from a multiple of LANES on */
        return v_set1(from[d / key->group * key->step]);
    for (int i = 0; i < LANES && i < n; i++)
        x[i] = from[(d + i) / key->group * key->step];
    return v_load(x);
}

/* Dims [first, first + n) of a row as floats; first is a multiple of 32. */
V_INLINE void code_row_of(uint32_t type, const char *row, int64_t dim_stride, int64_t first,
                          int64_t n, const code_key *key, float *to)
{
    int64_t e = first, left = n;
    if (dim_stride == 1 && (code_has_blocks(type) || key->step == 0)) { /* the usual, fast case */
        vf scale = v_set1(key->scale && !code_has_blocks(type) ? *key->scale : 1);
        vf least = v_set1(key->zero && !code_has_blocks(type) ? *key->zero : 0);
        for (; left >= 16; e += 16, left -= 16, to += 16) {
            const v_bytes bytes = code_bytes(type, row, e, 16);
            if (code_has_blocks(type)) {
                scale = code_scale(type, row, e);
                least = code_least(type, row, e);
            }
            V_UNROLL for (int i = 0; i < 16 / LANES; i++) v_store(
                to + i * LANES, code_value(type, code_number(type, bytes, i), scale, least));
        }
    }
    for (; left > 0; e += 16, left -= 16, to += 16) {
        const int count = left < 16 ? (int)left : 16;
        v_bytes bytes;
        if (dim_stride == 1) {
            bytes = code_bytes(type, row, e, count);
        } else {
            uint8_t each[16] = {0};
            for (int i = 0; i < count; i++)
                each[i] = (uint8_t)row[(e + i) * dim_stride];
            bytes = bytes_load(each);
        }
        V_UNROLL for (int i = 0; i < 16 / LANES; i++)
        {
            const int64_t d = e + i * LANES;
            const int some = count - i * LANES;
            if (some <= 0)
                break;
            vf scale, least;
            if (code_has_blocks(type)) {
                scale = code_scale(type, row, e);
                least = code_least(type, row, e);
            } else {
                scale = code_each(key, key->scale, 1, d, some);
                least = code_each(key, key->zero, 0, d, some);
            }
            const vf x = code_value(type, code_number(type, bytes, i), scale, least);
            if (some >= LANES)
                v_store(to + i * LANES, x);
            else
                v_store_n(to + i * LANES, x, some);
        }
    }
}

#define CODE_EACH(DO)                                                                              \
    DO(HEED_I8)                                                                                    \
    DO(HEED_U8)                                                                                    \
    DO(HEED_U4)                                                                                    \
    DO(HEED_F8_E4M3)                                                                               \
    DO(HEED_Q8_0)                                                                                  \
    DO(HEED_Q4_0)                                                                                  \
    DO(HEED_Q4_1)                                                                                  \
    DO(HEED_Q5_0)                                                                                  \
    DO(HEED_Q5_1)                                                                                  \
    DO(HEED_IQ4_NL)

V_NOINLINE void code_row(uint32_t type, const char *row, int64_t dim_stride, int64_t first,
                         int64_t n, const code_key *key, float *to)
{
    switch (type) {
#define CODE_ROW(type)                                                                             \
    case type:                                                                                     \
        code_row_of(type, row, dim_stride, first, n, key, to);                                     \
        break;
        CODE_EACH(CODE_ROW)
#undef CODE_ROW
    }
}

/* Scales and zeros of a key of a tile, of the kv head that quant begins at: its first. */
V_INLINE code_key code_key_of(const heed_quant *quant, int64_t page, int64_t row)
{
    const int64_t at = heed_scale_at(quant, page, 0, row, 0);
    return (code_key){quant->scale ? quant->scale + at : NULL,
                      quant->scale && quant->zero ? quant->zero + at : NULL,
                      quant->group ? quant->stride[3] : 0, quant->group ? quant->group : 1};
}

#endif
