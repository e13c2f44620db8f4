/* The decode tile against f64 loops: random shapes, types, strides and features, with NaN in all
 * that a row may not see; and the same bits from AVX2 and AVX-512 wherever K, V and Q are f32. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <immintrin.h>

#include "decode_case.h"
#include "here.h"

#ifndef CASES
#define CASES 4000
#endif

enum { MOST_ROWS = 144 };

typedef heed_status (*tile_function)(const heed_simd_tuning *, const heed_problem *, heed_tile *,
                                     void *);

/* The kernel that the avx2 backend would choose. */
static heed_status run_avx2(const heed_simd_tuning *tuning, const heed_problem *p, heed_tile *tile,
                            void *scratch)
{
    return (heed_simd_small_has_shape(p) && heed_simd_small_covers(tile))
               ? heed_attn_small_avx2(p, tile)
               : heed_attn_decode_avx2(tuning, p, tile, scratch);
}

static heed_status run_avx512(const heed_simd_tuning *tuning, const heed_problem *p,
                              heed_tile *tile, void *scratch)
{
    return (heed_simd_small_has_shape(p) && heed_simd_small_covers(tile))
               ? heed_attn_small_avx512(p, tile)
               : heed_attn_decode_avx512(tuning, p, tile, scratch);
}

static int sets; /* instruction sets that run here: AVX2, and AVX-512 */

/* The results of one instruction set for a case. */
typedef struct result {
    const char *isa;
    heed_tile tile; /* that of the case, with memory of its own to write to */
    float *state;   /* what the tile leaves: row_max, row_sum, acc */
    size_t state_bytes;
    tensor out, lse;
} result;

static void forget(result *got)
{
    memset(got->state, 0xff, got->state_bytes);
}

static void make_result(result *got, const decode_case *c, int avx512)
{
    const int64_t heads = c->problem.q_heads, q_len = c->tile.q_len;
    got->isa = avx512 ? "avx512" : "avx2";
    got->state_bytes = (size_t)(c->rows * (c->tile.acc_stride + 2)) * sizeof(float);
    got->state = malloc(got->state_bytes);
    if (!got->state)
        exit(99);
    forget(got);
    tensor_make(&got->out, HEED_F32, heads, q_len, c->problem.v_dim, 0);
    tensor_make(&got->lse, HEED_F32, heads, q_len, 1, 0);
    got->tile = c->tile;
    got->tile.flags = c->small ? HEED_TILE_WHOLE : 0;
    got->tile.out = got->out.rows;
    got->tile.lse = got->lse.rows;
    got->tile.row_max = got->state;
    got->tile.row_sum = got->tile.row_max + c->rows;
    got->tile.acc = got->tile.row_sum + c->rows;
}

static void free_result(result *got)
{
    free(got->state);
    free(got->out.memory);
    free(got->lse.memory);
}

/* The rows' maxima by the decode kernel, block by block; a finished tile has to have the same. */
static int find_maxima(const decode_case *c, heed_tile tile, tile_function run,
                       const heed_simd_tuning *tuning, void *scratch, float *maxima)
{
    const int64_t k_end = tile.k_end;
    int failures = 0;
    tile.flags = 0;
    for (int64_t r = 0; r < c->rows; r++)
        maxima[r] = -INFINITY;
    for (; tile.k_first < k_end; tile.k_first = tile.k_end) {
        tile.k_end = (tile.k_first / 16 + 1) * 16;
        tile.k_end = tile.k_end < k_end ? tile.k_end : k_end;
        if (run(tuning, &c->problem, &tile, scratch) != HEED_OK)
            failures++;
        for (int64_t r = 0; r < c->rows; r++)
            if (tile.row_sum[r] > 0 && tile.row_max[r] > maxima[r])
                maxima[r] = tile.row_max[r];
    }
    return failures;
}

