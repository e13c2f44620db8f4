/* Maps files into memory with POSIX's mmap, so that weights are not copied. */
#define _POSIX_C_SOURCE 200809L
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

heed_status file_open(const char *path, file *out, heed_error *why)
{
    struct stat about;
    void *bytes = NULL;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 || fstat(descriptor, &about) != 0) {
        int number = errno;
        if (descriptor >= 0)
            close(descriptor);
        return refuse(why, "%.160s cannot be opened: %s", path, strerror(number));
    }
    if (!S_ISREG(about.st_mode) || (uintmax_t)about.st_size > SIZE_MAX / 2) {
        close(descriptor);
        return refuse(why, "%.160s is not a file that can be read", path);
    }
    if (about.st_size > 0) /* an empty file cannot be mapped */
        bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    int number = errno;
    close(descriptor);
    if (bytes == MAP_FAILED)
        return refuse(why, "%.160s cannot be read: %s", path, strerror(number));
    *out = (file){bytes, (size_t)about.st_size, 1};
    return HEED_OK;
}

heed_status file_open_in(const char *folder, const char *name, int optional, file *out,
                         heed_error *why)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        return refuse(why, "the path %.120s... is too long", folder);
    if (optional && access(path, F_OK) != 0 && errno == ENOENT) {
        *out = (file){0};
        return HEED_OK;
    }
    return file_open(path, out, why);
}

void file_close(file *f)
{
    if (f->mapped && f->bytes)
        munmap((void *)(uintptr_t)f->bytes, f->size);
    *f = (file){0};
}

heed_status file_lines(file f, slice **out, int64_t *n, heed_error *why)
{
    const char *at = (const char *)f.bytes, *end = f.bytes ? at + f.size : at;
    size_t lines = f.size > 0 && f.bytes[f.size - 1] != '\n';
    for (size_t i = 0; i < f.size; i++)
        lines += f.bytes[i] == '\n';
    slice *line = malloc((lines + 1) * sizeof *line);
    if (!line)
        return no_memory(why, "the lines of a file");
    for (size_t i = 0; i < lines; i++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        line[i] = (slice){at, (size_t)((stop ? stop : end) - at)};
        at = stop ? stop + 1 : end;
    }
    *out = line;
    *n = (int64_t)lines;
    return HEED_OK;
}
