/* Heed: element types: f16 and bf16, and the codes of low-precision keys and values. All static
 * inline. Conversions of f16 and bf16 depend on no rounding or flush-to-zero mode; codes are
 * decoded and encoded by operations of f32, in the default mode. Included by kit.h.
 *
 * This is the one place that says what codes stand for and how numbers become codes: the oracle,
 * the append and the tests of kernels decode and encode with these functions.
 *
 *     type      elements  bytes  layout of a block                      value of element i     range
 *     I8              1      1   int8 c                                 (c - zero) * scale     -128 .. 127
 *     U8              1      1   uint8 c                                (c - zero) * scale     0 .. 255
 *     U4              2      1   c0 | c1 << 4                           (c - zero) * scale     0 .. 15
 *     F8_E4M3         1      1   sign, 4 bits exponent (bias 7), 3 of   value * scale          +-448, NaN
 *                                fraction; 0x7f and 0xff are NaN                               0x7f
 *     Q8_0           32     34   f16 d, int8 c[32]                      d * c                  -127 .. 127
 *     Q4_0           32     18   f16 d, 16 bytes: c[j] | c[j + 16] << 4 d * (c - 8)            0 .. 15
 *     Q4_1           32     20   f16 d, f16 m, nibbles as Q4_0          d * c + m              0 .. 15
 *     Q5_0           32     22   f16 d, 4 bytes of high bits, nibbles   d * (c - 16)           0 .. 31
 *     Q5_1           32     24   f16 d, f16 m, high bits, nibbles       d * c + m              0 .. 31
 *     IQ4_NL         32     18   f16 d, nibbles as Q4_0                 d * heed_iq4[c]        0 .. 15
 *
 * f16 and the high bits are little endian; bit j of the high bits is bit 4 of c[j]. Every operation
 * is made in f32 and rounded to nearest: c - zero, then its product with scale; d * c, which is
 * exact, then the sum with m.
 *
 * Numbers become codes as follows, again with every operation made in f32:
 *
 *     I8 U8 U4   c is x / scale + zero, rounded half to even, then held within the range.
 *                Infinities saturate; a NaN becomes 0. Where the scale is 0, c is 0.
 *     F8_E4M3    the nearest number to x / scale, ties to even in the last bit, infinities and all
 *                else beyond 448 become +-448, NaN stays NaN. Where the scale is 0, c is 0.
 *     Q          as ggml's quantize_row_q8_0_ref, q4_0, q4_1, q5_0, q5_1 and iq4_nl (which does not
 *                search, and weighs with x * x) do, bit for bit: codes are made with the f32 d,
 *                which is rounded to f16 afterwards. Where those leave it open: a block that holds
 *                a NaN has NaN for d and m and codes 0; in others a NaN that was to become a code
 *                (infinity times 0) becomes 0, or 15 of IQ4_NL, and what lies beyond the range
 *                saturates; NaN is 0x7e00. A block whose d overflows f16 has an infinite d. IQ4_NL
 *                below 1e-15: d and codes are 0.
 *
 * Scales made for one row (heed_fresh_scale): I8 max|x| / 127, F8 max|x| / 448, U8 (max - min) /
 * 255 and U4 (max - min) / 15 with zero = -min / scale. Where that scale is 0 but min is not (all
 * values are the same), it is |min|, so that zero is -1 or 1 and no row is lost. In a row of zeros
 * scale, zero and codes are 0. A row that holds a NaN has the scale NaN; one with an infinity, or
 * with max - min beyond f32, has an infinite scale. Every value is then NaN. Zero and codes are 0
 * in both cases, except that F8 has the code of NaN where x / scale is NaN.
 *
 * Source   F8: OCP 8-bit Floating Point Specification, revision 1.0. The Q formats are those of
 *          ggml, bit for bit.
 */
#ifndef HEED_FORMATS_H
#define HEED_FORMATS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tensor.h"

HEED_BEGIN_C

/** Bytes of one element of a type that is addressed by element; 0 for U4 and the Q formats. */
static inline uint32_t heed_dtype_bytes(uint32_t type)
{
    return type == HEED_F32                                             ? 4
           : type == HEED_F16 || type == HEED_BF16                      ? 2
           : type == HEED_I8 || type == HEED_U8 || type == HEED_F8_E4M3 ? 1
                                                                        : 0;
}

