/*
 * Runs: blocks of which every row sees every key, whatever mask there is, with 64 or 128 adjacent
 * dims. A long cache consists mostly of them. For four rows at a time a block's scores, weights and
 * weighted values are formed, the values of a block while the scores of the next one are. The loops
 * are written out for the number of dims, and form the same sums as rows.inc.h. order.inc.h says
 * which block comes next and what is fetched meanwhile: tuning.c says on which CPUs.
 */
#ifndef HEED_SIMD_DECODE_RUN_H
#define HEED_SIMD_DECODE_RUN_H

#include "../simd.h"
#include "pages.inc.h"
#include "softmax.inc.h"

#define CROSS_PAGE 4096 /* bytes of a page of memory */

/* Rows of a head alone, fetched into L1: relative to block by block those of 384 and 512 bytes take 0.80 to
 * 1.0 of the time, 16-bit by AVX-512 and AVX2, of pairs as long as four query rows meet them, of more 1.10 to
 * 1.15; those of 640 to 1024 bytes 0.81 to 1.4 (Zen 5, cold). */
#define RUN_SHORT_ROW 512

/* Lines are fetched into L2, or into L1. */
static const fetch run_fetch = {0, 0, 0}, near_fetch = {0, 0, 1};

/* Do the loops of runs cover the types, dims and pages of K and V? */
static int suits_any_run(const decode *d)
{
    const heed_problem *p = d->problem;
    const heed_tile *t = d->tile;
    return p->qk_dim >= 64 && p->qk_dim % 16 == 0 && p->v_dim == p->qk_dim &&
           p->k_type == p->v_type && !heed_is_code(p->k_type) && t->k.dim_stride == 1 &&
           t->v.dim_stride == 1 && (!t->pages || (!d->masked && p->page_len % DECODE_BLOCK == 0));
}

static int has_usual_dims(const decode *d)
{
    return d->problem->qk_dim == 64 || d->problem->qk_dim == 128;
}

/* Do those for 64 and 128 dims? */
static int suits_runs(const decode *d)
{
    return has_usual_dims(d) && suits_any_run(d);
}

/* Do keys consist of the rows of so many heads alone, one key right behind the other? */
static int adjacent_heads(const decode *d, int64_t heads)
{
    const int64_t row = heads * (int64_t)d->problem->qk_dim;
    return d->tile->k.row_stride == row && d->tile->v.row_stride == row;
}

/* From how many rows on the blocks of so many heads are better read crosswise; 0: never. */
static uint32_t crossed_from(const heed_simd_tuning *tuning, const decode *d, int64_t heads)
{
    const heed_cross *of = PAIR == 2                        ? &tuning->cross_pairs
                           : d->problem->k_type == HEED_F32 ? &tuning->cross_f32
                                                            : &tuning->cross_half;
    return d->tile->pages ? of->paged : heads > 1 ? of->beside : of->apart;
}

/* Is it worth reading the blocks of so many heads in the order in which they lie, with lines fetched
 * into L1? It is where they are not better read crosswise, for a head of 64 dims always, and for heads
 * side by side and pages where rows are of 16 bits and much work goes with each line. */
static int suits_fetching(const heed_simd_tuning *tuning, const decode *d, int64_t heads)
{
    const uint32_t crossed = crossed_from(tuning, d, heads);
    const uint32_t beside = tuning->fetched_beside, paged = tuning->fetched_paged;
    const int wide = d->problem->qk_dim == 128;
    const int halves = PAIR == 1 && d->problem->k_type != HEED_F32;
    if (!tuning->fetched || !suits_runs(d))
        return 0;
    if (heads > 1 && !d->tile->pages)
        return halves && beside && d->rows >= beside + wide;
    if (d->tile->pages && halves && paged)
        return d->rows >= (wide ? 2 * paged : paged);
    return !crossed || d->rows < crossed || (!d->tile->pages && !wide);
}

/* Are the blocks of so many heads read crosswise (cross.inc.h)? Where the rows of other heads lie
 * between them, only if a key's rows are a page of memory: pieces of half a page (16-bit) arrive at
 * 62 % of memory's rate in the other order and at 52 % crosswise, pieces of a whole page at 66 and
 * 79 % (Intel with AMX). */
