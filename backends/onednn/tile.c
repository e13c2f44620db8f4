/*
 * A tile by oneDNN's matrix products: per block of keys S = Q K^T, weights, O = P V, and the
 * running sums.
 *
 * Work       Q is packed once per tile, with scale folded in where products are f32. A block of K
 *            or V that lies as the product wants it is handed over as it is; others (strides,
 *            pages, types, the last and shorter one) are copied and converted, with zeros for
 *            missing keys.
 * Units      log2; the reference of a row is its greatest score so far.
 * Hidden     the score of a hidden key is replaced, never multiplied. Its weight of 0 does meet its
 *            value: if the result is not finite, the block is multiplied again with zeros in place
 *            of the values that are not finite, and those are added one by one to the rows that see
 *            them. So a row's bits do not depend on what it does not see.
 * Numerics   each block's product is added to the running sum as a whole. bf16 products take q as it
 *            is; their results are scaled.
 */
#include "onednn.h"

#include "../simd/distance.h"

/* A tile under way. */
typedef struct tile_run {
    const heed_onednn_plan *plan;
    const heed_onednn_layout *layout;
    const heed_problem *problem;
    heed_tile *tile;
    const heed_onednn_rows *rows;
    heed_onednn_slot *slot;
    int64_t size;       /* index of the products' number of rows */
    int64_t n_rows;     /* of the tile; products may have more */
    int64_t first, end; /* keys of the current block */
    char *q, *k_copy, *v_copy, *scratchpad;
    float *s, *o;
    uint16_t *p; /* NULL: the weights are f32, in s */
    uint8_t *spoilt;
    uint8_t *listed, *mask;   /* of one row in the current block */
    float *bias;              /* of the same, where columns begin late */
    uint64_t *needed;         /* keys of the block that may be read: a bit each */
    int needs;                /* HEED_BLOCK_*: whether all, some or none may */
    float *rescale;           /* factor of every row's acc, for the current block */
    int32_t natural, started; /* started: a block has been added to acc */
    float factor;
} tile_run;

/* ---- packing --------------------------------------------------------------------------------- */

