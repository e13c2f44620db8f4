/* The heed command: reads the inputs of heed run. */
#include "inputs.h"

#include <stdlib.h>
#include <string.h>

int heed_inputs_load(const heed_cli_option *options, const char *name, heed_npy *array)
{
    heed_error why;
    heed_status status = heed_npy_read(heed_cli_value(options, name), array, &why);
    if (status == HEED_OK)
        return HEED_EXIT_OK;
    return heed_cli_fail(status == HEED_ERR_NOMEM ? HEED_EXIT_FAILED : HEED_EXIT_USAGE, "--%s %s",
                         name, why.text);
}

/* Converts f64 to f32 such that a second rounding, to f16 or bf16, gives the result of a single
 * one: the bits that do not fit are cut off, and if there are any the last bit becomes a one. This
 * is rounding to odd (Boldo and Melquiond 2008); it needs two bits more than the narrower type has,
 * and f32 has thirteen more. */
static float to_odd(double x)
{
    float f = (float)x;
    if ((double)f == x || x != x)
        return f;
    uint32_t bits = heed_bits_of_f32(f);
    if (fabs((double)f) > fabs(x))
        bits--; /* toward zero, since magnitudes are in the order of their bits */
    return heed_f32_of_bits(bits | 1u);
}

/* Converts the array to f32, f16 or bf16, unless it has that type already. */
static int convert(heed_npy *array, uint32_t type)
{
    static const int held_as[] = {
        [HEED_F32] = HEED_NPY_F4, [HEED_F16] = HEED_NPY_F2, [HEED_BF16] = HEED_NPY_U2};
    if (array->type == held_as[type])
        return HEED_EXIT_OK;
    void *data = malloc((size_t)array->count * heed_dtype_bytes(type) + 1);
    if (!data)
        return heed_cli_fail(HEED_EXIT_FAILED, "no memory to convert %lld elements",
                             (long long)array->count);
    for (int64_t i = 0; i < array->count; i++) {
        double x = heed_npy_number(array, i);
        heed_store(type, data, i, type == HEED_F32 ? (float)x : to_odd(x));
    }
    free(array->data);
    array->data = data;
    array->type = held_as[type];
    return HEED_EXIT_OK;
}

static int is_float(const heed_npy *array)
{
    return array->type == HEED_NPY_F2 || array->type == HEED_NPY_F4 || array->type == HEED_NPY_F8;
}

heed_view heed_inputs_view(void *data, heed_axes axes, const int64_t shape[4])
{
    int64_t stride[4] = {0, 0, 0, 1};
    for (int d = 2; d >= 0; d--)
        stride[d] = stride[d + 1] * shape[d + 1];
    return (heed_view){data,
                       {stride[axes.batch], stride[axes.head], stride[axes.row], stride[axes.dim]}};
}

/* Loads q, k or v, which has four dimensions, and converts it to --dtype, or to the type of its
 * file. */
static int load_tensor(const heed_cli_option *options, const char *name, heed_axes axes,
                       heed_tensor *tensor, heed_const_view *view)
{
    char shape[HEED_NPY_SHAPE_TEXT];
    heed_npy *array = &tensor->npy;
    const char *dtype = heed_cli_value(options, "dtype");
    int failed = heed_inputs_load(options, name, array);
    if (failed)
        return failed;
    if (array->n_dims != 4)
        return heed_cli_fail(HEED_EXIT_USAGE, "--%s has shape %s: four dimensions are required",
                             name, heed_npy_shape_text(array->n_dims, array->shape, shape));
    for (int d = 0; d < 4; d++)
        if (array->shape[d] > INT32_MAX)
            return heed_cli_fail(HEED_EXIT_USAGE, "--%s has shape %s: a length is above 2^31 - 1",
                                 name, heed_npy_shape_text(4, array->shape, shape));
    tensor->type = dtype ? heed_cli_dtype(dtype) : array->type == HEED_NPY_F2 ? HEED_F16 : HEED_F32;
    if (!is_float(array) && !(array->type == HEED_NPY_U2 && tensor->type == HEED_BF16))
        return heed_cli_fail(HEED_EXIT_USAGE, "--%s holds %s: f2, f4 or f8 is required%s", name,
                             heed_npy_type_name(array->type),
                             array->type == HEED_NPY_U2 ? "; u2 is read as the bits of bf16 with "
                                                          "--dtype bf16"
                                                        : "");
    failed = convert(array, tensor->type);
    *view = heed_as_const(heed_inputs_view(array->data, axes, array->shape));
    return failed;
}

