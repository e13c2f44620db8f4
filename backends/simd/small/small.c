/*
 * Attention of a few rows with a few keys of few dims, where preparing a larger kernel would take
 * longer than the products. Every type in, f32 arithmetic; compiled once per ISA, to the same bits.
 *
 * Up to 16 query rows make a panel (rows.inc.h). They lie in the lanes for scores and weights, so
 * that softmax needs no sums across lanes; dims lie in the lanes for the values, eight at a time,
 * of which none is wasted. The reference is the row's maximum: a row of one key gives that key's
 * value bit for bit. Rows are finished here, because calls are too short for another pass. What is
 * not f32, or not evenly spaced, goes through copies.
 *
 * What a row may see is a range of keys, and the keys outside are not weighed at all.
 */
#include <string.h>

#include "rows.inc.h"

/* A row of the tile: the query head in its kv head's group, and the query row from q_first on. */
typedef struct place {
    int64_t head, i;
} place;

/* A tensor of the call: its first row, and bytes from row to row, where these are evenly spaced,
 * and from kv head to kv head. */
typedef struct operand {
    char *data;
    int64_t row_bytes, step_bytes;
    int even, copied; /* to or from f32 */
} operand;

typedef struct work {
    job job;
    const heed_problem *problem;
    const heed_tile *tile;
    operand q, k, v, out;
} work;

/* ---- types ------------------------------------------------------------------------------------
 */

/* Copies n rows of dim elements, `stride` apart, to dense f32, and back. dim is a
 * multiple of eight. */
V_INLINE void widen(uint32_t type, const char *from, int64_t stride, int64_t n, int64_t dim,
                    float *to)
{
    const int64_t bytes = heed_dtype_bytes(type);
    if (stride == dim)
        dim *= n, n = 1;
    for (; n > 0; n--, from += stride * bytes, to += dim) {
        int64_t d = 0;
        for (; d + LANES <= dim; d += LANES)
            v_store(to + d, v_load_type(type, from + d * bytes, LANES));
        for (; d < dim; d += 8)
            v8_store(to + d, v8_load_type(type, from + d * bytes));
    }
}

V_INLINE void narrow(uint32_t type, const float *from, int64_t stride, int64_t n, int64_t dim,
                     char *to)
{
    const int64_t bytes = heed_dtype_bytes(type);
    if (stride == dim)
        dim *= n, n = 1;
    for (; n > 0; n--, from += dim, to += stride * bytes) {
        int64_t d = 0;
        for (; d + LANES <= dim; d += LANES)
            v_store_type(type, to + d * bytes, v_load(from + d), LANES);
        for (; d < dim; d += 8)
            v8_store_type(type, to + d * bytes, v8_load(from + d));
    }
}

V_NOINLINE void widen_rows(uint32_t type, const char *from, int64_t stride, int64_t n, int64_t dim,
                           float *to)
{
    if (type == HEED_F16)
        widen(HEED_F16, from, stride, n, dim, to);
    else if (type == HEED_BF16)
        widen(HEED_BF16, from, stride, n, dim, to);
    else
        widen(HEED_F32, from, stride, n, dim, to);
}

V_NOINLINE void narrow_rows(uint32_t type, const float *from, int64_t stride, int64_t n,
                            int64_t dim, char *to)
{
    if (type == HEED_F16)
        narrow(HEED_F16, from, stride, n, dim, to);
    else if (type == HEED_BF16)
        narrow(HEED_BF16, from, stride, n, dim, to);
    else
        narrow(HEED_F32, from, stride, n, dim, to);
}

/* ---- rows -------------------------------------------------------------------------------------
 */

/* Where the panel's first row lies. */
V_INLINE place first_row(const heed_tile *tile, const panel *p)
{
    const uint32_t row = (uint32_t)p->row, count = (uint32_t)tile->q_count;
    return (place){row / count, row % count};
}

V_INLINE void step(const heed_tile *tile, place *at)
{
    if (++at->i == tile->q_count)
        at->i = 0, at->head++;
}

/* Elements from the start of the tile's first head. */
V_INLINE int64_t row_at(const heed_tile *tile, const heed_rows *rows, const panel *p, place at)
{
    return (p->g * tile->group + at.head) * rows->head_stride +
           (tile->q_first + at.i) * rows->row_stride;
}

