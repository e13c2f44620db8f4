/* Blocks of Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1, eight at a time; part of append.c. */

enum { BLOCK = 32, BLOCK_VECTORS = BLOCK / LANES, HALF_VECTORS = 16 / LANES };

/* The blocks of a call, row after row. */
typedef struct append_walk {
    const char *in, *in_row;
    char *out, *out_row;
    int64_t in_stride, out_stride; /* from row to row */
    int64_t left, column, columns;
} append_walk;

V_INLINE append_walk append_walk_of(uint32_t from, const heed_append_rows *a)
{
    append_walk w = {.in_row = a->from,
                     .out_row = a->to,
                     .in_stride = a->from_stride * append_size(from),
                     .out_stride = heed_offset_bytes(a->to_type, a->to_stride),
                     .left = a->n_rows * (a->dim / BLOCK),
                     .columns = a->dim / BLOCK};
    w.in = w.in_row;
    w.out = w.out_row;
    return w;
}

/* Takes `n` blocks of a row, a constant. */
V_INLINE void append_take(uint32_t from, uint32_t to, int n, append_walk *w, const char **in,
                          char **out)
{
    V_UNROLL for (int i = 0; i < n; i++)
    {
        in[i] = w->in + i * BLOCK * append_size(from);
        out[i] = w->out + i * heed_block_bytes(to);
    }
    w->in += n * BLOCK * append_size(from);
    w->out += n * heed_block_bytes(to);
    if ((w->column += n) == w->columns) {
        w->column = 0;
        w->in = w->in_row += w->in_stride;
        w->out = w->out_row += w->out_stride;
    }
}

/* Takes `most` blocks, a constant and a multiple of 4. Where fewer are left it names the first one as often
 * as needed: encoding that again writes the same. */
V_INLINE void append_next(uint32_t from, uint32_t to, int most, append_walk *w, const char **in,
                          char **out)
{
    const int n = w->left < most ? (int)w->left : most;
    int i = 0;
    for (; w->columns % 4 == 0 && i < n; i += 4)
        append_take(from, to, 4, w, in + i, out + i);
    for (; i < n; i++)
        append_take(from, to, 1, w, in + i, out + i);
    for (; i < most; i++) {
        in[i] = in[0];
        out[i] = out[0];
    }
    w->left -= n;
}

/* Encodes a block by the function of formats.h. */
V_NOINLINE void append_plain_block(uint32_t from, uint32_t to, const char *in, char *out)
{
    float x[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        x[i] = heed_load(from, in, i);
    heed_encode_q(to, x, out);
}

/* The first number of a block whose magnitude is `size`, with its sign. */
V_NOINLINE float append_first(uint32_t from, const char *in, float size)
{
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(heed_load(from, in, i)) == size)
            return heed_load(from, in, i);
    return size;
}

/* Some blocks and what they are encoded with. */
typedef struct append_group {
    const char *in[BATCH];
    char *out[BATCH];
    float inverse[BATCH]; /* 1 / d */
    float least[BATCH];
    uint16_t half[BATCH], least_half[BATCH]; /* of d and least */
    uint32_t plain;                          /* bit i: block i is left to append_plain_block */
} append_group;

/* The number that d of Q4_0 and Q5_0 is made of: of greatest magnitude, and the first of such. */
V_INLINE v8 append_extremes(uint32_t from, const char *const in[BATCH], const append_ranges *r)
{
    const v8 other = v8_sub(v8_zero(), r->least);
    const v8 extreme = v8_select(m8_less(other, r->most), r->most, r->least);
    const uint32_t both = m8_bits(m8_equal(other, r->most));
    float e[BATCH], size[BATCH];
    if (!both)
        return extreme;
    v8_store(e, extreme);
    v8_store(size, r->most);
    for (int i = 0; i < BATCH; i++)
        if (both >> i & 1)
            e[i] = append_first(from, in[i], size[i]);
    return v8_load(e);
}

/* Sets the factors of a group, d and least. */
V_INLINE void append_factors(uint32_t from, uint32_t to, append_group *g)
{
    const append_ranges r = append_find_ranges(from, to == HEED_Q8_0, g->in, BLOCK);
    v8 d;
    if (to == HEED_Q8_0) {
        d = v8_div(r.most, v8_set1(127));
    } else if (to == HEED_Q4_0 || to == HEED_Q5_0) {
        d = v8_div(append_extremes(from, g->in, &r), v8_set1(to == HEED_Q4_0 ? -8 : -16));
    } else {
        const uint32_t zeros = m8_bits(m8_equal(r.least, v8_zero()));
        d = v8_div(v8_sub(r.most, r.least), v8_set1(to == HEED_Q5_1 ? 31 : 15));
        v8_store(g->least, r.least);
        for (int i = 0; zeros && i < BATCH; i++)
            if (zeros >> i & 1) /* of two zeros the first is the least */
                g->least[i] = append_first(from, g->in[i], 0);
        v8_store_half(HEED_F16, g->least_half, v8_load(g->least));
    }
    const v8 size = v8_abs(d);
    const m8 above = m8_less(v8_set1(0x1p-120f), size), below = m8_less(size, v8_set1(0x1p120f));
    g->plain = r.nans | (255u & ~(m8_bits(above) & m8_bits(below))); /* a NaN is not less, either */
    v8_store(g->inverse, v8_div(v8_set1(1), d));
    v8_store_half(HEED_F16, g->half, d);
}

