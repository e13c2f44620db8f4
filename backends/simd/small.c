/*
 * Attention of a few rows with a few keys of few dims, where a call is over before wide vectors
 * have woken up: f32, vectors of 8 floats whatever the instruction set, and so the same bits from
 * all.
 *
 * Eight query rows lie in the lanes for scores and weights, so that softmax needs no sums across
 * lanes; dims lie in the lanes for the values. The reference is the row's maximum: a row of one key
 * gives that key's value bit for bit. Rows are finished here, because a call has no time for more.
 *
 * What a row may see is a range of keys, and the keys outside are not weighed at all.
 */
#include <math.h>
#include <string.h>

#include "decode.h"
#include "lanes8.h"
#include "simd.h"

#if defined(__AVX512F__)
#define small_tile heed_attn_small_avx512
#else
#define small_tile heed_attn_small_avx2
#endif

enum { LANES = 8, MAX_KEYS = HEED_SMALL_KEYS };

/* Eight rows of the tile: what they see, their weights and sums. */
typedef struct panel {
    int64_t n;    /* n of the eight lanes are rows, the others repeat the last one */
    int64_t keys; /* of the tile */
    int all;      /* every row sees all of them */
    int64_t head[LANES], row[LANES]; /* head of the tile, query row of the sequence */
    const float *q[LANES];
    float *out[LANES];
    int32_t low[LANES], end[LANES]; /* keys of the tile that a row sees */
    float weight[MAX_KEYS][LANES], max[LANES], sum[LANES], scale[LANES];
    float kept[LANES]; /* all bits, or none of a row that sees nothing of weight */
} panel;

/* Of a float at any address. */
V_INLINE __m256 broadcast(const float *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_ps(x);
}

/* The next rows, from (head, i) on: divisions would take longer than the products. */
V_INLINE void take_rows(const heed_tile *tile, int64_t *head, int64_t *i, panel *p)
{
    p->n = 0;
    for (int l = 0; l < LANES; l++) {
        if (*head == tile->n_heads) {
            p->q[l] = p->q[l - 1], p->head[l] = p->head[l - 1], p->row[l] = p->row[l - 1];
            continue;
        }
        p->head[l] = *head, p->row[l] = tile->q_first + *i;
        p->q[l] = (const float *)tile->q.data + *head * tile->q.head_stride +
                  p->row[l] * tile->q.row_stride;
        p->out[l] = (float *)tile->out.data + *head * tile->out.head_stride +
                    p->row[l] * tile->out.row_stride;
        p->n++;
        if (++*i == tile->q_count)
            *i = 0, ++*head;
    }
}

/* Weights of eight rows. dim (constant) is 8 or 16. */
V_INLINE void weigh(const heed_problem *problem, const heed_tile *tile, int64_t dim, panel *p)
{
    __m256 q[16];
    float high, low;
    decode_split((double)problem->scale * decode_unit(problem), &high, &low);
    for (int64_t d = 0; d < dim; d += LANES) {
        for (int i = 0; i < LANES; i++)
            q[d + i] = _mm256_loadu_ps(p->q[i] + d);
        transpose_8(q + d);
        for (int i = 0; i < LANES; i++)
            q[d + i] = _mm256_fmadd_ps(q[d + i], _mm256_set1_ps(high),
                                       _mm256_mul_ps(q[d + i], _mm256_set1_ps(low)));
    }
    const float *k = (const float *)tile->k.data + tile->k_first * tile->k.row_stride;
    const __m256 none = _mm256_set1_ps(-INFINITY);
    __m256 max = none, sum = _mm256_setzero_ps();
    for (int64_t j = 0; j < p->keys; j++, k += tile->k.row_stride) {
        /* The order of decode_products.h, in which the second pass forms the scores again. */
        __m256 x[LANES];
        for (int i = 0; i < LANES; i++)
            x[i] = _mm256_mul_ps(q[i], broadcast(k + i));
        for (int i = 0; i < LANES && dim == 16; i++)
            x[i] = _mm256_add_ps(x[i], _mm256_mul_ps(q[i + 8], broadcast(k + i + 8)));
        for (int i = 0; i < 4; i++)
            x[i] = _mm256_add_ps(x[i], x[i + 4]);
        __m256 s = _mm256_add_ps(_mm256_add_ps(x[0], x[2]), _mm256_add_ps(x[1], x[3]));
        if (!p->all) {
            __m256i at = _mm256_set1_epi32((int)j);
            __m256i before =
                _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p->low), at);
            __m256i inside =
                _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p->end), at);
            s = _mm256_blendv_ps(none, s, _mm256_castsi256_ps(_mm256_andnot_si256(before, inside)));
        }
        max = _mm256_max_ps(max, s);
        _mm256_storeu_ps(p->weight[j], s);
    }
    /* With nothing to see the maximum is -inf: 0 in its place keeps the weights 0. */
    __m256 reference = _mm256_and_ps(max, _mm256_cmp_ps(max, none, _CMP_NEQ_UQ));
    for (int64_t j = 0; j < p->keys; j++) {
        __m256 w = exp2_8(_mm256_sub_ps(_mm256_loadu_ps(p->weight[j]), reference));
        sum = _mm256_add_ps(sum, w);
        _mm256_storeu_ps(p->weight[j], w);
    }
    _mm256_storeu_ps(p->max, max);
    _mm256_storeu_ps(p->sum, sum);
    _mm256_storeu_ps(p->scale, _mm256_div_ps(_mm256_set1_ps(1), sum));
    _mm256_storeu_ps(p->kept, _mm256_cmp_ps(sum, _mm256_setzero_ps(), _CMP_NEQ_UQ));
}

