/* Files as memory. */
#ifndef COMMON_FILE_H
#define COMMON_FILE_H

#include <stddef.h>

#include "refuse.h"

/** A file's bytes, read-only; all zero is none. Bytes of other origin can stand for a file's. */
typedef struct file {
    const unsigned char *bytes;
    size_t size;
    int mapped; /* file_close has something to do */
} file;

/** Maps a regular file, which may be empty. It must not shrink while it is mapped. */
heed_status file_open(const char *path, file *out, heed_error *why);

/** Maps folder/name. optional: a file that does not exist is all zero. */
heed_status file_open_in(const char *folder, const char *name, int optional, file *out,
                         heed_error *why);

/** Gives the file back; one that is all zero is allowed. */
void file_close(file *f);

#endif
