/*
 * Turns a block of scores into weights where the fast paths (fast.inc.h, fast_resident.inc.h)
 * cannot: where only some rows have seen a key yet, where values or scores are not finite or very
 * large, where scores are far above the row's reference, and for split accuracy. What those paths
 * can take may come here too, and gives the same bits.
 *
 * Every row is worked on by itself: what is decided for a row never depends on the others of its
 * group, and for a row that the fast path could have served the weights are the same bits.
 */
#ifndef HEED_AMX_CAREFUL_H
#define HEED_AMX_CAREFUL_H

#include "sums.inc.h"

/* Adds to O the products of NaN and infinite elements of V, which were packed as 0, with the
 * weights of the rows that see them. An underflowed weight makes an infinity NaN, as it should. */
static void add_odd_v(const amx_run *x, int unit)
{
    const heed_tile *t = x->t;
    uint32_t odd = header_of(x, unit / AMX_BLOCK_UNITS)->odd_v[unit % AMX_BLOCK_UNITS];
    for (int key = 0; key < AMX_UNIT; key++) {
        int64_t j = x->chunk + unit * AMX_UNIT + key;
        int half = key % 16 / 4 * 8 + key / 16 * 4 + key % 4; /* the order of vi_pack */
        if (!(odd >> key & 1))
            continue;
        const heed_key value = heed_find_key(x->p, t, 1, j);
        for (int i = 0; i < x->n_rows; i++) {
            amx_row row = x->row[i];
            uint16_t seen = j >= row.first && j < row.end;
            float weight = 0;
            if (seen && has_mask(t))
                seen = mask_lanes(x->p, t, &row, j, 1);
            if (seen && t->bias.data)
                seen = !(m_equal(bias_lanes(x->p, t, &row, j, 1), v_set1(-INFINITY)) & 1);
            if (!seen)
                continue;
            for (int part = 0; part < x->l->parts; part++) {
                const char *p = p_tile(x, unit, part, i / 16) + i % 16 * 64;
                float w = heed_load(HEED_BF16, p, half);
                if (!(fabsf(w) < 0x1p-126f)) /* the unit counts denormals as 0 */
                    weight += w;
            }
            for (uint32_t d = 0; d < x->p->v_dim; d++) {
                float v = heed_load_key(&value, d), *o;
                int column = (int)d % 8 / 4; /* of the two tiles, in the order of vi_interleave */
                if ((heed_bf16_of_f32(v) & 0x7fff) < AMX_INF_BF16)
                    continue;
                o = (float *)(void *)(o_tile(x, (int)d / 32, i / 16, column) + i % 16 * 64);
                o[d % 32 / 8 * 4 + d % 4] += weight * v;
            }
        }
    }
}

/* Adds to O what units [x->from, to) of the chunk contribute. */
static void flush_o(amx_run *x, int to)
{
    if (x->from == to)
        return;
    for (int pair = 0; pair < x->l->v_pairs; pair++) {
        load_o(x, pair);
        products_with_v(x, pair, x->from, to);
        store_o(x, pair);
    }
    for (int unit = x->from; unit < to; unit++)
        if (header_of(x, unit / AMX_BLOCK_UNITS)->odd_v[unit % AMX_BLOCK_UNITS])
            add_odd_v(x, unit);
    x->rows->fresh = 0;
    x->from = to;
}

static void scale_o(const amx_run *x, const float factor[AMX_GROUP], uint32_t which)
{
    for (int i = 0; i < x->n_rows; i++)
        if (which >> i & 1)
            for (int c = 0; c < 2 * x->l->v_pairs; c++) {
                float *o = (float *)(void *)(o_tile(x, c / 2, i / 16, c % 2) + i % 16 * 64);
                vf y = v_mul(v_load(o), v_set1(factor[i]));
                /* Denormals become 0, as the next tile product would make them, if one follows. */
                v_store(o, v_select(m_within(y, 0x1.fffffcp-127f, 0xffff), v_set1(0), y));
            }
}

/* 2^(from - to); 0 where that is no normal number. */
static inline float reference_factor(float from, float to)
{
    float x = from - to;
    return x < -126 ? 0 : heed_f32_of_bits((uint32_t)((int32_t)x + 127) << 23);
}

/* Raises the reference of each row that has a weight of 2^-2 or more in units [unit, end). The
 * weights of `unit` lie at place `at` of a ring that has places for `ring` units. */
