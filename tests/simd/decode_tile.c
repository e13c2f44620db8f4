/* The decode tile against f64 loops: random shapes, types, strides and features, with NaN in all
 * that a row may not see; and the same bits from AVX2 and AVX-512 wherever K, V and Q are f32. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <immintrin.h>

#include "../../backends/simd/simd.h"
#include "../kit/random.h"

enum { CASES = 4000, MAX_ELEMENTS = 1 << 20 };

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
    return (uint32_t)(kit_next(&random_state) % n);
}

static float random_normal(void)
{
    return (float)kit_normal(kit_next(&random_state));
}

/* A tensor of [head, row, dim] in a buffer that holds NaN everywhere else. */
typedef struct tensor {
    heed_rows rows;
    uint32_t type;
    void *memory;
    const int32_t *pages; /* NULL: none. Else row i is i % page_len of page pages[i / page_len] */
    uint32_t page_len;
} tensor;

static void *nan_memory(uint32_t type, size_t elements)
{
    char *memory = malloc(elements * heed_dtype_bytes(type));
    if (!memory)
        exit(99);
    for (size_t i = 0; i < elements; i++)
        heed_store(type, memory, (int64_t)i, NAN);
    return memory;
}

static void make(tensor *t, uint32_t type, int64_t heads, int64_t rows, int64_t dims, int layout)
{
    int64_t gap = layout == 2 ? 2 : 1, odd = layout == 3 ? 1 : 0;
    size_t elements = (size_t)(heads * rows * dims * gap + 64);
    t->type = type;
    t->memory = nan_memory(type, elements);
    t->rows.dim_stride = gap;
    t->rows.row_stride = layout == 1 ? heads * dims : dims * gap; /* 1: token-major */
    t->rows.head_stride = layout == 1 ? dims : rows * dims * gap;
    t->rows.data = (char *)t->memory + odd * heed_dtype_bytes(type);
    if (layout == 4) { /* rows backwards */
        t->rows.data = (char *)t->rows.data +
                       (rows - 1) * t->rows.row_stride * (int64_t)heed_dtype_bytes(type);
        t->rows.row_stride = -t->rows.row_stride;
    }
}

static int64_t place(const tensor *t, int64_t h, int64_t i, int64_t d)
{
    if (t->pages)
        i = t->pages[i / t->page_len] * (int64_t)t->page_len + i % t->page_len;
    return h * t->rows.head_stride + i * t->rows.row_stride + d * t->rows.dim_stride;
}

static double at(const tensor *t, int64_t h, int64_t i, int64_t d)
{
    return (double)heed_load(t->type, t->rows.data, place(t, h, i, d));
}

static void fill(const tensor *t, int64_t h, int64_t i, int64_t dims, float scale)
{
    for (int64_t d = 0; d < dims; d++)
        heed_store(t->type, t->rows.data, place(t, h, i, d), scale * random_normal());
}

typedef heed_status (*tile_function)(const heed_simd_tuning *, const heed_problem *, heed_tile *,
                                     void *);

/* As the backends choose. */
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

