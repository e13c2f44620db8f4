/* The activations of linear layers (heed/linear.h). Both vector widths do the same roundings, and
 * tests/simd/activations.c holds the bounds that are given here; a result below 2^-119, whose
 * factors may be subnormal, counts as 0.
 *
 * A NaN stays one. -inf gives 0: before the last product it becomes the least finite number, whose
 * factor is 0 by then. */
#ifndef HEED_SIMD_LINEAR_ACT_H
#define HEED_SIMD_LINEAR_ACT_H

#include "../vec/vec.h"

/* exp(x + rest) for x <= 0 and |rest| far below 1. Below 2^-126 the result counts as 0, under the
 * backends' FTZ. log2(e) is a sum of two floats, so that a large x loses nothing. */
V_INLINE vf v_exp_negative(vf x, vf rest)
{
    const vf log2_e = v_set1(1.44269502f), log2_e_rest = v_set1(1.92596299e-8f);
    const vf magic = v_set1(V_POWER_MAGIC);
    x = v_max(v_set1(-88.9f), x); /* n is at least -128 */
    vf t = v_fma(x, log2_e, magic), n = v_sub(t, magic);
    vf r = v_fma(x, log2_e, v_sub(v_zero(), n));
    r = v_fma(x, log2_e_rest, r);
    r = v_fma(rest, log2_e, r);
    return v_times_power(v_exp2_fraction(r, V_POWER_UNIT), v_power_of(t));
}

V_INLINE vf v_not_minus_inf(vf s)
{
    return v_max(v_set1(-3.40282347e38f), s);
}

/* s / (1 + exp(-a)), a of the sign of s: by exp(-|a|), which cannot overflow. */
V_INLINE vf v_gate(vf s, vf a)
{
    vf e = v_exp_negative(v_sub(v_zero(), v_abs(a)), v_zero());
    vf top = v_select(m_negative(a), e, v_set1(1.0f));
    return v_mul(v_not_minus_inf(s), v_div(top, v_add(v_set1(1.0f), e)));
}

/* Within 6 units of 2^-24 of the result. */
V_INLINE vf v_silu(vf s)
{
    return v_gate(s, s);
}

/* 1 + tanh(u) is 2 / (1 + exp(-2u)). The roundings of 2u, here a, weigh as much as it is large:
 * within 5 + 3 |a| units of 2^-24 of the result. */
V_INLINE vf v_gelu_tanh(vf s)
{
    /* Beyond 12 the result is s or 0; the product of larger ones could overflow. */
    vf c = v_max(v_set1(-12.0f), v_min(v_set1(12.0f), s));
    vf a = v_mul(c, v_fma(v_mul(c, c), v_set1(0.0713548163f), v_set1(1.59576912f)));
    return v_gate(s, a); /* 2 sqrt(2 / pi) (1 + 0.044715 c^2) */
}

/*
 * s times the normal distribution's P(s), from its tail P(-t) = exp(-t^2 / 2) h(t), t = |s|. h(t)
 * falls from 1/2 as 1 / (t sqrt(2 pi)), so it is fitted in q = 1 / (1 + 0.21 t): q times a
 * polynomial of degree 8 for t in [0, 14] (least largest relative error, 0.3 * 2^-24, found by
 * linear programming, the coefficients rounded one after another). Beyond 14 the tail counts as 0.
 * t^2 is a sum of two floats. Within 10 units of 2^-24 of the result.
 */
V_INLINE vf v_gelu(vf s)
{
    const vf one = v_set1(1.0f), minus_half = v_set1(-0.5f);
    vf t = v_min(v_set1(14.0f), v_abs(s));
    vf square = v_mul(t, t), rest = v_fma(t, t, v_sub(v_zero(), square));
    vf tail = v_exp_negative(v_mul(square, minus_half), v_mul(rest, minus_half));
    vf q = v_div(one, v_fma(t, v_set1(0.209999993f), one));
    vf h = v_set1(-0.0716567561f);
    h = v_fma(h, q, v_set1(0.283590496f));
    h = v_fma(h, q, v_set1(-0.33025679f));
    h = v_fma(h, q, v_set1(0.349404275f));
    h = v_fma(h, q, v_set1(-0.0939270705f));
    h = v_fma(h, q, v_set1(0.124873385f));
    h = v_fma(h, q, v_set1(0.0691920221f));
    h = v_fma(h, q, v_set1(0.0850688741f));
    h = v_fma(h, q, v_set1(0.0837115720f));
    tail = v_mul(tail, v_mul(h, q));
    return v_mul(v_not_minus_inf(s), v_select(m_negative(s), tail, v_sub(one, tail)));
}

V_INLINE vf v_activate(uint32_t activation, vf s)
{
    return activation == HEED_ACT_NONE        ? s
           : activation == HEED_ACT_GELU      ? v_gelu(s)
           : activation == HEED_ACT_GELU_TANH ? v_gelu_tanh(s)
                                              : v_silu(s);
}

#endif
