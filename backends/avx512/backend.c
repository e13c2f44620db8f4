/* The AVX-512 backend: vectors of 16 floats. Compiled for the baseline CPU; the kernels are
 * those of backends/simd, compiled for AVX-512 F, BW, DQ and VL. */
#include "../simd/tables.h"

#define NEEDS                                                                                      \
    (HEED_ISA_AVX2 | HEED_ISA_FMA | HEED_ISA_F16C | HEED_ISA_AVX512F | HEED_ISA_AVX512BW |         \
     HEED_ISA_AVX512DQ | HEED_ISA_AVX512VL)

/* Kernels that a build may lack: those for AVX2, which give the same bits, and those for bf16 and
 * int8. Callers look at HEED_AVX512_HAVE_* first, so that these stand-ins are never called. (Weak
 * references would not do: a linker takes nothing from a static library for their sake.) */
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
#if !HEED_AVX512_HAVE_INT8
#define heed_attn_decode_int8_avx512 heed_attn_decode_avx512
#define heed_attn_decode_heads_int8_avx512 heed_attn_decode_heads_avx512
#define heed_attn_decode_weights_int8_avx512 heed_attn_decode_weights_avx512
#endif

#if HEED_AVX512_HAVE_CODED
#define by_bytes heed_attn_coded_avx512
#else
#define by_bytes NULL
#endif

static heed_status check_cpu(const heed_cpu *cpu, heed_error *why)
{
    return (cpu->isa & NEEDS) == NEEDS
               ? HEED_OK
               : heed_refuse(why, "needs AVX-512 F, BW, DQ and VL, which this CPU, its OS or "
                                  "HEED_MAX_ISA does not give");
}

static heed_status open_machine(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    if (check_cpu(cpu, why) != HEED_OK)
        return HEED_ERR_UNSUPPORTED;
    const uint64_t of_bytes = HEED_ISA_AVX512_VBMI | HEED_ISA_AVX512_VNNI;
    if (cpu->isa & HEED_ISA_AVX512_BF16)
        heed_refuse(why, "accuracy bf16 %s vdpbf16ps: of %s CPUs it is known to be %s than f32",
                    HEED_AVX512_HAVE_DOT && cpu->fast & HEED_ISA_AVX512_BF16 ? "by" : "without",
                    cpu->vendor, cpu->fast & HEED_ISA_AVX512_BF16 ? "faster" : "slower");
    return heed_simd_open(cpu, 16,
                          (HEED_AVX512_HAVE_DOT ? HEED_BUILT_DOT : 0) |
                              (HEED_AVX512_HAVE_INT8 ? HEED_BUILT_INT8 : 0),
                          (cpu->isa & of_bytes) == of_bytes ? by_bytes : NULL, machine);
}

/* ---- attention in f32 arithmetic --------------------------------------------------------------
 *
 * The kernels of AVX2 give the same bits, so a tile may go to either.
 */

/* Is the tile's sequence so little work that AVX-512's slow start would cost more than its width
 * gains? The limit of 0.7 million operations was measured on an Intel with AMX. */
static int is_little(const heed_simd_tuning *tuning, const heed_problem *problem,
                     const heed_tile *tile)
{
    double pairs = (double)problem->q_heads * (double)tile->q_len * (double)tile->kv_len;
    return HEED_AVX512_HAVE_AVX2 && tuning->small_avx2 &&
           2 * pairs * ((double)problem->qk_dim + (double)problem->v_dim) < 7e5;
}

static heed_status run_prefill(const void *machine, const void *state, const heed_problem *problem,
                               heed_tile *tile, void *scratch)
{
    (void)state;
    return is_little(machine, problem, tile) && !(tile->flags & HEED_TILE_OUTPUTS)
               ? heed_attn_prefill_avx2(machine, problem, tile, scratch)
               : heed_attn_prefill_avx512(machine, problem, tile, scratch);
}

/* Does f32 of a group of four, one head after the other, come from memory? AVX2's kernel then needs less
 * time, because with vectors half as wide more instructions go between the prefetches: 0.71 to 0.87 of it
 * for 8192 keys of 8 heads with 128 dims, 0.69 to 0.89 for 32768 (Zen 4). From the caches, for other
 * groups and for 64 dims AVX-512 is the faster one. */
static int head_by_avx2(const heed_simd_tuning *tuning, const heed_problem *problem,
                        const heed_tile *tile)
{
    const double bytes = 4.0 * (problem->qk_dim + problem->v_dim) * problem->kv_heads;
    return HEED_AVX512_HAVE_AVX2 && tuning->fetched_l2 && problem->k_type == HEED_F32 &&
           problem->v_type == HEED_F32 && problem->qk_dim == 128 &&
           tile->group * tile->q_count == 4 && bytes * (double)tile->kv_len > 48e6;
}

static heed_status decode_head(const heed_simd_tuning *tuning, const heed_problem *problem,
                               heed_tile *tile, void *scratch)
{
    return is_little(tuning, problem, tile) || head_by_avx2(tuning, problem, tile)
               ? heed_attn_decode_avx2(tuning, problem, tile, scratch)
               : heed_attn_decode_avx512(tuning, problem, tile, scratch);
}

