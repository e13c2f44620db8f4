/* The memory and the call of a rank of a test problem. See ranks.h. */
#include "ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    OF_K,
    OF_V,
    OF_Q,
    OF_MASK,
    OF_BIAS,
    OF_RANGES,
    OF_BLOCKS,
    OF_K_SCALE, /* the zeros follow */
    OF_V_SCALE = OF_K_SCALE + 2
};

static uint32_t owner_of(const ranks_case *c, uint32_t part)
{
    return c->has_owner ? c->owner[part] : part;
}

static const int32_t *firsts(const ranks_case *c, const int32_t *first, uint32_t b)
{
    return first + b * (c->n_parts + 1);
}

int64_t rank_nth(const ranks_case *c, const int32_t *first, uint32_t rank, uint32_t b, int64_t n)
{
    const int32_t *f = firsts(c, first, b);
    for (uint32_t p = 0; p < c->n_parts; p++) {
        if (owner_of(c, p) != rank)
            continue;
        if (n < f[p + 1] - f[p])
            return f[p] + n;
        n -= f[p + 1] - f[p];
    }
    return -1;
}

static int64_t held(const ranks_case *c, const int32_t *first, uint32_t rank, uint32_t b)
{
    int64_t n = 0;
    while (rank_nth(c, first, rank, b, n) >= 0)
        n++;
    return n;
}

static int64_t widest(const ranks_case *c, const int32_t *first, uint32_t rank)
{
    int64_t most = 0;
    for (uint32_t b = 0; b < c->spec.batch; b++)
        most = fmax((double)most, (double)held(c, first, rank, b));
    return most;
}

/* Where the rows that a rank has of a tensor lie: padded, packed with an unused row in front of
 * each sequence, or in pages, the last ones first. */
typedef struct row_layout {
    int packed;
    int64_t width;     /* the rows of the longest sequence, and an unused one */
    int64_t pages;     /* of a sequence; 0: it has none */
    int64_t rows;      /* in all */
    int64_t stride[4]; /* of [sequence or page, head, row, dim], in elements or blocks of them */
} row_layout;

/* Strides of [n, heads, rows, dims], where the heads of a row lie behind each other or, of every
 * second rank, the rows of a head: ranks need not have one layout. */
static void strides(int64_t to[4], uint32_t rank, int64_t heads, int64_t rows, int64_t dims)
{
    to[0] = heads * rows * dims;
    to[1] = rank % 2 ? rows * dims : dims;
    to[2] = rank % 2 ? dims : heads * dims;
    to[3] = 1;
}

static row_layout layout_of(const ranks_case *c, uint32_t rank, int which)
{
    const kit_problem *p = &c->problem;
    const int64_t batch = c->spec.batch, page_len = c->spec.page_len;
    const int64_t heads = p->tensor[which].dim[1], dims = p->tensor[which].dim[3];
    row_layout s = {.packed = which == KIT_Q ? p->q_rows > 0 : p->kv_rows > 0};
    s.width = widest(c, which == KIT_Q ? c->row_first : c->key_first, rank) + 1;
    s.pages = which != KIT_Q && p->n_pages > 0 ? s.width / page_len + 1 : 0;
    s.rows = s.pages ? batch * s.pages * page_len : batch * s.width;
    strides(s.stride, rank, heads, s.pages ? page_len : s.packed ? s.rows : s.width, dims);
    if (c->spec.layout == KIT_DIM_MAJOR && (which == KIT_Q || which == KIT_K || which == KIT_V)) {
        s.stride[1] = 1;
        s.stride[2] = heads * dims;
        s.stride[3] = heads;
    }
    return s;
}

