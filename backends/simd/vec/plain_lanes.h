/* Between lanes, and four and eight floats; part of plain.h. */
#ifndef HEED_SIMD_VEC_PLAIN_LANES_H
#define HEED_SIMD_VEC_PLAIN_LANES_H

/* ---- four and eight floats --------------------------------------------------------------------
 */

typedef struct v4 {
    float f[4];
} v4;

typedef uint32_t m4;

#if HEED_VEC_PLAIN == 8
typedef vf v8;
#else
typedef struct v8 {
    float f[8];
} v8;
#endif

V_INLINE v8 v8_load(const float *p)
{
    v8 y;
    memcpy(&y, p, sizeof y);
    return y;
}
V_INLINE v8 v8_zero(void)
{
    return (v8){{0}};
}
V_INLINE void v8_store(float *p, v8 a)
{
    memcpy(p, &a, sizeof a);
}
V_INLINE v8 v8_broadcast(const void *p)
{
    v8 y;
    for (int i = 0; i < 8; i++)
        memcpy(&y.f[i], p, 4);
    return y;
}
V_INLINE v8 v8_mul(v8 a, v8 b)
{
    for (int i = 0; i < 8; i++)
        a.f[i] *= b.f[i];
    return a;
}
V_INLINE v8 v8_fma(v8 a, v8 b, v8 c)
{
    for (int i = 0; i < 8; i++)
        a.f[i] = V_PLAIN_FMA(a.f[i], b.f[i], c.f[i]);
    return a;
}
V_INLINE v8 v8_load_half(uint32_t type, const void *p)
{
    v8 y;
    for (int i = 0; i < 8; i++)
        y.f[i] = heed_load(type, p, i);
    return y;
}
V_INLINE void v8_store_half(uint32_t type, void *p, v8 a)
{
    for (int i = 0; i < 8; i++)
        heed_store(type, p, i, a.f[i]);
}
V_INLINE v8 v8_of(v4 low, v4 high)
{
    v8 y;
    memcpy(y.f, &low, sizeof low);
    memcpy(y.f + 4, &high, sizeof high);
    return y;
}
V_INLINE v4 v4_load(const float *p)
{
    v4 y;
    memcpy(&y, p, sizeof y);
    return y;
}
V_INLINE v4 v8_low(v8 a)
{
    return v4_load(a.f);
}
V_INLINE v4 v8_high(v8 a)
{
    return v4_load(a.f + 4);
}
V_INLINE v4 v4_set1(float x)
{
    return (v4){{x, x, x, x}};
}
V_INLINE v4 v4_zero(void)
{
    return v4_set1(0);
}
V_INLINE void v4_store(float *p, v4 a)
{
    memcpy(p, &a, sizeof a);
}
V_INLINE v4 v4_add(v4 a, v4 b)
{
    for (int i = 0; i < 4; i++)
        a.f[i] += b.f[i];
    return a;
}
V_INLINE v4 v4_max(v4 a, v4 b)
{
    for (int i = 0; i < 4; i++)
        a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    return a;
}
V_INLINE v4 v4_div(v4 a, v4 b)
{
    for (int i = 0; i < 4; i++)
        a.f[i] /= b.f[i];
    return a;
}
V_INLINE m4 m4_equal(v4 a, v4 b)
{
    m4 m = 0;
    for (int i = 0; i < 4; i++)
        m |= (uint32_t)(a.f[i] == b.f[i]) << i;
    return m;
}
V_INLINE uint32_t m4_bits(m4 m)
{
    return m;
}
V_INLINE v4 v4_select(m4 m, v4 yes, v4 no)
{
    for (int i = 0; i < 4; i++)
        no.f[i] = m >> i & 1 ? yes.f[i] : no.f[i];
    return no;
}

/* ---- between lanes ----------------------------------------------------------------------------
 */

#if HEED_VEC_PLAIN >= 4

/* Of each four lanes i and j of a and k and l of b, in this order. */
V_INLINE vf v_plain_fours(vf a, int i, int j, vf b, int k, int l)
{
    vf y;
    for (int n = 0; n < LANES; n += 4) {
        y.f[n] = a.f[n + i];
        y.f[n + 1] = a.f[n + j];
        y.f[n + 2] = b.f[n + k];
        y.f[n + 3] = b.f[n + l];
    }
    return y;
}
V_INLINE vf v_low_pairs(vf a, vf b)
{
    return v_plain_fours(a, 0, 1, b, 0, 1);
}
V_INLINE vf v_high_pairs(vf a, vf b)
{
    return v_plain_fours(a, 2, 3, b, 2, 3);
}
V_INLINE vf v_zip_low(vf a, vf b)
{
    const vf y = v_low_pairs(a, b);
    return v_plain_fours(y, 0, 2, y, 1, 3);
}
V_INLINE vf v_zip_high(vf a, vf b)
{
    const vf y = v_high_pairs(a, b);
    return v_plain_fours(y, 0, 2, y, 1, 3);
}
V_INLINE vf v_spread(vf a, int i)
{
    return v_plain_fours(a, i, i, a, i, i);
}
V_INLINE void v_transpose(vf r[LANES])
{
    EACH_LANE(i) for (int j = 0; j < i; j++)
    {
        const float x = r[i].f[j];
        r[i].f[j] = r[j].f[i];
        r[j].f[i] = x;
    }
}
V_INLINE void v_transpose_fours(vf r[LANES / 4])
{
    for (int i = 0; i < LANES / 4; i++)
        for (int j = 0; j < i; j++)
            for (int l = 0; l < 4; l++) {
                const float x = r[i].f[4 * j + l];
                r[i].f[4 * j + l] = r[j].f[4 * i + l];
                r[j].f[4 * i + l] = x;
            }
}
V_INLINE vf v_fold(vf s[4][16 / LANES], int i)
{
    vf y;
    EACH_LANE(l)
    {
        const int row = (i * LANES + l) / 4, n = l % 4;
        float sum[4];
        for (int part = 0; part < 4; part++)
            sum[part] = s[row][(4 * part + n) / LANES].f[(4 * part + n) % LANES];
        y.f[l] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    }
    return y;
}

/* Vector i has float i of each row from the start, so that v_eights_columns has nothing to do. */
V_INLINE int v_eights_row(int i)
{
    (void)i;
    return 0;
}
V_INLINE vf v_eights(const float *at, int64_t stride, int64_t n, int i)
{
    vf y;
    EACH_LANE(l) y.f[l] = l < n ? at[l * stride + i] : 0;
    return y;
}
V_INLINE void v_eights_columns(vf q[8])
{
    (void)q;
}

#endif

#endif
