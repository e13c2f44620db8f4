/* Makes the parts of a model from the tensors of a file. */
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

/* The tensors of a layer, whose outputs lie side by side; their data are known to be in the
 * file. */
typedef struct parts {
    const tensor *matrix[3], *bias[3];
    int n;
    int64_t out_dim;
} parts;

static heed_status find_parts(const safetensors *weights, const char *prefix,
                              const linear_spec *spec, parts *out, heed_error *why)
{
    char name[200];
    *out = (parts){0};
    for (int i = 0; i < 3 && spec->name[i]; i++, out->n++) {
        int64_t n = spec->out_dim[i];
        snprintf(name, sizeof name, "%s%s.weight", prefix, spec->name[i]);
        heed_status status = safetensors_find(weights, name, 2, (const int64_t[]){n, spec->in_dim},
                                              &out->matrix[i], why);
        snprintf(name, sizeof name, "%s%s.bias", prefix, spec->name[i]);
        if (status == HEED_OK && spec->bias)
            status = safetensors_find(weights, name, 1, &n, &out->bias[i], why);
        if (status != HEED_OK)
            return status;
        out->out_dim += n;
    }
    return HEED_OK;
}

/* Copies the rows of the matrices in the type of the layer, through one row of f32, and the biases
 * in f32. */
static void copy_parts(const parts *from, const linear_spec *spec, char *matrix, float *bias,
                       float *row)
{
    int64_t in = spec->in_dim;
    for (int i = 0; i < from->n; i++) {
        for (int64_t r = 0; r < spec->out_dim[i]; r++) {
            tensor_to_f32(from->matrix[i], r * in, in, row);
            store_row(spec->type, row, in, matrix);
            matrix += in * (spec->type == HEED_F32 ? 4 : 2);
        }
        if (spec->bias)
            tensor_to_f32(from->bias[i], 0, spec->out_dim[i], bias);
        bias += spec->out_dim[i];
    }
}

static heed_status create(heed_context *context, const linear_spec *spec, int64_t out_dim,
                          char *matrix, float *bias, heed_linear **out, heed_error *why)
{
    heed_linear_desc desc = {.struct_size = sizeof desc,
                             .in_dim = (uint32_t)spec->in_dim,
                             .out_dim = (uint32_t)out_dim,
                             .x_type = spec->type,
                             .w_type = spec->type,
                             .y_type = spec->y_type ? spec->y_type : spec->type,
                             .layout = HEED_LINEAR_OUT_IN,
                             .activation = spec->activation};
    const heed_const_view weight_view = {matrix, {spec->in_dim, 1}}, bias_view = {bias, {1}};
    if (spec->bias) {
        desc.features |= HEED_LINEAR_HAS_BIAS;
        desc.bias_type = HEED_F32;
    }
    if (spec->residual)
        desc.features |= HEED_LINEAR_HAS_RESIDUAL;
    return pass_on(
        heed_linear_create(context, &desc, &weight_view, spec->bias ? &bias_view : NULL, out), why);
}

heed_status weights_linear(heed_context *context, const safetensors *weights, const char *prefix,
                           const linear_spec *spec, heed_linear **out, heed_error *why)
{
    parts from;
    heed_status status = find_parts(weights, prefix, spec, &from, why);
    if (status != HEED_OK)
        return status;
    char *matrix = malloc((size_t)(from.out_dim * spec->in_dim) * (spec->type == HEED_F32 ? 4 : 2));
    float *bias = malloc((size_t)from.out_dim * sizeof *bias);
    float *row = malloc((size_t)spec->in_dim * sizeof *row);
    if (matrix && bias && row) {
        copy_parts(&from, spec, matrix, bias, row);
        status = create(context, spec, from.out_dim, matrix, bias, out, why);
    } else {
        status = no_memory(why, "a layer's weights");
    }
    free(matrix);
    free(bias);
    free(row);
    return status;
}

void *aligned(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

heed_status linear_rows(const heed_linear *linear, const linear_run *run, const void *x,
                        int64_t in_dim, void *y, int64_t out_dim, const void *residual)
{
    heed_linear_args args = {.struct_size = sizeof args,
                             .rows = run->rows,
                             .x = {x, {in_dim, 1}},
                             .y = {y, {out_dim, 1}},
                             .executor = run->executor,
                             .error = run->why};
    if (residual)
        args.residual = (heed_const_view){residual, {out_dim, 1}};
    return heed_linear_run(linear, &args, run->workspace, run->bytes);
}
