/* What happens to a block of scores of one panel between the two products of prefill: the score
 * modifiers, which rows see which keys, the running maximum, 2^(s - m) and its sum.
 *
 *     units      log2: log2(e) is folded into scale (or multiplied in after the modifiers)
 *     reference  m is the running maximum itself: the top weight is exactly 1, so a row with one
 *                key of weight, which huge scores make, gets that key's value exactly. It moves at
 *                the ends of blocks, which lie at absolute positions
 *     seen       one word per key with a bit per lane, only for blocks that some row sees in part
 *     hidden     a hidden weight is -0: it adds nothing to any sum, and can be told from a visible
 *                weight that underflowed, which has to pass on a NaN in its v
 */
#ifndef HEED_SIMD_PREFILL_SOFTMAX_H
#define HEED_SIMD_PREFILL_SOFTMAX_H

#include <float.h>

#ifdef HEED_SIMD_DOT
#include "dot.inc.h"
#else
#include "products.inc.h"
#define v_weight v_exp2
#define v_scale v_mul
#define v_pair(even, odd) (even) /* a word is one element */
V_INLINE vf step_seen(vf w, vf x, vf sum)
{
    return v_select(m_negative(w), sum, v_fma(w, x, sum));
}
#endif

#define LOG2_E 1.4426950408889634
#define LN_2 0.6931471805599453

/* A panel: up to PANEL rows of the tile, right-aligned in the lanes. Unused lanes see nothing. */
typedef struct panel {
    float m[PANEL], alpha[PANEL];
    float kept_alpha[PANEL];               /* the product of alpha since something was kept */
    float sum[PANEL], lost[PANEL];         /* what rounding took from the sum */
    float exact[PANEL], exact_lost[PANEL]; /* the same where wants_exact() */
    float alibi_slope[PANEL], bias_slope[PANEL];
    int32_t head[PANEL], query[PANEL]; /* of the tile, and in its sequence */
    int32_t first[PANEL], end[PANEL];  /* the keys in range of each row */
    int32_t near[PANEL];               /* of the row's position, with ALiBi: ../distance.h */
    float far[PANEL];
    int64_t row;                /* of the tile, in the first used lane */
    int64_t key_first, key_end; /* in range of some row */
    int64_t all_first, all_end; /* in range of every row */
    int64_t limit[VECTORS]; /* no row of the vectors up to this one sees this key or a later one */
    int64_t unused;         /* lanes, the first ones */
    int64_t started;        /* a block has been added to o, which holds nothing before that */
    int64_t stretch, keeps; /* the stretch of keys that o sums; does kept hold anything? */
    float *q, *o, *kept;    /* [dim][PANEL]; kept: the sums of earlier stretches */
} panel;

/* One block of keys of a panel. */
typedef struct block {
    int64_t first, end;  /* keys that some row of the panel may see, from key 0 of the sequence */
    int64_t to[VECTORS]; /* vector v has keys up to to[v] */
    float *s;            /* [key from first on][PANEL] */
    uint64_t *seen;      /* [key from first on], 0 around; NULL: every row sees every key */
    const float *bias;   /* [key from first on][PANEL]; NULL: none */
} block;

V_INLINE int first_vector(const panel *p)
{
    return (int)p->unused / LANES;
}

/* The scores of one key in natural units, modified up to a stage (HEED_SCORES_*). */
V_INLINE vf modify(const heed_problem *problem, const panel *p, const block *b, vf s, int64_t j,
                   int v, uint32_t stage)
{
    if (problem->features & HEED_HAS_SOFTCAP && stage >= HEED_SCORES_SOFTCAPPED) {
        const float cap = problem->softcap; /* and 1 / cap are normal numbers (range.h) */
        s = v_mul(v_set1(cap), v_tanh(v_mul(s, v_set1(1 / cap))));
    }
    if (stage < HEED_SCORES_BIASED)
        return s;
    if (problem->features & HEED_HAS_ALIBI) {
        vi ahead = vi_sub(vi_set1((uint32_t)j), vi_load(p->near + v * LANES));
        vf distance = v_sub(vi_to_float(ahead), v_load(p->far + v * LANES));
        s = v_fma(v_load(p->alibi_slope + v * LANES), distance, s);
    }
    if (b->bias)
        s = v_fma(v_load(p->bias_slope + v * LANES),
                  v_load(b->bias + (j - b->first) * PANEL + v * LANES), s);
    return s;
}