static int load_tensors(const heed_cli_option *options, heed_axes axes, heed_inputs *in,
                        heed_attn_desc *desc, heed_attn_args *args)
{
    int failed = load_tensor(options, "query", axes, &in->q, &args->q);
    if (!failed)
        failed = load_tensor(options, "key", axes, &in->k, &args->k);
    if (!failed)
        failed = load_tensor(options, "value", axes, &in->v, &args->v);
    if (!failed)
        failed = heed_cli_shapes(axes, in->q.npy.shape, in->k.npy.shape, in->v.npy.shape);
    if (failed)
        return failed;
    args->batch = desc->max_batch = in->q.npy.shape[axes.batch];
    args->q_len = desc->max_q_len = in->q.npy.shape[axes.row];
    args->kv_len = desc->max_kv_len = in->k.npy.shape[axes.row];
    desc->q_heads = (uint32_t)in->q.npy.shape[axes.head];
    desc->kv_heads = (uint32_t)in->k.npy.shape[axes.head];
    desc->qk_dim = (uint32_t)in->q.npy.shape[axes.dim];
    desc->v_dim = (uint32_t)in->v.npy.shape[axes.dim];
    desc->q_type = in->q.type;
    desc->k_type = in->k.type;
    desc->v_type = in->v.type;
    return HEED_EXIT_OK;
}

int heed_inputs_broadcast(const char *name, int n_dims, const int64_t *shape, const int64_t full[4],
                          int n_free, int64_t stride[4])
{
    char has[HEED_NPY_SHAPE_TEXT], wants[HEED_NPY_SHAPE_TEXT];
    int64_t next = 1;
    int fits = n_dims >= 2 && n_dims <= 4;
    memset(stride, 0, 4 * sizeof *stride);
    for (int d = n_dims - 1, to = 3; fits && d >= 0; d--, to--) {
        const int one = shape[d] == 1 && to < n_free;
        fits = one || shape[d] == full[to];
        stride[to] = one ? 0 : next;
        next *= shape[d];
    }
    if (fits)
        return HEED_EXIT_OK;
    return heed_cli_fail(HEED_EXIT_USAGE, "--%s has shape %s: it does not broadcast to %s", name,
                         heed_npy_shape_text(n_dims, shape, has),
                         heed_npy_shape_text(4, full, wants));
}

/* The view of a mask or bias: each of its axes may broadcast. */
static int view_of(const char *name, const heed_npy *array, const int64_t full[4],
                   heed_const_view *view)
{
    view->data = array->data;
    return heed_inputs_broadcast(name, array->n_dims, array->shape, full, 4, view->stride);
}

/* Loads a file with a number for every query head, as f32. */
static int load_per_head(const heed_cli_option *options, const char *name, uint32_t heads,
                         heed_npy *array, const float **values)
{
    char shape[HEED_NPY_SHAPE_TEXT];
    int failed = heed_inputs_load(options, name, array);
    if (failed)
        return failed;
    if (!is_float(array) || array->n_dims != 1 || array->shape[0] != heads)
        return heed_cli_fail(HEED_EXIT_USAGE,
                             "--%s is %s %s: f2, f4 or f8 of shape [%u] is "
                             "required, one for each query head",
                             name, heed_npy_type_name(array->type),
                             heed_npy_shape_text(array->n_dims, array->shape, shape), heads);
    failed = convert(array, HEED_F32);
    *values = array->data;
    return failed;
}

int heed_inputs_integers(const char *name, const heed_npy *array, int32_t **out)
{
    *out = calloc((size_t)array->count + 1, sizeof **out);
    if (!*out)
        return heed_cli_fail(HEED_EXIT_FAILED, "no memory for --%s", name);
    for (int64_t i = 0; i < array->count; i++) {
        const double value = heed_npy_number(array, i);
        if (value < INT32_MIN || value > INT32_MAX)
            return heed_cli_fail(HEED_EXIT_USAGE, "--%s [%lld] is %.0f: beyond 32 bits", name,
                                 (long long)i, value);
        (*out)[i] = (int32_t)value;
    }
    return HEED_EXIT_OK;
}

/* Loads a file with an integer for every sequence. */
static int load_per_sequence(const heed_cli_option *options, const char *name, int64_t batch,
                             int32_t **out)
{
    char shape[HEED_NPY_SHAPE_TEXT];
    heed_npy array = {0};
    int failed = heed_inputs_load(options, name, &array);
    if (failed)
        return failed;
    if ((array.type != HEED_NPY_I4 && array.type != HEED_NPY_I8) || array.n_dims != 1 ||
        array.shape[0] != batch)
        failed =
            heed_cli_fail(HEED_EXIT_USAGE,
                          "--%s is %s %s: i4 or i8 of shape [%lld] is "
                          "required, one for each sequence",
                          name, heed_npy_type_name(array.type),
                          heed_npy_shape_text(array.n_dims, array.shape, shape), (long long)batch);
    else
        failed = heed_inputs_integers(name, &array, out);
    heed_npy_free(&array);
    return failed;
}

/* Loads --q-offset or --mask-from: one number for all sequences, or a file. There is one number more
 * than sequences: the same one, or of a file 0. */
