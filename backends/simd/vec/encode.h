/*
 * From numbers to the codes of a cache: what the kernels of append/ need beside vec.h.
 *
 *     vi_round(a), vi_cut(a)          to int32: rounded to nearest even; with the fraction cut off.
 *                                     A NaN and what is outside int32 give INT32_MIN
 *     vi_max(a, b)                    of signed int32
 *     vi_max_words(a, b)              of unsigned int16
 *     vi_signs_of_words(a)            of each int16 below 0 all bits, of the others none
 *     m_unordered(a, b), m_or(p, q), m_any(m)     m_unordered: one of the two is a NaN
 *     bytes_of(c)                     the low bytes of 16 int32 in 16 / LANES vectors
 *     bytes_held(c, is_signed)        each held in 0 to 255, or -128 to 127; is_signed is a constant
 *     bytes_store(p, a)               16 bytes
 *     bytes_pairs(a, b)               packs the 32 bytes of a and b, each held to 15: two neighbours to
 *                                     a byte, the first in its low half
 *     many_held(c, is_signed)         bytes_held of four vectors: 4 * LANES bytes
 *     many_store(p, a), many_store_pairs(p, a)    many bytes; packed as by bytes_pairs
 *     v4_across(how, r)               the least (how: ACROSS_LEAST) or the greatest (ACROSS_MOST)
 *                                     lane of each of four vectors, or the greatest of their bits as
 *                                     int32 (ACROSS_BITS)
 *     v4_sub(a, b), m4_less(a, b), v4_abs(a)
 *     v4_store_halves(p, a)           as four f16, rounded to nearest even
 *     v_table(table, i)               entry i of a table of 32 words, by the low five bits of i
 *     v_table16(table, i)             of 16, by the low four
 */
#ifndef HEED_SIMD_ENCODE_H
#define HEED_SIMD_ENCODE_H

#include "vec.h"

enum { ACROSS_LEAST, ACROSS_MOST, ACROSS_BITS };

#if defined(__AVX512F__)
#include "avx512_encode.h"
#elif defined(__AVX2__)
#include "avx2_encode.h"
#else
#error "no way from numbers to codes on this instruction set"
#endif

#endif