static void raise_references(amx_run *x, int unit, int end, int at, int ring)
{
    float factor[AMX_GROUP];
    uint32_t raised = 0;
    for (int i = 0; i < x->n_rows; i++) {
        uint32_t top = 0;
        float old = x->rows->reference[i];
        for (int u = unit; u < end; u++) {
            const char *p = p_tile(x, (u - unit + at) % ring, 0, i / 16) + i % 16 * 64;
            for (int n = 0; n < 32; n++) {
                uint16_t w;
                memcpy(&w, p + 2 * n, 2);
                top = w > top ? w : top;
            }
        }
        if (top < AMX_RAISE_BF16 || top >= AMX_INF_BF16)
            continue;
        x->rows->reference[i] = old + (float)((int)(top >> 7) - 126 + AMX_MARGIN);
        factor[i] = reference_factor(old, x->rows->reference[i]);
        scale_sum(x, i, factor[i]);
        raised |= 1u << i;
    }
    if (raised) {
        flush_o(x, end);
        scale_o(x, factor, raised);
    }
}

/* Is the block hidden from the head's rows (HEED_BLOCK_NONE), seen as a whole, or mixed? */
static inline int mask_of_block(const amx_run *x, int64_t head, int block)
{
    int64_t first = x->t->k_first / AMX_BLOCK;
    if (!x->t->mask_blocks)
        return HEED_BLOCK_ALL;
    return x->t->mask_blocks[head * x->t->mask_block_stride + x->chunk / AMX_BLOCK + block - first];
}

/* Is the block of this kind (HEED_BLOCK_*) for all rows of the group? Its rows are of adjacent
 * heads. */
static inline int block_is(const amx_run *x, int block, int kind)
{
    int64_t head = x->row[0].head, end = x->row[x->n_rows - 1].head;
    if (!x->t->mask_blocks)
        return kind == HEED_BLOCK_ALL;
    while (head <= end && mask_of_block(x, head, block) == kind)
        head++;
    return head > end;
}

/* Turns row i's products with the keys of units [unit, end), in x->s, into scores in log2 units
 * where x->general is set; else they stay products. Those of hidden keys become x->hidden. Returns
 * whether one may be NaN or +inf. */
static int transform_row(const amx_run *x, int i, int unit, int end)
{
    amx_row row = x->row[i];
    int block = unit / AMX_BLOCK_UNITS, base = block * AMX_BLOCK_UNITS;
    int64_t j = x->chunk + unit * AMX_UNIT;
    const amx_header *header = header_of(x, block);
    int blocked = mask_of_block(x, row.head, block), odd = x->rows->odd_q >> i & 1;
    if (blocked == HEED_BLOCK_NONE)
        row.end = row.first;
    for (int u = unit; u < end; u++)
        odd |= header->odd_k[u - base] != 0;
    if (!x->general && !odd && blocked == HEED_BLOCK_ALL && row.first <= j &&
        row.end >= x->chunk + end * AMX_UNIT)
        return 0;
    for (int g = 2 * (unit - base); g < 2 * (end - base); g++, j += 16) {
        float *s = x->s + g * 512 + i * 16;
        uint16_t mask = range_mask(row.first, row.end, j);
        vf y;
        if (odd && has_mask(x->t)) /* keys that are not listed may not be read */
            mask &= listed_lanes(x->p, x->t, &row, j);
        if (odd && x->l->parts == 2)
            for (int n = 0; n < 16; n++)
                if ((mask >> n & 1) &&
                    ((x->rows->odd_q >> i & 1) || (header->odd_k[g / 2] >> (g % 2 * 16 + n) & 1)))
                    s[n] = exact_product(x->p, x->t, &row, j + n);
        y = v_load(s);
        if (x->general)
            y = v_to_log2(score_lanes(x->p, x->t, &row, j, y, &mask, NULL));
        else if (has_mask(x->t))
            mask = mask_lanes(x->p, x->t, &row, j, mask);
        v_store(s, v_select(mask, y, v_set1(x->hidden)));
    }
    return x->general || odd;
}

/* Largest score of row i; NaNs do not count. */
static inline float largest_of_row(const amx_run *x, int i, int groups, int first_group, float c)
{
    vf top = v_set1(-INFINITY);
    for (int g = first_group; g < groups; g++)
        top = v_max(v_mul(v_load(x->s + g * 512 + i * 16), v_set1(c)), top);
    return v_largest(top);
}

/* Writes the bf16 weights of one row and unit, whose scores are at a and b, to out. Returns the
 * largest fixed-point value so far. */
