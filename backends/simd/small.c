/*
 * Attention of a few rows with a few keys of few dims, where preparing a larger kernel would take
 * longer than the products. Every type in, f32 arithmetic; compiled once per ISA, to the same bits.
 *
 * Up to 16 query rows make a panel. They lie in the lanes for scores and weights, so that softmax
 * needs no sums across lanes; dims lie in the lanes for the values, eight at a time, of which none
 * is wasted. The reference is the row's maximum: a row of one key gives that key's value bit for
 * bit. Rows are finished here, because a call has no time for more. What is not f32, or not evenly
 * spaced, goes through copies.
 *
 * What a row may see is a range of keys, and the keys outside are not weighed at all.
 */
#include <math.h>
#include <string.h>

#include "decode.h"
#include "simd.h"
#include "vec.h"

#if defined(__GNUC__)
#define V_OPAQUE(pointer) __asm__("" : "+r"(pointer));
#else
#define V_OPAQUE(pointer)
#endif

enum { ROWS = 16, KEYS = HEED_SMALL_KEYS, QK_DIM = 16, V_DIM = HEED_SMALL_DIM };

/* A row of the tile: query head of a kv head's group, and row of the run. */
typedef struct place {
    int64_t head, i;
} place;

/* Evenly spaced rows of f32: from row to row, and from one kv head to the next. */
typedef struct matrix {
    float *data;
    int64_t stride, step;
} matrix;

/* What holds for a whole call. */
typedef struct work {
    const heed_problem *problem;
    const heed_tile *tile;
    float high, low; /* what q is multiplied with */
    int ranges;      /* not every row sees all keys */
    int copy_q, copy_k, copy_v, copy_out;
    int64_t keys;
    matrix q, k, v, out; /* of the tile's kv head; where there is a copy, its stride alone */
} work;

/* Up to 16 rows of a kv head under way. */
typedef struct panel {
    int64_t g;      /* kv head, counted from the tile's */
    int64_t row, n; /* state row of its first, and how many */
    const float *v;
    float *out;
    int empty; /* some row saw nothing of weight */
    float weight[KEYS][ROWS];
    float max[ROWS], sum[ROWS], scale[ROWS];
    float low[ROWS], end[ROWS]; /* keys of the tile that a row sees */
    float q_copy[ROWS][QK_DIM], k_copy[KEYS][QK_DIM], v_copy[KEYS][V_DIM], out_copy[ROWS][V_DIM];
} panel;

/* Of a float at any address. */
V_INLINE __m256 broadcast_8(const float *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_ps(x);
}

/* ---- scores -----------------------------------------------------------------------------------
 */

