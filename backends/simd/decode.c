/*
 * Attention tile of few query rows: every type in, f32 sums; compiled once per ISA.
 *
 * Work       16 keys at a time: scores of all rows, their weights, the weighted values. V is
 *            prefetched while the scores are computed and the next K while the values are weighed,
 *            so that memory never waits for arithmetic. Up to four rows read 16-bit K and V as they
 *            lie; more rows share one copy of the block as f32.
 * Layout     any strides; where dims are not adjacent a block is gathered first.
 * Edges      reads nothing outside the rows and keys of the tile. Prefetch instructions may go past
 *            the tile, where they cannot fault.
 * Numerics   state in log2 units, the reference an integer (so that a rescale is exact). exp2 is a
 *            polynomial on [-1/2, 1/2]; weights below 2^-126 are 0.
 * Masks      a key that some rows see and others do not is weighed row by row, so that its value
 *            never meets a weight of 0 of a row that may not see it.
 */
#include <float.h>

#include "decode_products.h"
#include "simd.h"

typedef struct decode {
    const heed_problem *problem;
    heed_tile *tile;
    int64_t rows, q_stride;           /* floats from row to row of q */
    int64_t common_first, common_end; /* keys in the range of every row */
    float *q, *scores, *sums, *reference, *k_copy, *v_copy;
    uint16_t *visible;
    int64_t key_block; /* of the tile's mask_blocks */
    int copy_k, copy_v;
    int64_t prefetch_end; /* keys of this sequence end here */
} decode;

/* The keys [first, end) of a block, at 16 addresses: those outside repeat one of them. */
typedef struct block {
    int64_t base, first, end;
    uint32_t all; /* a bit per key inside */
    const char *k[DECODE_BLOCK], *v[DECODE_BLOCK];
} block;

static const float *q_row(const decode *d, int64_t r)
{
    return d->q + r * d->q_stride;
}

/* q times scale, in log2 units (or over softcap), with zeros up to a multiple of 16 dims. The
 * factor is split in two floats of one sign, so that the product is rounded once and infinity stays
 * one. */
static void scale_queries(decode *d)
{
    const heed_problem *p = d->problem;
    const heed_tile *tile = d->tile;
    double factor = p->features & HEED_HAS_SOFTCAP ? (double)p->scale / (double)p->softcap
                                                   : (double)p->scale * 1.4426950408889634;
    float high = heed_f32_of_bits(heed_bits_of_f32((float)factor)), low;
    if (fabs((double)high) > fabs(factor))
        high = heed_f32_of_bits(heed_bits_of_f32(high) - 1);
    low = (float)(factor - (double)high);
    if (low == 0)
        low = high * 0x1p-60f;
    for (int64_t r = 0; r < d->rows; r++) {
        int64_t head = r / tile->q_count, row = tile->q_first + r % tile->q_count, i = 0;
        int64_t at = head * tile->q.head_stride + row * tile->q.row_stride;
        float *to = d->q + r * d->q_stride;
        if (p->q_type == HEED_F32 && tile->q.dim_stride == 1)
            memcpy(to, (const float *)tile->q.data + at, p->qk_dim * sizeof(float));
        else
            for (i = 0; i < p->qk_dim; i++)
                to[i] = heed_load(p->q_type, tile->q.data, at + i * tile->q.dim_stride);
        memset(to + p->qk_dim, 0, (size_t)(d->q_stride - p->qk_dim) * sizeof(float));
        for (i = 0; i < d->q_stride; i += LANES) {
            vf x = v_load(to + i);
            x = v_fma(x, v_set1(high), v_mul(x, v_set1(low)));
            v_store(to + i, x);
        }
    }
}

/* ---- visibility -------------------------------------------------------------------------------
 */

static uint32_t range_bits(const block *b, int64_t first, int64_t end)
{
    int64_t low = (first > b->first ? first : b->first) - b->base;
    int64_t high = (end < b->end ? end : b->end) - b->base;
    return low < high ? ((1u << high) - 1u) & ~((1u << low) - 1u) : 0;
}

static uint32_t mask_bits(const block *b, const heed_rows *mask, int64_t head, int64_t row)
{
    const uint8_t *data = mask->data;
    uint32_t bits = 0;
    data += head * mask->head_stride + row * mask->row_stride;
    if (mask->dim_stride == 1 && b->end - b->base == DECODE_BLOCK && b->first == b->base) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(data + b->base));
        return 0xffffu & ~(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
    }
    for (int64_t j = b->first; j < b->end; j++)
        bits |= (uint32_t)(data[j * mask->dim_stride] != 0) << (j - b->base);
    return bits;
}

