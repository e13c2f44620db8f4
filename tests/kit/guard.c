/* Guarded memory. See guard.h. */
#define _DEFAULT_SOURCE
#include "guard.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int guard_map(guard_buffer *buffer, size_t bytes, int side, size_t slack, int fill)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inner = (bytes + slack + page - 1) / page * page;
    memset(buffer, 0, sizeof *buffer);
    if (inner == 0)
        inner = page;
    void *map = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return -1;
    buffer->map = map;
    buffer->map_bytes = inner + 2 * page;
    buffer->page = page;
    buffer->bytes = bytes;
    guard_open(buffer);
#ifdef MADV_POPULATE_WRITE /* in place of a fault for each page; older kernels fail, which is no matter */
    madvise(buffer->map + page, inner, MADV_POPULATE_WRITE);
#endif
    memset(buffer->map + page, fill, inner);
    buffer->data = buffer->map + page + (side == GUARD_HIGH ? inner - bytes - slack : slack);
    return 0;
}

void guard_unmap(guard_buffer *buffer)
{
    if (buffer->map)
        munmap(buffer->map, buffer->map_bytes);
    memset(buffer, 0, sizeof *buffer);
}

static void protect(guard_buffer *buffer, int how)
{
    mprotect(buffer->map + buffer->page, buffer->map_bytes - 2 * buffer->page, how);
}

void guard_read_only(guard_buffer *buffer)
{
    protect(buffer, PROT_READ);
}

void guard_open(guard_buffer *buffer)
{
    protect(buffer, PROT_READ | PROT_WRITE);
}

size_t guard_pages(const guard_buffer *buffer)
{
    return buffer->map_bytes / buffer->page - 2;
}

void guard_mark(const guard_buffer *buffer, unsigned char *used, int64_t at, size_t bytes)
{
    size_t first = (size_t)(buffer->data + at - buffer->map) / buffer->page - 1;
    size_t last = (size_t)(buffer->data + at + bytes - 1 - buffer->map) / buffer->page - 1;
    for (size_t i = first; i <= last; i++)
        used[i] = 1;
}

void guard_seal(guard_buffer *buffer, const unsigned char *used)
{
    const size_t pages = guard_pages(buffer);
    for (size_t i = 0, end; i < pages; i = end) {
        for (end = i + 1; end < pages && used[end] == used[i]; end++)
            ;
        if (!used[i])
            mprotect(buffer->map + (i + 1) * buffer->page, (end - i) * buffer->page, PROT_NONE);
    }
}

int guard_slack_is(const guard_buffer *buffer, int fill)
{
    const unsigned char *end = buffer->map + buffer->map_bytes - buffer->page;
    for (const unsigned char *p = buffer->map + buffer->page; p < buffer->data; p++)
        if (*p != fill)
            return 0;
    for (const unsigned char *p = buffer->data + buffer->bytes; p < end; p++)
        if (*p != fill)
            return 0;
    return 1;
}
