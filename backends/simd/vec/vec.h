/*
 * Vectors of floats: the operations that the hand-written kernels need, on the instruction set that
 * the including file is compiled for. Kernels name no instruction; each instruction set has a file
 * here that offers all of what follows, so that a further one is a further file:
 *
 *     avx512.h   AVX-512 F, BW, DQ, VL        16 lanes, 32 registers
 *     avx2.h     AVX2, FMA, F16C               8 lanes, 16 registers
 *     plain.h    loops in C                    as many lanes as HEED_VEC_PLAIN says, else 1
 *
 * Kernels that need more include pairs.h (products of pairs of bf16), integer.h (integer products
 * of codes), encode.h (numbers to codes) or words.h (packing for a tile unit), each with files of
 * its own for the instruction sets that have it. math.h (powers of two, tanh) and codes.h (codes to
 * numbers) are one text for all.
 *
 * Properties
 *     LANES               floats of a vector
 *     V_REGISTERS         vectors that registers hold; width.h has it for baseline code
 *     V_ISA               the set's name, a string
 *     HEED_ISA_FUNCTION   name -> what an exported function of that name is called: name##_avx2
 *
 * Types
 *     vf  LANES floats       vi  LANES int32       vm  a lane mask       m4  a mask of a v4
 *     v4, v8  four and eight floats, whatever LANES is; v8 is vf where LANES is 8
 *     v_half  LANES elements of 16 bits          v_bytes  16 bytes
 *
 * v_leave()            the last that an exported function does. Code for the baseline CPU would else wait
 *                      at each instruction for the upper halves of its registers, and take three times
 *                      as long (Zen 5). Compilers clear them by themselves, but GCC 12 forgets it after
 *                      a call of a function of the same file that uses no vectors
 *
 * Memory: no function reads or writes beyond what its n says, so the last lanes at the end of a row
 * may lie on an unmapped page. No alignment is needed. n is at least 0; LANES or more means all.
 *
 *     v_load(p), v_store(p, a)                    LANES floats
 *     v_load_n(p, n), v_store_n(p, a, n)          the first n; lanes behind are read as 0
 *     v_broadcast(p)                              *p in every lane, by one load instruction
 *     v_load_f16(p), v_load_f16_n(p, n)           LANES or n 16-bit elements, widened; bf16 alike
 *     v_load_bf16_shuffle(p)                      v_load_bf16, where shuffles cost less than shifts
 *     v_store_half_n(p, h, n)                     the first n of a v_half
 *     v_store_low(p, a), v_store_high(p, a)       one half of a vector; not of 1 lane
 *     bytes_set16(p), bytes_set(p, n)             bit i: byte i of 16 or n (at most 64) is not 0
 *     V_PREFETCH_L1(p), _L2(p), _WRITE(p)         asks for a line, wherever it may be
 *
 * Arithmetic, lane by lane
 *     v_zero(), v_set1(x)
 *     v_add, v_sub, v_mul, v_div (a, b)           rounded once
 *     v_fma(a, b, c), v_fnma(a, b, c)             a b + c, c - a b; rounded once (plain.h: see there)
 *     v_max, v_min (a, b)                         a > b ? a : b and a < b ? a : b: so b where either
 *                                                 is a NaN, and b of two zeros
 *     v_ceil(a), v_abs(a)
 *     v_and, v_or, v_xor (a, b)                   of the bits
 *     v_bits(a), v_from_bits(i)                   the same bits as another type
 *     vi_load(p), vi_zero(), vi_set1(x), vi_add, vi_sub, vi_and, vi_or, vi_xor (a, b)
 *     vi_shl, vi_shr (a, n)
 *     vi_to_float(i)
 *     v_narrow_f16(a), v_narrow_bf16(a)           rounded once, to nearest even; a NaN stays one
 *
 * Masks
 *     m_from_bits(bits), m_bits(m)                as an integer: bit l is lane l
 *     m_first(n)                                  lanes below n
 *     m_less(a, b), m_equal(a, b)                 false for a NaN
 *     m_nan(a), m_negative(a)                     m_negative: the sign bit, of -0 and NaN too
 *     v_select(m, yes, no)
 *
 * Powers of two: v_exp2 of math.h is a polynomial between these. The exponent is a vf in a form that
 * is the instruction set's own.
 *     V_POWER_UNIT                                v_times_power takes V_POWER_UNIT * p
 *     v_split_power(x, &n)                        x = n + r, n the nearest integer; returns r
 *     v_power_of(t)                               n of t = V_POWER_MAGIC + n, n >= -128
 *     v_times_power(p, n)                         p 2^n / V_POWER_UNIT
 *
 * Between lanes. A four is lanes 4 i to 4 i + 3 of a vector; not offered where LANES is below 4.
 *     v_zip_low(a, b), v_zip_high(a, b)           of each four a0 b0 a1 b1; a2 b2 a3 b3
 *     v_low_pairs(a, b), v_high_pairs(a, b)       of each four a0 a1 b0 b1; a2 a3 b2 b3
 *     v_spread(a, i)                              of each four lane i (constant), four times
 *     v_transpose(r)                              LANES vectors: rows become columns
 *     v_transpose_fours(r)                        LANES / 4 vectors: four i of row j and four j of
 *                                                 row i change places
 *     v_fold(s, i)                                adds the 16 partial sums s[row][16 / LANES] of
 *                                                 each of 4 rows as n + (n + 8), then n + (n + 4).
 *                                                 Four of each row are left, row by row: vector i
 *                                                 of 16 / LANES
 *     v_eights(at, stride, n, i)                  vector i of the 8 that hold LANES rows of eight
 *                                                 floats, `stride` apart, of which n exist
 *     v_eights_row(i)                             the first row in that vector
 *     v_eights_columns(q)                         rearranges the 8: q[d] has float d of each row
 *
 * Sixteen bytes, whatever LANES is: a v_bytes. codes.h decodes keys and values with them
 *     bytes_load(p), bytes_load_n(p, n)           16 or n (at most 16) bytes; those behind are 0
 *     bytes_load8(p)                              8 bytes, zeros behind
 *     bytes_sub(a, b), bytes_or(a, b), bytes_set1(x)
 *     bytes_low(a), bytes_high(a)                 the low or the high four bits of each byte
 *     bytes_zip(a, b)                             a0 b0 a1 b1 ... a7 b7
 *     bytes_lookup(table, a)                      table[a], of a below 16
 *     bytes_fifth(bits)                           byte i: bit i of the 16 as bit 4
 *     v_of_i8(a, i), v_of_u8(a, i)                bytes from i * LANES on as floats; i is a constant
 *                                                 below 16 / LANES
 *     v_of_e4m3(a, i)                             the same of E4M3, as heed_f32_of_e4m3, whatever
 *                                                 MXCSR says
 *     v_broadcast_f16(p)                          one f16, widened, in every lane
 * and where V_LOOKUP is defined, of 16 lanes
 *     vi_of_bytes(a)                              bytes as int32, unsigned
 *     vi_nibbles(p)                               the 16 nibbles of 8 bytes, each in the low four
 *                                                 bits of a lane, whose other bits hold anything
 *     v_lookup(table, i)                          table[i], by the low four bits
 *     v_lookup_two(low, high, i)                  by the low five bits
 *     vi_fifth(i, bits)                           the low four bits of i and, where the lane's bit of
 *                                                 the 16 is set, bit 4
 * and where V_BIAS is defined, a float of which each integer up to 128 away is one
 *     vi_load_two_i8(p)                           2 * LANES bytes, two to a lane: n and n + LANES
 *     v_biased_i8(two, i)                         V_BIAS + the i-th of each lane as int8; i is a constant,
 *                                                 0 or 1
 * and where V_TWO_E4M3 is defined
 *     v_load_two_e4m3(p, q, x)                    x[0], x[1]: v_of_e4m3 of 2 * LANES bytes at p; x[2],
 *                                                 x[3]: of as many at q; faster
 *
 * Four and eight floats
 *     v8_zero(), v8_load(p), v8_store(p, a), v8_broadcast(p), v8_mul(a, b), v8_fma(a, b, c)
 *     v8_load_half(type, p), v8_store_half(type, p, a)    f16 or bf16
 *     v8_of(low, high), v8_low(a), v8_high(a)     two v4
 *     v4_zero(), v4_set1(x), v4_load(p), v4_store(p, a), v4_add, v4_max, v4_div (a, b)
 *     m4_equal(a, b), m4_bits(m), v4_select(m, yes, no)
 */