static void load_bias(const decode *d, const block *b, int64_t head, int64_t row, float *to)
{
    const heed_rows *bias = &d->tile->bias;
    int64_t at = head * bias->head_stride + row * bias->row_stride;
    uint32_t type = d->problem->bias_type;
    if (bias->dim_stride == 1 && b->end - b->base == DECODE_BLOCK && b->first == b->base) {
        const char *from = (const char *)bias->data + (at + b->base) * heed_dtype_bytes(type);
        for (int i = 0; i < DECODE_BLOCK; i += LANES)
            v_store(to + i, v_load_type(type, from + (size_t)i * heed_dtype_bytes(type), LANES));
        return;
    }
    memset(to, 0, DECODE_BLOCK * sizeof *to);
    for (int64_t j = b->first; j < b->end; j++)
        to[j - b->base] = heed_load(type, bias->data, at + j * bias->dim_stride);
}

/* Which keys each row sees. Returns the bits of the keys that some row sees, and in *same whether
 * all rows see the same ones. */
static uint32_t find_visible(decode *d, const block *b, int *same)
{
    const heed_tile *tile = d->tile;
    uint32_t any = 0, every = 0xffffu;
    for (int64_t r = 0; r < d->rows; r++) {
        int64_t head = r / tile->q_count, i = tile->q_first + r % tile->q_count, first, end;
        int state = tile->mask.data || tile->bias.data ? HEED_BLOCK_MIXED : HEED_BLOCK_ALL;
        uint32_t bits;
        if (tile->mask_blocks)
            state = tile->mask_blocks[head * tile->mask_block_stride + b->base / d->key_block -
                                      tile->k_first / d->key_block];
        heed_row_keys(tile, i, &first, &end);
        bits = state == HEED_BLOCK_NONE ? 0 : range_bits(b, first, end);
        if (state == HEED_BLOCK_MIXED && bits && tile->mask.data)
            bits &= mask_bits(b, &tile->mask, head, i);
        if (state == HEED_BLOCK_MIXED && bits && tile->bias.data) {
            float bias[DECODE_BLOCK];
            load_bias(d, b, head, i, bias);
            for (int j = 0; j < DECODE_BLOCK; j++)
                bits &= ~((uint32_t)(bias[j] == -INFINITY) << j);
        }
        d->visible[r] = (uint16_t)bits;
        any |= bits;
        every &= bits;
    }
    *same = any == every;
    return any;
}

/* ---- scores and weights -----------------------------------------------------------------------
 */

/* Softcap, ALiBi and bias, from the products of row r. */
static void finish_scores(const decode *d, const block *b, int64_t r)
{
    const heed_problem *p = d->problem;
    const heed_tile *tile = d->tile;
    const double log2_e = 1.4426950408889634;
    int64_t head = r / tile->q_count, i = tile->q_first + r % tile->q_count;
    float *s = d->scores + r * DECODE_BLOCK;
    if (p->features & HEED_HAS_SOFTCAP)
        for (int j = 0; j < DECODE_BLOCK; j++)
            s[j] = tanhf(s[j]) * (float)((double)p->softcap * log2_e);
    if (tile->alibi_slope) {
        float slope = (float)((double)tile->alibi_slope[head] * log2_e);
        for (int j = 0; j < DECODE_BLOCK; j++)
            s[j] += slope * (float)(b->base + j - (i + tile->q_offset));
    }
    if (tile->bias.data) {
        float slope = (float)((tile->bias_slope ? (double)tile->bias_slope[head] : 1) * log2_e);
        float bias[DECODE_BLOCK];
        load_bias(d, b, head, i, bias);
        for (int j = 0; j < DECODE_BLOCK; j++)
            s[j] += slope * bias[j];
    }
}

/* The reference of row r becomes `top`, and what was summed so far follows. */
V_NOINLINE void raise_reference(decode *d, int64_t r, float top)
{
    float *acc = d->tile->acc + r * d->tile->acc_stride, *sums = d->sums + r * DECODE_BLOCK;
    float drop = d->reference[r] - top; /* at most 0, an integer */
    vf factor = v_exp2(v_set1(drop));   /* a power of two, or 0 */
    int64_t i = 0, dim = d->problem->v_dim;
    for (; i + LANES <= dim; i += LANES)
        v_store(acc + i, v_mul(v_load(acc + i), factor));
    if (i < dim)
        v_store_n(acc + i, v_mul(v_load_n(acc + i, (int)(dim - i)), factor), (int)(dim - i));
    for (i = 0; i < DECODE_BLOCK; i += LANES)
        v_store(sums + i, v_mul(v_load(sums + i), factor));
    d->reference[r] = top;
}

