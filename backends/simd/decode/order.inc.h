/* In which order the blocks of runs are read, and what is fetched meanwhile. */
#ifndef HEED_SIMD_DECODE_ORDER_H
#define HEED_SIMD_DECODE_ORDER_H

#include "cross.inc.h"
#include "run.inc.h"

/* Bytes from a load to the line that is fetched meanwhile, into L2 and, in pages, into L1. */
#define RUN_FAR 16384
#define RUN_NEAR 8192

/* The same of a head alone, into L1; longer where a block is. Relative to the length of a block these take
 * 0.85 to 1.02 of the time where that is 2 to 4 KiB, 0.95 to 1.03 of 8 KiB, and 0.91 to 1.03 of 15 KiB (Zen 5,
 * cold). No multiples of a page of memory: K and V and what is fetched would come to new pages at once, which
 * costs most with small pages. */
#define RUN_STREAM 5120
#define RUN_STREAM_LONG 7168

/* Address translations are asked for so many blocks at once: asked for one by one, between loads of
 * lines, they come too late. Where lines are fetched into L1 they are not asked for: a run then takes 1.02
 * to 1.10 of the time with large pages, and 0.99 to 1.05 with small ones (Zen 5). */
#define RUN_TOUCHED 8

/* While a run of at most RUN_SHORT bytes of K is read, the next run is fetched, with lines RUN_HOP bytes
 * ahead: faster than RUN_FAR by a twentieth where runs are 64 keys (Zen 4). */
#define RUN_SHORT 65536
#define RUN_HOP 8192

/* Bytes of a key whose dims lie alone. */
static int64_t dense_row(const heed_problem *p)
{
    return p->qk_dim * heed_dtype_bytes(p->k_type);
}

static int is_short(const decode *d, int64_t first, int64_t end)
{
    return (end - first) * dense_row(d->problem) <= RUN_SHORT;
}

/* Works on a block, and on the values of the block before (run.inc.h), four rows at a time: for rows
 * behind the first four both are in L1. */
typedef void run_loop(decode *d, float *lent, const run_side *k, const run_past *past);

/* The loops, with lines fetched into L2, and into L1. */
typedef struct run_loops {
    run_loop *far, *near;
} run_loops;

static const run_past nothing_past;

V_INLINE void woven_block(uint32_t type, int64_t dims, decode *d, float *lent, const run_side *k,
                          const run_past *past, const fetch *f, run_loop *others)
{
    const int64_t rows = (d ? d : past->d)->rows;
    woven_some(type, dims, rows, d, 0, lent, k, past, f);
    if (rows > 4)
        others(d, lent, k, past);
}

V_INLINE void woven_others(uint32_t type, int64_t dims, decode *d, float *lent, const run_side *k,
                           const run_past *past)
{
    const int64_t rows = (d ? d : past->d)->rows;
    const run_side k_again = {.at = k->at, .step = k->step};
    const run_past again = {past->d, past->weights, {.at = past->v.at, .step = past->v.step}};
    for (int64_t r = 4; r < rows; r += 4)
        woven_some(type, dims, rows - r, d, r, lent, &k_again, &again, &run_fetch);
}

#define RUN_LOOP(kind, name, type, dims, f)                                                        \
    V_NOINLINE void kind##_##name##_##dims(decode *d, float *lent, const run_side *k,              \
                                           const run_past *past)                                   \
    {                                                                                              \
        woven_block(type, dims, d, lent, k, past, f, others_##name##_##dims);                      \
    }
#define RUN_OTHERS(name, type, dims)                                                               \
    V_NOINLINE void others_##name##_##dims(decode *d, float *lent, const run_side *k,              \
                                           const run_past *past)                                   \
    {                                                                                              \
        woven_others(type, dims, d, lent, k, past);                                                \
    }
#define RUN_LOOPS(name, type, dims)                                                                \
    RUN_OTHERS(name, type, dims)                                                                   \
    RUN_LOOP(far, name, type, dims, &run_fetch)                                                    \
    RUN_LOOP(near, name, type, dims, &near_fetch)                                                  \
    static const run_loops loops_##name##_##dims = {far_##name##_##dims, near_##name##_##dims};
