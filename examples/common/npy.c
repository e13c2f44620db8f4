/* Writes matrices to .npy files. Source: numpy.lib.format, "Format Version 1.0". */
#include "npy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

heed_status npy_write(const char *path, const float *data, int64_t rows, int64_t cols,
                      heed_error *why)
{
    enum { HEADER = 128 };
    char header[HEADER + 1] = "\x93NUMPY\x01";
    /* The version 1.0 and the length of the rest, little-endian; then a dictionary, spaces and a
     * newline. */
    header[8] = HEADER - 10;
    int used = snprintf(header + 10, HEADER - 10,
                        "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                        (long long)rows, (long long)cols);
    memset(header + 10 + used, ' ', (size_t)(HEADER - 10 - used));
    header[HEADER - 1] = '\n';

    FILE *file = fopen(path, "wb");
    int good = file != NULL && fwrite(header, 1, HEADER, file) == HEADER &&
               fwrite(data, sizeof *data, (size_t)(rows * cols), file) == (size_t)(rows * cols);
    int number = errno;
    if (file && fclose(file) != 0 && good) {
        number = errno;
        good = 0;
    }
    return good ? HEED_OK : refuse(why, "%.160s cannot be written: %s", path, strerror(number));
}
