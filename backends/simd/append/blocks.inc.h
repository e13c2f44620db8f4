/* Blocks of Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1, four at a time; part of append.c. */

/* BATCH: blocks whose factors are formed before their codes. 8 in place of 32 take 0.79 to 0.96 of the
 * time (once 1.01), 4 up to 1.2 of what 8 take, 16 0.93 to 1.09; by AVX2 8 in place of 32 0.87 to 1.01
 * (Intel Ice Lake). */
enum { BATCH = 8, BLOCK = 32, BLOCK_VECTORS = BLOCK / LANES, HALF_VECTORS = 16 / LANES };

/* The blocks of a call, row after row. append_next repeats the last one as often as needed. */
typedef struct append_walk {
    const char *in, *in_row;
    char *out, *out_row;
    int64_t in_stride, out_stride, in_bytes, out_bytes; /* from row to row, from block to block */
    int64_t n_blocks, column, columns;
} append_walk;

V_INLINE append_walk append_walk_of(uint32_t from, const heed_append_rows *a)
{
    append_walk w = {.in_row = a->from,
                     .out_row = a->to,
                     .in_stride = a->from_stride * append_size(from),
                     .out_stride = heed_offset_bytes(a->to_type, a->to_stride),
                     .in_bytes = BLOCK * append_size(from),
                     .out_bytes = heed_block_bytes(a->to_type),
                     .n_blocks = a->n_rows * (a->dim / BLOCK),
                     .columns = a->dim / BLOCK};
    w.in = w.in_row;
    w.out = w.out_row;
    return w;
}

