/* The AVX-512 backend: vectors of 16 floats. Compiled for the baseline CPU; the kernels are
 * those of backends/simd, compiled for AVX-512 F, BW, DQ and VL. */
#include "../simd/simd.h"

#define NEEDS                                                                                      \
    (HEED_ISA_AVX2 | HEED_ISA_FMA | HEED_ISA_F16C | HEED_ISA_AVX512F | HEED_ISA_AVX512BW |         \
     HEED_ISA_AVX512DQ | HEED_ISA_AVX512VL)

/* Kernels that may not be built: the same for AVX2, to the same bits, and those for bf16. Who asks
 * looks at HEED_AVX512_HAVE_* first, so that what stands for them is never called. (Weak references
 * would not do: a linker takes nothing from a static library for their sake.) */
#if !HEED_AVX512_HAVE_AVX2
#define heed_attn_prefill_avx2 heed_attn_prefill_avx512
#define heed_attn_decode_avx2 heed_attn_decode_avx512
#define heed_attn_decode_heads_avx2 heed_attn_decode_heads_avx512
#define heed_attn_small_avx2 heed_attn_small_avx512
#endif
#if !HEED_AVX512_HAVE_DOT
#define heed_attn_prefill_dot_avx512 heed_attn_prefill_avx512
#define heed_attn_decode_dot_avx512 heed_attn_decode_avx512
#define heed_attn_decode_heads_dot_avx512 heed_attn_decode_heads_avx512
#define heed_attn_decode_weights_dot_avx512 heed_attn_decode_weights_avx512
#define heed_linear_tile_dot_avx512 heed_linear_tile_avx512
#endif

/* Written once, by the first probe that accepts this machine. */
static heed_simd_tuning tuning;

static heed_status probe(const heed_cpu *cpu, heed_error *why)
{
    if ((cpu->isa & NEEDS) != NEEDS)
        return heed_refuse(why,
                           "needs a CPU and an operating system with AVX-512 F, BW, DQ and VL");
    heed_simd_tune(cpu, 16, HEED_AVX512_HAVE_DOT, &tuning);
    if (cpu->isa & HEED_ISA_AVX512_BF16)
        heed_refuse(why, "accuracy bf16 %s vdpbf16ps: of %s CPUs it is known to be %s than f32",
                    tuning.dot_bf16 ? "by" : "without", cpu->vendor,
                    cpu->fast & HEED_ISA_AVX512_BF16 ? "faster" : "slower");
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

/* Is the tile's sequence so little work that AVX-512's slow start would cost more than its width
 * gains? 0.7 million operations, measured on an Intel with AMX. */
static int is_small(const heed_problem *problem, const heed_tile *tile)
{
    double pairs = (double)problem->q_heads * (double)tile->q_len * (double)tile->kv_len;
    return HEED_AVX512_HAVE_AVX2 && tuning.small_avx2 &&
           2 * pairs * ((double)problem->qk_dim + (double)problem->v_dim) < 7e5;
}

/* What runs a tile in f32 arithmetic. */
static heed_status run_plain(const heed_problem *problem, heed_tile *tile, int decode,
                             void *scratch)
{
    if (is_small(problem, tile))
        return decode ? heed_attn_decode_avx2(&tuning, problem, tile, scratch)
                      : heed_attn_prefill_avx2(&tuning, problem, tile, scratch);
    return decode ? heed_attn_decode_avx512(&tuning, problem, tile, scratch)
                  : heed_attn_prefill_avx512(&tuning, problem, tile, scratch);
}

static heed_status run_small(const heed_problem *problem, heed_tile *tile, int64_t kv_heads)
{
    return HEED_AVX512_HAVE_AVX2 && tuning.small_avx2
               ? heed_attn_small_avx2(problem, tile, kv_heads)
               : heed_attn_small_avx512(problem, tile, kv_heads);
}

static heed_status run_tile(const void *state, const heed_problem *problem, heed_tile *tile,
                            void *scratch)
{
    (void)state;
    const int small = heed_simd_small_covers(problem, tile);
    if (small && !(tile->flags & HEED_TILE_OUTPUTS))
        return run_small(problem, tile, 1);
    const int decode = heed_simd_decode_covers(&tuning, problem);
    const int dot = !small && heed_simd_dot_covers(&tuning, problem) &&
                    (!decode || (tile->k.dim_stride == 1 && tile->v.dim_stride == 1));
    if (!decode && dot)
        return heed_attn_prefill_dot_avx512(&tuning, problem, tile, scratch);
    if (!(tile->flags & HEED_TILE_OUTPUTS))
        return dot ? heed_attn_decode_dot_avx512(&tuning, problem, tile, scratch)
                   : run_plain(problem, tile, decode, scratch);
    heed_status st = heed_attn_prefill_avx512(&tuning, problem, tile, scratch);
    if (decode && st == HEED_OK)
        st = dot ? heed_attn_decode_weights_dot_avx512(&tuning, problem, tile, scratch)
                 : heed_attn_decode_weights_avx512(&tuning, problem, tile, scratch);
    return st;
}

static heed_status run_heads(const void *state, const heed_problem *problem, heed_tile *tile,
                             const heed_tile_state *states, int64_t kv_heads, void *scratch)
{
    (void)state;
    if (!states)
        return heed_simd_small_covers(problem, tile) ? run_small(problem, tile, kv_heads)
                                                     : HEED_ERR_UNSUPPORTED;
    if (!heed_simd_decode_covers(&tuning, problem))
        return HEED_ERR_UNSUPPORTED;
    if (heed_simd_dot_covers(&tuning, problem))
        return heed_attn_decode_heads_dot_avx512(&tuning, problem, tile, states, kv_heads, scratch);
    /* Half as wide, more instructions go between the prefetches of f32: memory gives 75 to 82 % of
     * its rate for groups of three and four in place of 69 to 74 (Zen 4). Not where they are read
     * crosswise. The bits are the same. */
    const uint32_t rows = tile->n_heads * tile->q_count;
    if (HEED_AVX512_HAVE_AVX2 && problem->k_type == HEED_F32 && tile->pages && rows > 2 &&
        !(tuning.cross_f32 && rows >= tuning.cross_f32))
        return heed_attn_decode_heads_avx2(&tuning, problem, tile, states, kv_heads, scratch);
    return heed_attn_decode_heads_avx512(&tuning, problem, tile, states, kv_heads, scratch);
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

static heed_status linear_tile(const heed_linear_problem *problem, const heed_linear_tile *tile,
                               void *scratch)
{
    return heed_simd_linear_dot_covers(&tuning, problem)
               ? heed_linear_tile_dot_avx512(problem, tile, scratch)
               : heed_linear_tile_avx512(problem, tile, scratch);
}

const heed_backend *heed_avx512_backend(void); /* declared by whoever lists the built-in backends */

const heed_backend *heed_avx512_backend(void)
{
    static const heed_backend backend = {
        .abi = HEED_BACKEND_ABI,
        .struct_size = sizeof backend,
        .features = HEED_SIMD_FEATURES,
        .name = "avx512",
        .summary = "hand-written AVX-512 kernels: f32, f16 and bf16 in f32 arithmetic",
        .probe = probe,
        .supports = supports,
        .cost = cost,
        .tiling = tiling,
        .run_tile = run_tile,
        .linear_supports = linear_supports,
        .linear_cost = linear_cost,
        .linear_tiling = linear_tiling,
        .linear_pack = linear_pack,
        .linear_tile = linear_tile,
        .run_heads = run_heads,
    };
    return &backend;
}
