/* Weights in the safetensors format: a JSON header, followed by the bytes of the tensors.
 * Source: https://huggingface.co/docs/safetensors, "Format".
 */
#ifndef COMMON_SAFETENSORS_H
#define COMMON_SAFETENSORS_H

#include "json.h"

enum { TENSOR_MOST_DIMS = 8 };

/** A tensor. Its data lie in the file, little-endian and not aligned. Its type is HEED_F32,
 * HEED_F16, HEED_BF16, or HEED_DTYPE_NONE for types with which Heed does not compute. */
typedef struct tensor {
    const char *name;
    uint32_t type;
    int n_dims;
    int64_t shape[TENSOR_MOST_DIMS];
    const unsigned char *data;
    size_t first, bytes; /* its range in the data of the file */
    int found;           /* safetensors_find has given it to somebody */
} tensor;

/** The tensors of a file; all zero when it is closed. */
typedef struct safetensors {
    cJSON *header;
    tensor *tensors; /* sorted by name */
    size_t n;
} safetensors;

/** Reads a file, which must outlive *out. Checks everything in its header against the file. */
heed_status safetensors_open(file f, const char *name, safetensors *out, heed_error *why);
void safetensors_close(safetensors *weights);

/** The tensor with this name, which must exist and have this shape and a type with which Heed
 * computes. */
heed_status safetensors_find(const safetensors *weights, const char *name, int n_dims,
                             const int64_t *shape, const tensor **out, heed_error *why);

/** Refuses tensors PREFIX... that safetensors_find has given to nobody, since a model that has them
 * computes something else; names that end with `except` are passed over. Messages use `name` for
 * the file. */
heed_status safetensors_refuse_rest(const safetensors *weights, const char *name,
                                    const char *prefix, const char *except, heed_error *why);

/** Copies elements [first, first + n) of a tensor, which must have a type of Heed's, as f32. */
void tensor_to_f32(const tensor *t, int64_t first, int64_t n, float *out);

#endif
