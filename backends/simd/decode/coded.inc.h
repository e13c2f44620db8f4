/*
 * Runs of blocks with keys or values of codes: blocks of which every row sees every key, of whole blocks
 * of 32 dims, contiguous or in pages of whole blocks. Codes become numbers in registers, once for up to
 * four rows, to the bits that copies of the block give (scales.inc.h); lines of a later block are fetched
 * meanwhile. K and V are each of any type. Included by decode.c.
 */
#ifndef HEED_SIMD_DECODE_CODED_H
#define HEED_SIMD_DECODE_CODED_H

#include "run.inc.h"
#include "scales.inc.h"

#define CODED_AHEAD 2048 /* bytes from a load to the line that is fetched meanwhile, in a stream */
#define CODED_ROWS 4     /* at the most */

/* K or V of a block: its first row, bytes from row to row and to those that are fetched meanwhile; and of
 * those that have them zeros. */
typedef struct coded_side {
    const char *at;
    int64_t row, ahead;
    const float *zero;
} coded_side;

/* Are zeros taken off in registers? */
V_INLINE int coded_has_zero(uint32_t type)
{
    return type == HEED_U8 || type == HEED_U4;
}

/* Vectors of 32 dims, which begin at a block. */
#define CODED_VECTORS (32 / LANES)

/* 16 dims, half a block on where `upper`, of a row of which `at` is a block. */
V_INLINE void coded_load(uint32_t type, const char *at, int upper, vf factor, vf least,
                         vf x[DOT_PARTS])
{
    if (!heed_is_code(type)) {
        const int64_t bytes = type == HEED_F32 ? 4 : 2;
        V_UNROLL for (int c = 0; c < DOT_PARTS; c++) x[c] =
            v_load_type(type, at + (upper * 16 + c * LANES) * bytes, LANES);
        return;
    }
    const v_bytes bytes = code_bytes(type, at, upper * 16, 16);
    V_UNROLL for (int c = 0; c < DOT_PARTS; c++)
    {
        x[c] = code_number(type, bytes, c);
        if (code_has_blocks(type))
            x[c] = code_value(type, x[c], factor, least);
        else if (coded_has_zero(type))
            x[c] = v_sub(x[c], least);
    }
}

/* What every number of a block of 32 is multiplied by, and what is added to or taken off it. */
V_INLINE void coded_factors(uint32_t type, const char *at, const float *zero, vf *factor, vf *least)
{
    *factor = *least = v_zero();
    if (code_has_blocks(type)) {
        *factor = code_scale(type, at, 0);
        *least = code_least(type, at, 0);
    } else if (coded_has_zero(type)) {
        *least = v_broadcast(zero);
    }
}

/* As many keys at a time as leave each sum a register. */
V_INLINE void coded_scores(uint32_t type, int rows, const decode *d, int64_t r,
                           const coded_side *side, float *scores)
{
    const int keys = SUMS / DOT_PARTS / rows >= 4 ? 4 : SUMS / DOT_PARTS / rows >= 2 ? 2 : 1;
    const int64_t size = heed_offset_bytes(type, 32), dims = d->problem->qk_dim;
    const int64_t stride = d->q_stride, row = side->row, bytes = size * (dims / 32);
    const float *q = d->q + r * stride;
    const char *key = side->at;
    vf s[DECODE_BLOCK / 4][DOT_PARTS];
    for (int j = 0; j < DECODE_BLOCK; j += 4) {
        vf h[4][DOT_PARTS];
        V_UNROLL for (int o = 0; o < 4; o += keys, key += keys * row)
        {
            vf a[4][4][DOT_PARTS];
            const float *from = q;
            V_UNROLL for (int i = 0; i < keys; i++)
            {
                fetch_row(&run_fetch, key + i * row, side->ahead, bytes);
                V_UNROLL for (int n = 0; n < 4; n++) V_UNROLL for (int c = 0; c < DOT_PARTS; c++)
                    a[i][n][c] = v_zero();
            }
            for (int64_t e = 0; e < bytes; e += size, from += 32) {
                vf factor[4], least[4];
                V_UNROLL for (int i = 0; i < keys; i++) coded_factors(
                    type, key + i * row + e, side->zero + j + o + i, &factor[i], &least[i]);
                V_UNROLL for (int u = 0; u < 2; u++)
                {
                    vf x[4][DOT_PARTS];
                    V_UNROLL for (int i = 0; i < keys; i++)
                        coded_load(type, key + i * row + e, u, factor[i], least[i], x[i]);
                    V_UNROLL for (int n = 0; n < rows; n++)
                        V_UNROLL for (int c = 0; c < DOT_PARTS; c++)
                    {
                        const vf y = v_load(from + n * stride + u * 16 + c * LANES);
                        V_UNROLL for (int i = 0; i < keys; i++) a[i][n][c] =
                            v_fma(y, x[i][c], a[i][n][c]);
                    }
                }
            }
            V_UNROLL for (int i = 0; i < keys; i++)
                V_UNROLL for (int c = 0; c < DOT_VECTORS(rows); c++) h[o + i][c] = v_fold(a[i], c);
        }
        V_UNROLL for (int c = 0; c < DOT_VECTORS(rows); c++) s[j / 4][c] =
            dot_rows(h[0][c], h[1][c], h[2][c], h[3][c]);
    }
    store_scores(scores, rows, s);
}

