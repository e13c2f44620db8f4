/* Vectors for the AMX kernels: AVX-512, or plain loops (HEED_AMX_MODEL without HEED_AMX_LANES), whose
 * results tests compare with AVX-512's bit for bit. */
#ifndef HEED_AMX_LANES_H
#define HEED_AMX_LANES_H

#if defined(HEED_AMX_MODEL) && !defined(HEED_AMX_LANES)
#define HEED_VEC_PLAIN 16
#define HEED_VEC_SAME_BITS
#endif
#include "../simd/vec/words.h"

#endif
