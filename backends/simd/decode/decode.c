/*
 * Attention tile of few query rows: every type in, f32 sums; compiled once per ISA.
 *
 * Keys are worked on 16 at a time. While the values of one block are weighed, the scores of the
 * next are formed and the lines of the one after it are prefetched: K and V are read side by side,
 * and memory does not wait for arithmetic. Up to four rows read 16-bit K and V as they lie; more
 * rows share one copy of the block as f32, and so do all rows where dims are not adjacent. Compiled
 * with HEED_SIMD_DOT, the kernel multiplies bf16 as they lie by vdpbf16ps (vec/pairs.h), for
 * accuracy bf16 and adjacent dims. Where that is faster (tuning.c), most of a cache is read another
 * way, in runs (run.inc.h), to the same bits. Codes are copied as
 * floats, or decoded in registers in runs of their own (coded.inc.h), to the same bits too.
 * Compiled with HEED_SIMD_INT8, for keys of codes and accuracy int8, scores come from integer
 * products (integer.inc.h).
 *
 * Loads stay inside the rows and keys of the tile. Prefetch instructions may reach beyond them,
 * since they cannot fault.
 *
 * The state is in log2 units. A row's reference is the greatest score of the first block that the
 * row sees. It rises to a greater score once that is above it by more than DECODE_SLACK, so that a
 * row of one key gives that key's value exactly. Weights below 2^-126 are 0. A block whose keys are
 * seen by some rows and not by others is weighed row by row, so that a value is never multiplied by
 * the weight 0 of a row that may not see it.
 */
#include <float.h>
#include <stdlib.h>

#include "../simd.h"
#ifdef HEED_SIMD_INT8
#include "integer.inc.h"
#else
#include "order.inc.h"
#endif
#include "blocks.inc.h"

/* Writes q * scale to d->q as words (f32, or pairs of bf16), with zeros up to a
 * multiple of 16 words. */
static void scale_queries(decode *d)
{
    const heed_problem *p = d->problem;
    const heed_tile *tile = d->tile;
    const int64_t padded = (p->qk_dim + PAIR * 16 - 1) / (PAIR * 16) * (PAIR * 16);
    const int64_t bytes = heed_dtype_bytes(p->q_type);
    float high, low;
#if PAIR == 2
    /* The scale alone: rounding to bf16 is then exact where the scale is a power of two. */
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

/* Adds up 16 partial sums in the order of a dot product (products.inc.h). */
static float sum_of(const float *x)
{
    float half[8];
    for (int i = 0; i < 8; i++)
        half[i] = x[i] + x[i + 8];
    for (int i = 0; i < 4; i++)
        half[i] += half[i + 4];
    return (half[0] + half[2]) + (half[1] + half[3]);
}

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

/* Returns the first key from the tile's end on that the tile's first row may see by its lists, or
 * *reach if there is none. *reach is the end of such keys: kv_len, or the tile's end where the next
 * tile has other rows. */
static int64_t key_behind(const heed_problem *p, const heed_tile *t, int64_t *reach)
{
    int64_t first = t->k_end, end = t->kv_len;
    *reach = t->flags & HEED_TILE_GOES_ON ? t->kv_len : t->k_end;
    return first < *reach && heed_next_listed(p, t, 0, t->q_first, &first, &end) ? first : *reach;
}

/* Fills in what holds for the whole tile. The tile takes its own scratch memory from room->own,
 * which is moved behind it. */
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
    /* Rows a page of memory or more apart would share L1's sets. */
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

/* Works on a run of adjacent kv heads. The run after it begins at key `then`. */
static void run_all(const heed_simd_tuning *tuning, decode *d, int64_t heads,
                    const decode_room *room, const seen_run *now, int64_t then)
{
    const int terms = (d->problem->features & (HEED_HAS_SOFTCAP | HEED_HAS_ALIBI)) != 0;
    for (int64_t h = 0; h < heads; h++)
        d[h].adds = terms || now->adds;
#if PAIR == 1
    if (is_coded(d)) {
        run_coded(tuning, d, heads, room, now->first, now->end);
        return;
    }
#endif
#ifndef HEED_SIMD_INT8
    if (!run(tuning, d, heads, room->scores[0], now->first, now->end, then))
        each_block(d, room, now->first, now->end); /* there is one head */
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

/* Keys between runs are worked on head by head, so many at a time that the rows of all
 * heads stay in L2. */
#define BESIDE_KEYS 64

/* Works on all keys of the tiles of adjacent kv heads: in runs where `runs` is set, and block by
 * block between them. */
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
    v_leave();
    return HEED_OK;
}

#include "heads.inc.h"
#include "outputs.inc.h"
