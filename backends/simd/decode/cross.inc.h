/*
 * Reads runs (run.inc.h) crosswise, to the same bits: for CPUs whose own prefetching follows lines
 * that instructions fetch (measured on an Intel with AMX and on a Zen 3), and where there is much
 * work beside each line (f32 of many rows on a Zen 4). tuning.c says where.
 *
 * Scores, weights and weighted values are formed of one block after the other. Meanwhile later
 * blocks are fetched line by line, from four pages of memory of K and four of V in turn, each from
 * its first line to its last. The four pages begin one after the other, a quarter of a page apart.
 * The CPU's prefetching runs ahead within a page, from its first lines on and not beyond its last,
 * so it is always in the middle of a few pages. With all four at the same point memory gives 1 to
 * 3 % less of its rate, with a single page of each 4 to 8 % less.
 */
#ifndef HEED_SIMD_DECODE_CROSS_H
#define HEED_SIMD_DECODE_CROSS_H

#include "run.inc.h"

#define CROSS_PLACES 8 /* K and V by turns, of pages begun one after the other */

/* Lines are fetched `done` bytes behind these places. */
typedef struct cross_fetch {
    const char *at[CROSS_PLACES];
    int64_t done;
} cross_fetch;

/* Fetches line first + n, where `first` is a multiple of CROSS_PLACES and n a constant. */
V_INLINE void cross_line(const cross_fetch *f, int64_t first, int64_t n)
{
    const char *at = f->at[n % CROSS_PLACES] + f->done;
    V_PREFETCH_L1(at + (first + n) / CROSS_PLACES * 64);
}

/* Loads a vector of K: of numbers, or of words of two. bf16 is widened by shuffles here; in the
 * other orders a widening and a shift are faster, by 4 % on a Zen 4 with AVX2. */
V_INLINE vf cross_load(uint32_t type, const char *from)
{
#if PAIR == 2
    (void)type;
    return v_from_bits(load_pairs(from, 1, DOT_WIDTH));
#else
    return type == HEED_BF16 ? v_load_bf16_shuffle(from) : v_load_type(type, from, LANES);
#endif
}

/* Loads `vectors` vectors of V, each a number of a key or of PAIR keys, `step` bytes apart. */
V_INLINE void cross_load_values(uint32_t type, int vectors, const char *from, int64_t step, vf *x)
{
    const int64_t bytes = type == HEED_F32 ? 4 : 2;
#if PAIR == 2
    V_UNROLL for (int c = 0; c < vectors; c += 2)
        v_pair_rows(load_pairs(from + c * LANES * bytes, 1, DOT_WIDTH),
                    load_pairs(from + step + c * LANES * bytes, 1, DOT_WIDTH), &x[c], &x[c + 1]);
#else
    (void)step;
    V_UNROLL for (int c = 0; c < vectors; c++) x[c] = cross_load(type, from + c * LANES * bytes);
#endif
}

/* The most rows that are worked on at a time. */
#define CROSS_ROWS (SUMS < 16 ? 4 : 8)

/* How many vectors of a key's partial sums are formed at once, and how many keys beside so many
 * rows: as many as registers hold the sums of. A vector of q is loaded once for all these keys, and
 * one of k once for all rows. */
#define CROSS_PARTS(rows) ((rows) > 1 ? 1 : DOT_PARTS)
#define CROSS_KEYS(rows)                                                                           \
    (SUMS / CROSS_PARTS(rows) / (rows) < 4 ? SUMS / CROSS_PARTS(rows) / (rows) : 4)

