/* Chunks of several kv heads at once, in every order in which runs are read: the states have the
 * bits that they have head by head and block by block. Only those entries of a block table are read
 * whose keys some row sees (inaccessible memory follows them), and nothing is written behind
 * scratch memory. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <heed/kit.h>

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../backends/simd/simd.h"
#include "../kit/random.h"
#include "here.h"

#ifndef EVERY
#define EVERY 1 /* of the combinations; with no factor of their loops' lengths */
#endif

enum { KEYS = 240, SEEN = 200, MOST_HEADS = 9, MOST_DIM = 128 };
enum { MOST_GROUP = 9, MOST_QUERIES = 2, MOST_ROWS = MOST_GROUP * MOST_QUERIES };

typedef struct state {
    float max[MOST_HEADS][MOST_ROWS], sum[MOST_HEADS][MOST_ROWS];
    float acc[MOST_HEADS][MOST_ROWS][MOST_DIM];
} state;

static state want, got;
static float q[MOST_HEADS * MOST_ROWS * MOST_DIM];
static char k[KEYS * MOST_HEADS * MOST_DIM * 4], v[KEYS * MOST_HEADS * MOST_DIM * 4];

static void fill(uint32_t type, void *data, int64_t n)
{
    uint64_t random = 2463534242u;
    for (int64_t i = 0; i < n; i++)
        heed_store(type, data, i, kit_next_float(&random));
}

/* No pages, and pages of one block and of five, in the middle of one of which the keys end. */
enum { LAYOUTS = 3 };
static const uint32_t page_lens[LAYOUTS] = {0, 16, 80};

/* A table that ends where accessible memory does. */
static int32_t *make_table(int page_len)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int n = (SEEN + page_len - 1) / page_len;
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE) != 0)
        exit(99);
    int32_t *table = (int32_t *)(void *)(memory + page) - n;
    for (int i = 0; i < n; i++)
        table[i] = n - 1 - i;
    return table;
}

static void point(state *s, heed_tile *tile)
{
    memset(s, 0, sizeof *s);
    tile->row_max = &s->max[0][0];
    tile->row_sum = &s->sum[0][0];
    tile->acc = &s->acc[0][0][0];
}

/* Decode of one head and of several at once, as compiled for an instruction set. */
typedef struct kernels {
    const char *name;
    uint32_t lanes, accuracy;
    heed_simd_run *head, *heads;
} kernels;

typedef struct shape {
    const kernels *by;
    uint32_t type, dim, heads, group, queries, page_len;
} shape;

static heed_problem problem_of(const shape *s)
{
    return (heed_problem){.struct_size = sizeof(heed_problem),
                          .features = HEED_HAS_WINDOW | (s->page_len ? HEED_HAS_PAGES : 0),
                          .q_heads = s->group * s->heads,
                          .kv_heads = s->heads,
                          .qk_dim = s->dim,
                          .v_dim = s->dim,
                          .q_type = HEED_F32,
                          .k_type = s->type,
                          .v_type = s->type,
                          .out_type = HEED_F32,
                          .page_len = s->page_len,
                          .query_class = HEED_QUERY_FEW,
                          .accuracy = s->by->accuracy,
                          .scale = 0.125f};
}

/* Elements from a kv head's keys to those of the next. */
static int64_t head_stride(const shape *s)
{
    return s->page_len ? s->page_len * (int64_t)s->dim : s->dim;
}

/* The tile of all heads. Its last row sees SEEN keys of the sequence. */
static heed_tile tile_of(const shape *s, const int32_t *table)
{
    const int64_t dim = s->dim, head = head_stride(s);
    const int64_t row = s->page_len ? dim : (int64_t)s->heads * dim;
    return (heed_tile){.struct_size = sizeof(heed_tile),
                       .n_heads = s->group * s->heads,
                       .kv_heads = s->heads,
                       .group = s->group,
                       .q_count = s->queries,
                       .q_len = s->queries,
                       .k_end = SEEN,
                       .kv_len = 100 * KEYS,
                       .window_left = HEED_UNBOUNDED,
                       .window_right = SEEN - (int64_t)s->queries,
                       .q = {q, s->queries * dim, dim, 1},
                       .k = {k, head, row, 1},
                       .v = {v, head, row, 1},
                       .acc_stride = MOST_DIM,
                       .pages = table,
                       .k_page_stride = s->page_len ? s->heads * head : 0,
                       .v_page_stride = s->page_len ? s->heads * head : 0};
}

