/* What baseline code, which is compiled without vectors, has to know of the kernels' vectors. */
#ifndef HEED_SIMD_VEC_WIDTH_H
#define HEED_SIMD_VEC_WIDTH_H

/* Registers of the instruction set whose vectors have so many lanes: 16 with AVX2, 32 with AVX-512
 * and others. They decide how many sums the kernels keep. */
#define HEED_VEC_REGISTERS(lanes) ((lanes) == 8 ? 16 : 32)

#endif
