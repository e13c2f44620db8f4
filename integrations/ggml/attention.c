/* Describes FLASH_ATTN_EXT to Heed as a problem, and runs it.
 *
 *     q     f32 [batch, q_heads, q_len, qk_dim]      ggml names axes from the innermost: ne[0] is dims,
 *     k, v  any type, [batch, kv_heads, kv_len, ..]  ne[1] rows, ne[2] heads, ne[3] sequences
 *     mask  f16 [sequences, heads, rows, kv_len], added to the scores, -inf hides; sequence b has mask
 *           b % sequences and head h mask h % heads; rows may be more than q_len
 *     out   f32 [batch, q_len, q_heads, v_dim]
 *     parameters: scale, max_bias (of ALiBi: a slope for each head, times the mask), softcap
 *     sinks f32 [q_heads] or none
 *
 * Source   ggml_flash_attn_ext in ggml.h. Heed's sums are at least as precise as it may ask for.
 */
#include "ggml_heed.h"
#include "mask.h"

#include <heed/kit.h>
#include <math.h>
#include <string.h>

/* ---- types and views ------------------------------------------------------------------------- */

static uint32_t type_of(enum ggml_type type)
{
    switch (type) {
    case GGML_TYPE_F32:
        return HEED_F32;
    case GGML_TYPE_F16:
        return HEED_F16;
    case GGML_TYPE_BF16:
        return HEED_BF16;
    case GGML_TYPE_Q8_0:
        return HEED_Q8_0;
    case GGML_TYPE_Q4_0:
        return HEED_Q4_0;
    case GGML_TYPE_Q4_1:
        return HEED_Q4_1;
    case GGML_TYPE_Q5_0:
        return HEED_Q5_0;
    case GGML_TYPE_Q5_1:
        return HEED_Q5_1;
    case GGML_TYPE_IQ4_NL:
        return HEED_IQ4_NL;
    default:
        return HEED_DTYPE_NONE;
    }
}

/* Are the rows' elements adjacent, and the other strides whole blocks? */
static int has_rows(const struct ggml_tensor *t, const char *name, heed_error *why)
{
    const size_t block = ggml_type_size(t->type);
    if (type_of(t->type) == HEED_DTYPE_NONE) {
        heed_refuse(why, "%s is of type %s, which Heed has not", name, ggml_type_name(t->type));
        return 0;
    }
    if (t->nb[0] != block || t->nb[1] % block || t->nb[2] % block || t->nb[3] % block) {
        heed_refuse(why, "%s has rows of elements that are not adjacent", name);
        return 0;
    }
    return 1;
}

/* Elements from one to the next along an axis of `bytes`. */
static int64_t stride_of(const struct ggml_tensor *t, size_t bytes)
{
    return (int64_t)(bytes / ggml_type_size(t->type)) * ggml_blck_size(t->type);
}

static heed_const_view view_of(const struct ggml_tensor *t)
{
    return (heed_const_view){
        t->data, {stride_of(t, t->nb[3]), stride_of(t, t->nb[2]), stride_of(t, t->nb[1]), 1}};
}

/* ---- the description ------------------------------------------------------------------------- */

typedef struct parameters {
    float scale, max_bias, softcap;
} parameters;

static parameters parameters_of(const struct ggml_tensor *op)
{
    parameters p;
    memcpy(&p, op->op_params, sizeof p);
    return p;
}

/* Describes the operation by its tensors' shapes, with the mask as a bias. */
static heed_attn_desc describe(const struct ggml_tensor *op)
{
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2];
    const parameters p = parameters_of(op);
    heed_attn_desc d = {
        .struct_size = sizeof d,
        .features = HEED_HAS_SCALE,
        .q_heads = (uint32_t)q->ne[2],
        .kv_heads = (uint32_t)k->ne[2],
        .qk_dim = (uint32_t)q->ne[0],
        .v_dim = (uint32_t)v->ne[0],
        .q_type = HEED_F32,
        .k_type = type_of(k->type),
        .v_type = type_of(v->type),
        .out_type = HEED_F32,
        .scale = p.scale,
        .softcap = p.softcap,
    };
    if (heed_is_code(d.k_type)) /* as ggml multiplies codes */
        d.accuracy = HEED_ACCURACY_INT8;
    if (p.softcap != 0)
        d.features |= HEED_HAS_SOFTCAP;
    if (op->src[4])
        d.features |= HEED_HAS_SINK;
    if (op->src[3]) {
        d.features |= HEED_HAS_BIAS | (p.max_bias > 0 ? HEED_HAS_BIAS_SLOPE : 0);
        d.bias_type = HEED_F16;
    }
    return d;
}