/** "f32", "f16", "bf16", "i8", ...: the enum's names in small letters; "none" for anything else. */
static inline const char *heed_dtype_name(uint32_t type)
{
    static const char *const name[] = {"none",    "f32",  "f16",  "bf16", "i8",   "u8",   "u4",
                                       "f8_e4m3", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"};
    return name[type <= HEED_IQ4_NL ? type : 0];
}

static inline float heed_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t heed_bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float heed_f32_of_bf16(uint16_t bits)
{
    return heed_f32_of_bits((uint32_t)bits << 16);
}

/** To nearest even; a NaN stays one (its lower payload bits may have been the only ones). */
static inline uint16_t heed_bf16_of_f32(float x)
{
    uint32_t bits = heed_bits_of_f32(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float heed_f32_of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 31)
        return heed_f32_of_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) {
        if (fraction == 0)
            return heed_f32_of_bits(sign);
        exponent = 1; /* subnormal: shift the leading one into place */
        while (!(fraction & 0x400u)) {
            fraction <<= 1;
            exponent--; /* wraps below 0 and comes right again in the sum below */
        }
        fraction &= 0x3ffu;
    }
    return heed_f32_of_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}

/** To nearest even, overflow to infinity, underflow through the f16 subnormals. */
static inline uint16_t heed_f16_of_f32(float x)
{
    uint32_t bits = heed_bits_of_f32(x), sign = (bits >> 16) & 0x8000u,
             magnitude = bits & 0x7fffffffu;
    uint32_t shift = 13, half;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000000u) /* below half of the smallest subnormal */
        return (uint16_t)sign;
    if (magnitude < 0x38800000u) { /* subnormal: the implicit one becomes visible */
        shift = 126u - (magnitude >> 23);
        magnitude = (magnitude & 0x7fffffu) | 0x800000u;
    } else {
        magnitude -= 112u << 23;
    }
    half = magnitude >> shift;
    {
        uint32_t rest = magnitude & ((1u << shift) - 1u), middle = 1u << (shift - 1);
        half += rest + (half & 1u) > middle; /* a branch would be guessed wrong half the time */
    }
    return (uint16_t)(sign | half);
}

/** Element `index` of an array of f32, f16 or bf16, at any address. */
static inline float heed_load(uint32_t type, const void *data, int64_t index)
{
    uint16_t half;
    float x;
    if (type == HEED_F32) {
        memcpy(&x, (const char *)data + index * 4, sizeof x);
        return x;
    }
    memcpy(&half, (const char *)data + index * 2, sizeof half);
    return type == HEED_F16 ? heed_f32_of_f16(half) : heed_f32_of_bf16(half);
}

static inline void heed_store(uint32_t type, void *data, int64_t index, float x)
{
    if (type == HEED_F32) {
        memcpy((char *)data + index * 4, &x, sizeof x);
    } else {
        uint16_t half = type == HEED_F16 ? heed_f16_of_f32(x) : heed_bf16_of_f32(x);
        memcpy((char *)data + index * 2, &half, sizeof half);
    }
}

/** x cut to 15 bits, the last set if that lost anything: rounding the result to f16 or bf16 is rounding
 * x once. Exact from 2^-135, below half of the least bf16, to the greatest f32; infinity beyond. */
static inline float heed_odd_f32(double x)
{
    const uint64_t lost = ((uint64_t)1 << 38) - 1;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits | ((bits & lost) + lost)) & ~lost;
    memcpy(&x, &bits, sizeof x);
    return (float)x;
}

/** Stores a sum in f64, rounded once. */
static inline void heed_store_f64(uint32_t type, void *data, int64_t index, double x)
{
    heed_store(type, data, index, type == HEED_F32 ? (float)x : heed_odd_f32(x));
}

/* ---- codes ------------------------------------------------------------------------------------ */

/** Is it a type of codes? */
static inline int heed_is_code(uint32_t type)
{
    return type >= HEED_I8 && type <= HEED_IQ4_NL;
}

/** Does it take scales from a heed_quant? */
static inline int heed_takes_scale(uint32_t type)
{
    return type >= HEED_I8 && type <= HEED_F8_E4M3;
}

/** Elements of a block, the fewest adjacent elements of a row that are whole bytes; 0 if it is no type. */
static inline uint32_t heed_block_len(uint32_t type)
{
    return type == HEED_U4                            ? 2
           : type >= HEED_Q8_0 && type <= HEED_IQ4_NL ? 32
                                                      : type >= HEED_F32 && type < HEED_Q8_0;
}

