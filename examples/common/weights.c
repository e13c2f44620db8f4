/* From tensors of a file to the parts of a model. */
#include "weights.h"

#include <stdio.h>
#include <stdlib.h>

#include "rows.h"

heed_status weights_vector(const safetensors *weights, const char *name, int64_t n, float **out,
                           heed_error *why)
{
    const tensor *t;
    heed_status status = safetensors_find(weights, name, 1, &n, &t, why);
    if (status != HEED_OK)
        return status;
    float *vector = malloc((size_t)n * sizeof *vector);
    if (!vector)
        return no_memory(why, name);
    tensor_to_f32(t, 0, n, vector);
    *out = vector;
    return HEED_OK;
}

/* A matrix goes to `to` in the layer's type, by way of one row of f32. */
static heed_status copy_matrix(const safetensors *weights, const char *prefix, const char *name,
                               int64_t rows, int64_t cols, uint32_t type, char *to, float *row,
                               heed_error *why)
{
    char full[200];
    const tensor *t;
    snprintf(full, sizeof full, "%s%s.weight", prefix, name);
    heed_status status = safetensors_find(weights, full, 2, (const int64_t[]){rows, cols}, &t, why);
    for (int64_t r = 0; status == HEED_OK && r < rows; r++) {
        tensor_to_f32(t, r * cols, cols, row);
        store_row(type, row, cols, to + r * cols * (type == HEED_F32 ? 4 : 2));
    }
    return status;
}

static heed_status copy_bias(const safetensors *weights, const char *prefix, const char *name,
                             int64_t n, float *to, heed_error *why)
{
    char full[200];
    const tensor *t;
    snprintf(full, sizeof full, "%s%s.bias", prefix, name);
    heed_status status = safetensors_find(weights, full, 1, &n, &t, why);
    if (status == HEED_OK)
        tensor_to_f32(t, 0, n, to);
    return status;
}

heed_status weights_linear(heed_context *context, const safetensors *weights, const char *prefix,
                           const linear_spec *spec, heed_linear **out, heed_error *why)
{
    int64_t in = spec->in_dim, done = 0, out_dim = 0;
    size_t element = spec->type == HEED_F32 ? 4 : 2;
    for (int i = 0; i < 3 && spec->name[i]; i++)
        out_dim += spec->out_dim[i];
    char *matrix = malloc((size_t)(out_dim * in) * element);
    float *bias = malloc((size_t)out_dim * sizeof *bias), *row = malloc((size_t)in * sizeof *row);
    heed_status status = matrix && bias && row ? HEED_OK : no_memory(why, "a layer's weights");

    for (int i = 0; i < 3 && spec->name[i] && status == HEED_OK; i++) {
        status = copy_matrix(weights, prefix, spec->name[i], spec->out_dim[i], in, spec->type,
                             matrix + (size_t)(done * in) * element, row, why);
        if (status == HEED_OK && spec->bias)
            status = copy_bias(weights, prefix, spec->name[i], spec->out_dim[i], bias + done, why);
        done += spec->out_dim[i];
    }
    if (status == HEED_OK) {
        heed_linear_desc desc = {.struct_size = sizeof desc,
                                 .in_dim = (uint32_t)in,
                                 .out_dim = (uint32_t)out_dim,
                                 .x_type = spec->type,
                                 .w_type = spec->type,
                                 .y_type = spec->y_type ? spec->y_type : spec->type,
                                 .layout = HEED_LINEAR_OUT_IN,
                                 .activation = spec->activation};
        heed_view weight_view = {matrix, {in, 1}}, bias_view = {bias, {1}};
        if (spec->bias) {
            desc.features |= HEED_LINEAR_HAS_BIAS;
            desc.bias_type = HEED_F32;
        }
        if (spec->residual)
            desc.features |= HEED_LINEAR_HAS_RESIDUAL;
        status =
            heed_linear_create(context, &desc, &weight_view, spec->bias ? &bias_view : NULL, out);
        if (status != HEED_OK)
            snprintf(why->text, sizeof why->text, "%s", heed_last_error());
    }
    free(matrix);
    free(bias);
    free(row);
    return status;
}

heed_status linear_rows(const heed_linear *linear, const linear_run *run, void *x, int64_t in_dim,
                        void *y, int64_t out_dim, void *residual)
{
    heed_linear_args args = {.struct_size = sizeof args,
                             .rows = run->rows,
                             .x = {x, {in_dim, 1}},
                             .y = {y, {out_dim, 1}},
                             .executor = run->executor,
                             .error = run->why};
    if (residual)
        args.residual = (heed_view){residual, {out_dim, 1}};
    return heed_linear_run(linear, &args, run->workspace, run->bytes);
}