V_INLINE void cross_scores(uint32_t type, int rows, int64_t dims, const decode *d, int64_t r,
                           const char *k, int64_t step, const cross_fetch *f, float *scores)
{
    const int64_t bytes = type == HEED_F32 ? 4 : 2, words = 64 / bytes, lines = 4 * dims / words;
    const int each = rows < CROSS_ROWS ? rows : CROSS_ROWS, keys = CROSS_KEYS(each);
    const int parts = CROSS_PARTS(each);
    const int halves = each > 4 ? 2 : 1, used = DOT_VECTORS(each < 4 ? each : 4);
    for (int g = 0; g < rows; g += each) {
        const float *q = d->q + (r + g) * dims / PAIR;
        const char *key = k;
        const int first = g == 0;
        vf s[2][DECODE_BLOCK / 4][DOT_PARTS];
        for (int j = 0; j < DECODE_BLOCK; j += 4) {
            vf h[2][4][DOT_PARTS];
            V_UNROLL for (int o = 0; o < 4; o += keys, key += keys * step)
            {
                vf a[4][8][DOT_PARTS];
                V_UNROLL for (int i = 0; i < keys; i++) V_UNROLL for (int n = 0; n < 8; n++)
                    V_UNROLL for (int c = 0; c < DOT_PARTS; c++) a[i][n][c] = v_zero();
                V_UNROLL for (int p = 0; p < DOT_PARTS; p += parts)
                {
                    if (DOT_PARTS > 1)
                        V_OPAQUE(q); /* else all of q is first copied to the stack */
                    V_UNROLL for (int64_t e = 0; e < dims; e += 16 * PAIR)
                    {
                        vf x[4][DOT_PARTS];
                        if (first && p == 0 && e % words == 0)
                            V_UNROLL for (int i = 0; i < keys; i++)
                                cross_line(f, j / 4 * lines, (o * dims + e * keys) / words + i);
                        V_UNROLL for (int i = 0; i < keys; i++)
                            V_UNROLL for (int c = p; c < p + parts; c++) x[i][c] =
                                cross_load(type, key + i * step + (e + c * LANES) * bytes);
                        V_UNROLL for (int n = 0; n < each; n++)
                            V_UNROLL for (int c = p; c < p + parts; c++)
                        {
                            const vf y = v_load(q + (n * dims + e) / PAIR + c * LANES);
                            V_UNROLL for (int i = 0; i < keys; i++) a[i][n][c] =
                                v_multiply(y, x[i][c], a[i][n][c]);
                        }
                    }
                }
                V_UNROLL for (int i = 0; i < keys; i++) V_UNROLL for (int u = 0; u < halves; u++)
                    V_UNROLL for (int c = 0; c < used; c++) h[u][o + i][c] =
                        v_fold(&a[i][4 * u], c);
            }
            V_UNROLL for (int u = 0; u < halves; u++) V_UNROLL for (int c = 0; c < used; c++)
            {
                s[u][j / 4][c] = dot_rows(h[u][0][c], h[u][1][c], h[u][2][c], h[u][3][c]);
#if PAIR == 2
                s[u][j / 4][c] = v_mul(s[u][j / 4][c], v_set1(d->unit));
#endif
            }
        }
        store_scores(scores + g * DECODE_BLOCK, each < 4 ? each : 4, s[0]);
        if (each > 4)
            store_scores(scores + (g + 4) * DECODE_BLOCK, 4, s[1]);
    }
}

/* Weighs as many dims at a time as registers hold the sums of; a vector of values is loaded
 * once for all rows. */
