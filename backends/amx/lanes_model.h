/* lanes.h on plain loops, for machines without AVX-512. Included by it alone. */
#ifndef HEED_AMX_LANES_MODEL_H
#define HEED_AMX_LANES_MODEL_H

#include <math.h>
#include <string.h>

typedef struct vf {
    float f[16];
} vf;

typedef struct vi {
    uint32_t u[16];
} vi;

static inline void prefetch_to_read(const void *p)
{
    (void)p;
}

static inline void prefetch_to_write(void *p)
{
    (void)p;
}

#define EACH(n) for (int n = 0; n < 16; n++)

static inline vf vf_set1(float x)
{
    vf y;
    EACH(n) y.f[n] = x;
    return y;
}

static inline vf vf_load(const float *p)
{
    vf y;
    memcpy(&y, p, sizeof y);
    return y;
}

static inline void vf_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
}

static inline void vf_store_some(float *p, uint16_t mask, vf x)
{
    EACH(n) if (mask >> n & 1) memcpy(p + n, &x.f[n], 4);
}

static inline vf vf_load_some(const float *p, uint16_t mask)
{
    vf y = {{0}};
    EACH(n) if (mask >> n & 1) memcpy(&y.f[n], p + n, 4);
    return y;
}

static inline vf vf_add(vf a, vf b)
{
    EACH(n) a.f[n] += b.f[n];
    return a;
}

static inline vf vf_sub(vf a, vf b)
{
    EACH(n) a.f[n] -= b.f[n];
    return a;
}

static inline vf vf_mul(vf a, vf b)
{
    EACH(n) a.f[n] *= b.f[n];
    return a;
}

static inline vf vf_div(vf a, vf b)
{
    EACH(n) a.f[n] /= b.f[n];
    return a;
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    EACH(n) a.f[n] = fmaf(a.f[n], b.f[n], c.f[n]);
    return a;
}

static inline vf vf_max(vf a, vf b)
{
    EACH(n) a.f[n] = a.f[n] > b.f[n] ? a.f[n] : b.f[n];
    return a;
}

static inline vf vf_ceil(vf x)
{
    EACH(n) x.f[n] = ceilf(x.f[n]);
    return x;
}

static inline uint16_t vf_within(vf x, float limit, uint16_t mask)
{
    unsigned within = 0;
    EACH(n) within |= (unsigned)(fabsf(x.f[n]) <= limit) << n;
    return (uint16_t)(within & mask);
}

static inline float vf_sum(vf x)
{
    for (int step = 8; step; step /= 2)
        for (int n = 0; n < step; n++)
            x.f[n] += x.f[n + step];
    return x.f[0];
}

static inline float vf_largest(vf x)
{
    float top = x.f[0];
    EACH(n) top = x.f[n] > top ? x.f[n] : top;
    return top;
}

static inline vf vf_sums(const vf r[16])
{
    vf y;
    EACH(n) y.f[n] = vf_sum(r[n]);
    return y;
}

static inline vf vf_largest_of(const vf r[16])
{
    vf y;
    EACH(n) y.f[n] = vf_largest(r[n]);
    return y;
}

static inline uint16_t vf_is_nan(vf a)
{
    unsigned mask = 0;
    EACH(n) mask |= (unsigned)(a.f[n] != a.f[n]) << n;
    return (uint16_t)mask;
}

static inline uint16_t vf_not_below_inf(vf a)
{
    unsigned mask = 0;
    EACH(n) mask |= (unsigned)!(a.f[n] <= 0x1.fffffep127f) << n;
    return (uint16_t)mask;
}

static inline uint16_t vf_equal(vf a, vf b)
{
    unsigned mask = 0;
    EACH(n) mask |= (unsigned)(a.f[n] == b.f[n]) << n;
    return (uint16_t)mask;
}

static inline uint16_t vf_above_zero(vf a)
{
    unsigned mask = 0;
    EACH(n) mask |= (unsigned)(a.f[n] > 0) << n;
    return (uint16_t)mask;
}

static inline vf vf_select(uint16_t mask, vf yes, vf no)
{
    EACH(n) if (mask >> n & 1) no.f[n] = yes.f[n];
    return no;
}

