/* Ceilings: what this machine's arithmetic units and memory can do, measured here and now.
 *
 * The speed of a kernel means something when compared with the ceiling of the instructions that it
 * uses, measured in the same process right before it, since machines are shared and change their
 * clock. heed-bench does so for every row, and a kernel's own driver can do the same:
 *
 *     double peak = heed_ceiling_gflops(HEED_CEILING_FMA_AVX2, 1, 5e-3);
 *
 * Every figure is the median over batches of about 50 us, each of arithmetic (or reads) and nothing
 * else. Threads are made for the call and end with it; ask for no more than there are CPUs,
 * since a median does not show the time in which threads waited for one. Not thread-safe.
 */
#ifndef HEED_BENCH_CEILING_H
#define HEED_BENCH_CEILING_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HEED_CEILING_FMA_AVX2,       /* f32 FMA, 256-bit, operands in registers */
    HEED_CEILING_FMA_AVX512,     /* f32 FMA, 512-bit, operands in registers */
    HEED_CEILING_FMA_AVX512_FED, /* the same, with the loads from L1 of an 8 x 48 register tile */
    HEED_CEILING_DP_BF16,        /* vdpbf16ps, 512-bit, operands in registers */
    HEED_CEILING_AMX_BF16,       /* tdpbf16ps, operands in tiles that hold zeros */
    HEED_CEILING_AMX_BF16_FED,   /* the same, with the tile loads from L1 of a 2 x 2 block of tiles
                                    and random data, which draws more power: what a GEMM could do */
    HEED_CEILING_COUNT
};

/** The name of a kind, such as "fma_avx2"; "none" for any other number. */
const char *heed_ceiling_name(int kind);

/** NULL if this CPU and operating system can run the kind, else the reason why not. For AMX it asks
 * the kernel for permission. */
const char *heed_ceiling_refusal(int kind);

/** The GFLOP/s of n_threads threads together, over about `seconds`; 0 if the kind cannot run
 * here. */
double heed_ceiling_gflops(int kind, unsigned n_threads, double seconds);

/**
 * The GB/s (1e9 bytes) that n_threads threads read from a buffer, over about `seconds`, with the
 * form of the loop (streams, prefetch, vector width) that is the fastest on this machine for this
 * number of threads. The first call for a number of threads tries all forms, which takes about half
 * a second. Each call goes on where the last one stopped in the buffer, so that short calls measure
 * memory, not caches.
 *
 * bytes    at least 16 MiB; several times the last-level cache to measure memory
 * Returns  0 if there is no memory for the threads' bookkeeping, or if there are too few bytes
 */
double heed_ceiling_read_gbps(const void *buffer, size_t bytes, unsigned n_threads, double seconds);

/** The form that heed_ceiling_read_gbps chose for n_threads, such as "8 streams, T0 +1024 B, 64 B
 * loads"; "" before its first call. Valid until the next call. */
const char *heed_ceiling_read_form(unsigned n_threads);

#ifdef __cplusplus
}
#endif

#endif
