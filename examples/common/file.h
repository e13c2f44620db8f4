/* Files that are mapped into memory. */
#ifndef COMMON_FILE_H
#define COMMON_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "refuse.h"

/** The bytes of a file, read-only; all zero means no file. They may have another origin than a
 * file. */
typedef struct file {
    const unsigned char *bytes;
    size_t size;
    int mapped; /* file_close has to unmap them */
} file;

/** Maps a regular file, which may be empty. It must not shrink while it is mapped. */
heed_status file_open(const char *path, file *out, heed_error *why);

/** Maps folder/name. If it is optional and does not exist, *out is all zero. */
heed_status file_open_in(const char *folder, const char *name, int optional, file *out,
                         heed_error *why);

/** Unmaps the file; it may be all zero. */
void file_close(file *f);

/** Some bytes, which no NUL ends. */
typedef struct slice {
    const char *at;
    size_t bytes;
} slice;

/** Splits a file into *n lines, whose last need not end with a newline. The lines point into the
 * file; the caller frees *out. */
heed_status file_lines(file f, slice **out, int64_t *n, heed_error *why);

#endif