static char *row_of(const tile_run *r, char *base, int64_t row, int64_t dims)
{
    return base + row * dims * (int64_t)(r->layout->bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* Packs one row in the type that the products take. bf16 is not multiplied by factor. */
static void pack_row(const tile_run *r, char *to, uint32_t type, const void *data, int64_t at,
                     int64_t stride, int64_t n, float factor)
{
    if (!r->layout->bf16) {
        r->rows->pack((float *)(void *)to, type, data, at, stride, n, factor);
        return;
    }
    const char *from = (const char *)data + 2 * at;
    if (stride == 1)
        memcpy(to, from, (size_t)n * 2);
    else
        for (int64_t d = 0; d < n; d++)
            memcpy(to + 2 * d, from + 2 * d * stride, 2);
}

static void pack_queries(const tile_run *r)
{
    const heed_rows *q = &r->tile->q;
    int64_t dims = r->problem->qk_dim, most = r->layout->size[r->size];
    float factor = r->layout->bf16 ? 1 : r->factor;
    for (int64_t i = 0; i < r->n_rows; i++) {
        int64_t head = i / r->tile->q_count, query = r->tile->q_first + i % r->tile->q_count;
        pack_row(r, row_of(r, r->q, i, dims), r->problem->q_type, q->data,
                 head * q->head_stride + query * q->row_stride, q->dim_stride, dims, factor);
    }
    memset(row_of(r, r->q, r->n_rows, dims), 0,
           (size_t)(row_of(r, r->q, most, dims) - row_of(r, r->q, r->n_rows, dims)));
}

/* May key j of the current block be read? */
static int is_needed(const tile_run *r, int64_t j)
{
    return r->needs == HEED_BLOCK_ALL || r->needed[j / 64] >> j % 64 & 1;
}

/* Returns the current block of K or V: where it lies, if a product can read that, else a copy. */
static const void *load_block(const tile_run *r, const heed_rows *rows, uint32_t type,
                              int64_t page_stride, int64_t dims, char *copy)
{
    const heed_tile *tile = r->tile;
    int64_t n = r->end - r->first;
    const char *there =
        (const char *)rows->data + r->first * rows->row_stride * (int64_t)heed_dtype_bytes(type);
    if (n == r->layout->key_block && !tile->pages && r->needs == HEED_BLOCK_ALL &&
        rows->dim_stride == 1 && rows->row_stride == dims &&
        type == (r->layout->bf16 ? HEED_BF16 : HEED_F32) &&
        (uintptr_t)there % heed_dtype_bytes(type) == 0)
        return there;
    for (int64_t j = 0; j < n; j++) {
        char *to = row_of(r, copy, j, dims);
        if (is_needed(r, j))
            pack_row(
                r, to, type, rows->data,
                heed_key_offset(rows, tile->pages, r->problem->page_len, page_stride, r->first + j),
                rows->dim_stride, dims, 1);
        else
            memset(to, 0, (size_t)(row_of(r, to, 1, dims) - to));
    }
    memset(row_of(r, copy, n, dims), 0,
           (size_t)(row_of(r, copy, r->layout->key_block, dims) - row_of(r, copy, n, dims)));
    return copy;
}

/* ---- scores ---------------------------------------------------------------------------------- */

static dnnl_status_t multiply_keys(const tile_run *r)
{
    const void *k = load_block(r, &r->tile->k, r->problem->k_type, r->tile->k_page_stride,
                               r->problem->qk_dim, r->k_copy);
    return heed_onednn_multiply(&r->plan->products, r->slot, 2 * r->size, r->q, k, r->s,
                                r->scratchpad);
}

/* What the mask summary says of the current block for a head: HEED_BLOCK_*. */
static int block_mask(const tile_run *r, int64_t head)
{
    const heed_tile *tile = r->tile;
    int64_t index = r->first / r->layout->key_block - tile->k_first / r->layout->key_block;
    if (!tile->mask_blocks)
        return HEED_BLOCK_ALL;
    if (tile->flags & HEED_TILE_OUTPUTS) /* raw scores are shown where a mask hides */
        return HEED_BLOCK_MIXED;
    return tile->mask_blocks[head * tile->mask_block_stride + index];
}

/* Lists the keys of the block that ranges and key blocks let a row see, if its span does not. */
static void list_row(const tile_run *r, int64_t head, int64_t query, heed_onednn_row *row)
{
    const heed_problem *p = r->problem;
    if (!(r->tile->key_blocks.data || (r->tile->ranges.data && p->n_ranges > 1)) ||
        row->first >= row->end)
        return;
    row->listed = r->listed;
    memset(r->listed, 0, (size_t)row->width);
    for (int64_t first = r->first, end = r->end;
         heed_next_listed(p, r->tile, head, query, &first, &end); first = end, end = r->end)
        memset(r->listed + (first - r->first), 1, (size_t)(end - first));
}

/* Replaces mask and bias of a row whose first columns lie inside the block or behind it: the keys
 * before them are seen, without bias. */
static void begin_late(const tile_run *r, heed_onednn_row *row)
{
    const int64_t from = r->tile->mask_from - r->first;
    for (int64_t j = 0; row->mask && j < row->end; j++)
        r->mask[j] = j < from || row->mask[j * row->mask_stride];
    for (int64_t j = 0; row->bias && j < row->end; j++)
        r->bias[j] =
            j < from ? 0
                     : heed_load(row->bias_type, row->bias, row->bias_at + j * row->bias_stride);
    if (row->mask) {
        row->mask = r->mask;
        row->mask_stride = 1;
    }
    if (row->bias) {
        row->bias = r->bias;
        row->bias_type = HEED_F32;
        row->bias_at = 0;
        row->bias_stride = 1;
    }
}

/* Describes row i of the tile in the current block. Sets *all to 0 if it does not see every key. */
static heed_onednn_row describe_row(const tile_run *r, int64_t i, uint32_t stage, int *all)
{
    const heed_tile *tile = r->tile;
    const heed_problem *problem = r->problem;
    int64_t head = i / tile->q_count, query = tile->q_first + i % tile->q_count, first, end;
    int mask = block_mask(r, head);
    const heed_row_position position = heed_position_of(tile, query);
    heed_row_span(problem, tile, head, query, &first, &end);
    first = first > r->first ? first : r->first;
    end = end < r->end ? end : r->end;
    if (mask == HEED_BLOCK_NONE || end < first)
        end = first = r->first;
    heed_onednn_row row = {
        .s = r->s + i * r->layout->key_block,
        .width = r->layout->key_block,
        .first = first - r->first,
        .end = end - r->first,
        .stage = stage,
        .factor = r->layout->bf16 ? r->factor : 1,
        .softcap = problem->softcap,
        .has_softcap = (problem->features & HEED_HAS_SOFTCAP) != 0,
        .has_alibi = tile->alibi_slope != NULL,
        .alibi_slope = tile->alibi_slope ? tile->alibi_slope[head] : 0,
        .bias_slope = tile->bias_slope ? tile->bias_slope[head] : 1,
        .distance = (int32_t)(r->first - position.near),
        .far = position.far,
        .to_log2 = r->natural != 0,
    };
    if (mask == HEED_BLOCK_MIXED && tile->mask.data) {
        row.mask = (const uint8_t *)tile->mask.data + head * tile->mask.head_stride +
                   query * tile->mask.row_stride + r->first * tile->mask.dim_stride;
        row.mask_stride = tile->mask.dim_stride;
    }
    if (tile->bias.data) {
        row.bias = tile->bias.data;
        row.bias_type = problem->bias_type;
        row.bias_at = head * tile->bias.head_stride + query * tile->bias.row_stride +
                      r->first * tile->bias.dim_stride;
        row.bias_stride = tile->bias.dim_stride;
    }
    list_row(r, head, query, &row);
    if (r->first < tile->mask_from)
        begin_late(r, &row);
    if (row.first > 0 || row.end < r->end - r->first || row.mask || row.bias || row.listed)
        *all = 0;
    return row;
}

static int sees(const heed_onednn_row *row, int64_t j)
{
    if (j < row->first || j >= row->end || (row->listed && !row->listed[j]) ||
        (row->mask && !row->mask[j * row->mask_stride]))
        return 0;
    return !row->bias ||
           heed_load(row->bias_type, row->bias, row->bias_at + j * row->bias_stride) != -INFINITY;
}

/* ---- the first pass -------------------------------------------------------------------------- */

/* Turns products into weights for all rows, raises their references and adds to their sums. Returns
 * whether every row sees every key. */
static int weigh_block(const tile_run *r)
{
    heed_tile *tile = r->tile;
    int all = 1;
    for (int64_t i = 0; i < r->n_rows; i++) {
        heed_onednn_row row = describe_row(r, i, HEED_SCORES_BIASED, &all);
        float old = tile->row_max[i], top = r->rows->score(&row), m = top > old ? top : old;
        r->rescale[i] = 1;
        if (m > old) {
            r->rescale[i] = old == -INFINITY ? 0 : r->rows->exp2(old - m);
            tile->row_max[i] = m;
        }
        /* Where all scores are -inf any reference gives weights of 0, and a NaN remains one. */
        float sum = r->rows->weigh(row.s, row.width, m == -INFINITY ? 0 : m,
                                   r->p ? r->p + i * row.width : NULL);
        tile->row_sum[i] = tile->row_sum[i] * r->rescale[i] + sum;
    }
    return all;
}

static dnnl_status_t multiply_values(const tile_run *r, const void *v)
{
    const void *p = r->p ? (const void *)r->p : (const void *)r->s;
    return heed_onednn_multiply(&r->plan->products, r->slot, 2 * r->size + 1, p, v, r->o,
                                r->scratchpad);
}

static int64_t value_offset(const tile_run *r, int64_t j)
{
    return heed_key_offset(&r->tile->v, r->tile->pages, r->problem->page_len,
                           r->tile->v_page_stride, r->first + j);
}

static float value_at(const tile_run *r, int64_t j, int64_t d)
{
    return heed_load(r->problem->v_type, r->tile->v.data,
                     value_offset(r, j) + d * r->tile->v.dim_stride);
}

/* Finds the keys of the current block whose values are not all finite, and copies v to v_copy with
 * zeros in their place. Returns whether there are any. */
static int remove_spoilt(const tile_run *r, const void *v)
{
    int64_t dims = r->problem->v_dim;
    int any = 0;
    if (v != r->v_copy)
        memcpy(r->v_copy, v,
               (size_t)(row_of(r, r->v_copy, r->layout->key_block, dims) - r->v_copy));
    for (int64_t j = 0; j < r->end - r->first; j++) {
        r->spoilt[j] = 0;
        for (int64_t d = 0; is_needed(r, j) && d < dims && !r->spoilt[j]; d++)
            r->spoilt[j] = !isfinite(value_at(r, j, d));
        char *row = row_of(r, r->v_copy, j, dims);
        if (r->spoilt[j])
            memset(row, 0, (size_t)(row_of(r, row, 1, dims) - row));
        any |= r->spoilt[j];
    }
    return any;
}

/* Adds what was removed to the rows that see it. */
static void add_spoilt(const tile_run *r)
{
    int64_t dims = r->problem->v_dim, width = r->layout->key_block;
    int all;
    for (int64_t i = 0; i < r->n_rows; i++) {
        const heed_onednn_row row = describe_row(r, i, HEED_SCORES_BIASED, &all);
        for (int64_t j = 0; j < r->end - r->first; j++) {
            if (!r->spoilt[j] || !sees(&row, j))
                continue;
            float weight = r->p ? heed_f32_of_bf16(r->p[i * width + j]) : r->s[i * width + j];
            for (int64_t d = 0; d < dims; d++)
                r->o[i * dims + d] += weight * value_at(r, j, d);
        }
    }
}

static dnnl_status_t add_values(tile_run *r, int all)
{
    int64_t dims = r->problem->v_dim;
    const heed_tile *tile = r->tile;
    const void *v =
        load_block(r, &tile->v, r->problem->v_type, tile->v_page_stride, dims, r->v_copy);
    dnnl_status_t status = multiply_values(r, v);
    if (status == dnnl_success && !all && !r->rows->all_finite(r->o, r->n_rows * dims) &&
        remove_spoilt(r, v)) {
        status = multiply_values(r, r->v_copy);
        add_spoilt(r);
    }
    for (int64_t i = 0; i < r->n_rows; i++) {
        float *acc = tile->acc + i * tile->acc_stride;
        if (r->started)
            r->rows->accumulate(acc, r->o + i * dims, dims, r->rescale[i]);
        else
            memcpy(acc, r->o + i * dims, (size_t)dims * sizeof *acc);
    }
    r->started = 1;
    return status;
}

/* Does no row see anything of the current block? */
static int block_is_hidden(const tile_run *r)
{
    for (int64_t head = 0; head < r->tile->n_heads; head++)
        if (block_mask(r, head) != HEED_BLOCK_NONE)
            return 0;
    return 1;
}

static dnnl_status_t attend(tile_run *r)
{
    if (block_is_hidden(r))
        return dnnl_success;
    dnnl_status_t status = multiply_keys(r);
    return status == dnnl_success ? add_values(r, weigh_block(r)) : status;
}

/* ---- the second pass ------------------------------------------------------------------------- */

static void show_row(const tile_run *r, int64_t i, const heed_onednn_row *row, const heed_rows *to,
                     int weights)
{
    const heed_tile *tile = r->tile;
    int64_t head = i / tile->q_count, query = tile->q_first + i % tile->q_count;
    int64_t at = head * to->head_stride + query * to->row_stride + r->first * to->dim_stride;
    float sum = tile->row_sum[i], m = sum == 0 ? 0 : tile->row_max[i];
    if (weights)
        r->rows->weigh(row->s, row->width, m, NULL);
    for (int64_t j = 0; j < r->end - r->first; j++, at += to->dim_stride) {
        float x = row->s[j];
        if (weights)
            x = sum == 0 || !sees(row, j) ? 0 : x / sum;
        heed_store(HEED_F32, to->data, at, x);
    }
}

static dnnl_status_t show(const tile_run *r, const heed_rows *to, uint32_t stage, int weights)
{
    int all;
    dnnl_status_t status = multiply_keys(r);
    for (int64_t i = 0; i < r->n_rows && status == dnnl_success; i++) {
        heed_onednn_row row = describe_row(r, i, stage, &all);
        row.to_log2 = weights && r->natural;
        r->rows->score(&row);
        show_row(r, i, &row, to, weights);
    }
    return status;
}

/* ---- a tile ---------------------------------------------------------------------------------- */

/* Packs the queries for scores in the plan's units, or in natural ones, and goes through the
 * blocks. */
static dnnl_status_t run_blocks(tile_run *r, const heed_rows *to, uint32_t stage, int weights)
{
    dnnl_status_t status = dnnl_success;
    r->natural = r->layout->natural || (to && !weights);
    r->factor = r->natural ? r->problem->scale : r->layout->factor;
    pack_queries(r);
    for (r->first = r->tile->k_first; r->first < r->tile->k_end && status == dnnl_success;
         r->first = r->end) {
        r->end = (r->first / r->layout->key_block + 1) * r->layout->key_block;
        r->end = r->end < r->tile->k_end ? r->end : r->tile->k_end;
        r->needs = heed_has_lists(r->tile)
                       ? heed_listed_keys(r->problem, r->tile, r->first, r->end, r->needed,
                                          (int)((r->end - r->first + 63) / 64))
                       : HEED_BLOCK_ALL;
        status = to ? show(r, to, stage, weights) : attend(r);
    }
    return status;
}

static dnnl_status_t run(tile_run *r)
{
    heed_tile *tile = r->tile;
    dnnl_status_t status = dnnl_success;
    if (!(tile->flags & HEED_TILE_OUTPUTS)) {
        for (int64_t i = 0; i < r->n_rows; i++) {
            tile->row_max[i] = -INFINITY;
            tile->row_sum[i] = 0;
        }
        if (r->p) /* rows beyond n_rows are multiplied too: no traces of other tiles in them */
            memset(r->p + r->n_rows * r->layout->key_block, 0,
                   (size_t)((r->layout->size[r->size] - r->n_rows) * r->layout->key_block) *
                       sizeof *r->p);
        status = run_blocks(r, NULL, HEED_SCORES_BIASED, 0);
        for (int64_t i = 0; !r->started && i < r->n_rows; i++)
            memset(tile->acc + i * tile->acc_stride, 0, r->problem->v_dim * sizeof *tile->acc);
        return status;
    }
    if (tile->weights.data)
        status = run_blocks(r, &tile->weights, HEED_SCORES_BIASED, 1);
    if (tile->scores.data && status == dnnl_success)
        status = run_blocks(r, &tile->scores, r->problem->scores_stage, 0);
    return status;
}

heed_status heed_onednn_run_tile(const void *machine, const void *state,
                                 const heed_problem *problem, heed_tile *tile, void *scratch)
{
    const heed_onednn_library *library = machine;
    const heed_onednn_plan *plan = state;
    const heed_onednn_layout *l = &plan->layout;
    char *base = scratch;
    tile_run r = {
        .plan = plan,
        .layout = l,
        .problem = problem,
        .tile = tile,
        .rows = library->rows,
        .n_rows = (int64_t)tile->n_heads * tile->q_count,
        .q = base + l->q_at,
        .k_copy = base + l->k_at,
        .v_copy = base + l->v_at,
        .scratchpad = base + l->scratchpad_at,
        .s = (float *)(void *)(base + l->s_at),
        .o = (float *)(void *)(base + l->o_at),
        .p = l->bf16 ? (uint16_t *)(void *)(base + l->p_at) : NULL,
        .spoilt = (uint8_t *)(base + l->spoilt_at),
        .listed = (uint8_t *)(base + l->listed_at),
        .mask = (uint8_t *)(base + l->mask_at),
        .bias = (float *)(void *)(base + l->bias_at),
        .needed = (uint64_t *)(void *)(base + l->needed_at),
        .rescale = (float *)(void *)(base + l->rescale_at),
    };
    while (r.size + 1 < l->n_sizes && l->size[r.size + 1] >= r.n_rows)
        r.size++;
    r.slot = heed_onednn_take(&plan->products);
    if (!r.slot)
        return HEED_ERR_BACKEND;
    const dnnl_status_t status = run(&r);
    heed_onednn_give(r.slot);
    return status == dnnl_success ? HEED_OK : HEED_ERR_BACKEND;
}