/* Scores in natural units, in log2 units. */
V_INLINE vf to_log2(const block *b, vf s)
{
    return b->bias ? v_to_log2(s) : v_mul(s, v_set1((float)LOG2_E));
}

/* Turns scores in natural units into modified ones in log2 units. */
V_NOINLINE void modify_block(const heed_problem *problem, const panel *p, const block *b)
{
    for (int v = first_vector(p); v < VECTORS; v++) {
        float *s = b->s + v * LANES;
        for (int64_t j = b->first; j < b->to[v]; j++, s += PANEL)
            v_store(s, to_log2(b, modify(problem, p, b, v_load(s), j, v, HEED_SCORES_BIASED)));
    }
}

/* The largest visible score of each row goes to top, -inf where there is none. */
V_NOINLINE void top_block(const panel *p, const block *b, float *top)
{
    for (int v = first_vector(p); v < VECTORS; v++) {
        vf most = v_set1(-INFINITY);
        const float *s = b->s + v * LANES;
        const uint64_t *seen = b->seen;
        if (seen) {
            for (int64_t j = b->first; j < b->to[v]; j++, s += PANEL, seen++)
                most = v_select(seen_lanes(seen, v), v_max(v_load(s), most), most);
        } else {
            for (int64_t j = b->first; j < b->to[v]; j++, s += PANEL)
                most = v_max(v_load(s), most);
        }
        v_store(top + v * LANES, most);
    }
}

/* Adds the bias, which has no slope here (set_units), to the scores of one key in log2 units. What is less
 * than V_LEAST_SCORE counts as that; one of -inf is hidden by `seen`. */
V_INLINE vf biased(const block *b, vf s, int64_t j, int v)
{
    const vf bias = v_load(b->bias + (j - b->first) * PANEL + v * LANES);
    return v_fma(v_set1((float)LOG2_E), v_max(v_set1(V_LEAST_SCORE), bias), s);
}

/* Adds the bias to scores in log2 units, then does as top_block(). */
V_NOINLINE void bias_top_block(const panel *p, const block *b, float *top)
{
    for (int v = first_vector(p); v < VECTORS; v++) {
        vf most = v_set1(-INFINITY);
        float *s = b->s + v * LANES;
        const uint64_t *seen = b->seen;
        for (int64_t j = b->first; j < b->to[v]; j++, s += PANEL) {
            const vf x = biased(b, v_load(s), j, v), more = v_max(x, most);
            v_store(s, x);
            most = seen ? v_select(seen_lanes(seen++, v), more, most) : more;
        }
        v_store(top + v * LANES, most);
    }
}

/* The weight of one key's scores. seen is NULL where every row sees every key. */
V_INLINE vf weigh_key(const float *s, const uint64_t *seen, int v, vf m)
{
    vf w = v_weight(v_sub(v_load(s), m));
    return seen ? v_select(seen_lanes(seen, v), w, v_set1(-0.0f)) : w;
}

/* Turns the scores of n keys of vector v into words of weights, from s on. Returns
 * the weights' sum. */
V_INLINE vf weigh_keys(float *s, const uint64_t *seen, int64_t n, int v, vf m)
{
    vf sum = v_zero(), odd = v_set1(-0.0f);
    float *to = s;
    for (; n > 0; n -= PAIR, s += PAIR * PANEL, to += PANEL) {
        vf even = weigh_key(s, seen, v, m);
        sum = v_add(sum, even);
        if (PAIR == 2 && n > 1) {
            odd = weigh_key(s + PANEL, seen ? seen + 1 : NULL, v, m);
            sum = v_add(sum, odd);
        } else {
            odd = v_set1(-0.0f);
        }
        v_store(to, v_pair(even, odd));
        seen = seen ? seen + PAIR : NULL;
    }
    return sum;
}

/* sum * alpha + more, with the error of the addition kept apart (Knuth's exact sum of two): over
 * hundreds of blocks a plain sum would lose as much as everything else together. As what is lost is
 * less than half a unit of the sum, a block of which a row sees nothing changes neither. */
V_INLINE void add_sum(float *sum, float *lost, vf alpha, vf more)
{
    vf old = v_mul(v_load(sum), alpha), x = v_fma(v_load(lost), alpha, more);
    vf all = v_add(old, x), added = v_sub(all, old);
    v_store(lost, v_add(v_sub(old, v_sub(all, added)), v_sub(x, added)));
    v_store(sum, all);
}