/* Scores of row r become weights relative to its reference, which first grows if it must. */
V_INLINE void weigh_scores(decode *d, int64_t r, uint32_t visible)
{
    float *s = d->scores + r * DECODE_BLOCK, *sums = d->sums + r * DECODE_BLOCK;
    vf m = v_set1(d->reference[r]);
    vf x[DECODE_BLOCK / LANES];
    uint32_t above = 0;
    for (int i = 0; i < DECODE_BLOCK / LANES; i++) {
        x[i] = v_load(s + i * LANES);
        if (visible != 0xffffu)
            x[i] = v_select(m_from_bits(visible >> (i * LANES)), x[i], v_set1(-INFINITY));
        above |= m_bits(m_less(m, x[i]));
    }
    if (above) {
        float top = -INFINITY, each[DECODE_BLOCK];
        for (int i = 0; i < DECODE_BLOCK / LANES; i++)
            v_store(each + i * LANES, x[i]);
        for (int i = 0; i < DECODE_BLOCK; i++)
            top = each[i] > top ? each[i] : top;
        raise_reference(d, r, ceilf(top));
        m = v_set1(d->reference[r]);
    }
    for (int i = 0; i < DECODE_BLOCK / LANES; i++) {
        x[i] = v_exp2(v_sub(x[i], m));
        v_store(s + i * LANES, x[i]);
        v_store(sums + i * LANES, v_add(v_load(sums + i * LANES), x[i]));
    }
}

/* ---- products, one copy per type --------------------------------------------------------------
 */

/* Scores of all rows. `ahead` are the V rows of the block, of which ahead_bytes are fetched. */
V_INLINE void all_scores(uint32_t type, const decode *d, const char *const *k,
                         const char *const *ahead, int64_t ahead_bytes)
{
    int64_t r = 0, dim = d->problem->qk_dim;
    for (; r < d->rows; r += DECODE_DOT_ROWS) {
        int64_t left = d->rows - r;
        float *scores = d->scores + r * DECODE_BLOCK;
        for (int j = 0; j < DECODE_BLOCK; j += 4) {
            if (r == 0)
                for (int i = j; i < j + 4; i++)
                    for (int64_t o = 0; o < ahead_bytes; o += 64)
                        _mm_prefetch(ahead[i] + o, _MM_HINT_T0);
            if (left >= 4 && DECODE_DOT_ROWS >= 4)
                dot_four_keys(type, 4, q_row(d, r), d->q_stride, k + j, dim, scores + j);
            else if (left >= 3 && DECODE_DOT_ROWS >= 3)
                dot_four_keys(type, 3, q_row(d, r), d->q_stride, k + j, dim, scores + j);
            else if (left >= 2)
                dot_four_keys(type, 2, q_row(d, r), d->q_stride, k + j, dim, scores + j);
            else
                dot_four_keys(type, 1, q_row(d, r), d->q_stride, k + j, dim, scores + j);
        }
    }
}

#ifdef __AVX512F__
#define WEIGH_VECTORS_4 4 /* vectors of dims beside four rows: as many as registers hold */
#else
#define WEIGH_VECTORS_4 2
#endif

V_INLINE void weigh_some(uint32_t type, int rows, int vectors, const decode *d, int64_t r,
                         const char *const *v, const uint8_t *index, int n,
                         const char *const *ahead, int64_t ahead_bytes)
{
    const float *w = d->scores + r * DECODE_BLOCK;
    float *acc = d->tile->acc + r * d->tile->acc_stride;
    int64_t i = 0, dim = d->problem->v_dim, stride = d->tile->acc_stride, o = 0;
    for (; i + vectors * LANES <= dim; i += vectors * LANES) {
        int64_t upto = ahead_bytes * (i + vectors * LANES) / dim;
        for (; o < upto; o += 64)
            for (int j = 0; j < DECODE_BLOCK; j++)
                _mm_prefetch(ahead[j] + o, _MM_HINT_T0);
        weigh_keys(type, rows, vectors, 0, w, v, index, n, i, acc, stride);
    }
    for (; o < ahead_bytes; o += 64)
        for (int j = 0; j < DECODE_BLOCK; j++)
            _mm_prefetch(ahead[j] + o, _MM_HINT_T0);
    for (; i + LANES <= dim; i += LANES)
        weigh_keys(type, rows, 1, 0, w, v, index, n, i, acc, stride);
    if (i < dim)
        weigh_keys(type, rows, 1, (int)(dim - i), w, v, index, n, i, acc, stride);
}

