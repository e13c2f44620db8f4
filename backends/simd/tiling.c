/* What the x86 backends decide from a problem: compiled for the baseline CPU. */
#include "prefill/layout.h"
#include "simd.h"

heed_status heed_simd_prefill_tiling(const heed_simd_tuning *tuning, const heed_problem *problem,
                                     heed_tiling *out)
{
    heed_prefill_layout layout, small;
    int64_t group = problem->q_heads / problem->kv_heads, rows;
    heed_prefill_lay_out(problem, tuning->lanes, &layout);
    heed_prefill_lay_out(problem, 8, &small); /* where a small tile goes to AVX2 */
    rows = layout.panels * HEED_PREFILL_PANEL(tuning->lanes) / group;
    out->query_rows = rows < 1 ? 1 : (uint32_t)rows;
    out->key_block = (uint32_t)layout.key_block;
    out->state_log2 = 1;
    out->flush = HEED_FLUSH_RESULTS | HEED_FLUSH_INPUTS;
    out->scratch_bytes = layout.bytes > small.bytes ? layout.bytes : small.bytes;
    out->kernel = heed_simd_dot_covers(tuning, problem) ? "prefill, vdpbf16ps" : "prefill, f32";
    return HEED_OK;
}

/* Does small/small.c serve so many keys of this problem, as far as strides let it? */
static int is_small(const heed_problem *p, double keys)
{
    const heed_tile tile = {
        .flags = HEED_TILE_WHOLE,
        .k_end = (int64_t)keys,
        .q = {.dim_stride = 1},
        .k = {.dim_stride = 1},
        .v = {.dim_stride = 1},
        .out = {.dim_stride = 1},
    };
    return heed_simd_small_covers(p, &tile);
}

heed_status heed_simd_tiling(const heed_simd_tuning *tuning, const heed_problem *problem,
                             heed_tiling *out)
{
    heed_prefill_layout layout;
    heed_status status;
    if (!heed_simd_decode_covers(tuning, problem))
        return heed_simd_prefill_tiling(tuning, problem, out);
    status = heed_simd_decode_tiling(tuning, problem, out);
    heed_prefill_lay_out(problem, tuning->lanes, &layout);
    if (problem->features & (HEED_HAS_WEIGHTS | HEED_HAS_SCORES) &&
        layout.bytes > out->scratch_bytes)
        out->scratch_bytes = layout.bytes;
    _Static_assert(HEED_SMALL_KEYS == 32, "the text of the kernel says so");
    if (is_small(problem, HEED_SMALL_KEYS))
        out->kernel = heed_simd_dot_covers(tuning, problem)
                          ? "decode, vdpbf16ps (up to 32 keys: small, f32)"
                          : "decode (up to 32 keys: small)";
    return status;
}

/* Keys that a row sees on average. */
static double visible_keys(const heed_problem *problem, double q_len, double kv_len)
{
    double left = problem->features & HEED_HAS_WINDOW && problem->window_left >= 0
                      ? (double)problem->window_left
                      : INFINITY;
    double right = problem->features & HEED_HAS_WINDOW && problem->window_right >= 0
                       ? (double)problem->window_right
                       : INFINITY;
    double keys = kv_len;
    if (problem->features & HEED_HAS_CAUSAL) {
        right = 0;
        keys -= (q_len < kv_len ? q_len : kv_len) / 2;
    }
    return left + right + 1 < keys ? left + right + 1 : keys;
}

/* Of one core. A panel of lanes works as long on one row as on all of them, and a score costs about
 * what 24 multiply-adds do. Few rows wait for their keys and values, which caches give at some 40
 * bytes a ns, and core finishes them, dim by dim. */
double heed_simd_cost(const heed_simd_tuning *tuning, const heed_problem *problem, int64_t q_len,
                      int64_t kv_len)
{
    double rows = (double)q_len * problem->q_heads, lanes = tuning->lanes;
    double keys = visible_keys(problem, (double)q_len, (double)kv_len);
    double adds_per_ns = lanes == 16 ? 82 : 52, work, row = 10;
    if (is_small(problem, keys))
        return 50 + rows * (3 + 0.6 * keys);
    if (heed_simd_dot_covers(tuning, problem))
        adds_per_ns *= 2;
    work = rows * keys * ((double)problem->qk_dim + (double)problem->v_dim + 24) / adds_per_ns;
    if (heed_simd_decode_covers(tuning, problem)) {
        double bytes = (double)heed_dtype_bytes(problem->k_type) * problem->qk_dim +
                       (double)heed_dtype_bytes(problem->v_type) * problem->v_dim;
        /* Wider vectors wait a little less. */
        double read = keys * problem->kv_heads * bytes / 40 + work / 16;
        work = work > read ? work : read;
        row = 30 + (double)problem->v_dim;
    }
    return 200 + rows * row + work;
}
