/* Heed: element types: f16 and bf16, and the codes of low-precision keys and values. All static inline,
 * and nothing depends on the rounding or flush-to-zero mode. Included by kit.h.
 *
 * The one place that says what codes stand for and how numbers become codes: the oracle, the append and
 * the tests of kernels decode and encode with these.
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
 * f16 and the high bits are little endian; bit j of the high bits is bit 4 of c[j]. Every operation is one
 * in f32, rounded to nearest: c - zero, then its product with scale; d * c, which is exact, then the sum
 * with m.
 *
 * Source   F8: OCP 8-bit Floating Point Specification, revision 1.0. The Q formats are those of ggml, bit
 *          for bit.
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

/** "f32", "f16", "bf16", "i8", ... as the enum's names in small letters; "none" for anything else. */
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

/** Element `index` of an array of f32, f16 or bf16 at any address. */
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

/** The same of a sum in f64, rounded once. On the way to 16 bits it passes through f32 rounded to
 * odd (toward zero, the last bit set if that lost anything), which leaves every tie what it was. */
static inline void heed_store_f64(uint32_t type, void *data, int64_t index, double x)
{
    float near = (float)x;
    if (type != HEED_F32 && (double)near != x && fabs((double)near) < (double)INFINITY) {
        uint32_t bits = heed_bits_of_f32(near);
        near = heed_f32_of_bits((bits - (fabs((double)near) > fabs(x))) | 1u);
    }
    heed_store(type, data, index, near);
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

/** Bytes from an element to the one `elements` on, of either sign: whole blocks. */
static inline int64_t heed_offset_bytes(uint32_t type, int64_t elements)
{
    const uint32_t len = heed_block_len(type);
    return (len <= 1   ? elements
            : len == 2 ? elements / 2
                       : elements / 32) *
           (int64_t)heed_block_bytes(type);
}

/** Index of the scale and zero of dim d of a key, in floats from quant->scale; head counts from the
 * pointer's. Of keys in pages key is the row in the page, and page its number, else 0. */
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

/** Code d of a row whose first block lies at `row`, of a type of codes but F8_E4M3, whose code is a byte
 * that is no number. IQ4_NL: what the table has. */
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

HEED_END_C

#endif