#ifndef HEED_SIMD_VEC_H
#define HEED_SIMD_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <heed/backend.h>

#include "width.h"

#if defined(__GNUC__)
#define V_INLINE static inline __attribute__((always_inline, unused))
#define V_NOINLINE static __attribute__((noinline, unused))
#define V_PREFETCH_L1(p) __builtin_prefetch(p, 0, 3)
#define V_PREFETCH_L2(p) __builtin_prefetch(p, 0, 2)
#define V_PREFETCH_WRITE(p) __builtin_prefetch(p, 1)
/* Hides from the compiler where an address comes from: it would compute others from it in advance
 * and keep all of them. */
#define V_OPAQUE(pointer) __asm__("" : "+r"(pointer));
#else
#define V_INLINE static inline
#define V_NOINLINE static
#define V_PREFETCH_L1(p) (void)(p)
#define V_PREFETCH_L2(p) (void)(p)
#define V_PREFETCH_WRITE(p) (void)(p)
#define V_OPAQUE(pointer)
#endif

/* Precedes a loop over vectors that are to stay in registers. It is empty where a sanitizer's
 * checks make such loops too long to unroll. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define V_SANITIZED
#endif
#endif
#if defined(V_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define V_UNROLL
#elif defined(__clang__)
#define V_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define V_UNROLL _Pragma("GCC unroll 16")
#else
#define V_UNROLL
#endif

/* Precedes a loop that counts and moves pointers for few products: linear layers take 0.93 to 0.99 of the
 * time with four of its turns in one (Intel with AMX). */
