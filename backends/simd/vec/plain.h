/* Loops in C over HEED_VEC_PLAIN lanes, for machines that have no file of their own, and to compare
 * the others with; part of vec.h. */
#ifndef HEED_SIMD_VEC_PLAIN_H
#define HEED_SIMD_VEC_PLAIN_H

#include <math.h>

#define LANES HEED_VEC_PLAIN
#define V_REGISTERS HEED_VEC_REGISTERS(LANES)
#define V_ISA "plain"
#define HEED_ISA_FUNCTION(name) name##_plain

typedef struct vf {
    float f[LANES];
} vf;

typedef struct vi {
    uint32_t u[LANES];
} vi;

typedef struct v_half {
    uint16_t u[LANES];
} v_half;

typedef uint16_t vm; /* bit l is lane l */

#define EACH_LANE(l) for (int l = 0; l < LANES; l++)
#define V_PLAIN(name, expression)                                                                  \
    V_INLINE vf name(vf a, vf b)                                                                   \
    {                                                                                              \
        EACH_LANE(l) a.f[l] = expression;                                                          \
        return a;                                                                                  \
    }
#define VI_PLAIN(name, expression)                                                                 \
    V_INLINE vi name(vi a, vi b)                                                                   \
    {                                                                                              \
        EACH_LANE(l) a.u[l] = expression;                                                          \
        return a;                                                                                  \
    }
#define M_PLAIN(name, expression)                                                                  \
    V_INLINE vm name(vf a, vf b)                                                                   \
    {                                                                                              \
        uint32_t mask = 0;                                                                         \
        EACH_LANE(l) mask |= (uint32_t)(expression) << l;                                          \
        return (vm)mask;                                                                           \
    }

V_INLINE vf v_set1(float x)
{
    vf y;
    EACH_LANE(l) y.f[l] = x;
    return y;
}
V_INLINE void v_leave(void)
{
}
V_INLINE vf v_zero(void)
{
    return v_set1(0);
}
V_INLINE vf v_load(const float *p)
{
    vf y;
    memcpy(&y, p, sizeof y);
    return y;
}
V_INLINE void v_store(float *p, vf a)
{
    memcpy(p, &a, sizeof a);
}
V_INLINE vf v_broadcast(const void *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return v_set1(x);
}
V_PLAIN(v_add, a.f[l] + b.f[l])
V_PLAIN(v_sub, a.f[l] - b.f[l])
V_PLAIN(v_mul, a.f[l] * b.f[l])
V_PLAIN(v_div, a.f[l] / b.f[l])
V_PLAIN(v_max, a.f[l] > b.f[l] ? a.f[l] : b.f[l])
V_PLAIN(v_min, a.f[l] < b.f[l] ? a.f[l] : b.f[l])

/* Rounded once where that is an instruction, or where the bits of the other sets are asked for. As
 * a call it would take longer than everything else. */
#if defined(FP_FAST_FMAF) || defined(HEED_VEC_SAME_BITS)
#define V_PLAIN_FMA(a, b, c) fmaf(a, b, c)
#else
#define V_PLAIN_FMA(a, b, c) ((a) * (b) + (c))
#endif
V_INLINE vf v_fma(vf a, vf b, vf c)
{
    EACH_LANE(l) a.f[l] = V_PLAIN_FMA(a.f[l], b.f[l], c.f[l]);
    return a;
}
V_INLINE vf v_fnma(vf a, vf b, vf c)
{
    EACH_LANE(l) a.f[l] = V_PLAIN_FMA(-a.f[l], b.f[l], c.f[l]);
    return a;
}
V_INLINE vf v_ceil(vf a)
{
    EACH_LANE(l) a.f[l] = ceilf(a.f[l]);
    return a;
}
V_INLINE vf v_abs(vf a)
{
    EACH_LANE(l) a.f[l] = fabsf(a.f[l]);
    return a;
}

