/*
 * Runs with keys or values of codes: every row sees every key, rows are whole blocks of 32 dims,
 * and keys are contiguous or in pages of whole blocks of keys. Lines of a later block are fetched
 * meanwhile. K and V may each be of any type. Included by decode.c.
 */
#ifndef HEED_SIMD_DECODE_CODED_H
#define HEED_SIMD_DECODE_CODED_H

#include "coded_products.inc.h"
#include "run.inc.h"
#include "scales.inc.h"

/* Bytes from a load to the line that is fetched meanwhile, in a stream, into L2 and into L1: the least, see
 * coded_stream. With 4096 in place of 2048 integer products by AVX-512 take 0.90 to 1.01 of the time,
 * those by AVX2 1.05 to 1.08, other products 1.00 to 1.06 (Zen 5, cold). */
#define CODED_AHEAD 2048
#ifdef HEED_SIMD_INT8
#define CODED_NEAR (256 * LANES)
#else
#define CODED_NEAR 2048
#endif
/* Where a block of all heads lies in a page, the head so many after this one is fetched into L1, which
 * would have no room for the next block of all. */
#define CODED_HEADS 2

/* Can K (or V), of codes or of plain numbers, be made floats in registers? */
static int suits_side(uint32_t type, const heed_rows *rows, const heed_quant *quant, uint32_t dim)
{
    return rows->dim_stride == 1 && dim % 32 == 0 &&
           (!quant->scale || (lifts(type, quant, dim) && (!quant->zero || coded_has_zero(type))));
}

static int suits_codes(const decode *d)
{
    const heed_problem *p = d->problem;
    const heed_tile *t = d->tile;
    return PAIR == 1 && (heed_is_code(p->k_type) || heed_is_code(p->v_type)) && !d->masked &&
           suits_side(p->k_type, &t->k, &t->k_quant, p->qk_dim) &&
           suits_side(p->v_type, &t->v, &t->v_quant, p->v_dim) &&
           (!t->pages || p->page_len % DECODE_BLOCK == 0);
}

/* Scales and zeros of a block of keys: the caller's where they lie side by side, else copies. */
typedef struct coded_scale {
    const float *after, *zero;
    float scales[DECODE_BLOCK], zeros[DECODE_BLOCK];
} coded_scale;

/* Finds scales and zeros of the block of keys from `at` on. Returns 0 if a scale
 * cannot be lifted. */
static int coded_scales(const heed_quant *quant, place at, coded_scale *to)
{
    const int64_t first = heed_scale_at(quant, at.page, 0, at.row, 0);
    const int64_t step = quant->key_group ? 0 : quant->stride[2];
    uint32_t lifted = ~0u;
    to->zero = to->zeros; /* 0 where there are none */
    if (!quant->scale)
        return 1;
    to->after = quant->scale + first;
    if (quant->zero)
        to->zero = quant->zero + first;
    if (step != 1) {
        for (int i = 0; i < DECODE_BLOCK; i++) {
            const int64_t n =
                step ? first + i * step : heed_scale_at(quant, at.page, 0, at.row + i, 0);
            to->scales[i] = quant->scale[n];
            if (quant->zero)
                to->zeros[i] = quant->zero[n];
        }
        to->after = to->scales;
        to->zero = to->zeros;
    }
    for (int i = 0; i < DECODE_BLOCK; i += LANES)
        lifted &= can_lift_all(v_load(to->after + i), v_load(to->zero + i));
    return lifted == ~0u;
}

/* Fetches the scales and zeros of a block of keys. In pages no stream leads there, and all of a
 * block's products would wait for them. */
V_INLINE void fetch_scales(const heed_quant *quant, place at)
{
    const int64_t first = heed_scale_at(quant, at.page, 0, at.row, 0);
    const int64_t step = quant->key_group ? 0 : quant->stride[2];
    const int keys = llabs(step) > 1 ? 1 : DECODE_BLOCK - 1; /* each, or the first and the last */
    if (!quant->scale)
        return;
    for (int i = 0; i < DECODE_BLOCK; i += keys) {
        V_PREFETCH_L1(quant->scale + first + i * step);
        if (quant->zero)
            V_PREFETCH_L1(quant->zero + first + i * step);
    }
}