/** Bytes of a block; 0 if it is no type. */
static inline uint32_t heed_block_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {0, 4, 2, 2, 1, 1, 1, 1, 34, 18, 20, 22, 24, 18};
    return type <= HEED_IQ4_NL ? bytes[type] : 0;
}

/** Bytes from an element to the one `elements` on: whole blocks, in either direction. */
static inline int64_t heed_offset_bytes(uint32_t type, int64_t elements)
{
    const uint32_t len = heed_block_len(type);
    return (len <= 1   ? elements
            : len == 2 ? elements / 2
                       : elements / 32) *
           (int64_t)heed_block_bytes(type);
}

/** Index of the scale and zero of dim d of a key, in floats from quant->scale; head counts from the
 * pointer's. For keys in pages `key` is the row in the page and `page` its number, else 0. */
static inline int64_t heed_scale_at(const heed_quant *quant, int64_t page, int64_t head,
                                    int64_t key, int64_t d)
{
    return page * quant->stride[0] + head * quant->stride[1] +
           (quant->key_group ? key / quant->key_group : key) * quant->stride[2] +
           (quant->group ? d / quant->group : 0) * quant->stride[3];
}

/** The values of the nibbles of IQ4_NL. */
static const int8_t heed_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};

/** The number that an E4M3 code stands for. */
static inline float heed_f32_of_e4m3(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24, exponent = (code >> 3) & 15u;
    const uint32_t fraction = code & 7u;
    if (exponent == 15 && fraction == 7)
        return heed_f32_of_bits(sign | 0x7fc00000u);
    if (exponent) /* f32's bias is 127 */
        return heed_f32_of_bits(sign | (exponent + 120u) << 23 | fraction << 20);
    return heed_f32_of_bits(sign | heed_bits_of_f32((float)fraction * 0x1p-9f));
}

/** Code d of a row whose first block lies at `row`, in any type of codes but F8_E4M3, whose bytes
 * are no integers. IQ4_NL: the table's number. */
static inline int heed_code(uint32_t type, const void *row, int64_t d)
{
    const uint8_t *at =
        (const uint8_t *)row + heed_offset_bytes(type, d - d % heed_block_len(type));
    const uint32_t i = (uint32_t)(d % heed_block_len(type));
    if (type == HEED_I8 || type == HEED_Q8_0)
        return (int8_t)at[type == HEED_I8 ? 0 : 2 + i];
    if (type == HEED_U8)
        return at[0];
    if (type == HEED_U4)
        return at[0] >> 4 * i & 15;
    {
        const int has_high = type == HEED_Q5_0 || type == HEED_Q5_1;
        const uint8_t *high = at + (type == HEED_Q5_1 ? 4 : 2);
        const uint8_t *nibbles = type == HEED_Q4_1 ? at + 4 : has_high ? high + 4 : at + 2;
        const int low = nibbles[i % 16] >> i / 16 * 4 & 15;
        if (type == HEED_IQ4_NL)
            return heed_iq4[low];
        return has_high ? low | (high[i / 8] >> i % 8 & 1) << 4 : low;
    }
}

/** The value of element d of such a row. scale and zero are the element's, for types that take them (1
 * and 0 where there are none). */
static inline float heed_decode(uint32_t type, const void *row, int64_t d, float scale, float zero)
{
    const uint8_t *block =
        (const uint8_t *)row + heed_offset_bytes(type, d - d % heed_block_len(type));
    if (type == HEED_F8_E4M3)
        return heed_f32_of_e4m3(*block) * scale;
    {
        const float code = (float)heed_code(type, row, d);
        uint16_t bits;
        float factor, least = 0;
        if (heed_takes_scale(type))
            return (code - zero) * scale;
        memcpy(&bits, block, sizeof bits);
        factor = heed_f32_of_f16(bits);
        if (type == HEED_Q4_1 || type == HEED_Q5_1) {
            memcpy(&bits, block + 2, sizeof bits);
            least = heed_f32_of_f16(bits);
            return factor * code + least;
        }
        return factor * (code - (type == HEED_Q4_0 ? 8 : type == HEED_Q5_0 ? 16 : 0));
    }
}

/* ---- numbers to codes --------------------------------------------------------------------------- */

/** c to the nearest integer, ties to even, within least .. most; NaN: 0. */
static inline int heed_round_code(float c, int least, int most)
{
    c = c == c ? c : 0;
    c = c > (float)least ? c : (float)least;
    c = c < (float)most ? c : (float)most;
    return (int)((c + 0x1.8p23f) -
                 0x1.8p23f); /* above 2^23 an f32 has no places behind the point */
}

