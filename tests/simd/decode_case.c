/* Draws a tile of the decode kernel from a seed. Every function takes the next numbers of the same
 * stream, so their order is part of what a seed means. */
#include "decode_case.h"

#include <math.h>
#include <stdlib.h>

#include "../draw.h"

static void *nan_memory(uint32_t type, size_t elements)
{
    char *memory = malloc(elements * heed_dtype_bytes(type));
    if (!memory)
        exit(99);
    for (size_t i = 0; i < elements; i++)
        heed_store(type, memory, (int64_t)i, NAN);
    return memory;
}

void tensor_make(tensor *t, uint32_t type, int64_t heads, int64_t rows, int64_t dims, int layout)
{
    int64_t gap = layout == 2 ? 2 : 1, odd = layout == 3 ? 1 : 0;
    size_t elements = (size_t)(heads * rows * dims * gap + 64);
    *t = (tensor){.type = type};
    t->memory = nan_memory(type, elements);
    t->rows.dim_stride = gap;
    t->rows.row_stride = layout == 1 ? heads * dims : dims * gap;
    t->rows.head_stride = layout == 1 ? dims : rows * dims * gap;
    t->rows.data = (char *)t->memory + odd * heed_dtype_bytes(type);
    if (layout == 4) {
        t->rows.data = (char *)t->rows.data +
                       (rows - 1) * t->rows.row_stride * (int64_t)heed_dtype_bytes(type);
        t->rows.row_stride = -t->rows.row_stride;
    }
}

static int64_t place(const tensor *t, int64_t h, int64_t i, int64_t d)
{
    if (t->pages)
        i = t->pages[i / t->page_len] * (int64_t)t->page_len + i % t->page_len;
    return h * t->rows.head_stride + i * t->rows.row_stride + d * t->rows.dim_stride;
}

double tensor_at(const tensor *t, int64_t h, int64_t i, int64_t d)
{
    return (double)heed_load(t->type, t->rows.data, place(t, h, i, d));
}

static void fill(const tensor *t, int64_t h, int64_t i, int64_t dims, float scale)
{
    for (int64_t d = 0; d < dims; d++)
        heed_store(t->type, t->rows.data, place(t, h, i, d), scale * normal());
}

static float pick(const float *from, uint32_t n)
{
    return from[below(n)];
}

static const uint32_t types[] = {HEED_F32, HEED_F16, HEED_BF16};

static void draw_features(decode_case *c)
{
    heed_problem *p = &c->problem;
    const int plain = c->small || c->whole;
    if (!plain && below(3) == 0)
        p->features |= HEED_HAS_MASK;
    if (!plain && below(3) == 0)
        p->features |= HEED_HAS_BIAS | (below(2) ? HEED_HAS_BIAS_SLOPE : 0);
    if (!plain && below(4) == 0)
        p->features |= HEED_HAS_ALIBI;
    if (!plain && below(4) == 0)
        p->features |= HEED_HAS_SOFTCAP;
    p->scale *= c->small && below(2) ? 1e6f : 1; /* where a rounding is a whole unit */
    p->softcap = p->features & HEED_HAS_SOFTCAP ? 2.0f + (float)below(30) : 0;
    p->bias_type = p->features & HEED_HAS_BIAS ? types[below(3)] : 0;
}

static void draw_problem(decode_case *c)
{
    static const int64_t dims[] = {1, 3, 8, 16, 20, 31, 32, 64, 80, 100, 128, 192, 256};
    static const float scales[] = {0.125f, 0.5f, -0.25f, 1.0f};
    heed_problem *p = &c->problem;
    const int plain_f32 = below(2) == 0;
    p->q_heads = 1 + below(9);
    p->qk_dim = (uint32_t)dims[below(13)];
    p->v_dim = below(2) ? p->qk_dim : (uint32_t)dims[below(13)];
    p->q_type = plain_f32 ? HEED_F32 : types[below(3)];
    p->k_type = plain_f32 ? HEED_F32 : types[below(3)];
    p->v_type = plain_f32 ? HEED_F32 : types[below(3)];
    p->out_type = HEED_F32;
    p->scale = pick(scales, 4);
    c->small = below(4) == 0;
    if (c->small) {
        p->qk_dim = 8 * (1 + below(2));
        p->v_dim = 8 * (1 + below(4));
    }
    c->whole = !c->small && below(3) == 0;
    if (c->whole) {
        p->qk_dim = p->v_dim = below(2) ? 64 * (1 + below(2)) : 16 * (4 + below(13));
        p->v_type = p->k_type;
    }
    draw_features(c);
}