/* Weighted values of rows [r, end) over n keys. `ahead` are the K rows of the next block. */
V_INLINE void all_values(uint32_t type, const decode *d, int64_t r, int64_t end,
                         const char *const *v, const uint8_t *index, int n,
                         const char *const *ahead, int64_t ahead_bytes)
{
    for (; r + 4 <= end; r += 4, ahead_bytes = 0)
        weigh_some(type, 4, WEIGH_VECTORS_4, d, r, v, index, n, ahead, ahead_bytes);
    if (r + 2 <= end) {
        weigh_some(type, 2, 4, d, r, v, index, n, ahead, ahead_bytes);
        r += 2, ahead_bytes = 0;
    }
    if (r < end)
        weigh_some(type, 1, 4, d, r, v, index, n, ahead, ahead_bytes);
}

#define PRODUCTS_OF(name, type)                                                                    \
    V_NOINLINE void scores_##name(const decode *d, const char *const *k, const char *const *ahead, \
                                  int64_t bytes)                                                   \
    {                                                                                              \
        all_scores(type, d, k, ahead, bytes);                                                      \
    }                                                                                              \
    V_NOINLINE void values_##name(const decode *d, int64_t r, int64_t end, const char *const *v,   \
                                  const uint8_t *index, int n, const char *const *ahead,           \
                                  int64_t bytes)                                                   \
    {                                                                                              \
        all_values(type, d, r, end, v, index, n, ahead, bytes);                                    \
    }
PRODUCTS_OF(f32, HEED_F32)
PRODUCTS_OF(f16, HEED_F16)
PRODUCTS_OF(bf16, HEED_BF16)
#undef PRODUCTS_OF

static void scores_of_block(const decode *d, uint32_t type, const char *const *k,
                            const char *const *ahead, int64_t bytes)
{
    if (type == HEED_F32)
        scores_f32(d, k, ahead, bytes);
    else if (type == HEED_F16)
        scores_f16(d, k, ahead, bytes);
    else
        scores_bf16(d, k, ahead, bytes);
}

static void values_of_rows(const decode *d, uint32_t type, int64_t r, int64_t end,
                           const char *const *v, uint32_t visible, const char *const *ahead,
                           int64_t bytes)
{
    const char *seen[DECODE_BLOCK];
    uint8_t index[DECODE_BLOCK];
    int n = 0;
    for (; visible; visible &= visible - 1, n++) {
        index[n] = (uint8_t)__builtin_ctz(visible);
        seen[n] = v[index[n]];
    }
    if (type == HEED_F32)
        values_f32(d, r, end, seen, index, n, ahead, bytes);
    else if (type == HEED_F16)
        values_f16(d, r, end, seen, index, n, ahead, bytes);
    else
        values_bf16(d, r, end, seen, index, n, ahead, bytes);
}

/* ---- blocks -----------------------------------------------------------------------------------
 */

static const char *key_row(const decode *d, const heed_rows *rows, uint32_t type,
                           int64_t page_stride, int64_t j)
{
    return (const char *)rows->data +
           heed_key_offset(rows, d->tile->pages, d->problem->page_len, page_stride, j) *
               heed_dtype_bytes(type);
}

/* A block's rows as floats, with zeros up to a multiple of 16 dims; rows then point there. */
static void copy_block(uint32_t type, int64_t dim_stride, int64_t dim, const char **rows, float *to)
{
    const int64_t bytes = heed_dtype_bytes(type), padded = decode_padded(dim);
    for (int j = 0; j < DECODE_BLOCK; j++, to += padded) {
        int64_t i = 0;
        if (dim_stride == 1)
            for (; i + LANES <= dim; i += LANES)
                v_store(to + i, v_load_type(type, rows[j] + i * bytes, LANES));
        for (; i < dim; i++)
            to[i] = heed_load(type, rows[j], i * dim_stride);
        for (; i < padded; i++)
            to[i] = 0;
        rows[j] = (const char *)to;
    }
}

