/* Weights in the safetensors format: a JSON header, then the tensors' bytes.
 * Source: https://huggingface.co/docs/safetensors, "Format".
 */
#ifndef COMMON_SAFETENSORS_H
#define COMMON_SAFETENSORS_H

#include "json.h"

enum { TENSOR_MOST_DIMS = 8 };

/** data lies in the file, little-endian and not aligned. type is HEED_F32, HEED_F16, HEED_BF16, or
 * HEED_DTYPE_NONE for what Heed does not compute with. */
typedef struct tensor {
    const char *name;
    uint32_t type;
    int n_dims;
    int64_t shape[TENSOR_MOST_DIMS];
    const unsigned char *data;
    size_t first, bytes; /* in the file's data */
} tensor;

/** All zero is closed. */
typedef struct safetensors {
    cJSON *header;
    tensor *tensors; /* by name */
    size_t n;
} safetensors;

/** Reads a file, which must outlive *out. Everything that its header says is checked against it. */
heed_status safetensors_open(file f, const char *name, safetensors *out, heed_error *why);
void safetensors_close(safetensors *weights);

/** The tensor of a name, which must be there in this shape and in a type that Heed computes with.
 */
heed_status safetensors_find(const safetensors *weights, const char *name, int n_dims,
                             const int64_t *shape, const tensor **out, heed_error *why);

/** Copies elements [first, first + n) of a tensor in a type of Heed's as f32. */
void tensor_to_f32(const tensor *t, int64_t first, int64_t n, float *out);

#endif