static int load_offsets(const heed_cli_option *options, const char *name, int64_t batch,
                        int32_t **out)
{
    int64_t offset;
    const char *text = heed_cli_value(options, name);
    if (!heed_cli_integer(text, INT64_MIN, INT64_MAX, &offset))
        return load_per_sequence(options, name, batch, out);
    if (offset < INT32_MIN || offset > INT32_MAX)
        return heed_cli_fail(HEED_EXIT_USAGE, "--%s %s is beyond 32 bits", name, text);
    *out = calloc((size_t)batch + 1, sizeof **out);
    if (!*out)
        return heed_cli_fail(HEED_EXIT_FAILED, "no memory for --%s", name);
    for (int64_t b = 0; b <= batch; b++)
        (*out)[b] = (int32_t)offset;
    return HEED_EXIT_OK;
}

/* Loads --mask-from. *columns becomes how many columns mask and bias have: one for each key from the least
 * on. Where there are no sequences it is N, or 0 of a file, which is what the array has behind them. */
static int load_mask_from(const heed_cli_option *options, heed_inputs *in, heed_attn_args *args,
                          int64_t *columns)
{
    int failed = load_offsets(options, "mask-from", args->batch, &in->mask_from);
    *columns = 0;
    for (int64_t b = 0; !failed && b < (args->batch ? args->batch : 1); b++) {
        const int64_t from = in->mask_from[b];
        if (from < 0 || from > args->kv_len)
            return heed_cli_fail(HEED_EXIT_USAGE,
                                 "--mask-from [%lld] is %lld: 0 to %lld, the keys, is required",
                                 (long long)b, (long long)from, (long long)args->kv_len);
        *columns = args->kv_len - from > *columns ? args->kv_len - from : *columns;
    }
    args->mask_from = in->mask_from;
    return failed;
}

static int load_mask_and_bias(const heed_cli_option *options, heed_inputs *in, heed_attn_desc *desc,
                              heed_attn_args *args)
{
    int64_t full[4] = {args->batch, desc->q_heads, args->q_len, args->kv_len};
    int failed = HEED_EXIT_OK;
    if (heed_cli_given(options, "mask-from")) {
        failed = load_mask_from(options, in, args, &full[3]);
        desc->features |= HEED_HAS_MASK_FROM;
    }
    if (!failed && heed_cli_given(options, "mask")) {
        failed = heed_inputs_load(options, "mask", &in->mask);
        if (!failed && in->mask.type != HEED_NPY_B1)
            failed = heed_cli_fail(HEED_EXIT_USAGE, "--mask holds %s: b1 is required",
                                   heed_npy_type_name(in->mask.type));
        if (!failed)
            failed = view_of("mask", &in->mask, full, &args->mask);
        desc->features |= HEED_HAS_MASK;
    }
    if (!failed && heed_cli_given(options, "bias")) {
        failed = heed_inputs_load(options, "bias", &in->bias);
        if (!failed && !is_float(&in->bias))
            failed = heed_cli_fail(HEED_EXIT_USAGE, "--bias holds %s: f2, f4 or f8 is required",
                                   heed_npy_type_name(in->bias.type));
        if (!failed)
            failed = convert(&in->bias, HEED_F32);
        if (!failed)
            failed = view_of("bias", &in->bias, full, &args->bias);
        desc->features |= HEED_HAS_BIAS;
        desc->bias_type = HEED_F32;
    }
    return failed;
}

int heed_inputs_read(const heed_cli_option *options, heed_axes axes, heed_inputs *in,
                     heed_attn_desc *desc, heed_attn_args *args)
{
    int failed = load_tensors(options, axes, in, desc, args);
    if (!failed && heed_cli_given(options, "kv-len")) {
        failed = load_per_sequence(options, "kv-len", args->batch, &in->kv_lens);
        desc->features |= HEED_HAS_LENS;
        args->kv_lens = in->kv_lens;
    }
    if (!failed)
        failed = load_mask_and_bias(options, in, desc, args);
    if (!failed)
        failed = heed_inputs_lists(options, in, desc, args);
    if (!failed && heed_cli_given(options, "alibi")) {
        failed = load_per_head(options, "alibi", desc->q_heads, &in->alibi, &args->alibi_slope);
        desc->features |= HEED_HAS_ALIBI;
    }
    if (!failed && heed_cli_given(options, "sinks")) {
        failed = load_per_head(options, "sinks", desc->q_heads, &in->sinks, &args->sink);
        desc->features |= HEED_HAS_SINK;
    }
    if (!failed && heed_cli_given(options, "q-offset"))
        failed = load_offsets(options, "q-offset", args->batch, &in->q_offsets);
    args->q_offsets = in->q_offsets;
    return failed;
}

void heed_inputs_free(heed_inputs *in)
{
    heed_npy_free(&in->q.npy);
    heed_npy_free(&in->k.npy);
    heed_npy_free(&in->v.npy);
    heed_npy_free(&in->mask);
    heed_npy_free(&in->bias);
    heed_npy_free(&in->alibi);
    heed_npy_free(&in->sinks);
    free(in->q_offsets);
    free(in->kv_lens);
    free(in->ranges);
    free(in->mask_from);
    free(in->words);
}