static int crosswise(const heed_simd_tuning *tuning, const decode *d, int64_t heads)
{
    const heed_problem *p = d->problem;
    const int64_t bytes = heads * p->qk_dim * heed_dtype_bytes(p->k_type);
    const int beside = heads > 1 && !d->tile->pages;
    const uint32_t crossed = crossed_from(tuning, d, heads);
    return crossed && d->rows >= crossed && suits_runs(d) && !suits_fetching(tuning, d, heads) &&
           (!beside || bytes == CROSS_PAGE || adjacent_heads(d, heads));
}

/* Are the blocks of so many heads read in the order in which they lie? */
static int in_order(const heed_simd_tuning *tuning, const decode *d, int64_t heads)
{
    const heed_problem *p = d->problem;
    const int short_rows =
        p->qk_dim * heed_dtype_bytes(p->k_type) <= RUN_SHORT_ROW && (PAIR == 1 || d->rows <= 4);
    const int far = has_usual_dims(d) ? tuning->fetched_l2 != 0
                                      : heed_simd_reads_runs(tuning, p) ||
                                            (tuning->fetched && heads == 1 && short_rows);
    return (far && suits_any_run(d)) || suits_fetching(tuning, d, heads);
}

/* Is it worth reading the blocks of so many heads in runs? */
static int runs_cover(const heed_simd_tuning *tuning, const decode *d, int64_t heads)
{
    return crosswise(tuning, d, heads) || in_order(tuning, d, heads);
}

/* Are short runs, between keys that lists hide, read in the order in which they lie? */
static int hops(const heed_simd_tuning *tuning, const decode *d)
{
    return tuning->hops && d->lists && suits_runs(d);
}

/* Can K and V of a tile of one kv head be read in runs? */
static int can_run(const heed_simd_tuning *tuning, const decode *d)
{
    const heed_problem *p = d->problem;
    return (runs_cover(tuning, d, 1) || hops(tuning, d)) &&
           d->tile->k.row_stride == (int64_t)p->qk_dim &&
           d->tile->v.row_stride == (int64_t)p->v_dim;
}

/* Is none of a head's biases -inf for n keys from `key` on, where a block begins? Returns 0 where
 * that cannot be read in vectors. */
static int bias_hides_none(const decode *d, int64_t head, int64_t key, int64_t n)
{
    const heed_tile *t = d->tile;
    const heed_rows *b = &t->bias;
    const uint32_t type = d->problem->bias_type;
    uint32_t hidden = 0;
    if (b->dim_stride != 1 || key < t->mask_from)
        return 0;
    for (int64_t i = t->q_first; i < t->q_first + t->q_count && !hidden; i++) {
        const int64_t at = head * b->head_stride + i * b->row_stride + key;
        const char *data = (const char *)b->data + at * heed_dtype_bytes(type);
        for (int64_t j = 0; j < n; j += LANES)
            hidden |= m_bits(m_equal(v_load_type(type, data + j * heed_dtype_bytes(type), LANES),
                                     v_set1(-INFINITY)));
    }
    return !hidden;
}

/* Does every row of these kv heads see all n keys from `key` on, in one block of the mask? Sets
 * *adds if a bias is added to some of their scores. */
static int all_see(const decode *d, int64_t heads, int64_t key, int64_t n, int *adds)
{
    const int64_t at = key / DECODE_KEY_BLOCK - d->tile->k_first / DECODE_KEY_BLOCK;
    *adds = 0;
    for (int64_t h = 0; h < heads; h++) {
        const heed_tile *t = d[h].tile;
        for (int64_t i = 0; i < (t->mask_block_stride ? t->n_heads : 1); i++) {
            const int kind = t->mask_blocks[i * t->mask_block_stride + at];
            if (kind == HEED_BLOCK_ALL)
                continue;
            if (kind == HEED_BLOCK_NONE || t->mask.data || d->lists ||
                !bias_hides_none(&d[h], i, key, n))
                return 0;
            *adds = 1;
        }
        if (!t->mask_block_stride) /* all heads have the same */
            break;
    }
    return 1;
}

/* Does every row of these kv heads see a whole block by ranges and key blocks,
 * without mask or bias? */
static int all_list(const decode *d, int64_t heads, int64_t key)
{
    const heed_tile *t = d->tile;
    if (t->mask.data || t->bias.data)
        return 0;
    const int apart = t->ranges.head_stride || t->key_blocks.head_stride;
    for (int64_t h = 0; h < (apart ? heads : 1); h++)
        for (int64_t r = 0; r < (apart ? d[h].rows : t->q_count); r++)
            if (heed_listed_bits(d->problem, d[h].tile, r / t->q_count, t->q_first + r % t->q_count,
                                 key, DECODE_BLOCK) != 0xffffu)
                return 0;
    return 1;
}

