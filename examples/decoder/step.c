/* One step of the decoder. The rows of all sequences lie behind each other: the linear layers see
 * rows only, attention and the cache learn by starts and lengths whose they are. */
#include "step.h"

#include <stdlib.h>
#include <string.h>

#include "../common/rows.h"
#include "../common/weights.h"

struct stepper {
    const llama *m;
    cache *c;
    heed_plan *plan;
    int64_t most_rows, most_batch, table_stride;
    size_t element;          /* bytes of a number */
    char *x, *normed;        /* [rows, width]: the hidden states, and what a norm makes of them */
    char *qkv, *mixed;       /* [rows, heads + 2 kv_heads, head_dim]; [rows, heads, head_dim] */
    char *gate, *up;         /* [rows, inner] */
    float *row, *other;      /* numbers of one row, as f32 */
    int32_t *starts, *lens;  /* of each sequence's rows */
    int32_t *before, *after; /* its keys before the step and after it */
    int32_t *table;          /* [batch, table_stride] */
    void *workspace;
    size_t workspace_bytes;
};

static void *aligned(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

static size_t workspace_need(const stepper *s, uint32_t n_parts)
{
    const llama *m = s->m;
    size_t need = heed_plan_workspace_bytes(s->plan, n_parts);
    for (int64_t i = -1; i < m->n_layers; i++) {
        const llama_layer *l = i < 0 ? NULL : &m->layers[i];
        const heed_linear *linears[] = {l ? l->qkv : m->head, l ? l->out : m->head,
                                        l ? l->gate : m->head, l ? l->up : m->head,
                                        l ? l->down : m->head};
        for (size_t k = 0; k < sizeof linears / sizeof linears[0]; k++) {
            size_t bytes = heed_linear_workspace_bytes(linears[k], n_parts);
            need = bytes > need ? bytes : need;
        }
    }
    return need;
}

static heed_status allocate(stepper *s, heed_error *why)
{
    const llama *m = s->m;
    size_t rows = (size_t)s->most_rows, batch = (size_t)s->most_batch;
    size_t width = (size_t)m->width, inner = (size_t)m->inner, q = (size_t)(m->heads * m->head_dim);
    size_t qkv = q + 2 * (size_t)(m->kv_heads * m->head_dim);
    size_t widest = width > inner ? width : inner;
    s->workspace_bytes = workspace_need(s, m->n_threads);
    s->x = aligned(rows * width * s->element);
    s->normed = aligned(rows * width * s->element);
    s->qkv = aligned(rows * qkv * s->element);
    s->mixed = aligned(rows * q * s->element);
    s->gate = aligned(rows * inner * s->element);
    s->up = aligned(rows * inner * s->element);
    s->row = aligned(2 * widest * sizeof *s->row);
    s->other = s->row ? s->row + widest : NULL;
    s->starts = aligned(batch * (4 + (size_t)s->table_stride) * sizeof *s->starts);
    s->workspace = aligned(s->workspace_bytes);
    if (!s->x || !s->normed || !s->qkv || !s->mixed || !s->gate || !s->up || !s->row ||
        !s->starts || !s->workspace)
        return no_memory(why, "a step");
    s->lens = s->starts + batch;
    s->before = s->lens + batch;
    s->after = s->before + batch;
    s->table = s->after + batch;
    return HEED_OK;
}

heed_status stepper_create(const llama *m, cache *c, int64_t rows, int64_t batch, int64_t positions,
                           int reproducible, stepper **out, heed_error *why)
{
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           .features =
                               HEED_HAS_LENS | HEED_HAS_PACKED | HEED_HAS_PAGES | HEED_HAS_CAUSAL,
                           .position = HEED_POS_BOTTOM_RIGHT};
    stepper *s = calloc(1, sizeof *s);
    if (!s)
        return no_memory(why, "a step");
    s->m = m;
    s->c = c;
    s->most_rows = rows;
    s->most_batch = batch;
    s->table_stride = (positions + c->page_len - 1) / c->page_len;
    s->element = m->type == HEED_F32 ? 4 : 2;
    if (reproducible)
        desc.features |= HEED_HAS_REPRODUCIBLE_CHUNKS;
    desc.q_heads = (uint32_t)m->heads;
    desc.kv_heads = (uint32_t)m->kv_heads;
    desc.qk_dim = desc.v_dim = (uint32_t)m->head_dim;
    desc.q_type = desc.k_type = desc.v_type = desc.out_type = m->type;
    desc.page_len = (uint32_t)c->page_len;
    desc.max_batch = batch;
    desc.max_q_len = desc.max_rows = rows;
    desc.max_kv_len = positions;
    heed_status status = heed_plan_create(m->context, &desc, &s->plan);
    if (status == HEED_OK)
        status = allocate(s, why);
    else
        refuse(why, "%s", heed_last_error());
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
    heed_plan_release(s->plan);
    free(s->x);
    free(s->normed);
    free(s->qkv);
    free(s->mixed);
    free(s->gate);
    free(s->up);
    free(s->row);
    free(s->starts);
    free(s->workspace);
    free(s);
}

/* normed = RMSNorm(x) of rows */
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

/* Writes down whose rows lie where, gives the sequences their pages and looks the tokens up. */
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