/* Cuts the chunk to the keys that some row sees, as core does. */
static void cut_keys(heed_tile *tile)
{
    int64_t first, end, unused;
    heed_row_keys(tile, tile->q_first, &first, &unused);
    heed_row_keys(tile, tile->q_first + tile->q_count - 1, &unused, &end);
    tile->k_first = first;
    tile->k_end = end;
}

static heed_status draw_tile(decode_case *c)
{
    const heed_simd_tuning tuning = {.lanes = 8};
    heed_tile *tile = &c->tile;
    tile->q_len = below(2) ? 1 : 1 + below(16);
    tile->kv_len = 1 + below(c->small ? 34 : 200);
    c->problem.query_class = tile->q_len == 1 ? HEED_QUERY_ONE : HEED_QUERY_FEW;
    const heed_status st = heed_simd_decode_tiling(&tuning, &c->problem, &c->tiling);
    if (st != HEED_OK)
        return st;
    const uint32_t most = c->tiling.query_rows;
    const int64_t runs = (tile->q_len + most - 1) / most;
    tile->q_first = below((uint32_t)runs) * most;
    tile->q_count = tile->q_len - tile->q_first;
    if (tile->q_count > most)
        tile->q_count = most;
    tile->n_heads = c->problem.q_heads;
    tile->kv_heads = 1;
    tile->group = c->problem.q_heads;
    tile->q_offset = below(2) ? tile->kv_len - tile->q_len : (int64_t)below(60) - 20;
    tile->window_left = below(2) ? HEED_UNBOUNDED : (int64_t)below(50);
    tile->window_right = below(2) ? HEED_UNBOUNDED : below(2) ? 0 : (int64_t)below(50);
    tile->k_first = 0;
    tile->k_end = tile->kv_len;
    if (below(3) == 0) {
        tile->k_first = below((uint32_t)tile->kv_len);
        tile->k_end = tile->k_first + 1 + below((uint32_t)(tile->kv_len - tile->k_first));
    }
    cut_keys(tile);
    return HEED_OK;
}

/* Pages in reverse order. Returns how many rows they have together. */
static int64_t draw_pages(decode_case *c)
{
    static const uint32_t page_lens[] = {1, 5, 16, 16, 32, 48};
    if (c->small || below(3) != 0)
        return c->tile.kv_len;
    const uint32_t page_len = page_lens[below(6)];
    const int64_t n = (c->tile.kv_len + page_len - 1) / page_len;
    c->problem.features |= HEED_HAS_PAGES;
    c->problem.page_len = page_len;
    for (int64_t i = 0; i < n; i++)
        c->pages[i] = (int32_t)(n - 1 - i);
    return n * page_len;
}

/* Memory for q, k and v, and the values of q: mask and bias decide which keys get values. */
static void draw_tensors(decode_case *c)
{
    const heed_problem *p = &c->problem;
    heed_tile *tile = &c->tile;
    const int64_t rows_of_k = draw_pages(c);
    tensor_make(&c->q, p->q_type, p->q_heads, tile->q_len, p->qk_dim, (int)below(4));
    tensor_make(&c->k, p->k_type, 3, rows_of_k, p->qk_dim, c->whole ? 0 : (int)below(5));
    tensor_make(&c->v, p->v_type, 3, rows_of_k, p->v_dim, c->whole ? 0 : (int)below(5));
    for (uint32_t h = 0; h < p->q_heads; h++) {
        for (int64_t i = tile->q_first; i < tile->q_first + tile->q_count; i++)
            fill(&c->q, h, i, p->qk_dim, 1);
        c->alibi[h] = 0.25f / (float)(h + 1);
        c->bias_slope[h] = 0.5f + (float)h;
    }
    tile->q = c->q.rows;
    tile->k = c->k.rows;
    tile->v = c->v.rows;
    if (p->page_len) {
        tile->pages = c->k.pages = c->v.pages = c->pages;
        c->k.page_len = c->v.page_len = p->page_len;
        tile->k_page_stride = p->page_len * c->k.rows.row_stride;
        tile->v_page_stride = p->page_len * c->v.rows.row_stride;
    }
    if (p->features & HEED_HAS_ALIBI)
        tile->alibi_slope = c->alibi;
}

