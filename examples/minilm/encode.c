/* The encoder itself: embeddings, layers of attention and of two linear layers with a GELU between
 * them, each followed by a LayerNorm of its sum with what it began from; then the mean.
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
    heed_plan *plan;
    heed_executor serial;
    const heed_executor *executor; /* NULL: Heed's own threads */
    size_t element;                /* bytes of a number */
    char *x;                       /* [rows, width], the hidden states */
    char *qkv;                     /* [rows, 3 width]: query, key and value side by side */
    char *mixed;                   /* [rows, width], what attention makes of the values */
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

static heed_attn_desc describe(const model *m)
{
    heed_attn_desc desc = {.struct_size = sizeof desc, .features = HEED_HAS_LENS | HEED_HAS_PACKED};
    desc.q_heads = desc.kv_heads = (uint32_t)m->heads;
    desc.qk_dim = desc.v_dim = (uint32_t)(m->width / m->heads);
    desc.q_type = desc.k_type = desc.v_type = desc.out_type = m->type;
    return desc;
}

static void *aligned(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

static heed_status allocate(encoder *e, size_t rows, uint32_t n_parts, heed_error *why)
{
    const model *m = e->m;
    size_t need = heed_plan_workspace_bytes(e->plan, n_parts);
    for (int64_t i = 0; i < m->n_layers; i++) {
        const heed_linear *linears[] = {m->layers[i].qkv, m->layers[i].out, m->layers[i].up,
                                        m->layers[i].down};
        for (size_t l = 0; l < sizeof linears / sizeof linears[0]; l++) {
            size_t bytes = heed_linear_workspace_bytes(linears[l], n_parts);
            need = bytes > need ? bytes : need;
        }
    }
    e->x = aligned(rows * (size_t)m->width * e->element);
    e->qkv = aligned(rows * 3 * (size_t)m->width * e->element);
    e->mixed = aligned(rows * (size_t)m->width * e->element);
    e->inner = aligned(rows * (size_t)m->inner * e->element);
    e->row = aligned(2 * (size_t)m->width * sizeof *e->row);
    e->workspace = aligned(need);
    e->workspace_bytes = need;
    return e->x && e->qkv && e->mixed && e->inner && e->row && e->workspace
               ? HEED_OK
               : no_memory(why, "a batch");
}

heed_status encoder_create(const model *m, int64_t rows, uint32_t n_parts, encoder **out,
                           heed_error *why)
{
    heed_attn_desc desc = describe(m);
    encoder *e = calloc(1, sizeof *e);
    if (!e)
        return no_memory(why, "an encoder");
    e->m = m;
    e->element = m->type == HEED_F32 ? 4 : 2;
    e->serial = (heed_executor){sizeof e->serial, NULL, 1, 0, run_here};
    e->executor = n_parts == 1 ? &e->serial : NULL;
    desc.max_batch = rows / 2; /* no text has fewer tokens */
    desc.max_q_len = desc.max_kv_len = m->most_tokens;
    desc.max_rows = rows;
    heed_status status = heed_plan_create(m->context, &desc, &e->plan);
    if (status == HEED_OK)
        status = allocate(e, (size_t)rows, n_parts, why);
    else
        refuse(why, "%s", heed_last_error());
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
    heed_plan_release(e->plan);
    free(e->x);
    free(e->qkv);
    free(e->mixed);
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

/* Each text attends to itself. weights: [heads, rows, rows] of the only text, or NULL. */
static heed_status attend(encoder *e, const batch *b, float *weights, heed_error *why)
{
    const model *m = e->m;
    int64_t dim = m->width / m->heads, row = 3 * m->width;
    size_t width = (size_t)m->width * e->element;
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = b->n,
                           .q_len = b->longest,
                           .kv_len = b->longest,
                           .q = {e->qkv, {0, dim, row, 1}},
                           .k = {e->qkv + width, {0, dim, row, 1}},
                           .v = {e->qkv + 2 * width, {0, dim, row, 1}},
                           .out = {e->mixed, {0, dim, m->width, 1}},
                           .q_lens = b->lens,
                           .kv_lens = b->lens,
                           .q_starts = b->starts,
                           .kv_starts = b->starts,
                           .executor = e->executor,
                           .error = why};
    if (!weights)
        return heed_plan_run(e->plan, &args, e->workspace, e->workspace_bytes);

    heed_attn_desc desc = describe(m);
    desc.features |= HEED_HAS_WEIGHTS;
    desc.max_rows = b->rows;
    args.weights = (heed_view){weights, {0, (int64_t)b->rows * b->rows, b->rows, 1}};
    return heed_attention(m->context, &desc, &args);
}

static heed_status run_layer(encoder *e, const model_layer *layer, const batch *b, float *weights,
                             heed_error *why)
{
    int64_t w = e->m->width, inner = e->m->inner, rows = b->rows;
    const linear_run run = {rows, e->executor, e->workspace, e->workspace_bytes, why};
    heed_status status = linear_rows(layer->qkv, &run, e->x, w, e->qkv, 3 * w, NULL);
    if (status == HEED_OK)
        status = attend(e, b, weights, why);
    if (status == HEED_OK)
        status = linear_rows(layer->out, &run, e->mixed, w, e->x, w, e->x);
    if (status != HEED_OK)
        return status;
    normalise(e, rows, &layer->after_attention);
    status = linear_rows(layer->up, &run, e->x, w, e->inner, inner, NULL);
    if (status == HEED_OK)
        status = linear_rows(layer->down, &run, e->inner, inner, e->x, w, e->x);
    if (status == HEED_OK)
        normalise(e, rows, &layer->after_inner);
    return status;
}

/* The mean of a text's rows, at length 1. Source of the smallest length: torch's normalize. */
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
        status = run_layer(e, &e->m->layers[i], b, NULL, why);
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
        status = run_layer(e, &e->m->layers[i], b, i == layer ? weights : NULL, why);
    return status;
}
