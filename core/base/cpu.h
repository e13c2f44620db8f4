/* What this machine can do and what is fast on it. */
#ifndef HEED_CORE_CPU_H
#define HEED_CORE_CPU_H

#include <heed/backend.h>

/* Asks CPUID and, for every register file beyond SSE, whether the OS has switched it on. */
void heed_cpu_detect(heed_cpu *cpu);

/* Takes away what is above `max_isa` (baseline, avx2, avx512, amx). Returns 0 on success, 1 if the
 * word is none of these. */
int heed_cpu_cap(heed_cpu *cpu, const char *max_isa);

/* The name of bit `bit` of heed_cpu.isa, or NULL if there is none. */
const char *heed_cpu_isa_name(unsigned bit);

#endif
