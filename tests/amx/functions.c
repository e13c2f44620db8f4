/* The AMX kernels' own arithmetic, exhaustively where possible: weights in integers, powers of two,
 * tanh, and values as sums of two bf16. It runs in plain loops here, which give the same bits as
 * the vector instructions (tests/amx/model.c, lanes). */
#define HEED_AMX_MODEL
#include "pack.inc.h"
#include "softmax.inc.h"

#include <stdio.h>

static int n_failed;

static void expect(int ok, const char *what, double got)
{
    printf("%s: %s %.4g\n", ok ? "ok" : "FAILED", what, got);
    n_failed += !ok;
}

/* The bf16 weight of a fixed point. */
static uint16_t weight_of(uint16_t fixed)
{
    vi w = weights_of(vi_set1(fixed | (uint32_t)fixed << 16), vi_load(exp2_table));
    return (uint16_t)w.u[0];
}

/* Every fixed point: it stands for 2^((fixed + 64) / 512 - 127). */
static void every_weight(void)
{
    double most = 0, squares = 0;
    int n = 0, falls = 0, raises_late = 0, bad_zero = 0, last = 0;
    for (int fixed = 0; fixed < (int)AMX_TOO_LARGE; fixed++) { /* larger ones are not used */
        uint16_t bits = weight_of((uint16_t)fixed);
        double want = exp2((fixed + 64) / 512.0 - 127), got = (double)heed_f32_of_bf16(bits);
        falls += bits + 1 < last; /* a step down of the table costs one unit */
        last = bits;
        raises_late += fixed < (int)AMX_RAISE_FIXED && bits >= AMX_RAISE_BF16;
        if (bits < 0x80 || want < 0x1p-126) { /* the unit reads subnormals as 0 */
            bad_zero += want > 0x1.02p-126 || bits > 0x81;
            continue;
        }
        /* The score may lie up to half a step from the fixed point. */
        double above = fabs(got / want * exp2(0.5 / 512) - 1);
        double below = fabs(got / want * exp2(-0.5 / 512) - 1);
        most = fmax(most, fmax(above, below));
        squares += (got / want - 1) * (got / want - 1) + 1.0 / 12 * (log(2) / 512) * (log(2) / 512);
        n++;
    }
    expect(most <= 5.3e-3, "largest relative error of a weight", most);
    expect(sqrt(squares / n) <= 1.9e-3, "root of its mean square", sqrt(squares / n));
    expect(falls == 0, "weights that are two units less than the one before", falls);
    expect(raises_late == 0, "weights of 2^-2 or more below AMX_RAISE_FIXED", raises_late);
    expect(bad_zero == 0, "weights that vanish too early or too late", bad_zero);
}

/* Weights from scores: a fine sweep below references of all sizes, and hidden keys. */
static void from_scores(void)
{
    static const float references[] = {0, 100, -4095, 7000, -7000};
    const float hidden[] = {-INFINITY, -0x1.fffffep127f, -1e30f, -140};
    double most = 0;
    int alive = 0;
    for (size_t r = 0; r < sizeof references / sizeof *references; r++) {
        float m = references[r];
        for (int step = -125 * 2048; step < 0; step++) {
            float score = m + (float)step / 2048;
            vf z = v_fma(v_set1(score), v_set1(1), v_set1(fixed_addend(m)));
            uint16_t bits = (uint16_t)weights_of(fixed_of(z, z), vi_load(exp2_table)).u[0];
            double want = exp2((double)score - (double)m);
            most = fmax(most, fabs((double)heed_f32_of_bf16(bits) / want - 1));
        }
        for (size_t n = 0; n < sizeof hidden / sizeof *hidden; n++) {
            vf z = v_fma(v_set1(hidden[n] + (n == 3 ? m : 0)), v_set1(1), v_set1(fixed_addend(m)));
            alive += (weights_of(fixed_of(z, z), vi_load(exp2_table)).u[0] & 0xffff) >= 0x80;
        }
    }
    expect(most <= 5.3e-3, "largest relative error of a weight from its score", most);
    expect(alive == 0, "weights of hidden keys that are not 0", alive);
}

static double ulps(double got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs(got - want) / ldexp(1, exponent - 24);
}