/* Can the tensors be described? ggml asks before it has an operation computed, unless a program assigns it
 * by hand. */
static int can(const struct ggml_tensor *op, heed_error *why)
{
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    if (q->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32) {
        heed_refuse(why, "q and out are %s and %s, f32 is required", ggml_type_name(q->type),
                    ggml_type_name(op->type));
        return 0;
    }
    if (!has_rows(q, "q", why) || !has_rows(k, "k", why) || !has_rows(v, "v", why))
        return 0;
    if (k->ne[2] != v->ne[2] || k->ne[3] != q->ne[3] || v->ne[3] != q->ne[3]) {
        heed_refuse(why, "q, k and v have %d, %d and %d sequences, k and v %d and %d heads",
                    (int)q->ne[3], (int)k->ne[3], (int)v->ne[3], (int)k->ne[2], (int)v->ne[2]);
        return 0;
    }
    if (mask && (mask->type != GGML_TYPE_F16 || mask->nb[0] != sizeof(uint16_t))) {
        heed_refuse(why, "the mask is no f16 of adjacent keys");
        return 0;
    }
    if (mask && ((mask->ne[2] > 1 && mask->ne[2] != q->ne[2]) ||
                 (mask->ne[3] > 1 && mask->ne[3] != q->ne[3]))) {
        heed_refuse(why,
                    "the mask has %d heads and %d sequences: one, or as many as q, are required",
                    (int)mask->ne[2], (int)mask->ne[3]);
        return 0;
    }
    return 1;
}

