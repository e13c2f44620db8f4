/*
 * The least and the greatest number of rows or blocks, eight at a time; part of append.c. by_size, a
 * constant: the greatest magnitude and its negative. Numbers of 16 bits are compared as integers, two to
 * a lane.
 */
enum { BATCH = 8 };

typedef struct append_ranges {
    v8 least, most;
    uint32_t nans; /* bit i: i has a NaN, and its least and most mean nothing */
} append_ranges;

V_INLINE vf append_size_of(uint32_t from, int by_size, const char *in, int64_t i)
{
    const vf x = append_load(from, in, i);
    return by_size ? v_abs(x) : x;
}

/* by_size: as bits, so that a NaN is the greatest. */
V_INLINE vf append_greater(int by_size, vf a, vf b)
{
    return by_size ? v_from_bits(vi_max(v_bits(a), v_bits(b))) : v_max(a, b);
}

/* Of n numbers, at least LANES. */
V_INLINE void append_range(uint32_t from, int by_size, const char *in, int64_t n, vf *low, vf *high,
                           int *has_nan)
{
    vf x = append_size_of(from, by_size, in, 0);
    vf y = append_size_of(from, by_size, in, n < 2 * LANES ? n - LANES : LANES);
    vm nan = m_unordered(x, y);
    *low = v_min(x, y);
    *high = append_greater(by_size, x, y);
    for (int64_t d = 2 * LANES; d < n; d += 2 * LANES) {
        const int64_t at = d + 2 * LANES > n ? n - 2 * LANES : d;
        x = append_size_of(from, by_size, in, at);
        y = append_size_of(from, by_size, in, at + LANES);
        *low = v_min(*low, v_min(x, y));
        *high = append_greater(by_size, *high, append_greater(by_size, x, y));
        nan = m_or(nan, m_unordered(x, y));
    }
    *has_nan = !by_size && m_any(nan);
}

V_INLINE vi append_sortable(int by_size, const char *in, int64_t i)
{
    const vi x = vi_load(in + 2 * i);
    return by_size ? vi_and(x, vi_set1(0x7fff7fff)) : vi_sort_halves(x);
}

/* Of n numbers of f16 or bf16, at least 2 * LANES. */
V_INLINE void append_half_range(int by_size, const char *in, int64_t n, vi *low, vi *high)
{
    *low = *high = append_sortable(by_size, in, 0);
    for (int64_t d = 2 * LANES; d < n; d += 2 * LANES) {
        const vi x = append_sortable(by_size, in, d + 2 * LANES > n ? n - 2 * LANES : d);
        *low = vi_min_words(*low, x);
        *high = vi_max_words(*high, x);
    }
}

V_INLINE append_ranges append_find_ranges(uint32_t from, int by_size, const char *const in[BATCH],
                                          int64_t n)
{
    append_ranges r = {.nans = 0};
    if (from != HEED_F32 && n >= 2 * LANES) {
        vi low[BATCH], high[BATCH];
        V_UNROLL for (int i = 0; i < BATCH; i++)
            append_half_range(by_size, in[i], n, &low[i], &high[i]);
        r.most = v8_across_halves(ACROSS_MOST_HALF, from, !by_size, high);
        if (!by_size)
            r.least = v8_across_halves(ACROSS_LEAST_HALF, from, 1, low);
    } else {
        vf low[BATCH], high[BATCH];
        V_UNROLL for (int i = 0; i < BATCH; i++)
        {
            int has_nan;
            append_range(from, by_size, in[i], n, &low[i], &high[i], &has_nan);
            r.nans |= (uint32_t)has_nan << i;
        }
        r.most = v8_across(by_size ? ACROSS_BITS : ACROSS_MOST, high);
        if (!by_size)
            r.least = v8_across(ACROSS_LEAST, low);
    }
    if (by_size)
        r.least = v8_sub(v8_zero(), r.most);
    r.nans |= 255u & ~m8_bits(m8_ordered(r.least, r.most));
    return r;
}
