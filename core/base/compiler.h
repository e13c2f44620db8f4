/* Compiler extensions, all of them, behind names. */
#ifndef HEED_CORE_COMPILER_H
#define HEED_CORE_COMPILER_H

#include <stddef.h>
#include <string.h>

/* Sizes and offsets are 64-bit numbers throughout, descriptions are hashed by words of 64 bits, and the
 * f16 and the high bits in blocks of codes are read as the machine's (heed/formats.h). */
_Static_assert(sizeof(void *) == 8, "Heed is written for 64-bit machines");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "and for little-endian ones");

#define HEED_THREAD_LOCAL _Thread_local

#if defined(__GNUC__)
#define HEED_ALIGNED(n) __attribute__((aligned(n)))
#define HEED_COLD __attribute__((cold)) /* for error paths: calls of it move out of the hot code */
#define HEED_AT_LOAD __attribute__((constructor)) /* called when the library or program is loaded */
#define HEED_OPAQUE(x) __asm__("" : "+r"(x)) /* from here on the compiler knows nothing of x */
#else
#error "Heed is written for gcc and clang"
#endif

/* For loops that wait for another thread. */
#if defined(__x86_64__)
#define HEED_PAUSE() __builtin_ia32_pause()
#else
#define HEED_PAUSE() ((void)0)
#endif

/* memset by the C library. For a few hundred bytes whose number is known at compile time gcc would
 * emit `rep stos`, which takes 40 cycles. */
static inline void heed_clear(void *at, size_t bytes)
{
    HEED_OPAQUE(bytes);
    memset(at, 0, bytes);
}

#define HEED_CACHE_LINES 128 /* two lines: the adjacent-line prefetcher pairs them */

#endif