/* Weights that are rounded to bf16 come of powers of two that are good for a bf16. Do lse, weights
 * or the merging of states need a second sum, of weights good for an f32? */
V_INLINE int wants_exact(const heed_problem *problem, const heed_tile *tile)
{
    return PAIR == 2 && (tile->lse.data || problem->features & HEED_HAS_WEIGHTS ||
                         !(tile->flags & HEED_TILE_WHOLE));
}

/* Adds a block's weights, of scores that are still scores, to the rows' exact sums. */
V_NOINLINE void add_exact(panel *p, const block *b, int v, vf m, vf alpha)
{
    const float *s = b->s + v * LANES;
    const uint64_t *seen = b->seen;
    vf sum = v_zero();
    for (int64_t j = b->first; j < b->to[v]; j++, s += PANEL) {
        const vf w = v_exp2(v_sub(v_load(s), m));
        sum = v_add(sum, seen ? v_select(seen_lanes(seen++, v), w, v_zero()) : w);
    }
    add_sum(p->exact + v * LANES, p->exact_lost + v * LANES, alpha, sum);
}

/* Raises the reference to cover top, turns scores into weights, and adds their sum to the row's. */
V_NOINLINE void weigh_block(const heed_problem *problem, const heed_tile *tile, panel *p,
                            const block *b, const float *top)
{
    for (int v = first_vector(p); v < VECTORS; v++) {
        vf old = v_load(p->m + v * LANES), sum;
        vf m = v_max(v_load(top + v * LANES), old);
        vf alpha = v_exp2(v_sub(old, m));
        float *s = b->s + v * LANES;
        if (wants_exact(problem, tile))
            add_exact(p, b, v, m, alpha);
        if (b->seen)
            sum = weigh_keys(s, b->seen, b->to[v] - b->first, v, m);
        else
            sum = weigh_keys(s, NULL, b->to[v] - b->first, v, m);
        v_store(p->m + v * LANES, m);
        v_store(p->alpha + v * LANES, alpha);
        v_store(p->kept_alpha + v * LANES, v_mul(v_load(p->kept_alpha + v * LANES), alpha));
        add_sum(p->sum + v * LANES, p->lost + v * LANES, alpha, sum);
    }
}

/* Does the same as accumulate() for one column, word by word, and only over what each row sees: for
 * blocks that some row sees only in part, where what it does not see is not finite. */
V_NOINLINE void accumulate_seen(const panel *p, const block *b, const float *v_column,
                                int64_t v_stride, float *o, int first)
{
    for (int v = first_vector(p); v < VECTORS; v++) {
        const float *x = b->s + v * LANES, *column = v_column;
        vf sum = v_zero();
        for (int64_t j = b->first; j < b->to[v]; j += PAIR, x += PANEL, column += v_stride)
            sum = step_seen(v_load(x), v_broadcast(column), sum);
        if (!first)
            sum = v_fma(v_load(o + v * LANES), v_load(p->alpha + v * LANES), sum);
        v_store(o + v * LANES, sum);
    }
}

/* Blocks of a stretch of keys. The sums of a stretch start from zero, as those of a block do:
 * adding hundreds of blocks to one sum would lose as much as everything else together. */
#define STRETCH 32

/* Adds what o holds to the sums of earlier stretches. */
V_NOINLINE void keep_sums(panel *p, int64_t columns)
{
    for (int v = first_vector(p); v < VECTORS; v++) {
        const vf alpha = v_load(p->kept_alpha + v * LANES);
        const float *o = p->o + v * LANES;
        float *kept = p->kept + v * LANES;
        for (int64_t d = 0; d < columns; d++, o += PANEL, kept += PANEL)
            v_store(kept, p->keeps ? v_fma(v_load(kept), alpha, v_load(o)) : v_load(o));
        v_store(p->kept_alpha + v * LANES, v_set1(1.0f));
    }
    p->keeps = 1;
    p->started = 0;
}

/* ---- which rows see which keys ----------------------------------------------------------------
 */

/* Turns a word of 64 keys for each lane into a word of lanes for each key: bit `lane` of keys[j] is
 * bit j of lanes[lane]. */