static inline vi vf_bits(vf x)
{
    vi y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline vf vi_float(vi x)
{
    vf y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline vi vi_load(const void *p)
{
    vi y;
    memcpy(&y, p, sizeof y);
    return y;
}

static inline void vi_store(void *p, vi x)
{
    memcpy(p, &x, sizeof x);
}

static inline vi vi_load_halves(const void *p, int n)
{
    vi y = {{0}};
    memcpy(&y, p, (size_t)(n >= 32 ? 32 : n) * 2);
    return y;
}

static inline vi vi_zero(void)
{
    vi y = {{0}};
    return y;
}

static inline vi vi_set1(uint32_t x)
{
    vi y;
    EACH(n) y.u[n] = x;
    return y;
}

static inline vi vi_sub32(vi a, vi b)
{
    EACH(n) a.u[n] -= b.u[n];
    return a;
}

static inline vi vi_add32(vi a, vi b)
{
    EACH(n) a.u[n] += b.u[n];
    return a;
}

static inline vi vi_shr32(vi a, int s)
{
    EACH(n) a.u[n] >>= s;
    return a;
}

static inline vi vi_shl32(vi a, int s)
{
    EACH(n) a.u[n] <<= s;
    return a;
}

static inline vi vi_and(vi a, vi b)
{
    EACH(n) a.u[n] &= b.u[n];
    return a;
}

static inline vi vi_andnot(vi a, vi b)
{
    EACH(n) a.u[n] = ~a.u[n] & b.u[n];
    return a;
}

static inline uint32_t model_halves(uint32_t low, uint32_t high)
{
    return (low & 0xffffu) | high << 16;
}

static inline vi vi_add16(vi a, vi b)
{
    EACH(n) a.u[n] = model_halves(a.u[n] + b.u[n], (a.u[n] >> 16) + (b.u[n] >> 16));
    return a;
}

static inline vi vi_shr16(vi a, int s)
{
    EACH(n) a.u[n] = model_halves((a.u[n] & 0xffffu) >> s, a.u[n] >> 16 >> s);
    return a;
}

static inline vi vi_max16(vi a, vi b)
{
    EACH(n)
    {
        uint32_t a0 = a.u[n] & 0xffffu, a1 = a.u[n] >> 16, b0 = b.u[n] & 0xffffu, b1 = b.u[n] >> 16;
        a.u[n] = model_halves(a0 > b0 ? a0 : b0, a1 > b1 ? a1 : b1);
    }
    return a;
}

static inline uint32_t vi_halves_from(vi a, uint16_t limit)
{
    uint32_t which = 0;
    EACH(n)
    {
        which |= (uint32_t)((a.u[n] & 0xffffu) >= limit) << (2 * n);
        which |= (uint32_t)(a.u[n] >> 16 >= limit) << (2 * n + 1);
    }
    return which;
}

static inline vi vi_clear_halves(vi a, uint32_t which)
{
    EACH(n)
    {
        if (which >> (2 * n) & 1)
            a.u[n] &= 0xffff0000u;
        if (which >> (2 * n + 1) & 1)
            a.u[n] &= 0xffffu;
    }
    return a;
}

static inline uint32_t model_saturate(uint32_t x)
{
    return x >> 31 ? 0 : x > 0xffffu ? 0xffffu : x;
}

static inline vi vi_pack(vi a, vi b)
{
    vi y;
    for (int g = 0; g < 4; g++)
        for (int i = 0; i < 2; i++) {
            const uint32_t *from_a = a.u + 4 * g + 2 * i, *from_b = b.u + 4 * g + 2 * i;
            y.u[4 * g + i] = model_halves(model_saturate(from_a[0]), model_saturate(from_a[1]));
            y.u[4 * g + 2 + i] = model_halves(model_saturate(from_b[0]), model_saturate(from_b[1]));
        }
    return y;
}

static inline vi vi_join(vi a, vi b)
{
    vi y;
    EACH(n)
    {
        const uint32_t *from = n < 8 ? a.u + 2 * n : b.u + 2 * (n - 8);
        y.u[n] = model_halves(from[0], from[1]);
    }
    return y;
}

static inline vi vi_lookup(vi index, vi table)
{
    uint8_t bytes[64];
    memcpy(bytes, &table, sizeof bytes);
    EACH(n) index.u[n] = model_halves(bytes[index.u[n] & 63], bytes[index.u[n] >> 16 & 63]);
    return index;
}

static inline void vf_store_bf16_some(void *p, uint16_t mask, vf x)
{
    EACH(n) if (mask >> n & 1)
    {
        uint32_t bits = heed_bits_of_f32(x.f[n]);
        float y = bits & 0x7f800000u ? x.f[n] : heed_f32_of_bits(bits & 0x80000000u);
        heed_store(HEED_BF16, p, n, y);
    }
}

static inline void vf_store_bf16(void *p, vf x)
{
    vf_store_bf16_some(p, 0xffff, x);
}

static inline void vf_store_bf16_two(void *p, vf low, vf high)
{
    vf_store_bf16(p, low);
    vf_store_bf16((char *)p + 32, high);
}

static inline void vf_store_f16_some(void *p, uint16_t mask, vf x)
{
    EACH(n) if (mask >> n & 1) heed_store(HEED_F16, p, n, x.f[n]);
}

static inline vf vf_load_bf16_some(const void *p, uint16_t mask)
{
    vf y = {{0}};
    EACH(n) if (mask >> n & 1) y.f[n] = heed_load(HEED_BF16, p, n);
    return y;
}

static inline vf vf_load_f16_some(const void *p, uint16_t mask)
{
    vf y = {{0}};
    EACH(n) if (mask >> n & 1) y.f[n] = heed_load(HEED_F16, p, n);
    return y;
}

static inline uint16_t bytes_set(const void *p, uint16_t mask)
{
    unsigned set = 0;
    EACH(n) if (mask >> n & 1) set |= (unsigned)(((const uint8_t *)p)[n] != 0) << n;
    return (uint16_t)set;
}

static inline uint32_t bytes_set32(const void *p, uint32_t mask)
{
    return bytes_set(p, (uint16_t)mask) |
           (uint32_t)bytes_set((const char *)p + 16, (uint16_t)(mask >> 16)) << 16;
}

static inline vf vf_add_pairs(vf acc, vi pairs)
{
    EACH(n)
    {
        acc.f[n] += model_float(pairs.u[n] & 0xffff0000u);
        acc.f[n] += model_float(pairs.u[n] << 16);
    }
    return acc;
}

static inline void vi_interleave(vi a, vi b, vi *low, vi *high)
{
    uint16_t from_a[32], from_b[32];
    memcpy(from_a, &a, sizeof from_a);
    memcpy(from_b, &b, sizeof from_b);
    EACH(n)
    {
        int column = n / 4 * 8 + n % 4;
        low->u[n] = model_halves(from_a[column], from_b[column]);
        high->u[n] = model_halves(from_a[column + 4], from_b[column + 4]);
    }
}

static inline void vf_in_order(vf *low, vf *high)
{
    float column[32];
    EACH(n)
    {
        column[n / 4 * 8 + n % 4] = low->f[n];
        column[n / 4 * 8 + 4 + n % 4] = high->f[n];
    }
    *low = vf_load(column);
    *high = vf_load(column + 16);
}

static inline void vf_store_bf16_in_order(void *p, vf low, vf high)
{
    vf_in_order(&low, &high);
    vf_store_bf16_two(p, low, high);
}

static inline vi vi_load_quarters(const char *p0, const char *p1, const char *p2, const char *p3)
{
    vi y;
    memcpy(y.u, p0, 16);
    memcpy(y.u + 4, p1, 16);
    memcpy(y.u + 8, p2, 16);
    memcpy(y.u + 12, p3, 16);
    return y;
}

static inline void vi_transpose_quarters(vi r[4])
{
    for (int quarter = 0; quarter < 16; quarter += 4)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < i; j++) {
                uint32_t x = r[i].u[quarter + j];
                r[i].u[quarter + j] = r[j].u[quarter + i];
                r[j].u[quarter + i] = x;
            }
}

static inline void vi_transpose(vi r[16])
{
    EACH(i) for (int j = 0; j < i; j++)
    {
        uint32_t x = r[i].u[j];
        r[i].u[j] = r[j].u[i];
        r[j].u[i] = x;
    }
}

#undef EACH
#endif
