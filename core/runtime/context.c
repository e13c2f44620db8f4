/* What every holder of a context asks of it: memory, log lines, another hold. */
#define _GNU_SOURCE
#include "context.h"

#include <stdlib.h>
#include <sys/mman.h>

void *heed_alloc(heed_context *context, size_t bytes, size_t align)
{
    void *p;
    if (align < sizeof p) /* posix_memalign takes no less; the caller's function may not either */
        align = sizeof p;
    if (context->user.alloc)
        return context->user.alloc(context->user.user, bytes, align);
    if (posix_memalign(&p, align, bytes) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (align >= HEED_HUGE_PAGE) /* a hint: without it the memory is merely slower */
        (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
    return p;
}

void heed_free(heed_context *context, void *p, size_t bytes)
{
    if (!p)
        return;
    if (context->user.release)
        context->user.release(context->user.user, p, bytes);
    else
        free(p);
}

void heed_log(heed_context *context, int32_t level, const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (context->user.log)
        context->user.log(context->user.user, level, line);
    else
        fprintf(stderr, "heed: %s\n", line);
}

void heed_context_hold(heed_context *context)
{
    atomic_fetch_add(&context->refs, 1);
}
