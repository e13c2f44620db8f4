/* The products of runs with codes by instructions that not every CPU of the backend has, as AVX-512's VBMI
 * and VNNI: the same bits as those of decode.c. tuning.c says which types they are worth it for. */
#define CODED_EACH(DO)                                                                             \
    DO(HEED_F8_E4M3)                                                                               \
    DO(HEED_Q8_0) DO(HEED_Q4_0) DO(HEED_Q4_1) DO(HEED_Q5_0) DO(HEED_Q5_1) DO(HEED_IQ4_NL)
#define CODED_FACTORS 1
#include "coded_products.inc.h"

const heed_simd_coded *const HEED_ISA_FUNCTION(heed_attn_coded) = coded_of;
