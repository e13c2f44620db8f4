/* What the x86 backends say of their kernels of attention: compiled for the baseline CPU. */
#include "prefill/layout.h"
#include "range.h"
#include "simd.h"

/* ---- supports ---------------------------------------------------------------------------------
 */

/* May the products of this problem be those of bf16, and are they fast here? */
static heed_status check_bf16(const heed_simd_tuning *tuning, const heed_problem *p,
                              heed_error *why)
{
    if (p->accuracy != HEED_ACCURACY_BF16 || p->q_type != HEED_BF16 || p->k_type != HEED_BF16 ||
        p->v_type != HEED_BF16)
        return heed_refuse(why, "it is for accuracy bf16 and q, k and v of bf16");
    return tuning->dot_bf16 ? HEED_OK
                            : heed_refuse(why, "vdpbf16ps does not exist or is slow here");
}

/* Query heads of a kv head from which on prefill takes few query rows, too: the rows of all of them fill
 * its panels, and a block of keys and values is read and widened once for all. Relative to decode, 8192
 * keys of 48 heads and more: 576 and 512 dims 0.73 to 0.90 of the time, 128 dims 0.80 to 1.02; by pairs
 * of 32 heads and more 0.71 to 0.88; of fewer heads up to 1.5 (Zen 4).
 *
 * So do several rows that make as many with their heads (HEED_QUERY_SEVERAL), relative to decode: 4096 keys,
 * groups of 4 and 8, 64 and 128 dims by AVX-512 f32 0.66 to 0.88, 16-bit 0.69 to 0.90, i8 0.71 to 0.79, by AVX2
 * 0.69 to 0.78, 0.85 to 0.94, 0.72 to 0.80; with a mask of a tree the same, where a mask hides a quarter of the
 * keys at random 0.30 to 0.47 and 0.40 to 0.55; of 40 to 512 keys 0.35 to 0.79 and 0.50 to 0.89. Of up to 32
 * keys, from 8 rows of up to 64 dims and 16 of more on, 0.41 to 0.91 and 0.98 at the most; fewer rows, up to
 * 3.2 (Intel Ice Lake). Products of integers are decode's. */
#define MANY_HEADS 48
#define MANY_HEADS_PAIRS 32

static heed_status check_rows(const heed_problem *problem, uint32_t heads, heed_error *why)
{
    const int integers = problem->accuracy == HEED_ACCURACY_INT8 && heed_is_code(problem->k_type);
    const int several = problem->query_class == HEED_QUERY_SEVERAL && !integers;
    return several || problem->query_class == HEED_QUERY_MANY ||
                   problem->q_heads / problem->kv_heads >= heads
               ? heed_check_factors(problem, why)
               : heed_refuse(why, "up to 16 query rows are decode's");
}

heed_status heed_simd_prefill_supports(const void *machine, const heed_problem *problem,
                                       heed_error *why)
{
    (void)machine;
    return check_rows(problem, MANY_HEADS, why);
}

heed_status heed_simd_prefill_bf16_supports(const void *machine, const heed_problem *problem,
                                            heed_error *why)
{
    heed_status st = check_rows(problem, MANY_HEADS_PAIRS, why);
    return st == HEED_OK ? check_bf16(machine, problem, why) : st;
}

heed_status heed_simd_decode_supports(const void *machine, const heed_problem *problem,
                                      heed_error *why)
{
    (void)machine;
    return problem->query_class != HEED_QUERY_MANY
               ? heed_check_factors(problem, why)
               : heed_refuse(why, "it serves up to 16 query rows; more are prefill's");
}

heed_status heed_simd_decode_bf16_supports(const void *machine, const heed_problem *problem,
                                           heed_error *why)
{
    heed_status st = heed_simd_decode_supports(machine, problem, why);
    return st == HEED_OK ? check_bf16(machine, problem, why) : st;
}

