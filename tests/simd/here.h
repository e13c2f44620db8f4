/* Can this CPU run what the test is compiled for? Ask before anything else. */
#ifndef HEED_TESTS_SIMD_HERE_H
#define HEED_TESTS_SIMD_HERE_H

#include <stdio.h>

/* `lanes`: floats of a vector. Prints a line if it cannot. */
static inline int runs_here(int lanes)
{
    __builtin_cpu_init();
    const int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
#ifdef __AVX512VBMI__
                     && __builtin_cpu_supports("avx512vbmi")
#endif
        ;
    const int here =
        lanes == 16 ? wide : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!here)
        puts("this CPU lacks the instruction set");
    return here;
}

#endif
