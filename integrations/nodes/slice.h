/* Parts of .npy files that a rank reads and writes. Axes are [batch, head, row, dim]. */
#ifndef NODES_SLICE_H
#define NODES_SLICE_H

#include "npy.h"

#include <heed/tensor.h>

/** A file of four axes, whose data begin at `start`. */
typedef struct slice_file {
    const char *path;
    FILE *file;
    heed_npy kind; /* no data */
    long start;
} slice_file;

/** Opens a file for reading. On failure `why` receives a sentence. */
heed_status slice_open(slice_file *f, const char *path, heed_error *why);

/** Creates a file of f4 or f2 with that shape. Its data, not written yet, begin at `start`. */
heed_status slice_create(const char *path, const heed_npy *kind, long *start, heed_error *why);

/** Opens a file that slice_create has made, for writing. */
heed_status slice_open_made(slice_file *f, const char *path, const heed_npy *kind, long start,
                            heed_error *why);

/** Rows in memory: [heads, rows, dim] of `type`; what is read or written begins at row `at`. */
typedef struct slice_rows {
    void *data;
    int64_t rows, at;
    uint32_t type;
} slice_rows;

/** Reads rows [row, row + n) of one sequence, with all heads and dims. */
heed_status slice_read(slice_file *f, int64_t b, int64_t row, int64_t n, const slice_rows *to,
                       heed_error *why);

/** Writes heads[0] to heads[1] - 1 and rows [row, row + n) of one sequence to a file that holds f2 for
 * f16 and else f4. */
heed_status slice_write(slice_file *f, int64_t b, const int64_t heads[2], int64_t row, int64_t n,
                        const slice_rows *from, heed_error *why);

/** Closes the file. It is a failure if the file could not be written to its end. */
heed_status slice_close(slice_file *f, heed_error *why);

#endif