/* A row of kv head g, if rows are evenly spaced. */
V_INLINE char *even_row(const operand *o, int64_t g, int64_t row)
{
    return o->data + g * o->step_bytes + row * o->row_bytes;
}

/* How many rows of the panel from r on follow each other at the row stride: those of one head. */
V_INLINE int64_t rows_of_head(const heed_tile *tile, const panel *p, int64_t r, place at)
{
    const int64_t left = tile->q_count - at.i;
    return left < p->n - r ? left : p->n - r;
}

V_NOINLINE void copy_queries(const work *w, panel *p)
{
    const heed_rows *q = &w->tile->q;
    const uint32_t type = w->problem->q_type;
    const int64_t dim = w->job.qk_dim, bytes = heed_dtype_bytes(type);
    if (w->q.even) {
        widen_rows(type, even_row(&w->q, p->g, p->row), w->q.row_bytes / bytes, p->n, dim,
                   p->q_copy);
        return;
    }
    place at = first_row(w->tile, p);
    for (int64_t n, r = 0; r < p->n; r += n, at.i = 0, at.head++) {
        n = rows_of_head(w->tile, p, r, at);
        widen_rows(type, (char *)q->data + row_at(w->tile, q, p, at) * bytes, q->row_stride, n, dim,
                   p->q_copy + r * dim);
    }
}

V_NOINLINE void copy_out(const work *w, const panel *p)
{
    const heed_rows *out = &w->tile->out;
    const uint32_t type = w->problem->out_type;
    const int64_t dim = w->job.v_dim, bytes = heed_dtype_bytes(type);
    if (w->out.even) {
        narrow_rows(type, p->out_copy, w->out.row_bytes / bytes, p->n, dim,
                    even_row(&w->out, p->g, p->row));
        return;
    }
    place at = first_row(w->tile, p);
    for (int64_t n, r = 0; r < p->n; r += n, at.i = 0, at.head++) {
        n = rows_of_head(w->tile, p, r, at);
        narrow_rows(type, p->out_copy + r * dim, out->row_stride, n, dim,
                    (char *)out->data + row_at(w->tile, out, p, at) * bytes);
    }
}

static void find_ranges(const heed_tile *tile, panel *p)
{
    place at = first_row(tile, p);
    memset(p->low, 0, sizeof p->low);
    memset(p->end, 0, sizeof p->end);
    for (int64_t r = 0; r < p->n; r++, step(tile, &at)) {
        int64_t first, end;
        heed_row_keys(tile, tile->q_first + at.i, &first, &end);
        p->low[r] = (float)(first - tile->k_first);
        p->end[r] = (float)(end < tile->k_first ? 0 : end - tile->k_first);
    }
}

static void write_lse(const heed_tile *tile, const panel *p)
{
    place at = first_row(tile, p);
    for (int64_t r = 0; r < p->n; r++, step(tile, &at)) {
        double lse = p->sum[r] == 0
                         ? -(double)INFINITY
                         : (double)p->max[r] * 0.6931471805599453 + log((double)p->sum[r]);
        heed_store(HEED_F32, tile->lse.data, row_at(tile, &tile->lse, p, at), (float)lse);
    }
}

/* ---- panels -----------------------------------------------------------------------------------
 */

/* Keys or values, as they lie or copied. */
V_INLINE const float *keys_of(const work *w, const operand *o, const heed_rows *rows, uint32_t type,
                              int64_t dim, const panel *p, float *copy)
{
    const char *data = even_row(o, p->g, 0);
    if (!o->copied)
        return (const float *)(const void *)data;
    widen_rows(type, data, rows->row_stride, w->job.keys, dim, copy);
    return copy;
}