/* Turns `heads` heads of the qkv rows by their positions. */
static heed_status rotate(stepper *s, int32_t batch, int32_t rows, int32_t longest, char *data,
                          int64_t heads, heed_error *why)
{
    const llama *m = s->m;
    const heed_view view = {data, {0, m->head_dim, (m->heads + 2 * m->kv_heads) * m->head_dim, 1}};
    const heed_rotary_args args = {.struct_size = sizeof args,
                                   .rotary = {.style = HEED_ROTARY_HALF,
                                              .dims = (uint32_t)m->head_dim,
                                              .base = (float)m->rope_base},
                                   .batch = batch,
                                   .len = longest,
                                   .heads = (uint32_t)heads,
                                   .dim = (uint32_t)m->head_dim,
                                   .x_type = m->type,
                                   .y_type = m->type,
                                   .x = view,
                                   .y = view,
                                   .offsets = s->before,
                                   .lens = s->lens,
                                   .starts = s->starts,
                                   .rows = rows,
                                   .error = why};
    return heed_rotary(&args);
}

/* mixed = attention of the new rows over the cache, to which their keys and values are appended. */
static heed_status attend(stepper *s, int64_t layer, int32_t batch, int32_t rows, int32_t longest,
                          heed_error *why)
{
    const llama *m = s->m;
    const cache *c = s->c;
    int64_t dim = m->head_dim, row = (m->heads + 2 * m->kv_heads) * dim, most = 0;
    char *q = s->qkv, *k = q + (size_t)(m->heads * dim) * s->element;
    char *v = k + (size_t)(m->kv_heads * dim) * s->element;
    const int64_t page = m->kv_heads * c->page_len * dim;
    const heed_view keys = {c->keys[layer], {page, c->page_len * dim, dim, 1}};
    const heed_view values = {c->values[layer], {page, c->page_len * dim, dim, 1}};
    for (int32_t b = 0; b < batch; b++)
        most = s->after[b] > most ? s->after[b] : most;

    heed_status status = rotate(s, batch, rows, longest, q, m->heads, why);
    if (status == HEED_OK)
        status = rotate(s, batch, rows, longest, k, m->kv_heads, why);
    if (status != HEED_OK)
        return status;
    const heed_kv_append_args append = {.struct_size = sizeof append,
                                        .batch = batch,
                                        .len = longest,
                                        .capacity = s->table_stride * c->page_len,
                                        .kv_heads = (uint32_t)m->kv_heads,
                                        .qk_dim = (uint32_t)dim,
                                        .v_dim = (uint32_t)dim,
                                        .page_len = (uint32_t)c->page_len,
                                        .k_type = m->type,
                                        .v_type = m->type,
                                        .k_cache_type = m->type,
                                        .v_cache_type = m->type,
                                        .k = {k, {0, dim, row, 1}},
                                        .v = {v, {0, dim, row, 1}},
                                        .k_cache = keys,
                                        .v_cache = values,
                                        .lens = s->lens,
                                        .starts = s->starts,
                                        .cache_lens = s->before,
                                        .block_table = s->table,
                                        .block_table_stride = s->table_stride,
                                        .n_pages = c->n_pages,
                                        .rows = rows,
                                        .error = why};
    status = heed_kv_append(&append);
    if (status != HEED_OK)
        return status;
    const heed_attn_args args = {.struct_size = sizeof args,
                                 .batch = batch,
                                 .q_len = longest,
                                 .kv_len = most,
                                 .q = {q, {0, dim, row, 1}},
                                 .k = keys,
                                 .v = values,
                                 .out = {s->mixed, {0, dim, m->heads * dim, 1}},
                                 .q_lens = s->lens,
                                 .kv_lens = s->after,
                                 .q_starts = s->starts,
                                 .block_table = s->table,
                                 .block_table_stride = s->table_stride,
                                 .n_pages = c->n_pages,
                                 .error = why};
    return heed_plan_run(s->plan, &args, s->workspace, s->workspace_bytes);
}

static heed_status run_layer(stepper *s, int64_t index, int32_t batch, int32_t rows,
                             int32_t longest, heed_error *why)
{
    const llama *m = s->m;
    const llama_layer *l = &m->layers[index];
    const linear_run run = {rows, NULL, s->workspace, s->workspace_bytes, why};
    int64_t w = m->width, q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    normalise(s, rows, l->attention_norm);
    heed_status status = linear_rows(l->qkv, &run, s->normed, w, s->qkv, q + 2 * kv, NULL);
    if (status == HEED_OK)
        status = attend(s, index, batch, rows, longest, why);
    if (status == HEED_OK)
        status = linear_rows(l->out, &run, s->mixed, q, s->x, w, s->x);
    if (status != HEED_OK)
        return status;
    normalise(s, rows, l->inner_norm);
    status = linear_rows(l->gate, &run, s->normed, w, s->gate, m->inner, NULL);
    if (status == HEED_OK)
        status = linear_rows(l->up, &run, s->normed, w, s->up, m->inner, NULL);
    if (status != HEED_OK)
        return status;
    multiply(s, rows);
    return linear_rows(l->down, &run, s->gate, m->inner, s->x, w, s->x);
}

/* Leaves of x only the last row of each sequence. */
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