/** The E4M3 code nearest to x, ties to even; beyond 448: 448, NaN: NaN. */
static inline uint8_t heed_e4m3_of_f32(float x)
{
    const uint32_t bits = heed_bits_of_f32(x), sign = bits >> 24 & 0x80u;
    const uint32_t size = bits & 0x7fffffffu, held = size < 0x43e00000u ? size : 0x43e00000u;
    const uint32_t normal = (held - (120u << 23) + 0x7ffffu + (held >> 20 & 1u)) >> 20;
    /* below 2^-6 a step is 2^-9, which is the last place of 2^14 in f32 */
    const uint32_t small = heed_bits_of_f32(heed_f32_of_bits(held) + 0x1p14f) - 0x46800000u;
    const uint32_t code = held < 0x3c800000u ? small : normal;
    return (uint8_t)(sign | (size > 0x7f800000u ? 0x7fu : code));
}

/** The code of x in I8, U8, U4 or F8_E4M3; that of I8 as its byte. */
static inline uint8_t heed_encode_by(uint32_t type, float x, float scale, float zero)
{
    if (scale == 0)
        return 0;
    if (type == HEED_F8_E4M3)
        return heed_e4m3_of_f32(x / scale);
    return (uint8_t)heed_round_code(x / scale + zero, type == HEED_I8 ? -128 : 0,
                                    type == HEED_I8   ? 127
                                    : type == HEED_U8 ? 255
                                                      : 15);
}

/** Widens the range *least .. *most, which begins as INFINITY .. -INFINITY, by n numbers. A NaN
 * makes both NaN for good. */
static inline void heed_widen_range(const float *x, int64_t n, float *least, float *most)
{
    for (int64_t i = 0; i < n; i++) {
        *least = x[i] < *least || x[i] != x[i] ? x[i] : *least;
        *most = x[i] > *most || x[i] != x[i] ? x[i] : *most;
    }
}

/** The scale and zero made for a row whose numbers have that range. */
static inline void heed_scale_of_range(uint32_t type, float least, float most, float *scale,
                                       float *zero)
{
    *zero = 0;
    if (least != least) {
        *scale = heed_f32_of_bits(0x7fc00000u);
    } else if (least > most) {
        *scale = 0; /* there are no numbers */
    } else if (least == -INFINITY || most == INFINITY) {
        *scale = INFINITY;
    } else if (type == HEED_I8 || type == HEED_F8_E4M3) {
        *scale = (most > -least ? most : 0 - least) / (type == HEED_I8 ? 127.0f : 448.0f);
    } else {
        *scale = (most - least) / (type == HEED_U8 ? 255.0f : 15.0f);
        if (*scale == 0)
            *scale = fabsf(least);
        if (*scale != 0 && *scale < INFINITY)
            *zero = (0 - least) / *scale;
    }
}

/** The scale and zero made for a row of n numbers. */
static inline void heed_fresh_scale(uint32_t type, const float *x, int64_t n, float *scale,
                                    float *zero)
{
    float least = INFINITY, most = -INFINITY;
    heed_widen_range(x, n, &least, &most);
    heed_scale_of_range(type, least, most, scale, zero);
}

/** The 32 codes of IQ4_NL nearest to x / d, inverse = 1 / d, and the factor that then fits best by least
 * squares: the sum of w x value over that of w value^2, w = x^2. */
static inline float heed_iq4_codes(const float *x, float inverse, uint8_t code[32])
{
    float up = 0, down = 0;
    for (int i = 0; i < 32; i++) {
        const float scaled = x[i] * inverse, weight = x[i] * x[i];
        int c = 0;
        float value;
        while (c < 15 && !(scaled < heed_iq4[c + 1])) /* a NaN ends at 15 */
            c++;
        /* between two the lower one, unless the upper one is as near */
        if (scaled > heed_iq4[0] && c < 15 && !(scaled - heed_iq4[c] < heed_iq4[c + 1] - scaled))
            c++;
        value = heed_iq4[c];
        up += weight * value * x[i];
        down += weight * value * value;
        code[i] = (uint8_t)c;
    }
    return up / down;
}

