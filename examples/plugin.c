/*
 * A backend outside the tree, as small as possible: f32, no mask, no bias, one plain loop.
 *
 *     cc -shared -fPIC -O2 plugin.c -o heed_example.so -lm     (headers: pkg-config --cflags heed)
 *     HEED_PLUGIN_PATH=$PWD heed info                          shows it, or why it cannot be used
 *     HEED_PLUGIN_PATH=$PWD heed check --backend example       tests it
 *
 * Core asks for nothing outside `features`, and for keys and values of codes only with
 * HEED_HAS_QUANT. A problem that `supports` refuses goes to another kernel, with the reason shown.
 * The plugin links with libm alone, since what it uses of Heed is static inline in heed/kit.h.
 * backends/naive is a more complete backend, also in plain loops.
 */
#include <heed/backend.h>

static heed_status supports(const void *machine, const heed_problem *problem, heed_error *why)
{
    (void)machine;
    if (problem->q_type != HEED_F32 || problem->k_type != HEED_F32 || problem->v_type != HEED_F32)
        return heed_refuse(why, "q, k and v must be f32 here, not %s, %s and %s",
                           heed_dtype_name(problem->q_type), heed_dtype_name(problem->k_type),
                           heed_dtype_name(problem->v_type));
    return HEED_OK; /* out may have any type, since core writes it */
}

/* The cost in nanoseconds, by which core chooses among the kernels that support a problem: measure
 * yours. */
static double cost(const void *machine, const heed_problem *problem, int64_t q_len, int64_t kv_len)
{
    (void)machine;
    return (double)problem->q_heads * (double)q_len * (double)kv_len *
           (20 + (double)problem->qk_dim + (double)problem->v_dim);
}

static heed_status tiling(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    (void)machine;
    out->query_rows = 8;
    out->key_block = 64; /* matters for kernels that have masks or prepare K and V */
    out->scratch_bytes = problem->v_dim * sizeof(double);
    return HEED_OK;
}

static double element(const heed_rows *rows, int64_t head, int64_t row, int64_t dim)
{
    int64_t at = head * rows->head_stride + row * rows->row_stride + dim * rows->dim_stride;
    return (double)heed_load(HEED_F32, rows->data, at);
}

/* Computes the softmax state of every row: its greatest score m, the sum of exp(s - m) and the sum
 * of exp(s - m) * v. Core divides, rounds and writes the results. */
static heed_status run(const void *machine, const void *state, const heed_problem *problem,
                       heed_tile *tile, void *scratch)
{
    double *acc = scratch; /* f64, so that long sums need no care */
    (void)machine, (void)state;
    for (int64_t r = 0; r < tile->n_heads * tile->q_count; r++) {
        int64_t head = r / tile->q_count, i = tile->q_first + r % tile->q_count, first, end;
        double m = -(double)INFINITY, sum = 0;
        memset(acc, 0, problem->v_dim * sizeof *acc);
        heed_row_keys(tile, i, &first, &end); /* the keys that causality and a window leave */
        for (int64_t j = first; j < end; j++) {
            double s = 0, keep = 1, weight;
            for (int64_t d = 0; d < problem->qk_dim; d++)
                s += element(&tile->q, head, i, d) * element(&tile->k, 0, j, d);
            s = (double)(float)((double)problem->scale * s); /* overflows as in f32 */
            if (s > m) /* the sums so far are relative to the old maximum */
                keep = exp(m - s), m = s;
            weight = s == -(double)INFINITY ? 0 : exp(s - m); /* a NaN stays a NaN */
            sum = sum * keep + weight;
            for (int64_t d = 0; d < problem->v_dim; d++)
                acc[d] = acc[d] * keep + weight * element(&tile->v, 0, j, d);
        }
        tile->row_max[r] = (float)m;
        tile->row_sum[r] = (float)sum; /* 0 if the row saw no keys; acc is then 0 too */
        for (int64_t d = 0; d < problem->v_dim; d++)
            tile->acc[r * tile->acc_stride + d] = (float)acc[d];
    }
    return HEED_OK;
}

static const heed_attn_kernel loops = {
    .struct_size = sizeof loops,
    .name = "loops",
    .features = HEED_HAS_SCALE | HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_SINK | HEED_HAS_LSE |
                HEED_HAS_LENS, /* core does sinks, lse and the lengths of sequences */
    .supports = supports,
    .cost = cost,
    .tiling = tiling,
    .run = run};

const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size)
{
    static const heed_attn_kernel *const attn[] = {&loops};
    static const heed_backend backend = {.abi = HEED_BACKEND_ABI,
                                         .struct_size = sizeof backend,
                                         .name = "example",
                                         .summary = "the example plugin: f32 in plain loops",
                                         .attn = attn,
                                         .n_attn = 1};
    (void)host_struct_size; /* an older host ignores the members that it does not know */
    return host_abi == HEED_BACKEND_ABI ? &backend : NULL;
}
