/* What is worth doing on which kind of CPU. Compiled for the baseline CPU. */
#include <pthread.h>

#include "simd.h"

/*
 * One line for each choice, with the measurement that it comes from. Kinds are told apart by vendor
 * and by what a CPU has, never by family and model, which hypervisors mask.
 */
static heed_simd_tuning choices(const heed_cpu *cpu, uint32_t lanes, int have_dot)
{
    const int amd = strncmp(cpu->vendor, "AuthenticAMD", 12) == 0;
    const int l1_of_48k = cpu->l1d_bytes >= 48u << 10; /* AMD: Zen 5, not Zen 4 */
    return (heed_simd_tuning){
        .lanes = lanes,
        /* Decode from memory, of its read rate: 30 % with prefetches to a L1 of 32 KiB, 60 % with
         * prefetches to L2 (Zen 4); with 48 KiB L1 is the better by a little (Zen 5). */
        .prefetch_l1 = (amd || lanes == 8) && l1_of_48k,
        .streams = amd && !l1_of_48k,
        /* AMD: such a copy takes longer than it saves, with 32 KiB of L1 as with 48. */
        .pack_v = !amd,
        .dot_bf16 = have_dot && cpu->fast & HEED_ISA_AVX512_BF16,
        /* Heavy AVX-512 after scalar code stalls for 3 to 16 us (Intel with AMX). */
        .small_avx2 = lanes == 16 && !amd,
    };
}

void heed_simd_tune(const heed_cpu *cpu, uint32_t lanes, int have_dot, heed_simd_tuning *once)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!once->lanes)
        *once = choices(cpu, lanes, have_dot);
    pthread_mutex_unlock(&lock);
}
