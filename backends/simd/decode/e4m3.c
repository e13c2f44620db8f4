/* The products of runs of f8_e4m3 with an instruction set that looks bytes up in tables of 128, as AVX-512
 * does with VBMI: the same bits as those of decode.c. */
#define CODED_EACH(DO) DO(HEED_F8_E4M3)
#include "coded_products.inc.h"

const heed_simd_coded *const HEED_ISA_FUNCTION(heed_attn_e4m3) = &coded_of[HEED_F8_E4M3];