heed_status heed_simd_decode_int8_supports(const void *machine, const heed_problem *problem,
                                           heed_error *why)
{
    const heed_simd_tuning *tuning = machine;
    heed_status st = heed_simd_decode_supports(machine, problem, why);
    if (st != HEED_OK)
        return st;
    if (problem->accuracy != HEED_ACCURACY_INT8 || !heed_is_code(problem->k_type))
        return heed_refuse(why, "it is for accuracy int8 and keys of codes");
    if (problem->k_type == HEED_F8_E4M3)
        return heed_refuse(why, "codes of F8_E4M3 are no integers");
    return tuning->dot_int8
               ? HEED_OK
               : heed_refuse(why, "integer products of bytes do not exist or are slow here");
}

heed_status heed_simd_decode_vnni_supports(const void *machine, const heed_problem *problem,
                                           heed_error *why)
{
    const heed_simd_tuning *tuning = machine;
    heed_status st = heed_simd_decode_int8_supports(machine, problem, why);
    return st != HEED_OK || tuning->dot_vnni ? st : heed_refuse(why, "it needs AVX-VNNI");
}

heed_status heed_simd_small_supports(const void *machine, const heed_problem *problem,
                                     heed_error *why)
{
    heed_status st = heed_simd_decode_supports(machine, problem, why);
    if (st == HEED_OK && (heed_is_code(problem->k_type) || heed_is_code(problem->v_type)))
        return heed_refuse(why, "keys and values of codes are decode's");
    return st != HEED_OK ? st
           : heed_simd_small_has_shape(problem)
               ? HEED_OK
               : heed_refuse(why, "it serves qk_dim 8 and 16, v_dim "
                                  "8, 16, 24 and 32, without "
                                  "modifiers, masks and pages");
}

/* The most kv heads of a tile. Rows of several heads side by side make pieces that are long enough
 * for memory to give its full rate; with 32 heads even a few cache lines of each page do. */
#define MOST_KV_HEADS 32

/* ---- tiling -----------------------------------------------------------------------------------
 */

heed_status heed_simd_prefill_tiling(const void *machine, const heed_problem *problem,
                                     heed_tiling *out)
{
    const heed_simd_tuning *tuning = machine;
    heed_prefill_layout layout, small;
    int64_t group = problem->q_heads / problem->kv_heads, rows;
    heed_prefill_lay_out(problem, tuning->lanes, &layout);
    heed_prefill_lay_out(problem, 8, &small); /* where a small tile goes to AVX2 */
    rows = layout.panels * HEED_PREFILL_PANEL(tuning->lanes) / group;
    /* Whole panels of one head, if there are any: heads that share a mask then share
     * what is made of it. */
    if (problem->features & (HEED_HAS_MASK | HEED_HAS_BIAS) &&
        rows >= HEED_PREFILL_PANEL(tuning->lanes))
        rows -= rows % HEED_PREFILL_PANEL(tuning->lanes);
    out->query_rows = rows < 1 ? 1 : (uint32_t)rows;
    out->key_block = (uint32_t)layout.key_block;
    if (problem->query_class != HEED_QUERY_MANY) { /* for threads to share, as in decode */
        heed_tiling cut = {0};
        heed_decode_cut(problem, &cut);
        out->key_chunk = cut.key_chunk - cut.key_chunk % out->key_block;
    }
    out->wants_seen = 1;
    out->state_log2 = 1;
    out->flush = HEED_FLUSH_RESULTS | HEED_FLUSH_INPUTS;
    out->scratch_bytes = layout.bytes > small.bytes ? layout.bytes : small.bytes;
    return HEED_OK;
}

heed_status heed_simd_decode_tiling(const void *machine, const heed_problem *problem,
                                    heed_tiling *out)
{
    const heed_simd_tuning *tuning = machine;
    heed_prefill_layout layout;
    heed_decode_cut(problem, out);
    heed_prefill_lay_out(problem, tuning->lanes, &layout);
    if (problem->features & (HEED_HAS_WEIGHTS | HEED_HAS_SCORES) &&
        layout.bytes > out->scratch_bytes)
        out->scratch_bytes = layout.bytes;
    if (heed_decode_takes_heads(tuning, problem))
        out->kv_heads_beside = MOST_KV_HEADS;
    return HEED_OK;
}

