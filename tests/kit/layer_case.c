/* Builds a test layer and its memory. See layer_case.h. */
#include "layer_case.h"

#include "decode.h"
#include "encode.h"
#include "random.h"

#include <stdlib.h>

enum { PAGE = 16 };

/* ---- projections ----------------------------------------------------------------------------- */

/* Makes a linear layer of random weights with deviation 1 / sqrt(in), so that rows keep their size.
 * l->weight keeps them as rounded to the type, as [in, out] whatever the layout. */
static heed_linear *make_linear(heed_context *context, layer *l, int which, int64_t in, int64_t out,
                                uint32_t y_type, uint32_t heads, kit_outcome *outcome)
{
    const layer_spec *s = &l->spec;
    const uint32_t x_type = which == 5 ? s->mid_type : s->x_type;
    const int residual = which == 5 && s->residual;
    const int64_t each = out / heads;
    heed_linear_desc desc = {.struct_size = sizeof desc,
                             .features = (s->bias ? HEED_LINEAR_HAS_BIAS : 0) |
                                         (residual ? HEED_LINEAR_HAS_RESIDUAL : 0),
                             .in_dim = (uint32_t)in,
                             .out_dim = (uint32_t)out,
                             .x_type = x_type,
                             .w_type = s->w_type,
                             .y_type = y_type,
                             .bias_type = s->bias ? HEED_F32 : HEED_DTYPE_NONE,
                             .layout = s->out_in ? HEED_LINEAR_OUT_IN : HEED_LINEAR_IN_OUT,
                             .heads = heads > 1 ? heads : 0};
    unsigned char *stored = malloc((size_t)(in * out) * 4), *bias = malloc((size_t)out * 4);
    heed_linear *linear = NULL;
    l->weight[which] = malloc((size_t)(in * out) * sizeof(double));
    l->bias[which] = calloc((size_t)out, sizeof(double));
    if (!stored || !bias || !l->weight[which] || !l->bias[which]) {
        kit_fail(outcome, "out of memory");
        goto end;
    }
    for (int64_t i = 0; i < in; i++)
        for (int64_t c = 0; c < out; c++) {
            uint64_t bits = kit_hash(kit_hash(kit_hash(s->seed, 200 + which), i), c);
            int64_t head = c / each, column = c % each;
            int64_t at = head * in * each + (s->out_in ? column * in + i : i * each + column);
            kit_encode(s->w_type, stored, at, kit_normal(bits) / sqrt((double)in));
            l->weight[which][i * out + c] = kit_decode(s->w_type, stored, at);
        }
    for (int64_t c = 0; c < out && s->bias; c++) {
        kit_encode(HEED_F32, bias, c,
                   0.3 * kit_normal(kit_hash(kit_hash(s->seed, 210 + which), c)));
        l->bias[which][c] = reference_decode(REFERENCE_F32, bias, c);
    }
    heed_const_view weight = {stored, {s->out_in ? in : each, 1}}, bias_view = {bias, {1}};
    if (heads > 1) {
        weight.stride[2] = 1;
        weight.stride[1] = weight.stride[0];
        weight.stride[0] = in * each;
    }
    kit_status(outcome,
               heed_linear_create(context, &desc, &weight, s->bias ? &bias_view : NULL, &linear),
               heed_last_error(), "heed_linear_create");
end:
    free(stored);
    free(bias);
    return linear;
}

