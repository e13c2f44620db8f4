/* A step of the decoder. The rows of all sequences follow one another: linear layers need only the
 * rows, while attention and the cache know by starts and lengths to which sequence they belong. */
#include "step.h"

#include <heed/formats.h>
#include <stdlib.h>
#include <string.h>

#include "../common/rows.h"
#include "../common/weights.h"

struct stepper {
    const llama *m;
    cache *c;
    heed_mha **attention; /* projections, rotation, cache and attention of each layer */
    int64_t most_rows, most_batch, table_stride;
    size_t element;     /* the bytes of a number */
    char *x, *normed;   /* [rows, width]: the hidden states, and their normalised form */
    char *gate, *up;    /* [rows, inner] */
    float *row, *other; /* one row each, as f32 */
    int32_t *starts, *lens, *before, *after; /* of each sequence: rows, keys before and after */
    int32_t *table;                          /* [batch, table_stride] */
    void *workspace;
    size_t workspace_bytes;
};

static size_t workspace_need(const stepper *s)
{
    const llama *m = s->m;
    size_t need = heed_linear_workspace_bytes(m->head, m->n_threads);
    for (int64_t i = 0; i < m->n_layers; i++) {
        const llama_layer *l = &m->layers[i];
        const size_t bytes[] = {heed_mha_workspace_bytes(s->attention[i], m->n_threads),
                                heed_linear_workspace_bytes(l->gate, m->n_threads),
                                heed_linear_workspace_bytes(l->up, m->n_threads),
                                heed_linear_workspace_bytes(l->down, m->n_threads)};
        for (size_t k = 0; k < sizeof bytes / sizeof bytes[0]; k++)
            need = bytes[k] > need ? bytes[k] : need;
    }
    return need;
}

static heed_status allocate(stepper *s, heed_error *why)
{
    const llama *m = s->m;
    size_t rows = (size_t)s->most_rows, batch = (size_t)s->most_batch;
    size_t width = (size_t)m->width, inner = (size_t)m->inner;
    size_t widest = width > inner ? width : inner;
    s->workspace_bytes = workspace_need(s);
    s->x = aligned(rows * width * s->element);
    s->normed = aligned(rows * width * s->element);
    s->gate = aligned(rows * inner * s->element);
    s->up = aligned(rows * inner * s->element);
    s->row = aligned(2 * widest * sizeof *s->row);
    s->starts = aligned(batch * (4 + (size_t)s->table_stride) * sizeof *s->starts);
    s->workspace = aligned(s->workspace_bytes);
    if (!s->x || !s->normed || !s->gate || !s->up || !s->row || !s->starts || !s->workspace)
        return no_memory(why, "a step");
    s->other = s->row + widest;
    s->lens = s->starts + batch;
    s->before = s->lens + batch;
    s->after = s->before + batch;
    s->table = s->after + batch;
    return HEED_OK;
}

/* Makes the attention layers, for the largest step. */
static heed_status create_attention(stepper *s, int reproducible, heed_error *why)
{
    const llama *m = s->m;
    heed_attn_desc attn = {.struct_size = sizeof attn,
                           .features =
                               HEED_HAS_LENS | HEED_HAS_PACKED | HEED_HAS_PAGES | HEED_HAS_CAUSAL,
                           .position = HEED_POS_BOTTOM_RIGHT};
    if (reproducible)
        attn.features |= HEED_HAS_REPRODUCIBLE_CHUNKS;
    attn.q_heads = (uint32_t)m->heads;
    attn.kv_heads = (uint32_t)m->kv_heads;
    attn.qk_dim = attn.v_dim = (uint32_t)m->head_dim;
    attn.q_type = attn.out_type = m->type;
    attn.k_type = attn.v_type = s->c->type;
    if (heed_takes_scale(s->c->type))
        attn.features |= HEED_HAS_QUANT;
    attn.page_len = (uint32_t)s->c->page_len;
    attn.max_batch = s->most_batch;
    attn.max_q_len = attn.max_rows = s->most_rows;
    attn.max_kv_len = s->table_stride * s->c->page_len;
    heed_mha_desc desc = {
        .struct_size = sizeof desc, .features = HEED_MHA_HAS_CACHE, .attn = &attn};
    desc.d_model = (uint32_t)m->width;
    desc.x_type = m->type;
    desc.rotary.style = HEED_ROTARY_HALF;
    desc.rotary.dims = (uint32_t)m->head_dim;
    desc.rotary.base = (float)m->rope_base;
    s->attention = calloc((size_t)m->n_layers, sizeof *s->attention);
    if (!s->attention)
        return no_memory(why, "the layers");
    heed_status status = HEED_OK;
    for (int64_t i = 0; i < m->n_layers && status == HEED_OK; i++) {
        desc.qkv_proj = m->layers[i].qkv;
        desc.out_proj = m->layers[i].out;
        status = pass_on(heed_mha_create(m->context, &desc, &s->attention[i]), why);
    }
    return status;
}