/* The same block for further rows, when it is in L1. */
V_INLINE coded_side coded_again(const coded_side *side)
{
    return (coded_side){
        .at = side->at,
        .row = side->row,
        .zero = side->zero,
        .f = side->f,
        .by = side->by,
        .factors = side->factors,
    };
}

V_INLINE uint32_t coded_scores_of_rows(const decode *d, int64_t r, const coded_side *k,
                                       float *scores)
{
    const int64_t left = d->rows - r, n = left < CODED_ROWS ? left : CODED_ROWS;
#ifdef HEED_SIMD_INT8
    return integer_scores_of[d->problem->k_type][n - 1](d, r, k, scores + r * DECODE_BLOCK);
#else
    k->by->scores[n - 1](d, r, k, scores + r * DECODE_BLOCK);
    return 0;
#endif
}

/* Collects the factors of 16 keys from `at` on, as f16. They are to be read a block later: loads of many
 * would wait for the stores of single ones. */
V_NOINLINE void collect_from(uint32_t type, const char *at, int64_t row, int64_t dims,
                             coded_factors *to)
{
    const int64_t size = heed_offset_bytes(type, 32);
    for (int64_t e = 0; e < dims / 32; e++, at += size) {
        const char *key = at;
        V_UNROLL for (int j = 0; j < DECODE_BLOCK; j++, key += row)
            memcpy(&to->halves[0][e][j], key, 2);
        key = at + 2;
        if (code_has_least(type))
            V_UNROLL for (int j = 0; j < DECODE_BLOCK; j++, key += row)
                memcpy(&to->halves[1][e][j], key, 2);
    }
}

V_INLINE void collect_factors(uint32_t type, const coded_side *side, const char *at, int64_t dims)
{
    if (side->factors)
        collect_from(type, at, side->row, dims, side->factors);
}

/* Chooses the products with a block whose factors have been collected. */
V_INLINE void widen_factors(coded_side *side, uint32_t type, int64_t dims)
{
    if (side->best->widen)
        side->by = side->best->widen(dims, side->factors) ? side->best : &coded_of[type];
}

/* Scores of all rows. Returns 0 if the block has to be left to each_block. */
V_INLINE int coded_scores_ready(const decode *d, const coded_side *k, float *scores)
{
    if (coded_scores_of_rows(d, 0, k, scores) != 0)
        return 0; /* which no rows after the first four change */
    if (d->rows > CODED_ROWS) {
        const coded_side again = coded_again(k);
        for (int64_t r = CODED_ROWS; r < d->rows; r += CODED_ROWS)
            coded_scores_of_rows(d, r, &again, scores);
    }
    return 1;
}

/* A block of a head whose weights are known, and whose values have not been added yet. */
typedef struct coded_weighed {
    const decode *of; /* NULL: there is none */
    const float *weights;
    coded_side *v;
} coded_weighed;

V_INLINE void coded_add(const decode *d, int64_t r, const coded_side *v, const float *weights)
{
    const int64_t left = d->rows - r, n = left < CODED_ROWS ? left : CODED_ROWS;
    v->by->values[n - 1](d, r, v, weights + r * DECODE_BLOCK);
}

V_INLINE void coded_finish(coded_weighed *b)
{
    const decode *d = b->of;
    if (!d)
        return;
    widen_factors(b->v, d->problem->v_type, d->problem->v_dim);
    coded_add(d, 0, b->v, b->weights);
    if (d->rows > CODED_ROWS) {
        const coded_side again = coded_again(b->v);
        for (int64_t r = CODED_ROWS; r < d->rows; r += CODED_ROWS)
            coded_add(d, r, &again, b->weights);
    }
    b->of = NULL;
}