static void run_block(decode *d, block *b)
{
    const heed_problem *p = d->problem;
    const heed_tile *tile = d->tile;
    const char *next[DECODE_BLOCK];
    uint32_t any = b->all, k_type = p->k_type, v_type = p->v_type;
    int same = 1;
    if (tile->mask.data || tile->bias.data || b->first < d->common_first || b->end > d->common_end)
        any = find_visible(d, b, &same);
    if (!any)
        return;
    int exact = p->features & (HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_BIAS) ? 1 : 0;

    for (int64_t i = 0; i < DECODE_BLOCK; i++) {
        int64_t j = b->base + i, ahead = j + DECODE_BLOCK;
        ahead = ahead < d->prefetch_end ? ahead : d->prefetch_end - 1;
        j = j < b->first || j >= b->end ? b->first : j;
        b->k[i] = key_row(d, &tile->k, k_type, tile->k_page_stride, j);
        b->v[i] = key_row(d, &tile->v, v_type, tile->v_page_stride, j);
        next[i] = key_row(d, &tile->k, k_type, tile->k_page_stride, ahead);
    }
    int64_t k_bytes = (int64_t)p->qk_dim * heed_dtype_bytes(k_type);
    int64_t v_bytes = (int64_t)p->v_dim * heed_dtype_bytes(v_type);
    if (d->copy_k) {
        copy_block(k_type, tile->k.dim_stride, p->qk_dim, b->k, d->k_copy);
        k_type = HEED_F32;
    }
    scores_of_block(d, k_type, b->k, b->v, v_bytes);
    for (int64_t r = 0; r < d->rows; r++) {
        if (exact)
            finish_scores(d, b, r);
        weigh_scores(d, r, same ? any : d->visible[r]);
    }
    if (d->copy_v) {
        copy_block(v_type, tile->v.dim_stride, p->v_dim, b->v, d->v_copy);
        v_type = HEED_F32;
    }
    if (same) {
        values_of_rows(d, v_type, 0, d->rows, b->v, any, next, k_bytes);
    } else {
        for (int64_t r = 0; r < d->rows; r++)
            values_of_rows(d, v_type, r, r + 1, b->v, d->visible[r], next, r ? 0 : k_bytes);
    }
}

/* The sum of 16 partial sums, as a dot product's. */
static float sum_of(const float *x)
{
    float half[8];
    for (int i = 0; i < 8; i++)
        half[i] = x[i] + x[i + 8];
    for (int i = 0; i < 4; i++)
        half[i] += half[i + 4];
    return (half[0] + half[2]) + (half[1] + half[3]);
}

heed_status HEED_ISA_FUNCTION(heed_attn_decode)(const heed_simd_tuning *tuning,
                                                const heed_problem *problem, heed_tile *tile,
                                                void *scratch)
{
    (void)tuning;
    decode d = {.problem = problem, .tile = tile, .rows = tile->n_heads * tile->q_count};
    int64_t k_padded = decode_padded(problem->qk_dim), first, end;
    int few = d.rows <= 4;
    float *at = scratch;
    d.q_stride = k_padded;
    d.q = at, at += d.rows * k_padded;
    d.scores = at, at += d.rows * DECODE_BLOCK;
    d.sums = at, at += d.rows * DECODE_BLOCK;
    d.k_copy = at, at += DECODE_BLOCK * k_padded;
    d.v_copy = at, at += DECODE_BLOCK * decode_padded(problem->v_dim);
    d.reference = at, at += d.rows;
    d.visible = (uint16_t *)(void *)at;
    d.copy_k = tile->k.dim_stride != 1 || (problem->k_type != HEED_F32 && !few);
    d.copy_v = tile->v.dim_stride != 1 || (problem->v_type != HEED_F32 && !few);
    d.prefetch_end = tile->kv_len;
    d.key_block = DECODE_KEY_BLOCK;
    heed_row_keys(tile, tile->q_first + tile->q_count - 1, &d.common_first, &end);
    heed_row_keys(tile, tile->q_first, &first, &d.common_end);

    scale_queries(&d);
    memset(d.sums, 0, (size_t)d.rows * DECODE_BLOCK * sizeof(float));
    for (int64_t r = 0; r < d.rows; r++) {
        d.reference[r] = -FLT_MAX; /* below every score but -inf, and finite */
        memset(tile->acc + r * tile->acc_stride, 0, problem->v_dim * sizeof(float));
    }
    for (int64_t base = tile->k_first / DECODE_BLOCK * DECODE_BLOCK; base < tile->k_end;
         base += DECODE_BLOCK) {
        block b = {.base = base};
        b.first = base > tile->k_first ? base : tile->k_first;
        b.end = base + DECODE_BLOCK < tile->k_end ? base + DECODE_BLOCK : tile->k_end;
        b.all = range_bits(&b, b.first, b.end);
        run_block(&d, &b);
    }
    for (int64_t r = 0; r < d.rows; r++) {
        tile->row_max[r] = d.reference[r];
        tile->row_sum[r] = sum_of(d.sums + r * DECODE_BLOCK);
    }
    return HEED_OK;
}