static int can_run(int avx512)
{
    __builtin_cpu_init();
    if (avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static float pick(const float *from, uint32_t n)
{
    return from[random_below(n)];
}

/* One case. Returns the number of failures. */
static int check(uint64_t seed)
{
    static const uint32_t types[] = {HEED_F32, HEED_F16, HEED_BF16};
    static const int64_t dims[] = {1, 3, 8, 16, 20, 31, 32, 64, 80, 100, 128, 192, 256};
    static const float scales[] = {0.125f, 0.5f, -0.25f, 1.0f};
    heed_problem p = {.struct_size = sizeof p, .kv_heads = 1};
    heed_simd_tuning tuning = {.lanes = 8};
    heed_tiling tiling = {.struct_size = sizeof tiling};
    heed_tile tile = {.struct_size = sizeof tile};
    tensor q = {0}, k = {0}, v = {0}, mask = {0}, bias = {0};
    float alibi[16], bias_slope[16];
    int failures = 0, plain_f32;

    random_state = kit_mix(seed);
    plain_f32 = random_below(2) == 0;
    p.q_heads = 1 + random_below(9);
    p.qk_dim = (uint32_t)dims[random_below(13)];
    p.v_dim = random_below(2) ? p.qk_dim : (uint32_t)dims[random_below(13)];
    p.q_type = plain_f32 ? HEED_F32 : types[random_below(3)];
    p.k_type = plain_f32 ? HEED_F32 : types[random_below(3)];
    p.v_type = plain_f32 ? HEED_F32 : types[random_below(3)];
    p.out_type = HEED_F32;
    p.scale = pick(scales, 4);
    int small = random_below(4) == 0; /* what heed_simd_small_covers, mostly */
    if (small) {
        p.qk_dim = 8 * (1 + random_below(2)), p.v_dim = 8 * (1 + random_below(4));
        tile.flags = HEED_TILE_WHOLE;
    }
    int whole = !small && random_below(3) == 0; /* what decode/run.inc.h reads in runs, mostly */
    if (whole) {
        p.qk_dim = p.v_dim = 64 * (1 + random_below(2));
        p.v_type = p.k_type;
    }
    const int plain = small || whole;
    if (!plain && random_below(3) == 0)
        p.features |= HEED_HAS_MASK;
    if (!plain && random_below(3) == 0)
        p.features |= HEED_HAS_BIAS | (random_below(2) ? HEED_HAS_BIAS_SLOPE : 0);
    if (!plain && random_below(4) == 0)
        p.features |= HEED_HAS_ALIBI;
    if (!plain && random_below(4) == 0)
        p.features |= HEED_HAS_SOFTCAP;
    p.scale *= small && random_below(2) ? 1e6f : 1; /* where a rounding is a whole unit */
    p.softcap = p.features & HEED_HAS_SOFTCAP ? 2.0f + (float)random_below(30) : 0;
    p.bias_type = p.features & HEED_HAS_BIAS ? types[random_below(3)] : 0;

    int64_t q_len = random_below(2) ? 1 : 1 + random_below(16),
            kv_len = 1 + random_below(small ? 34 : 200);
    p.query_class = q_len == 1 ? HEED_QUERY_ONE : HEED_QUERY_FEW;
    if (heed_simd_decode_tiling(&tuning, &p, &tiling) != HEED_OK)
        return 1;
    int64_t runs = (q_len + tiling.query_rows - 1) / tiling.query_rows;
    tile.q_first = random_below((uint32_t)runs) * tiling.query_rows;
    tile.q_count = q_len - tile.q_first;
    if (tile.q_count > tiling.query_rows)
        tile.q_count = tiling.query_rows;
    tile.n_heads = p.q_heads;
    tile.kv_heads = 1;
    tile.group = p.q_heads;
    tile.q_len = q_len, tile.kv_len = kv_len;
    tile.q_offset = random_below(2) ? kv_len - q_len : (int64_t)random_below(60) - 20;
    tile.window_left = random_below(2) ? HEED_UNBOUNDED : (int64_t)random_below(50);
    tile.window_right = random_below(2)   ? HEED_UNBOUNDED
                        : random_below(2) ? 0
                                          : (int64_t)random_below(50);
    /* What core does: cut the chunk to the keys that some row sees. */
    tile.k_first = 0, tile.k_end = kv_len;
    if (random_below(3) == 0) {
        tile.k_first = random_below((uint32_t)kv_len);
        tile.k_end = tile.k_first + 1 + random_below((uint32_t)(kv_len - tile.k_first));
    }
    int64_t first, end, unused;
    heed_row_keys(&tile, tile.q_first, &first, &unused);
    heed_row_keys(&tile, tile.q_first + tile.q_count - 1, &unused, &end);
    tile.k_first = first, tile.k_end = end;
    if (first >= end)
        return 0;

    /* In pages, in reverse order. */
    static const uint32_t page_lens[] = {1, 5, 16, 16, 32, 48};
    int32_t pages[256];
    int64_t rows_of_k = kv_len;
    if (!small && random_below(3) == 0) {
        p.features |= HEED_HAS_PAGES;
        p.page_len = page_lens[random_below(6)];
        const int64_t n = (kv_len + p.page_len - 1) / p.page_len;
        for (int64_t i = 0; i < n; i++)
            pages[i] = (int32_t)(n - 1 - i);
        rows_of_k = n * p.page_len;
    }
    make(&q, p.q_type, p.q_heads, q_len, p.qk_dim, (int)random_below(4));
    make(&k, p.k_type, 3, rows_of_k, p.qk_dim, whole ? 0 : (int)random_below(5));
    make(&v, p.v_type, 3, rows_of_k, p.v_dim, whole ? 0 : (int)random_below(5));
    for (uint32_t h = 0; h < p.q_heads; h++) {
        for (int64_t i = tile.q_first; i < tile.q_first + tile.q_count; i++)
            fill(&q, h, i, p.qk_dim, 1);
        alibi[h] = 0.25f / (float)(h + 1);
        bias_slope[h] = 0.5f + (float)h;
    }
    tile.q = q.rows, tile.k = k.rows, tile.v = v.rows;
    if (p.page_len) {
        tile.pages = k.pages = v.pages = pages;
        k.page_len = v.page_len = p.page_len;
        tile.k_page_stride = p.page_len * k.rows.row_stride;
        tile.v_page_stride = p.page_len * v.rows.row_stride;
    }
    if (p.features & HEED_HAS_ALIBI)
        tile.alibi_slope = alibi;
    uint8_t *mask_memory = NULL;
    int mask_dim = random_below(4) ? 1 : 2, density = 1 + (int)random_below(3);
    if (p.features & HEED_HAS_MASK) {
        size_t n = (size_t)(p.q_heads * q_len * kv_len * mask_dim);
        mask_memory = malloc(n);
        if (!mask_memory)
            exit(99);
        for (size_t i = 0; i < n; i++)
            mask_memory[i] =
                (uint8_t)(random_below(4) < (uint32_t)density ? 1 + random_below(255) : 0);
        mask.rows = (heed_rows){mask_memory, random_below(2) ? q_len * kv_len * mask_dim : 0,
                                kv_len * mask_dim, mask_dim};
        tile.mask = mask.rows;
    }
    if (p.features & HEED_HAS_BIAS) {
        make(&bias, p.bias_type, p.q_heads, q_len, kv_len, random_below(4) ? 0 : 2);
        for (uint32_t h = 0; h < p.q_heads; h++)
            for (int64_t i = 0; i < q_len; i++) {
                fill(&bias, h, i, kv_len, 1);
                for (int64_t j = 0; j < kv_len; j++)
                    if (random_below(8) == 0)
                        heed_store(p.bias_type, bias.rows.data, place(&bias, h, i, j), -INFINITY);
            }
        tile.bias = bias.rows;
        if (p.features & HEED_HAS_BIAS_SLOPE)
            tile.bias_slope = bias_slope;
    }

    /* Keys that some row sees get values; all other memory stays NaN. */
    int64_t rows = tile.n_heads * tile.q_count;
    char *seen = calloc((size_t)(rows * kv_len), 1);
    if (!seen)
        exit(99);
    for (int64_t j = tile.k_first; j < tile.k_end; j++) {
        int any = 0;
        for (int64_t r = 0; r < rows; r++) {
            int64_t h = r / tile.q_count, i = tile.q_first + r % tile.q_count, low, high;
            heed_row_keys(&tile, i, &low, &high);
            int yes = j >= low && j < high;
            if (yes && mask_memory)
                yes = mask_memory[h * mask.rows.head_stride + i * mask.rows.row_stride +
                                  j * mask_dim] != 0;
            if (yes && bias.memory)
                yes = at(&bias, h, i, j) != -(double)INFINITY;
            seen[r * kv_len + j] = (char)yes;
            any |= yes;
        }
        if (any || random_below(2)) {
            fill(&k, 0, j, p.qk_dim, 1);
            fill(&v, 0, j, p.v_dim, 1);
        }
    }

    if (random_below(3) == 0) { /* a NaN that some rows see reaches them, and no others */
        int64_t j = tile.k_first + random_below((uint32_t)(tile.k_end - tile.k_first));
        heed_store(p.v_type, v.rows.data, place(&v, 0, j, 0), NAN);
    }

    const uint32_t streams = whole ? random_below(4) : 0; /* a bit per instruction set */
    const uint32_t cross = whole ? random_below(4) : 0, cross_rows = 1 + random_below(9);
    float *state[2];
    tensor out[2] = {0}, lse_out[2] = {0};
    void *scratch = aligned_alloc(64, (tiling.scratch_bytes + 127) / 64 * 64);
    tile.acc_stride = p.v_dim + random_below(3);
    size_t state_floats = (size_t)(rows * (tile.acc_stride + 2));
    for (int isa = 0; isa < 2; isa++) {
        tuning.streams = streams >> isa & 1;
        tuning.cross_f32 = tuning.cross_half = cross >> isa & 1 ? cross_rows : 0;
        tile_function run = isa ? run_avx512 : run_avx2;
        state[isa] = malloc(state_floats * sizeof(float));
        if (!state[isa] || !scratch)
            exit(99);
        memset(state[isa], 0xff, state_floats * sizeof(float));
        memset(scratch, 0xff, tiling.scratch_bytes);
        tile.flags = small ? HEED_TILE_WHOLE : 0;
        make(&out[isa], HEED_F32, p.q_heads, q_len, p.v_dim, 0);
        make(&lse_out[isa], HEED_F32, p.q_heads, q_len, 1, 0);
        tile.out = out[isa].rows, tile.lse = lse_out[isa].rows;
        tile.row_max = state[isa];
        tile.row_sum = tile.row_max + rows;
        tile.acc = tile.row_sum + rows;
        if (!can_run(isa))
            continue;
        float unfinished_max[144];
        if (small) { /* what the second pass relies on: decode's own scores, and so their maximum */
            const int64_t k_first = tile.k_first, k_end = tile.k_end;
            tile.flags = 0;
            for (int64_t r = 0; r < rows; r++)
                unfinished_max[r] = -INFINITY;
            for (; tile.k_first < k_end; tile.k_first = tile.k_end) { /* block by block */
                tile.k_end = (tile.k_first / 16 + 1) * 16;
                tile.k_end = tile.k_end < k_end ? tile.k_end : k_end;
                if (run(&tuning, &p, &tile, scratch) != HEED_OK)
                    failures++;
                for (int64_t r = 0; r < rows; r++)
                    if (tile.row_sum[r] > 0 && tile.row_max[r] > unfinished_max[r])
                        unfinished_max[r] = tile.row_max[r];
            }
            tile.k_first = k_first, tile.k_end = k_end;
            memset(state[isa], 0xff, state_floats * sizeof(float));
            tile.flags = HEED_TILE_WHOLE;
            tile.weights = tile.out; /* asked for, not written */
        }
        if (run(&tuning, &p, &tile, scratch) != HEED_OK)
            failures++;
        for (int64_t r = 0; tile.flags & HEED_TILE_FINISHED && r < rows; r++)
            if (tile.row_sum[r] > 0 && tile.row_max[r] != unfinished_max[r]) {
                fprintf(stderr, "seed %llu row %lld: maximum %a, decode has %a\n",
                        (unsigned long long)seed, (long long)r, (double)tile.row_max[r],
                        (double)unfinished_max[r]);
                failures++;
            }
        for (int64_t r = 0; r < rows; r++) {
            int64_t h = r / tile.q_count, i = tile.q_first + r % tile.q_count;
            int finished = (tile.flags & HEED_TILE_FINISHED) != 0;
            double top = -(double)INFINITY, sum = 0, size = 0, largest_v = 0;
            double s[256], want[256] = {0};
            int64_t n = 0;
            for (int64_t j = tile.k_first; j < tile.k_end; j++) {
                double x = 0, reach = 0;
                s[j] = -(double)INFINITY;
                if (!seen[r * kv_len + j])
                    continue;
                for (int64_t d = 0; d < p.qk_dim; d++) {
                    double product = at(&q, h, i, d) * at(&k, 0, j, d) * (double)p.scale;
                    x += product, reach += fabs(product);
                }
                if (p.softcap > 0) {
                    x = (double)p.softcap * tanh(x / (double)p.softcap);
                    reach += (double)p.softcap;
                }
                if (tile.alibi_slope) {
                    double term = (double)alibi[h] * (double)(j - i - tile.q_offset);
                    x += term, reach += fabs(term);
                }
                if (bias.memory) {
                    double term =
                        at(&bias, h, i, j) * (tile.bias_slope ? (double)bias_slope[h] : 1);
                    x += term, reach += fabs(term);
                }
                s[j] = x;
                top = x > top ? x : top;
                size = reach > size ? reach : size;
                n++;
            }
            for (int64_t j = tile.k_first; j < tile.k_end; j++) {
                double w = n && seen[r * kv_len + j] ? exp(s[j] - top) : 0;
                sum += w;
                for (int64_t d = 0; d < p.v_dim && seen[r * kv_len + j]; d++) {
                    want[d] += w * at(&v, 0, j, d);
                    largest_v = fmax(largest_v, fabs(at(&v, 0, j, d)));
                }
            }
            if (n == 0) {
                double first_out = at(&out[isa], h, i, 0), its_lse = at(&lse_out[isa], h, i, 0);
                if (finished ? !(first_out == 0 && its_lse == -(double)INFINITY)
                             : !(tile.row_sum[r] == 0)) {
                    fprintf(stderr, "seed %llu row %lld sees nothing and is not empty\n",
                            (unsigned long long)seed, (long long)r);
                    failures++;
                }
                continue;
            }
            /* A score is off by the roundings of a dot product, of its terms and of s - m, where
             * each term is at most size; a weight by twice that and by exp2; the sums of n terms in
             * blocks by n / 16 + 16 roundings more. */
            double score_error = (p.qk_dim / 16.0 + 12) * size * 0x1p-24;
            double weight_error = 2 * score_error + (n / 16.0 + 24) * 0x1p-24;
            double lse =
                (double)tile.row_max[r] * 0.6931471805599453 + log((double)tile.row_sum[r]);
            if (finished)
                lse = at(&lse_out[isa], h, i, 0);
            if (!(fabs(lse - top - log(sum)) <= weight_error * 1.5 + fabs(lse) * 0x1p-24)) {
                fprintf(stderr, "seed %llu %s row %lld: lse %g, want %g +- %g\n",
                        (unsigned long long)seed, isa ? "avx512" : "avx2", (long long)r, lse,
                        top + log(sum), weight_error);
                failures++;
            }
            for (int64_t d = 0; d < p.v_dim; d++) {
                double got = (double)tile.acc[r * tile.acc_stride + d] / (double)tile.row_sum[r];
                if (finished)
                    got = at(&out[isa], h, i, d);
                if (isnan(want[d]) && isnan(got))
                    continue;
                if (!(fabs(got - want[d] / sum) <= 2 * weight_error * largest_v)) {
                    fprintf(stderr, "seed %llu %s row %lld dim %lld: %g, want %g +- %g\n",
                            (unsigned long long)seed, isa ? "avx512" : "avx2", (long long)r,
                            (long long)d, got, want[d] / sum, 2 * weight_error * largest_v);
                    failures++;
                    break;
                }
            }
        }
    }
    size_t out_bytes = (size_t)(p.q_heads * q_len * p.v_dim) * sizeof(float);
    if (can_run(1) && p.q_type == HEED_F32 && p.k_type == HEED_F32 && p.v_type == HEED_F32 &&
        (memcmp(state[0], state[1], state_floats * sizeof(float)) != 0 ||
         memcmp(out[0].memory, out[1].memory, out_bytes) != 0)) {
        fprintf(stderr, "seed %llu: AVX2 and AVX-512 differ\n", (unsigned long long)seed);
        failures++;
    }
    free(out[0].memory), free(out[1].memory), free(lse_out[0].memory), free(lse_out[1].memory);
    free(state[0]), free(state[1]), free(scratch), free(seen), free(mask_memory);
    free(q.memory), free(k.memory), free(v.memory), free(bias.memory);
    return failures;
}

/* Heads together write to as much scratch memory as the tiling asked for, however many rows of
 * those that a tile may have it has. */
static int check_scratch(void)
{
    enum { HEADS = 8, DIM = 128, KEYS = 64, MOST = 256 };
    static float acc[HEADS][MOST][DIM], sums[2][HEADS][MOST], q[DIM];
    static uint16_t kv[KEYS][HEADS][DIM];
    const size_t behind = 1 << 17;
    int failures = 0;
    for (uint32_t group = 1; group <= 128; group++) {
        const heed_simd_tuning tuning = {.lanes = 8, .streams = 1};
        const heed_problem p = {.struct_size = sizeof p,
                                .q_heads = group * HEADS,
                                .kv_heads = HEADS,
                                .qk_dim = DIM,
                                .v_dim = DIM,
                                .q_type = HEED_F32,
                                .k_type = HEED_BF16,
                                .v_type = HEED_BF16,
                                .out_type = HEED_F32,
                                .query_class = HEED_QUERY_FEW,
                                .accuracy = HEED_ACCURACY_EXACT,
                                .scale = 1};
        heed_tiling tiling = {.struct_size = sizeof tiling};
        heed_simd_decode_tiling(&tuning, &p, &tiling);
        const size_t size = (tiling.scratch_bytes + 63) / 64 * 64;
        unsigned char *scratch = aligned_alloc(64, size + behind);
        if (!scratch)
            return 1;
        for (uint32_t rows = 1; rows <= tiling.query_rows; rows++) {
            const heed_tile tile = {.struct_size = sizeof tile,
                                    .n_heads = group * HEADS,
                                    .kv_heads = HEADS,
                                    .group = group,
                                    .q_count = rows,
                                    .q_len = rows,
                                    .k_end = KEYS,
                                    .kv_len = KEYS,
                                    .window_left = HEED_UNBOUNDED,
                                    .window_right = HEED_UNBOUNDED,
                                    .q = {q, 0, 0, 1},
                                    .k = {kv, DIM, HEADS * DIM, 1},
                                    .v = {kv, DIM, HEADS * DIM, 1},
                                    .row_max = sums[0][0],
                                    .row_sum = sums[1][0],
                                    .acc = acc[0][0],
                                    .acc_stride = DIM};
            size_t wrong = 0;
            memset(scratch, 0xa5, size + behind);
            heed_attn_decode_heads_avx2(&tuning, &p, &tile, scratch);
            for (size_t i = tiling.scratch_bytes; i < size + behind; i++)
                wrong += scratch[i] != 0xa5;
            if (wrong) {
                fprintf(stderr, "group %u, %u rows: %zu bytes behind scratch memory are changed\n",
                        group, rows, wrong);
                failures++;
            }
        }
        free(scratch);
    }
    return failures;
}

int main(int argc, char **argv)
{
    int failures = 0;
    if (!can_run(0))
        return 77;
    _mm_setcsr(_mm_getcsr() | 0x8040); /* as core does: subnormal results and inputs are zero */
    if (argc > 1)
        return check(strtoull(argv[1], NULL, 0)) != 0;
    failures = check_scratch();
    for (uint64_t seed = 1; seed <= CASES && failures < 20; seed++)
        failures += check(seed);
    return failures != 0;
}
