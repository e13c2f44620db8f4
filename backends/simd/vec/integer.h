/*
 * Integer products of codes, for kernels compiled with HEED_SIMD_INT8; for use beside vec.h. Each
 * lane is a key and gets sums of four products of bytes. AVX-512 VNNI and AVX-VNNI have vpdpbusd
 * for that, of unsigned bytes by signed ones. AVX2 alone adds products of pairs of bytes, which do
 * not saturate while codes are below 32, or of pairs of int16.
 *
 *     INTEGER_ROOM                  the most bytes that 32 elements of q take
 *     INTEGER_SIGNED                codes of 8 bits are multiplied as they are, signed or not; else
 *                                   those that are signed are made unsigned by adding 128
 *     integer_is_wide(type)         q is stored as int16
 *     vi_broadcast(p)               the four bytes at p in every lane
 *     vi_columns(at, stride, c)     16 bytes of each of LANES rows, `stride` bytes apart: lane n of
 *                                   c[i] has bytes 4 i to 4 i + 3 of row n, i < 4
 *     vi_columns_two(at, stride, c) 32 bytes of each, i < 8
 *     vi_lookup(table, a)           table[a] of each byte a, which is below 16
 *     vi_fifths(bits, i)            byte n of a lane: bit 4 i + n (i constant) of that lane as bit 4
 *     integer_dot(type, sums, c, q) sums + products of 16 codes c of each lane and 16 elements at q
 */
#ifndef HEED_SIMD_INTEGER_H
#define HEED_SIMD_INTEGER_H

#include "vec.h"

V_INLINE vi vi_broadcast(const void *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return vi_set1(x);
}

#if defined(__AVX512VNNI__)
#include "avx512_integer.h"
#elif defined(__AVX2__)
#include "avx2_integer.h"
#else
#error "no integer products on this instruction set"
#endif

/* Does a byte hold two codes of 4 bits, or the low 4 bits of two codes of 5? */
V_INLINE int integer_has_nibbles(uint32_t type)
{
    return type == HEED_U4 || (type >= HEED_Q4_0 && type <= HEED_IQ4_NL);
}

/* Signed numbers of 8 bits. */
V_INLINE int integer_is_signed(uint32_t type)
{
    return type == HEED_I8 || type == HEED_Q8_0 || type == HEED_IQ4_NL;
}

/* By how much the codes that are multiplied exceed the numbers that they stand for. */
V_INLINE int integer_offset(uint32_t type)
{
    return type == HEED_Q4_0                            ? 8
           : type == HEED_Q5_0                          ? 16
           : integer_is_signed(type) && !INTEGER_SIGNED ? 128
                                                        : 0;
}

/* The element of 32 whose code comes n-th in the order of halves and words. */
V_INLINE int integer_element(uint32_t type, int n)
{
    return type == HEED_U4 ? n % 16 * 2 + n / 16 : n;
}

/* Unpacks half u of the codes of 32 elements. The columns hold these 16 codes, or all 32 as
 * nibbles. fifths: the high bits, in formats that have them. */
V_INLINE void integer_codes(uint32_t type, const vi column[4], int u, vi fifths, vi c[4])
{
    v_bytes table = bytes_load(heed_iq4);
    if (!INTEGER_SIGNED)
        table = bytes_sub(table, bytes_set1(-128));
    V_UNROLL for (int i = 0; i < 4; i++)
    {
        vi x = column[i];
        if (integer_has_nibbles(type))
            x = vi_and(u ? vi_shr(x, 4) : x, vi_set1(0x0f0f0f0fu));
        if (type == HEED_IQ4_NL)
            x = vi_lookup(table, x);
        else if (integer_is_signed(type) && !INTEGER_SIGNED)
            x = vi_xor(x, vi_set1(0x80808080u));
        if (type == HEED_Q5_0 || type == HEED_Q5_1)
            x = vi_or(x, vi_fifths(fifths, 4 * u + i));
        c[i] = x;
    }
}

#endif
