/* Layers that several unit tests use: one linear, and an attention layer with a projection of q, k
 * and v, rotary positions, a cache and a way out. */
#ifndef HEED_UNIT_LAYER_SETUP_H
#define HEED_UNIT_LAYER_SETUP_H

#include "unit.h"

enum { DIM = 16, HEADS = 2, ROWS = 40, CAPACITY = 64 };

typedef struct layer_setup {
    float w_in[DIM * 3 * DIM], w_out[DIM * DIM], bias[3 * DIM];
    float x[ROWS * DIM], y[ROWS * DIM], middle[ROWS * 3 * DIM], cache[2][CAPACITY * DIM];
    float freq[2];
    heed_linear_desc in, out;
    heed_attn_desc attn;
    heed_mha_desc desc;
    heed_linear_args linear_args;
    heed_mha_args args;
} layer_setup;

static inline void layer_describe(layer_setup *s)
{
    s->in = (heed_linear_desc){.struct_size = sizeof s->in,
                               .features = HEED_LINEAR_HAS_BIAS,
                               .in_dim = DIM,
                               .out_dim = 3 * DIM,
                               .x_type = HEED_F32,
                               .w_type = HEED_F32,
                               .y_type = HEED_F32,
                               .bias_type = HEED_F32};
    s->out = s->in;
    s->out.features = 0;
    s->out.out_dim = DIM;
    s->out.bias_type = HEED_DTYPE_NONE;
    s->attn = (heed_attn_desc){.struct_size = sizeof s->attn,
                               .features = HEED_HAS_CAUSAL,
                               .position = HEED_POS_BOTTOM_RIGHT,
                               UNIT_SHAPE(HEADS, HEADS, DIM / HEADS, DIM / HEADS),
                               UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                               .max_batch = 1,
                               .max_q_len = ROWS,
                               .max_kv_len = CAPACITY};
    s->desc = (heed_mha_desc){.struct_size = sizeof s->desc,
                              .features = HEED_MHA_HAS_CACHE,
                              .d_model = DIM,
                              .x_type = HEED_F32,
                              .rotary = {.style = HEED_ROTARY_HALF, .dims = 4}};
    s->desc.attn = &s->attn;
    s->desc.rotary.freq = s->freq;
}

static inline layer_setup *layer_prepare(void)
{
    layer_setup *s = calloc(1, sizeof *s);
    uint64_t seed = 5;
    if (!s)
        exit(1);
    for (int i = 0; i < DIM * 3 * DIM; i++)
        s->w_in[i] = unit_number(&seed);
    for (int i = 0; i < DIM * DIM; i++)
        s->w_out[i] = unit_number(&seed);
    for (int i = 0; i < 3 * DIM; i++)
        s->bias[i] = unit_number(&seed);
    for (int i = 0; i < ROWS * DIM; i++)
        s->x[i] = unit_number(&seed);
    s->freq[0] = 1, s->freq[1] = 0.125F;
    layer_describe(s);
    s->linear_args = (heed_linear_args){.struct_size = sizeof s->linear_args,
                                        .rows = ROWS,
                                        .x = {s->x, {DIM, 1}},
                                        .y = {s->middle, {3 * DIM, 1}}};
    s->args = (heed_mha_args){.struct_size = sizeof s->args,
                              .batch = 1,
                              .q_len = ROWS,
                              .capacity = CAPACITY,
                              .x_q = {s->x, {0, DIM, 1}},
                              .y = {s->y, {0, DIM, 1}},
                              .k_cache = {s->cache[0], {0, DIM / HEADS, DIM, 1}},
                              .v_cache = {s->cache[1], {0, DIM / HEADS, DIM, 1}}};
    return s;
}

/* Creates the layers; afterwards *mha alone holds the projections. */
static inline heed_status layer_create(heed_context *context, layer_setup *s, heed_mha **mha)
{
    const heed_const_view in = {s->w_in, {3 * DIM, 1}}, out = {s->w_out, {DIM, 1}},
                          bias = {s->bias, {1}};
    s->desc.qkv_proj = s->desc.out_proj = NULL;
    heed_status st = heed_linear_create(context, &s->in, &in, &bias, &s->desc.qkv_proj);
    if (st == HEED_OK)
        st = heed_linear_create(context, &s->out, &out, NULL, &s->desc.out_proj);
    if (st == HEED_OK)
        st = heed_mha_create(context, &s->desc, mha);
    heed_linear_release(s->desc.qkv_proj);
    heed_linear_release(s->desc.out_proj);
    return st;
}

static inline heed_linear *layer_linear(heed_context *context, layer_setup *s)
{
    const heed_const_view in = {s->w_in, {3 * DIM, 1}}, bias = {s->bias, {1}};
    heed_linear *linear = NULL;
    CHECK_OK(heed_linear_create(context, &s->in, &in, &bias, &linear));
    return linear;
}

#endif
