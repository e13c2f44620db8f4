/* Makes the parts of a model from the tensors of a file. */
#ifndef COMMON_WEIGHTS_H
#define COMMON_WEIGHTS_H

#include "safetensors.h"

/** A vector as f32, which the caller frees. */
heed_status weights_vector(const safetensors *weights, const char *name, int64_t n, float **out,
                           heed_error *why);

/** A linear layer as models describe it: nn.Linear, with weights [out_dim, in_dim]. */
typedef struct linear_spec {
    const char *name[3]; /* tensors whose outputs lie side by side; unused ones are NULL */
    int64_t in_dim, out_dim[3];
    uint32_t type;       /* of x, weights and y: HEED_F32 or HEED_BF16 */
    uint32_t y_type;     /* 0: the same as type */
    uint32_t activation; /* HEED_ACT_* */
    int bias;            /* "NAME.bias" exists beside "NAME.weight" */
    int residual;
} linear_spec;

/** Makes the layer from the tensors PREFIX NAME.weight and PREFIX NAME.bias. */
heed_status weights_linear(heed_context *context, const safetensors *weights, const char *prefix,
                           const linear_spec *spec, heed_linear **out, heed_error *why);

/** Memory at an address that is a multiple of 64, which suits Heed best; free frees it. */
void *aligned(size_t bytes);

/** What the linear layers of one pass have in common. */
typedef struct linear_run {
    int64_t rows;
    const heed_executor *executor;
    void *workspace;
    size_t bytes;
    heed_error *why;
} linear_run;

/** y = linear(x) + residual, for dense rows; residual may be NULL or y. */
heed_status linear_rows(const heed_linear *linear, const linear_run *run, const void *x,
                        int64_t in_dim, void *y, int64_t out_dim, const void *residual);

#endif
