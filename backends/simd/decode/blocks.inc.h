/*
 * Blocks of 16 keys, worked on one by one whatever the rows see of them: where their keys and
 * values lie, copies where the products do not read them as they lie, and the order of the work. A
 * block's values are weighed while the next block's scores are formed. Included by decode.c.
 */
#ifndef HEED_SIMD_DECODE_BLOCKS_H
#define HEED_SIMD_DECODE_BLOCKS_H

#include "rows.inc.h"
#include "scales.inc.h"

/* Scratch memory that tiles use one after the other, and where their own begins. */
typedef struct decode_room {
    float *scores[2], *k_copy, *v_copy, *own;
    char *k_codes; /* with k_zeros behind them */
    uint16_t *visible[2];
} decode_room;

/* Writes the addresses of a block's 16 rows to `to`; `at` is the place of its first key. page,
 * step: bytes from page to page and from key to key. */
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

/* The same where lists are given: a key that no row sees may lie in memory that is not there, so
 * its address is that of the first key that some row sees. */
static void point_listed(const decode *d, const heed_rows *rows, int64_t page, int64_t step,
                         const block *b, const char **to)
{
    const int first = __builtin_ctz(b->any);
    for (int i = 0; i < DECODE_BLOCK; i++) {
        const place at = find_place(d, b->base + (b->any >> i & 1 ? i : first));
        to[i] = (const char *)rows->data + at.page * page + at.row * step;
    }
}

/* Points the block at its rows. In pages the next block may lie anywhere; it is fetched from there
 * where pages hold whole blocks, because it is then equally far from every row. */
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

/* Copies a block's rows as floats, with zeros up to a multiple of 16 dims, and
 * points `rows` there. */
static void copy_block(uint32_t type, int64_t dim_stride, int64_t dim, int64_t ahead,
                       const fetch *f, const char **rows, float *to)
{
    const int64_t bytes = heed_dtype_bytes(type), padded = decode_padded(dim);
    for (int j = 0; j < DECODE_BLOCK; j++, to += padded) {
        int64_t i = 0;
        if (dim_stride == 1) {
            fetch_row(f, rows[j], ahead, dim * bytes);
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

/* Copies the keys of a block as floats, of codes only those that some row sees; copy_values does
 * the same for its values. */
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

/* Makes ready the next block in [base, end) of which some row sees a key. Returns 0
 * if there is none. */
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

/* Turns a block's scores into weights, and brings the rows' references and sums up to date. */
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
/* Lists the pairs of keys with a key in `seen`. The value of a pair's hidden key is zeros. */
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

/* Adds up the weighted values of block b and forms the scores of the next (NULL: none).
 * `visible` belongs to b. */
static void work(decode *d, block *b, const block *next, const uint16_t *visible)
{
    const char *v[DECODE_BLOCK];
    uint8_t index[DECODE_BLOCK];
    weighed k;
    if (d->copy_v)
        copy_values(d, b);
    list_keys(d, b, b->any, &k, v, index);
    if (d->tile->pages) { /* distances for keys count from the next block, for values from this */
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

/* The same where b may be NULL (none) too, and scores may come from integers. */
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

/* Works on keys [base, end) block by block, whatever the rows see of them. */
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

#endif