static inline vi bf16_weights(const float *a, const float *b, float c, float reference, vi top,
                              char *out)
{
    const vf floor = v_set1(FIXED_ZERO), factor = v_set1(c);
    vf za, zb;
    vi fixed;
    if (fabsf(reference) <= AMX_ONE_STEP) {
        vf addend = v_set1(fixed_addend(reference));
        za = v_fma(v_load(a), factor, addend);
        zb = v_fma(v_load(b), factor, addend);
    } else {
        /* The addend of a single step would not be exact, and scores this large may be coarser than
         * 1. The reference was made from a rounded product, so the product is rounded here too. */
        vf m = v_set1(reference), addend = v_set1(fixed_addend(0));
        za = v_add(v_sub(v_mul(v_load(a), factor), m), addend);
        zb = v_add(v_sub(v_mul(v_load(b), factor), m), addend);
    }
    /* The maximum also gives a NaN the weight 0; put_nans brings it back. */
    fixed = fixed_of(v_max(za, floor), v_max(zb, floor));
    vi_store(out, weights_of(fixed, vi_load(exp2_table)));
    return vi_max16(top, fixed);
}

/* The same for split accuracy: weights are computed in f32 and written as a high and a low bf16,
 * both rounded to nearest, ties away from 0. A NaN gets the weight 0; put_nans brings it back. Adds
 * the weights to *sum and keeps the largest score, relative to the reference, in *above. */
static inline void split_weights(const float *a, const float *b, float c, float reference, vf *sum,
                                 vf *above, char *high, char *low)
{
    const vf factor = v_set1(c), m = v_set1(reference);
    const vi half = vi_set1(0x8000), upper = vi_set1(0xffff0000u);
    vi up[2], rest[2];
    for (int side = 0; side < 2; side++) {
        vf x = v_sub(v_mul(v_load(side ? b : a), factor), m), p = exp2_or_zero(x);
        *above = v_max(x, *above);
        *sum = v_add(*sum, p);
        up[side] = vi_and(vi_add(v_bits(p), half), upper);
        rest[side] = vi_add(v_bits(v_sub(p, v_from_bits(up[side]))), half);
        up[side] = vi_shr(up[side], 16);
        rest[side] = vi_shr(rest[side], 16);
    }
    vi_store(high, vi_pack(up[0], up[1]));
    vi_store(low, vi_pack(rest[0], rest[1]));
}

/* Gives keys whose score is NaN or +inf a NaN as weight. Returns whether there are any. */
static int put_nans(const amx_run *x, int i, int unit, int end, float c)
{
    int base = unit / AMX_BLOCK_UNITS * AMX_BLOCK_UNITS, found = 0;
    for (int u = unit; u < end; u++)
        for (int key = 0; key < AMX_UNIT; key++) {
            float s = x->s[(2 * (u - base) + key / 16) * 512 + i * 16 + key % 16] * c;
            int half = key % 16 / 4 * 8 + key / 16 * 4 + key % 4;
            if (s <= 0x1.fffffep127f)
                continue;
            heed_store(HEED_BF16, p_tile(x, u, 0, i / 16) + i % 16 * 64, half, NAN);
            found = 1;
        }
    return found;
}

/* Computes the weights of row i by its reference, from x->s. For split accuracy *partial receives
 * their sum and *above the largest score relative to the reference; else returns the largest
 * fixed-point value of bf16_weights. */
static vi weigh_row(const amx_run *x, int i, int unit, int end, vf *partial, vf *above)
{
    const int base = unit / AMX_BLOCK_UNITS * AMX_BLOCK_UNITS;
    const int64_t unit_bytes = x->l->group * 64 * x->l->parts;
    const float *s = x->s + (unit - base) * 1024 + i * 16, reference = x->rows->reference[i];
    char *p = p_tile(x, unit, 0, i / 16) + i % 16 * 64;
    vi top = vi_zero();
    *partial = v_set1(0);
    *above = v_set1(-INFINITY);
    for (; unit < end; unit++, s += 1024, p += unit_bytes) {
        if (x->l->parts == 2)
            split_weights(s, s + 512, x->c, reference, partial, above, p, p + 2048);
        else
            top = bf16_weights(s, s + 512, x->c, reference, top, p);
    }
    return top;
}

/* Chooses a reference for row i, which has none or one that is too low for its scores. *odd says
 * whether a score may be NaN or +inf; it is updated where that becomes known. Returns whether sums
 * made with an older reference have to be scaled. */
