/* Rows of I8, U8, U4 and F8_E4M3, by given scales or by fresh ones; part of append.c. */

/* As heed_e4m3_of_f32, with the sign of `of`. tame: the numbers are no NaN, at most a little beyond 448,
 * and seldom small, as fresh scales make them. */
V_INLINE vi append_e4m3(vf x, vf of, int tame)
{
    const vf size = v_abs(x), held = tame ? size : v_min(size, v_set1(448)); /* of a NaN, 448 */
    const vi h = v_bits(held), odd = vi_and(vi_shr(h, 20), vi_set1(1));
    const vi normal = vi_shr(vi_add(vi_add(h, odd), vi_set1(0x7ffff - (120 << 23))), 20);
    const vi sign = vi_and(vi_shr(v_bits(of), 24), vi_set1(0x80));
    const vm is_small = m_less(held, v_set1(0x1p-6f));
    vf code = v_from_bits(normal);
    if (!tame || m_any(is_small)) {
        const vi small = vi_sub(v_bits(v_add(held, v_set1(0x1p14f))), vi_set1(0x46800000));
        code = v_select(is_small, v_from_bits(small), code);
    }
    if (!tame)
        code = v_select(m_nan(x), v_from_bits(vi_set1(0x7f)), code);
    return vi_or(v_bits(code), sign);
}

/* Division by a row's scale, which costs 10 to 16 cycles a vector, becomes a product by its inverse. */
typedef struct divisor {
    vf scale, minus, inverse, rest; /* minus: -scale; 1 / scale rounded, what the rounding took */
    vf most;                        /* what is larger is beyond all codes */
} divisor;

/* Quotients so large, and zeros up to half of that, are beyond all codes, and their sums are int32: so
 * they can be rounded before they are held in the range of codes. */
#define APPEND_MOST 0x1p30f

/* Scales that divisor_of() and append_quotient() are good for, by a wide margin. */
V_INLINE int is_usual(const float by[2])
{
    return by[0] >= 0x1p-60f && by[0] <= 0x1p60f && fabsf(by[1]) <= APPEND_MOST / 2;
}

V_INLINE divisor divisor_of(float scale)
{
    const vf minus = v_set1(-scale), inverse = v_set1(1 / scale);
    return (divisor){v_set1(scale), minus, inverse,
                     v_mul(v_fma(minus, inverse, v_set1(1)), inverse), v_set1(scale * APPEND_MOST)};
}

/*
 * x / scale, rounded as a division does it. The first quotient is within a unit of its last place, what
 * it leaves of x is exact, and with the correctly rounded inverse the next one is correctly rounded
 * (P. Markstein, IBM Journal of Research and Development 34, 1990). Where x is so small that what is left
 * is not exact, the quotient is below 2^-41, and any such quotient gives the same code. -0 may become 0.
 */
V_INLINE vf append_quotient(const divisor *by, vf x)
{
    const vf near = v_fma(x, by->inverse, v_mul(x, by->rest));
    return v_fma(v_fma(near, by->minus, x), by->inverse, near);
}

/* As heed_encode_by, for LANES numbers; codes of I8, U8 and U4 are still to be held in their range. tame:
 * the numbers are no NaN, their quotients at most APPEND_MOST, of F8_E4M3 a little beyond 448, and I8
 * has no zero. */
V_INLINE vi append_code(uint32_t to, int tame, vf x, const divisor *by, vf zero)
{
    if (to == HEED_F8_E4M3) /* given ones: what else there is to do takes as long as a division */
        return append_e4m3(tame ? append_quotient(by, x) : v_div(x, by->scale), x, tame);
    /* a NaN stays one */
    const vf held = tame ? x : v_max(v_sub(v_zero(), by->most), v_min(by->most, x));
    const vf quotient = append_quotient(by, held);
    if (to == HEED_I8 && tame)
        return vi_round(quotient);
    const vf c = v_add(quotient, zero);
    if (to == HEED_I8)
        return vi_round(v_select(m_nan(c), v_zero(), c));
    return vi_round(c); /* of a NaN INT32_MIN, which is held to 0 */
}

V_INLINE v_bytes append_sixteen(uint32_t from, uint32_t to, int tame, const char *in,
                                const divisor *by, vf zero)
{
    vi c[HALF_VECTORS];
    V_UNROLL for (int k = 0; k < HALF_VECTORS; k++) c[k] =
        append_code(to, tame, append_load(from, in, k * LANES), by, zero);
    return bytes_held(c, to == HEED_I8);
}

/* Writes the codes of 4 * LANES numbers: packing more at a time costs less. */
V_INLINE void append_many(uint32_t from, uint32_t to, int tame, const char *in, char *out,
                          const divisor *by, vf zero)
{
    vi c[4];
    V_UNROLL for (int k = 0; k < 4; k++) c[k] =
        append_code(to, tame, append_load(from, in, k * LANES), by, zero);
    if (to == HEED_U4)
        many_store_pairs(out, many_held(c, 0));
    else
        many_store(out, many_held(c, to == HEED_I8));
}

/* Encodes a row by the functions of formats.h. */
V_NOINLINE void append_plain_row(uint32_t from, uint32_t to, const char *in, char *out, int64_t dim,
                                 const float by[2])
{
    float x[BLOCK];
    for (int64_t d = 0; d < dim; d += BLOCK) {
        const int64_t n = dim - d < BLOCK ? dim - d : BLOCK;
        for (int64_t i = 0; i < n; i++)
            x[i] = heed_load(from, in, d + i);
        heed_encode(to, x, n, out + (to == HEED_U4 ? d / 2 : d), by[0], by[1]);
    }
}