static int make_linears(heed_context *context, layer *l, kit_outcome *outcome)
{
    const layer_spec *s = &l->spec;
    const int64_t d_kv = s->d_kv ? s->d_kv : s->d_model;
    const int64_t q = (int64_t)s->q_heads * s->qk_dim, k = (int64_t)s->kv_heads * s->qk_dim,
                  v = (int64_t)s->kv_heads * s->v_dim;
    const uint32_t kv = s->cache ? s->mid_type : s->kv_type;
    const uint32_t p = s->projections;
    const int shared = p == LAYER_SHARED;
    const uint32_t heads[3] = {p == LAYER_PER_HEAD ? s->q_heads : 1,
                               p == LAYER_PER_HEAD ? s->kv_heads : 1,
                               p == LAYER_PER_HEAD ? s->kv_heads : 1};
    if (p == LAYER_FUSED)
        l->linear[3] = make_linear(context, l, 3, s->d_model, q + k + v, s->mid_type, 1, outcome);
    else if (p != LAYER_NONE)
        l->linear[0] = make_linear(context, l, 0, shared ? s->d_model / s->q_heads : s->d_model,
                                   shared ? s->qk_dim : q, s->mid_type, heads[0], outcome);
    if (p == LAYER_PAIR)
        l->linear[4] = make_linear(context, l, 4, d_kv, k + v, kv, 1, outcome);
    if (p == LAYER_SEPARATE || p == LAYER_SHARED || p == LAYER_PER_HEAD) {
        l->linear[1] = make_linear(context, l, 1, shared ? d_kv / s->kv_heads : d_kv,
                                   shared ? s->qk_dim : k, kv, heads[1], outcome);
        l->linear[2] = make_linear(context, l, 2, shared ? d_kv / s->kv_heads : d_kv,
                                   shared ? s->v_dim : v, kv, heads[2], outcome);
    }
    if (s->out)
        l->linear[5] = make_linear(context, l, 5, (int64_t)s->q_heads * s->v_dim, s->out, s->y_type,
                                   1, outcome);
    return outcome->verdict == KIT_PASSED ? 0 : -1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Chooses lengths and starts, of q's rows or of new keys; returns the rows that a packed view
 * has. */
static int64_t make_lists(const layer_spec *s, int64_t len, uint64_t seed, int32_t *lens,
                          int32_t *starts)
{
    int64_t at = 0;
    for (uint32_t b = 0; b < s->batch; b++) {
        const int listed = s->rows == LAYER_LENS || s->rows >= LAYER_PACKED;
        uint64_t bits = kit_hash(seed, b);
        lens[b] = (int32_t)(!listed                  ? len
                            : b == 1 && s->batch > 2 ? 0
                                                     : 1 + (int64_t)(bits % (uint64_t)len));
        if (s->rows == LAYER_PACKED_GAPS)
            at += 1 + (int64_t)(bits >> 32) % 3;
        starts[b] = (int32_t)at;
        at += lens[b];
    }
    return at;
}

/* Makes a tensor of rows, all NaN, in its buffer. */
static heed_view make_rows(layer *l, int which, int64_t len, int64_t packed_rows, int64_t columns,
                           uint32_t type, int side)
{
    const layer_spec *s = &l->spec;
    const int packed = s->rows >= LAYER_PACKED;
    const int64_t gap = s->rows == LAYER_GAPS ? 3 : 0, width = columns + gap;
    const int64_t rows = packed ? packed_rows : s->batch * (len + (gap ? 2 : 0));
    heed_view view = {NULL, {(len + (gap ? 2 : 0)) * width, width, 1, 0}};
    guard_buffer *buffer = &l->buffer[which];
    if (guard_map(buffer, (size_t)(rows * width) * kit_bytes_of(type), side, 0, KIT_CANARY) == 0) {
        memset(buffer->data, KIT_CANARY, buffer->bytes);
        view.data = buffer->data;
    }
    if (packed)
        view.stride[0] = 0;
    return view;
}

static void fill_rows(layer *l, const heed_view *view, int which, uint32_t type, int64_t columns,
                      const int32_t *lens, const int32_t *starts)
{
    for (uint32_t b = 0; b < l->spec.batch; b++)
        for (int64_t i = 0; i < lens[b]; i++) {
            double own = kit_uniform(kit_hash(l->spec.seed ^ 99, b * 1000 + i)), size = 1;
            if (l->spec.spread > 1 && which != LAYER_RESIDUAL)
                size = pow(l->spec.spread, own);
            for (int64_t c = 0; c < columns; c++) {
                uint64_t bits =
                    kit_hash(kit_hash(kit_hash(l->spec.seed, 230 + which), b * 1000 + i), c);
                int64_t row = l->spec.rows >= LAYER_PACKED ? starts[b] + i : i;
                kit_encode(type, view->data,
                           b * view->stride[0] + row * view->stride[1] + c * view->stride[2],
                           size * kit_normal(bits));
            }
        }
}

static int make_tensors(layer *l, int side)
{
    const layer_spec *s = &l->spec;
    heed_mha_args *a = &l->args;
    const int64_t y_cols = s->out ? s->out : (int64_t)s->q_heads * s->v_dim;
    const int64_t q_rows = make_lists(s, s->q_len, 1, l->q_lens, l->q_starts);
    const int64_t kv_rows = make_lists(s, s->kv_len ? s->kv_len : 1, 2, l->kv_lens, l->kv_starts);
    const int listed = s->rows == LAYER_LENS, packed = s->rows >= LAYER_PACKED;
    if (s->no_new)
        memset(l->kv_lens, 0, sizeof l->kv_lens);
    *a = (heed_mha_args){.struct_size = sizeof *a, .batch = s->batch, .q_len = s->q_len};
    heed_view rows = make_rows(l, LAYER_X, s->q_len, q_rows, s->d_model, s->x_type, side);
    a->x_q = heed_as_const(rows);
    a->y = make_rows(l, LAYER_Y, s->q_len, q_rows, y_cols, s->y_type, side);
    if (!a->x_q.data || !a->y.data)
        return -1;
    fill_rows(l, &rows, LAYER_X, s->x_type, s->d_model, l->q_lens, l->q_starts);
    if (s->d_kv && !s->no_new) {
        a->kv_len = s->kv_len;
        rows = make_rows(l, LAYER_XKV, s->kv_len, kv_rows, s->d_kv, s->x_type, side);
        a->x_kv = heed_as_const(rows);
        if (!rows.data)
            return -1;
        fill_rows(l, &rows, LAYER_XKV, s->x_type, s->d_kv, l->kv_lens, l->kv_starts);
    }
    if (s->residual) {
        rows = make_rows(l, LAYER_RESIDUAL, s->q_len, q_rows, y_cols, s->y_type, side);
        a->residual = heed_as_const(rows);
        if (!rows.data)
            return -1;
        fill_rows(l, &rows, LAYER_RESIDUAL, s->y_type, y_cols, l->q_lens, l->q_starts);
    }
    if (listed || packed)
        a->q_lens = l->q_lens;
    if ((listed || packed) && s->d_kv)
        a->kv_lens = l->kv_lens;
    if (packed)
        a->q_starts = l->q_starts;
    if (packed && s->d_kv)
        a->kv_starts = l->kv_starts;
    return 0;
}

/* ---- the cache ------------------------------------------------------------------------------- */

static int make_cache(layer *l, int side)
{
    const layer_spec *s = &l->spec;
    heed_mha_args *a = &l->args;
    const int64_t pages = (s->capacity + PAGE - 1) / PAGE, paged = s->cache == LAYER_PAGES;
    const int64_t n = paged ? s->batch * pages + 1 : s->batch, rows = paged ? PAGE : s->capacity;
    if (!s->cache)
        return 0;
    for (int side_of = 0; side_of < 2; side_of++) {
        const int64_t dim = side_of ? s->v_dim : s->qk_dim;
        guard_buffer *buffer = &l->buffer[LAYER_K + side_of];
        size_t bytes = (size_t)(n * rows * s->kv_heads * dim) * kit_bytes_of(s->kv_type);
        l->cache_before[side_of] = malloc(bytes);
        if (!l->cache_before[side_of] || guard_map(buffer, bytes, side, 0, KIT_CANARY) != 0)
            return -1;
        memset(l->cache_before[side_of], KIT_CANARY, bytes); /* NaN where there are no keys */
        heed_view view = {buffer->data, {rows * s->kv_heads * dim, dim, s->kv_heads * dim, 1}};
        *(side_of ? &a->v_cache : &a->k_cache) = view;
    }
    for (int64_t i = 0; i < s->batch * pages; i++)
        l->table[i] = (int32_t)(n - 1 - i);
    for (uint32_t b = 0; b < s->batch; b++) {
        const int32_t new_rows = s->d_kv ? l->kv_lens[b] : l->q_lens[b];
        l->cache_lens[b] = (int32_t)(kit_hash(3, b) % (uint64_t)(s->capacity - new_rows + 1));
        if (b == 0)
            l->cache_lens[b] = (int32_t)s->capacity - new_rows; /* to the brim */
        for (int64_t j = 0; j < l->cache_lens[b]; j++)
            for (int side_of = 0; side_of < 2; side_of++) {
                const heed_view *view = side_of ? &a->v_cache : &a->k_cache;
                const int64_t at = paged ? l->table[b * pages + j / PAGE] * view->stride[0] +
                                               j % PAGE * view->stride[2]
                                         : b * view->stride[0] + j * view->stride[2];
                for (int64_t c = 0; c < view->stride[2]; c++)
                    kit_encode(s->kv_type, l->cache_before[side_of], at + c,
                               kit_normal(kit_hash(kit_hash(s->seed, 300 + side_of), at + c)));
            }
    }
    a->capacity = s->capacity;
    a->cache_lens = l->cache_lens;
    if (paged) {
        a->block_table = l->table;
        a->block_table_stride = pages;
        a->n_pages = n;
    }
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int make_outputs(layer *l)
{
    const layer_spec *s = &l->spec;
    heed_mha_args *a = &l->args;
    const int64_t keys = s->cache ? s->capacity : s->d_kv ? s->kv_len : s->q_len;
    const int64_t rows = s->rows >= LAYER_PACKED ? l->attn.max_rows : s->q_len;
    const size_t pairs = (size_t)(s->batch * s->q_heads * s->q_len * keys);
    if (s->features & HEED_HAS_LSE) {
        if (guard_map(&l->buffer[LAYER_LSE], (size_t)(s->batch * s->q_heads * rows) * 4, GUARD_HIGH,
                      0, KIT_CANARY) != 0)
            return -1;
        a->lse = (heed_view){l->buffer[LAYER_LSE].data, {s->q_heads * rows, rows, 1, 0}};
    }
    if (s->features & HEED_HAS_WEIGHTS) {
        if (guard_map(&l->buffer[LAYER_WEIGHTS], pairs * 4, GUARD_LOW, 0, KIT_CANARY) != 0)
            return -1;
        a->weights = (heed_view){l->buffer[LAYER_WEIGHTS].data,
                                 {s->q_heads * s->q_len * keys, s->q_len * keys, keys, 1}};
    }
    if (s->features & HEED_HAS_MASK) {
        l->mask = malloc(pairs + 1);
        if (!l->mask)
            return -1;
        for (size_t i = 0; i < pairs; i++)
            l->mask[i] = kit_hash(s->seed ^ 5, (int64_t)i) % 3 != 0;
        a->mask =
            (heed_const_view){l->mask, {s->q_heads * s->q_len * keys, s->q_len * keys, keys, 1}};
    }
    for (uint32_t h = 0; h < s->q_heads; h++) {
        l->slope[h] = 0.5F / (float)(h + 1);
        l->sink[h] = 0.3F * (float)h - 1;
    }
    a->alibi_slope = s->features & HEED_HAS_ALIBI ? l->slope : NULL;
    a->sink = s->features & HEED_HAS_SINK ? l->sink : NULL;
    return 0;
}

static void describe(layer *l)
{
    const layer_spec *s = &l->spec;
    const int packed = s->rows >= LAYER_PACKED;
    uint64_t features = s->features;
    if (s->rows == LAYER_LENS || packed)
        features |= HEED_HAS_LENS;
    if (packed)
        features |= HEED_HAS_PACKED;
    if (s->cache == LAYER_PAGES)
        features |= HEED_HAS_PAGES;
    l->attn = (heed_attn_desc){.struct_size = sizeof l->attn,
                               .features = features,
                               .q_heads = s->q_heads,
                               .kv_heads = s->kv_heads,
                               .qk_dim = s->qk_dim,
                               .v_dim = s->v_dim,
                               .q_type = s->projections ? s->mid_type : s->x_type,
                               .k_type = s->kv_type,
                               .v_type = s->kv_type,
                               .out_type = s->out ? s->mid_type : s->y_type,
                               .position = s->position,
                               .page_len = s->cache == LAYER_PAGES ? PAGE : 0,
                               .max_batch = s->batch,
                               .max_q_len = s->q_len,
                               .max_kv_len = s->cache ? s->capacity : s->kv_len,
                               .max_rows = packed ? s->batch * (s->q_len + 3) : 0};
    layer_describe_lists(l);
    l->desc = (heed_mha_desc){
        .struct_size = sizeof l->desc,
        .features = (s->d_kv ? HEED_MHA_HAS_CROSS : 0) | (s->cache ? HEED_MHA_HAS_CACHE : 0) |
                    (s->projections == LAYER_SHARED ? HEED_MHA_HAS_SHARED_PROJ : 0),
        .attn = &l->attn,
        .q_proj = l->linear[0],
        .k_proj = l->linear[1],
        .v_proj = l->linear[2],
        .qkv_proj = l->linear[3],
        .kv_proj = l->linear[4],
        .out_proj = l->linear[5],
        .d_model = s->d_model,
        .d_kv = s->d_kv,
        .x_type = s->x_type,
        .kv_type = s->d_kv ? s->x_type : HEED_DTYPE_NONE,
        .rotary = s->rotary,
        .max_kv_rows = s->d_kv && packed ? s->batch * (s->kv_len + 3) : 0};
}

int layer_build(heed_context *context, layer *l, const layer_spec *spec, int side,
                kit_outcome *outcome)
{
    memset(l, 0, sizeof *l);
    l->spec = *spec;
    if (make_linears(context, l, outcome) != 0)
        return -1;
    describe(l);
    if (make_tensors(l, side) != 0 || make_cache(l, side) != 0 || make_outputs(l) != 0 ||
        layer_make_lists(l, side) != 0)
        return kit_fail(outcome, "out of memory"), -1;
    for (int n = LAYER_X; n <= LAYER_RESIDUAL; n++)
        if (n != LAYER_Y && l->buffer[n].map)
            guard_read_only(&l->buffer[n]);
    layer_reset(l);
    return kit_status(outcome, heed_mha_create(context, &l->desc, &l->mha), heed_last_error(),
                      "heed_mha_create");
}

void layer_reset(layer *l)
{
    for (int n = LAYER_Y; n < LAYER_BUFFERS; n++) {
        guard_buffer *buffer = &l->buffer[n];
        if (!buffer->map || n == LAYER_RESIDUAL)
            continue;
        guard_open(buffer);
        if (n == LAYER_K || n == LAYER_V)
            memcpy(buffer->data, l->cache_before[n - LAYER_K], buffer->bytes);
        else
            memset(buffer->data, KIT_CANARY, buffer->bytes);
    }
}

void layer_free(layer *l)
{
    heed_mha_release(l->mha);
    for (int n = 0; n < 6; n++) {
        heed_linear_release(l->linear[n]);
        free(l->weight[n]);
        free(l->bias[n]);
    }
    for (int n = 0; n < LAYER_BUFFERS; n++)
        guard_unmap(&l->buffer[n]);
    guard_unmap(&l->ranges);
    guard_unmap(&l->key_blocks);
    guard_unmap(&l->positions);
    free(l->cache_before[0]);
    free(l->cache_before[1]);
    free(l->mask);
    memset(l, 0, sizeof *l);
}

int64_t layer_y_row(const layer *l, int64_t b, int64_t i)
{
    const heed_view *y = &l->args.y;
    return l->args.q_starts ? (l->q_starts[b] + i) * y->stride[1]
                            : b * y->stride[0] + i * y->stride[1];
}
