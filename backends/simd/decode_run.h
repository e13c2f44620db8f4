/*
 * Runs of blocks of which every row sees every key, of 64 or 128 adjacent dims, one key after the
 * other: what a long cache mostly is. Block by block and four rows at a time, scores, weights,
 * weighted values; the loops are written out for the dims, and form the sums that decode_rows.h
 * forms.
 *
 * For CPUs that prefetch streams well enough by themselves and lose by software prefetches far
 * ahead (measured on a Zen 4 with 32 KiB of L1, which reads memory by a third faster in this
 * order): K and V are loaded line after line as they lie, and fetched but a few lines ahead.
 */
#ifndef HEED_SIMD_DECODE_RUN_H
#define HEED_SIMD_DECODE_RUN_H

#include "decode_pages.h"
#include "decode_softmax.h"
#include "simd.h"

/* Bytes from a load to the line that is fetched, into L2, meanwhile. */
#define RUN_AHEAD 512

static const fetch run_fetch = {0, 0, 0};

/* Of pages too, where conversions are most of the work; the others lose nothing by the other way.
 */
#define RUN_PAGES(type) (PAIR == 1 && (type) != HEED_F32)

/* Can K and V of the tile be read in runs? Of f32 with more rows, whose arithmetic takes longer
 * than its memory, the other way with its prefetches is faster, and of three rows mostly. */
static int can_run(const heed_simd_tuning *tuning, const decode *d)
{
    const heed_problem *p = d->problem;
    const heed_tile *t = d->tile;
    return tuning->streams && (p->qk_dim == 64 || p->qk_dim == 128) && p->v_dim == p->qk_dim &&
           p->k_type == p->v_type && t->k.dim_stride == 1 && t->v.dim_stride == 1 &&
           t->k.row_stride == (int64_t)p->qk_dim && t->v.row_stride == (int64_t)p->v_dim &&
           (!t->pages || (RUN_PAGES(p->k_type) && p->page_len % DECODE_BLOCK == 0)) && !d->masked &&
           !d->terms && (p->k_type != HEED_F32 || d->rows <= LANES / 4) &&
           (d->rows != 3 || PAIR == 2);
}

/* `ahead` (constant): RUN_AHEAD for the first rows of a block, 0 for those that find it in L1. */
V_INLINE void run_scores(uint32_t type, int rows, int64_t dims, const decode *d, int64_t r,
                         const char *k, float *scores, int64_t ahead)
{
    const int64_t q_stride = dims / PAIR, step = dims * (type == HEED_F32 ? 4 : 2);
    vf s[DECODE_BLOCK / 4][DOT_PARTS];
    for (int j = 0; j < DECODE_BLOCK; j += 4, k += 4 * step) {
        const char *four[4] = {k, k + step, k + 2 * step, k + 3 * step};
        dot_four_keys(type, rows, d->q + r * q_stride, q_stride, four, 0, dims, ahead, &run_fetch,
                      1, s[j / 4]);
#if PAIR == 2
        s[j / 4][0] = v_mul(s[j / 4][0], v_set1(d->unit));
#endif
    }
    store_scores(scores, rows, s);
}

/* As many dims of a value at a time as there are registers for their sums. Of values that come from
 * memory parts are no stream: so all their dims, two rows at a time, though 16-bit values then are
 * converted twice; and where registers are too few, one touch of every line before. */
V_INLINE void run_values(uint32_t type, int rows, int64_t dims, const decode *d, int64_t r,
                         const char *v, const float *weights, int64_t ahead, int streams)
{
    const value_rows values = {.even = 1, .first = v, .step = dims * (type == HEED_F32 ? 4 : 2)};
    const int64_t stride = d->tile->acc_stride;
    float *acc = d->tile->acc + r * stride;
#define RUN_WEIGH(rows, vectors, first, dim, ahead)                                                \
    weigh_keys(type, rows, vectors, 0, weights + first * DECODE_BLOCK, &values, NULL,              \
               DECODE_BLOCK / PAIR, dim, acc + first * stride, stride, ahead, &run_fetch)
#if LANES == 16
    if (dims == 64) {
        RUN_WEIGH(rows, 4, 0, 0, ahead);
    } else if (rows <= 2) {
        RUN_WEIGH(rows, 8, 0, 0, ahead);
    } else if (streams && ahead) {
        RUN_WEIGH(2, 8, 0, 0, ahead);
        RUN_WEIGH(2, 8, 2, 0, 0);
    } else {
        RUN_WEIGH(rows, 4, 0, 0, ahead);
        RUN_WEIGH(rows, 4, 0, 64, ahead);
    }
#else
    const int vectors = 8 / rows; /* as many sums as hide the latency, and no more fit */
    for (int64_t i = 0; streams && ahead && i < DECODE_BLOCK * values.step; i += 64) {
        fetch_line(&run_fetch, v + i + ahead);
        (void)*(const volatile char *)(v + i);
    }
    for (int64_t i = 0; i < dims; i += vectors * LANES)
        RUN_WEIGH(rows, vectors, 0, i, streams ? 0 : ahead);
#endif
#undef RUN_WEIGH
}