#if PAIR == 1
RUN_LOOPS(f32, HEED_F32, 64)
RUN_LOOPS(f32, HEED_F32, 128)
RUN_LOOPS(f32, HEED_F32, RUN_ANY)
RUN_LOOPS(f16, HEED_F16, 64)
RUN_LOOPS(f16, HEED_F16, 128)
RUN_LOOPS(f16, HEED_F16, RUN_ANY)
#endif
RUN_LOOPS(bf16, HEED_BF16, 64)
RUN_LOOPS(bf16, HEED_BF16, 128)
RUN_LOOPS(bf16, HEED_BF16, RUN_ANY)
#undef RUN_LOOPS
#undef RUN_OTHERS
#undef RUN_LOOP

static const run_loops *loops_of(const heed_problem *p)
{
    const int wide = p->qk_dim == 128, odd = !wide && p->qk_dim != 64;
#if PAIR == 1
    if (p->k_type == HEED_F32)
        return odd ? &loops_f32_RUN_ANY : wide ? &loops_f32_128 : &loops_f32_64;
    if (p->k_type == HEED_F16)
        return odd ? &loops_f16_RUN_ANY : wide ? &loops_f16_128 : &loops_f16_64;
#endif
    return odd ? &loops_bf16_RUN_ANY : wide ? &loops_bf16_128 : &loops_bf16_64;
}

/* Works on the blocks of a short run, and fetches what the work comes to RUN_HOP bytes later, be it
 * in this run or in the next, which begins at key `then`. `lent` has room for the weights of two
 * blocks. */
static void run_hops(decode *d, float *lent, int64_t first, int64_t end, int64_t then)
{
    run_loop *const loop = loops_of(d->problem)->far;
    const int64_t step = dense_row(d->problem), hop = RUN_HOP / step;
    /* At most the length of this run: nothing is known of the run behind the next. */
    const int64_t far = hop < end - first ? hop : end - first;
    const char *const k_data = d->tile->k.data, *const v_data = d->tile->v.data;
    const int64_t most = then + end - first < d->reach ? end - first : 0;
    run_past past = nothing_past;
    touch(k_data + then * step, most * step);
    touch(v_data + then * step, most * step);
    for (int64_t n = 0; first < end; n++, first += DECODE_BLOCK) {
        const int64_t later = first + far < end ? first + far : then + first + far - end;
        const run_side k = {k_data + first * step, step, (later - first) * step, NULL};
        const run_side v = {v_data + first * step, step, (later - first) * step, NULL};
        float *weights = lent + n % 2 * d->rows * DECODE_BLOCK;
        d->run_key = first;
        loop(d, weights, &k, &past);
        past = (run_past){d, weights, v};
    }
    loop(NULL, NULL, &nothing_past.v, &past);
}

/* Bytes to the lines that are fetched while a head alone is read. */
static int64_t stream_ahead(const heed_simd_tuning *tuning, int64_t size)
{
    return !tuning->fetched    ? fetch_distance(RUN_FAR, size)
           : size > RUN_STREAM ? RUN_STREAM_LONG
                               : RUN_STREAM;
}

/* Works on one block after the other, as they lie. The next run, in this tile or the next one,
 * begins at key `then`, which is d->reach if there is none. */
static void run_blocks(const heed_simd_tuning *tuning, decode *d, float *lent, int64_t first,
                       int64_t end, int64_t then)
{
    const run_loops *loops = loops_of(d->problem);
    run_loop *const loop = tuning->fetched ? loops->near : loops->far;
    const int64_t step = dense_row(d->problem), size = step * DECODE_BLOCK;
    const int64_t ahead = stream_ahead(tuning, size);
    run_side k = {(const char *)d->tile->k.data + first * step, step, ahead, NULL};
    run_side v = {(const char *)d->tile->v.data + first * step, step, ahead, NULL};
    run_past past = nothing_past;
    if (then < d->reach && is_short(d, first, end)) {
        run_hops(d, lent, first, end, then);
        return;
    }
    for (int64_t n = 0; first < end; n++, first += DECODE_BLOCK, k.at += size, v.at += size) {
        float *weights = lent + n % 2 * d->rows * DECODE_BLOCK;
        if (!tuning->fetched && n % RUN_TOUCHED == 0) {
            touch(k.at + 4 * ahead, RUN_TOUCHED * size);
            touch(v.at + 4 * ahead, RUN_TOUCHED * size);
        }
        d->run_key = first;
        loop(d, weights, &k, &past);
        past = (run_past){d, weights, v};
    }
    loop(NULL, NULL, &nothing_past.v, &past);
}

