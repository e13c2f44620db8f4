/*
 * Attention tile of few query rows: every type in, f32 sums; compiled once per ISA.
 *
 * Keys go 16 at a time. While the values of one block are weighed, the scores of the next are
 * formed and the lines of the one after it are prefetched: K and V are read side by side, and
 * memory does not wait for arithmetic. Up to four rows read 16-bit K and V as they lie; more rows
 * share one copy of the block as f32, and so do all rows where dims are not adjacent.
 *
 * Loads stay inside the rows and keys of the tile. Prefetch instructions may go past it, where they
 * cannot fault.
 *
 * The state is in log2 units and its reference the greatest score, so that a row of one key gives
 * that key's value exactly. Weights below 2^-126 are 0. A block whose keys are seen by some rows
 * and not by others is weighed row by row, so that a value never meets the weight 0 of a row that
 * may not see it.
 */
#include <float.h>

#include "decode_products.h"
#include "simd.h"

/* Keys [first, end) of a block, at 16 addresses: those outside repeat the first. */
typedef struct block {
    int64_t base, first, end;
    uint32_t all, any; /* a bit per key: inside; seen by some row */
    int same;          /* every row sees the same keys */
    const char *k[DECODE_BLOCK], *v[DECODE_BLOCK];
    float *scores; /* [rows, 16], then weights */
} block;

typedef struct decode {
    const heed_problem *problem;
    heed_tile *tile;
    int64_t rows, q_stride;           /* floats from row to row of q */
    int64_t common_first, common_end; /* keys in the range of every row */
    float *q, *sums, *reference, *k_copy, *v_copy;
    uint16_t *visible;       /* of the last block that was looked at */
    uint32_t k_type, v_type; /* as the products read them: f32 where blocks are copied */
    int copy_k, copy_v, masked, terms;
    fetch fetch;
} decode;