/* Copies row `from` of sequence b to memory[to], where its first element is number `at`. */
static void copy_row(const rank_call *r, const ranks_case *c, int which, int to,
                     const int64_t stride[4], int64_t at, uint32_t b, int64_t from)
{
    const kit_problem *p = &c->problem;
    const kit_tensor *t = &p->tensor[which];
    const int is_scale = which >= KIT_K_SCALE && which <= KIT_V_ZERO;
    const int64_t group = is_scale ? kit_scaling_of(&c->spec, which >= KIT_V_SCALE).group : 0;
    for (int64_t h = 0; h < t->dim[1]; h++)
        for (int64_t d = 0; d < t->dim[3]; d++) {
            const int64_t in_buffer =
                is_scale ? kit_scale_at(p, which, b, h, from, d * group) : kit_at(t, b, h, from, d);
            memcpy(r->memory[to].data + (size_t)(at + h * stride[1] + d * stride[3]) * t->bytes,
                   p->buffer[t->buffer].data + in_buffer, t->bytes);
        }
}

/* Copies the rows that a rank has of a tensor to memory[to], and says where they begin (starts) or
 * which pages they are in (table). */
static int copy_rows(rank_call *r, const ranks_case *c, uint32_t rank, int which, int to)
{
    const row_layout s = layout_of(c, rank, which);
    const kit_tensor *t = &c->problem.tensor[which];
    const int32_t *first = which == KIT_Q ? c->row_first : c->key_first;
    const int64_t page_len = c->spec.page_len, batch = c->spec.batch;
    const size_t bytes = (size_t)(s.rows * t->dim[1] * t->dim[3]) * t->bytes;
    int32_t *starts = which == KIT_Q ? r->q_starts : r->starts;
    int64_t next = 1;
    if (guard_map(&r->memory[to], bytes, GUARD_HIGH, 0, 0xff) != 0)
        return -1;
    memset(r->memory[to].data, 0xff, r->memory[to].bytes);
    for (uint32_t b = 0; b < batch; b++) {
        const int64_t n = held(c, first, rank, b);
        starts[b] = (int32_t)next;
        for (int64_t j = 0; j < n; j++) {
            int64_t outer = s.packed ? 0 : b, row = s.packed ? next + j : j;
            if (s.pages) {
                outer = batch * s.pages - 1 - (b * s.pages + j / page_len);
                row = j % page_len;
                r->table[b * s.pages + j / page_len] = (int32_t)outer;
            }
            copy_row(r, c, which, to, s.stride, outer * s.stride[0] + row * s.stride[2], b,
                     rank_nth(c, first, rank, b, j));
        }
        next += n + 1;
    }
    return 0;
}

static heed_const_view view_of(const rank_call *r, const ranks_case *c, const row_layout *s,
                               int which, int of)
{
    const int64_t len = c->problem.tensor[which].block_len;
    heed_const_view view = {
        r->memory[of].data,
        {s->stride[0] * len, s->stride[1] * len, s->stride[2] * len, s->stride[3]}};
    if (!s->packed && !s->pages && s->width == 2)
        view.stride[2] = INT64_MAX; /* there is one row: the stride means nothing */
    return view;
}

static int take_q(rank_call *r, const ranks_case *c, uint32_t rank)
{
    const row_layout s = layout_of(c, rank, KIT_Q);
    if (copy_rows(r, c, rank, KIT_Q, OF_Q) != 0)
        return -1;
    r->args.q = view_of(r, c, &s, KIT_Q, OF_Q);
    r->args.q_starts = s.packed ? r->q_starts : NULL;
    r->args.q_len = r->desc.max_q_len = s.width - 1;
    r->desc.max_rows = s.packed ? c->spec.batch * (c->spec.q_len + 1) + 1 : 0;
    return 0;
}

/* Scales, and zeros, that each key has of its own go with the keys; others are those of the
 * problem. */
static int take_scales(rank_call *r, const ranks_case *c, uint32_t rank, heed_quant *quant,
                       int which, int to)
{
    const row_layout s = layout_of(c, rank, which);
    if (!quant->scale || !quant->stride[2])
        return 0;
    if (copy_rows(r, c, rank, which, to) != 0 ||
        (quant->zero && copy_rows(r, c, rank, which + 1, to + 1) != 0))
        return -1;
    const int64_t dim = quant->stride[3];
    memcpy(quant->stride, s.stride, sizeof quant->stride);
    quant->stride[3] = dim ? 1 : 0; /* 0: a row has one */
    quant->scale = (const float *)(const void *)r->memory[to].data;
    quant->zero = quant->zero ? (const float *)(const void *)r->memory[to + 1].data : NULL;
    return 0;
}

