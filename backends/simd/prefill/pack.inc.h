/* Moving data for prefill: queries and results between rows and panels (lanes are rows there), and
 * key blocks whose form or place in memory does not suit the products. Nothing here adds anything
 * up, so whether a block is copied cannot be seen in the results. */
#ifndef HEED_SIMD_PREFILL_PACK_H
#define HEED_SIMD_PREFILL_PACK_H

#include "../vec/codes.h"
#include "softmax.inc.h"

_Static_assert(STEP * 2 == LANES || STEP % LANES == 0, "V is copied in halves or whole vectors");

/* Keys of padding behind each group of columns: without them the groups of a block of 128 keys
 * would start in the same cache sets. */
#define V_PADDING 2

/* Columns of V, rounded up to whole steps. */
static int64_t whole_steps(int64_t columns)
{
    return (columns + STEP - 1) / STEP * STEP;
}

/* Words of so many dims. */
static int64_t words_of(int64_t dims)
{
    return (dims + PAIR - 1) / PAIR;
}

/* The first n elements from p on as words; zeros follow. */
V_INLINE vf query_words(uint32_t type, const char *p, int64_t stride, int64_t n)
{
#if PAIR == 2
    (void)type;
    return v_from_bits(load_pairs(p, stride, n));
#else
    return v_gather_type(type, p, stride, n < LANES ? (int)n : LANES);
#endif
}

/* The queries of a panel, times factor, as words [dim][PANEL]. An unused lane holds what the first
 * used one does, so that its scores are as harmless. */
V_NOINLINE void pack_queries(const heed_problem *problem, const heed_tile *tile, const panel *p,
                             float factor)
{
    const heed_rows *q = &tile->q;
    uint32_t type = problem->q_type;
    int64_t dims = problem->qk_dim, bytes = heed_dtype_bytes(type);
    for (int v = first_vector(p); v < VECTORS; v++) {
        const char *data[LANES];
        float *to = p->q + v * LANES;
        vf x[LANES];
        for (int64_t i = 0; i < LANES; i++) {
            int64_t lane = v * LANES + i;
            data[i] = (const char *)q->data +
                      row_offset(p, q, lane < p->unused ? p->unused : lane) * bytes;
        }
        /* The usual case, without branches in its loops. */
        int64_t whole = type == (PAIR == 2 ? HEED_BF16 : HEED_F32) && q->dim_stride == 1
                            ? dims / (PAIR * LANES) * (PAIR * LANES)
                            : 0;
        for (int64_t d = 0; d < whole; d += PAIR * LANES) {
            for (int i = 0; i < LANES; i++)
                x[i] = v_load((const float *)(const void *)(data[i] + d * bytes));
            v_transpose(x);
            for (int i = 0; i < LANES; i++, to += PANEL)
                v_store(to, v_scale(x[i], v_set1(factor)));
        }
        for (int64_t d = whole; d < dims; d += PAIR * LANES) {
            int64_t n = words_of(dims - d) < LANES ? words_of(dims - d) : LANES;
            for (int i = 0; i < LANES; i++)
                x[i] =
                    query_words(type, data[i] + d * q->dim_stride * bytes, q->dim_stride, dims - d);
            v_transpose(x);
            for (int64_t i = 0; i < n; i++, to += PANEL)
                v_store(to, v_scale(x[i], v_set1(factor)));
        }
    }
}

/* The factor of a row whose result is 0 whatever has been summed up for it. */
#define NOTHING (-1.0f)

/* o * scale, with 0 for a sum of -0: its sign may depend on keys that the row does not see, which
 * add their weight -0 times what they hold. */
V_INLINE vf times(const float *o, vf scale)
{
    return v_fma(v_load(o), scale, v_zero());
}

/* Writes one vector of a panel, [column][PANEL], times factor, to rows of a type in memory. Nothing
 * is written for the first `unused` rows. */
V_NOINLINE void unpack_rows(const float *o, int64_t columns, const float *factor, uint32_t type,
                            char *const row[LANES], int64_t unused, int64_t dim_stride)
{
    int64_t bytes = heed_dtype_bytes(type), d = 0;
    vf scale = v_load(factor), x[LANES];
    vm nothing = m_equal(scale, v_set1(NOTHING));
    int any_nothing = m_bits(nothing) != 0;
#if PAIR == 2
    /* Rounding first leaves half as much to transpose. No product is subnormal: FTZ is set. */
    for (; d + DOT_WIDTH <= columns && type == HEED_BF16 && dim_stride == 1 && !any_nothing &&
           !unused;
         d += DOT_WIDTH) {
        for (int i = 0; i < LANES; i++, o += 2 * PANEL)
            x[i] = v_pair(times(o, scale), times(o + PANEL, scale));
        v_transpose(x);
        for (int i = 0; i < LANES; i++)
            v_store((float *)(void *)(row[i] + d * bytes), x[i]);
    }
#endif
    for (; d + LANES <= columns && dim_stride == 1 && !any_nothing; d += LANES) {
        for (int i = 0; i < LANES; i++, o += PANEL)
            x[i] = times(o, scale);
        v_transpose(x);
        if (type == HEED_F32 && !unused) { /* from registers */
            for (int i = 0; i < LANES; i++)
                v_store((float *)(void *)row[i] + d, x[i]);
            continue;
        }
        for (int64_t i = unused; i < LANES; i++)
            v_store_type(type, row[i] + d * bytes, x[i], LANES);
    }
    for (; d < columns; d += LANES) {
        int n = columns - d < LANES ? (int)(columns - d) : LANES;
        for (int i = 0; i < LANES; i++)
            x[i] = v_zero();
        for (int i = 0; i < n; i++, o += PANEL)
            x[i] = v_select(nothing, v_zero(), times(o, scale));
        v_transpose(x);
        for (int64_t i = unused; i < LANES; i++) {
            char *to = row[i] + d * dim_stride * bytes;
            float one[LANES];
            if (dim_stride == 1) {
                v_store_type(type, to, x[i], n);
                continue;
            }
            v_store(one, x[i]);
            for (int k = 0; k < n; k++)
                heed_store(type, to, k * dim_stride, one[k]);
        }
    }
}