/* q times scale, with zeros up to a multiple of 16 dims. */
static void scale_queries(decode *d)
{
    const heed_problem *p = d->problem;
    const heed_tile *tile = d->tile;
    float high, low;
    decode_scale(p, &high, &low);
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

/* ---- visibility ---- */

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
static void find_visible(decode *d, block *b)
{
    const heed_tile *tile = d->tile;
    uint32_t any = 0, every = 0xffffu;
    for (int64_t r = 0; r < d->rows; r++) {
        int64_t head = r / tile->q_count, i = tile->q_first + r % tile->q_count, first, end;
        int state = tile->mask.data || tile->bias.data ? HEED_BLOCK_MIXED : HEED_BLOCK_ALL;
        uint32_t bits;
        if (tile->mask_blocks)
            state = tile->mask_blocks[head * tile->mask_block_stride + b->base / DECODE_KEY_BLOCK -
                                      tile->k_first / DECODE_KEY_BLOCK];
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
    b->any = any;
    b->same = any == every;
}

/* ---- scores and weights ---- */

/* Softcap, ALiBi and bias, from the products of row r. */
static void finish_scores(const decode *d, const block *b, int64_t r)
{
    const heed_problem *p = d->problem;
    const heed_tile *tile = d->tile;
    const double log2_e = 1.4426950408889634;
    int64_t head = r / tile->q_count, i = tile->q_first + r % tile->q_count;
    float *s = b->scores + r * DECODE_BLOCK;
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
    vf factor = v_exp2(v_set1(d->reference[r] - top));
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
V_INLINE void weigh_scores(decode *d, const block *b, int64_t r, uint32_t visible)
{
    float *s = b->scores + r * DECODE_BLOCK, *sums = d->sums + r * DECODE_BLOCK;
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
        raise_reference(d, r, top);
        m = v_set1(d->reference[r]);
    }
    for (int i = 0; i < DECODE_BLOCK / LANES; i++) {
        x[i] = v_exp2(v_sub(x[i], m));
        v_store(s + i * LANES, x[i]);
        v_store(sums + i * LANES, v_add(v_load(sums + i * LANES), x[i]));
    }
}

/* ---- products, one copy per type and number of rows ---- */

/* Vectors of dims beside more than two rows: as many sums as registers hold. */
#define WEIGH_VECTORS (LANES == 16 ? 4 : 2)

/* The keys of a block whose values count, in order. */
typedef struct weighed {
    const char *const *v;
    const uint8_t *index;
    const float *weights;
    int n;
} weighed;

V_INLINE void some_values(uint32_t type, int rows, int vectors, const decode *d, int64_t r,
                          const weighed *k, int64_t i, int64_t ahead)
{
    const float *w = k->weights + r * DECODE_BLOCK;
    float *acc = d->tile->acc + r * d->tile->acc_stride;
    int64_t stride = d->tile->acc_stride, left = d->problem->v_dim - i;
    if (left >= vectors * LANES) {
        weigh_keys(type, rows, vectors, 0, w, k->v, k->index, k->n, i, acc, stride, ahead,
                   &d->fetch);
        return;
    }
    for (; left >= LANES; left -= LANES, i += LANES)
        weigh_keys(type, rows, 1, 0, w, k->v, k->index, k->n, i, acc, stride, 0, &d->fetch);
    if (left > 0)
        weigh_keys(type, rows, 1, (int)left, w, k->v, k->index, k->n, i, acc, stride, 0, &d->fetch);
}

/*
 * For `rows` (constant) rows from r on: scores of the next block (NULL: none), and weighted values
 * of the keys of this one (n = 0: none). Done in turns, so that K and V are read side by side:
 * memory gives 6 % more that way than when it reads one and then the other, and nothing waits for
 * the weights of the next block meanwhile.
 */
V_INLINE void some_rows(uint32_t type, int rows, const decode *d, int64_t r, const block *next,
                        const weighed *k, int ahead)
{
    const int vectors = rows > 2 ? WEIGH_VECTORS : 4;
    const int64_t pieces = (d->problem->v_dim + vectors * LANES - 1) / (vectors * LANES);
    const int64_t k_ahead = ahead ? d->fetch.k : 0, v_ahead = ahead ? d->fetch.v : 0;
    int64_t piece = 0;
    vf s[4 / DECODE_DOT_ROWS][DECODE_BLOCK / 4];
    for (int j = 0; j < DECODE_BLOCK; j += 4) {
        for (int h = 0; h < rows && next; h += DECODE_DOT_ROWS)
            s[h / DECODE_DOT_ROWS][j / 4] =
                dot_four_keys(type, rows - h < DECODE_DOT_ROWS ? rows - h : DECODE_DOT_ROWS,
                              d->q + (r + h) * d->q_stride, d->q_stride, next->k, j,
                              d->problem->qk_dim, h ? 0 : k_ahead, &d->fetch);
        for (; k->n && piece < pieces * (j + 4) / DECODE_BLOCK; piece++)
            some_values(type, rows, vectors, d, r, k, piece * vectors * LANES, v_ahead);
    }
    for (int h = 0; h < rows && next; h += DECODE_DOT_ROWS)
        store_scores(next->scores + (r + h) * DECODE_BLOCK, rows - h, s[h / DECODE_DOT_ROWS]);
}

/* Rows [r, end); the first of them fetch what is needed later. */
V_INLINE void all_rows(uint32_t type, const decode *d, int64_t r, int64_t end, const block *next,
                       const weighed *k)
{
    int ahead = r == 0;
    for (; r + 4 <= end; r += 4, ahead = 0)
        some_rows(type, 4, d, r, next, k, ahead);
    if (end - r == 3)
        some_rows(type, 3, d, r, next, k, ahead);
    else if (end - r == 2)
        some_rows(type, 2, d, r, next, k, ahead);
    else if (end - r == 1)
        some_rows(type, 1, d, r, next, k, ahead);
}

#define PRODUCTS_OF(name, type)                                                                    \
    V_NOINLINE void rows_##name(const decode *d, int64_t r, int64_t end, const block *next,        \
                                const weighed *k)                                                  \
    {                                                                                              \
        all_rows(type, d, r, end, next, k);                                                        \
    }
PRODUCTS_OF(f32, HEED_F32)
PRODUCTS_OF(f16, HEED_F16)
PRODUCTS_OF(bf16, HEED_BF16)
#undef PRODUCTS_OF

static void products(const decode *d, uint32_t type, int64_t r, int64_t end, const block *next,
                     const weighed *k)
{
    if (type == HEED_F32)
        rows_f32(d, r, end, next, k);
    else if (type == HEED_F16)
        rows_f16(d, r, end, next, k);
    else
        rows_bf16(d, r, end, next, k);
}

/* ---- blocks ---- */

static void point_rows(const decode *d, const heed_rows *rows, uint32_t type, int64_t page_stride,
                       const block *b, const char **to)
{
    const int64_t bytes = heed_dtype_bytes(type), step = rows->row_stride * bytes;
    if (!d->tile->pages && b->all == 0xffffu) {
        const char *data = (const char *)rows->data + b->base * step;
        for (int i = 0; i < DECODE_BLOCK; i++)
            to[i] = data + i * step;
        return;
    }
    for (int64_t i = 0; i < DECODE_BLOCK; i++) {
        int64_t j = b->base + i < b->first || b->base + i >= b->end ? b->first : b->base + i;
        to[i] = (const char *)rows->data +
                bytes * heed_key_offset(rows, d->tile->pages, d->problem->page_len, page_stride, j);
    }
}

/* A block's rows as floats, with zeros up to a multiple of 16 dims; rows then point there. */
static void copy_block(uint32_t type, int64_t dim_stride, int64_t dim, int64_t ahead,
                       const fetch *f, const char **rows, float *to)
{
    const int64_t bytes = heed_dtype_bytes(type), padded = decode_padded(dim);
    for (int j = 0; j < DECODE_BLOCK; j++, to += padded) {
        int64_t i = 0;
        if (dim_stride == 1) {
            for (int64_t o = 0; ahead && o < dim * bytes; o += 64)
                fetch_line(f, rows[j] + ahead + o);
            for (; i + LANES <= dim; i += LANES)
                v_store(to + i, v_load_type(type, rows[j] + i * bytes, LANES));
        }
        for (; i < dim; i++)
            to[i] = heed_load(type, rows[j], i * dim_stride);
        for (; i < padded; i++)
            to[i] = 0;
        rows[j] = (const char *)to;
    }
}

/* The next block from base on that some row sees anything of, made ready; 0 if there is none. */
static int next_block(decode *d, int64_t base, block *b)
{
    const heed_tile *t = d->tile;
    for (; base < t->k_end; base += DECODE_BLOCK) {
        b->base = base;
        b->first = base > t->k_first ? base : t->k_first;
        b->end = base + DECODE_BLOCK < t->k_end ? base + DECODE_BLOCK : t->k_end;
        b->all = range_bits(b, b->first, b->end);
        b->any = b->all, b->same = 1;
        if (d->masked || b->first < d->common_first || b->end > d->common_end)
            find_visible(d, b);
        if (!b->any)
            continue;
        point_rows(d, &t->k, d->problem->k_type, t->k_page_stride, b, b->k);
        point_rows(d, &t->v, d->problem->v_type, t->v_page_stride, b, b->v);
        if (d->copy_k)
            copy_block(d->problem->k_type, t->k.dim_stride, d->problem->qk_dim, d->fetch.k,
                       &d->fetch, b->k, d->k_copy);
        return 1;
    }
    return 0;
}

/* Scores become weights, and the row's reference and sums follow. */
static void weigh_block(decode *d, block *b)
{
    for (int64_t r = 0; r < d->rows; r++) {
        if (d->terms)
            finish_scores(d, b, r);
        weigh_scores(d, b, r, b->same ? b->any : d->visible[r]);
    }
}

static void list_keys(const block *b, uint32_t seen, weighed *k, const char **v, uint8_t *index)
{
    static const uint8_t each[DECODE_BLOCK] = {0, 1, 2,  3,  4,  5,  6,  7,
                                               8, 9, 10, 11, 12, 13, 14, 15};
    *k = (weighed){b->v, each, b->scores, DECODE_BLOCK};
    if (seen == 0xffffu)
        return;
    *k = (weighed){v, index, b->scores, 0};
    for (; seen; seen &= seen - 1, k->n++) {
        index[k->n] = (uint8_t)__builtin_ctz(seen);
        v[k->n] = b->v[index[k->n]];
    }
}

/* Weighted values of block b and scores of the next (NULL: none). `visible` are b's. */
static void work(decode *d, block *b, const block *next, const uint16_t *visible)
{
    const heed_problem *p = d->problem;
    const char *v[DECODE_BLOCK];
    uint8_t index[DECODE_BLOCK];
    weighed k;
    if (d->copy_v)
        copy_block(p->v_type, d->tile->v.dim_stride, p->v_dim, d->fetch.v, &d->fetch, b->v,
                   d->v_copy);
    list_keys(b, b->any, &k, v, index);
    if (b->same && d->k_type == d->v_type) {
        products(d, d->k_type, 0, d->rows, next, &k);
        return;
    }
    for (int64_t r = 0; r < d->rows && !b->same; r++) {
        list_keys(b, visible[r], &k, v, index);
        products(d, d->v_type, r, r + 1, NULL, &k);
    }
    if (b->same)
        products(d, d->v_type, 0, d->rows, NULL, &k);
    if (next)
        products(d, d->k_type, 0, d->rows, next, &(weighed){0});
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

/* Fills in what holds for the whole tile, and divides the scratch memory. */
static void begin(decode *d, const heed_simd_tuning *tuning, float *at, float *scores[2],
                  uint16_t *visible[2])
{
    const heed_problem *p = d->problem;
    const heed_tile *t = d->tile;
    const int64_t k_padded = decode_padded(p->qk_dim), v_padded = decode_padded(p->v_dim);
    int64_t unused;
    d->rows = t->n_heads * t->q_count;
    d->q_stride = k_padded;
    d->q = at, at += d->rows * k_padded;
    scores[0] = at, at += d->rows * DECODE_BLOCK;
    scores[1] = at, at += d->rows * DECODE_BLOCK;
    d->sums = at, at += d->rows * DECODE_BLOCK;
    d->k_copy = at, at += DECODE_BLOCK * k_padded;
    d->v_copy = at, at += DECODE_BLOCK * v_padded;
    d->reference = at, at += d->rows;
    visible[0] = (uint16_t *)(void *)at;
    visible[1] = visible[0] + d->rows;
    d->copy_k = t->k.dim_stride != 1 || (p->k_type != HEED_F32 && d->rows > 4);
    d->copy_v = t->v.dim_stride != 1 || (p->v_type != HEED_F32 && d->rows > 4);
    d->k_type = d->copy_k ? HEED_F32 : p->k_type;
    d->v_type = d->copy_v ? HEED_F32 : p->v_type;
    d->masked = t->mask.data || t->bias.data;
    d->terms = (p->features & (HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_BIAS)) != 0;
    d->fetch.k = t->pages ? 0 : DECODE_BLOCK * t->k.row_stride * heed_dtype_bytes(p->k_type);
    d->fetch.v = t->pages ? 0 : DECODE_BLOCK * t->v.row_stride * heed_dtype_bytes(p->v_type);
    /* Rows pages apart would share L1's sets. */
    d->fetch.near = tuning->prefetch_l1 && d->fetch.k > -DECODE_BLOCK * 4096 &&
                    d->fetch.k < DECODE_BLOCK * 4096;
    heed_row_keys(t, t->q_first + t->q_count - 1, &d->common_first, &unused);
    heed_row_keys(t, t->q_first, &unused, &d->common_end);
    scale_queries(d);
    memset(d->sums, 0, (size_t)d->rows * DECODE_BLOCK * sizeof(float));
    for (int64_t r = 0; r < d->rows; r++) {
        d->reference[r] = -FLT_MAX; /* below every score but -inf, and finite */
        if (!(t->flags & HEED_TILE_OUTPUTS))
            memset(t->acc + r * t->acc_stride, 0, p->v_dim * sizeof(float));
    }
}

heed_status HEED_ISA_FUNCTION(heed_attn_decode)(const heed_simd_tuning *tuning,
                                                const heed_problem *problem, heed_tile *tile,
                                                void *scratch)
{
    decode d = {.problem = problem, .tile = tile};
    float *scores[2];
    uint16_t *visible[2];
    block blocks[2];
    int now = 0;
    if (heed_simd_small_covers(problem, tile))
        return HEED_ISA_FUNCTION(heed_attn_small)(problem, tile);
    begin(&d, tuning, scratch, scores, visible);
    blocks[0].scores = scores[0], blocks[1].scores = scores[1];

    d.visible = visible[0];
    int more = next_block(&d, tile->k_first / DECODE_BLOCK * DECODE_BLOCK, &blocks[0]);
    if (more) {
        products(&d, d.k_type, 0, d.rows, &blocks[0], &(weighed){0});
        weigh_block(&d, &blocks[0]);
    }
    for (; more; now = !now) {
        block *b = &blocks[now], *next = &blocks[!now];
        d.visible = visible[!now];
        more = next_block(&d, b->base + DECODE_BLOCK, next);
        work(&d, b, more ? next : NULL, visible[now]);
        if (more)
            weigh_block(&d, next);
    }
    for (int64_t r = 0; r < d.rows; r++) {
        tile->row_max[r] = d.reference[r];
        tile->row_sum[r] = sum_of(d.sums + r * DECODE_BLOCK);
    }
    return HEED_OK;
}

#include "decode_outputs.h"