/* Keys [first, end), whole blocks, which every row sees; none where the two are equal. */
typedef struct seen_run {
    int64_t first, end;
    int adds; /* a bias is added to the scores of all its blocks, or of none */
} seen_run;

/* The next run of some kv heads from `from` on. */
static seen_run find_run(const decode *d, int64_t heads, int64_t from)
{
    const heed_tile *t = d->tile;
    int64_t low = from > d->common_first ? from : d->common_first;
    const int64_t high =
        (t->k_end < d->common_end ? t->k_end : d->common_end) / DECODE_BLOCK * DECODE_BLOCK;
    seen_run found = {t->k_end, t->k_end, 0};
    int now;
    low = (low + DECODE_BLOCK - 1) / DECODE_BLOCK * DECODE_BLOCK;
    if (low < high && !d->masked)
        found.first = low, found.end = high;
    for (int64_t n; low < high && d->masked; low += n) {
        n = DECODE_KEY_BLOCK - low % DECODE_KEY_BLOCK;
        n = low + n < high ? n : high - low;
        int seen = all_see(d, heads, low, n, &now);
        if (!seen && d->lists && !is_hidden(d, low)) {
            n = DECODE_BLOCK; /* perhaps some of its blocks are seen whole */
            seen = all_list(d, heads, low);
        }
        if (found.first == t->k_end && seen)
            found = (seen_run){low, low, now};
        if (found.first < t->k_end && (!seen || now != found.adds))
            break;
        found.end = found.first < t->k_end ? low + n : found.end;
    }
    return found;
}

/* K or V of a block: its first row, the bytes from row to row, and the bytes from a row to the
 * lines that are fetched meanwhile, to which more[row] is added (NULL: nothing). ahead is 0 where
 * the block is in L1 and nothing is fetched. */
typedef struct run_side {
    const char *at;
    int64_t step, ahead;
    const int64_t *more;
} run_side;

/* The dims of loops that are not made for one number of them. */
enum { RUN_ANY = 0 };

V_INLINE int64_t run_dims(const decode *d, int64_t dims)
{
    return dims == RUN_ANY ? d->problem->qk_dim : dims;
}

V_INLINE void run_scores(uint32_t type, int rows, int64_t dims, const decode *d, int64_t r,
                         const run_side *side, const fetch *f, float *scores)
{
    const int64_t n = run_dims(d, dims), step = side->step;
    const int64_t q_stride = dims == RUN_ANY ? d->q_stride : n / PAIR;
    const char *k = side->at;
    vf s[DECODE_BLOCK / 4][DOT_PARTS];
    for (int j = 0; j < DECODE_BLOCK; j += 4, k += 4 * step) {
        const char *four[4] = {k, k + step, k + 2 * step, k + 3 * step};
        dot_four_keys(type, rows, d->q + r * q_stride, q_stride, four, 0, n, side->ahead,
                      side->more ? side->more + j : NULL, f, 1, s[j / 4]);
#if PAIR == 2
        s[j / 4][0] = v_mul(s[j / 4][0], v_set1(d->unit));
#endif
    }
    store_scores(scores, rows, s);
}

/* The values of a block, of which the dims from byte `from` on are weighed. They are a part of each row,
 * but what is fetched into L1 meanwhile are whole rows, so that memory gives it in one stream: parts of
 * rows arrive at 31 to 33 GB/s, a stream at 36 to 40, where its reading alone reaches 41 (Zen 5). */
V_INLINE value_rows run_rows(const run_side *side, const fetch *f, int64_t row_bytes, int64_t from,
                             int64_t ahead)
{
    const int in_line = f->near && ahead && !side->more && side->step == row_bytes;
    return (value_rows){.even = 1,
                        .first = side->at,
                        .step = side->step,
                        .more = side->more,
                        .next = in_line ? side->at + ahead + DECODE_BLOCK * from : NULL};
}

/* Weighs as many dims of the values at a time as there are registers for their sums. f32 rows of other
 * heads between those of one would not arrive in time if read in parts: so all their dims are read at
 * once, for two rows at a time. */
