/*
 * From numbers to the codes of a cache: what the kernels of append/ need beside vec.h.
 *
 *     vi_round(a), vi_cut(a)          to int32: rounded to nearest even; with the fraction cut off.
 *                                     A NaN and what is outside int32 give INT32_MIN
 *     vi_max(a, b)                    of signed int32
 *     vi_max_words, vi_min_words (a, b)   of unsigned int16
 *     vi_sort_halves(a)               f16 or bf16, two to a lane, as unsigned int16 in the order of the
 *                                     numbers: -0 is below 0, and a NaN beyond all numbers
 *     m_unordered(a, b), m_or(p, q), m_any(m)     m_unordered: one of the two is a NaN
 *     m_fifth(c)                      its bit 4 is set
 *     bytes_held(c, is_signed)        bytes of 16 int32 in 16 / LANES vectors, each held in 0 to 255,
 *                                     or -128 to 127; is_signed is a constant
 *     bytes_store(p, a)               16 bytes
 *     bytes_pairs(a, b)               packs the 32 bytes of a and b, each held to 15: two neighbours to
 *                                     a byte, the first in its low half
 *     many_held(c, is_signed)         bytes_held of four vectors: 4 * LANES bytes
 *     many_store(p, a), many_store_pairs(p, a)    many bytes; packed as by bytes_pairs
 *     blocks_store(at, c, vectors, is_signed)     the bytes of `vectors` vectors to each of
 *                                     BLOCKS_AT_ONCE(vectors) places
 *     v8_across(how, r)               the least (how: ACROSS_LEAST) or the greatest (ACROSS_MOST)
 *                                     lane of each of eight vectors, or the greatest of their bits as
 *                                     int32 (ACROSS_BITS)
 *     v8_across_halves(how, type, sorted, r)   of f16 or bf16, two to a lane: the one that is the least
 *                                     (ACROSS_LEAST_HALF) or the greatest (ACROSS_MOST_HALF) as
 *                                     unsigned int16. sorted, a constant: they are from vi_sort_halves
 *     v8_set1(x), v8_sub, v8_div (a, b), v8_abs(a)
 *     m8_less, m8_equal, m8_ordered (a, b)     m8_ordered: none of the two is a NaN
 *     m8_bits(m), v8_select(m, yes, no)
 *     v_table(table, i)               entry i of a table of 32 words, by the low five bits of i
 *     v_table16(table, i)             of 16, by the low four
 */
#ifndef HEED_SIMD_ENCODE_H
#define HEED_SIMD_ENCODE_H

#include "vec.h"

enum { ACROSS_LEAST, ACROSS_MOST, ACROSS_BITS, ACROSS_LEAST_HALF, ACROSS_MOST_HALF };

#if defined(__AVX512F__)
#include "avx512_encode.h"
#elif defined(__AVX2__)
#include "avx2_encode.h"
#else
#error "no way from numbers to codes on this instruction set"
#endif

#endif