/* The tile's part of one kv head. */
static heed_tile tile_of_head(const shape *s, const heed_tile *all, uint32_t h)
{
    const size_t rows = (size_t)h * s->group * s->queries;
    const size_t kv = h * (size_t)head_stride(s) * heed_dtype_bytes(s->type);
    heed_tile one = *all;
    one.n_heads = s->group;
    one.kv_heads = 1;
    one.q.data = q + rows * s->dim;
    one.k.data = k + kv;
    one.v.data = v + kv;
    one.row_max += rows;
    one.row_sum += rows;
    one.acc += rows * MOST_DIM;
    return one;
}

/* Returns 0 if the bits are the same, or if no kernel takes all heads at once. *served counts the
 * cases in which one does. */
static int check(const shape *s, const heed_simd_tuning *order, const int32_t *table, int *served)
{
    const heed_simd_tuning plain = {.lanes = order->lanes};
    const heed_problem p = problem_of(s);
    heed_tile tile = tile_of(s, table);
    heed_tiling tiling = {.struct_size = sizeof tiling};
    fill(s->type, k, KEYS * (int64_t)s->heads * s->dim);
    fill(s->type, v, KEYS * (int64_t)s->heads * s->dim);
    heed_simd_decode_tiling(order, &p, &tiling);
    void *scratch = aligned_alloc(64, (tiling.scratch_bytes + 63) / 64 * 64);
    if (!scratch)
        exit(99);
    point(&got, &tile);
    const heed_status st = s->by->heads(order, &p, &tile, scratch);
    *served += st == HEED_OK;
    point(&want, &tile);
    for (uint32_t h = 0; st == HEED_OK && h < s->heads; h++) {
        heed_tile one = tile_of_head(s, &tile, h);
        if (s->by->head(&plain, &p, &one, scratch) != HEED_OK)
            exit(99);
    }
    free(scratch);
    if (st != HEED_OK || memcmp(&want, &got, sizeof want) == 0)
        return 0;
    printf("%s, type %u, dim %u, %u heads, groups of %u, pages of %u: other bits\n", s->by->name,
           s->type, s->dim, s->heads, s->group, s->page_len);
    return 1;
}

static int all(const kernels *by, int32_t *const tables[LAYOUTS])
{
    static const uint32_t types[] = {HEED_F32, HEED_F16, HEED_BF16}, dims[] = {64, 128, 96, 112};
    static const heed_simd_tuning orders[] = {
        {.fetched_l2 = 1, .any_dims = 1},
        {.fetched = 1, .fetched_beside = 1},
        {.fetched = 1, .fetched_paged = 2, .cross_half = {1, 1, 1}},
        {.cross_f32 = {1, 1, 1}, .cross_half = {1, 1, 1}, .cross_pairs = {1, 1, 1}}};
    int failures = 0;
    for (int o = 0; o < (int)(sizeof orders / sizeof *orders); o++) {
        int served = 0, n = 0;
        heed_simd_tuning order = orders[o];
        order.lanes = by->lanes;
        for (int t = by->accuracy == HEED_ACCURACY_BF16 ? 2 : 0; t < 3; t++)
            for (int d = 0; d < (order.any_dims ? 4 : 2); d++)
                for (uint32_t heads = 2; heads <= MOST_HEADS; heads++)
                    for (uint32_t rows = 0; rows < MOST_ROWS; rows++)
                        for (int l = 0; l < LAYOUTS; l++, n++) {
                            if (n % EVERY)
                                continue;
                            const shape s = {by,
                                             types[t],
                                             dims[d],
                                             heads,
                                             1 + rows / MOST_QUERIES,
                                             1 + rows % MOST_QUERIES,
                                             page_lens[l]};
                            failures += check(&s, &order, tables[l], &served);
                        }
        printf("%s, order %d: %d of %d served, %d failures\n", by->name, o, served,
               (n + EVERY - 1) / EVERY, failures);
        failures += served == 0;
    }
    return failures;
}

/* For tiles of which only what they write behind scratch memory matters. */
enum { SCRATCH_HEADS = 8, SCRATCH_DIM = 128, SCRATCH_KEYS = 64, SCRATCH_ROWS = 256 };