V_INLINE void run_values(uint32_t type, int rows, int64_t dims, const decode *d, int64_t r,
                         const run_side *side, const fetch *f, const float *weights)
{
    const int64_t ahead = side->ahead, stride = d->tile->acc_stride;
    const int64_t bytes = type == HEED_F32 ? 4 : 2, n = run_dims(d, dims);
    float *acc = d->tile->acc + r * stride;
#define RUN_WEIGH_FEW(rows, vectors, few, first, dim, ahead)                                       \
    do {                                                                                           \
        const value_rows values = run_rows(side, f, n * bytes, (dim)*bytes, ahead);                \
        weigh_keys(type, rows, vectors, few, weights + first * DECODE_BLOCK, &values, NULL,        \
                   DECODE_BLOCK / PAIR, dim, acc + first * stride, stride, ahead, f);              \
    } while (0)
#define RUN_WEIGH(rows, vectors, first, dim, ahead)                                                \
    RUN_WEIGH_FEW(rows, vectors, 0, first, dim, ahead)
#if SUM_DIMS >= 256
    if (dims == 64) {
        RUN_WEIGH(rows, 4, 0, 0, ahead);
    } else if (dims == RUN_ANY) {
        int64_t i = 0;
        for (; i + 64 <= n; i += 64)
            RUN_WEIGH(rows, 4, 0, i, ahead);
        for (; i + 32 <= n; i += 32)
            RUN_WEIGH(rows, 2, 0, i, ahead);
        if (i < n) /* 16 dims: half of two vectors of pairs */
            RUN_WEIGH_FEW(rows, PAIR, PAIR == 2 ? 16 : 0, 0, i, ahead);
    } else if (rows <= 2) {
        RUN_WEIGH(rows, 8, 0, 0, ahead);
    } else if (type == HEED_F32 && side->more && ahead) {
        RUN_WEIGH(2, 8, 0, 0, ahead);
        RUN_WEIGH(rows - 2, 8, 2, 0, 0);
    } else {
        RUN_WEIGH(rows, 4, 0, 0, ahead);
        RUN_WEIGH(rows, 4, 0, 64, ahead);
    }
#else
    const int vectors = SUMS / rows < 8 ? SUMS / rows : 8; /* 8 hide the latency of the sums */
    int64_t i = 0;
    for (; i + vectors * LANES <= n; i += vectors * LANES)
        RUN_WEIGH(rows, vectors, 0, i, ahead);
    for (; i < n; i += 2 * LANES)
        RUN_WEIGH(rows, 2, 0, i, ahead);
#endif
#undef RUN_WEIGH
#undef RUN_WEIGH_FEW
}

/* Turns the scores of rows of a block into weights. */
V_INLINE void run_weights(int rows, decode *d, int64_t r, float *lent)
{
    for (int i = 0; i < rows; i++) {
        if (d->adds)
            finish_run_scores(d, lent, r + i);
        weigh_scores(d, lent, r + i, 0xffffu, NULL);
    }
}

/* A block whose weights are known and whose values are not added up yet (d NULL: there is none). */
typedef struct run_past {
    decode *d;
    const float *weights;
    run_side v;
} run_past;

/* Forms scores and weights of a block (k->at NULL: of none), and in between adds up the values of the
 * block before it, which may be another head's: so the CPU has work while it waits for scores. */
V_INLINE void woven_rows(uint32_t type, int rows, int64_t dims, decode *d, int64_t r, float *lent,
                         const run_side *k, const run_past *past, const fetch *f)
{
    if (k->at)
        run_scores(type, rows, dims, d, r, k, f, lent + r * DECODE_BLOCK);
    if (past->d)
        run_values(type, rows, dims, past->d, r, &past->v, f, past->weights + r * DECODE_BLOCK);
    if (k->at)
        run_weights(rows, d, r, lent);
}

V_INLINE void woven_some(uint32_t type, int64_t dims, int64_t n, decode *d, int64_t r, float *lent,
                         const run_side *k, const run_past *past, const fetch *f)
{
    if (n >= 4)
        woven_rows(type, 4, dims, d, r, lent, k, past, f);
    else if (n == 3)
        woven_rows(type, 3, dims, d, r, lent, k, past, f);
    else if (n == 2)
        woven_rows(type, 2, dims, d, r, lent, k, past, f);
    else
        woven_rows(type, 1, dims, d, r, lent, k, past, f);
}

#endif
