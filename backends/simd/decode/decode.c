/*
 * Attention tile of few query rows: every type in, f32 sums; compiled once per ISA.
 *
 * Keys go 16 at a time. While the values of one block are weighed, the scores of the next are
 * formed and the lines of the one after it are prefetched: K and V are read side by side, and
 * memory does not wait for arithmetic. Up to four rows read 16-bit K and V as they lie; more rows
 * share one copy of the block as f32, and so do all rows where dims are not adjacent. Compiled with
 * HEED_SIMD_DOT it multiplies bf16 as they lie by vdpbf16ps (vec/pairs.h), for accuracy bf16 and adjacent
 * dims. Where the CPU prefetches streams well by itself, most of a contiguous cache is read another
 * way, in runs (run.inc.h), to the same bits. Codes of 8 and 4 bits are copied as floats, or in runs of
 * their own made numbers in registers (coded.inc.h), to the same bits too. Compiled with HEED_SIMD_INT8,
 * for keys of codes and accuracy int8, scores are those of integer products (integer.inc.h).
 *
 * Loads stay inside the rows and keys of the tile. Prefetch instructions may go past it, where they
 * cannot fault.
 *
 * The state is in log2 units. Its reference is the greatest score of the first block that the row
 * sees, and rises to a greater one once that is above it by more than DECODE_SLACK: a row of one
 * key gives that key's value exactly. Weights below 2^-126 are 0. A block whose keys are seen by
 * some rows and not by others is weighed row by row, so that a value never meets the weight 0 of a
 * row that may not see it.
 */
#include <float.h>
#include <stdlib.h>

#include "../simd.h"
#ifdef HEED_SIMD_INT8
#include "integer.inc.h"
#else
#include "order.inc.h"
#endif
#include "rows.inc.h"
#include "scales.inc.h"

/* q times scale as words, with zeros up to a multiple of 16 of them. */
static void scale_queries(decode *d)
{
    const heed_problem *p = d->problem;
    const heed_tile *tile = d->tile;
    const int64_t padded = (p->qk_dim + PAIR * 16 - 1) / (PAIR * 16) * (PAIR * 16);
    const int64_t bytes = heed_dtype_bytes(p->q_type);
    float high, low;
#if PAIR == 2
    /* Scale alone: what is rounded to bf16 here is exact where scale is a power of two. */
    decode_split((double)p->scale, &high, &low);
    d->unit = (float)decode_unit(p);
#else
    decode_split((double)p->scale * decode_unit(p), &high, &low);
#endif
    for (int64_t r = 0; r < d->rows; r++) {
        int64_t head = r / tile->q_count, row = tile->q_first + r % tile->q_count, i = 0;
        int64_t at = head * tile->q.head_stride + row * tile->q.row_stride;
        float *to = PAIR == 2 ? d->k_copy : d->q + r * d->q_stride;
        const char *from = (const char *)tile->q.data + at * bytes;
        for (; i < padded; i += LANES) {
            const int64_t n = (int64_t)p->qk_dim - i;
            vf x = n <= 0 ? v_zero()
                          : v_gather_type(p->q_type, from + i * tile->q.dim_stride * bytes,
                                          tile->q.dim_stride, n < LANES ? (int)n : LANES);
            x = v_fma(x, v_set1(high), v_mul(x, v_set1(low)));
            v_store(to + i, x);
        }
#if PAIR == 2
        for (i = 0; i < padded; i += DOT_WIDTH)
            v_store(d->q + r * d->q_stride + i / 2,
                    v_narrow_pairs(v_load(to + i), v_load(to + i + LANES)));
#endif
    }
}

/* ---- blocks ---- */

/* page, step: bytes from page to page and from key to key. */
static void point_rows(const decode *d, const heed_rows *rows, int64_t page, int64_t step,
                       const block *b, place at, const char **to)
{
    const int32_t *pages = d->tile->pages;
    const uint32_t len = d->problem->page_len;
    const char *data = rows->data;
    const char *first = data + at.page * page + at.row * step;
    if (b->all == 0xffffu && (!pages || len % DECODE_BLOCK == 0)) {
        for (int i = 0; i < DECODE_BLOCK; i++)
            to[i] = first + i * step;
        return;
    }
    for (int i = 0; i < DECODE_BLOCK; i++)
        to[i] = first; /* keys outside repeat the first */
    for (int64_t j = b->first + 1; j < b->end; j++) {
        if (pages && ++at.row == len) {
            at = (place){pages[(uint32_t)j / len], 0};
            to[j - b->base] = data + at.page * page;
        } else {
            to[j - b->base] = to[j - 1 - b->base] + step;
        }
    }
}