static int take_keys(rank_call *r, const ranks_case *c, uint32_t rank)
{
    const row_layout k = layout_of(c, rank, KIT_K), v = layout_of(c, rank, KIT_V);
    if (copy_rows(r, c, rank, KIT_K, OF_K) != 0 || copy_rows(r, c, rank, KIT_V, OF_V) != 0 ||
        take_scales(r, c, rank, &r->args.k_quant, KIT_K_SCALE, OF_K_SCALE) != 0 ||
        take_scales(r, c, rank, &r->args.v_quant, KIT_V_SCALE, OF_V_SCALE) != 0)
        return -1;
    r->args.k = view_of(r, c, &k, KIT_K, OF_K);
    r->args.v = view_of(r, c, &v, KIT_V, OF_V);
    r->args.kv_starts = k.packed ? r->starts : NULL;
    r->args.block_table = k.pages ? r->table : NULL;
    r->args.block_table_stride = k.pages;
    r->args.n_pages = c->spec.batch * k.pages;
    r->args.kv_len = r->desc.max_kv_len = k.width - 1;
    return 0;
}

/* A dense copy [batch, heads, rows, columns] of a mask, bias or list for the rows of a rank; rows
 * that broadcast go on doing so. shape: columns, and bytes of an element. */
static int copy_pairs(rank_call *r, const ranks_case *c, uint32_t rank, int to,
                      heed_const_view *view, const int64_t shape[2])
{
    const int64_t bytes = shape[1], columns = shape[0], heads = c->spec.q_heads;
    const int64_t unit = to == OF_BLOCKS ? c->spec.block_rows : 1;
    const int64_t rows = widest(c, c->row_first, rank) / unit + 1;
    const heed_const_view from = *view;
    const size_t all = (size_t)(c->spec.batch * heads * rows * columns * bytes);
    if (guard_map(&r->memory[to], all + 8, GUARD_HIGH, 0, 0xff) != 0)
        return -1;
    memset(r->memory[to].data, 0xff, all);
    char *data = (char *)r->memory[to].data;
    for (uint32_t b = 0; b < c->spec.batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < held(c, c->row_first, rank, b); i++)
                for (int64_t j = 0; j < columns && i % unit == 0; j++) {
                    const int64_t row = rank_nth(c, c->row_first, rank, b, i) / unit;
                    memcpy(data + (((b * heads + h) * rows + i / unit) * columns + j) * bytes,
                           (const char *)from.data + (b * from.stride[0] + h * from.stride[1] +
                                                      row * from.stride[2] + j * from.stride[3]) *
                                                         bytes,
                           (size_t)bytes);
                }
    *view = (heed_const_view){
        data, {heads * rows * columns, rows * columns, from.stride[2] ? columns : 0, 1}};
    return 0;
}

int ranks_own_pairs(const ranks_case *c)
{
    return c->rows_apart && c->scheme != HEED_GROUP_SPLIT;
}

/* With rows apart the rank gets its own rows of q and, with ring, of masks, biases and lists. */
static int take_rows(rank_call *r, const ranks_case *c, uint32_t rank)
{
    const kit_problem *p = &c->problem;
    heed_attn_args *a = &r->args;
    int bad = take_q(r, c, rank);
    a->q_lens = NULL;
    if (!ranks_own_pairs(c))
        return bad;
    if (a->mask.data)
        bad |=
            copy_pairs(r, c, rank, OF_MASK, &a->mask, (int64_t[]){p->tensor[KIT_MASK].dim[3], 1});
    if (a->bias.data)
        bad |= copy_pairs(r, c, rank, OF_BIAS, &a->bias,
                          (int64_t[]){p->tensor[KIT_BIAS].dim[3], p->tensor[KIT_BIAS].bytes});
    if (a->ranges.data)
        bad |= copy_pairs(r, c, rank, OF_RANGES, &a->ranges, (int64_t[]){r->desc.n_ranges, 8});
    if (a->key_blocks.data)
        bad |= copy_pairs(r, c, rank, OF_BLOCKS, &a->key_blocks,
                          (int64_t[]){(c->spec.kv_len / c->spec.block_keys + 63) / 64, 8});
    return bad;
}

