/* Whether a call leaves the upper halves of the vector registers in use. After code for AVX that did
 * not clear them, each instruction of code for SSE, as a host's may be, waits for the one before it
 * that wrote the same register: such code takes several times as long. */
#ifndef KIT_REGISTERS_H
#define KIT_REGISTERS_H

#define KIT_UPPERS_LEFT "the call left the upper halves of vector registers in use"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* Are they, of the calling thread? 0 also where the CPU does not say. */
static inline int kit_uppers_in_use(void)
{
    unsigned int a, b, c, d, in_use = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) /* XGETBV exists */
        return 0;
    if (!__get_cpuid_count(13, 1, &a, &b, &c, &d) || !(a >> 2 & 1)) /* and tells what is in use */
        return 0;
    __asm__ volatile("xgetbv" : "=a"(in_use), "=d"(d) : "c"(1));
    return (int)(in_use >> 2 & 1);
}
#else
static inline int kit_uppers_in_use(void)
{
    return 0;
}
#endif

#endif