int ggml_heed_attention_supported(heed_context *context, const struct ggml_tensor *op,
                                  heed_error *why)
{
    if (!can(op, why))
        return 0;
    const heed_attn_desc desc = describe(op);
    return heed_attn_supported(context, &desc, why) == HEED_OK;
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* The slopes that ggml multiplies the mask with: powers of two, as those of Press et al. 2021. */
static void fill_slopes(float max_bias, int64_t heads, float *slope)
{
    const int64_t power = INT64_C(1) << (int64_t)floor(log2((double)heads));
    const float first = powf(2.0f, -max_bias / (float)power);
    const float second = powf(2.0f, -(max_bias / 2.0f) / (float)power);
    for (int64_t h = 0; h < heads; h++)
        slope[h] =
            h < power ? powf(first, (float)(h + 1)) : powf(second, (float)(2 * (h - power) + 1));
}

/* What a call needs beside the tensors, in the backend's memory. */
typedef struct call_room {
    int32_t *kv_lens, *offsets; /* [batch] */
    float *slope;               /* [q_heads] */
    mask_span *spans;           /* [masks, q_len, MASK_MOST] */
} call_room;

static int make_room(ggml_heed *backend, const struct ggml_tensor *q, int64_t masks, call_room *to)
{
    const size_t batch = (size_t)q->ne[3], heads = (size_t)q->ne[2];
    const size_t spans = (size_t)masks * (size_t)q->ne[1] * MASK_MOST;
    char *at = ggml_heed_memory(backend, spans * sizeof(mask_span) + heads * sizeof(float) +
                                             2 * batch * sizeof(int32_t));
    if (!at)
        return 0;
    to->spans = (mask_span *)(void *)at;
    to->slope = (float *)(void *)(to->spans + spans);
    to->kv_lens = (int32_t *)(void *)(to->slope + heads);
    to->offsets = to->kv_lens + batch;
    return 1;
}

/* The form that the masks of all sequences have, with what room holds of each. A causal form has to be
 * the same for all, with the same window. */
static mask_form find_form(const struct ggml_tensor *mask, const call_room *room,
                           const heed_attn_args *a)
{
    mask_form all = {.kind = MASK_CAUSAL, .n_ranges = 1};
    for (int64_t m = 0; m < mask->ne[3]; m++) {
        const mask_form form = mask_find_form((const char *)mask->data + m * (int64_t)mask->nb[3],
                                              (int64_t)mask->nb[1], a->q_len, a->kv_len,
                                              room->spans + m * a->q_len * MASK_MOST);
        if (form.kind == MASK_DENSE)
            return form;
        if (form.kind != MASK_CAUSAL || (m && form.window_left != all.window_left))
            all.kind = MASK_RANGES;
        all.window_left = form.window_left;
        all.n_ranges = form.n_ranges > all.n_ranges ? form.n_ranges : all.n_ranges;
        for (int64_t b = m; b < a->batch; b += mask->ne[3]) {
            room->kv_lens[b] = (int32_t)form.kv_len;
            room->offsets[b] = (int32_t)form.offset;
        }
    }
    return all;
}

/* Describes the mask as a causal range, a window and lengths. */
static void say_causal(const call_room *room, int64_t window, heed_attn_desc *d, heed_attn_args *a)
{
    d->features |= HEED_HAS_CAUSAL | HEED_HAS_LENS;
    d->position = HEED_POS_GIVEN;
    if (window >= 0) {
        d->features |= HEED_HAS_WINDOW;
        d->window_left = window;
        d->window_right = -1;
    }
    a->kv_lens = room->kv_lens;
    a->q_offsets = room->offsets;
}

/* Describes the mask as some runs of keys for each row. */
static void say_ranges(const struct ggml_tensor *mask, const call_room *room, int n,
                       heed_attn_desc *d, heed_attn_args *a)
{
    d->features |= HEED_HAS_RANGES;
    d->n_ranges = (uint32_t)n;
    a->ranges = (heed_const_view){room->spans,
                                  {mask->ne[3] > 1 ? a->q_len * MASK_MOST : 0, 0, MASK_MOST, 1}};
}

static void say_bias(const struct ggml_tensor *mask, const heed_attn_desc *d, float max_bias,
                     const call_room *room, heed_attn_args *a)
{
    const int64_t bytes = (int64_t)sizeof(uint16_t);
    a->bias = (heed_const_view){mask->data,
                                {mask->ne[3] > 1 ? (int64_t)mask->nb[3] / bytes : 0,
                                 mask->ne[2] > 1 ? (int64_t)mask->nb[2] / bytes : 0,
                                 (int64_t)mask->nb[1] / bytes, 1}};
    if (d->features & HEED_HAS_BIAS_SLOPE) {
        fill_slopes(max_bias, d->q_heads, room->slope);
        a->bias_slope = room->slope;
    }
}

/* Computes the operation, described with a mask of this form, if there is a mask. Slopes would multiply
 * the zeros of any form but a bias, and are dropped. */
static heed_status run_as(ggml_heed *backend, const struct ggml_tensor *op, const call_room *room,
                          const mask_form *form, heed_attn_args args)
{
    const struct ggml_tensor *mask = op->src[3];
    heed_attn_desc desc = describe(op);
    if (form->kind != MASK_DENSE) {
        desc.features &= ~(HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE);
        desc.bias_type = HEED_DTYPE_NONE;
    }
    if (form->kind == MASK_CAUSAL)
        say_causal(room, form->window_left, &desc, &args);
    else if (form->kind == MASK_RANGES)
        say_ranges(mask, room, form->n_ranges, &desc, &args);
    else if (mask)
        say_bias(mask, &desc, parameters_of(op).max_bias, room, &args);
    const heed_status st = heed_attention(ggml_heed_context(backend), &desc, &args);
    if (st == HEED_OK)
        ggml_heed_tell_memory(backend, &desc, &args);
    return st;
}

heed_status ggml_heed_attention(ggml_heed *backend, struct ggml_tensor *op, heed_error *why)
{
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *mask = op->src[3];
    const heed_attn_args args = {
        .struct_size = sizeof args,
        .error = why,
        .batch = q->ne[3],
        .q_len = q->ne[1],
        .kv_len = k->ne[1],
        .q = view_of(q),
        .k = view_of(k),
        .v = view_of(op->src[2]),
        .out = {op->data,
                {stride_of(op, op->nb[3]), stride_of(op, op->nb[1]), stride_of(op, op->nb[2]), 1}},
        .sink = op->src[4] ? op->src[4]->data : NULL,
    };
    mask_form form = {.kind = MASK_DENSE};
    call_room room;
    if (!can(op, why))
        return HEED_ERR_UNSUPPORTED;
    if (!ggml_heed_context(backend)) {
        heed_refuse(why, "%s", heed_last_error());
        return HEED_ERR_INVALID;
    }
    if (!make_room(backend, q, mask ? mask->ne[3] : 0, &room))
        return HEED_ERR_NOMEM;
    if (mask && mask->ne[2] == 1)
        form = find_form(mask, &room, &args);
    for (;; form.kind--) { /* to the last of the kinds, a bias, for which supports_op has asked */
        const heed_status st = run_as(backend, op, &room, &form, args);
        if (st != HEED_ERR_UNSUPPORTED || form.kind == MASK_DENSE)
            return st;
    }
}
