/* The exponential and tanh of the vector kernels, against f64: built and run once per instruction
 * set.
 *
 * 2^x is tried for every float of [-128, 126] with |x| >= 2^-26 (below that it is 1 to within half
 * an ulp); tanh for every 16th float of [2^-13, 16]. */
#include <stdio.h>

#include "../../backends/simd/prefill/softmax.inc.h"
#include "here.h"

/* 2^x in f64: Taylor's series of 2^r for |r| <= 1/2, whose first missing term is below 2^-50. The
 * test compares it with libm now and then. */
static double power(double x)
{
    double n = (x + 0x1.8p52) - 0x1.8p52, r = (x - n) * LN_2, sum = 1;
    int64_t bits = ((int64_t)n + 1023) << 52;
    double whole;
    static const double inverse[14] = {0,        1,        1.0 / 2,  1.0 / 3, 1.0 / 4,
                                       1.0 / 5,  1.0 / 6,  1.0 / 7,  1.0 / 8, 1.0 / 9,
                                       1.0 / 10, 1.0 / 11, 1.0 / 12, 1.0 / 13};
    for (int k = 13; k > 0; k--)
        sum = 1 + sum * (r * inverse[k]);
    memcpy(&whole, &bits, sizeof whole);
    return sum * whole;
}

static double ulp_of(double x)
{
    uint32_t bits = heed_bits_of_f32((float)x);
    return (double)heed_f32_of_bits(bits & 0x7f800000u) * 0x1p-23;
}

static int check_exp2(void)
{
    double most = 0;
    int bad = 0;
    for (uint32_t sign = 0; sign < 2; sign++) {
        uint32_t end = heed_bits_of_f32(sign ? 128.0f : 126.0f);
        for (uint32_t bits = heed_bits_of_f32(0x1p-26f); bits < end; bits += LANES) {
            float x[LANES], y[LANES];
            for (uint32_t i = 0; i < LANES; i++)
                x[i] = heed_f32_of_bits((bits + i) | sign << 31);
            v_store(y, v_exp2(v_load(x)));
            for (int i = 0; i < LANES; i++) {
                double want = power((double)x[i]);
                if (want < 0x1p-126) {
                    bad += y[i] != 0; /* FTZ is set */
                } else {
                    double error = fabs((double)y[i] - want) / ulp_of(want);
                    most = error > most ? error : most;
                }
            }
            if (bits % 0x10000 == 0 && fabs(power((double)x[0]) / exp2((double)x[0]) - 1) > 0x1p-45)
                bad++;
        }
    }
    float odd[LANES] = {0}, y[LANES];
    odd[0] = -INFINITY;
    odd[1] = NAN;
    odd[2] = heed_f32_of_bits(0xffc001ffu); /* a payload that could leak into an exponent */
    odd[3] = -FLT_MAX;
    odd[4] = -5;
    v_store(y, v_exp2(v_load(odd)));
    bad += y[0] != 0 || y[1] == y[1] || y[2] == y[2] || y[3] != 0 || y[4] != 0x1p-5f || y[5] != 1;
    printf("exp2: at most %.3f ulp, %d wrong\n", most, bad);
    return bad || !(most < 2);
}

static int check_tanh(void)
{
    double most = 0;
    float odd[LANES] = {0}, y[LANES];
    for (uint32_t bits = heed_bits_of_f32(0x1p-13f); bits < heed_bits_of_f32(16);
         bits += 16 * LANES) {
        float x[LANES];
        for (uint32_t i = 0; i < LANES; i++)
            x[i] = heed_f32_of_bits((bits + 16 * i) | (i & 1) << 31);
        v_store(y, v_tanh(v_load(x)));
        for (int i = 0; i < LANES; i++) {
            double want = tanh((double)x[i]), error = fabs((double)y[i] / want - 1);
            most = error > most ? error : most;
        }
    }
    odd[0] = INFINITY;
    odd[1] = -INFINITY;
    odd[2] = NAN;
    v_store(y, v_tanh(v_load(odd)));
    int bad = y[0] != 1 || y[1] != -1 || y[2] == y[2] || y[3] != 0;
    printf("tanh: at most %.3f units of 2^-24, %d wrong\n", most * 0x1p24, bad);
    return bad || !(most < 6 * 0x1p-24);
}

/* With --here the program only says whether this CPU can run it: 0 if so, else 77. */
int main(int argc, char **argv)
{
    if (!runs_here(LANES))
        return 77;
    if (argc > 1 && strcmp(argv[1], "--here") == 0)
        return 0;
    _mm_setcsr(_mm_getcsr() | 0x8040u); /* FTZ, DAZ: as the tiling asks for */
    return check_exp2() | check_tanh();
}