static int choose_reference(const amx_run *x, int i, int unit, int end, int *odd)
{
    const int base = unit / AMX_BLOCK_UNITS * AMX_BLOCK_UNITS, split = x->l->parts == 2;
    const float largest = largest_of_row(x, i, 2 * (end - base), 2 * (unit - base), x->c);
    float *reference = &x->rows->reference[i];
    const float old = *reference;
    if (old != AMX_UNSEEN && !(largest > old) && (largest != old || split))
        return 0;
    if (largest > 0x1.fffffep127f) {
        *odd = 1;
        *reference = old == AMX_UNSEEN ? 0 : old;
    } else if (largest >= -0x1.fffffep127f) {
        *reference = ceilf(largest) + (split ? AMX_SPLIT_MARGIN : AMX_MARGIN);
    } else if (*odd && old == AMX_UNSEEN) {
        *odd = put_nans(x, i, unit, end, x->c);
        *reference = *odd ? 0 : AMX_UNSEEN;
    }
    return old != AMX_UNSEEN;
}

enum { CAREFUL_RAISED = 1, CAREFUL_HIGH = 2 };

/* Weights and sums of row i in units [unit, end) of one block, whose products are in x->s. Returns
 * CAREFUL_RAISED where O has to be multiplied by *factor, and CAREFUL_HIGH where a weight is 2^-2
 * or more. */
static int careful_row(amx_run *x, int i, int unit, int end, float *factor)
{
    const int base = unit / AMX_BLOCK_UNITS * AMX_BLOCK_UNITS, split = x->l->parts == 2;
    const int64_t unit_bytes = x->l->group * 64 * x->l->parts;
    const float *reference = &x->rows->reference[i], *s = x->s + (unit - base) * 1024 + i * 16;
    char *p = p_tile(x, unit, 0, i / 16) + i % 16 * 64;
    int odd = transform_row(x, i, unit, end), done = 0, what = 0;
    vf sum = v_load(x->rows->sum[i]), partial = v_set1(0), above;
    vi top = vi_zero();
    if (*reference != AMX_UNSEEN) {
        top = weigh_row(x, i, unit, end, &partial, &above);
        done = split ? !m_less(v_zero(), above) : !vi_halves_from(top, AMX_TOO_LARGE);
    }
    if (!done) {
        const float old = *reference;
        if (choose_reference(x, i, unit, end, &odd)) {
            *factor = reference_factor(old, *reference);
            sum = v_mul(sum, v_set1(*factor));
            scale_exact(x, i, *factor);
            what = CAREFUL_RAISED;
        }
        if (*reference == AMX_UNSEEN) {
            for (int n = 0; n < x->l->parts * (end - unit); n++)
                vi_store(p + (int64_t)n * x->l->group * 64, vi_zero());
            return 0;
        }
        top = weigh_row(x, i, unit, end, &partial, &above);
    }
    if (odd && put_nans(x, i, unit, end, x->c)) {
        sum = v_set1(NAN);
        scale_exact(x, i, NAN);
    }
    if (split)
        sum = v_add(sum, partial);
    else
        for (int n = 0; n < end - unit; n++)
            sum = v_add_pairs(sum, vi_load(p + n * unit_bytes));
    v_store(x->rows->sum[i], sum);
    for (int n = 0; x->exact && n < end - unit; n++)
        add_exact(x, i, s + n * 1024, s + n * 1024 + 512);
    return vi_halves_from(top, AMX_RAISE_FIXED) ? what | CAREFUL_HIGH : what;
}

/* Products, weights and sums of units [unit, end) of one block. O stays behind unless a reference
 * is raised. */
static void careful_block(amx_run *x, int unit, int end)
{
    const int base = unit / AMX_BLOCK_UNITS * AMX_BLOCK_UNITS;
    float factor[AMX_GROUP];
    uint32_t raised = 0, high = 0;
    for (int u = unit; u < end; u++)
        products_with_k(x, u, x->s + (u - base) * 1024);
    for (int i = 0; i < x->n_rows; i++) {
        const int what = careful_row(x, i, unit, end, &factor[i]);
        raised |= (uint32_t)(what & CAREFUL_RAISED) << i;
        high |= (uint32_t)(what & CAREFUL_HIGH);
    }
    if (raised) {
        flush_o(x, unit);
        scale_o(x, factor, raised);
    }
    if (high)
        raise_references(x, unit, end, unit, AMX_CHUNK_BLOCKS * AMX_BLOCK_UNITS);
}

#endif
