/* Exponential, tanh and log2 units of vectors, one text for all instruction sets; part of vec.h. */
#ifndef HEED_SIMD_VEC_MATH_H
#define HEED_SIMD_VEC_MATH_H

/*
 * 2^x for x < 126 (which is not checked), within 2 ulp for results that are normal numbers (1.8 was
 * the most over all floats: tests/simd/functions.c); a result below 2^-126 counts as 0 (it is 0, or
 * a subnormal that reads as 0 under DAZ, which the backends' tiles set). -inf gives 0, a NaN stays
 * one.
 *
 * x = n + r with n the nearest integer, r in [-1/2, 1/2]; 2^r by a polynomial of degree 5 whose
 * constant is 1, so that whole powers are exact (the others: least largest error in ulp, found by
 * linear programming and rounded one after another); times 2^n. All instruction sets do the same
 * roundings, so they give the same bits.
 */
/* unit * 2^r; unit (constant) is a power of two. */
V_INLINE vf v_exp2_fraction(vf r, float unit)
{
    vf p = v_fma(r, v_set1(0.0013197716f * unit), v_set1(0.00967165f * unit));
    p = v_fma(p, r, v_set1(0.055509835f * unit));
    p = v_fma(p, r, v_set1(0.2402224f * unit));
    p = v_fma(p, r, v_set1(0.69314677f * unit));
    return v_fma(p, r, v_set1(unit));
}

V_INLINE vf v_exp2(vf x)
{
    vf n, r = v_split_power(x, &n);
    return v_times_power(v_exp2_fraction(r, V_POWER_UNIT), n);
}

/* tanh as x P(x^2) / Q(x^2), both of degree 4 and 1 at 0: the quotient whose largest relative error
 * up to 9.1 is least (0.4 units of 2^-24; by linear programming). Rounding makes 6 units of it at
 * most, held by tests/simd/functions.c. From 9.1 on tanh rounds to 1. A NaN stays one. */
V_INLINE vf v_tanh(vf x)
{
    const vf one = v_set1(1.0f), most = v_set1(9.1f);
    const vf a = v_max(v_set1(-9.1f), v_min(most, x)), z = v_mul(a, a);
    vf p = v_fma(z, v_set1(1.324289e-8f), v_set1(2.0534111e-5f));
    vf q = v_fma(z, v_set1(7.732475e-7f), v_set1(3.2784225e-4f));
    p = v_fma(p, z, v_set1(3.4912913e-3f));
    q = v_fma(q, z, v_set1(2.5860917e-2f));
    p = v_fma(p, z, v_set1(0.13377501f));
    q = v_fma(q, z, v_set1(0.46710822f));
    const vf y = v_div(v_mul(v_fma(p, z, one), a), v_fma(q, z, one));
    return v_max(v_set1(-1.0f), v_min(one, y));
}

/* The least score whose product with log2(e) is an f32: -FLT_MAX / log2(e), rounded up so that the
 * products of sums with it are, too. Frameworks fill masks with -FLT_MAX, which SEMANTICS takes for
 * the number it is: a row that has nothing else weighs its keys alike. Where it meets log2 units, it
 * counts as this. */
#define V_LEAST_SCORE (-0x1.62e4p127f)

/* Holds numbers in natural units at V_LEAST_SCORE. -inf, which is hidden or has overflowed, stays
 * itself, and so does a NaN. */
V_INLINE vf v_held(vf s)
{
    vf number = v_max(v_set1(V_LEAST_SCORE), s);
    return v_select(m_less(v_set1(-INFINITY), s), number, s);
}

/* Turns finished scores from natural units into log2 units, for scores with a bias. */
V_INLINE vf v_to_log2(vf s)
{
    return v_mul(v_held(s), v_set1(1.44269504f));
}

#endif
