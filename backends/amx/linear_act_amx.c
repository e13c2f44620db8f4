/* Activations of linear layers on rows of sums, by the code of the vector kernels (backends/simd).
 * Compiled with the flags of attn_tile_amx.c. */
#include "amx.h"
#include "lanes.h"

#include "../simd/linear/act.inc.h"

static inline void activate_as(const uint32_t activation, float *s, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        v_store(s + i, v_activate(activation, v_load(s + i)));
}

void AMX_NAME(activate)(uint32_t activation, float *s, int64_t n)
{
    if (activation == HEED_ACT_GELU)
        activate_as(HEED_ACT_GELU, s, n);
    else if (activation == HEED_ACT_GELU_TANH)
        activate_as(HEED_ACT_GELU_TANH, s, n);
    else if (activation == HEED_ACT_SILU)
        activate_as(HEED_ACT_SILU, s, n);
}
