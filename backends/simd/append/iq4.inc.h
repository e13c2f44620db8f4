/* Blocks of IQ4_NL; part of append.c. The factor of a block is a quotient of two sums over the
 * block, added one term after the other. So LANES blocks are encoded side by side: a lane is a
 * block, and a vector has one element of each. */

/* The range of numbers is cut into stretches of 11.75 around the multiples of 11.75. Each has at
 * most one of the middles between two numbers of the table (iq4_value), and none within 0.87 of an
 * end: so x / 11.75 to the nearest integer, from -11 to 11, finds the stretch with rounding to
 * spare. The low five bits of that integer find the stretch's entries here. */
#define IQ4_WIDTH 11.75f
#define IQ4_MAGIC 0x1.8p23f
#define NO_MIDDLE INFINITY
static const float iq4_middle[32] = {
    -4.5f,     7,         19,        31.5f,     45.5f,     61,        NO_MIDDLE, 79,
    NO_MIDDLE, 101,       NO_MIDDLE, NO_MIDDLE, NO_MIDDLE, NO_MIDDLE, NO_MIDDLE, NO_MIDDLE,
    NO_MIDDLE, NO_MIDDLE, NO_MIDDLE, NO_MIDDLE, NO_MIDDLE, NO_MIDDLE, -115.5f,   NO_MIDDLE,
    -93.5f,    NO_MIDDLE, -74,       -57,       -42,       NO_MIDDLE, -28.5f,    -16};
/* How many middles lie below the stretch: int32. */
static const uint32_t iq4_below[32] = {7, 8, 9, 10, 11, 12, 13, 13, 14, 14, 15, 15, 15, 15, 15, 15,
                                       0, 0, 0, 0,  0,  0,  0,  1,  1,  2,  2,  3,  4,  5,  5,  6};
static const float iq4_value[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};

/* The index of the number of the table that is nearest to a; in the middle, of the upper one. */
V_INLINE vi iq4_nearest(vf a)
{
    const vi stretch = v_bits(v_fma(a, v_set1(1 / IQ4_WIDTH), v_set1(IQ4_MAGIC)));
    const vf one = v_from_bits(vi_set1(1));
    const vf up = v_select(m_less(a, v_table(iq4_middle, stretch)), v_zero(), one);
    return vi_add(v_bits(v_table(iq4_below, stretch)), v_bits(up));
}

/* Loads LANES blocks: x[i] gets element i of each. */
V_INLINE void iq4_columns(uint32_t from, const char *const in[LANES], vf x[BLOCK])
{
    for (int part = 0; part < BLOCK; part += LANES) {
        vf r[LANES];
        V_UNROLL for (int l = 0; l < LANES; l++) r[l] = append_load(from, in[l], part);
        v_transpose(r);
        V_UNROLL for (int l = 0; l < LANES; l++) x[part + l] = r[l];
    }
}

/* The number of greatest magnitude in each block, the first of equal ones. *plain: lanes that are
 * left to append_plain_block. */
V_INLINE vf iq4_extremes(const vf x[BLOCK], uint32_t *plain)
{
    vf low[2] = {x[0], x[1]}, high[2] = {x[0], x[1]};
    vm nan = m_unordered(x[0], x[1]);
    for (int i = 2; i < BLOCK; i += 2) {
        V_UNROLL for (int k = 0; k < 2; k++)
        {
            low[k] = v_min(low[k], x[i + k]);
            high[k] = v_max(high[k], x[i + k]);
        }
        nan = m_or(nan, m_unordered(x[i], x[i + 1]));
    }
    const vf least = v_min(low[0], low[1]), most = v_max(high[0], high[1]);
    const vf other = v_sub(v_zero(), least);
    vf extreme = v_select(m_less(other, most), most, least), size;
    if (m_any(m_equal(other, most))) {
        size = v_zero();
        extreme = v_zero();
        for (int i = 0; i < BLOCK; i++) {
            const vm more = m_less(size, v_abs(x[i]));
            extreme = v_select(more, x[i], extreme);
            size = v_select(more, v_abs(x[i]), size);
        }
    }
    size = v_abs(extreme);
    *plain = m_bits(nan) | (m_bits(m_first(LANES)) & ~(m_bits(m_less(v_set1(0x1p-40f), size)) &
                                                       m_bits(m_less(size, v_set1(0x1p40f)))));
    return extreme;
}

/* word[n] gets word n of the nibbles of every block. Returns d. */
V_INLINE vf iq4_codes(const vf x[BLOCK], vf extreme, vi word[4])
{
    const vf inverse = v_div(v_set1(1), v_div(extreme, v_set1(-127)));
    vf up = v_zero(), down = v_zero();
    vi c[16];
    for (int i = 0; i < BLOCK; i++) {
        const vi code = iq4_nearest(v_mul(x[i], inverse));
        const vf value = v_table16(iq4_value, code);
        const vf share = v_mul(v_mul(x[i], x[i]), value);
        up = v_add(up, v_mul(share, x[i]));
        down = v_add(down, v_mul(share, value));
        c[i % 16] = i < 16 ? code : vi_or(c[i % 16], vi_shl(code, 4));
    }
    V_UNROLL for (int n = 0; n < 4; n++) word[n] =
        vi_or(vi_or(c[4 * n], vi_shl(c[4 * n + 1], 8)),
              vi_or(vi_shl(c[4 * n + 2], 16), vi_shl(c[4 * n + 3], 24)));
    return v_div(up, down);
}

V_INLINE void append_iq4_blocks(uint32_t from, const char *const in[LANES], char *const out[LANES])
{
    vf x[BLOCK], r[4];
    vi word[4];
    uint16_t d[LANES];
    float nibbles[4][LANES];
    uint32_t plain;
    iq4_columns(from, in, x);
    const vf extreme = iq4_extremes(x, &plain);
    v_store_type(HEED_F16, d, iq4_codes(x, extreme, word), LANES);
    for (int i = 0; i < 2; i++) { /* the four words of a block side by side */
        const vf a = v_from_bits(word[0]), b = v_from_bits(word[1]);
        const vf e = v_from_bits(word[2]), f = v_from_bits(word[3]);
        const vf ab = i ? v_zip_high(a, b) : v_zip_low(a, b);
        const vf ef = i ? v_zip_high(e, f) : v_zip_low(e, f);
        r[2 * i] = v_low_pairs(ab, ef);
        r[2 * i + 1] = v_high_pairs(ab, ef);
    }
    for (int i = 0; i < 4; i++)
        v_store(nibbles[i], r[i]);
    for (int l = 0; l < LANES; l++) {
        memcpy(out[l], &d[l], 2);
        memcpy(out[l] + 2, &nibbles[l % 4][l / 4 * 4], 16);
        if (plain >> l & 1)
            append_plain_block(from, HEED_IQ4_NL, in[l], out[l]);
    }
}

V_INLINE void append_iq4(uint32_t from, uint32_t to, const heed_append_rows *a)
{
    (void)to;
    append_walk w = append_walk_of(from, a);
    while (w.left > 0) {
        const char *in[LANES];
        char *out[LANES];
        append_next(from, HEED_IQ4_NL, LANES, &w, in, out);
        for (int l = 0; l < LANES; l++)
            append_ask(in[l], a->next * append_size(from), BLOCK * append_size(from));
        append_iq4_blocks(from, in, out);
    }
}
