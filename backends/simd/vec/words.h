/*
 * Sixteen words of 32 bits, or 32 of 16: what packing for a tile unit, and the softmax beside one,
 * need besides vec.h. LANES is 16, and a lane mask is its bits: on AVX-512 with BF16 and VBMI, or on
 * plain loops. Both give the same bits for everything but the payload and sign of a NaN.
 *
 * Memory: only what a mask or a count names
 *     v_load_some(p, mask), v_store_some(p, mask, x)     floats; others are read as 0
 *     v_load_bf16_some, v_load_f16_some (p, mask)        widened
 *     v_store_f16_some(p, mask, x)                       to nearest even
 *     v_store_bf16, v_store_bf16_some, v_store_bf16_two  to nearest even, a denormal to zero; of two
 *                                                        vectors low, then high
 *     vi_store(p, x), vi_load_halves(p, n)               the first n halves, zeros after
 *     vi_load_quarters(p0, p1, p2, p3)                   words 4 n to 4 n + 3 are p[n]'s
 *     bytes_set_of16(p, mask), bytes_set_of32            which of the bytes that the mask names are
 *                                                        not 0
 * Masks
 *     m_within(x, limit, mask)     lanes of the mask that lie in [-limit, limit]
 *     m_not_below_inf(a)           NaN or +inf
 *
 * Across lanes, by a fixed tree: lane n with n + 8, then + 4, + 2, + 1
 *     v_sum(x), v_largest(x)       no lane may be a NaN for the largest
 *     v_sums(r), v_largest_of(r)   lane n: the same of r[n], bit for bit
 *
 * Halves of words
 *     vi_add16, vi_max16 (a, b), vi_shr16(a, n)    unsigned
 *     vi_halves_from(a, limit)     bit n: half n is at least limit, unsigned
 *     vi_clear_halves(a, which)    those become 0
 *     vi_pack(a, b)                words saturated to unsigned halves: each group of four of a is
 *                                  followed by the same group of b: half 8 g + i is a[4 g + i], half
 *                                  8 g + 4 + i is b[4 g + i]
 *     vi_join(a, b)                the low halves of a's words, then b's
 *     vi_lookup(index, table)      a table of 64 bytes by the low six bits of each half
 *     v_add_pairs(acc, pairs)      acc[n] + the two bf16 of lane n, the odd one first
 *     vi_interleave(a, b, &low, &high)   halves a[c] b[c] of 32 columns, in the order that is
 *                                  cheapest: of each eight the first four go to low and the others to
 *                                  high, and word 4 g + i is of column 8 g + i (high: 8 g + 4 + i)
 *     v_in_order(&low, &high)      back to columns 0 to 15 and 16 to 31
 *     v_store_bf16_in_order(p, low, high)   the same, then both to bf16
 *     vi_transpose_quarters(r)     4 x 4 words within each quarter
 *     vi_transpose(r)              16 x 16 words
 */
#ifndef HEED_SIMD_WORDS_H
#define HEED_SIMD_WORDS_H

#include "vec.h"

#if defined(HEED_VEC_PLAIN)
#include "plain_words.h"
#elif defined(__AVX512VBMI__)
#include "avx512_words.h"
#else
#error "words.h is for AVX-512 with BF16 and VBMI, or for plain loops"
#endif

_Static_assert(LANES == 16, "words are sixteen");

#endif