/* Forms the scores of a panel whose place is set. */
V_NOINLINE void begin_panel(const work *w, panel *p)
{
    const job *j = &w->job;
    p->k = keys_of(w, &w->k, &w->tile->k, w->problem->k_type, j->qk_dim, p, p->k_copy);
    p->v = keys_of(w, &w->v, &w->tile->v, w->problem->v_type, j->v_dim, p, p->v_copy);
    p->q = p->q_copy;
    if (w->q.copied)
        copy_queries(w, p);
    else
        p->q = (const float *)(const void *)even_row(&w->q, p->g, p->row);
    p->out = p->out_copy;
    if (!w->out.copied)
        p->out = (float *)(void *)even_row(&w->out, p->g, p->row);
    if (j->ranges)
        find_ranges(w->tile, p);
    if (j->qk_dim == 8)
        score_panel(j, 8, p);
    else
        score_panel(j, 16, p);
}

V_NOINLINE void end_panel(const work *w, panel *p)
{
    const heed_tile *tile = w->tile;
    finish_panel(&w->job, p);
    if (w->out.copied)
        copy_out(w, p);
    if (tile->lse.data)
        write_lse(tile, p);
    if (tile->weights.data || tile->scores.data) {
        memcpy(tile->row_max + p->g * tile->group * tile->q_count + p->row, p->max,
               (size_t)p->n * sizeof(float));
        memcpy(tile->row_sum + p->g * tile->group * tile->q_count + p->row, p->sum,
               (size_t)p->n * sizeof(float));
    }
}

/* Describes rows of keys, or those of all query heads of a group. *stride is in elements from row
 * to row, as the products read them. */
V_INLINE operand operand_of(const heed_tile *tile, const heed_rows *rows, uint32_t type,
                            int of_keys, int64_t dim, int64_t *stride)
{
    const int64_t bytes = heed_dtype_bytes(type);
    const int64_t apart = of_keys || tile->q_count > 1 ? rows->row_stride : rows->head_stride;
    operand o;
    o.data =
        (char *)rows->data + (of_keys ? tile->k_first : tile->q_first) * rows->row_stride * bytes;
    o.row_bytes = apart * bytes;
    o.step_bytes = rows->head_stride * bytes * (of_keys ? 1 : tile->group);
    o.even = of_keys || tile->group == 1 || rows->head_stride == tile->q_count * apart;
    o.copied = type != HEED_F32 || !o.even;
    *stride = o.copied ? dim : apart;
    return o;
}

heed_status HEED_ISA_FUNCTION(heed_attn_small)(const heed_problem *problem, heed_tile *tile)
{
    const int64_t rows = tile->group * tile->q_count, kv_heads = tile->kv_heads;
    int64_t unused, common_first, common_end, g = 0, row = 0;
    work w;
    job *j = &w.job;
    panel panels[2], *p = &panels[0], *last = NULL;
    w.problem = problem;
    w.tile = tile;
    j->keys = tile->k_end - tile->k_first;
    j->qk_dim = problem->qk_dim;
    j->v_dim = problem->v_dim;
    decode_split((double)problem->scale * decode_unit(problem), &j->high, &j->low);
    heed_row_keys(tile, tile->q_first + tile->q_count - 1, &common_first, &unused);
    heed_row_keys(tile, tile->q_first, &unused, &common_end);
    j->ranges = common_first != tile->k_first || common_end != tile->k_end;
    w.q = operand_of(tile, &tile->q, problem->q_type, 0, j->qk_dim, &j->q_stride);
    w.k = operand_of(tile, &tile->k, problem->k_type, 1, j->qk_dim, &j->k_stride);
    w.v = operand_of(tile, &tile->v, problem->v_type, 1, j->v_dim, &j->v_stride);
    w.out = operand_of(tile, &tile->out, problem->out_type, 0, j->v_dim, &j->out_stride);
    /* The scores of one panel are on their way while the weights and values of the one before are
     * formed: each alone would mostly wait for its own results. */
    for (;;) {
        const int more = g < kv_heads;
        if (more) {
            p->g = g;
            p->row = row;
            p->n = rows - row < ROWS ? rows - row : ROWS;
            begin_panel(&w, p);
            row += ROWS;
            if (row >= rows)
                row = 0, g++;
        }
        if (last)
            end_panel(&w, last);
        if (!more)
            break;
        last = p;
        p = p == &panels[0] ? &panels[1] : &panels[0];
    }
    tile->flags |= HEED_TILE_FINISHED;
    v_leave();
    return HEED_OK;
}
