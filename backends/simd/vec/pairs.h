/*
 * Products of pairs of bf16, for kernels compiled with HEED_SIMD_DOT. A word is 32 bits, a pair of
 * bf16 whose first is in the low half; a vector of words is a vf. avx512_pairs.h has vdpbf16ps,
 * which reads subnormals as 0 and rounds to nearest even whatever MXCSR says.
 *
 *     DOT_WIDTH                        bf16 of a vector
 *     v_dot(x, y, sum)                 sum + x y of the first of each pair + x y of the second
 *     load_pairs(p, stride, n)         the first n of DOT_WIDTH bf16 that lie `stride` apart, then
 *                                      zeros; as a vi
 *     v_pair_rows(a, b, &first, &then) words of two rows of DOT_WIDTH bf16, a's in the low halves:
 *                                      first of columns 0 to LANES - 1, then LANES on
 *     v_pair(even, odd)                floats rounded to bf16: even in the low halves
 *     v_narrow_pairs(low, high)        floats rounded to bf16, DOT_WIDTH of them in order
 *     v_store_pairs(p, a)              LANES floats rounded to bf16
 *     v_pairs_seen(w, x)               x, with zeros in the halves where w has a -0
 */
#ifndef HEED_SIMD_PAIRS_H
#define HEED_SIMD_PAIRS_H

#include "vec.h"

#define DOT_WIDTH (2 * LANES)

#if defined(__AVX512BF16__)
#include "avx512_pairs.h"
#else
#error "no products of pairs of bf16 on this instruction set"
#endif

#endif
