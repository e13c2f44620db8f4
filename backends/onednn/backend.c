/* The oneDNN backend: oneDNN's matrix products with Heed's softmax between them. This file has the
 * table and the entry point of the plugin; library.c opens oneDNN, plan.c lays out a problem,
 * products.c makes and lends its products, tile.c computes attention and linear.c linear layers. */
#include "linear.h"
#include "onednn.h"

#include "../simd/range.h"

static heed_status open_library(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    const heed_status st = heed_onednn_open(cpu, why);
    *machine = heed_onednn_opened();
    return st;
}

static heed_status supports(const void *machine, const heed_problem *problem, heed_error *why)
{
    heed_onednn_layout layout;
    (void)machine;
    heed_status st = heed_check_factors(problem, why);
    return st == HEED_OK ? heed_onednn_lay_out(problem, &layout, why) : st;
}

static heed_status tiling(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    heed_onednn_layout layout;
    (void)machine;
    heed_status st = heed_onednn_lay_out(problem, &layout, NULL);
    if (st != HEED_OK)
        return st;
    out->query_rows = (uint32_t)layout.query_rows;
    out->key_block = (uint32_t)layout.key_block;
    out->key_chunk = (uint32_t)layout.key_chunk;
    out->state_log2 = 1;
    out->flush = HEED_FLUSH_RESULTS | HEED_FLUSH_INPUTS;
    out->scratch_bytes = layout.bytes;
    return HEED_OK;
}

/* Measured at 3 GHz with oneDNN 2.6, in nanoseconds: `each` for a multiply-add of a product;
 * `score` for the work around a score; `load` for an element of a key block to come from memory,
 * which is all that decode waits for; and `calls` for the calls of a block. Blocks are computed in
 * full, tiles with the next larger number of rows. */
static double cost(const void *machine, const heed_problem *problem, int64_t q_len, int64_t kv_len)
{
    const heed_onednn_library *library = machine;
    const double each = 0.0138, score = 0.19;
    double group = problem->q_heads / problem->kv_heads, dims = problem->qk_dim + problem->v_dim;
    double rows = group * (double)q_len, slower = library->slower;
    double tiles = ceil(rows / 256), keys = heed_average_keys(problem, q_len, kv_len);
    double blocks = ceil(keys / 256) + (problem->features & HEED_HAS_CAUSAL && q_len > 1 ? 0.5 : 0);
    int many = problem->query_class == HEED_QUERY_MANY;
    /* Few rows have larger blocks, which come from memory. */
    double load = many ? 0.1 : 0.33, calls = many ? 3500 : 900;
    if (rows < 8 && q_len > 1)
        rows = 8;
    return problem->kv_heads * blocks *
           (rows * 256 * (score + each * dims) * slower + tiles * (256 * dims * load + calls));
}

static const heed_attn_kernel products = {
    .struct_size = sizeof products,
    .name = "products",
    .features = HEED_HAS_SCALE | HEED_HAS_SOFTCAP | HEED_HAS_CAUSAL | HEED_HAS_WINDOW |
                HEED_HAS_ALIBI | HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE |
                HEED_HAS_SINK | HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_SCORES | HEED_HAS_LENS |
                HEED_HAS_PACKED | HEED_HAS_PAGES | HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS |
                HEED_HAS_MASK_FROM,
    .supports = supports,
    .cost = cost,
    .tiling = tiling,
    .run = heed_onednn_run_tile,
    .plan_create = heed_onednn_plan_create,
    .plan_destroy = heed_onednn_plan_destroy,
};

const heed_backend *heed_onednn_backend(void); /* declared by whoever lists the built-in backends */

const heed_backend *heed_onednn_backend(void)
{
    static const heed_attn_kernel *const attn[] = {&products};
    static const heed_linear_kernel *const layers[] = {&heed_onednn_linear};
    static const heed_backend backend = {
        .abi = HEED_BACKEND_ABI,
        .struct_size = sizeof backend,
        .name = "onednn",
        .summary = "matrix products of oneDNN",
        .open = open_library,
        .attn = attn,
        .n_attn = sizeof attn / sizeof *attn,
        .linear = layers,
        .n_linear = sizeof layers / sizeof *layers,
    };
    return &backend;
}

#ifdef HEED_ONEDNN_PLUGIN
const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size)
{
    (void)host_struct_size; /* members that an older host does not know are ignored there */
    return host_abi == HEED_BACKEND_ABI ? heed_onednn_backend() : NULL;
}
#endif