V_INLINE void cross_values(uint32_t type, int rows, int64_t dims, const decode *d, int64_t r,
                           const char *v, int64_t step, const cross_fetch *f, const float *weights)
{
    const int64_t bytes = type == HEED_F32 ? 4 : 2, stride = d->tile->acc_stride;
    const int each = rows > 4 && SUM_DIMS < 8 * 16 ? 4 : rows; /* at least 16 dims, half a line */
    const int room = SUMS / (each == 3 ? 4 : each);            /* a power of two */
    const int most = room > 8 ? 8 : room;
    const int vectors = most * LANES > dims ? (int)dims / LANES : most;
    const int halves = vectors * LANES * (int)bytes / 32; /* half lines of these dims of a key */
    const int group = halves >= 16 ? 1 : 16 / halves;     /* keys with a multiple of 8 lines */
    for (int g = 0; g < rows; g += each) {
        float *acc = d->tile->acc + (r + g) * stride;
        const float *weight = weights + g * DECODE_BLOCK;
        const int first = g == 0;
        int64_t line = 0;
        for (int64_t e = 0; e < dims; e += vectors * LANES) {
            vf a[8][8];
            const char *value = v + e * bytes;
            V_UNROLL for (int i = 0; i < each; i++) V_UNROLL for (int c = 0; c < vectors; c++)
                a[i][c] = v_zero();
            for (int j = 0; j < DECODE_BLOCK; j += group, line += group * halves / 2)
                V_UNROLL for (int u = 0; u < group; u += PAIR, value += PAIR * step)
                {
                    vf x[8];
                    if (first)
                        V_UNROLL for (int n = u * halves / 2; n < (u + PAIR) * halves / 2; n++)
                            cross_line(f, line, n);
                    cross_load_values(type, vectors, value, step, x);
                    V_UNROLL for (int i = 0; i < each; i++)
                    {
                        const vf y = v_broadcast(&weight[i * DECODE_BLOCK + (j + u) / PAIR]);
                        V_UNROLL for (int c = 0; c < vectors; c++) a[i][c] =
                            v_multiply(y, x[c], a[i][c]);
                    }
                }
            V_UNROLL for (int i = 0; i < each; i++) V_UNROLL for (int c = 0; c < vectors; c++)
            {
                float *to = acc + i * stride + e + c * LANES;
                v_store(to, v_add(v_load(to), a[i][c]));
            }
        }
    }
}

/* K or V of the heads of a run: bytes from page to page, key to key, head to head. */
typedef struct cross_source {
    const char *data;
    int64_t page, row, head;
} cross_source;

static cross_source cross_source_of(const heed_rows *rows, uint32_t type, int64_t page_stride)
{
    const int64_t bytes = heed_dtype_bytes(type);
    return (cross_source){rows->data, page_stride * bytes, rows->row_stride * bytes,
                          rows->head_stride * bytes};
}

static const char *cross_at(const cross_source *s, const decode *d, int64_t key, int64_t head)
{
    const place at = find_place(d, key);
    return s->data + at.page * s->page + at.row * s->row + head * s->head;
}

/* What is fetched of K or V, in pieces of a page of memory: in the order of memory up to `stop`,
 * and then from `then` on. Where keys lie in pages, in the order of the work instead: a piece is
 * then a head's block, or a part of it if it is longer than a page of memory. */
typedef struct cross_side {
    cross_source from;
    const char *next, *stop, *then;
    int64_t jump; /* from piece to piece */
} cross_side;

typedef struct cross_ahead {
    const decode *d;
    cross_side k, v;
    int64_t heads, end, piece, parts;
    int64_t key, head, part;
    int64_t lines, left, turn; /* a place's lines between new pieces, those left, the next place */
    cross_fetch now;
} cross_ahead;

static const char *cross_next(cross_ahead *a, cross_side *s)
{
    const char *at = s->next;
    s->next += s->jump;
    if (!a->d->tile->pages) {
        if (s->next >= s->stop) {
            s->next = s->then, s->stop = (const char *)UINTPTR_MAX;
            s->jump = s->then == (const char *)a->d->q ? 0 : a->piece;
        }
    } else if (a->key >= a->end) {
        s->next = s->then;
    } else if (!a->part) {
        s->next = cross_at(&s->from, a->d, a->key, a->head);
    }
    return at;
}

/* Begins to fetch the next piece of K and of V, at a pair of places. */
V_NOINLINE void cross_begin_piece(cross_ahead *a, int64_t to)
{
    if (++a->part == a->parts) {
        a->part = 0;
        if (++a->head == a->heads)
            a->head = 0, a->key += DECODE_BLOCK;
    }
    a->now.at[2 * to] = cross_next(a, &a->k) - a->now.done;
    a->now.at[2 * to + 1] = cross_next(a, &a->v) - a->now.done;
}

/* Counts lines that have been fetched, and begins the next pieces when it is time. */
V_INLINE void cross_advance(cross_ahead *a, int64_t lines)
{
    a->now.done += lines / CROSS_PLACES * 64;
    a->left -= lines / CROSS_PLACES;
    if (a->left == 0) {
        a->left = a->lines;
        cross_begin_piece(a, a->turn);
        a->turn = (a->turn + 1) % (CROSS_PLACES / 2);
    }
}

