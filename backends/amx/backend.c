/* The AMX backend: whether it can run here, which problems it serves and how they are cut into
 * tiles. The kernels are in attn_tile_amx.c and linear_amx.c. With HEED_AMX_MODEL: the same on the
 * model of the tile unit, for tests. */
#define _DEFAULT_SOURCE /* syscall */
#include "amx.h"

#include "../simd/range.h"

#ifdef HEED_AMX_MODEL
#define BACKEND_NAME "amx_model"
#define BACKEND_SUMMARY "the AMX kernels on a model of the tile unit in plain C (for tests)"
#else
#define BACKEND_NAME "amx"
#define BACKEND_SUMMARY "hand-written bf16 tile kernels for Intel AMX"
#endif

#ifndef HEED_AMX_MODEL
#include <cpuid.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

/* Linux grants the tile registers to a process on request (from 5.16 on). The request is made once.
 * Returns 0 or the error: EINVAL from a Linux that does not know the request, EPERM from a filter
 * or where a thread's signal stack is too small for the registers. */
static int tile_permission(void)
{
    static atomic_int known; /* 0: not yet asked, 1: granted, else 1 + the error */
    int answer = atomic_load(&known);
    if (answer == 0) {
        long refused = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
        answer = refused ? 1 + errno : 1;
        atomic_store(&known, answer);
    }
    return answer - 1;
}

heed_status heed_amx_isa(const heed_cpu *cpu, heed_error *why)
{
    static const struct {
        uint64_t bit;
        const char *name;
    } need[] = {{HEED_ISA_AMX_TILE, "AMX_TILE"},
                {HEED_ISA_AMX_BF16, "AMX_BF16"},
                {HEED_ISA_AVX512F, "AVX512F"},
                {HEED_ISA_AVX512BW, "AVX512BW"},
                {HEED_ISA_AVX512DQ, "AVX512DQ"},
                {HEED_ISA_AVX512VL, "AVX512VL"},
                {HEED_ISA_AVX512_BF16, "AVX512_BF16"},
                {HEED_ISA_FMA, "FMA"},
                {HEED_ISA_F16C, "F16C"}};
    for (size_t n = 0; n < sizeof need / sizeof *need; n++)
        if (!(cpu->isa & need[n].bit))
            return heed_refuse(why,
                               "needs %s, which this CPU, its OS or HEED_MAX_ISA does not give",
                               need[n].name);
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512vbmi"))
        return heed_refuse(why, "needs AVX512_VBMI, which this CPU does not have");
    return HEED_OK;
}

/* Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID. */
heed_status heed_amx_palette(const uint32_t tiles[4], const uint32_t products[4], heed_error *why)
{
    const unsigned tile_bytes = tiles[0] >> 16, row_bytes = tiles[1] & 0xffff;
    const unsigned registers = tiles[1] >> 16, rows = tiles[2] & 0xffff;
    const unsigned pairs = products[1] & 0xff, columns = products[1] >> 8 & 0xffff;
    if (tile_bytes && (tile_bytes < 1024 || row_bytes < 64 || registers < 8 || rows < 16))
        return heed_refuse(why,
                           "needs 8 tile registers of 16 rows x 64 bytes, this CPU has %u of %u "
                           "rows x %u bytes",
                           registers, rows, row_bytes);
    if (pairs && (pairs < 16 || columns < 64))
        return heed_refuse(why,
                           "needs tile products of 16 rows x 64 bytes, this CPU has %u rows x %u "
                           "bytes",
                           pairs, columns);
    return HEED_OK;
}

static heed_status palette_of_cpu(heed_error *why)
{
    uint32_t tiles[4] = {0}, products[4] = {0};
    __get_cpuid_count(0x1d, 1, &tiles[0], &tiles[1], &tiles[2], &tiles[3]);
    __get_cpuid_count(0x1e, 0, &products[0], &products[1], &products[2], &products[3]);
    return heed_amx_palette(tiles, products, why);
}

/* A tile product does the work of 512 multiply-adds of 16 floats. On the CPUs that were measured
 * it takes a sixteenth of their time; the rest of the kernels costs as much again. Where tiles
 * are less than four times as fast, the vector kernels are as good, and the factor returned
 * makes core choose them. Measured rates are far from that limit, so that noise does not change
 * the decision. */
double heed_amx_judge(double product_ns, double fma_ns, heed_error *note)
{
    const double times = 512 * fma_ns / product_ns;
    const int fast = times >= 4;
    heed_refuse(note, "tile products run at %.1f times the rate of AVX-512 f32 here: %s", times,
                fast ? "estimates are for such a unit"
                     : "taken only where it is asked for by name");
    return fast ? 1 : 1000;
}