/* Encodes a row by its scale and zero, by[0] and by[1]. */
V_INLINE void append_row(uint32_t from, uint32_t to, int tame, const char *in, char *out,
                         int64_t dim, const float by[2])
{
    const int step = to == HEED_U4 ? 32 : 16;
    if (by[0] == 0) {
        memset(out, 0, (size_t)(to == HEED_U4 ? dim / 2 : dim));
        return;
    }
    if (!is_usual(by)) {
        append_plain_row(from, to, in, out, dim, by);
        return;
    }
    const divisor scale = divisor_of(by[0]);
    const vf zero = v_set1(by[1]);
    const int64_t many = dim - dim % (4 * LANES);
    for (int64_t d = 0; d < many; d += 4 * LANES)
        append_many(from, to, tame, in + d * append_size(from), out + (to == HEED_U4 ? d / 2 : d),
                    &scale, zero);
    for (int64_t d = many; d < dim; d += step) {
        const int64_t at = d + step > dim ? dim - step : d;
        const char *p = in + at * append_size(from);
        const v_bytes a = append_sixteen(from, to, tame, p, &scale, zero);
        if (to == HEED_U4)
            bytes_store(out + at / 2,
                        bytes_pairs(a, append_sixteen(from, to, tame, p + 16 * append_size(from),
                                                      &scale, zero)));
        else
            bytes_store(out + at, a);
    }
}

/* heed_fresh_scale of rows. */
V_INLINE void append_scales(uint32_t from, uint32_t to, const char *const in[BATCH], int64_t dim,
                            float scale[BATCH], float zero[BATCH])
{
    const int by_size = to == HEED_I8 || to == HEED_F8_E4M3;
    const float steps = to == HEED_I8 ? 127 : to == HEED_F8_E4M3 ? 448 : to == HEED_U8 ? 255 : 15;
    const append_ranges r = append_find_ranges(from, by_size, in, dim);
    const v8 s = v8_div(by_size ? r.most : v8_sub(r.most, r.least), v8_set1(steps));
    float least[BATCH], most[BATCH];
    v8_store(scale, s);
    v8_store(zero, by_size ? v8_zero() : v8_div(v8_sub(v8_zero(), r.least), s));
    if (!r.nans && m8_bits(m8_less(v8_zero(), s)) == 255 &&
        m8_bits(m8_less(s, v8_set1(INFINITY))) == 255)
        return;
    v8_store(least, r.least);
    v8_store(most, r.most);
    for (int i = 0; i < BATCH; i++)
        heed_scale_of_range(to, r.nans >> i & 1 ? NAN : least[i], most[i], &scale[i], &zero[i]);
}

/* Encodes rows by fresh scales; those of a batch are found first. */
V_INLINE void append_fresh(uint32_t from, uint32_t to, const heed_append_rows *a)
{
    const int64_t in_stride = a->from_stride * append_size(from);
    const int64_t out_stride = heed_offset_bytes(to, a->to_stride);
    for (int64_t first = 0; first < a->n_rows; first += BATCH) {
        const int n = a->n_rows - first < BATCH ? (int)(a->n_rows - first) : BATCH;
        const char *in[BATCH];
        float scale[BATCH], zero[BATCH];
        for (int i = 0; i < BATCH; i++)
            in[i] = (const char *)a->from + (first + (i < n ? i : n - 1)) * in_stride;
        append_scales(from, to, in, a->dim, scale, zero);
        for (int i = 0; i < n; i++) {
            const int64_t at = (first + i) * a->scale_stride;
            const float by[] = {scale[i], zero[i]};
            char *out = (char *)a->to + (first + i) * out_stride;
            a->fresh_scale[at] = by[0];
            if (a->fresh_zero)
                a->fresh_zero[at] = by[1];
            append_ask(in[i], a->next * append_size(from), a->dim * append_size(from));
            append_row(from, to, 1, in[i], out, a->dim, by);
        }
    }
}

/* Whether a row of 16 bits has no NaN and no number beyond `most`, as rows of fresh scales have none.
 * Magnitudes are compared as integers, two to a lane. */
V_INLINE int append_is_tame(uint32_t from, const char *in, int64_t dim, float most)
{
    const uint32_t half = from == HEED_BF16 ? heed_bits_of_f32(most) >> 16
                          : most >= 65504   ? 0x7bff
                                            : 0;
    const vi bound = vi_set1((int)(half << 16 | half));
    vi two = bound;
    for (int64_t d = 0; d < dim; d += 2 * LANES) {
        const int64_t at = d + 2 * LANES > dim ? dim - 2 * LANES : d;
        two = vi_max_words(two, vi_and(vi_load(in + 2 * at), vi_set1(0x7fff7fff)));
    }
    return !m_any(m_negative(v_from_bits(vi_sub(bound, two)))); /* a greater one borrows */
}

V_INLINE void append_given(uint32_t from, uint32_t to, const heed_append_rows *a)
{
    const int by_halves = from != HEED_F32 && to != HEED_F8_E4M3 && a->dim >= 2 * LANES;
    for (int64_t row = 0; row < a->n_rows; row++) {
        const float by[] = {a->scale ? a->scale[row * a->scale_stride] : 1,
                            a->zero ? a->zero[row * a->scale_stride] : 0};
        const char *in = (const char *)a->from + row * a->from_stride * append_size(from);
        append_ask(in, a->next * append_size(from), a->dim * append_size(from));
        char *out = (char *)a->to + heed_offset_bytes(to, row * a->to_stride);
        if (by_halves && (to != HEED_I8 || by[1] == 0) &&
            append_is_tame(from, in, a->dim, by[0] * APPEND_MOST))
            append_row(from, to, 1, in, out, a->dim, by);
        else
            append_row(from, to, 0, in, out, a->dim, by);
    }
}
