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

/* Quotients so large, and zeros up to half of that, are beyond all codes. Those of I8 are rounded before
 * they are held in its range, so they have to be int32. */
#define APPEND_MOST(to) ((to) == HEED_I8 ? 0x1p21f : 0x1p64f)

/* Scales that divisor_of() and append_quotient() are good for, by a wide margin. */
V_INLINE int is_usual(uint32_t to, const float by[2])
{
    return by[0] >= 0x1p-60f && by[0] <= 0x1p60f && fabsf(by[1]) <= APPEND_MOST(to) / 2;
}

V_INLINE divisor divisor_of(uint32_t to, float scale)
{
    const vf minus = v_set1(-scale), inverse = v_set1(1 / scale);
    return (divisor){v_set1(scale), minus, inverse,
                     v_mul(v_fma(minus, inverse, v_set1(1)), inverse),
                     v_set1(scale * APPEND_MOST(to))};
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

/* As heed_encode_by, for LANES numbers; codes of I8 are still to be held in its range. Numbers of fresh
 * scales are no NaN, and their quotients are at most 2^33. */
V_INLINE vi append_code(uint32_t to, int fresh, vf x, const divisor *by, vf zero)
{
    if (to == HEED_F8_E4M3) /* given ones: what else there is to do takes as long as a division */
        return append_e4m3(fresh ? append_quotient(by, x) : v_div(x, by->scale), x, fresh);
    /* a NaN stays one */
    const vf held = fresh ? x : v_max(v_sub(v_zero(), by->most), v_min(by->most, x));
    const vf quotient = append_quotient(by, held);
    if (to == HEED_I8 && fresh)
        return vi_round(quotient);
    const vf c = v_add(quotient, zero);
    if (to == HEED_I8)
        return vi_round(v_select(m_nan(c), v_zero(), c));
    /* 0, where it is a NaN */
    return vi_round(v_min(v_max(c, v_zero()), v_set1(to == HEED_U8 ? 255 : 15)));
}

V_INLINE v_bytes append_sixteen(uint32_t from, uint32_t to, int fresh, const char *in,
                                const divisor *by, vf zero)
{
    vi c[HALF_VECTORS];
    V_UNROLL for (int k = 0; k < HALF_VECTORS; k++) c[k] =
        append_code(to, fresh, append_load(from, in, k * LANES), by, zero);
    return to == HEED_I8 ? bytes_held(c) : bytes_of(c);
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
V_INLINE void append_row(uint32_t from, uint32_t to, int fresh, const char *in, char *out,
                         int64_t dim, const float by[2])
{
    const int step = to == HEED_U4 ? 32 : 16;
    if (by[0] == 0) {
        memset(out, 0, (size_t)(to == HEED_U4 ? dim / 2 : dim));
        return;
    }
    if (!is_usual(to, by)) {
        append_plain_row(from, to, in, out, dim, by);
        return;
    }
    const divisor scale = divisor_of(to, by[0]);
    const vf zero = v_set1(by[1]);
    for (int64_t d = 0; d < dim; d += step) {
        const int64_t at = d + step > dim ? dim - step : d;
        const char *p = in + at * append_size(from);
        const v_bytes a = append_sixteen(from, to, fresh, p, &scale, zero);
        if (to == HEED_U4)
            bytes_store(out + at / 2,
                        bytes_pairs(a, append_sixteen(from, to, fresh, p + 16 * append_size(from),
                                                      &scale, zero)));
        else
            bytes_store(out + at, a);
    }
}

/* The greatest magnitude of each of four rows of 16 bits (most) and its negative
 * (least). Magnitudes are compared as integers, two to a lane, for f16 and bf16 alike;
 * so a NaN is the greatest. */
V_INLINE void append_half_sizes(uint32_t from, const char *const in[4], int64_t dim, float least[4],
                                float most[4])
{
    vf size[4];
    float bits[4];
    V_UNROLL for (int i = 0; i < 4; i++)
    {
        vi two = vi_zero();
        for (int64_t d = 0; d < dim; d += 2 * LANES) {
            const int64_t at = d + 2 * LANES > dim ? dim - 2 * LANES : d;
            two = vi_max_words(two, vi_and(vi_load(in[i] + 2 * at), vi_set1(0x7fff7fff)));
        }
        size[i] = v_from_bits(vi_max(vi_shr(two, 16), vi_and(two, vi_set1(0xffff))));
    }
    v4_store(bits, v4_across(ACROSS_BITS, size));
    for (int i = 0; i < 4; i++) {
        const uint16_t half = (uint16_t)heed_bits_of_f32(bits[i]);
        most[i] = from == HEED_F16 ? heed_f32_of_f16(half) : heed_f32_of_bf16(half);
        least[i] = 0 - most[i];
    }
}

/* The least and the greatest number of each of four rows; for I8 and F8_E4M3 the greatest magnitude
 * (most) and its negative (least). */
V_INLINE void append_row_ranges(uint32_t from, uint32_t to, const char *const in[4], int64_t dim,
                                float least[4], float most[4])
{
    const int by_size = to == HEED_I8 || to == HEED_F8_E4M3;
    vf low[4], high[4];
    vm nan[4];
    if (by_size && from != HEED_F32 && dim >= 2 * LANES) {
        append_half_sizes(from, in, dim, least, most);
        return;
    }
    V_UNROLL for (int i = 0; i < 4; i++)
    {
        low[i] = append_load(from, in[i], 0);
        high[i] = by_size ? v_abs(low[i]) : low[i];
        nan[i] = m_nan(low[i]);
    }
    for (int64_t d = LANES; d < dim; d += LANES) {
        const int64_t at = d + LANES > dim ? dim - LANES : d;
        V_UNROLL for (int i = 0; i < 4; i++)
        {
            const vf x = append_load(from, in[i], at);
            if (by_size) { /* as bits: a NaN is the greatest */
                high[i] = v_from_bits(vi_max(v_bits(high[i]), v_bits(v_abs(x))));
            } else {
                low[i] = v_min(low[i], x);
                high[i] = v_max(high[i], x);
                nan[i] = m_or(nan[i], m_nan(x));
            }
        }
    }
    v4_store(most, v4_across(by_size ? ACROSS_BITS : ACROSS_MOST, high));
    if (by_size)
        v4_store(least, v4_sub(v4_zero(), v4_load(most)));
    else
        v4_store(least, v4_across(ACROSS_LEAST, low));
    for (int i = 0; i < 4 && !by_size; i++)
        if (m_any(nan[i]))
            least[i] = most[i] = heed_f32_of_bits(0x7fc00000u);
}

/* Encodes rows by fresh scales. As with blocks, those of a batch are found first. */
V_INLINE void append_fresh(uint32_t from, uint32_t to, const heed_append_rows *a)
{
    const int64_t in_stride = a->from_stride * append_size(from);
    const int64_t out_stride = heed_offset_bytes(to, a->to_stride);
    for (int64_t first = 0; first < a->n_rows; first += BATCH) {
        const int n = a->n_rows - first < BATCH ? (int)(a->n_rows - first) : BATCH;
        const char *in[BATCH];
        float least[BATCH], most[BATCH];
        for (int i = 0; i < (n + 3) / 4 * 4; i++)
            in[i] = (const char *)a->from + (first + (i < n ? i : n - 1)) * in_stride;
        for (int i = 0; i < n; i += 4)
            append_row_ranges(from, to, in + i, a->dim, least + i, most + i);
        for (int i = 0; i < n; i++) {
            const int64_t at = (first + i) * a->scale_stride;
            float by[2];
            heed_scale_of_range(to, least[i], most[i], &by[0], &by[1]);
            a->fresh_scale[at] = least[i] = by[0];
            most[i] = by[1];
            if (a->fresh_zero)
                a->fresh_zero[at] = by[1];
        }
        for (int i = 0; i < n; i++) {
            const float by[] = {least[i], most[i]};
            char *out = (char *)a->to + (first + i) * out_stride;
            append_ask(in[i], a->next * append_size(from), a->dim * append_size(from));
            append_row(from, to, 1, in[i], out, a->dim, by);
        }
    }
}

V_INLINE void append_given(uint32_t from, uint32_t to, const heed_append_rows *a)
{
    for (int64_t row = 0; row < a->n_rows; row++) {
        const float by[] = {a->scale ? a->scale[row * a->scale_stride] : 1,
                            a->zero ? a->zero[row * a->scale_stride] : 0};
        const char *in = (const char *)a->from + row * a->from_stride * append_size(from);
        append_ask(in, a->next * append_size(from), a->dim * append_size(from));
        append_row(from, to, 0, in, (char *)a->to + heed_offset_bytes(to, row * a->to_stride),
                   a->dim, by);
    }
}