/* After the run's last keys most likely come the same keys of the next head, and after
 * those of the last head the next keys of the first head. After all of them q is fetched,
 * which is in L1 anyway. */
static cross_side cross_side_of(const cross_ahead *a, const heed_rows *rows, uint32_t type,
                                int64_t page_stride, int64_t first, int64_t end)
{
    const heed_tile *t = a->d->tile;
    const int64_t more = t->kv_len / DECODE_BLOCK * DECODE_BLOCK;
    cross_side s = {.from = cross_source_of(rows, type, page_stride), .jump = a->piece};
    s.next = cross_at(&s.from, a->d, first, 0);
    s.then = (const char *)a->d->q;
    if (t->pages)
        return s;
    if (a->heads > 1) { /* side by side: the work needs a whole block of all of them at once */
        s.stop = s.next + (more - first) * s.from.row;
        s.next += DECODE_BLOCK * s.from.row;
        s.jump = adjacent_heads(a->d, a->heads) ? a->piece : s.from.row;
    } else {
        s.stop = s.next + (end - first) * s.from.row;
        if (t->kv_head + 1 < a->d->problem->kv_heads)
            s.then = s.next + s.from.head;
        else if (end < more)
            s.then = s.stop - (int64_t)t->kv_head * s.from.head;
        s.then -= (uintptr_t)s.then % CROSS_PAGE;
    }
    if (s.jump == CROSS_PAGE)
        s.next -= (uintptr_t)s.next % CROSS_PAGE;
    return s;
}

/* Begins a run, of which the run before it has fetched the first pieces: one, or two of whole pages
 * of memory, because a block may begin in the middle of a page; and of the three pieces behind
 * these three quarters, two quarters and one. */
static void cross_begin(cross_ahead *a, const decode *d, int64_t heads, int64_t size, int64_t first,
                        int64_t end)
{
    const heed_problem *p = d->problem;
    const heed_tile *t = d->tile;
    const int64_t begun = CROSS_PLACES / 2;
    *a = (cross_ahead){.d = d, .heads = heads, .end = end, .key = first};
    if (heads == p->kv_heads) { /* keys of the next run too, as far as the last row sees any */
        const int64_t seen = t->q_first + t->q_count + t->q_offset + t->window_right;
        a->end = (seen < t->kv_len ? seen : t->kv_len) / DECODE_BLOCK * DECODE_BLOCK;
    }
    a->piece = t->pages && size < CROSS_PAGE ? size : CROSS_PAGE;
    a->parts = t->pages ? size / a->piece : 1;
    a->lines = a->left = a->piece / 64 / begun;
    a->k = cross_side_of(a, &t->k, p->k_type, t->k_page_stride, first, end);
    a->v = cross_side_of(a, &t->v, p->v_type, t->v_page_stride, first, end);
    for (int i = 0; i < (t->pages ? 1 : 2); i++)
        cross_begin_piece(a, 0);
    for (int64_t i = 1; i < begun; i++) {
        cross_begin_piece(a, i);
        a->now.at[2 * i] += (begun - i) * a->lines * 64;
        a->now.at[2 * i + 1] += (begun - i) * a->lines * 64;
    }
    cross_begin_piece(a, 0);
    a->turn = 1;
}

/* Works on some rows of a block. The first rows fetch later blocks, the others this
 * one, which is in L1. */
V_INLINE void cross_rows(uint32_t type, int rows, int64_t dims, decode *d, int64_t r, const char *k,
                         const char *v, cross_ahead *a, float *lent)
{
    const int64_t lines = DECODE_BLOCK * dims * (type == HEED_F32 ? 4 : 2) / 64;
    const cross_fetch k_again = {{k, k, k, k, k, k, k, k}, 0};
    const cross_fetch v_again = {{v, v, v, v, v, v, v, v}, 0};
    float *scores = lent + r * DECODE_BLOCK;
    cross_scores(type, rows, dims, d, r, k, a->k.from.row, r ? &k_again : &a->now, scores);
    if (!r)
        cross_advance(a, lines);
    run_weights(rows, d, r, lent);
    cross_values(type, rows, dims, d, r, v, a->v.from.row, r ? &v_again : &a->now, scores);
    if (!r)
        cross_advance(a, lines);
}

