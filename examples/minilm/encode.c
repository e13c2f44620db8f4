/* The encoder: embeddings, then layers of attention and of two linear layers with a GELU between
 * them, where a LayerNorm follows each sum of input and output; then the mean.
 * Source: Devlin et al. 2018, arXiv:1810.04805; pooling after Reimers & Gurevych 2019,
 * arXiv:1908.10084.
 */
#include "encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../common/rows.h"
#include "../common/weights.h"

struct encoder {
    const model *m;
    heed_mha **attention; /* projections and attention of each layer */
    heed_executor serial;
    const heed_executor *executor; /* NULL: Heed's own threads */
    size_t element;                /* the bytes of a number */
    char *x;                       /* [rows, width], the hidden states */
    char *inner;                   /* [rows, inner] */
    float *row;                    /* two rows of width numbers */
    void *workspace;
    size_t workspace_bytes;
};

static void run_here(void *user, uint32_t n, void (*body)(void *arg, uint32_t i), void *arg)
{
    (void)user;
    for (uint32_t i = 0; i < n; i++)
        body(arg, i);
}

/* Makes the attention layers, for batches of up to `rows` tokens. */
static heed_status create_attention(encoder *e, int64_t rows, int weights, heed_error *why)
{
    const model *m = e->m;
    heed_attn_desc attn = {.struct_size = sizeof attn, .features = HEED_HAS_LENS | HEED_HAS_PACKED};
    if (weights)
        attn.features |= HEED_HAS_WEIGHTS;
    attn.q_heads = attn.kv_heads = (uint32_t)m->heads;
    attn.qk_dim = attn.v_dim = (uint32_t)(m->width / m->heads);
    attn.q_type = attn.k_type = attn.v_type = attn.out_type = m->type;
    attn.max_batch = rows / 2; /* every text has at least 2 tokens */
    attn.max_q_len = attn.max_kv_len = m->most_tokens;
    attn.max_rows = rows;
    heed_mha_desc desc = {.struct_size = sizeof desc, .attn = &attn};
    desc.d_model = (uint32_t)m->width;
    desc.x_type = m->type;
    e->attention = calloc((size_t)m->n_layers, sizeof *e->attention);
    if (!e->attention)
        return no_memory(why, "the layers");
    heed_status status = HEED_OK;
    for (int64_t i = 0; i < m->n_layers && status == HEED_OK; i++) {
        desc.qkv_proj = m->layers[i].qkv;
        desc.out_proj = m->layers[i].out;
        status = pass_on(heed_mha_create(m->context, &desc, &e->attention[i]), why);
    }
    return status;
}

static heed_status allocate(encoder *e, size_t rows, uint32_t n_parts, heed_error *why)
{
    const model *m = e->m;
    for (int64_t i = 0; i < m->n_layers; i++) {
        const size_t bytes[] = {heed_mha_workspace_bytes(e->attention[i], n_parts),
                                heed_linear_workspace_bytes(m->layers[i].up, n_parts),
                                heed_linear_workspace_bytes(m->layers[i].down, n_parts)};
        for (size_t k = 0; k < sizeof bytes / sizeof bytes[0]; k++)
            if (bytes[k] > e->workspace_bytes)
                e->workspace_bytes = bytes[k];
    }
    e->x = aligned(rows * (size_t)m->width * e->element);
    e->inner = aligned(rows * (size_t)m->inner * e->element);
    e->row = aligned(2 * (size_t)m->width * sizeof *e->row);
    e->workspace = aligned(e->workspace_bytes);
    return e->x && e->inner && e->row && e->workspace ? HEED_OK : no_memory(why, "a batch");
}

heed_status encoder_create(const model *m, int64_t rows, uint32_t n_parts, int weights,
                           encoder **out, heed_error *why)
{
    encoder *e = calloc(1, sizeof *e);
    if (!e)
        return no_memory(why, "an encoder");
    e->m = m;
    e->element = m->type == HEED_F32 ? 4 : 2;
    e->serial = (heed_executor){sizeof e->serial, NULL, 1, 0, run_here};
    e->executor = n_parts == 1 ? &e->serial : NULL;
    heed_status status = create_attention(e, rows, weights, why);
    if (status == HEED_OK)
        status = allocate(e, (size_t)rows, n_parts, why);
    if (status != HEED_OK) {
        encoder_free(e);
        return status;
    }
    *out = e;
    return HEED_OK;
}

void encoder_free(encoder *e)
{
    if (!e)
        return;
    for (int64_t i = 0; e->attention && i < e->m->n_layers; i++)
        heed_mha_release(e->attention[i]);
    free(e->attention);
    free(e->x);
    free(e->inner);
    free(e->row);
    free(e->workspace);
    free(e);
}