/* Turns scores into weights, which are multiplied by V's lifted scales (NULL: there are none). */
V_INLINE void coded_weigh(decode *d, block *b, float *scores, const float *k_after,
                          const float *v_after)
{
    const float *before = d->lift_k ? k_after : NULL;
    b->scores = scores;
    for (int64_t r = 0; r < d->rows && d->terms; r++) {
        if (before)
            scale_scores(scores + r * DECODE_BLOCK, before);
        finish_scores(d, b, r);
    }
    weigh_rows(d, scores, 0, d->rows, d->terms ? NULL : before, v_after);
}

/* Are the factors of the type's blocks read before products with them? Not in pages of one head, where
 * the lines of a block are fetched no earlier than factors would be read from them. */
static int factors_first(const heed_simd_tuning *tuning, const decode *d, int64_t heads,
                         uint32_t type, int64_t dims)
{
    return tuning->factors_first && code_has_blocks(type) && dims <= 32 * CODED_MOST_BLOCKS &&
           (!d->tile->pages || heads > 1);
}

/* A side whose rows lie one behind the other; at and zero are to be filled in. A block and a half in place
 * of 2048 bytes takes 0.57 to 0.99 of the time, of 128 dims of q8_0 and 256 of any code (Zen 4, cold). */
V_INLINE coded_side coded_stream(const heed_simd_tuning *tuning, uint32_t type, int first,
                                 int64_t row, coded_factors *factors)
{
    const int best = tuning->coded && (type == HEED_F8_E4M3 || first);
    const int64_t usual = tuning->fetched ? CODED_NEAR : CODED_AHEAD;
    coded_side side = {.row = row,
                       .ahead = fetch_distance(usual, DECODE_BLOCK * row),
                       .f = tuning->fetched ? &near_fetch : &run_fetch,
                       .best = best ? &tuning->coded[type] : &coded_of[type]};
    side.by = side.best;
    side.factors = side.best->widen ? factors : NULL;
    if (first) /* whose lines are read a block before its codes */
        side.ahead += DECODE_BLOCK * row;
    return side;
}

/* The sides of the block at hand and, of values, of the block before; scales and zeros of both. */
typedef struct coded_run {
    coded_side k, v[2];
    coded_scale k_scale, v_scale[2];
} coded_run;

/* factors: room for those of three sides. */
V_INLINE coded_run coded_open(const heed_simd_tuning *tuning, const decode *d, int64_t heads,
                              coded_factors *factors)
{
    const heed_problem *p = d->problem;
    const int k_first = factors_first(tuning, d, heads, p->k_type, p->qk_dim);
    const int v_first = factors_first(tuning, d, heads, p->v_type, p->v_dim);
    coded_run c = {.k_scale.zeros = {0}};
    c.k = coded_stream(tuning, p->k_type, k_first, d->k_row, factors);
#ifdef HEED_SIMD_INT8
    c.k.factors = k_first ? factors : NULL;
#endif
    for (int i = 0; i < 2; i++)
        c.v[i] = coded_stream(tuning, p->v_type, v_first, d->v_row, factors + 1 + i);
    return c;
}

/* Forms the scores of a head's block, of which K's factors have been collected. Returns 0 if it has to be
 * left to each_block. */
V_INLINE int coded_score(coded_run *c, const decode *of, place at, int turn, float *scores)
{
    const int k_lifts = coded_scales(&of->tile->k_quant, at, &c->k_scale);
    const int v_lifts = coded_scales(&of->tile->v_quant, at, &c->v_scale[turn]);
    c->k.zero = c->k_scale.zero, c->v[turn].zero = c->v_scale[turn].zero;
#ifndef HEED_SIMD_INT8 /* integer products widen K's themselves */
    widen_factors(&c->k, of->problem->k_type, of->problem->qk_dim);
#endif
    return k_lifts && v_lifts && of->all_integer && coded_scores_ready(of, &c->k, scores);
}