typedef void cross_block(decode *d, int64_t r, const char *k, const char *v, cross_ahead *a,
                         float *lent);

/* One copy for each number of rows: 1, 2, 3, 4 and 8. */
#define CROSS_OF_ROWS(name, type, dims, rows)                                                      \
    V_NOINLINE void cross_##name##_##dims##_##rows(decode *d, int64_t r, const char *k,            \
                                                   const char *v, cross_ahead *a, float *lent)     \
    {                                                                                              \
        cross_rows(type, rows, dims, d, r, k, v, a, lent);                                         \
    }
#define CROSS_OF(name, type, dims)                                                                 \
    CROSS_OF_ROWS(name, type, dims, 1)                                                             \
    CROSS_OF_ROWS(name, type, dims, 2)                                                             \
    CROSS_OF_ROWS(name, type, dims, 3)                                                             \
    CROSS_OF_ROWS(name, type, dims, 4)                                                             \
    CROSS_OF_ROWS(name, type, dims, 8)
#if PAIR == 1
CROSS_OF(f32, HEED_F32, 64)
CROSS_OF(f32, HEED_F32, 128)
CROSS_OF(f16, HEED_F16, 64)
CROSS_OF(f16, HEED_F16, 128)
#endif
CROSS_OF(bf16, HEED_BF16, 64)
CROSS_OF(bf16, HEED_BF16, 128)
#undef CROSS_OF
#undef CROSS_OF_ROWS

#define CROSS_EACH(name)                                                                           \
    {                                                                                              \
        cross_##name##_1, cross_##name##_2, cross_##name##_3, cross_##name##_4, cross_##name##_8   \
    }
#if PAIR == 1
static cross_block *const cross_f32_64[] = CROSS_EACH(f32_64);
static cross_block *const cross_f32_128[] = CROSS_EACH(f32_128);
static cross_block *const cross_f16_64[] = CROSS_EACH(f16_64);
static cross_block *const cross_f16_128[] = CROSS_EACH(f16_128);
#endif
static cross_block *const cross_bf16_64[] = CROSS_EACH(bf16_64);
static cross_block *const cross_bf16_128[] = CROSS_EACH(bf16_128);
#undef CROSS_EACH

/* Works on keys [first, end), whole blocks, of `heads` adjacent kv heads. */
static void run_crosswise(decode *d, int64_t heads, float *lent, int64_t first, int64_t end)
{
    const int wide = d->problem->qk_dim == 128;
    const int64_t size = DECODE_BLOCK * heed_dtype_bytes(d->problem->k_type) * d->problem->qk_dim;
    const int64_t rows = d->rows;
    cross_block *const *of = wide ? cross_bf16_128 : cross_bf16_64;
    cross_ahead ahead;
#if PAIR == 1
    if (d->problem->k_type == HEED_F32)
        of = wide ? cross_f32_128 : cross_f32_64;
    else if (d->problem->k_type == HEED_F16)
        of = wide ? cross_f16_128 : cross_f16_64;
#endif
    cross_begin(&ahead, d, heads, size, first, end);
    for (int64_t key = first; key < end; key += DECODE_BLOCK) {
        const char *k = cross_at(&ahead.k.from, d, key, 0);
        const char *v = cross_at(&ahead.v.from, d, key, 0);
        for (int64_t h = 0; h < heads; h++, k += ahead.k.from.head, v += ahead.v.from.head)
            for (int64_t r = 0, n; r < rows; r += n) {
                d[h].run_key = key;
                n = rows - r >= 8 ? 8 : rows - r >= 4 ? 4 : rows - r;
                of[n == 8 ? 4 : n - 1](&d[h], r, k, v, &ahead, lent);
            }
    }
}

#endif