static double cost_factor(heed_error *note)
{
    /* Ten times the ratio of the two rates, so that it fits one word; 0: not yet measured. */
    static atomic_int measured;
    int tenths = atomic_load(&measured);
    if (tenths == 0) {
        double product_ns, fma_ns, ratio;
        heed_rates_amx(&product_ns, &fma_ns);
        ratio = 10 * 512 * fma_ns / product_ns;
        tenths = ratio < 1 ? 1 : ratio > 1e6 ? 1000000 : (int)ratio;
        atomic_store(&measured, tenths);
    }
    return heed_amx_judge(1, (double)tenths / (10 * 512), note);
}

static heed_status open_machine(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    int error;
    if (heed_amx_isa(cpu, why) != HEED_OK)
        return HEED_ERR_UNSUPPORTED;
    error = tile_permission();
    if (error)
        return heed_refuse(why,
                           "the kernel refuses the permission to use the tile registers "
                           "(arch_prctl ARCH_REQ_XCOMP_PERM: %s)",
                           error == EPERM    ? "EPERM"
                           : error == EINVAL ? "EINVAL, Linux 5.16 is needed"
                           : error == ENOSYS ? "ENOSYS"
                                             : "refused");
    if (palette_of_cpu(why) != HEED_OK)
        return HEED_ERR_UNSUPPORTED;
    static const heed_amx_machine fast = {1}, slow = {1000};
    *machine = cost_factor(why) > 1 ? &slow : &fast;
    return HEED_OK;
}
#else
static heed_status open_machine(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    static const heed_amx_machine model = {1};
    (void)cpu, (void)why;
    *machine = &model;
    return HEED_OK;
}
#endif

static int is_served_type(uint32_t type)
{
    return type == HEED_F32 || type == HEED_F16 || type == HEED_BF16;
}

static int is_served_key(uint32_t type)
{
    return is_served_type(type) || heed_is_code(type);
}

/* What both attention kernels require. */
static heed_status check_problem(const heed_problem *p, heed_error *why)
{
    int all_bf16 = p->q_type == HEED_BF16 && p->k_type == HEED_BF16 && p->v_type == HEED_BF16;
    if (!is_served_type(p->q_type) || !is_served_key(p->k_type) || !is_served_key(p->v_type) ||
        !is_served_type(p->out_type))
        return heed_refuse(why, "serves f32, f16, bf16 and codes only");
    if (p->accuracy != HEED_ACCURACY_SPLIT && !(p->accuracy == HEED_ACCURACY_BF16 && all_bf16))
        return heed_refuse(why, "accuracy must be %s: tile products of %s are not exact",
                           all_bf16 ? "bf16 or split" : "split", all_bf16 ? "weights" : "f32");
    if (p->qk_dim > 4096 || p->v_dim > 4096)
        return heed_refuse(why, "head dims of up to 4096 only, got %u and %u", p->qk_dim, p->v_dim);
    return heed_check_factors(p, why);
}

static int is_split(const heed_problem *p)
{
    return amx_layout_of(p).parts == 2;
}

static heed_status supports(const void *machine, const heed_problem *p, heed_error *why)
{
    (void)machine;
    heed_status st = check_problem(p, why);
    return st == HEED_OK && is_split(p) ? heed_refuse(why, "it multiplies q, k and v of bf16 alone")
                                        : st;
}

static heed_status split_supports(const void *machine, const heed_problem *p, heed_error *why)
{
    (void)machine;
    heed_status st = check_problem(p, why);
    return st == HEED_OK && !is_split(p) ? heed_refuse(why, "q, k and v of bf16 need no splitting")
                                         : st;
}

/* Measured at 3 GHz: a tile product with the work around it takes about 9 ns, the softmax of 16
 * rows x 32 keys woven into products 30, packing 32 keys x 32 dims of K and V about 55 (reading,
 * transposing, writing, reading again). Few rows read a cache that lies in memory: there all of it
 * takes 240 (decode of 8192 keys on an Emerald Rapids: 1.25 of the time by AVX-512 with 8 rows a kv
 * head, 0.8 with 16). Estimated: blending in a mask adds 30, and softmax that is not
 * woven into products adds 80 (with tanh 250). */
static double amx_cost(const void *machine, const heed_problem *p, int64_t q_len, int64_t kv_len)
{
    const heed_amx_machine *m = machine;
    const amx_layout l = amx_layout_of(p);
    const uint64_t scored = HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_BIAS;
    double products = l.parts == 2 ? 3 : 1, rows = (double)q_len * l.heads, keys = (double)kv_len;
    double units = ceil(rows / 16) * ceil(keys / 32), steps = l.k_steps + l.v_pairs;
    double softmax = p->features & HEED_HAS_SOFTCAP         ? 280
                     : l.parts == 2 || p->features & scored ? 110
                     : p->features & HEED_HAS_MASK          ? 60
                                                            : 30;
    const double packing = p->query_class == HEED_QUERY_MANY ? 55 : 150;
    if (p->features & HEED_HAS_CAUSAL && q_len > 1)
        units *= 0.55;
    return m->cost_scale * p->kv_heads *
           (units * (steps * 2 * 9 * products + softmax) +
            ceil(keys / 32) * steps * packing * l.parts + 300);
}

