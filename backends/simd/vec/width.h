/* What baseline code, which is compiled without vectors, has to know of the kernels' vectors. */
#ifndef HEED_SIMD_VEC_WIDTH_H
#define HEED_SIMD_VEC_WIDTH_H

/* Registers of the instruction set whose vectors have so many lanes: AVX2 has half of what AVX-512
 * has, and what others do. The kernels keep so many sums in them. */
#define HEED_VEC_REGISTERS(lanes) ((lanes) == 8 ? 16 : 32)

#endif