V_INLINE vi v_bits(vf a)
{
    vi y;
    memcpy(&y, &a, sizeof y);
    return y;
}
V_INLINE vf v_from_bits(vi a)
{
    vf y;
    memcpy(&y, &a, sizeof y);
    return y;
}
V_INLINE vi vi_load(const void *p)
{
    vi y;
    memcpy(&y, p, sizeof y);
    return y;
}
V_INLINE vi vi_set1(uint32_t x)
{
    vi y;
    EACH_LANE(l) y.u[l] = x;
    return y;
}
V_INLINE vi vi_zero(void)
{
    return vi_set1(0);
}
VI_PLAIN(vi_add, a.u[l] + b.u[l])
VI_PLAIN(vi_sub, a.u[l] - b.u[l])
VI_PLAIN(vi_and, a.u[l] & b.u[l])
VI_PLAIN(vi_or, a.u[l] | b.u[l])
VI_PLAIN(vi_xor, a.u[l] ^ b.u[l])
V_INLINE vi vi_shl(vi a, int n)
{
    EACH_LANE(l) a.u[l] <<= n;
    return a;
}
V_INLINE vi vi_shr(vi a, int n)
{
    EACH_LANE(l) a.u[l] >>= n;
    return a;
}
V_INLINE vf vi_to_float(vi a)
{
    vf y;
    EACH_LANE(l) y.f[l] = (float)(int32_t)a.u[l];
    return y;
}
V_INLINE vf v_and(vf a, vf b)
{
    return v_from_bits(vi_and(v_bits(a), v_bits(b)));
}
V_INLINE vf v_or(vf a, vf b)
{
    return v_from_bits(vi_or(v_bits(a), v_bits(b)));
}
V_INLINE vf v_xor(vf a, vf b)
{
    return v_from_bits(vi_xor(v_bits(a), v_bits(b)));
}

V_INLINE vm m_from_bits(uint32_t bits)
{
    return (vm)bits;
}
V_INLINE uint32_t m_bits(vm m)
{
    return m & ((1u << LANES) - 1);
}
V_INLINE vm m_first(int n)
{
    return (vm)(n >= LANES ? (1u << LANES) - 1 : (1u << n) - 1);
}
M_PLAIN(m_less, a.f[l] < b.f[l])
M_PLAIN(m_equal, a.f[l] == b.f[l])
V_INLINE vm m_nan(vf a)
{
    uint32_t mask = 0;
    EACH_LANE(l) mask |= (uint32_t)(a.f[l] != a.f[l]) << l;
    return (vm)mask;
}
V_INLINE vm m_negative(vf a)
{
    uint32_t mask = 0;
    EACH_LANE(l) mask |= v_bits(a).u[l] >> 31 << l;
    return (vm)mask;
}
V_INLINE vf v_select(vm m, vf yes, vf no)
{
    EACH_LANE(l) no.f[l] = m >> l & 1 ? yes.f[l] : no.f[l];
    return no;
}

/* ---- memory -----------------------------------------------------------------------------------
 */

V_INLINE vf v_load_plain(uint32_t type, const void *p, int n)
{
    vf y = {{0}};
    EACH_LANE(l) if (l < n) y.f[l] = heed_load(type, p, l);
    return y;
}
V_INLINE vf v_load_n(const float *p, int n)
{
    return v_load_plain(HEED_F32, p, n);
}
V_INLINE vf v_load_f16(const void *p)
{
    return v_load_plain(HEED_F16, p, LANES);
}
V_INLINE vf v_load_f16_n(const void *p, int n)
{
    return v_load_plain(HEED_F16, p, n);
}
V_INLINE vf v_load_bf16(const void *p)
{
    return v_load_plain(HEED_BF16, p, LANES);
}
V_INLINE vf v_load_bf16_n(const void *p, int n)
{
    return v_load_plain(HEED_BF16, p, n);
}
V_INLINE vf v_load_bf16_shuffle(const void *p)
{
    return v_load_bf16(p);
}
V_INLINE void v_store_n(float *p, vf a, int n)
{
    EACH_LANE(l) if (l < n) heed_store(HEED_F32, p, l, a.f[l]);
}
V_INLINE v_half v_narrow_f16(vf a)
{
    v_half h;
    EACH_LANE(l) heed_store(HEED_F16, h.u, l, a.f[l]);
    return h;
}
V_INLINE v_half v_narrow_bf16(vf a)
{
    v_half h;
    EACH_LANE(l) heed_store(HEED_BF16, h.u, l, a.f[l]);
    return h;
}
V_INLINE void v_store_half_n(void *p, v_half h, int n)
{
    memcpy(p, &h, 2 * (size_t)(n < LANES ? n : LANES));
}
V_INLINE void v_store_low(float *p, vf a)
{
    memcpy(p, a.f, sizeof a / 2);
}
V_INLINE void v_store_high(float *p, vf a)
{
    memcpy(p, a.f + LANES / 2, sizeof a / 2);
}

