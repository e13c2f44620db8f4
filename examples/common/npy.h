/* Matrices of f32 in .npy files, the format of numpy.save. */
#ifndef COMMON_NPY_H
#define COMMON_NPY_H

#include <stdint.h>

#include "refuse.h"

heed_status npy_write(const char *path, const float *data, int64_t rows, int64_t cols,
                      heed_error *why);

#endif
