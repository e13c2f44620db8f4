/* The loops that ceiling.c times. Each is compiled with the flags of its instruction set and called
 * only after ceiling.c has asked the CPU. */
#ifndef HEED_BENCH_CEILING_KERNELS_H
#define HEED_BENCH_CEILING_KERNELS_H

#include <stddef.h>

/* Each runs `iterations` rounds of its loop and returns a value that depends on all of them, so
 * that the compiler can leave nothing out. *_FLOPS is the number of operations in a round. */
float heed_ceiling_run_fma_avx2(size_t iterations);
float heed_ceiling_run_fma_avx512(size_t iterations);
float heed_ceiling_run_fma_avx512_fed(size_t iterations);
float heed_ceiling_run_dp_bf16(size_t iterations);
float heed_ceiling_run_amx_bf16(size_t iterations);
float heed_ceiling_run_amx_bf16_fed(size_t iterations);

/* These fill the operands of the fed loops; they are called once, before any thread runs the
 * loops. */
void heed_ceiling_prepare_fma_avx512_fed(void);
void heed_ceiling_prepare_amx_bf16_fed(void);

enum {
    HEED_FMA_AVX2_FLOPS = 2 * 12 * 8 * 2,       /* two steps of 12 accumulators of 8 lanes */
    HEED_FMA_AVX512_FLOPS = 2 * 24 * 16 * 2,    /* two steps of 24 accumulators of 16 lanes */
    HEED_FMA_FED_FLOPS = 64 * 24 * 16 * 2,      /* 64 steps of an 8 x 48 tile */
    HEED_DP_BF16_FLOPS = 2 * 24 * 16 * 4,       /* the same, where a lane adds two products */
    HEED_AMX_BF16_FLOPS = 8 * 16 * 16 * 32 * 2, /* 8 products of 16 x 32 by 32 x 16 */
    HEED_AMX_FED_FLOPS = 8 * 16 * 16 * 32 * 2
};

/* The form of a read loop: it reads at `streams` places in turn, prefetching `ahead` bytes (0:
 * none). */
enum { HEED_PREFETCH_T0, HEED_PREFETCH_T1, HEED_PREFETCH_NTA };
typedef struct heed_read_form {
    unsigned streams, ahead, hint, vector_bytes;
} heed_read_form;

/* Reads `length` bytes (a multiple of 4096) from base + s * section on, for each stream s. There is
 * a function for each width of vectors in bytes; 16 is the baseline. */
float heed_ceiling_read_16(const char *base, size_t section, size_t length,
                           const heed_read_form *form);
float heed_ceiling_read_32(const char *base, size_t section, size_t length,
                           const heed_read_form *form);
float heed_ceiling_read_64(const char *base, size_t section, size_t length,
                           const heed_read_form *form);

#endif