typedef struct v_bytes {
    uint8_t b[16];
} v_bytes;

#define EACH_BYTE(i) for (int i = 0; i < 16; i++)

V_INLINE v_bytes bytes_load_n(const void *p, int n)
{
    v_bytes y = {{0}};
    memcpy(y.b, p, (size_t)(n < 16 ? n : 16));
    return y;
}
V_INLINE v_bytes bytes_load(const void *p)
{
    return bytes_load_n(p, 16);
}
V_INLINE v_bytes bytes_load8(const void *p)
{
    return bytes_load_n(p, 8);
}
V_INLINE v_bytes bytes_set1(int x)
{
    v_bytes y;
    EACH_BYTE(i) y.b[i] = (uint8_t)x;
    return y;
}
V_INLINE v_bytes bytes_sub(v_bytes a, v_bytes b)
{
    EACH_BYTE(i) a.b[i] = (uint8_t)(a.b[i] - b.b[i]);
    return a;
}
V_INLINE v_bytes bytes_or(v_bytes a, v_bytes b)
{
    EACH_BYTE(i) a.b[i] |= b.b[i];
    return a;
}
V_INLINE v_bytes bytes_low(v_bytes a)
{
    EACH_BYTE(i) a.b[i] &= 15;
    return a;
}
V_INLINE v_bytes bytes_high(v_bytes a)
{
    EACH_BYTE(i) a.b[i] >>= 4;
    return a;
}
V_INLINE v_bytes bytes_zip(v_bytes a, v_bytes b)
{
    v_bytes y;
    EACH_BYTE(i) y.b[i] = i % 2 ? b.b[i / 2] : a.b[i / 2];
    return y;
}
V_INLINE v_bytes bytes_lookup(v_bytes table, v_bytes a)
{
    EACH_BYTE(i) a.b[i] = table.b[a.b[i] & 15];
    return a;
}
V_INLINE v_bytes bytes_fifth(uint32_t bits)
{
    v_bytes y;
    EACH_BYTE(i) y.b[i] = (uint8_t)((bits >> i & 1) << 4);
    return y;
}
#undef EACH_BYTE
V_INLINE vf v_of_i8(v_bytes a, int i)
{
    vf y;
    EACH_LANE(l) y.f[l] = (float)(int8_t)a.b[i * LANES + l];
    return y;
}
V_INLINE vf v_of_u8(v_bytes a, int i)
{
    vf y;
    EACH_LANE(l) y.f[l] = (float)a.b[i * LANES + l];
    return y;
}
V_INLINE vf v_of_e4m3(v_bytes a, int i)
{
    vf y;
    EACH_LANE(l) y.f[l] = heed_f32_of_e4m3(a.b[i * LANES + l]);
    return y;
}
V_INLINE vf v_broadcast_f16(const void *p)
{
    return v_set1(heed_load(HEED_F16, p, 0));
}
V_INLINE uint64_t bytes_set(const void *p, int n)
{
    const uint8_t *bytes = p;
    uint64_t bits = 0;
    for (int i = 0; i < n; i++)
        bits |= (uint64_t)(bytes[i] != 0) << i;
    return bits;
}
V_INLINE uint32_t bytes_set16(const void *p)
{
    return (uint32_t)bytes_set(p, 16);
}

/* ---- powers of two ----------------------------------------------------------------------------
 */

/* In the same form as AVX2's. */
#define V_POWER_UNIT 0.5f
V_INLINE vf v_split_power(vf x, vf *t)
{
    const vf magic = v_set1(V_POWER_MAGIC);
    x = v_max(v_set1(-128.0f), x);
    *t = v_add(x, magic);
    return v_sub(x, v_sub(*t, magic));
}
V_INLINE vf v_power_of(vf t)
{
    return t;
}
V_INLINE vf v_times_power(vf p, vf t)
{
    return v_mul(p, v_from_bits(vi_shl(v_bits(t), 23)));
}

#undef V_PLAIN
#undef VI_PLAIN
#undef M_PLAIN

#include "plain_lanes.h"

#endif
