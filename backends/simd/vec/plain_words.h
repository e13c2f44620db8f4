/* Loops in C, which give the same bits as AVX-512 for everything but the payload and sign of a NaN;
 * part of words.h. */
#ifndef HEED_SIMD_PLAIN_WORDS_H
#define HEED_SIMD_PLAIN_WORDS_H

V_INLINE void v_store_some(float *p, uint16_t mask, vf x)
{
    EACH_LANE(n) if (mask >> n & 1) memcpy(p + n, &x.f[n], 4);
}
V_INLINE vf v_load_some(const float *p, uint16_t mask)
{
    vf y = {{0}};
    EACH_LANE(n) if (mask >> n & 1) memcpy(&y.f[n], p + n, 4);
    return y;
}
V_INLINE uint16_t m_within(vf x, float limit, uint16_t mask)
{
    unsigned within = 0;
    EACH_LANE(n) within |= (unsigned)(fabsf(x.f[n]) <= limit) << n;
    return (uint16_t)(within & mask);
}
V_INLINE float v_sum(vf x)
{
    for (int step = 8; step; step /= 2)
        for (int n = 0; n < step; n++)
            x.f[n] += x.f[n + step];
    return x.f[0];
}
V_INLINE float v_largest(vf x)
{
    float top = x.f[0];
    EACH_LANE(n) top = x.f[n] > top ? x.f[n] : top;
    return top;
}
V_INLINE vf v_sums(const vf r[16])
{
    vf y;
    EACH_LANE(n) y.f[n] = v_sum(r[n]);
    return y;
}
V_INLINE vf v_largest_of(const vf r[16])
{
    vf y;
    EACH_LANE(n) y.f[n] = v_largest(r[n]);
    return y;
}
V_INLINE uint16_t m_not_below_inf(vf a)
{
    unsigned mask = 0;
    EACH_LANE(n) mask |= (unsigned)!(a.f[n] <= 0x1.fffffep127f) << n;
    return (uint16_t)mask;
}
V_INLINE void vi_store(void *p, vi x)
{
    memcpy(p, &x, sizeof x);
}
V_INLINE vi vi_load_halves(const void *p, int n)
{
    vi y = {{0}};
    memcpy(&y, p, (size_t)(n >= 32 ? 32 : n) * 2);
    return y;
}
V_INLINE uint32_t plain_halves(uint32_t low, uint32_t high)
{
    return (low & 0xffffu) | high << 16;
}
V_INLINE vi vi_add16(vi a, vi b)
{
    EACH_LANE(n) a.u[n] = plain_halves(a.u[n] + b.u[n], (a.u[n] >> 16) + (b.u[n] >> 16));
    return a;
}
V_INLINE vi vi_shr16(vi a, int s)
{
    EACH_LANE(n) a.u[n] = plain_halves((a.u[n] & 0xffffu) >> s, a.u[n] >> 16 >> s);
    return a;
}
V_INLINE vi vi_max16(vi a, vi b)
{
    EACH_LANE(n)
    {
        uint32_t a0 = a.u[n] & 0xffffu, a1 = a.u[n] >> 16, b0 = b.u[n] & 0xffffu, b1 = b.u[n] >> 16;
        a.u[n] = plain_halves(a0 > b0 ? a0 : b0, a1 > b1 ? a1 : b1);
    }
    return a;
}
V_INLINE uint32_t vi_halves_from(vi a, uint16_t limit)
{
    uint32_t which = 0;
    EACH_LANE(n)
    {
        which |= (uint32_t)((a.u[n] & 0xffffu) >= limit) << (2 * n);
        which |= (uint32_t)(a.u[n] >> 16 >= limit) << (2 * n + 1);
    }
    return which;
}
V_INLINE vi vi_clear_halves(vi a, uint32_t which)
{
    EACH_LANE(n)
    {
        if (which >> (2 * n) & 1)
            a.u[n] &= 0xffff0000u;
        if (which >> (2 * n + 1) & 1)
            a.u[n] &= 0xffffu;
    }
    return a;
}
V_INLINE uint32_t plain_saturate(uint32_t x)
{
    return x >> 31 ? 0 : x > 0xffffu ? 0xffffu : x;
}
V_INLINE vi vi_pack(vi a, vi b)
{
    vi y;
    for (int g = 0; g < 4; g++)
        for (int i = 0; i < 2; i++) {
            const uint32_t *from_a = a.u + 4 * g + 2 * i, *from_b = b.u + 4 * g + 2 * i;
            y.u[4 * g + i] = plain_halves(plain_saturate(from_a[0]), plain_saturate(from_a[1]));
            y.u[4 * g + 2 + i] = plain_halves(plain_saturate(from_b[0]), plain_saturate(from_b[1]));
        }
    return y;
}
V_INLINE vi vi_join(vi a, vi b)
{
    vi y;
    EACH_LANE(n)
    {
        const uint32_t *from = n < 8 ? a.u + 2 * n : b.u + 2 * (n - 8);
        y.u[n] = plain_halves(from[0], from[1]);
    }
    return y;
}
V_INLINE vi vi_lookup(vi index, vi table)
{
    uint8_t bytes[64];
    memcpy(bytes, &table, sizeof bytes);
    EACH_LANE(n) index.u[n] = plain_halves(bytes[index.u[n] & 63], bytes[index.u[n] >> 16 & 63]);
    return index;
}
V_INLINE void v_store_bf16_some(void *p, uint16_t mask, vf x)
{
    EACH_LANE(n) if (mask >> n & 1)
    {
        uint32_t bits = heed_bits_of_f32(x.f[n]);
        float y = bits & 0x7f800000u ? x.f[n] : heed_f32_of_bits(bits & 0x80000000u);
        heed_store(HEED_BF16, p, n, y);
    }
}
V_INLINE void v_store_bf16(void *p, vf x)
{
    v_store_bf16_some(p, 0xffff, x);
}
V_INLINE void v_store_bf16_two(void *p, vf low, vf high)
{
    v_store_bf16(p, low);
    v_store_bf16((char *)p + 32, high);
}
V_INLINE void v_store_f16_some(void *p, uint16_t mask, vf x)
{
    EACH_LANE(n) if (mask >> n & 1) heed_store(HEED_F16, p, n, x.f[n]);
}
V_INLINE vf v_load_bf16_some(const void *p, uint16_t mask)
{
    vf y = {{0}};
    EACH_LANE(n) if (mask >> n & 1) y.f[n] = heed_load(HEED_BF16, p, n);
    return y;
}
V_INLINE vf v_load_f16_some(const void *p, uint16_t mask)
{
    vf y = {{0}};
    EACH_LANE(n) if (mask >> n & 1) y.f[n] = heed_load(HEED_F16, p, n);
    return y;
}
V_INLINE uint16_t bytes_set_of16(const void *p, uint16_t mask)
{
    unsigned set = 0;
    EACH_LANE(n) if (mask >> n & 1) set |= (unsigned)(((const uint8_t *)p)[n] != 0) << n;
    return (uint16_t)set;
}
V_INLINE uint32_t bytes_set_of32(const void *p, uint32_t mask)
{
    return bytes_set_of16(p, (uint16_t)mask) |
           (uint32_t)bytes_set_of16((const char *)p + 16, (uint16_t)(mask >> 16)) << 16;
}
V_INLINE vf v_add_pairs(vf acc, vi pairs)
{
    EACH_LANE(n)
    {
        acc.f[n] += heed_f32_of_bits(pairs.u[n] & 0xffff0000u);
        acc.f[n] += heed_f32_of_bits(pairs.u[n] << 16);
    }
    return acc;
}
V_INLINE void vi_interleave(vi a, vi b, vi *low, vi *high)
{
    uint16_t from_a[32], from_b[32];
    memcpy(from_a, &a, sizeof from_a);
    memcpy(from_b, &b, sizeof from_b);
    EACH_LANE(n)
    {
        int column = n / 4 * 8 + n % 4;
        low->u[n] = plain_halves(from_a[column], from_b[column]);
        high->u[n] = plain_halves(from_a[column + 4], from_b[column + 4]);
    }
}
V_INLINE void v_in_order(vf *low, vf *high)
{
    float column[32];
    EACH_LANE(n)
    {
        column[n / 4 * 8 + n % 4] = low->f[n];
        column[n / 4 * 8 + 4 + n % 4] = high->f[n];
    }
    *low = v_load(column);
    *high = v_load(column + 16);
}
V_INLINE void v_store_bf16_in_order(void *p, vf low, vf high)
{
    v_in_order(&low, &high);
    v_store_bf16_two(p, low, high);
}
V_INLINE vi vi_load_quarters(const char *p0, const char *p1, const char *p2, const char *p3)
{
    vi y;
    memcpy(y.u, p0, 16);
    memcpy(y.u + 4, p1, 16);
    memcpy(y.u + 8, p2, 16);
    memcpy(y.u + 12, p3, 16);
    return y;
}
V_INLINE void vi_transpose_quarters(vi r[4])
{
    for (int quarter = 0; quarter < 16; quarter += 4)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < i; j++) {
                uint32_t x = r[i].u[quarter + j];
                r[i].u[quarter + j] = r[j].u[quarter + i];
                r[j].u[quarter + i] = x;
            }
}
V_INLINE void vi_transpose(vi r[16])
{
    EACH_LANE(i) for (int j = 0; j < i; j++)
    {
        uint32_t x = r[i].u[j];
        r[i].u[j] = r[j].u[i];
        r[j].u[i] = x;
    }
}

#endif