/* How many of the `size - used` bytes behind scratch memory a tile with so many rows changes. */
static size_t changed_behind(const heed_simd_tuning *tuning, const heed_problem *p, uint32_t rows,
                             unsigned char *scratch, size_t used, size_t size)
{
    static float acc[SCRATCH_HEADS][SCRATCH_ROWS][SCRATCH_DIM];
    static float sums[2][SCRATCH_HEADS][SCRATCH_ROWS], query[SCRATCH_DIM];
    static uint16_t kv[SCRATCH_KEYS][SCRATCH_HEADS][SCRATCH_DIM];
    heed_tile tile = {.struct_size = sizeof tile,
                      .n_heads = p->q_heads,
                      .kv_heads = SCRATCH_HEADS,
                      .group = p->q_heads / SCRATCH_HEADS,
                      .q_count = rows,
                      .q_len = rows,
                      .k_end = SCRATCH_KEYS,
                      .kv_len = SCRATCH_KEYS,
                      .window_left = HEED_UNBOUNDED,
                      .window_right = HEED_UNBOUNDED,
                      .q = {query, 0, 0, 1},
                      .k = {kv, SCRATCH_DIM, SCRATCH_HEADS * SCRATCH_DIM, 1},
                      .v = {kv, SCRATCH_DIM, SCRATCH_HEADS * SCRATCH_DIM, 1},
                      .row_max = sums[0][0],
                      .row_sum = sums[1][0],
                      .acc = acc[0][0],
                      .acc_stride = SCRATCH_DIM};
    size_t changed = 0;
    memset(scratch, 0xa5, size);
    heed_attn_decode_heads_avx2(tuning, p, &tile, scratch);
    for (size_t i = used; i < size; i++)
        changed += scratch[i] != 0xa5;
    return changed;
}

/* A tile of several heads writes at most as much scratch memory as the tiling asked for, whichever
 * number of rows it has. */
static int check_scratch(void)
{
    const heed_simd_tuning tuning = {.lanes = 8, .fetched_l2 = 1};
    const size_t behind = 1 << 17;
    int failures = 0;
    for (uint32_t group = 1; group <= 128; group++) {
        const heed_problem p = {.struct_size = sizeof p,
                                .q_heads = group * SCRATCH_HEADS,
                                .kv_heads = SCRATCH_HEADS,
                                .qk_dim = SCRATCH_DIM,
                                .v_dim = SCRATCH_DIM,
                                .q_type = HEED_F32,
                                .k_type = HEED_BF16,
                                .v_type = HEED_BF16,
                                .out_type = HEED_F32,
                                .query_class = HEED_QUERY_FEW,
                                .accuracy = HEED_ACCURACY_EXACT,
                                .scale = 1};
        heed_tiling tiling = {.struct_size = sizeof tiling};
        heed_simd_decode_tiling(&tuning, &p, &tiling);
        const size_t size = (tiling.scratch_bytes + 63) / 64 * 64 + behind;
        unsigned char *scratch = aligned_alloc(64, size);
        if (!scratch)
            return 1;
        for (uint32_t rows = 1; rows <= tiling.query_rows; rows++) {
            const size_t changed =
                changed_behind(&tuning, &p, rows, scratch, tiling.scratch_bytes, size);
            if (changed) {
                fprintf(stderr, "group %u, %u rows: %zu bytes behind scratch memory are changed\n",
                        group, rows, changed);
                failures++;
            }
        }
        free(scratch);
    }
    return failures;
}

int main(void)
{
    static const kernels avx2 = {"AVX2", 8, HEED_ACCURACY_EXACT, heed_attn_decode_avx2,
                                 heed_attn_decode_heads_avx2};
    static const kernels avx512 = {"AVX-512", 16, HEED_ACCURACY_EXACT, heed_attn_decode_avx512,
                                   heed_attn_decode_heads_avx512};
    if (!runs_here(8))
        return 77;
    int32_t *const tables[LAYOUTS] = {NULL, make_table((int)page_lens[1]),
                                      make_table((int)page_lens[2])};
    int failures = 0;
    _mm_setcsr(_mm_getcsr() | 0x8040); /* as core does: subnormal results and inputs are zero */
    fill(HEED_F32, q, MOST_HEADS * MOST_ROWS * MOST_DIM);
    failures += check_scratch() + all(&avx2, tables);
    if (runs_here(16))
        failures += all(&avx512, tables);
#if HEED_AVX512_HAVE_DOT
    static const kernels pairs = {"pairs", 16, HEED_ACCURACY_BF16, heed_attn_decode_dot_avx512,
                                  heed_attn_decode_heads_dot_avx512};
    if (runs_here(16) && __builtin_cpu_supports("avx512bf16"))
        failures += all(&pairs, tables);
#endif
    return failures != 0;
}