/* Where a head's block begins, or, of heads beyond the last, the next block of the first ones. */
V_INLINE const char *coded_place(const char *at, const char *next, int64_t head, int64_t heads,
                                 int64_t step)
{
    return head < heads ? at + head * step : next + (head - heads) * step;
}

/* Works on keys [first, end), whole blocks, of adjacent kv heads. A block of which not every scale
 * can be lifted is left to each_block. Values are added after the next block's scores: from products
 * to weights is a chain of some hundred cycles, in which nothing else would be ready to run. */
static void run_coded(const heed_simd_tuning *tuning, decode *d, int64_t heads,
                      const decode_room *room, int64_t first, int64_t end)
{
    const heed_problem *p = d->problem;
    const heed_tile *t = d->tile;
    const int64_t k_head = heed_offset_bytes(p->k_type, t->k.head_stride);
    const int64_t v_head = heed_offset_bytes(p->v_type, t->v.head_stride);
    const int64_t k_size = heed_offset_bytes(p->k_type, p->qk_dim);
    const int stream = !t->pages && heads == 1 && d->k_row == k_size &&
                       d->v_row == heed_offset_bytes(p->v_type, p->v_dim);
    const int beside = k_head == k_size && d->k_row == heads * k_size;
    const int64_t later = tuning->fetched && t->pages && heads > CODED_HEADS ? CODED_HEADS : heads;
    coded_factors factors[3];
    coded_run c = coded_open(tuning, d, heads, factors);
    coded_side *const k = &c.k;
    coded_weighed before = {.of = NULL};
    place at = find_place(d, first), next;
    int turn = 0;
    block b; /* for finish_scores alone */
    const char *k_next = (const char *)t->k.data + at.page * d->k_page + at.row * d->k_row;
    collect_factors(p->k_type, k, k_next, p->qk_dim);
    for (int64_t key = first; key < end; key += DECODE_BLOCK, at = next) {
        b.base = b.first = key;
        b.end = key + DECODE_BLOCK;
        next = key + DECODE_BLOCK < end ? find_place(d, key + DECODE_BLOCK) : at;
        const char *k_at = k_next;
        const char *v_at = (const char *)t->v.data + at.page * d->v_page + at.row * d->v_row;
        k_next = (const char *)t->k.data + next.page * d->k_page + next.row * d->k_row;
        const char *v_next = (const char *)t->v.data + next.page * d->v_page + next.row * d->v_row;
        for (int64_t h = 0; h < heads; h++) {
            decode *of = &d[h];
            float *scores = room->scores[turn];
            coded_side *v = &c.v[turn];
            const char *const k_then = h + 1 < heads ? k_at + (h + 1) * k_head : k_next;
            k->at = k_at + h * k_head, v->at = v_at + h * v_head;
            if (!stream) {
                k->ahead = coded_place(k_at, k_next, h + later, heads, k_head) - k->at;
                v->ahead = coded_place(v_at, v_next, h + later, heads, v_head) - v->at;
            }
            k->share = beside               ? k_next + h * DECODE_BLOCK * k_size
                       : d->k_row == k_size ? k->at + k->ahead
                                            : NULL;
            const int ready = coded_score(&c, of, at, turn, scores);
            collect_factors(p->k_type, k, k_then, p->qk_dim);
            if (ready && !stream) {
                fetch_scales(&of->tile->k_quant, next);
                fetch_scales(&of->tile->v_quant, next);
            }
            coded_finish(&before);
            collect_factors(p->v_type, v, v->at, p->v_dim);
            if (!ready) {
                each_block(of, room, key, key + DECODE_BLOCK);
                continue;
            }
            coded_weigh(of, &b, scores, c.k_scale.after, d->lift_v ? c.v_scale[turn].after : NULL);
            before = (coded_weighed){of, scores, v};
            turn = !turn;
        }
    }
    coded_finish(&before);
}

#endif