static void draw_mask(decode_case *c)
{
    const int64_t q_len = c->tile.q_len, kv_len = c->tile.kv_len;
    const int dim = below(4) ? 1 : 2;
    const uint32_t density = 1 + below(3);
    if (!(c->problem.features & HEED_HAS_MASK))
        return;
    const size_t n = (size_t)(c->problem.q_heads * q_len * kv_len * dim);
    c->mask = malloc(n);
    if (!c->mask)
        exit(99);
    for (size_t i = 0; i < n; i++)
        c->mask[i] = (uint8_t)(below(4) < density ? 1 + below(255) : 0);
    c->tile.mask = (heed_rows){c->mask, below(2) ? q_len * kv_len * dim : 0, kv_len * dim, dim};
}

static void draw_bias(decode_case *c)
{
    const heed_problem *p = &c->problem;
    const int64_t q_len = c->tile.q_len, kv_len = c->tile.kv_len;
    if (!(p->features & HEED_HAS_BIAS))
        return;
    tensor_make(&c->bias, p->bias_type, p->q_heads, q_len, kv_len, below(4) ? 0 : 2);
    for (uint32_t h = 0; h < p->q_heads; h++)
        for (int64_t i = 0; i < q_len; i++) {
            fill(&c->bias, h, i, kv_len, 1);
            for (int64_t j = 0; j < kv_len; j++)
                if (below(8) == 0)
                    heed_store(p->bias_type, c->bias.rows.data, place(&c->bias, h, i, j),
                               -INFINITY);
        }
    c->tile.bias = c->bias.rows;
    if (p->features & HEED_HAS_BIAS_SLOPE)
        c->tile.bias_slope = c->bias_slope;
}

static int sees(const decode_case *c, int64_t row, int64_t key)
{
    const int64_t h = decode_case_head(c, row), i = decode_case_query(c, row);
    const heed_rows *mask = &c->tile.mask;
    int64_t low, high;
    heed_row_keys(&c->tile, i, &low, &high);
    if (key < low || key >= high)
        return 0;
    if (c->mask &&
        c->mask[h * mask->head_stride + i * mask->row_stride + key * mask->dim_stride] == 0)
        return 0;
    return !c->bias.memory || tensor_at(&c->bias, h, i, key) != -(double)INFINITY;
}

/* Keys that some row sees get values; of the other keys half stay NaN. */
static void draw_seen(decode_case *c)
{
    const int64_t kv_len = c->tile.kv_len;
    c->rows = c->tile.n_heads * c->tile.q_count;
    c->seen = calloc((size_t)(c->rows * kv_len), 1);
    if (!c->seen)
        exit(99);
    for (int64_t j = c->tile.k_first; j < c->tile.k_end; j++) {
        int any = 0;
        for (int64_t r = 0; r < c->rows; r++) {
            const int yes = sees(c, r, j);
            c->seen[r * kv_len + j] = (char)yes;
            any |= yes;
        }
        if (any || below(2)) {
            fill(&c->k, 0, j, c->problem.qk_dim, 1);
            fill(&c->v, 0, j, c->problem.v_dim, 1);
        }
    }
    if (below(3) == 0) { /* a NaN, which may reach only the rows that see it */
        const int64_t n = c->tile.k_end - c->tile.k_first;
        const int64_t j = c->tile.k_first + below((uint32_t)n);
        heed_store(c->problem.v_type, c->v.rows.data, place(&c->v, 0, j, 0), NAN);
    }
}

heed_status decode_case_draw(decode_case *c, uint64_t seed)
{
    *c = (decode_case){.problem = {.struct_size = sizeof c->problem, .kv_heads = 1},
                       .tiling = {.struct_size = sizeof c->tiling},
                       .tile = {.struct_size = sizeof c->tile}};
    random_state = kit_mix(seed);
    draw_problem(c);
    const heed_status st = draw_tile(c);
    if (st != HEED_OK || c->tile.k_first >= c->tile.k_end)
        return st;
    draw_tensors(c);
    draw_mask(c);
    draw_bias(c);
    draw_seen(c);
    c->fetched_l2 = c->whole ? below(4) : 0;
    c->fetched = c->whole ? below(4) : 0;
    c->cross = c->whole ? below(4) : 0;
    c->cross_rows = 1 + below(9);
    c->tile.acc_stride = c->problem.v_dim + below(3);
    return HEED_OK;
}

void decode_case_free(decode_case *c)
{
    free(c->seen);
    free(c->mask);
    free(c->q.memory);
    free(c->k.memory);
    free(c->v.memory);
    free(c->bias.memory);
}