/* Outputs lie as in the problem or, with rows apart, as strides() says. */
static int make_outputs(rank_call *r, const ranks_case *c, uint32_t rank)
{
    const kit_problem *p = &c->problem;
    const int64_t heads = c->spec.q_heads, dim = c->spec.v_dim;
    const int64_t rows = p->q_rows ? r->desc.max_rows : (r->args.q_len + 1) * c->spec.batch;
    const int64_t each = p->q_rows ? rows : r->args.q_len + 1;
    const int apart = (int)c->rows_apart;
    const size_t out = apart ? (size_t)(rows * heads * dim) * p->tensor[KIT_OUT].bytes
                             : p->buffer[p->tensor[KIT_OUT].buffer].bytes;
    const size_t lse =
        apart ? (size_t)(rows * heads) * 4 : p->buffer[p->tensor[KIT_LSE].buffer].bytes;
    if (guard_map(&r->out, out, GUARD_HIGH, 0, KIT_CANARY) != 0 ||
        guard_map(&r->lse, lse, GUARD_HIGH, 0, KIT_CANARY) != 0)
        return -1;
    memset(r->out.data, KIT_CANARY, out);
    memset(r->lse.data, KIT_CANARY, lse);
    if (apart) {
        r->args.out.data = r->out.data;
        strides(r->args.out.stride, rank, heads, each, dim);
        if (r->args.lse.data) {
            r->args.lse.data = r->lse.data;
            strides(r->args.lse.stride, rank, heads, each, 1);
            r->args.lse.stride[3] = 0;
        }
        return 0;
    }
    const kit_tensor *t = &p->tensor[KIT_OUT];
    r->args.out.data = r->out.data + t->first * t->bytes;
    if (r->args.lse.data)
        r->args.lse.data = r->lse.data + p->tensor[KIT_LSE].first * 4;
    return 0;
}

int rank_make(rank_call *r, const ranks_case *c, uint32_t rank)
{
    const kit_problem *p = &c->problem;
    memset(r, 0, sizeof *r);
    r->desc = p->desc;
    r->args = p->args;
    r->args.error = &r->why;
    r->args.kv_lens = NULL;
    const size_t entries = (size_t)c->spec.batch *
                           (size_t)(c->spec.kv_len / (c->spec.page_len ? c->spec.page_len : 1) + 3);
    r->table = malloc(entries * sizeof *r->table);
    if (!r->table)
        return -1;
    memset(r->table, 0x7f, entries * sizeof *r->table); /* pages that are not there */
    if (take_keys(r, c, rank) != 0 || (c->rows_apart && take_rows(r, c, rank) != 0))
        return -1;
    return make_outputs(r, c, rank);
}

void rank_free(rank_call *r)
{
    for (int i = 0; i < RANK_MEMORY; i++)
        guard_unmap(&r->memory[i]);
    guard_unmap(&r->out);
    guard_unmap(&r->lse);
    free(r->table);
}

void rank_run(rank_call *r, const ranks_case *c, heed_context *context,
              const heed_transport *transport, int how)
{
    guard_buffer workspace = {0};
    heed_attn *plan = NULL;
    r->status = heed_attn_create(context, &r->desc, &plan);
    if (r->status != HEED_OK) {
        r->why = (heed_error){""};
        strncpy(r->why.text, heed_last_error(), sizeof r->why.text - 1);
        return;
    }
    const size_t bytes = heed_group_workspace_bytes(plan, &c->partition, c->spec.batch,
                                                    transport->rank, transport->size);
    const size_t whole = how == 2 ? 256 : (bytes + 63) / 64 * 64;
    if (how != 1 && bytes && guard_map(&workspace, whole, GUARD_HIGH, 0, 0xff) == 0)
        memset(workspace.data, 0xff, workspace.bytes);
    r->status = heed_group_attention(plan, &r->args, &c->partition, transport, workspace.data,
                                     workspace.data ? whole : 0);
    guard_unmap(&workspace);
    heed_attn_release(plan);
}