/* K or V of several kv heads: bytes from page to page, key to key, head to head. Where the rows
 * of a key's heads lie side by side (`beside`), `more` is added to the distance of the lines
 * that are fetched. */
typedef struct run_source {
    const char *data;
    int64_t page, row, head;
    int beside;
    int64_t more[DECODE_MOST_HEADS][DECODE_BLOCK];
} run_source;

static const char *source_at(const run_source *s, place at, int64_t head)
{
    return s->data + at.page * s->page + at.row * s->row + head * s->head;
}

/* While the n-th row of a block of all heads is worked on, that row of the next block is fetched
 * which is the n-th in memory: in the order of the work lines would arrive slower by a fifth. */
static run_source source_of(const heed_rows *rows, uint32_t type, int64_t page_stride,
                            int64_t heads)
{
    const int64_t bytes = heed_dtype_bytes(type);
    run_source s;
    s.data = rows->data;
    s.page = page_stride * bytes;
    s.row = rows->row_stride * bytes;
    s.head = rows->head_stride * bytes;
    s.beside = heads > 1 && llabs(s.row) > llabs(s.head);
    for (int64_t h = 0, key = 0, head = 0; s.beside && h < heads; h++)
        for (int64_t j = 0; j < DECODE_BLOCK; j++) {
            s.more[h][j] = (key - j) * s.row + (head - h) * s.head;
            if (++head == heads)
                head = 0, key++;
        }
    return s;
}

/* The place of the work or of the fetching: the block from key `base` on of a head, in the unit of
 * keys [first, end), of which the first one lies at `at`: a division and a look into the block table for each
 * piece of each head would take up to a twentieth of the time (Zen 5). */
typedef struct run_cursor {
    int64_t first, end, head, base;
    place at;
} run_cursor;

static run_cursor cursor_at(const decode *d, int64_t first, int64_t unit, int64_t last)
{
    const int64_t end = (first / unit + 1) * unit;
    return (run_cursor){first, end < last ? end : last, 0, first, find_place(d, first)};
}

/* Moves to the next block: of the same head, else of the next head in the unit, else of the next
 * unit. `last` is the end of all keys, and is not passed. */
V_INLINE void advance(run_cursor *c, const decode *d, int64_t heads, int64_t unit, int64_t last)
{
    if (c->base < c->end)
        c->base += DECODE_BLOCK;
    if (c->base < c->end)
        return;
    c->base = c->first;
    if (++c->head < heads)
        return;
    c->head = 0;
    c->base = c->first = c->end;
    if (c->first == last)
        return;
    c->end = c->first + unit < last ? c->first + unit : last; /* a unit ended there */
    c->at = find_place(d, c->first);
}

V_INLINE const char *source_of_cursor(const run_source *s, const run_cursor *c)
{
    return source_at(s, (place){c->at.page, c->at.row + c->base - c->first}, c->head);
}

V_INLINE run_side side_at(const run_source *s, const run_cursor *now, const run_cursor *far,
                          int64_t last)
{
    const char *at = source_of_cursor(s, now);
    const int64_t ahead = far->base < last ? source_of_cursor(s, far) - at : 0;
    return (run_side){at, s->row, ahead, s->beside ? s->more[now->head] : NULL};
}

/* Calls touch() for a unit of keys of all heads. */
V_INLINE void touch_unit(const run_source *s, place at, int64_t keys, int64_t heads, int64_t bytes)
{
    const int64_t rows = s->beside ? keys : heads, step = s->beside ? s->row : s->head;
    const int64_t each = s->beside ? heads * bytes : keys * bytes;
    const char *row = source_at(s, at, 0);
    for (int64_t i = 0; i < rows; i++, row += step)
        touch(row, each);
}

/*
 * Works on blocks of kv heads whose rows of a key lie side by side, and fetches the next block meanwhile.
 * By run_pieces, which looks for each piece's place, 4 rows of 64 dims of f16 would take 1.03 to 1.07 of the
 * time (Zen 5).
 */