/** The code, in the other Q formats, of a number that is c steps above the least, or above 0. */
static inline uint8_t heed_q_code(uint32_t type, float c)
{
    const int has_high = type == HEED_Q5_0 || type == HEED_Q5_1;
    const float least = type == HEED_Q8_0 ? -127 : 0;
    const float most = type == HEED_Q8_0 ? 127 : has_high ? 31 : 15;
    if (type == HEED_Q8_0) /* half away from zero; with 0.5 itself 0.5 - 2^-25 would reach 1 */
        c += c < 0 ? -0x1.fffffep-2f : 0x1.fffffep-2f;
    else
        c += type == HEED_Q4_0 ? 8.5f : type == HEED_Q5_0 ? 16.5f : 0.5f;
    c = c == c ? c : 0;
    c = c > least ? c : least;
    c = c < most ? c : most;
    return (uint8_t)(int)c; /* what lies behind the point is cut off */
}

/** Puts 32 codes of 4 or 5 bits to their places in a block, behind its factors: first the fifth
 * bits of all codes. */
static inline void heed_place_codes(const uint8_t code[32], int has_high, uint8_t *at)
{
    uint32_t high = 0;
    if (has_high) {
        for (int i = 0; i < 32; i++)
            high |= (uint32_t)(code[i] >> 4) << i;
        for (int i = 0; i < 4; i++)
            at[i] = (uint8_t)(high >> 8 * i);
        at += 4;
    }
    for (int j = 0; j < 16; j++)
        at[j] = (uint8_t)((code[j] & 15) | code[j + 16] << 4);
}

/** Encodes 32 numbers as a block of one of the Q formats. */
static inline void heed_encode_q(uint32_t type, const float *x, void *block)
{
    const int has_least = type == HEED_Q4_1 || type == HEED_Q5_1;
    const int has_high = type == HEED_Q5_0 || type == HEED_Q5_1;
    uint8_t *at = (uint8_t *)block;
    float size = 0, extreme = 0, least = 0x1.fffffep127f, most = -0x1.fffffep127f, d, inverse;
    uint8_t code[32] = {0};
    uint16_t half;
    int has_nan = 0;
    for (int i = 0; i < 32; i++) {
        const float magnitude = fabsf(x[i]);
        has_nan |= x[i] != x[i];
        extreme = magnitude > size ? x[i] : extreme; /* the first of equal ones */
        size = magnitude > size ? magnitude : size;
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    d = type == HEED_Q8_0   ? size / 127
        : has_least         ? (most - least) / (has_high ? 31.0f : 15.0f)
        : type == HEED_Q4_0 ? extreme / -8
        : type == HEED_Q5_0 ? extreme / -16
        : size < 1e-15f     ? 0
                            : extreme / -127;
    inverse = d != 0 ? 1 / d : 0;
    if (type == HEED_IQ4_NL && d != 0 && !has_nan)
        d = heed_iq4_codes(x, inverse, code);
    for (int i = 0; i < 32 && type != HEED_IQ4_NL && !has_nan; i++)
        code[i] = heed_q_code(type, (has_least ? x[i] - least : x[i]) * inverse);
    half = has_nan || d != d ? 0x7e00 : heed_f16_of_f32(d);
    memcpy(at, &half, 2);
    if (type == HEED_Q8_0) {
        memcpy(at + 2, code, 32);
        return;
    }
    if (has_least) {
        half = has_nan ? 0x7e00 : heed_f16_of_f32(least);
        memcpy(at + 2, &half, 2);
    }
    heed_place_codes(code, has_high, at + (has_least ? 4 : 2));
}

/** Encodes n numbers, whole blocks, in any type of codes at `row`. scale and zero are those of all
 * n, for types that take them (1 and 0 where there are none). */
static inline void heed_encode(uint32_t type, const float *x, int64_t n, void *row, float scale,
                               float zero)
{
    uint8_t *to = (uint8_t *)row;
    if (!heed_takes_scale(type)) {
        for (int64_t i = 0; i < n; i += 32)
            heed_encode_q(type, x + i, to + heed_offset_bytes(type, i));
    } else if (type == HEED_U4) {
        for (int64_t i = 0; i + 1 < n; i += 2)
            to[i / 2] = (uint8_t)(heed_encode_by(type, x[i], scale, zero) |
                                  heed_encode_by(type, x[i + 1], scale, zero) << 4);
    } else {
        for (int64_t i = 0; i < n; i++)
            to[i] = heed_encode_by(type, x[i], scale, zero);
    }
}

HEED_END_C

#endif
