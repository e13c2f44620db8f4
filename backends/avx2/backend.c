/* The AVX2 backend: vectors of 8 floats. Compiled for the baseline CPU; the kernels are
 * those of backends/simd, compiled for AVX2, FMA and F16C. */
#include "../simd/tables.h"

#define NEEDS (HEED_ISA_AVX2 | HEED_ISA_FMA | HEED_ISA_F16C)

/* A compiler may be unable to build the kernels by AVX-VNNI. Their support is refused then, so that
 * these stand-ins are never called. */
#if !HEED_AVX2_HAVE_VNNI
#define heed_attn_decode_vnni_avx2 heed_attn_decode_int8_avx2
#define heed_attn_decode_heads_vnni_avx2 heed_attn_decode_heads_int8_avx2
#define heed_attn_decode_weights_vnni_avx2 heed_attn_decode_weights_int8_avx2
#endif

static heed_status check_cpu(const heed_cpu *cpu, heed_error *why)
{
    return (cpu->isa & NEEDS) == NEEDS
               ? HEED_OK
               : heed_refuse(why, "needs AVX2, FMA and F16C, which this CPU, its OS or "
                                  "HEED_MAX_ISA does not give");
}

static heed_status open_machine(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    if (check_cpu(cpu, why) != HEED_OK)
        return HEED_ERR_UNSUPPORTED;
    return heed_simd_open(cpu, 8, HEED_BUILT_INT8 | (HEED_AVX2_HAVE_VNNI ? HEED_BUILT_VNNI : 0),
                          NULL, machine);
}

/* ---- attention ------------------------------------------------------------------------------- */

static heed_status run_prefill(const void *machine, const void *state, const heed_problem *problem,
                               heed_tile *tile, void *scratch)
{
    (void)state;
    return heed_attn_prefill_avx2(machine, problem, tile, scratch);
}

HEED_SIMD_RUN_DECODE(run_decode, .head = heed_attn_decode_avx2,
                     .heads = heed_attn_decode_heads_avx2, .pairs = heed_attn_prefill_avx2,
                     .weights = heed_attn_decode_weights_avx2)

HEED_SIMD_RUN_DECODE(run_decode_int8, .head = heed_attn_decode_int8_avx2,
                     .heads = heed_attn_decode_heads_int8_avx2, .pairs = heed_attn_prefill_avx2,
                     .weights = heed_attn_decode_weights_int8_avx2)

HEED_SIMD_RUN_DECODE(run_decode_vnni, .head = heed_attn_decode_vnni_avx2,
                     .heads = heed_attn_decode_heads_vnni_avx2, .pairs = heed_attn_prefill_avx2,
                     .weights = heed_attn_decode_weights_vnni_avx2)

static heed_status run_small(const void *machine, const void *state, const heed_problem *problem,
                             heed_tile *tile, void *scratch)
{
    return heed_simd_small_covers(tile) && !(tile->flags & HEED_TILE_OUTPUTS)
               ? heed_attn_small_avx2(problem, tile)
               : run_decode(machine, state, problem, tile, scratch);
}

HEED_SIMD_ATTN(prefill, prefill, 0);
HEED_SIMD_ATTN(decode, decode, 0);
HEED_SIMD_ATTN(decode_int8, decode, 0);
HEED_SIMD_ATTN(decode_vnni, decode, 0);
HEED_SIMD_ATTN(small, small, HEED_KERNEL_FEW_KEYS);

/* ---- linear layers --------------------------------------------------------------------------- */

HEED_SIMD_LINEAR(linear, "products", heed_linear_tile_avx2);

/* ---- rows of a cache ------------------------------------------------------------------------- */

static const heed_append_kernel append = {
    .struct_size = sizeof append,
    .name = "append",
    .cost = 40,
    .supports = check_cpu,
    .run = heed_append_rows_avx2,
};

/* ---- the table ------------------------------------------------------------------------------- */

const heed_backend *heed_avx2_backend(void); /* declared by whoever lists the built-in backends */

const heed_backend *heed_avx2_backend(void)
{
    static const heed_attn_kernel *const attn[] = {&prefill, &decode, &decode_int8, &decode_vnni,
                                                   &small};
    static const heed_linear_kernel *const layers[] = {&linear};
    static const heed_backend backend = {
        .abi = HEED_BACKEND_ABI,
        .struct_size = sizeof backend,
        .name = "avx2",
        .summary = "hand-written AVX2 kernels: f32, f16 and bf16 in f32 arithmetic",
        .open = open_machine,
        .close = heed_simd_close,
        .attn = attn,
        .n_attn = sizeof attn / sizeof *attn,
        .linear = layers,
        .n_linear = sizeof layers / sizeof *layers,
        .append = &append,
    };
    return &backend;
}
