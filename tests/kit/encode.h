/* Writes one value in any type at any address, rounded to nearest even: how the kit makes
 * inputs. */
#ifndef KIT_ENCODE_H
#define KIT_ENCODE_H

#include <heed/tensor.h>

#include <math.h>
#include <string.h>

static inline uint16_t kit_bf16_bits(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (isnan(x))
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline uint16_t kit_f16_bits(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x), scale;
    uint64_t bits;
    if (isnan(x))
        return 0x7e00;
    if (a >= 65520)
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x1p-14) /* subnormal: a multiple of 2^-24; 1024 of them are the first normal number */
        return (uint16_t)(sign | (uint16_t)nearbyint(a * 0x1p24));
    memcpy(&bits, &a, sizeof bits);
    const int exponent = (int)(bits >> 52) - 1023; /* a = [1, 2) * 2^exponent */
    bits = (uint64_t)(1023 + 10 - exponent) << 52;
    memcpy(&scale, &bits, sizeof scale);
    const double steps =
        nearbyint(a * scale); /* [1024, 2048]; the implicit bit and a carry add up */
    return (uint16_t)(sign + (uint16_t)((exponent + 14) << 10) + (uint16_t)steps);
}

/** Writes element `index` of an array of `type`; HEED_DTYPE_NONE is a byte. */
static inline void kit_encode(uint32_t type, unsigned char *data, int64_t index, double x)
{
    if (type == HEED_F32) {
        float f = (float)x;
        memcpy(data + index * 4, &f, 4);
    } else if (type == HEED_DTYPE_NONE) {
        data[index] = (unsigned char)x;
    } else {
        uint16_t half = type == HEED_F16 ? kit_f16_bits(x) : kit_bf16_bits(x);
        memcpy(data + index * 2, &half, 2);
    }
}

#endif