/* x = LayerNorm(x) */
static void normalise(encoder *e, int64_t rows, const model_norm *norm)
{
    int64_t width = e->m->width;
    for (int64_t r = 0; r < rows; r++) {
        char *at = e->x + (size_t)(r * width) * e->element;
        load_row(e->m->type, at, width, e->row);
        layer_norm(e->row, width, norm->weight, norm->bias, e->m->eps, e->row);
        store_row(e->m->type, e->row, width, at);
    }
}

/* x = LayerNorm(word + segment + place) */
static void look_up(encoder *e, const batch *b)
{
    const model *m = e->m;
    float *row = e->row, *part = e->row + m->width;
    for (int32_t i = 0; i < b->n; i++)
        for (int32_t place = 0; place < b->lens[i]; place++) {
            int64_t r = b->starts[i] + place;
            const tensor *table[] = {m->words, m->segments, m->places};
            const int64_t index[] = {b->ids[r], 0, place};
            memset(row, 0, (size_t)m->width * sizeof *row);
            for (int t = 0; t < 3; t++) {
                tensor_to_f32(table[t], index[t] * m->width, m->width, part);
                for (int64_t c = 0; c < m->width; c++)
                    row[c] += part[c];
            }
            store_row(m->type, row, m->width, e->x + (size_t)(r * m->width) * e->element);
        }
    normalise(e, b->rows, &m->embedding_norm);
}

/* x = x + attention, where each text attends to itself. weights is NULL, or [heads, rows, rows] for
 * a batch of one text. */
static heed_status attend(encoder *e, int64_t layer, const batch *b, float *weights,
                          heed_error *why)
{
    const int64_t width = e->m->width, rows = b->rows;
    heed_mha_args args = {.struct_size = sizeof args,
                          .batch = b->n,
                          .q_len = b->longest,
                          .x_q = {e->x, {0, width, 1}},
                          .y = {e->x, {0, width, 1}},
                          .residual = {e->x, {0, width, 1}},
                          .q_lens = b->lens,
                          .q_starts = b->starts,
                          .executor = e->executor,
                          .error = why};
    if (weights)
        args.weights = (heed_view){weights, {0, rows * rows, rows, 1}};
    return heed_mha_run(e->attention[layer], &args, e->workspace, e->workspace_bytes);
}

static heed_status run_layer(encoder *e, int64_t index, const batch *b, float *weights,
                             heed_error *why)
{
    const model_layer *layer = &e->m->layers[index];
    const int64_t w = e->m->width, inner = e->m->inner;
    const linear_run run = {b->rows, e->executor, e->workspace, e->workspace_bytes, why};
    heed_status status = attend(e, index, b, weights, why);
    if (status != HEED_OK)
        return status;
    normalise(e, b->rows, &layer->after_attention);
    status = linear_rows(layer->up, &run, e->x, w, e->inner, inner, NULL);
    if (status == HEED_OK)
        status = linear_rows(layer->down, &run, e->inner, inner, e->x, w, e->x);
    if (status == HEED_OK)
        normalise(e, b->rows, &layer->after_inner);
    return status;
}

/* The mean of the rows of a text, scaled to length 1. The smallest length to divide by is that of
 * torch's normalize. */
static void pool(encoder *e, const batch *b, int32_t text, float *out)
{
    int64_t width = e->m->width;
    memset(out, 0, (size_t)width * sizeof *out);
    for (int32_t i = 0; i < b->lens[text]; i++) {
        load_row(e->m->type, e->x + (size_t)((b->starts[text] + i) * width) * e->element, width,
                 e->row);
        for (int64_t c = 0; c < width; c++)
            out[c] += e->row[c];
    }
    for (int64_t c = 0; c < width; c++)
        out[c] /= (float)b->lens[text];
    float length = fmaxf(sqrtf(dot(out, out, width)), 1e-12f);
    for (int64_t c = 0; c < width; c++)
        out[c] /= length;
}

heed_status encoder_embed(encoder *e, const batch *b, float *embeddings, heed_error *why)
{
    heed_status status = HEED_OK;
    look_up(e, b);
    for (int64_t i = 0; i < e->m->n_layers && status == HEED_OK; i++)
        status = run_layer(e, i, b, NULL, why);
    for (int32_t i = 0; i < b->n && status == HEED_OK; i++)
        pool(e, b, i, embeddings + i * e->m->width);
    return status;
}

heed_status encoder_weights(encoder *e, const batch *b, int64_t layer, float *weights,
                            heed_error *why)
{
    heed_status status = HEED_OK;
    look_up(e, b);
    for (int64_t i = 0; i <= layer && status == HEED_OK; i++)
        status = run_layer(e, i, b, weights, why); /* those of the last layer remain */
    return status;
}