static void powers_and_tanh(void)
{
    double most_power = 0, most_tanh = 0;
    int bad = 0;
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += 4001) {
        float x = heed_f32_of_bits(bits);
        double t = (double)v_tanh(v_set1(x)).f[0];
        if (x >= 0x1p-120f) /* r * r underflows below: then tanh is its argument less a subnormal */
            most_tanh = fmax(most_tanh, ulps(t, tanh((double)x)));
        bad += (double)v_tanh(v_set1(-x)).f[0] != -t;
        if (x < 126) {
            most_power = fmax(most_power, ulps((double)v_exp2(v_set1(x)).f[0], exp2((double)x)));
            most_power = fmax(most_power, ulps((double)v_exp2(v_set1(-x)).f[0], exp2(-(double)x)));
        }
    }
    /* What is below 2^-126 counts as 0: tiles flush it. */
    bad += !(v_exp2(v_set1(-127)).f[0] < 0x1p-126f) || v_exp2(v_set1(-INFINITY)).f[0] != 0;
    bad += exp2_or_zero(v_set1(-INFINITY)).f[0] != 0 || exp2_or_zero(v_set1(NAN)).f[0] != 0;
    bad += !m_nan(v_exp2(v_set1(NAN))) || !m_nan(v_tanh(v_set1(NAN)));
    bad += v_tanh(v_set1(INFINITY)).f[0] != 1;
    expect(most_power <= 2, "ulps of a power of two", most_power);
    expect(most_tanh <= 4, "ulps of tanh", most_tanh);
    expect(bad == 0, "ends and signs that are wrong", bad);
}

/* Splits of every significand of f32 and of every f16: hi and lo leave what docs/accuracy.md
 * says. */
static void splits(void)
{
    double most_rest = 0, most_low = 0, f16_rest = 0;
    int bad = 0;
    for (uint32_t bits = 0x3f800000u; bits < 0x40000000u; bits++) {
        float x = heed_f32_of_bits(bits);
        uint16_t high, low;
        split_one(x, &high, &low);
        double hi = (double)heed_f32_of_bf16(high), lo = (double)heed_f32_of_bf16(low);
        most_low = fmax(most_low, fabs(lo) / (double)x);
        most_rest = fmax(most_rest, fabs((double)x - hi - lo) / (double)x);
    }
    for (uint32_t bits = 0; bits < 0x7c00u; bits++) {
        uint16_t half = (uint16_t)bits, high, low;
        float x = heed_load(HEED_F16, &half, 0);
        split_one(x, &high, &low);
        f16_rest = fmax(f16_rest, fabs((double)x - (double)heed_f32_of_bf16(high) -
                                       (double)heed_f32_of_bf16(low)));
    }
    static const float odd[] = {INFINITY, -INFINITY, NAN, 0x1.fffffep127f};
    int differ = 0;
    for (uint32_t top = 0; top < 0x10000u; top++) { /* every sign and exponent, all odd values */
        static const uint32_t below[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
        vf x = v_set1(0);
        vi high, low;
        for (int n = 0; n < 6; n++)
            x.f[n] = heed_f32_of_bits(top << 16 | below[n]);
        split_values(x, &high, &low);
        for (int n = 0; n < 6; n++) {
            uint16_t want_high, want_low;
            split_one(x.f[n], &want_high, &want_low);
            differ += high.u[n] != want_high || low.u[n] != want_low;
        }
    }
    expect(differ == 0, "values that vectors split in another way", differ);
    for (size_t n = 0; n < sizeof odd / sizeof *odd; n++) {
        uint16_t high, low;
        split_one(odd[n], &high, &low);
        bad += low != 0 || (high & 0x7fff) < AMX_INF_BF16;
    }
    expect(most_low <= 0x1p-8, "largest low part", most_low);
    expect(most_rest <= 0x1p-17, "largest rest", most_rest);
    expect(f16_rest == 0, "rest of an f16", f16_rest);
    expect(bad == 0, "values beyond bf16 that have a low part", bad);
}

int main(void)
{
    every_weight();
    from_scores();
    powers_and_tanh();
    splits();
    return n_failed != 0;
}