#ifdef __GNUC__
#define V_UNROLL_4 _Pragma("GCC unroll 4")
#else
#define V_UNROLL_4
#endif

/* 1.5 * 2^23 + 128. Added to x of at least -128 it leaves n + 128 in the low bits, n being the
 * integer nearest to x. It is even, so that a tie goes to an even n. */
#define V_POWER_MAGIC (12582912.0f + 128.0f)

#if defined(HEED_VEC_PLAIN)
#include "plain.h"
#elif defined(__AVX512F__)
#include "avx512.h"
#elif defined(__AVX2__)
#include "avx2.h"
#else
#define HEED_VEC_PLAIN 1
#include "plain.h"
#endif

/* Defined by the files for compilers that know constraints on registers:
 *     V_IN_REGISTER(v)    v is loaded once: gcc would read memory again for each use, to save the
 *                         register
 *     V_AFTER(then, v)    address `then` is known only once v is */
#ifndef V_IN_REGISTER
#define V_IN_REGISTER(v)
#define V_AFTER(then, v) (void)(then)
#endif

_Static_assert(V_REGISTERS == HEED_VEC_REGISTERS(LANES), "as baseline code has it");

/* ---- any element type -------------------------------------------------------------------------
 */

/* n elements of unit stride, widened to f32. type is HEED_F32, HEED_F16 or HEED_BF16. */
V_INLINE vf v_load_type(uint32_t type, const void *p, int n)
{
    if (type == HEED_F32)
        return n >= LANES ? v_load(p) : v_load_n(p, n);
    if (type == HEED_F16)
        return n >= LANES ? v_load_f16(p) : v_load_f16_n(p, n);
    return n >= LANES ? v_load_bf16(p) : v_load_bf16_n(p, n);
}

/* Stores n elements of unit stride, rounded once, to nearest even. */
V_INLINE void v_store_type(uint32_t type, void *p, vf a, int n)
{
    if (type == HEED_F32) {
        if (n >= LANES)
            v_store(p, a);
        else
            v_store_n(p, a, n);
    } else {
        v_store_half_n(p, type == HEED_F16 ? v_narrow_f16(a) : v_narrow_bf16(a), n);
    }
}

/* n elements that lie `stride` elements apart. */
V_INLINE vf v_gather_type(uint32_t type, const void *p, int64_t stride, int n)
{
    float x[LANES] = {0};
    if (stride == 1)
        return v_load_type(type, p, n);
    for (int i = 0; i < n && i < LANES; i++)
        x[i] = heed_load(type, p, i * stride);
    return v_load(x);
}

V_INLINE v8 v8_load_type(uint32_t type, const void *p)
{
    return type == HEED_F32 ? v8_load(p) : v8_load_half(type, p);
}

V_INLINE void v8_store_type(uint32_t type, void *p, v8 a)
{
    if (type == HEED_F32)
        v8_store(p, a);
    else
        v8_store_half(type, p, a);
}

#include "math.h"

#endif