static heed_status amx_tiling(const void *machine, const heed_problem *p, heed_tiling *out)
{
    (void)machine;
    const amx_layout l = amx_layout_of(p);
    out->query_rows = (uint32_t)l.query_rows;
    out->key_block = AMX_BLOCK;
    /* With few query rows, only keys can be spread over threads. The more rows a kv head has, the
     * longer the chunks: a chunk's state has to stay small beside its keys and values. */
    out->key_chunk = p->query_class == HEED_QUERY_MANY  ? 0
                     : p->query_class == HEED_QUERY_ONE ? 1024
                                                        : 1024 * (((uint32_t)l.heads + 3) / 4);
    out->state_log2 = 1;
    out->scratch_bytes = (size_t)l.scratch_bytes;
    out->prepare_bytes = (size_t)l.block_bytes;
    return HEED_OK;
}

static heed_status linear_supports(const void *machine, const heed_linear_problem *p,
                                   heed_error *why)
{
    (void)machine;
    if (p->x_type != HEED_BF16 || p->w_type != HEED_BF16 || p->accuracy != HEED_ACCURACY_BF16)
        return heed_refuse(why,
                           "linear layers need x and w in bf16 and accuracy bf16: tile products "
                           "take bf16 alone");
    return HEED_OK;
}

/* A tile product with the work around it takes about 7 ns, whether it has one row or 16. Few rows
 * take the time of reading the weights, at 20 bytes per ns. */
static double linear_cost(const void *machine, const heed_linear_problem *p, int64_t rows)
{
    const heed_amx_machine *m = machine;
    const double row_tiles = (double)((rows + 15) / 16), steps = (double)heed_amx_linear_steps(p);
    const double work = row_tiles * steps * (double)((p->out_dim + 15) / 16) * 7;
    const double read = (double)p->in_dim * p->out_dim * 2 / 20;
    const double around = (double)rows * (p->out_dim * 0.2 + p->in_dim * 0.05);
    return m->cost_scale * (500 + around + (rows > 0 && read > work ? read : work));
}

static heed_status linear_tiling(const void *machine, const heed_linear_problem *p,
                                 heed_linear_tiling *out)
{
    (void)machine;
    out->rows = AMX_LINEAR_ROWS;
    out->cols = AMX_LINEAR_COLS;
    out->panel_cols = AMX_PANEL;
    out->flush = HEED_FLUSH_RESULTS | HEED_FLUSH_INPUTS;
    out->panel_bytes = (size_t)heed_amx_linear_steps(p) * 2048;
    out->scratch_bytes =
        heed_amx_linear_x_bytes(p) +
        (p->in_dim <= AMX_LINEAR_BLOCK ? 2 * 4096 : AMX_LINEAR_ROWS * AMX_LINEAR_COLS * 4);
    return HEED_OK;
}

#define FEATURES                                                                                   \
    (HEED_HAS_SCALE | HEED_HAS_SOFTCAP | HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_ALIBI |      \
     HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE | HEED_HAS_SINK | HEED_HAS_LSE |          \
     HEED_HAS_WEIGHTS | HEED_HAS_SCORES | HEED_HAS_LENS | HEED_HAS_PACKED | HEED_HAS_PAGES |       \
     HEED_HAS_REPRODUCIBLE_CHUNKS | HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS | HEED_HAS_MASK_FROM)

static const heed_attn_kernel tiles = {
    .struct_size = sizeof tiles,
    .name = "tiles",
    .features = FEATURES,
    .supports = supports,
    .cost = amx_cost,
    .tiling = amx_tiling,
    .run = AMX_NAME(run_tile),
    .prepare = AMX_NAME(prepare),
};

/* f32 and f16 values as two bf16 each, multiplied in three products; codes by their f32 values. */
static const heed_attn_kernel tiles_split = {
    .struct_size = sizeof tiles_split,
    .name = "tiles_split",
    .features = FEATURES | HEED_HAS_QUANT,
    .supports = split_supports,
    .cost = amx_cost,
    .tiling = amx_tiling,
    .run = AMX_NAME(run_tile),
    .prepare = AMX_NAME(prepare),
};

static const heed_linear_kernel linear = {
    .struct_size = sizeof linear,
    .name = "tiles",
    .supports = linear_supports,
    .cost = linear_cost,
    .tiling = linear_tiling,
    .pack = AMX_NAME(linear_pack),
    .run = AMX_NAME(linear_tile),
};

const heed_backend *AMX_NAME(backend)(void)
{
    static const heed_attn_kernel *const attn[] = {&tiles, &tiles_split};
    static const heed_linear_kernel *const layers[] = {&linear};
    static const heed_backend backend = {
        .abi = HEED_BACKEND_ABI,
        .struct_size = sizeof(heed_backend),
        .name = BACKEND_NAME,
        .summary = BACKEND_SUMMARY,
        .open = open_machine,
        .attn = attn,
        .n_attn = sizeof attn / sizeof *attn,
        .linear = layers,
        .n_linear = sizeof layers / sizeof *layers,
    };
    return &backend;
}