V_INLINE void turn_bits(const uint64_t lanes[PANEL], uint64_t keys[64])
{
    for (int half = 0; half < 64; half += 32) {
        uint32_t words[PANEL];
        vi x[VECTORS];
        for (int lane = 0; lane < PANEL; lane++)
            words[lane] = (uint32_t)(lanes[lane] >> half);
        V_UNROLL for (int v = 0; v < VECTORS; v++) x[v] = vi_load(words + v * LANES);
        for (int j = half + 31; j >= half; j--) { /* doubling brings the next bit to the top */
            uint64_t key = 0;
            V_UNROLL for (int v = 0; v < VECTORS; v++)
            {
                key |= (uint64_t)m_bits(m_negative(v_from_bits(x[v]))) << (v * LANES);
                x[v] = vi_add(x[v], x[v]);
            }
            keys[j] = key;
        }
    }
}

/* Bit n for element n of up to 64 mask bytes. */
V_INLINE uint64_t mask_bits(const uint8_t *mask, int64_t stride, int n)
{
    uint64_t bits = 0;
    if (stride == 1)
        return bytes_set(mask, n);
    for (int i = 0; i < n; i++)
        bits |= (uint64_t)(mask[i * stride] != 0) << i;
    return bits;
}

/* Are all keys of a block in range of every row? */
V_INLINE int in_all_ranges(const panel *p, const block *b)
{
    return p->all_first <= b->first && p->all_end >= b->end;
}

/* Writes the rows' ranges to the words of `seen`, which are 0 before: first a row's bit marks where
 * its range begins and where it ends, and then all the words between get it. */
V_NOINLINE void see_ranges(const panel *p, const block *b)
{
    int64_t n = b->end - b->first;
    if (in_all_ranges(p, b)) {
        for (int64_t j = 0; j < n; j++)
            b->seen[j] = (((uint64_t)1 << PANEL) - 1) >> p->unused << p->unused;
        return;
    }
    for (int64_t lane = p->unused; lane < PANEL; lane++) {
        int64_t first = p->first[lane] > b->first ? p->first[lane] - b->first : 0;
        int64_t end = p->end[lane] - b->first;
        if (first >= n || first >= end)
            continue;
        b->seen[first] ^= (uint64_t)1 << lane;
        if (end < n)
            b->seen[end] ^= (uint64_t)1 << lane;
    }
    for (int64_t j = 1; j < n; j++)
        b->seen[j] ^= b->seen[j - 1];
}

/* Element 0 of a lane's row in a tensor. */
V_INLINE int64_t row_offset(const panel *p, const heed_rows *rows, int64_t lane)
{
    return p->head[lane] * rows->head_stride + p->query[lane] * rows->row_stride;
}

/* The first key of a block that is in the tile: a block of pairs may begin one key before it. */
V_INLINE int64_t first_key(const heed_tile *tile, const block *b)
{
    return b->first > tile->k_first ? b->first : tile->k_first;
}

/* The first key of a block that mask and bias have a column for. */
V_INLINE int64_t first_column(const heed_tile *tile, const block *b)
{
    const int64_t first = first_key(tile, b);
    return first > tile->mask_from ? first : tile->mask_from;
}

/* Takes keys that ranges and key blocks hide out of b->seen. */
V_NOINLINE void see_lists(const heed_problem *problem, const heed_tile *tile, const panel *p,
                          const block *b)
{
    for (int64_t j = first_key(tile, b); j < b->end; j += 64) {
        uint64_t lanes[PANEL] = {0}, keys[64];
        int n = b->end - j < 64 ? (int)(b->end - j) : 64;
        for (int64_t lane = p->unused, alike; lane < PANEL; lane += alike) {
            const int64_t i = p->query[lane], rows = tile->q_first + tile->q_count - i;
            alike = heed_rows_alike(problem, tile, p->head[lane], i,
                                    i + (rows < PANEL - lane ? rows : PANEL - lane));
            const uint64_t seen = heed_listed_bits(problem, tile, p->head[lane], i, j, n);
            for (int64_t k = 0; k < alike; k++)
                lanes[lane + k] = seen;
        }
        turn_bits(lanes, keys);
        for (int i = 0; i < n; i++)
            b->seen[j - b->first + i] &= keys[i];
    }
}

/* Takes keys that mask and bias hide out of b->seen, where the tile's `seen` has all they say. */
V_NOINLINE void see_bits(const heed_tile *tile, const panel *p, const block *b)
{
    for (int64_t j = b->first - b->first % 64; j < b->end; j += 64) {
        const int64_t first = j > b->first ? j : b->first, end = j + 64 < b->end ? j + 64 : b->end;
        uint64_t lanes[PANEL] = {0}, keys[64];
        for (int64_t lane = p->unused; lane < PANEL; lane++)
            lanes[lane] = tile->seen[(p->query[lane] - tile->q_first) * tile->seen_stride + j / 64];
        turn_bits(lanes, keys);
        for (int64_t key = first; key < end; key++)
            b->seen[key - b->first] &= keys[key - j];
    }
}

