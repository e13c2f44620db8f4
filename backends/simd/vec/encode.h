/*
 * From numbers to the codes of a cache: what the kernels of append/ need beside vec.h.
 *
 *     vi_round(a), vi_cut(a)          to int32: rounded to nearest even; with the fraction cut off.
 *                                     A NaN and what is outside int32 give INT32_MIN
 *     vi_max(a, b)                    of signed int32
 *     vi_max_words(a, b)              of unsigned int16
 *     m_unordered(a, b), m_or(p, q), m_any(m)     m_unordered: one of the two is a NaN
 *     bytes_of(c)                     the low bytes of 16 int32 in 16 / LANES vectors
 *     bytes_held(c)                   the same of each held in -128 to 127
 *     bytes_store(p, a)               16 bytes
 *     bytes_pairs(a, b)               packs the 32 bytes of a and b, all below 16: two neighbours to
 *                                     a byte, the first in its low half
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