/* Should the AVX2 kernel read these keys? With vectors half as wide, more instructions come between
 * the prefetches of f32: memory gives 75 to 82 % of its rate for groups of three and four in pages,
 * in place of 69 to 74 (Zen 4). Not where keys are read crosswise. */
static int heads_by_avx2(const heed_simd_tuning *tuning, const heed_problem *problem,
                         const heed_tile *tile)
{
    const uint32_t rows = tile->group * (uint32_t)tile->q_count;
    return HEED_AVX512_HAVE_AVX2 && problem->k_type == HEED_F32 && tile->pages && rows > 2 &&
           !(tuning->cross_f32.paged && rows >= tuning->cross_f32.paged);
}

static heed_status decode_heads(const heed_simd_tuning *tuning, const heed_problem *problem,
                                heed_tile *tile, void *scratch)
{
    return heads_by_avx2(tuning, problem, tile)
               ? heed_attn_decode_heads_avx2(tuning, problem, tile, scratch)
               : heed_attn_decode_heads_avx512(tuning, problem, tile, scratch);
}

HEED_SIMD_RUN_DECODE(run_decode, .head = decode_head, .heads = decode_heads,
                     .pairs = heed_attn_prefill_avx512, .weights = heed_attn_decode_weights_avx512)

static heed_status run_small(const void *machine, const void *state, const heed_problem *problem,
                             heed_tile *tile, void *scratch)
{
    const heed_simd_tuning *tuning = machine;
    if (!heed_simd_small_covers(tile) || tile->flags & HEED_TILE_OUTPUTS)
        return run_decode(machine, state, problem, tile, scratch);
    return HEED_AVX512_HAVE_AVX2 && tuning->small_avx2 ? heed_attn_small_avx2(problem, tile)
                                                       : heed_attn_small_avx512(problem, tile);
}

/* ---- attention by vdpbf16ps ------------------------------------------------------------------ */

static heed_status run_prefill_bf16(const void *machine, const void *state,
                                    const heed_problem *problem, heed_tile *tile, void *scratch)
{
    (void)state;
    return heed_attn_prefill_dot_avx512(machine, problem, tile, scratch);
}

/* Are the dims adjacent, pairs of which vdpbf16ps multiplies? */
static int has_pairs(const heed_tile *tile)
{
    return tile->k.dim_stride == 1 && tile->v.dim_stride == 1;
}

static heed_status decode_bf16_head(const heed_simd_tuning *tuning, const heed_problem *problem,
                                    heed_tile *tile, void *scratch)
{
    return has_pairs(tile) ? heed_attn_decode_dot_avx512(tuning, problem, tile, scratch)
                           : decode_head(tuning, problem, tile, scratch);
}

static heed_status decode_bf16_weights(const heed_simd_tuning *tuning, const heed_problem *problem,
                                       heed_tile *tile, void *scratch)
{
    return has_pairs(tile) ? heed_attn_decode_weights_dot_avx512(tuning, problem, tile, scratch)
                           : heed_attn_decode_weights_avx512(tuning, problem, tile, scratch);
}

HEED_SIMD_RUN_DECODE(run_decode_bf16, .head = decode_bf16_head,
                     .heads = heed_attn_decode_heads_dot_avx512, .pairs = heed_attn_prefill_avx512,
                     .weights = decode_bf16_weights)

/* ---- attention by vpdpbusd ------------------------------------------------------------------- */

HEED_SIMD_RUN_DECODE(run_decode_int8, .head = heed_attn_decode_int8_avx512,
                     .heads = heed_attn_decode_heads_int8_avx512, .pairs = heed_attn_prefill_avx512,
                     .weights = heed_attn_decode_weights_int8_avx512)

/* ---- kernels of attention -------------------------------------------------------------------- */

HEED_SIMD_ATTN(prefill, prefill, 0);
HEED_SIMD_ATTN(prefill_bf16, prefill, 0);
HEED_SIMD_ATTN(decode, decode, 0);
HEED_SIMD_ATTN(decode_bf16, decode, 0);
HEED_SIMD_ATTN(decode_int8, decode, 0);
HEED_SIMD_ATTN(small, small, HEED_KERNEL_FEW_KEYS);

/* ---- linear layers --------------------------------------------------------------------------- */

HEED_SIMD_LINEAR(linear, "products", heed_linear_tile_avx512);
HEED_SIMD_LINEAR(linear_bf16, "products_bf16", heed_linear_tile_dot_avx512);

/* ---- rows of a cache ------------------------------------------------------------------------- */

static const heed_append_kernel append = {
    .struct_size = sizeof append,
    .name = "append",
    .cost = 25,
    .supports = check_cpu,
    .run = heed_append_rows_avx512,
};

/* ---- the table ------------------------------------------------------------------------------- */

const heed_backend *heed_avx512_backend(void); /* declared by whoever lists the built-in backends */

const heed_backend *heed_avx512_backend(void)
{
    static const heed_attn_kernel *const attn[] = {&prefill,     &prefill_bf16, &decode,
                                                   &decode_bf16, &decode_int8,  &small};
    static const heed_linear_kernel *const layers[] = {&linear, &linear_bf16};
    static const heed_backend backend = {
        .abi = HEED_BACKEND_ABI,
        .struct_size = sizeof backend,
        .name = "avx512",
        .summary = "hand-written AVX-512 kernels: f32, f16 and bf16 in f32 arithmetic",
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