/* 32 dims at a time, or 16 where there are not so many registers. */
V_INLINE void coded_values(uint32_t type, int rows, const decode *d, int64_t r,
                           const coded_side *side, const float *weights)
{
    const int halves = SUMS / rows >= CODED_VECTORS ? 2 : 1;
    const int64_t size = heed_offset_bytes(type, 32), row = side->row;
    const int64_t bytes = size * (d->problem->v_dim / 32), stride = d->tile->acc_stride;
    float *acc = d->tile->acc + r * stride;
    for (int64_t e = 0; e < bytes; e += size, acc += 32)
        for (int g = 0; g < 2; g += halves) {
            const char *value = side->at + e;
            vf a[4][CODED_VECTORS];
            V_UNROLL for (int n = 0; n < rows; n++)
                V_UNROLL for (int c = 0; c < halves * DOT_PARTS; c++) a[n][c] = v_zero();
            for (int j = 0; j < DECODE_BLOCK; j++, value += row) {
                vf x[CODED_VECTORS], factor, least;
                if (side->ahead && g == 0)
                    for (int64_t o = 0; o < size; o += 64)
                        fetch_line(&run_fetch, value + side->ahead + o);
                coded_factors(type, value, side->zero + j, &factor, &least);
                if (halves == 2) {
                    coded_load(type, value, 0, factor, least, x);
                    coded_load(type, value, 1, factor, least, x + DOT_PARTS);
                } else if (g == 0) {
                    coded_load(type, value, 0, factor, least, x);
                } else {
                    coded_load(type, value, 1, factor, least, x);
                }
                V_UNROLL for (int n = 0; n < rows; n++)
                {
                    const vf y = v_broadcast(&weights[n * DECODE_BLOCK + j]);
                    V_UNROLL for (int c = 0; c < halves * DOT_PARTS; c++) a[n][c] =
                        v_fma(y, x[c], a[n][c]);
                }
            }
            V_UNROLL for (int n = 0; n < rows; n++)
                V_UNROLL for (int c = 0; c < halves * DOT_PARTS; c++)
            {
                float *to = acc + n * stride + g * 16 + c * LANES;
                v_store(to, v_add(v_load(to), a[n][c]));
            }
        }
}

typedef void coded_products(const decode *d, int64_t r, const coded_side *side, float *scores);

#define CODED_OF_ROWS(type, rows)                                                                  \
    V_NOINLINE void scores_##type##_##rows(const decode *d, int64_t r, const coded_side *side,     \
                                           float *scores)                                          \
    {                                                                                              \
        coded_scores(type, rows, d, r, side, scores);                                              \
    }                                                                                              \
    V_NOINLINE void values_##type##_##rows(const decode *d, int64_t r, const coded_side *side,     \
                                           float *weights)                                         \
    {                                                                                              \
        coded_values(type, rows, d, r, side, weights);                                             \
    }
#define CODED_OF(type)                                                                             \
    CODED_OF_ROWS(type, 1)                                                                         \
    CODED_OF_ROWS(type, 2)                                                                         \
    CODED_OF_ROWS(type, 3)                                                                         \
    CODED_OF_ROWS(type, 4)