heed_status stepper_create(const llama *m, cache *c, int64_t rows, int64_t batch, int64_t positions,
                           int reproducible, stepper **out, heed_error *why)
{
    stepper *s = calloc(1, sizeof *s);
    if (!s)
        return no_memory(why, "a step");
    s->m = m;
    s->c = c;
    s->most_rows = rows;
    s->most_batch = batch;
    s->table_stride = (positions + c->page_len - 1) / c->page_len;
    s->element = m->type == HEED_F32 ? 4 : 2;
    heed_status status = create_attention(s, reproducible, why);
    if (status == HEED_OK)
        status = allocate(s, why);
    if (status != HEED_OK) {
        stepper_free(s);
        return status;
    }
    *out = s;
    return HEED_OK;
}

void stepper_free(stepper *s)
{
    if (!s)
        return;
    for (int64_t i = 0; s->attention && i < s->m->n_layers; i++)
        heed_mha_release(s->attention[i]);
    free(s->attention);
    free(s->x);
    free(s->normed);
    free(s->gate);
    free(s->up);
    free(s->row);
    free(s->starts);
    free(s->workspace);
    free(s);
}

/* normed = RMSNorm(x), for each row */
static void normalise(stepper *s, int64_t rows, const float *weight)
{
    int64_t width = s->m->width;
    size_t bytes = (size_t)width * s->element;
    for (int64_t r = 0; r < rows; r++) {
        load_row(s->m->type, s->x + (size_t)r * bytes, width, s->row);
        rms_norm(s->row, width, weight, s->m->eps, s->row);
        store_row(s->m->type, s->row, width, s->normed + (size_t)r * bytes);
    }
}

/* gate = gate * up */
static void multiply(stepper *s, int64_t rows)
{
    int64_t inner = s->m->inner;
    size_t bytes = (size_t)inner * s->element;
    for (int64_t r = 0; r < rows; r++) {
        load_row(s->m->type, s->gate + (size_t)r * bytes, inner, s->row);
        load_row(s->m->type, s->up + (size_t)r * bytes, inner, s->other);
        for (int64_t i = 0; i < inner; i++)
            s->row[i] *= s->other[i];
        store_row(s->m->type, s->row, inner, s->gate + (size_t)r * bytes);
    }
}

/* Sets the places of the rows of each sequence, gives the sequences their pages and looks up the
 * tokens. */
static heed_status lay_out(stepper *s, const turn *turns, int32_t batch, int32_t *rows,
                           int32_t *longest, heed_error *why)
{
    const llama *m = s->m;
    *rows = *longest = 0;
    for (int32_t b = 0; b < batch; b++) {
        const turn *t = &turns[b];
        int64_t length = (int64_t)t->s->length + t->n;
        if (b >= s->most_batch || t->n < 1 || t->n > s->most_rows - *rows ||
            length > s->table_stride * s->c->page_len || length > m->positions)
            return refuse(why, "a step of more tokens or sequences than it was made for");
        heed_status status = cache_reserve(s->c, t->s, length, why);
        if (status != HEED_OK)
            return status;
        s->starts[b] = *rows;
        s->lens[b] = t->n;
        s->before[b] = t->s->length;
        s->after[b] = (int32_t)length;
        memcpy(s->table + b * s->table_stride, t->s->pages,
               (size_t)t->s->n_pages * sizeof *s->table);
        for (int32_t i = 0; i < t->n; i++, ++*rows) {
            if (t->tokens[i] < 0 || t->tokens[i] >= m->vocabulary_size)
                return refuse(why, "token %d is none of the model's %lld", (int)t->tokens[i],
                              (long long)m->vocabulary_size);
            tensor_to_f32(m->words, t->tokens[i] * m->width, m->width, s->row);
            store_row(m->type, s->row, m->width, s->x + (size_t)(*rows * m->width) * s->element);
        }
        *longest = t->n > *longest ? t->n : *longest;
    }
    return HEED_OK;
}