V_INLINE void store_row(const panel *p, int i, int64_t d, __m256 sum)
{
    __m256 x = _mm256_mul_ps(sum, broadcast(&p->scale[i]));
    if (i < p->n)
        _mm256_storeu_ps(p->out[i] + d, _mm256_and_ps(x, broadcast(&p->kept[i])));
}

/* Weighted values of the first `rows` (constant: 1, 2, 4 or 8) rows, which see all keys. */
V_INLINE void values(const heed_tile *tile, const panel *p, int rows, int64_t d)
{
    const float *v = (const float *)tile->v.data + tile->k_first * tile->v.row_stride + d;
    __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
    for (int64_t j = 0; j < p->keys; j++, v += tile->v.row_stride) {
        const float *w = p->weight[j];
        __m256 x = _mm256_loadu_ps(v);
#define VALUE(n)                                                                                   \
    if (rows > n)                                                                                  \
        s##n = _mm256_fmadd_ps(broadcast(w + n), x, s##n);
        VALUE(0)
        VALUE(1)
        VALUE(2)
        VALUE(3)
        VALUE(4)
        VALUE(5)
        VALUE(6)
        VALUE(7)
#undef VALUE
    }
    const __m256 sum[LANES] = {s0, s1, s2, s3, s4, s5, s6, s7};
    for (int i = 0; i < rows; i++)
        store_row(p, i, d, sum[i]);
}

/* Weighted values of one row over the keys that it sees. */
V_INLINE void values_of_range(const heed_tile *tile, const panel *p, int i, int64_t d)
{
    const float *v = (const float *)tile->v.data + tile->k_first * tile->v.row_stride + d;
    __m256 s = _mm256_setzero_ps();
    for (int64_t j = p->low[i]; j < p->end[i]; j++)
        s = _mm256_fmadd_ps(broadcast(&p->weight[j][i]),
                            _mm256_loadu_ps(v + j * tile->v.row_stride), s);
    store_row(p, i, d, s);
}

static void find_ranges(const heed_tile *tile, panel *p)
{
    p->all = 1;
    for (int i = 0; i < LANES; i++) {
        int64_t first, end;
        heed_row_keys(tile, p->row[i], &first, &end);
        p->low[i] = (int32_t)(first - tile->k_first);
        p->end[i] = (int32_t)(end < tile->k_first ? 0 : end - tile->k_first);
        p->all &= p->low[i] == 0 && p->end[i] == p->keys;
    }
}

static void write_lse(const heed_tile *tile, const panel *p)
{
    for (int i = 0; i < p->n; i++) {
        int64_t at = p->head[i] * tile->lse.head_stride + p->row[i] * tile->lse.row_stride;
        double lse = p->sum[i] == 0
                         ? -(double)INFINITY
                         : (double)p->max[i] * 0.6931471805599453 + log((double)p->sum[i]);
        heed_store(HEED_F32, tile->lse.data, at, (float)lse);
    }
}

heed_status small_tile(const heed_problem *problem, heed_tile *tile)
{
    const int64_t rows = tile->n_heads * tile->q_count;
    int64_t unused, common_first, common_end, head = 0, i = 0;
    panel p;
    p.keys = tile->k_end - tile->k_first;
    heed_row_keys(tile, tile->q_first + tile->q_count - 1, &common_first, &unused);
    heed_row_keys(tile, tile->q_first, &unused, &common_end);
    p.all = common_first == tile->k_first && common_end == tile->k_end;
    const int ranges = !p.all;
    for (int64_t r = 0; r < rows; r += LANES) {
        take_rows(tile, &head, &i, &p);
        if (ranges)
            find_ranges(tile, &p);
        if (problem->qk_dim == LANES)
            weigh(problem, tile, LANES, &p);
        else
            weigh(problem, tile, 2 * LANES, &p);
        for (int64_t d = 0; d < problem->v_dim; d += LANES) {
            if (!p.all) {
                for (int l = 0; l < p.n; l++)
                    values_of_range(tile, &p, l, d);
                continue;
            }
            if (p.n > 4)
                values(tile, &p, 8, d);
            else if (p.n > 2)
                values(tile, &p, 4, d);
            else if (p.n == 2)
                values(tile, &p, 2, d);
            else
                values(tile, &p, 1, d);
        }
        if (tile->lse.data)
            write_lse(tile, &p);
        if (tile->weights.data || tile->scores.data)
            for (int l = 0; l < p.n; l++) {
                tile->row_max[r + l] = p.max[l];
                tile->row_sum[r + l] = p.sum[l];
            }
    }
    tile->flags |= HEED_TILE_FINISHED;
    return HEED_OK;
}
