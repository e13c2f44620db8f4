/* Heed tools: arrays in .npy files, the format of numpy.save.
 *
 * Read: versions 1 to 3, C or Fortran order, either byte order, the element types below. What is
 * read comes out in C order and this machine's byte order. Written: version 1, C order.
 * Source: numpy.lib.format, "Format Version 1.0" to "3.0".
 */
#ifndef HEED_TOOLS_NPY_H
#define HEED_TOOLS_NPY_H

#include <heed/status.h>
#include <stdint.h>
#include <stdio.h>

/** Element types, by numpy's codes. U2 is how files hold bf16: its bits. */
enum {
    HEED_NPY_F2 = 1,
    HEED_NPY_F4,
    HEED_NPY_F8,
    HEED_NPY_B1,
    HEED_NPY_I4,
    HEED_NPY_I8,
    HEED_NPY_U2
};

#define HEED_NPY_MAX_DIMS 8

/** An array. count is the product of the shape, 1 if there are no dimensions. */
typedef struct heed_npy {
    int type;
    int n_dims;
    int64_t shape[HEED_NPY_MAX_DIMS];
    int64_t count;
    void *data; /* malloc'd, C order; never NULL, even when count is 0 */
} heed_npy;

/**
 * Reads a file. A file that is not what its header says is refused: too short, bytes left over, a
 * shape that overflows.
 *
 * out      receives the array, to be given to heed_npy_free; written on success only
 * why      receives a sentence that names the file
 * Errors   HEED_ERR_INVALID the file cannot be read or is not such an array; HEED_ERR_NOMEM.
 */
heed_status heed_npy_read(const char *path, heed_npy *out, heed_error *why);

/** The same from an open file, from where it stands to its end; sentences call it by `name`. */
heed_status heed_npy_read_from(FILE *file, const char *name, heed_npy *out, heed_error *why);

/**
 * Reads the header alone, up to where the data begin. For who wants a part of them.
 *
 * out      receives type, shape and count; data is NULL
 * plain    receives whether the data are in C order and this machine's byte order
 */
heed_status heed_npy_read_header(FILE *file, const char *name, heed_npy *out, int *plain,
                                 heed_error *why);

/** Writes array->data, C order. Errors: HEED_ERR_INVALID the file cannot be written, and why. */
heed_status heed_npy_write(const char *path, const heed_npy *array, heed_error *why);

/** Gives the data back; the array may be all zero. */
void heed_npy_free(heed_npy *array);

/** Bytes of one element; 0 for an unknown type. */
int64_t heed_npy_type_bytes(int type);

/** "f2", "f4" and so on: numpy's code of a type. */
const char *heed_npy_type_name(int type);

/** The shape as "[2, 3]", written to text (room for it: HEED_NPY_SHAPE_TEXT); returns text. */
#define HEED_NPY_SHAPE_TEXT (HEED_NPY_MAX_DIMS * 22 + 3)
const char *heed_npy_shape_text(int n_dims, const int64_t *shape, char *text);

/** Element `index` in C order as a number: exact but for i8 beyond 2^53. U2 is the number that its
 * bits are as bf16. */
double heed_npy_number(const heed_npy *array, int64_t index);

/** *product = a * b for sizes; 0 if it would exceed what a file or memory can hold (2^62). */
int heed_npy_multiply(int64_t a, int64_t b, int64_t *product);

#endif