/* Eight dims of LANES rows, of which n exist, one dim to a vector. */
V_INLINE void load_queries(const float *at, int64_t stride, int64_t n, vf q[8])
{
#if LANES == 16
    const __m512 zero = _mm512_setzero_ps();
    vf t[8];
    if (n == 1) {
        for (int i = 0; i < 8; i++)
            q[i] = v_broadcast(at + i);
        return;
    }
    /* Rows 4 apart side by side, so that whole quarters are what is left to move at the end. */
    for (int i = 0; i < 8; i++) {
        const int r = i < 4 ? i : i + 4;
        q[i] = r < n ? _mm512_castps256_ps512(_mm256_loadu_ps(at + r * stride)) : zero;
        if (r + 4 < n)
            q[i] = _mm512_insertf32x8(q[i], _mm256_loadu_ps(at + (r + 4) * stride), 1);
    }
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_ps(q[i], q[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(q[i], q[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        q[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        q[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        q[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        q[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(q[i], q[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(q[i], q[i + 4], 0xdd);
    }
    for (int i = 0; i < 8; i++)
        q[i] = t[i];
#else
    for (int i = 0; i < 8; i++)
        q[i] = i < n ? v_load(at + i * stride) : v_zero();
    v_transpose(q);
#endif
}

/* The score of a key, of each row. The order is that of decode_products.h, in which the second pass
 * forms the scores again. */
V_INLINE vf score(const vf *q, const float *k, int64_t dim)
{
    vf x[8];
    for (int i = 0; i < 8; i++)
        x[i] = v_mul(q[i], v_broadcast(k + i));
    for (int i = 0; i < 8 && dim == 16; i++)
        x[i] = v_add(x[i], v_mul(q[i + 8], v_broadcast(k + i + 8)));
    for (int i = 0; i < 4; i++)
        x[i] = v_add(x[i], x[i + 4]);
    return v_add(v_add(x[0], x[2]), v_add(x[1], x[3]));
}

/* Scores of the LANES rows from `first` on, and their maximum. dim (constant) is 8 or 16. */
V_INLINE vf scores(const work *w, const float *rows, const float *k, int64_t dim, int64_t first,
                   panel *p)
{
    const int64_t stride = w->k.stride;
    float *to = p->weight[0] + first;
    vf q[QK_DIM], max = v_set1(-INFINITY);
    for (int64_t d = 0; d < dim; d += 8) {
        load_queries(rows + first * w->q.stride + d, w->q.stride, p->n - first, q + d);
        for (int i = 0; i < 8; i++)
            q[d + i] = v_fma(q[d + i], v_set1(w->high), v_mul(q[d + i], v_set1(w->low)));
    }
    int64_t left = w->keys;
    const float *next = k + stride;
    for (; left >= 2; left -= 2, k += 2 * stride, next += 2 * stride, to += 2 * ROWS) {
        V_OPAQUE(next) /* or each of its elements gets a register of its own */
        const vf s0 = score(q, k, dim), s1 = score(q, next, dim);
        v_store(to, s0);
        v_store(to + ROWS, s1);
        max = v_max(v_max(max, s0), s1);
    }
    if (left) {
        const vf s = score(q, k, dim);
        v_store(to, s);
        max = v_max(max, s);
    }
    return max;
}

/* Scores of keys that a row may not see become -inf. Returns the maximum of the others. */
V_NOINLINE vf hide(int64_t first, int64_t keys, panel *p)
{
    const vf none = v_set1(-INFINITY);
    const vf low = v_load(p->low + first), end = v_load(p->end + first);
    vf max = none;
    for (int64_t j = 0; j < keys; j++) {
        const vf at = v_set1((float)j);
        vf s = v_load(p->weight[j] + first);
        s = v_select(m_less(at, low), none, s);
        s = v_select(m_less(at, end), s, none);
        v_store(p->weight[j] + first, s);
        max = v_max(max, s);
    }
    return max;
}

/* Scores become weights. */
V_INLINE void weigh(int64_t first, int64_t keys, panel *p)
{
    const vf max = v_load(p->max + first);
    float *at = p->weight[0] + first;
    /* With nothing to see the maximum is -inf: 0 in its place keeps the weights 0. */
    const vf reference = v_select(m_equal(max, v_set1(-INFINITY)), v_zero(), max);
    vf sum = v_zero(), odd = v_zero();
    int64_t left = keys;
    for (; left >= 2; left -= 2, at += 2 * ROWS) {
        const vf w0 = v_exp2(v_sub(v_load(at), reference));
        const vf w1 = v_exp2(v_sub(v_load(at + ROWS), reference));
        v_store(at, w0);
        v_store(at + ROWS, w1);
        sum = v_add(sum, w0);
        odd = v_add(odd, w1);
    }
    if (left) {
        const vf w = v_exp2(v_sub(v_load(at), reference));
        v_store(at, w);
        sum = v_add(sum, w);
    }
    sum = v_add(sum, odd);
    p->empty |= m_bits(m_equal(sum, v_zero())) != 0;
    v_store(p->sum + first, sum);
    v_store(p->scale + first, v_div(v_set1(1), sum));
}

/* ---- values -----------------------------------------------------------------------------------
 */

/* Eight dims of the weighted values of `rows` (constant) rows from r on, which see all keys. */
V_INLINE void values(const work *w, const panel *p, int64_t d, int64_t r, int rows)
{
    const float *value = p->v + d, *weight = p->weight[0] + r, *end = weight + w->keys * ROWS;
    const float *scale = p->scale + r;
    const int64_t v_stride = w->v.stride, stride = w->out.stride;
    float *to = p->out + r * stride + d;
    const __m256 z = _mm256_setzero_ps();
    __m256 s0 = z, s1 = z, s2 = z, s3 = z, s4 = z, s5 = z, s6 = z, s7 = z, s8 = z, s9 = z, s10 = z,
           s11 = z;
    for (; weight < end; value += v_stride, weight += ROWS) {
        const __m256 x = _mm256_loadu_ps(value);
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define VALUE(n)                                                                                   \
    if (rows > n)                                                                                  \
        s##n = _mm256_fmadd_ps(broadcast_8(weight + n), x, s##n);
        EACH_ROW(VALUE)
    }
#define STORE(n)                                                                                   \
    if (rows > n)                                                                                  \
        _mm256_storeu_ps(to, _mm256_mul_ps(s##n, broadcast_8(scale + n))), to += stride;
    EACH_ROW(STORE)
#undef STORE
#undef VALUE
#undef EACH_ROW
}

V_INLINE void all_values(const work *w, const panel *p, int64_t d)
{
    int64_t r = 0, n = p->n;
    for (; r + 12 <= n; r += 12)
        values(w, p, d, r, 12);
    if (r + 10 <= n)
        values(w, p, d, r, 10), r += 10;
    if (r + 8 <= n)
        values(w, p, d, r, 8), r += 8;
    if (r + 4 <= n)
        values(w, p, d, r, 4), r += 4;
    if (r + 2 <= n)
        values(w, p, d, r, 2), r += 2;
    if (r < n)
        values(w, p, d, r, 1);
}

/* The same over the keys that each row sees. */
V_NOINLINE void values_of_ranges(const work *w, const panel *p, int64_t d)
{
    for (int64_t r = 0; r < p->n; r++) {
        __m256 s = _mm256_setzero_ps();
        for (int64_t j = (int64_t)p->low[r]; j < (int64_t)p->end[r]; j++)
            s = _mm256_fmadd_ps(broadcast_8(&p->weight[j][r]),
                                _mm256_loadu_ps(p->v + j * w->v.stride + d), s);
        _mm256_storeu_ps(p->out + r * w->out.stride + d,
                         _mm256_mul_ps(s, broadcast_8(&p->scale[r])));
    }
}

/* Rows that saw nothing of weight are zeros, whatever the values are. */
V_NOINLINE void clear_empty(const work *w, const panel *p)
{
    for (int64_t r = 0; r < p->n; r++)
        if (p->sum[r] == 0)
            memset(p->out + r * w->out.stride, 0, w->problem->v_dim * sizeof(float));
}

/* ---- what is not evenly spaced f32 ------------------------------------------------------------
 */

V_INLINE __m256 load_8(uint32_t type, const char *p)
{
    if (type == HEED_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)p);
    return type == HEED_F16 ? widen_f16_8(half) : widen_bf16_8(half);
}

V_INLINE void store_8(uint32_t type, char *p, __m256 x)
{
    if (type == HEED_F32)
        _mm256_storeu_ps((float *)(void *)p, x);
    else
        _mm_storeu_si128((__m128i *)(void *)p,
                         type == HEED_F16 ? narrow_f16_8(x) : narrow_bf16_8(x));
}

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
    return (p->g * tile->n_heads + at.head) * rows->head_stride +
           (tile->q_first + at.i) * rows->row_stride;
}

V_NOINLINE void copy_queries(const work *w, panel *p)
{
    const heed_tile *tile = w->tile;
    const uint32_t type = w->problem->q_type;
    const int64_t bytes = heed_dtype_bytes(type);
    place at = first_row(tile, p);
    for (int64_t r = 0; r < p->n; r++, step(tile, &at)) {
        const char *from = (const char *)tile->q.data + row_at(tile, &tile->q, p, at) * bytes;
        for (int64_t d = 0; d < w->problem->qk_dim; d += 8)
            _mm256_storeu_ps(p->q_copy[r] + d, load_8(type, from + d * bytes));
    }
}

/* Keys or values of 16 bits. */
V_NOINLINE void copy_keys(const work *w, const heed_rows *rows, uint32_t type, int64_t dim,
                          const panel *p, float *to, int64_t stride)
{
    const int64_t first = p->g * rows->head_stride + w->tile->k_first * rows->row_stride;
    const char *from = (const char *)rows->data + first * 2;
    for (int64_t j = 0; j < w->keys; j++, from += rows->row_stride * 2)
        for (int64_t d = 0; d < dim; d += 8)
            _mm256_storeu_ps(to + j * stride + d, load_8(type, from + 2 * d));
}

V_NOINLINE void copy_out(const work *w, const panel *p)
{
    const heed_tile *tile = w->tile;
    const uint32_t type = w->problem->out_type;
    const int64_t bytes = heed_dtype_bytes(type);
    place at = first_row(tile, p);
    for (int64_t r = 0; r < p->n; r++, step(tile, &at)) {
        char *to = (char *)tile->out.data + row_at(tile, &tile->out, p, at) * bytes;
        for (int64_t d = 0; d < w->problem->v_dim; d += 8)
            store_8(type, to + d * bytes, _mm256_loadu_ps(p->out_copy[r] + d));
    }
}

/* ---- panels -----------------------------------------------------------------------------------
 */

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

/* Scores of a panel whose place is set. */
V_INLINE void begin_panel(const work *w, panel *p)
{
    const heed_problem *problem = w->problem;
    const float *q = p->q_copy[0], *k = p->k_copy[0];
    if (w->copy_q)
        copy_queries(w, p);
    else
        q = w->q.data + p->g * w->q.step + p->row * w->q.stride;
    if (w->copy_k)
        copy_keys(w, &w->tile->k, problem->k_type, problem->qk_dim, p, p->k_copy[0], QK_DIM);
    else
        k = w->k.data + p->g * w->k.step;
    p->v = w->copy_v ? p->v_copy[0] : w->v.data + p->g * w->v.step;
    p->out =
        w->copy_out ? p->out_copy[0] : w->out.data + p->g * w->out.step + p->row * w->out.stride;
    if (w->copy_v)
        copy_keys(w, &w->tile->v, problem->v_type, problem->v_dim, p, p->v_copy[0], V_DIM);
    if (w->ranges)
        find_ranges(w->tile, p);
    for (int64_t first = 0; first < p->n; first += LANES) {
        vf max =
            problem->qk_dim == 8 ? scores(w, q, k, 8, first, p) : scores(w, q, k, 16, first, p);
        if (w->ranges)
            max = hide(first, w->keys, p);
        v_store(p->max + first, max);
    }
}

V_INLINE void end_panel(const work *w, panel *p)
{
    p->empty = 0;
    for (int64_t first = 0; first < p->n; first += LANES)
        weigh(first, w->keys, p);
    for (int64_t d = 0; d < w->problem->v_dim; d += 8)
        if (w->ranges)
            values_of_ranges(w, p, d);
        else
            all_values(w, p, d);
    if (p->empty)
        clear_empty(w, p);
    if (w->copy_out)
        copy_out(w, p);
    if (w->tile->lse.data)
        write_lse(w->tile, p);
    if (w->tile->weights.data || w->tile->scores.data) {
        memcpy(w->tile->row_max + p->row, p->max, (size_t)p->n * sizeof(float));
        memcpy(w->tile->row_sum + p->row, p->sum, (size_t)p->n * sizeof(float));
    }
}

/* Keys or values as a matrix. Returns whether they must be copied instead. */
V_INLINE int keys_of(const heed_tile *tile, const heed_rows *rows, uint32_t type, int64_t copied,
                     matrix *m)
{
    *m = (matrix){NULL, copied, 0};
    if (type != HEED_F32)
        return 1;
    *m = (matrix){(float *)rows->data + tile->k_first * rows->row_stride, rows->row_stride,
                  rows->head_stride};
    return 0;
}

/* The same of q and out, whose rows are those of all heads of a group. */
V_INLINE int rows_of(const heed_tile *tile, const heed_rows *rows, uint32_t type, int64_t copied,
                     matrix *m)
{
    const int64_t stride = tile->q_count == 1 ? rows->head_stride : rows->row_stride;
    *m = (matrix){NULL, copied, 0};
    if (type != HEED_F32 ||
        (tile->n_heads > 1 && tile->q_count > 1 && rows->head_stride != tile->q_count * stride))
        return 1;
    *m = (matrix){(float *)rows->data + tile->q_first * rows->row_stride, stride,
                  tile->n_heads * rows->head_stride};
    return 0;
}

heed_status HEED_ISA_FUNCTION(heed_attn_small)(const heed_problem *problem, heed_tile *tile,
                                               int64_t kv_heads)
{
    const int64_t rows = tile->n_heads * tile->q_count;
    int64_t unused, common_first, common_end, g = 0, row = 0;
    work w = {.problem = problem, .tile = tile};
    panel panels[2], *p = &panels[0], *last = NULL;
    w.keys = tile->k_end - tile->k_first;
    decode_split((double)problem->scale * decode_unit(problem), &w.high, &w.low);
    heed_row_keys(tile, tile->q_first + tile->q_count - 1, &common_first, &unused);
    heed_row_keys(tile, tile->q_first, &unused, &common_end);
    w.ranges = common_first != tile->k_first || common_end != tile->k_end;
    w.copy_q = rows_of(tile, &tile->q, problem->q_type, QK_DIM, &w.q);
    w.copy_k = keys_of(tile, &tile->k, problem->k_type, QK_DIM, &w.k);
    w.copy_v = keys_of(tile, &tile->v, problem->v_type, V_DIM, &w.v);
    w.copy_out = rows_of(tile, &tile->out, problem->out_type, V_DIM, &w.out);
    /* The scores of one panel are on their way while the last one's weights and values are formed:
     * each alone would mostly wait for itself. */
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
    return HEED_OK;
}
