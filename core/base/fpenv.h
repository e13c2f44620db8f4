/* The library's own floating-point environment. Hosts set rounding and flush-to-zero on some of
 * their threads and not on others, and some let exceptions trap: neither the bits of a result nor
 * the choice of a kernel may depend on that. All code that computes with floats runs between
 * heed_fpenv_enter and heed_fpenv_leave: the parts of a run, and the making of contexts, plans and
 * schedules. The caller's executor, which may run other work as well, is called outside of them. */
#ifndef HEED_CORE_FPENV_H
#define HEED_CORE_FPENV_H

#include <stdint.h>

#if defined(__SSE2__)
#include <xmmintrin.h>

typedef unsigned heed_fpenv;

#define HEED_MXCSR_DEFAULT 0x1f80u /* round to nearest, exceptions masked, no flushing */
#define HEED_MXCSR_FLAGS 0x3fu     /* exceptions that were raised: they change no result */

/* Reading MXCSR is cheap, writing it is not. */
static inline heed_fpenv heed_fpenv_enter(void)
{
    heed_fpenv saved = _mm_getcsr();
    if ((saved & ~HEED_MXCSR_FLAGS) != HEED_MXCSR_DEFAULT)
        _mm_setcsr(HEED_MXCSR_DEFAULT);
    return saved;
}

/* flush: heed_tiling.flush */
static inline void heed_fpenv_flush(uint32_t flush)
{
    _mm_setcsr(HEED_MXCSR_DEFAULT | (flush & 1u) << 15 | (flush & 2u) << 5);
}

static inline void heed_fpenv_leave(heed_fpenv saved)
{
    if (_mm_getcsr() != saved)
        _mm_setcsr(saved);
}

#else
#include <fenv.h>

typedef fenv_t heed_fpenv;

static inline heed_fpenv heed_fpenv_enter(void)
{
    heed_fpenv saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}

static inline void heed_fpenv_flush(uint32_t flush)
{
    (void)flush; /* no portable switch; a backend may always be more accurate */
}

static inline void heed_fpenv_leave(heed_fpenv saved)
{
    fesetenv(&saved);
}
#endif

#endif