V_INLINE void append_next(append_walk *w, const char **in, char **out)
{
    *in = w->in;
    *out = w->out;
    if (w->n_blocks <= 1)
        return;
    w->n_blocks--;
    w->in += w->in_bytes;
    w->out += w->out_bytes;
    if (++w->column == w->columns) {
        w->column = 0;
        w->in = w->in_row += w->in_stride;
        w->out = w->out_row += w->out_stride;
    }
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

/* What four blocks are encoded with. A factor is a long chain of operations with two divisions in
 * it, codes are many short chains: so the factors of a batch are formed first, whose chains
 * overlap, and then its codes. */
typedef struct append_factors {
    float d[4], inverse[4], least[4];
    uint16_t half[4], least_half[4]; /* of d and least */
    uint32_t plain;                  /* bit i: block i is left to append_plain_block */
} append_factors;

V_INLINE void append_finish_factors(v4 d, uint32_t bad, append_factors *f)
{
    const v4 size = v4_abs(d);
    f->plain =
        bad | (15u & ~(m4_bits(m4_less(v4_set1(0x1p-120f), size)) &
                       m4_bits(m4_less(size, v4_set1(0x1p120f))))); /* a NaN is not less, either */
    v4_store(f->d, d);
    v4_store(f->inverse, v4_div(v4_set1(1), d));
}

/* d of Q8_0 is the greatest magnitude / 127. Bits are compared, so that a NaN is the greatest. */
V_INLINE void append_sizes(vf x[4][BLOCK_VECTORS], append_factors *f)
{
    vf size[4];
    V_UNROLL for (int i = 0; i < 4; i++)
    {
        vi most = v_bits(v_abs(x[i][0]));
        V_UNROLL for (int k = 1; k < BLOCK_VECTORS; k++) most =
            vi_max(most, v_bits(v_abs(x[i][k])));
        size[i] = v_from_bits(most);
    }
    append_finish_factors(v4_div(v4_across(ACROSS_BITS, size), v4_set1(127)), 0, f);
}

/* d of the other formats, from the least and the greatest number. */
V_INLINE void append_ranges(uint32_t from, uint32_t to, const char *const in[4],
                            vf x[4][BLOCK_VECTORS], append_factors *f)
{
    const int has_least = to == HEED_Q4_1 || to == HEED_Q5_1;
    vf low[4], high[4];
    uint32_t bad = 0, special;
    V_UNROLL for (int i = 0; i < 4; i++)
    {
        vm nan = m_unordered(x[i][0], x[i][1]);
        low[i] = v_min(x[i][0], x[i][1]);
        high[i] = v_max(x[i][0], x[i][1]);
        V_UNROLL for (int k = 2; k < BLOCK_VECTORS; k += 2)
        {
            nan = m_or(nan, m_unordered(x[i][k], x[i][k + 1]));
            low[i] = v_min(low[i], v_min(x[i][k], x[i][k + 1]));
            high[i] = v_max(high[i], v_max(x[i][k], x[i][k + 1]));
        }
        bad |= (uint32_t)m_any(nan) << i;
    }
    const v4 least = v4_across(ACROSS_LEAST, low), most = v4_across(ACROSS_MOST, high);
    if (has_least) {
        /* of two zeros the first is the least */
        special = m4_bits(m4_equal(least, v4_zero()));
        v4_store(f->least, least);
        for (int i = 0; special && i < 4; i++)
            if (special >> i & 1)
                f->least[i] = append_first(from, in[i], 0);
        append_finish_factors(v4_div(v4_sub(most, least), v4_set1(to == HEED_Q5_1 ? 31 : 15)), bad,
                              f);
        return;
    }
    const v4 other = v4_sub(v4_zero(), least);
    v4 extreme = v4_select(m4_less(other, most), most, least);
    special = m4_bits(m4_equal(other, most)); /* two extremes: the first counts */
    if (special) {
        float e[4], size[4];
        v4_store(e, extreme);
        v4_store(size, most);
        for (int i = 0; i < 4; i++)
            if (special >> i & 1)
                e[i] = append_first(from, in[i], size[i]);
        extreme = v4_load(e);
    }
    append_finish_factors(v4_div(extreme, v4_set1(to == HEED_Q4_0 ? -8 : -16)), bad, f);
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

V_INLINE void append_place(uint32_t to, vi c[BLOCK_VECTORS], char *at)
{
    if (to == HEED_Q8_0) {
        bytes_store(at, bytes_of(c));
        bytes_store(at + 16, bytes_of(c + HALF_VECTORS));
        return;
    }
    if (to == HEED_Q5_0 || to == HEED_Q5_1) {
        uint32_t high = 0;
        V_UNROLL for (int k = 0; k < BLOCK_VECTORS; k++)
        {
            high |= m_bits(m_negative(v_from_bits(vi_shl(c[k], 27)))) << k * LANES;
            c[k] = vi_and(c[k], vi_set1(15));
        }
        memcpy(at, &high, 4);
        at += 4;
    }
    V_UNROLL for (int k = 0; k < HALF_VECTORS; k++) c[k] =
        vi_or(c[k], vi_shl(c[k + HALF_VECTORS], 4));
    bytes_store(at, bytes_of(c));
}

V_INLINE void append_load_block(uint32_t from, const char *in, vf x[BLOCK_VECTORS])
{
    V_UNROLL for (int k = 0; k < BLOCK_VECTORS; k++) x[k] = append_load(from, in, k * LANES);
}

V_INLINE void append_four_factors(uint32_t from, uint32_t to, const char *const in[4],
                                  append_factors *f)
{
    vf x[4][BLOCK_VECTORS];
    V_UNROLL for (int i = 0; i < 4; i++) append_load_block(from, in[i], x[i]);
    if (to == HEED_Q8_0)
        append_sizes(x, f);
    else
        append_ranges(from, to, in, x, f);
    v4_store_halves(f->half, v4_load(f->d));
    if (to == HEED_Q4_1 || to == HEED_Q5_1)
        v4_store_halves(f->least_half, v4_load(f->least));
}

/* Encodes block i of four. */
V_INLINE void append_block(uint32_t from, uint32_t to, const char *in, char *out,
                           const append_factors *f, int i)
{
    const int has_least = to == HEED_Q4_1 || to == HEED_Q5_1;
    vf x[BLOCK_VECTORS];
    vi c[BLOCK_VECTORS];
    append_load_block(from, in, x);
    append_codes(to, x, &f->inverse[i], &f->least[i], c);
    memcpy(out, &f->half[i], 2);
    if (has_least)
        memcpy(out + 2, &f->least_half[i], 2);
    append_place(to, c, out + (has_least ? 4 : 2));
}

V_INLINE void append_blocks(uint32_t from, uint32_t to, const heed_append_rows *a)
{
    append_walk w = append_walk_of(from, a);
    for (int64_t left = w.n_blocks; left > 0; left -= BATCH) {
        const int n = left < BATCH ? (int)left : BATCH;
        const char *in[BATCH];
        char *out[BATCH];
        append_factors f[BATCH / 4];
        for (int i = 0; i < (n + 3) / 4 * 4; i++)
            append_next(&w, &in[i], &out[i]);
        for (int i = 0; i < n; i += 4)
            append_four_factors(from, to, in + i, &f[i / 4]);
        for (int i = 0; i < n; i++) {
            append_ask(in[i], a->next * append_size(from), BLOCK * append_size(from));
            append_block(from, to, in[i], out[i], &f[i / 4], i % 4);
        }
        for (int i = 0; i < n; i++)
            if (f[i / 4].plain >> i % 4 & 1)
                append_plain_block(from, to, in[i], out[i]);
    }
}