#define CODED_SCORES(type)                                                                         \
    [type] = {scores_##type##_1, scores_##type##_2, scores_##type##_3, scores_##type##_4},
#define CODED_VALUES(type)                                                                         \
    [type] = {values_##type##_1, values_##type##_2, values_##type##_3, values_##type##_4},
#define CODED_EACH(DO) DO(HEED_F32) DO(HEED_F16) DO(HEED_BF16) CODE_EACH(DO)
CODED_EACH(CODED_OF)
static coded_products *const coded_scores_of[][CODED_ROWS] = {CODED_EACH(CODED_SCORES)};
static coded_products *const coded_values_of[][CODED_ROWS] = {CODED_EACH(CODED_VALUES)};
#undef CODED_OF
#undef CODED_OF_ROWS
#undef CODED_SCORES
#undef CODED_VALUES

/* Is a side of codes, or of numbers, made in registers? */
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
           !d->terms && suits_side(p->k_type, &t->k, &t->k_quant, p->qk_dim) &&
           suits_side(p->v_type, &t->v, &t->v_quant, p->v_dim) &&
           (!t->pages || p->page_len % DECODE_BLOCK == 0);
}

/* Scales of a block of keys, those of `row` on of a page, and zeros. Returns 0 if one is not lifted. */
static int coded_scales(const heed_quant *quant, place at, float *after, float *zero)
{
    const int64_t first = heed_scale_at(quant, at.page, 0, at.row, 0);
    const int64_t step = quant->key_group ? 0 : quant->stride[2];
    int lifted = 1;
    if (!quant->scale)
        return 1;
    for (int i = 0; i < DECODE_BLOCK; i++) {
        const int64_t n = step ? first + i * step : heed_scale_at(quant, at.page, 0, at.row + i, 0);
        after[i] = quant->scale[n];
        zero[i] = quant->zero ? quant->zero[n] : 0;
        lifted &= can_lift(after[i], zero[i]);
    }
    return lifted;
}

/* Keys [first, end), whole blocks, of adjacent kv heads. A block of which not every scale is lifted goes
 * the way of those that are no run. */
static void run_coded(decode *d, int64_t heads, const decode_room *room, int64_t first, int64_t end)
{
    float *lent = room->scores[0];
    const heed_problem *p = d->problem;
    const heed_tile *t = d->tile;
    const int64_t k_head = heed_offset_bytes(p->k_type, t->k.head_stride);
    const int64_t v_head = heed_offset_bytes(p->v_type, t->v.head_stride);
    const int stream = !t->pages && heads == 1 &&
                       d->k_row == heed_offset_bytes(p->k_type, p->qk_dim) &&
                       d->v_row == heed_offset_bytes(p->v_type, p->v_dim);
    float k_after[DECODE_BLOCK], v_after[DECODE_BLOCK], k_zero[DECODE_BLOCK] = {0},
                                                        v_zero_of[DECODE_BLOCK] = {0};
    place at = find_place(d, first), next;
    for (int64_t key = first; key < end; key += DECODE_BLOCK, at = next) {
        next = key + DECODE_BLOCK < end ? find_place(d, key + DECODE_BLOCK) : at;
        coded_side k = {.row = d->k_row, .zero = k_zero}, v = {.row = d->v_row, .zero = v_zero_of};
        k.ahead = stream ? CODED_AHEAD
                         : (next.page - at.page) * d->k_page + (next.row - at.row) * d->k_row;
        v.ahead = stream ? CODED_AHEAD
                         : (next.page - at.page) * d->v_page + (next.row - at.row) * d->v_row;
        for (int64_t h = 0; h < heads; h++) {
            decode *of = &d[h];
            k.at = (const char *)t->k.data + at.page * d->k_page + at.row * d->k_row + h * k_head;
            v.at = (const char *)t->v.data + at.page * d->v_page + at.row * d->v_row + h * v_head;
            if (!coded_scales(&of->tile->k_quant, at, k_after, k_zero) |
                !coded_scales(&of->tile->v_quant, at, v_after, v_zero_of)) {
                each_block(of, room, key, key + DECODE_BLOCK);
                continue;
            }
            coded_side k_of = k, v_of = v;
            for (int64_t r = 0, n; r < d->rows; r += n, k_of.ahead = v_of.ahead = 0) {
                n = d->rows - r < CODED_ROWS ? d->rows - r : CODED_ROWS;
                float *scores = lent + r * DECODE_BLOCK;
                coded_scores_of[p->k_type][n - 1](of, r, &k_of, scores);
                for (int64_t i = 0; i < n; i++) {
                    if (d->lift_k)
                        scale_scores(scores + i * DECODE_BLOCK, k_after);
                    weigh_scores(of, lent, r + i, 0xffffu, d->lift_v ? v_after : NULL);
                }
                coded_values_of[p->v_type][n - 1](of, r, &v_of, scores);
            }
        }
    }
}

#endif