/* Runs the tile. Returns the number of failures. */
static int compute(const decode_case *c, int avx512, void *scratch, result *got, uint64_t seed)
{
    const tile_function run = avx512 ? run_avx512 : run_avx2;
    const uint32_t cross = c->cross >> avx512 & 1 ? c->cross_rows : 0;
    const heed_simd_tuning tuning = {.lanes = 8,
                                     .fetched_l2 = c->fetched_l2 >> avx512 & 1,
                                     .any_dims = c->fetched_l2 >> avx512 & 1,
                                     .fetched = c->fetched >> avx512 & 1,
                                     .cross_f32 = {cross, cross, cross},
                                     .cross_half = {cross, cross, cross}};
    heed_tile *tile = &got->tile;
    float maxima[MOST_ROWS];
    int failures = 0;
    memset(scratch, 0xff, c->tiling.scratch_bytes);
    if (c->small) { /* the second pass relies on equal maxima */
        failures += find_maxima(c, *tile, run, &tuning, scratch, maxima);
        forget(got);
        tile->weights = tile->out; /* asked for, not written */
    }
    if (run(&tuning, &c->problem, tile, scratch) != HEED_OK)
        failures++;
    for (int64_t r = 0; tile->flags & HEED_TILE_FINISHED && r < c->rows; r++)
        if (tile->row_sum[r] > 0 && tile->row_max[r] != maxima[r]) {
            fprintf(stderr, "seed %llu row %lld: maximum %a, decode has %a\n",
                    (unsigned long long)seed, (long long)r, (double)tile->row_max[r],
                    (double)maxima[r]);
            failures++;
        }
    return failures;
}

/* What a row should give, in f64. */
typedef struct expected {
    int64_t keys; /* how many the row sees; 0: nothing else is of use */
    double top, sum, acc[256];
    double reach, largest_v; /* a score is a sum of terms of at most reach together */
} expected;

static double score(const decode_case *c, int64_t h, int64_t i, int64_t j, double *reach)
{
    const heed_problem *p = &c->problem;
    double x = 0;
    *reach = 0;
    for (int64_t d = 0; d < p->qk_dim; d++) {
        double product = tensor_at(&c->q, h, i, d) * tensor_at(&c->k, 0, j, d) * (double)p->scale;
        x += product;
        *reach += fabs(product);
    }
    if (p->softcap > 0) {
        x = (double)p->softcap * tanh(x / (double)p->softcap);
        *reach += (double)p->softcap;
    }
    if (c->tile.alibi_slope) {
        double term = (double)c->alibi[h] * (double)(j - i - c->tile.q_offset);
        x += term;
        *reach += fabs(term);
    }
    if (c->bias.memory) {
        double slope = c->tile.bias_slope ? (double)c->bias_slope[h] : 1;
        double term = tensor_at(&c->bias, h, i, j) * slope;
        x += term;
        *reach += fabs(term);
    }
    return x;
}

static void expect(const decode_case *c, int64_t r, expected *want)
{
    const char *seen = c->seen + r * c->tile.kv_len;
    const int64_t h = decode_case_head(c, r), i = decode_case_query(c, r);
    double s[256];
    *want = (expected){.top = -(double)INFINITY};
    for (int64_t j = c->tile.k_first; j < c->tile.k_end; j++) {
        double reach;
        if (!seen[j])
            continue;
        s[j] = score(c, h, i, j, &reach);
        want->top = s[j] > want->top ? s[j] : want->top;
        want->reach = reach > want->reach ? reach : want->reach;
        want->keys++;
    }
    for (int64_t j = c->tile.k_first; j < c->tile.k_end; j++) {
        if (!seen[j])
            continue;
        const double w = exp(s[j] - want->top);
        want->sum += w;
        for (int64_t d = 0; d < c->problem.v_dim; d++) {
            const double x = tensor_at(&c->v, 0, j, d);
            want->acc[d] += w * x;
            want->largest_v = fmax(want->largest_v, fabs(x));
        }
    }
}

/* Returns 1, with a message, if the result of a row that sees no key is not empty. */
static int compare_empty(const decode_case *c, const result *got, int64_t r, uint64_t seed)
{
    const int64_t h = decode_case_head(c, r), i = decode_case_query(c, r);
    const double out = tensor_at(&got->out, h, i, 0), lse = tensor_at(&got->lse, h, i, 0);
    if (got->tile.flags & HEED_TILE_FINISHED ? out == 0 && lse == -(double)INFINITY
                                             : got->tile.row_sum[r] == 0)
        return 0;
    fprintf(stderr, "seed %llu row %lld sees nothing and is not empty\n", (unsigned long long)seed,
            (long long)r);
    return 1;
}

