/*
 * A library for LD_PRELOAD that makes memory short: of the calls of malloc and its relatives in a
 * process, the one whose number SHORTAGE_AT has gets nothing. A process that has fewer says so on
 * stderr as it ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static long at, n_calls;

/* Before any other thread exists. The variable is read here, since getenv may not be called by every
 * malloc. */
__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("SHORTAGE_AT");
    n_calls = 0;
    at = number ? strtol(number, NULL, 10) : 0;
}

__attribute__((destructor)) static void end(void)
{
    static const char enough[] = "enough memory\n";
    if (n_calls < at && write(2, enough, sizeof enough - 1) < 0)
        _exit(1);
}

static int is_short(void)
{
    if (__atomic_add_fetch(&n_calls, 1, __ATOMIC_RELAXED) != at)
        return 0;
    errno = ENOMEM;
    return 1;
}

#define MAKE_SHORT(result, nothing, name, params, args)                                            \
    result name params                                                                             \
    {                                                                                              \
        static result(*real) params;                                                               \
        if (!real)                                                                                 \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                             \
        return is_short() ? nothing : real args;                                                   \
    }

MAKE_SHORT(void *, NULL, malloc, (size_t bytes), (bytes))
MAKE_SHORT(void *, NULL, calloc, (size_t n, size_t bytes), (n, bytes))
MAKE_SHORT(void *, NULL, realloc, (void *p, size_t bytes), (p, bytes))
MAKE_SHORT(int, ENOMEM, posix_memalign, (void **p, size_t align, size_t bytes), (p, align, bytes))