/* The codes of a block as int32. Fractions are cut off; Q8_0 rounds halves away from zero. */
V_INLINE void append_codes(uint32_t to, const vf x[BLOCK_VECTORS], const float *inverse,
                           const float *least, vi c[BLOCK_VECTORS])
{
    const int has_least = to == HEED_Q4_1 || to == HEED_Q5_1;
    const vf by = v_broadcast(inverse), sign = v_set1(-0.0f), below_half = v_set1(0x1.fffffep-2f);
    const vf shift = v_set1(to == HEED_Q4_0 ? 8.5f : to == HEED_Q5_0 ? 16.5f : 0.5f);
    const vf most = v_set1(to == HEED_Q5_0 || to == HEED_Q5_1 ? 31.5f : 15.5f);
    V_UNROLL for (int k = 0; k < BLOCK_VECTORS; k++)
    {
        vf a = v_mul(has_least ? v_sub(x[k], v_broadcast(least)) : x[k], by);
        if (to == HEED_Q8_0)
            a = v_add(a, v_or(v_and(a, sign), below_half));
        else
            a = v_min(v_add(a, shift), most);
        c[k] = vi_cut(a);
    }
}

V_INLINE void append_load_block(uint32_t from, const char *in, vf x[BLOCK_VECTORS])
{
    V_UNROLL for (int k = 0; k < BLOCK_VECTORS; k++) x[k] = append_load(from, in, k * LANES);
}

/* Writes all of a block but the bytes of its codes, and leaves these, of two elements each but for Q8_0, in
 * the first vectors of c. Returns their place. */
V_INLINE char *append_block(uint32_t from, uint32_t to, const append_group *g, int i,
                            vi c[BLOCK_VECTORS])
{
    const int has_least = to == HEED_Q4_1 || to == HEED_Q5_1;
    const int has_fifths = to == HEED_Q5_0 || to == HEED_Q5_1;
    char *at = g->out[i] + (has_least ? 4 : 2);
    uint32_t fifths = 0;
    vf x[BLOCK_VECTORS];
    append_load_block(from, g->in[i], x);
    append_codes(to, x, &g->inverse[i], &g->least[i], c);
    memcpy(g->out[i], &g->half[i], 2);
    if (has_least)
        memcpy(g->out[i] + 2, &g->least_half[i], 2);
    if (has_fifths) {
        V_UNROLL for (int k = 0; k < BLOCK_VECTORS; k++) fifths |= m_bits(m_fifth(c[k]))
                                                                   << k * LANES;
        memcpy(at, &fifths, 4);
        at += 4;
    }
    if (to != HEED_Q8_0)
        V_UNROLL for (int k = 0; k < HALF_VECTORS; k++)
        {
            const vi first = has_fifths ? vi_and(c[k], vi_set1(0x0f)) : c[k];
            const vi second = vi_shl(c[k + HALF_VECTORS], 4);
            c[k] = vi_or(first, has_fifths ? vi_and(second, vi_set1(0xf0)) : second);
        }
    return at;
}

/* Encodes the blocks of a group. */
V_INLINE void append_finish(uint32_t from, uint32_t to, int64_t ahead, const append_group *g)
{
    const int vectors = to == HEED_Q8_0 ? BLOCK_VECTORS : HALF_VECTORS;
    const int blocks = BLOCKS_AT_ONCE(vectors);
    for (int i = 0; i < BATCH; i += blocks) {
        char *at[4];
        vi c[4 + BLOCK_VECTORS];
        V_UNROLL for (int n = 0; n < blocks; n++)
        {
            append_ask(g->in[i + n], ahead, BLOCK * append_size(from));
            at[n] = append_block(from, to, g, i + n, c + n * vectors);
        }
        blocks_store(at, c, vectors, to == HEED_Q8_0);
    }
    for (int i = 0; g->plain && i < BATCH; i++)
        if (g->plain >> i & 1)
            append_plain_block(from, to, g->in[i], g->out[i]);
}

/* Factors are a long chain of operations with two divisions in it, codes are many short chains: so those
 * of the next group are formed before the codes of this one. */
V_INLINE void append_blocks(uint32_t from, uint32_t to, const heed_append_rows *a)
{
    const int64_t ahead = a->next * append_size(from);
    append_walk w = append_walk_of(from, a);
    append_group groups[2];
    for (int64_t n = 0, last = (w.left + BATCH - 1) / BATCH; n <= last; n++) {
        append_group *next = &groups[n % 2], *g = &groups[(n + 1) % 2];
        if (n < last) {
            append_next(from, to, BATCH, &w, next->in, next->out);
            append_factors(from, to, next);
        }
        if (n > 0)
            append_finish(from, to, ahead, g);
    }
}