/* x = x + attention, of the new rows over the cache, after their keys and values are appended to
 * it. */
static heed_status attend(stepper *s, int64_t layer, int32_t batch, int32_t longest,
                          heed_error *why)
{
    const llama *m = s->m;
    const cache *c = s->c;
    const int64_t row = m->head_dim, head = c->page_len * row, page = m->kv_heads * head;
    heed_mha_args args = {.struct_size = sizeof args,
                          .batch = batch,
                          .q_len = longest,
                          .capacity = s->table_stride * c->page_len,
                          .x_q = {s->normed, {0, m->width, 1}},
                          .y = {s->x, {0, m->width, 1}},
                          .residual = {s->x, {0, m->width, 1}},
                          .k_cache = {c->keys[layer], {page, head, row, 1}},
                          .v_cache = {c->values[layer], {page, head, row, 1}},
                          .q_lens = s->lens,
                          .q_starts = s->starts,
                          .cache_lens = s->before,
                          .block_table = s->table,
                          .block_table_stride = s->table_stride,
                          .n_pages = c->n_pages,
                          .error = why};
    if (heed_takes_scale(c->type)) { /* every new row of a head gets its own scale */
        const int64_t n = c->n_pages * m->kv_heads * c->page_len;
        float *scales = c->scales[layer];
        args.append = HEED_APPEND_FRESH_SCALES;
        args.k_quant = (heed_quant_out){
            scales, scales + n, {m->kv_heads * c->page_len, c->page_len, 1, 0}, 0, 0};
        args.v_quant = args.k_quant;
        args.v_quant.scale += 2 * n;
        args.v_quant.zero += 2 * n;
        if (c->type == HEED_F8_E4M3) /* it has no zeros */
            args.k_quant.zero = args.v_quant.zero = NULL;
    }
    return heed_mha_run(s->attention[layer], &args, s->workspace, s->workspace_bytes);
}

static heed_status run_layer(stepper *s, int64_t index, int32_t batch, int32_t rows,
                             int32_t longest, heed_error *why)
{
    const llama *m = s->m;
    const llama_layer *l = &m->layers[index];
    const linear_run run = {rows, NULL, s->workspace, s->workspace_bytes, why};
    normalise(s, rows, l->attention_norm);
    heed_status status = attend(s, index, batch, longest, why);
    if (status != HEED_OK)
        return status;
    normalise(s, rows, l->inner_norm);
    status = linear_rows(l->gate, &run, s->normed, m->width, s->gate, m->inner, NULL);
    if (status == HEED_OK)
        status = linear_rows(l->up, &run, s->normed, m->width, s->up, m->inner, NULL);
    if (status != HEED_OK)
        return status;
    multiply(s, rows);
    return linear_rows(l->down, &run, s->gate, m->inner, s->x, m->width, s->x);
}

/* Keeps only the last row of each sequence in x. */
static void keep_last(stepper *s, int32_t batch)
{
    size_t bytes = (size_t)s->m->width * s->element;
    for (int32_t b = 0; b < batch; b++)
        memmove(s->x + (size_t)b * bytes, s->x + (size_t)(s->starts[b] + s->lens[b] - 1) * bytes,
                bytes);
}

heed_status stepper_run(stepper *s, const turn *turns, int32_t batch, int every, float *logits,
                        heed_error *why)
{
    const llama *m = s->m;
    int32_t rows, longest;
    heed_status status = lay_out(s, turns, batch, &rows, &longest, why);
    for (int64_t i = 0; i < m->n_layers && status == HEED_OK; i++)
        status = run_layer(s, i, batch, rows, longest, why);
    if (status != HEED_OK)
        return status;
    if (!every) {
        keep_last(s, batch);
        rows = batch;
    }
    normalise(s, rows, m->norm);
    const linear_run run = {rows, NULL, s->workspace, s->workspace_bytes, why};
    status = linear_rows(m->head, &run, s->normed, m->width, logits, m->vocabulary_size, NULL);
    for (int32_t b = 0; b < batch && status == HEED_OK; b++)
        turns[b].s->length = s->after[b];
    return status;
}