/* Address of element 0 of key j. */
static const char *key_row(const heed_problem *problem, const heed_tile *tile,
                           const heed_rows *rows, int64_t page_stride, uint32_t type, int64_t j)
{
    return (const char *)rows->data +
           heed_offset_bytes(type,
                             heed_key_offset(rows, tile->pages, problem->page_len, page_stride, j));
}

/* Is key n of a block hidden from all rows? Such keys are zeros in a copy. */
static int is_hidden(const uint64_t *needed, int64_t n)
{
    return needed && !(needed[n / 64] >> n % 64 & 1);
}

#if PAIR == 2

/* Copies keys [first, end) of K as rows of words, with rows of zeros up to a whole step and for a
 * key before the tile's first. */
V_NOINLINE void pack_keys(const heed_problem *problem, const heed_tile *tile, int64_t first,
                          int64_t end, const uint64_t *needed, float *out)
{
    const int64_t dims = problem->qk_dim, words = words_of(dims), stride = tile->k.dim_stride;
    const int64_t steps = (end - first + STEP - 1) / STEP * STEP;
    for (int64_t j = first; j < first + steps; j++, out += words) {
        if (j < tile->k_first || j >= end || is_hidden(needed, j - first)) {
            memset(out, 0, (size_t)words * sizeof *out);
            continue;
        }
        const char *key = key_row(problem, tile, &tile->k, tile->k_page_stride, HEED_BF16, j);
        for (int64_t d = 0; d < dims; d += DOT_WIDTH) {
            vf x = v_from_bits(load_pairs(key + d * stride * 2, stride, dims - d));
            v_store_n(out + d / 2, x, (int)words_of(dims - d < DOT_WIDTH ? dims - d : DOT_WIDTH));
        }
    }
}

/* Copies keys [first, end) of V as words of two keys, [column / STEP][key / 2][STEP], with zeros
 * in the columns behind the last and for keys outside the tile. The groups of STEP columns are
 * `group` words apart. */
V_NOINLINE void pack_values(const heed_problem *problem, const heed_tile *tile, int64_t first,
                            int64_t end, const uint64_t *needed, int64_t group, float *out)
{
    const int64_t columns = problem->v_dim, stride = tile->v.dim_stride;
    for (int64_t j = first; j < end; j += 2, out += STEP) {
        const char *key[2] = {NULL, NULL};
        float *to = out;
        for (int i = 0; i < 2; i++)
            if (j + i >= tile->k_first && j + i < end && !is_hidden(needed, j + i - first))
                key[i] = key_row(problem, tile, &tile->v, tile->v_page_stride, HEED_BF16, j + i);
        for (int64_t d = 0; d < columns; d += DOT_WIDTH) {
            const int64_t n = columns - d, at = d * stride * 2;
            vi a = key[0] ? load_pairs(key[0] + at, stride, n) : vi_zero();
            vi b = key[1] ? load_pairs(key[1] + at, stride, n) : vi_zero();
            vf x[2];
            v_pair_rows(a, b, &x[0], &x[1]);
            for (int64_t c = 0; c < 4 && c * STEP < n; c++, to += group)
                if (c % 2)
                    v_store_high(to, x[c / 2]);
                else
                    v_store_low(to, x[c / 2]);
        }
    }
}

#else

/* Scales of key j. */
static code_key key_scales(const heed_problem *problem, const heed_tile *tile,
                           const heed_quant *quant, int64_t j)
{
    return tile->pages
               ? code_key_of(quant, tile->pages[j / problem->page_len], j % problem->page_len)
               : code_key_of(quant, 0, j);
}

/* Copies the whole vectors of a row of adjacent elements: the usual case, without branches in its loop. Groups
 * of STEP elements are `group` floats apart; 0: they follow one another. Returns how many elements. */
V_INLINE int64_t copy_whole(uint32_t type, const char *row, int64_t dims, int64_t group, float *to)
{
    int64_t d = 0;
    for (; d + LANES <= dims; d += LANES) {
        const vf x = v_load_type(type, row + d * (type == HEED_F32 ? 4 : 2), LANES);
        if (!group) {
            v_store(to + d, x);
            continue;
        }
#if HEED_PREFILL_STEP(LANES) < LANES
        v_store_low(to + d / STEP * group, x);
        v_store_high(to + (d / STEP + 1) * group, x);
#else
        v_store(to + d / STEP * group + d % STEP, x);
#endif
    }
    return d;
}

