/* See pack.h. Codes travel as they are: whole blocks of a row. */
#include "pack.h"

#include <heed/kit.h>

#include "base/checked.h"
#include "base/reason.h"
#include "base/rows.h"

/* A tensor of a rank: where its rows lie. */
typedef struct source {
    heed_const_view view;
    uint32_t type;
    int64_t heads, dim;
    const int32_t *starts; /* NULL: not packed */
    const int32_t *table;  /* NULL: not in pages */
    int64_t table_stride, page_len;
} source;

static int64_t row_at(const source *s, int64_t b, int64_t j)
{
    const int64_t *stride = s->view.stride;
    if (s->table)
        return s->table[b * s->table_stride + j / s->page_len] * stride[0] +
               j % s->page_len * stride[2];
    return heed_row_at(stride, s->starts, b, j);
}

static void copy_row(const source *s, int64_t at, char *to)
{
    const int64_t *stride = s->view.stride;
    const size_t bytes = (size_t)heed_offset_bytes(s->type, s->dim);
    const char *from = (const char *)s->view.data + heed_offset_bytes(s->type, at);
    for (int64_t h = 0; h < s->heads; h++, to += bytes) {
        const char *row = from + heed_offset_bytes(s->type, h * stride[1]);
        if (stride[3] == 1 || heed_block_len(s->type) > 1) { /* blocks lie behind each other */
            memcpy(to, row, bytes);
            continue;
        }
        const size_t each = (size_t)heed_dtype_bytes(s->type);
        for (int64_t d = 0; d < s->dim; d++)
            memcpy(to + (size_t)d * each, row + heed_offset_bytes(s->type, d * stride[3]), each);
    }
}

/* What is copied, for all sequences. first: partition.key_first or row_first. */
typedef struct copying {
    const heed_shape *shape;
    const source *from;
    const int32_t *first;
    char *to;
} copying;

static void copy_tokens(void *arg, int64_t first, int64_t end)
{
    const copying *c = arg;
    const heed_shape *s = c->shape;
    const source *from = c->from;
    const int64_t bytes = from->heads * heed_offset_bytes(from->type, from->dim);
    for (int64_t b = 0, token = 0, n; b < s->batch && token < end; b++, token += n) {
        n = heed_held_before(s, c->first, b, s->rank, s->part.n_parts);
        for (int64_t j = heed_max64(0, first - token); j < heed_min64(n, end - token); j++)
            copy_row(from, row_at(from, b, j), c->to + (token + j) * bytes);
    }
}

static void copy(const heed_group_call *call, const source *s, const int32_t *first, char *to)
{
    copying c = {&call->shape, s, first, to};
    const int64_t bytes = (int64_t)heed_offset_bytes(s->type, s->dim);
    heed_crew_do(&call->crew, heed_held(&call->shape, first, call->shape.rank),
                 s->heads * heed_copy_nanoseconds(bytes), copy_tokens, &c);
}

heed_status heed_pack_check(const heed_group_call *call, heed_error *why)
{
    const heed_shape *s = &call->shape;
    const heed_attn_args *a = &call->args;
    for (int64_t b = 0; b < s->batch && a->block_table; b++) {
        const int64_t n = heed_held_before(s, s->part.key_first, b, s->rank, s->part.n_parts);
        for (int64_t i = 0; i * s->desc->page_len < n; i++) {
            const int32_t page = a->block_table[b * a->block_table_stride + i];
            if (page < 0 || page >= a->n_pages)
                INVALID("args.block_table[%lld][%lld] is %d, 0 to args.n_pages - 1 = %lld "
                        "is required: with HEED_GROUP_RING all keys travel",
                        (long long)b, (long long)i, page, (long long)a->n_pages - 1);
        }
    }
    return HEED_OK;
}

void heed_pack_keys(const heed_group_call *call, char *to)
{
    const heed_shape *s = &call->shape;
    const heed_attn_desc *d = s->desc;
    const heed_attn_args *a = &call->args;
    const int64_t tokens = heed_held(s, s->part.key_first, s->rank);
    source k = {.view = a->k,
                .type = d->k_type,
                .heads = d->kv_heads,
                .dim = d->qk_dim,
                .starts = a->kv_starts,
                .table = a->block_table,
                .table_stride = a->block_table_stride,
                .page_len = d->page_len};
    copy(call, &k, s->part.key_first, to);
    k.view = a->v;
    k.type = d->v_type;
    k.dim = d->v_dim;
    copy(call, &k, s->part.key_first, to + heed_values_at(d, tokens));
}

void heed_pack_rows(const heed_group_call *call, char *to)
{
    const heed_attn_desc *d = call->shape.desc;
    const source q = {.view = call->args.q,
                      .type = d->q_type,
                      .heads = d->q_heads,
                      .dim = d->qk_dim,
                      .starts = call->args.q_starts};
    copy(call, &q, call->shape.part.row_first, to);
}