/* The same where a key that no row sees may lie anywhere: it repeats the first that one does. */
static void point_listed(const decode *d, const heed_rows *rows, int64_t page, int64_t step,
                         const block *b, const char **to)
{
    const int first = __builtin_ctz(b->any);
    for (int i = 0; i < DECODE_BLOCK; i++) {
        const place at = find_place(d, b->base + (b->any >> i & 1 ? i : first));
        to[i] = (const char *)rows->data + at.page * page + at.row * step;
    }
}

/* Points the block at its rows. In pages the next block may be anywhere; where it is as far for
 * every row, because pages hold whole blocks, it is fetched from there. */
static void point_block(const decode *d, block *b)
{
    const heed_tile *t = d->tile;
    const heed_problem *p = d->problem;
    const int64_t next = b->base + DECODE_BLOCK, later = b->base + PAGE_AHEAD * DECODE_BLOCK;
    if (d->lists) {
        b->ahead = t->pages ? (fetch){0} : d->fetch;
        point_listed(d, &t->k, d->k_page, d->k_row, b, b->k);
        point_listed(d, &t->v, d->v_page, d->v_row, b, b->v);
        return;
    }
    const place here = find_place(d, b->first);
    point_rows(d, &t->k, d->k_page, d->k_row, b, here, b->k);
    point_rows(d, &t->v, d->v_page, d->v_row, b, here, b->v);
    b->ahead = t->pages ? (fetch){0} : d->fetch;
    if (!t->pages || p->page_len % DECODE_BLOCK || b->first != b->base || next >= t->k_end)
        return;
    const place there = find_place(d, next);
    const int64_t pages = there.page - here.page, rows = there.row - here.row;
    b->ahead.k = pages * d->k_page + rows * d->k_row;
    b->ahead.v = pages * d->v_page + rows * d->v_row;
    if (later < t->k_end) {
        const place then = find_place(d, later);
        touch_block(&t->k, d->k_page, d->k_row, then);
        touch_block(&t->v, d->v_page, d->v_row, then);
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

/* The keys and values of a block, of codes those that some row sees, as floats. */
static void copy_keys(decode *d, block *b)
{
    const heed_problem *p = d->problem;
    const heed_rows *k = &d->tile->k;
#ifdef HEED_SIMD_INT8
    integer_keys(d, b);
    return;
#endif
    if (heed_is_code(p->k_type)) {
        find_scales(d, &d->tile->k_quant, d->lift_k, b->base, b->any, &b->k_scales);
        copy_codes(d, b, 0);
    } else {
        copy_block(p->k_type, k->dim_stride, p->qk_dim, b->ahead.k, &d->fetch, b->k, d->k_copy);
    }
}

static void copy_values(decode *d, block *b)
{
    const heed_problem *p = d->problem;
    const heed_rows *v = &d->tile->v;
    if (heed_is_code(p->v_type))
        copy_codes(d, b, 1);
    else
        copy_block(p->v_type, v->dim_stride, p->v_dim, b->ahead.v, &d->fetch, b->v, d->v_copy);
}

/* The next block from base on, and before end, that some row sees anything of, made ready; 0 if
 * there is none. */
static int next_block(decode *d, int64_t base, int64_t end, block *b)
{
    const heed_tile *t = d->tile;
    for (; base < end; base += DECODE_BLOCK) {
        if (base % DECODE_KEY_BLOCK == 0 && is_hidden(d, base)) {
            base += DECODE_KEY_BLOCK - DECODE_BLOCK;
            continue;
        }
        b->base = base;
        b->first = base > t->k_first ? base : t->k_first;
        b->end = base + DECODE_BLOCK < t->k_end ? base + DECODE_BLOCK : t->k_end;
        b->all = range_bits(b, b->first, b->end);
        b->any = b->all, b->same = 1;
        if (d->masked || b->first < d->common_first || b->end > d->common_end)
            find_visible(d, b);
        if (!b->any)
            continue;
        point_block(d, b);
        b->exact = 1;
        if (d->copy_k)
            copy_keys(d, b);
        return 1;
    }
    return 0;
}

/* Scores become weights, and the row's reference and sums follow. */
static void weigh_block(decode *d, block *b)
{
    if (heed_is_code(d->problem->v_type))
        find_scales(d, &d->tile->v_quant, d->lift_v, b->base, b->any, &b->v_scales);
    for (int64_t r = 0; r < d->rows; r++) {
        if (d->lift_k)
            scale_scores(b->scores + r * DECODE_BLOCK, b->k_scales.after);
        if (d->terms)
            finish_scores(d, b, r);
        weigh_scores(d, b->scores, r, b->same ? b->any : d->visible[r],
                     d->lift_v ? b->v_scales.after : NULL);
    }
}

#if PAIR == 2
/* In pairs, whatever is missing; the value of a hidden key is zeros. */
static void list_keys(const decode *d, const block *b, uint32_t seen, weighed *k, const char **v,
                      uint8_t *index)
{
    static const uint8_t each[DECODE_BLOCK / 2] = {0, 1, 2, 3, 4, 5, 6, 7};
    *k = (weighed){b->v, each, b->scores, DECODE_BLOCK / 2};
    if (seen == 0xffffu)
        return;
    *k = (weighed){v, index, b->scores, 0};
    for (int i = 0; i < DECODE_BLOCK; i += 2) {
        if (!(seen >> i & 3))
            continue;
        v[2 * k->n] = seen >> i & 1 ? b->v[i] : (const char *)d->v_copy;
        v[2 * k->n + 1] = seen >> i & 2 ? b->v[i + 1] : (const char *)d->v_copy;
        index[k->n++] = (uint8_t)(i / 2);
    }
}
#else
static void list_keys(const decode *d, const block *b, uint32_t seen, weighed *k, const char **v,
                      uint8_t *index)
{
    (void)d;
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
#endif

/* Weighted values of block b and scores of the next (NULL: none). `visible` are b's. */
static void work(decode *d, block *b, const block *next, const uint16_t *visible)
{
    const char *v[DECODE_BLOCK];
    uint8_t index[DECODE_BLOCK];
    weighed k;
    if (d->copy_v)
        copy_values(d, b);
    list_keys(d, b, b->any, &k, v, index);
    if (d->tile->pages) { /* scores are of the next block, values of this one */
        d->fetch.k = next && !d->copy_k ? next->ahead.k : 0;
        d->fetch.v = d->copy_v ? 0 : b->ahead.v;
    }
    if (b->same && d->k_type == d->v_type) {
        products(d, d->k_type, 0, d->rows, next, &k);
        return;
    }
    for (int64_t r = 0; r < d->rows && !b->same; r++) {
        list_keys(d, b, visible[r], &k, v, index);
        products(d, d->v_type, r, r + 1, NULL, &k);
    }
    if (b->same)
        products(d, d->v_type, 0, d->rows, NULL, &k);
    if (next)
        products(d, d->k_type, 0, d->rows, next, &(weighed){0});
}

/* Weighted values of block b (NULL: none) and scores of the next (NULL: none). */
static void work_and_score(decode *d, block *b, block *next, const uint16_t *visible)
{
    const block *exact = next && next->exact ? next : NULL;
    if (b)
        work(d, b, exact, visible);
    else if (exact)
        products(d, d->k_type, 0, d->rows, exact, &(weighed){0});
#ifdef HEED_SIMD_INT8
    if (next)
        integer_scores(d, next);
#endif
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

/* Scratch memory that tiles use one after the other, and where their own begins. */
typedef struct decode_room {
    float *scores[2], *k_copy, *v_copy, *own;
    char *k_codes; /* with k_zeros behind them */
    uint16_t *visible[2];
} decode_room;

static decode_room divide(const heed_problem *p, int64_t rows, float *scratch)
{
    decode_room to;
    to.k_copy = scratch;
    to.v_copy = to.k_copy + DECODE_BLOCK * decode_padded(p->qk_dim);
    to.scores[0] = to.v_copy + DECODE_BLOCK * decode_padded(p->v_dim);
    to.scores[1] = to.scores[0] + rows * DECODE_BLOCK;
    to.own = to.scores[1] + rows * DECODE_BLOCK;
    to.visible[0] = (uint16_t *)(void *)to.own;
    to.visible[1] = to.visible[0] + rows;
    to.own += decode_padded(rows);
    to.k_codes = (char *)to.own;
#ifdef HEED_SIMD_INT8
    to.own += decode_codes_bytes(p->qk_dim) / (int64_t)sizeof(float) + DECODE_BLOCK;
#endif
    if (PAIR == 2) /* zeros for hidden values */
        memset(to.v_copy, 0, (size_t)decode_padded(p->v_dim) * sizeof(float));
    return to;
}

/* The first key that a row of the tile may see by its lists behind the tile's own, and in *reach the end of
 * such keys; both the tile's end where the next tile is not of these rows. */
static int64_t key_behind(const heed_problem *p, const heed_tile *t, int64_t *reach)
{
    int64_t first = t->k_end, end = t->kv_len;
    *reach = t->flags & HEED_TILE_GOES_ON ? t->kv_len : t->k_end;
    return first < *reach && heed_next_listed(p, t, 0, t->q_first, &first, &end) ? first : *reach;
}

/* Fills in what holds for the whole tile, whose own scratch memory begins at room->own and then
 * behind it. */
static void begin(decode *d, const heed_simd_tuning *tuning, decode_room *room)
{
    const heed_problem *p = d->problem;
    const heed_tile *t = d->tile;
    const int64_t k_padded = decode_padded(p->qk_dim);
    int64_t unused;
    d->rows = t->n_heads * t->q_count;
    d->q_stride = PAIR == 2 ? (p->qk_dim + 31) / 32 * 16 : k_padded;
    d->k_copy = room->k_copy;
    d->v_copy = room->v_copy;
    d->q = room->own;
    d->sums = d->q + d->rows * k_padded;
    d->reference = d->sums + d->rows * DECODE_BLOCK;
    room->own = d->reference + decode_padded(d->rows);
    d->copy_k = PAIR == 1 && (t->k.dim_stride != 1 || heed_is_code(p->k_type) ||
                              (p->k_type != HEED_F32 && d->rows > 4));
    d->copy_v = PAIR == 1 && (t->v.dim_stride != 1 || heed_is_code(p->v_type) ||
                              (p->v_type != HEED_F32 && d->rows > 4));
    d->lift_k = lifts(p->k_type, &t->k_quant, p->qk_dim);
    d->lift_v = lifts(p->v_type, &t->v_quant, p->v_dim);
    d->k_type = d->copy_k ? HEED_F32 : p->k_type;
    d->v_type = d->copy_v ? HEED_F32 : p->v_type;
    d->masked = t->mask.data || t->bias.data || heed_has_lists(t);
    d->lists = heed_has_lists(t);
    d->terms = has_terms(p);
    d->k_row = heed_offset_bytes(p->k_type, t->k.row_stride);
    d->v_row = heed_offset_bytes(p->v_type, t->v.row_stride);
    d->k_page = t->pages ? heed_offset_bytes(p->k_type, t->k_page_stride) : 0;
    d->v_page = t->pages ? heed_offset_bytes(p->v_type, t->v_page_stride) : 0;
    d->fetch.k = t->pages ? 0 : DECODE_BLOCK * d->k_row;
    d->fetch.v = t->pages ? 0 : DECODE_BLOCK * d->v_row;
    /* Rows pages apart would share L1's sets. */
    d->fetch.near = tuning->prefetch_l1 && d->fetch.k > -DECODE_BLOCK * 4096 &&
                    d->fetch.k < DECODE_BLOCK * 4096;
    heed_row_keys(t, t->q_first + t->q_count - 1, &d->common_first, &unused);
    heed_row_keys(t, t->q_first, &unused, &d->common_end);
    d->behind = key_behind(p, t, &d->reach);
    scale_queries(d);
    d->all_integer = 1;
#ifdef HEED_SIMD_INT8
    d->k_codes = room->k_codes;
    d->k_zeros = (float *)(void *)(room->k_codes + decode_codes_bytes(p->qk_dim));
    d->integers = (struct integer_block *)(void *)room->own;
    room->own += d->rows * integer_blocks(p) * (int64_t)(sizeof *d->integers / sizeof(float));
    round_queries(d);
#endif
    memset(d->sums, 0, (size_t)d->rows * DECODE_BLOCK * sizeof(float));
    for (int64_t r = 0; r < d->rows; r++) {
        d->reference[r] = -FLT_MAX; /* below every score but -inf, and finite */
        if (!(t->flags & HEED_TILE_OUTPUTS))
            memset(t->acc + r * t->acc_stride, 0, p->v_dim * sizeof(float));
    }
}

static void end(const decode *d)
{
    for (int64_t r = 0; r < d->rows; r++) {
        d->tile->row_max[r] = d->reference[r];
        d->tile->row_sum[r] = sum_of(d->sums + r * DECODE_BLOCK);
    }
}

/* Keys [base, end), whatever the rows see of them. */
static void each_block(decode *d, const decode_room *room, int64_t base, int64_t end)
{
    block blocks[2];
    int now = 0;
    blocks[0].scores = room->scores[0], blocks[1].scores = room->scores[1];
    d->visible = room->visible[0];
    int more = next_block(d, base, end, &blocks[0]);
    if (more) {
        work_and_score(d, NULL, &blocks[0], NULL);
        weigh_block(d, &blocks[0]);
    }
    for (; more; now = !now) {
        block *b = &blocks[now], *next = &blocks[!now];
        d->visible = room->visible[!now];
        more = next_block(d, b->base + DECODE_BLOCK, end, next);
        work_and_score(d, b, more ? next : NULL, room->visible[now]);
        if (more)
            weigh_block(d, next);
    }
}

#if PAIR == 1
#include "coded.inc.h"
#endif

/* Are the blocks of these heads read in runs of codes? */
static int is_coded(const decode *d)
{
#if PAIR == 1
    return suits_codes(d);
#else
    return d == NULL;
#endif
}

/* A run of adjacent kv heads, before one that begins at key `then`. */
static void run_all(const heed_simd_tuning *tuning, decode *d, int64_t heads,
                    const decode_room *room, const seen_run *now, int64_t then)
{
    for (int64_t h = 0; h < heads; h++)
        d[h].adds = now->adds;
#if PAIR == 1
    if (is_coded(d)) {
        run_coded(d, heads, room, now->first, now->end);
        return;
    }
#endif
#ifndef HEED_SIMD_INT8
    run(tuning, d, heads, room->scores[0], now->first, now->end, then);
#else
    (void)tuning, (void)then;
#endif
}

/* Do ranges and key blocks hide keys [first, end) from all rows of these kv heads? */
static int none_listed(const decode *d, int64_t heads, int64_t first, int64_t end)
{
    const heed_tile *t = d->tile;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t r = 0; r < d[h].rows; r++) {
            int64_t low = first > t->k_first ? first : t->k_first, high = end;
            if (heed_next_listed(d->problem, d[h].tile, r / t->q_count, t->q_first + r % t->q_count,
                                 &low, &high))
                return 0;
        }
    return 1;
}

/* Keys between runs go head by head, so many at a time: all heads' rows of them stay in L2. */
#define BESIDE_KEYS 64

/* All keys of the tiles of adjacent kv heads: in runs, if that can be, and between them as they are seen. */
static void all_blocks(const heed_simd_tuning *tuning, decode *d, int64_t heads, int runs,
                       const decode_room *room)
{
    const int64_t k_end = d->tile->k_end;
    const seen_run none = {k_end, k_end, 0};
    int64_t at = d->tile->k_first / DECODE_BLOCK * DECODE_BLOCK;
    for (seen_run next = runs ? find_run(d, heads, at) : none; at < k_end;) {
        const seen_run now = next;
        if (d->lists && none_listed(d, heads, at, now.first))
            at = now.first;
        while (at < now.first) {
            const int64_t step = heads > 1 && d->masked ? at + BESIDE_KEYS : now.first;
            const int64_t to = step < now.first ? step : now.first;
            for (int64_t h = 0; h < heads; h++)
                each_block(&d[h], room, at, to);
            at = to;
        }
        next = now.end < k_end ? find_run(d, heads, now.end) : none;
        if (now.first < now.end)
            run_all(tuning, d, heads, room, &now, next.first < k_end ? next.first : d->behind);
        at = now.end;
    }
}

heed_status HEED_ISA_FUNCTION(heed_attn_decode)(const heed_simd_tuning *tuning,
                                                const heed_problem *problem, heed_tile *tile,
                                                void *scratch)
{
    decode d = {.problem = problem, .tile = tile};
    decode_room room = divide(problem, tile->n_heads * tile->q_count, scratch);
    begin(&d, tuning, &room);
    all_blocks(tuning, &d, 1, is_coded(&d) || can_run(tuning, &d), &room);
    end(&d);
    return HEED_OK;
}

#include "heads.inc.h"
#include "outputs.inc.h"