V_INLINE void run_rows(uint32_t type, int rows, int64_t dims, decode *d, int64_t r, const block *b,
                       const char *k, int64_t k_ahead, const char *v, int64_t v_ahead, int streams)
{
    float *scores = b->scores + r * DECODE_BLOCK;
    run_scores(type, rows, dims, d, r, k, scores, k_ahead);
    for (int i = 0; i < rows; i++)
        weigh_scores(d, b, r + i, 0xffffu);
    run_values(type, rows, dims, d, r, v, scores, v_ahead, streams);
}

/* The rows of a block; b lends its scores. */
V_INLINE void run_block(uint32_t type, int64_t dims, decode *d, const block *b, const char *k,
                        int64_t k_ahead, const char *v, int64_t v_ahead, int streams)
{
    int64_t r = d->rows < 4 ? d->rows : 4;
    if (r == 4)
        run_rows(type, 4, dims, d, 0, b, k, k_ahead, v, v_ahead, streams);
    else if (r == 1)
        run_rows(type, 1, dims, d, 0, b, k, k_ahead, v, v_ahead, streams);
    else
        run_rows(type, 2, dims, d, 0, b, k, k_ahead, v, v_ahead, streams);
    for (; r + 4 <= d->rows; r += 4)
        run_rows(type, 4, dims, d, r, b, k, 0, v, 0, 1);
    for (r -= r == 3; r < d->rows; r++)
        run_rows(type, 1, dims, d, r, b, k, 0, v, 0, 1);
}

V_INLINE void run_blocks(uint32_t type, int64_t dims, decode *d, const block *b, int64_t first,
                         int64_t end)
{
    const int64_t size = dims * (type == HEED_F32 ? 4 : 2) * DECODE_BLOCK;
    const char *k = (const char *)d->tile->k.data + first / DECODE_BLOCK * size;
    const char *v = (const char *)d->tile->v.data + first / DECODE_BLOCK * size;
    for (; first < end; first += DECODE_BLOCK, k += size, v += size)
        run_block(type, dims, d, b, k, RUN_AHEAD, v, RUN_AHEAD, 1);
}

/* Pages hold whole blocks, and no stream is longer than one: the next block, wherever it is, is
 * fetched while this one is worked on. */
V_INLINE void run_pages(uint32_t type, int64_t dims, decode *d, const block *b, int64_t first,
                        int64_t end)
{
    const heed_tile *t = d->tile;
    const int64_t size = type == HEED_F32 ? 4 : 2;
    const char *k, *v, *k_next, *v_next;
    place at = find_place(d, first);
    k = (const char *)t->k.data + (at.page * t->k_page_stride + at.row * dims) * size;
    v = (const char *)t->v.data + (at.page * t->v_page_stride + at.row * dims) * size;
    for (; first < end; first += DECODE_BLOCK, k = k_next, v = v_next) {
        k_next = k, v_next = v;
        if (first + DECODE_BLOCK < end) {
            at = find_place(d, first + DECODE_BLOCK);
            k_next = (const char *)t->k.data + (at.page * t->k_page_stride + at.row * dims) * size;
            v_next = (const char *)t->v.data + (at.page * t->v_page_stride + at.row * dims) * size;
        }
        if (first + PAGE_AHEAD * DECODE_BLOCK < end) {
            at = find_place(d, first + PAGE_AHEAD * DECODE_BLOCK);
            touch_block(&t->k, type, t->k_page_stride, at);
            touch_block(&t->v, type, t->v_page_stride, at);
        }
        run_block(type, dims, d, b, k, k_next - k, v, v_next - v, 0);
    }
}

#define RUN_OF(name, type, dims)                                                                   \
    V_NOINLINE void blocks_##name##_##dims(decode *d, const block *b, int64_t first, int64_t end)  \
    {                                                                                              \
        run_blocks(type, dims, d, b, first, end);                                                  \
    }                                                                                              \
    V_NOINLINE void pages_##name##_##dims(decode *d, const block *b, int64_t first, int64_t end)   \
    {                                                                                              \
        run_pages(type, dims, d, b, first, end);                                                   \
    }                                                                                              \
    static void run_##name##_##dims(decode *d, const block *b, int64_t first, int64_t end)         \
    {                                                                                              \
        if (RUN_PAGES(type) && d->tile->pages)                                                     \
            pages_##name##_##dims(d, b, first, end);                                               \
        else                                                                                       \
            blocks_##name##_##dims(d, b, first, end);                                              \
    }
#if PAIR == 1
RUN_OF(f32, HEED_F32, 64)
RUN_OF(f32, HEED_F32, 128)
RUN_OF(f16, HEED_F16, 64)
RUN_OF(f16, HEED_F16, 128)
#endif
RUN_OF(bf16, HEED_BF16, 64)
RUN_OF(bf16, HEED_BF16, 128)
#undef RUN_OF

/* Keys [first, end), whole blocks. */
static void run(decode *d, const block *b, int64_t first, int64_t end)
{
    const int wide = d->problem->qk_dim == 128;
#if PAIR == 1
    if (d->problem->k_type == HEED_F32) {
        (wide ? run_f32_128 : run_f32_64)(d, b, first, end);
        return;
    }
    if (d->problem->k_type == HEED_F16) {
        (wide ? run_f16_128 : run_f16_64)(d, b, first, end);
        return;
    }
#endif
    (wide ? run_bf16_128 : run_bf16_64)(d, b, first, end);
}

#endif