static void run_beside(const heed_simd_tuning *tuning, decode *d, int64_t heads, float *lent,
                       int64_t first, int64_t end)
{
    const heed_tile *t = d->tile;
    const uint32_t type = d->problem->k_type;
    const run_loops *loops = loops_of(d->problem);
    const run_source k = source_of(&t->k, type, 0, heads), v = source_of(&t->v, type, 0, heads);
    run_loop *const loop = tuning->fetched ? loops->near : loops->far;
    run_past past = nothing_past;
    float *weights = lent, *others = lent + d->rows * DECODE_BLOCK;
    for (; first < end; first += DECODE_BLOCK) {
        const int64_t ahead = first + DECODE_BLOCK < end ? DECODE_BLOCK : 0;
        const char *k_at = k.data + first * k.row, *v_at = v.data + first * v.row;
        for (int64_t h = 0; h < heads; h++, k_at += k.head, v_at += v.head) {
            float *const now = weights;
            const run_side k_side = {k_at, k.row, ahead * k.row, k.more[h]};
            d[h].run_key = first;
            loop(&d[h], now, &k_side, &past);
            past = (run_past){&d[h], now, {v_at, v.row, ahead * v.row, v.more[h]}};
            weights = others, others = now;
        }
    }
    loop(NULL, NULL, &nothing_past.v, &past);
}

/*
 * Works on blocks of one or more kv heads in pages, pieces too short to be read as streams. The unit
 * is a page, and what the work comes to RUN_FAR bytes later is fetched. Where the rows of a key's heads
 * lie side by side, the unit is a block, and the next block is fetched.
 */
static void run_pieces(const heed_simd_tuning *tuning, decode *d, int64_t heads, float *lent,
                       int64_t first, int64_t end)
{
    const heed_tile *t = d->tile;
    const uint32_t type = d->problem->k_type;
    const run_loops *loops = loops_of(d->problem);
    const run_source k = source_of(&t->k, type, t->k_page_stride, heads);
    const run_source v = source_of(&t->v, type, t->v_page_stride, heads);
    const int64_t unit = k.beside ? DECODE_BLOCK : d->problem->page_len;
    const int64_t size = dense_row(d->problem) * DECODE_BLOCK;
    const int64_t far_ahead = fetch_distance(tuning->fetched ? RUN_NEAR : RUN_FAR, size);
    int64_t ahead = k.beside ? heads : far_ahead / size;
    run_loop *const loop = tuning->fetched ? loops->near : loops->far;
    run_past past = nothing_past;
    float *weights[2] = {lent, lent + d->rows * DECODE_BLOCK};
    int turn = 0;
    run_cursor now = cursor_at(d, first, unit, end), far;
    for (far = now; ahead > 0; ahead--)
        advance(&far, d, heads, unit, end);
    /* The address of a piece is found one piece ahead: loads that wait for a division and a look into
     * the block table would leave the core idle. */
    run_side k_next = side_at(&k, &now, &far, end), v_next = side_at(&v, &now, &far, end);
    while (now.base < end) {
        const run_side k_side = k_next, v_side = v_next;
        decode *of_head = &d[now.head];
        of_head->run_key = now.base;
        const int64_t later = now.first + (unit > DECODE_BLOCK ? unit : PAGE_AHEAD * DECODE_BLOCK);
        if (now.head == 0 && now.base == now.first && later < end) {
            const int64_t keys = end - later < unit ? end - later : unit;
            touch_unit(&k, find_place(d, later), keys, heads, size / DECODE_BLOCK);
            touch_unit(&v, find_place(d, later), keys, heads, size / DECODE_BLOCK);
        }
        advance(&now, d, heads, unit, end);
        advance(&far, d, heads, unit, end);
        if (now.base < end) {
            k_next = side_at(&k, &now, &far, end);
            v_next = side_at(&v, &now, &far, end);
        }
        loop(of_head, weights[turn], &k_side, &past);
        past = (run_past){of_head, weights[turn], v_side};
        turn = !turn;
    }
    if (past.d)
        loop(NULL, NULL, &nothing_past.v, &past);
}

/* Works on keys [first, end), whole blocks, of adjacent kv heads. The next run begins at key `then`.
 * Returns 0 if it is left to each_block. */
static int run(const heed_simd_tuning *tuning, decode *d, int64_t heads, float *lent, int64_t first,
               int64_t end, int64_t then)
{
    const int hop = heads == 1 && hops(tuning, d) && is_short(d, first, end);
    if (!hop && crosswise(tuning, d, heads)) {
        run_crosswise(d, heads, lent, first, end);
        return 1;
    }
    if (!hop && !in_order(tuning, d, heads))
        return 0;
    if (d->tile->pages)
        run_pieces(tuning, d, heads, lent, first, end);
    else if (heads > 1)
        run_beside(tuning, d, heads, lent, first, end);
    else
        run_blocks(tuning, d, lent, first, end, then);
    return 1;
}

#endif
