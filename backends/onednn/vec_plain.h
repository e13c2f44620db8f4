/* The vectors of backends/simd/vec/vec.h that rows.c uses, one float wide: for machines that oneDNN
 * knows and Heed has no vectors for. */
#ifndef HEED_ONEDNN_VEC_PLAIN_H
#define HEED_ONEDNN_VEC_PLAIN_H

#include <heed/backend.h>

#define LANES 1
#define HEED_ISA_FUNCTION(name) name##_plain
#define V_INLINE static inline

typedef float vf;
typedef int vm;

V_INLINE vf v_zero(void)
{
    return 0;
}
V_INLINE vf v_set1(float x)
{
    return x;
}
V_INLINE vf v_load(const float *p)
{
    return *p;
}
V_INLINE void v_store(float *p, vf a)
{
    *p = a;
}
V_INLINE vf v_load_n(const float *p, int n)
{
    return n > 0 ? *p : 0;
}
V_INLINE void v_store_n(float *p, vf a, int n)
{
    if (n > 0)
        *p = a;
}
V_INLINE vf v_add(vf a, vf b)
{
    return a + b;
}
V_INLINE vf v_sub(vf a, vf b)
{
    return a - b;
}
V_INLINE vf v_mul(vf a, vf b)
{
    return a * b;
}
V_INLINE vf v_div(vf a, vf b)
{
    return a / b;
}
V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
V_INLINE vf v_max(vf a, vf b) /* b where either is a NaN */
{
    return a > b ? a : b;
}
V_INLINE vm m_nan(vf a)
{
    return a != a;
}
V_INLINE uint32_t m_bits(vm m)
{
    return (uint32_t)m;
}
V_INLINE vf v_load_type(uint32_t type, const void *p, int n)
{
    return n > 0 ? heed_load(type, p, 0) : 0;
}
V_INLINE void v_store_type(uint32_t type, void *p, vf a, int n)
{
    if (n > 0)
        heed_store(type, p, 0, a);
}
V_INLINE vf v_exp2(vf x)
{
    return exp2f(x);
}
V_INLINE vf v_tanh(vf x)
{
    return tanhf(x);
}

#endif