static int compare_row(const decode_case *c, const result *got, int64_t r, uint64_t seed)
{
    const int64_t h = decode_case_head(c, r), i = decode_case_query(c, r);
    const heed_tile *tile = &got->tile;
    const int finished = (tile->flags & HEED_TILE_FINISHED) != 0;
    expected want;
    int failures = 0;
    expect(c, r, &want);
    if (want.keys == 0)
        return compare_empty(c, got, r, seed);
    /* A score is off by the roundings of a dot product, of its terms and of s - m, where each term
     * is at most reach; a weight by twice that and by exp2; the sums of n terms in blocks by
     * n / 16 + 16 roundings more. */
    const double score_error = (c->problem.qk_dim / 16.0 + 12) * want.reach * 0x1p-24;
    const double weight_error = 2 * score_error + (want.keys / 16.0 + 24) * 0x1p-24;
    const double want_lse = want.top + log(want.sum);
    const double lse =
        finished ? tensor_at(&got->lse, h, i, 0)
                 : (double)tile->row_max[r] * 0.6931471805599453 + log((double)tile->row_sum[r]);
    if (!(fabs(lse - want.top - log(want.sum)) <= weight_error * 1.5 + fabs(lse) * 0x1p-24)) {
        fprintf(stderr, "seed %llu %s row %lld: lse %g, want %g +- %g\n", (unsigned long long)seed,
                got->isa, (long long)r, lse, want_lse, weight_error);
        failures++;
    }
    for (int64_t d = 0; d < c->problem.v_dim; d++) {
        const double acc = (double)tile->acc[r * tile->acc_stride + d] / (double)tile->row_sum[r];
        const double out = finished ? tensor_at(&got->out, h, i, d) : acc;
        if (isnan(want.acc[d]) && isnan(out))
            continue;
        if (!(fabs(out - want.acc[d] / want.sum) <= 2 * weight_error * want.largest_v)) {
            fprintf(stderr, "seed %llu %s row %lld dim %lld: %g, want %g +- %g\n",
                    (unsigned long long)seed, got->isa, (long long)r, (long long)d, out,
                    want.acc[d] / want.sum, 2 * weight_error * want.largest_v);
            return failures + 1;
        }
    }
    return failures;
}

static int same_bits(const decode_case *c, const result got[2])
{
    const heed_problem *p = &c->problem;
    const size_t out_bytes = (size_t)(p->q_heads * c->tile.q_len * p->v_dim) * sizeof(float);
    return memcmp(got[0].state, got[1].state, got[0].state_bytes) == 0 &&
           memcmp(got[0].out.memory, got[1].out.memory, out_bytes) == 0;
}

/* Checks one case. Returns the number of failures. */
static int check(uint64_t seed)
{
    decode_case c;
    result got[2];
    int failures = 0;
    if (decode_case_draw(&c, seed) != HEED_OK)
        return 1;
    if (c.rows == 0)
        return 0;
    void *scratch = aligned_alloc(64, (c.tiling.scratch_bytes + 127) / 64 * 64);
    if (!scratch)
        exit(99);
    for (int avx512 = 0; avx512 < 2; avx512++) {
        make_result(&got[avx512], &c, avx512);
        if (avx512 >= sets)
            continue;
        failures += compute(&c, avx512, scratch, &got[avx512], seed);
        for (int64_t r = 0; r < c.rows; r++)
            failures += compare_row(&c, &got[avx512], r, seed);
    }
    const heed_problem *p = &c.problem;
    if (sets == 2 && p->q_type == HEED_F32 && p->k_type == HEED_F32 && p->v_type == HEED_F32 &&
        !same_bits(&c, got)) {
        fprintf(stderr, "seed %llu: AVX2 and AVX-512 differ\n", (unsigned long long)seed);
        failures++;
    }
    free_result(&got[0]);
    free_result(&got[1]);
    free(scratch);
    decode_case_free(&c);
    return failures;
}

int main(int argc, char **argv)
{
    int failures = 0;
    if (!runs_here(8))
        return 77;
    sets = runs_here(16) ? 2 : 1;
    _mm_setcsr(_mm_getcsr() | 0x8040); /* as core does: subnormal results and inputs are zero */
    if (argc > 1)
        return check(strtoull(argv[1], NULL, 0)) != 0;
    for (uint64_t seed = 1; seed <= CASES && failures < 20; seed++)
        failures += check(seed);
    return failures != 0;
}
