/* The AVX2 backend: vectors of 8 floats. Compiled for the baseline CPU; the kernels are
 * those of backends/simd, compiled for AVX2, FMA and F16C. */
#include "../simd/simd.h"

#define NEEDS (HEED_ISA_AVX2 | HEED_ISA_FMA | HEED_ISA_F16C)

/* Written once, by the first probe that accepts this machine. */
static heed_simd_tuning tuning;

static heed_status probe(const heed_cpu *cpu, heed_error *why)
{
    if ((cpu->isa & NEEDS) != NEEDS)
        return heed_refuse(why, "needs a CPU and an operating system with AVX2, FMA and F16C");
    heed_simd_tune(cpu, 8, 0, &tuning);
    return HEED_OK;
}

static heed_status supports(const heed_problem *problem, heed_error *why)
{
    (void)problem; /* core has compared its features with ours */
    (void)why;
    return HEED_OK;
}

static double cost(const heed_problem *problem, int64_t q_len, int64_t kv_len)
{
    return heed_simd_cost(&tuning, problem, q_len, kv_len);
}

static heed_status tiling(const heed_problem *problem, heed_tiling *out)
{
    return heed_simd_tiling(&tuning, problem, out);
}

static heed_status run_tile(const void *state, const heed_problem *problem, heed_tile *tile,
                            void *scratch)
{
    (void)state;
    const int decode = heed_simd_decode_covers(&tuning, problem);
    const int outputs = (tile->flags & HEED_TILE_OUTPUTS) != 0;
    if (!outputs && heed_simd_small_covers(problem, tile))
        return heed_attn_small_avx2(problem, tile, 1);
    if (decode && !outputs)
        return heed_attn_decode_avx2(&tuning, problem, tile, scratch);
    heed_status st = heed_attn_prefill_avx2(&tuning, problem, tile, scratch);
    if (decode && st == HEED_OK)
        st = heed_attn_decode_weights_avx2(&tuning, problem, tile, scratch);
    return st;
}

static heed_status run_heads(const void *state, const heed_problem *problem, heed_tile *tile,
                             const heed_tile_state *states, int64_t kv_heads, void *scratch)
{
    (void)state;
    if (!states)
        return heed_simd_small_covers(problem, tile) ? heed_attn_small_avx2(problem, tile, kv_heads)
                                                     : HEED_ERR_UNSUPPORTED;
    if (!heed_simd_decode_covers(&tuning, problem))
        return HEED_ERR_UNSUPPORTED;
    return heed_attn_decode_heads_avx2(&tuning, problem, tile, states, kv_heads, scratch);
}

static heed_status linear_supports(const heed_linear_problem *problem, heed_error *why)
{
    (void)problem; /* any dims and types */
    (void)why;
    return HEED_OK;
}

static double linear_cost(const heed_linear_problem *problem, int64_t rows)
{
    return heed_simd_linear_cost(&tuning, problem, rows);
}

static heed_status linear_tiling(const heed_linear_problem *problem, heed_linear_tiling *out)
{
    return heed_simd_linear_tiling(&tuning, problem, out);
}

static heed_status linear_pack(const heed_linear_problem *problem, const heed_linear_weight *weight,
                               int64_t col_first, int64_t col_end, void *panel)
{
    return heed_simd_linear_pack(&tuning, problem, weight, col_first, col_end, panel);
}

const heed_backend *heed_avx2_backend(void); /* declared by whoever lists the built-in backends */

const heed_backend *heed_avx2_backend(void)
{
    static const heed_backend backend = {
        .abi = HEED_BACKEND_ABI,
        .struct_size = sizeof backend,
        .features = HEED_SIMD_FEATURES,
        .name = "avx2",
        .summary = "hand-written AVX2 kernels: f32, f16 and bf16 in f32 arithmetic",
        .probe = probe,
        .supports = supports,
        .cost = cost,
        .tiling = tiling,
        .run_tile = run_tile,
        .linear_supports = linear_supports,
        .linear_cost = linear_cost,
        .linear_tiling = linear_tiling,
        .linear_pack = linear_pack,
        .linear_tile = heed_linear_tile_avx2,
        .run_heads = run_heads,
    };
    return &backend;
}