heed_status heed_simd_small_tiling(const void *machine, const heed_problem *problem,
                                   heed_tiling *out)
{
    heed_status st = heed_simd_decode_tiling(machine, problem, out);
    if (!(problem->features & (HEED_HAS_WEIGHTS | HEED_HAS_SCORES)))
        out->kv_heads = out->kv_heads_beside = MOST_KV_HEADS;
    return st;
}

/* ---- cost -------------------------------------------------------------------------------------
 */

/* Nanoseconds of arithmetic on one core. A score costs about as much as 24 multiply-adds. products:
 * multiply-adds per lane of an instruction. */
static double work_of(const heed_simd_tuning *tuning, const heed_problem *problem, double rows,
                      double keys, double products)
{
    const double adds_per_ns = (tuning->lanes == 16 ? 82 : 52) * products;
    return rows * keys * ((double)problem->qk_dim + (double)problem->v_dim + 24) / adds_per_ns;
}

/* A kv head takes some 250 ns before its first products, with 8 rows as with 16 (4 to 32 keys, Zen 5). */
static double prefill_cost(const heed_simd_tuning *tuning, const heed_problem *problem,
                           int64_t q_len, int64_t kv_len, double products)
{
    const double rows = (double)q_len * problem->q_heads;
    const double keys = heed_average_keys(problem, q_len, kv_len);
    const double begin = 250.0 * problem->kv_heads;
    return begin + rows * 10 + work_of(tuning, problem, rows, keys, products);
}

/* Bytes of a row of K or V. */
static double row_bytes(uint32_t type, uint32_t dims)
{
    return (double)dims * heed_block_bytes(type) / heed_block_len(type);
}

/* Few rows wait for their keys and values, which caches give at some 40 bytes per ns. Core finishes
 * the rows, dim by dim. */
static double decode_cost(const heed_simd_tuning *tuning, const heed_problem *problem,
                          int64_t q_len, int64_t kv_len, double products)
{
    const double rows = (double)q_len * problem->q_heads;
    const double keys = heed_average_keys(problem, q_len, kv_len);
    const double work = work_of(tuning, problem, rows, keys, products);
    const double bytes =
        row_bytes(problem->k_type, problem->qk_dim) + row_bytes(problem->v_type, problem->v_dim);
    /* Wider vectors wait a little less. */
    const double read = keys * problem->kv_heads * bytes / 40 + work / 16;
    return 200 + rows * (30 + (double)problem->v_dim) + (work > read ? work : read);
}

double heed_simd_prefill_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                              int64_t kv_len)
{
    return prefill_cost(machine, problem, q_len, kv_len, 1);
}

double heed_simd_prefill_bf16_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                                   int64_t kv_len)
{
    return prefill_cost(machine, problem, q_len, kv_len, 2);
}

double heed_simd_decode_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                             int64_t kv_len)
{
    return decode_cost(machine, problem, q_len, kv_len, 1);
}

double heed_simd_decode_bf16_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                                  int64_t kv_len)
{
    return decode_cost(machine, problem, q_len, kv_len, 2);
}

/* Where memory is not the limit, integer products save a third of the arithmetic. */
double heed_simd_decode_int8_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                                  int64_t kv_len)
{
    return 0.9 * decode_cost(machine, problem, q_len, kv_len, 1.4);
}

/* A quarter of the instructions that AVX2 alone takes for the products. Not measured: no CPU that has
 * AVX-VNNI and no AVX-512 was at hand. */
double heed_simd_decode_vnni_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                                  int64_t kv_len)
{
    return 0.85 * decode_cost(machine, problem, q_len, kv_len, 1.8);
}

/* The same for both widths, except that the wider one is preferred where it does not stall. */
double heed_simd_small_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                            int64_t kv_len)
{
    const heed_simd_tuning *tuning = machine;
    const double rows = (double)q_len * problem->q_heads;
    const double keys = heed_average_keys(problem, q_len, kv_len);
    const double wide = tuning->lanes == 16 && !tuning->small_avx2 ? 0.95 : 1;
    return wide * (50 + rows * (3 + 0.6 * keys));
}