V_NOINLINE void see_mask(const heed_tile *tile, const panel *p, const block *b)
{
    for (int64_t j = first_column(tile, b); j < b->end; j += 64) {
        uint64_t lanes[PANEL] = {0}, keys[64];
        int n = b->end - j < 64 ? (int)(b->end - j) : 64;
        for (int64_t lane = p->unused; lane < PANEL; lane++) {
            const uint8_t *mask = tile->mask.data;
            mask += row_offset(p, &tile->mask, lane) + j * tile->mask.dim_stride;
            lanes[lane] = mask_bits(mask, tile->mask.dim_stride, n);
        }
        turn_bits(lanes, keys);
        for (int i = 0; i < n; i++)
            b->seen[j - b->first + i] &= keys[i];
    }
}

/* Elements of unit stride from element `at` on, of each of LANES rows. Inlined with the type known. */
V_INLINE void load_bias(uint32_t type, const char *const row[LANES], int64_t at, vf x[LANES])
{
    V_UNROLL for (int i = 0; i < LANES; i++) x[i] =
        v_load_type(type, row[i] + at * (int64_t)heed_dtype_bytes(type), LANES);
}

/* The bias at n keys from key j on, of each of LANES rows. A row that is NULL has 0. */
V_INLINE void bias_of_rows(const heed_problem *problem, const char *const row[LANES],
                           int64_t stride, int64_t j, int n, vf x[LANES])
{
    const uint32_t type = problem->bias_type;
    if (row[0] && stride == 1 && n == LANES) { /* row 0 is there: so are those behind it */
        if (type == HEED_F32)
            load_bias(HEED_F32, row, j, x);
        else if (type == HEED_F16)
            load_bias(HEED_F16, row, j, x);
        else
            load_bias(HEED_BF16, row, j, x);
        return;
    }
    for (int i = 0; i < LANES; i++)
        x[i] = row[i] ? v_gather_type(type, row[i] + j * stride * heed_dtype_bytes(type), stride, n)
                      : v_zero();
}

/* Takes keys whose bias is -inf out of n words of `seen`. Most biases have none: one look at all of them
 * together costs less than one at each. Returns whether there are any. */
V_INLINE int hide_biased(const vf x[LANES], int n, int v, uint64_t *seen)
{
    const vf hidden = v_set1(-INFINITY);
    vf least = v_set1(INFINITY); /* NaN never are */
    V_UNROLL for (int i = 0; i < LANES; i++) least = v_min(x[i], least);
    if (!m_bits(m_equal(least, hidden)))
        return 0;
    for (int i = 0; i < n; i++)
        seen[i] &= ~((uint64_t)m_bits(m_equal(x[i], hidden)) << (v * LANES));
    return 1;
}

/* Brings the bias of a block into the orientation of the scores, and takes keys whose bias is -inf
 * out of b->seen. Returns whether there are any. */
V_NOINLINE int transpose_bias(const heed_problem *problem, const heed_tile *tile, const panel *p,
                              const block *b, float *out)
{
    const heed_rows *bias = &tile->bias;
    const int64_t bytes = heed_dtype_bytes(problem->bias_type);
    int hides = 0;
    for (int v = first_vector(p); v < VECTORS; v++) {
        const int64_t none = first_column(tile, b) < b->to[v] ? first_column(tile, b) : b->to[v];
        const char *row[LANES];
        for (int i = 0; i < LANES; i++)
            row[i] = v * LANES + i < p->unused
                         ? NULL
                         : (const char *)bias->data + row_offset(p, bias, v * LANES + i) * bytes;
        for (int64_t j = b->first; j < none; j++)
            v_store(out + (j - b->first) * PANEL + v * LANES, v_zero());
        for (int64_t j = first_column(tile, b); j < b->to[v]; j += LANES) {
            vf x[LANES];
            int n = b->to[v] - j < LANES ? (int)(b->to[v] - j) : LANES;
            bias_of_rows(problem, row, bias->dim_stride, j, n, x);
            v_transpose(x);
            hides |= hide_biased(x, n, v, b->seen + (j - b->first));
            for (int i = 0; i < n; i++)
                v_store(out + (j - b->first + i) * PANEL + v * LANES, x[i]);
        }
    }
    return hides;
}

#endif
