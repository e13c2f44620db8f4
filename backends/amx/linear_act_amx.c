/* Activations of linear layers on rows of sums: the vector kernels' own (backends/simd), or the C
 * library's where the model has plain loops. Compiled as attn_tile_amx.c. */
#include "amx.h"

#if !defined(HEED_AMX_MODEL) || defined(HEED_AMX_LANES)
#include "../simd/linear/act.h"

static inline void activate_as(const uint32_t activation, float *s, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        v_store(s + i, v_activate(activation, v_load(s + i)));
}
#else
#include <math.h>

static double gelu(double x)
{
    return 0.5 * x * erfc(-x * 0.7071067811865476);
}

static double gelu_tanh(double x)
{
    return x / (1 + exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void activate_as(uint32_t activation, float *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = (double)s[i];
        if (s[i] == -INFINITY)
            s[i] = 0;
        else
            s[i] = (float)(activation == HEED_ACT_GELU        ? gelu(x)
                           : activation == HEED_ACT_GELU_TANH ? gelu_tanh(x)
                                                              : silu(x));
    }
}
#endif

void AMX_NAME(activate)(uint32_t activation, float *s, int64_t n)
{
    if (activation == HEED_ACT_GELU)
        activate_as(HEED_ACT_GELU, s, n);
    else if (activation == HEED_ACT_GELU_TANH)
        activate_as(HEED_ACT_GELU_TANH, s, n);
    else if (activation == HEED_ACT_SILU)
        activate_as(HEED_ACT_SILU, s, n);
}