/* The same for any stride between elements: nothing is copied where they are not adjacent. */
V_INLINE int64_t copy_adjacent(uint32_t type, const char *row, int64_t stride, int64_t dims,
                               int64_t group, float *to)
{
    return stride != 1 ? 0
           : type == HEED_F32 ? copy_whole(HEED_F32, row, dims, group, to)
           : type == HEED_F16 ? copy_whole(HEED_F16, row, dims, group, to)
                              : copy_whole(HEED_BF16, row, dims, group, to);
}

#define CODE_COLUMNS 256 /* of V decoded at a time */

/* Stores columns [0, columns) of a row of floats in groups of STEP columns, with zeros
 * behind the last. */
V_INLINE void store_columns(const float *from, int64_t columns, int64_t group, float *to)
{
    for (int64_t d = 0; d < columns; d += STEP, to += group) {
        const int n = columns - d < STEP ? (int)(columns - d) : STEP;
        memcpy(to, from + d, (size_t)n * sizeof *to);
        memset(to + n, 0, (size_t)(STEP - n) * sizeof *to);
    }
}

/* Copies keys [first, end) of K as f32 rows, with rows of zeros up to a whole step. */
V_NOINLINE void pack_keys(const heed_problem *problem, const heed_tile *tile, int64_t first,
                          int64_t end, const uint64_t *needed, float *out)
{
    uint32_t type = problem->k_type, bytes = heed_dtype_bytes(type);
    int64_t dims = problem->qk_dim, stride = tile->k.dim_stride;
    for (int64_t j = first; j < end; j++, out += dims) {
        if (is_hidden(needed, j - first)) {
            memset(out, 0, (size_t)dims * sizeof *out);
            continue;
        }
        const char *key = key_row(problem, tile, &tile->k, tile->k_page_stride, type, j);
        if (heed_is_code(type)) {
            const code_key scales = key_scales(problem, tile, &tile->k_quant, j);
            code_row(type, key, stride, 0, dims, &scales, out);
            continue;
        }
        int64_t d = copy_adjacent(type, key, stride, dims, 0, out);
        for (; d + LANES <= dims; d += LANES)
            v_store(out + d, v_gather_type(type, key + d * stride * (int64_t)bytes, stride, LANES));
        if (d < dims)
            v_store_n(
                out + d,
                v_gather_type(type, key + d * stride * (int64_t)bytes, stride, (int)(dims - d)),
                (int)(dims - d));
    }
    for (int64_t j = end - first; j % STEP; j++, out += dims)
        memset(out, 0, (size_t)dims * sizeof *out);
}

/* Copies keys [first, end) of V as f32 [column / STEP][key][STEP], with zeros in the columns behind
 * the last. The groups of STEP columns are `group` floats apart. */
V_NOINLINE void pack_values(const heed_problem *problem, const heed_tile *tile, int64_t first,
                            int64_t end, const uint64_t *needed, int64_t group, float *out)
{
    uint32_t type = problem->v_type, bytes = heed_dtype_bytes(type);
    int64_t columns = problem->v_dim, stride = tile->v.dim_stride;
    for (int64_t j = first; j < end; j++, out += STEP) {
        float *to = out;
        if (is_hidden(needed, j - first)) {
            for (int64_t d = 0; d < whole_steps(columns); d += STEP, to += group)
                memset(to, 0, STEP * sizeof *to);
            continue;
        }
        const char *key = key_row(problem, tile, &tile->v, tile->v_page_stride, type, j);
        if (heed_is_code(type)) {
            const code_key scales = key_scales(problem, tile, &tile->v_quant, j);
            for (int64_t d = 0; d < columns; d += CODE_COLUMNS) {
                float row[CODE_COLUMNS];
                const int64_t n = columns - d < CODE_COLUMNS ? columns - d : CODE_COLUMNS;
                code_row(type, key, stride, d, n, &scales, row);
                store_columns(row, n, group, to + d / STEP * group);
            }
            continue;
        }
        int64_t d = copy_adjacent(type, key, stride, columns, group, to);
#if HEED_PREFILL_STEP(LANES) < LANES
        for (to += d / STEP * group; d < columns; d += LANES, to += 2 * group) {
            int n = columns - d < LANES ? (int)(columns - d) : LANES;
            vf x = v_gather_type(type, key + d * stride * (int64_t)bytes, stride, n);
            v_store_low(to, x);
            if (n > STEP)
                v_store_high(to + group, x);
        }
#else
        for (; d < whole_steps(columns); d += LANES) {
            int n = columns - d < LANES ? (int)(columns - d) : LANES;
            vf x = n > 0 ? v_gather_type(type, key + d * stride * (int64_t)bytes, stride, n)
                         : v_zero();
            v_store(to + d / STEP * group + d % STEP, x);
        }
#endif
    }
}

#endif

#endif
