/* The activations of the vector kernels, against f64: built and run once per instruction set, over
 * every 61st float of both signs from 2^-40 to the largest. */
#include <float.h>
#include <stdio.h>

#include "../../backends/simd/linear/act.inc.h"
#include "here.h"

static double gelu(double s)
{
    return s / 2 * erfc(-s * 0.70710678118654752440);
}

/* Twice the argument of the tanh: 2 sqrt(2 / pi) (s + 0.044715 s^3). */
static double tanh_argument(double s)
{
    return 2 * 0.79788456080286535588 * (s + 0.044715 * s * s * s);
}

static double gelu_tanh(double s)
{
    return s / (1 + exp(-tanh_argument(s)));
}

static double silu(double s)
{
    return s / (1 + exp(-s));
}

/* Bounds of the relative error, in units of 2^-24, as linear/act.inc.h promises. */
static double few(double s)
{
    (void)s;
    return 6;
}

static double some(double s)
{
    (void)s;
    return 10;
}

static double by_argument(double s)
{
    return 5 + 3 * fabs(tanh_argument(s));
}

typedef struct function {
    const char *name;
    uint32_t activation;
    double (*want)(double), (*bound)(double);
} function;

static int check(const function *f)
{
    double most = 0;
    long n = 0, bad = 0;
    for (uint32_t sign = 0; sign < 2; sign++)
        for (uint32_t bits = heed_bits_of_f32(0x1p-40f); bits < 0x7f800000u - 61 * LANES;
             bits += 61 * LANES) {
            float x[LANES], y[LANES];
            for (uint32_t i = 0; i < LANES; i++)
                x[i] = heed_f32_of_bits((bits + 61 * i) | sign << 31);
            v_store(y, v_activate(f->activation, v_load(x)));
            for (int i = 0; i < LANES; i++, n++) {
                const double s = (double)x[i], want = f->want(s), got = (double)y[i];
                if (fabs(want) < 0x1p-119) { /* its factors may be subnormal */
                    bad += !(fabs(got) <= 0x1p-118);
                    continue;
                }
                const double error = fabs(got / want - 1) * 0x1p24 / f->bound(s);
                bad += !(error <= 1);
                most = error > most ? error : most;
            }
        }
    float odd[LANES] = {-INFINITY, INFINITY, NAN, -NAN, 0, -0.0f, -FLT_MAX, FLT_MAX}, y[LANES];
    v_store(y, v_activate(f->activation, v_load(odd)));
    bad += y[0] != 0 || y[1] != INFINITY || y[2] == y[2] || y[3] == y[3] || y[4] != 0 ||
           y[5] != 0 || y[6] != 0 || y[7] != FLT_MAX;
    printf("%s: at most %.3f of its bound, %ld of %ld wrong\n", f->name, most, bad, n);
    return bad != 0;
}

int main(void)
{
    static const function functions[] = {
        {"gelu", HEED_ACT_GELU, gelu, some},
        {"gelu_tanh", HEED_ACT_GELU_TANH, gelu_tanh, by_argument},
        {"silu", HEED_ACT_SILU, silu, few},
    };
    if (!runs_here(LANES))
        return 77;
    _mm_setcsr(_mm_getcsr() | 0x8040u); /* FTZ, DAZ: as the tiling asks for */
    int bad = 0;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        bad |= check(&functions[i]);
    return bad;
}
