/* Arrays in .npy files, the format of numpy.save.
 *
 * Reads    versions 1 to 3, C or Fortran order, either byte order, the element types below. The
 *          array gets C order and this machine's byte order.
 * Writes   version 1, C order.
 * Source   numpy.lib.format, "Format Version 1.0" to "3.0".
 */
#ifndef HEED_TOOLS_NPY_H
#define HEED_TOOLS_NPY_H

#include <heed/kit.h>
#include <heed/status.h>
#include <stdint.h>
#include <stdio.h>

/** Element types, by numpy's codes. U2 is used for bf16: it holds the bits. */
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

/** An array. count is the product of the shape, or 1 if there are no dimensions. */
typedef struct heed_npy {
    int type;
    int n_dims;
    int64_t shape[HEED_NPY_MAX_DIMS];
    int64_t count;
    void *data; /* from malloc, in C order; not NULL even if count is 0 */
} heed_npy;

/**
 * Reads a file. It is refused if it does not agree with its header: too few bytes, bytes left over,
 * or a shape that overflows.
 *
 * out      receives the array, which heed_npy_free frees; written on success only
 * why      receives an error message that names the file
 * Errors   HEED_ERR_INVALID the file cannot be read or is not such an array; HEED_ERR_NOMEM.
 */
heed_status heed_npy_read(const char *path, heed_npy *out, heed_error *why);

/** The same from an open file, from its position to its end; messages use `name` for it. */
heed_status heed_npy_read_from(FILE *file, const char *name, heed_npy *out, heed_error *why);

/**
 * Reads the header alone, up to where the data begin, for callers that need only a part of them.
 *
 * out      receives type, shape and count; data is NULL
 * swapped  receives whether the data are in the other byte order than this machine's
 * fortran  receives whether they are in Fortran order
 */
heed_status heed_npy_read_header(FILE *file, const char *name, heed_npy *out, int *swapped,
                                 int *fortran, heed_error *why);

/** Writes array->data in C order. Errors: HEED_ERR_INVALID if the file cannot be written. */
heed_status heed_npy_write(const char *path, const heed_npy *array, heed_error *why);

/** Frees the data; the array may be all zero. */
void heed_npy_free(heed_npy *array);

/** The bytes of one element; 0 for an unknown type. */
int64_t heed_npy_type_bytes(int type);

/** Writes "PATH: REASON" to why, and returns HEED_ERR_INVALID. */
HEED_PRINTF(3, 4)
heed_status heed_npy_refuse(heed_error *why, const char *path, const char *format, ...);

/** numpy's code of a type: "f2", "f4" and so on. */
const char *heed_npy_type_name(int type);

/** Writes the shape as "[2, 3]" to text, which has room for HEED_NPY_SHAPE_TEXT bytes; returns
 * text. */
#define HEED_NPY_SHAPE_TEXT (HEED_NPY_MAX_DIMS * 22 + 3)
const char *heed_npy_shape_text(int n_dims, const int64_t *shape, char *text);

/** Element `index` in C order as a number, exact except for i8 beyond 2^53. A U2 is taken as the
 * bits of a bf16 number. */
double heed_npy_number(const heed_npy *array, int64_t index);

/** *product = a * b for sizes. Returns 0 if it exceeds 2^62, which no file or memory can hold. */
int heed_npy_multiply(int64_t a, int64_t b, int64_t *product);

#endif
