/* A host with a floating-point environment of its own: another rounding mode, and on x86
 * flush-to-zero. It must not change a single bit of a result, and a call has to leave it as it
 * was. */
#ifndef FUZZ_HOST_H
#define FUZZ_HOST_H

#include <fenv.h>

#include "fuzz_bytes.h"

#if defined(__SSE2__)
#include <xmmintrin.h>

typedef unsigned fuzz_host;

/* FTZ, DAZ, rounding */
static inline unsigned fuzz_mxcsr(fuzz_bytes *bytes)
{
    const unsigned odd = fuzz_byte(bytes);
    return 0x1f80u | (odd & 1) << 15 | (odd & 2) << 5 | (odd & 12) << 11;
}

static inline fuzz_host fuzz_host_read(void)
{
    return _mm_getcsr() & ~0x3fu; /* without the exception flags */
}

static inline fuzz_host fuzz_host_enter(fuzz_bytes *bytes)
{
    _mm_setcsr(fuzz_mxcsr(bytes));
    return fuzz_host_read();
}

static inline void fuzz_host_leave(void)
{
    _mm_setcsr(0x1f80u);
}
#else
typedef int fuzz_host;

static inline unsigned fuzz_mxcsr(fuzz_bytes *bytes)
{
    (void)bytes;
    return 0;
}

static inline fuzz_host fuzz_host_read(void)
{
    return fegetround();
}

static inline fuzz_host fuzz_host_enter(fuzz_bytes *bytes)
{
    static const int way[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    fesetround(way[fuzz_below(bytes, 4)]);
    return fuzz_host_read();
}

static inline void fuzz_host_leave(void)
{
    fesetround(FE_TONEAREST);
}
#endif

#endif
