/* Chunks of several kv heads at once, in every order in which runs are read: the states have the
 * bits of head by head, block by block. Of a block table only entries of keys that a row sees are
 * read: behind them lies memory that cannot be. */
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

enum { KEYS = 208, SEEN = 200, MOST_HEADS = 9, MOST_DIM = 128, PAGE = 16, ROWS = 2 };
enum { MOST_GROUP = 9, MOST_ROWS = MOST_GROUP * ROWS };

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

/* The table's end is that of memory that can be read. */
static int32_t *make_table(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int n = (SEEN + PAGE - 1) / PAGE;
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

typedef struct shape {
    int avx512;
    uint32_t type, dim, heads, group;
    int paged;
} shape;

/* 0: the same bits, or there is no way for all heads. *served is raised where there is. */
static int check(const shape *s, const heed_simd_tuning *order, const int32_t *table, int *served)
{
    const heed_simd_tuning plain = {.lanes = order->lanes};
    const heed_problem p = {.struct_size = sizeof p,
                            .features = HEED_HAS_WINDOW | (s->paged ? HEED_HAS_PAGES : 0),
                            .q_heads = s->group * s->heads,
                            .kv_heads = s->heads,
                            .qk_dim = s->dim,
                            .v_dim = s->dim,
                            .q_type = HEED_F32,
                            .k_type = s->type,
                            .v_type = s->type,
                            .out_type = HEED_F32,
                            .page_len = s->paged ? PAGE : 0,
                            .query_class = HEED_QUERY_FEW,
                            .accuracy = HEED_ACCURACY_EXACT,
                            .scale = 0.125f};
    const int64_t dim = s->dim, head = s->paged ? PAGE * dim : dim;
    const int64_t row = s->paged ? dim : (int64_t)s->heads * dim;
    /* The last row sees SEEN keys of the sequence's. */
    heed_tile tile = {.struct_size = sizeof tile,
                      .n_heads = s->group * s->heads,
                      .kv_heads = s->heads,
                      .group = s->group,
                      .q_count = ROWS,
                      .q_len = ROWS,
                      .k_end = SEEN,
                      .kv_len = 100 * KEYS,
                      .window_left = HEED_UNBOUNDED,
                      .window_right = SEEN - ROWS,
                      .q = {q, ROWS * dim, dim, 1},
                      .k = {k, head, row, 1},
                      .v = {v, head, row, 1},
                      .acc_stride = MOST_DIM,
                      .pages = s->paged ? table : NULL,
                      .k_page_stride = s->paged ? s->heads * head : 0,
                      .v_page_stride = s->paged ? s->heads * head : 0};
    heed_tiling tiling = {.struct_size = sizeof tiling};
    fill(s->type, k, KEYS * (int64_t)s->heads * dim);
    fill(s->type, v, KEYS * (int64_t)s->heads * dim);
    heed_simd_decode_tiling(order, &p, &tiling);
    void *scratch = aligned_alloc(64, (tiling.scratch_bytes + 63) / 64 * 64);
    if (!scratch)
        exit(99);
    point(&got, &tile);
    const heed_status st = (s->avx512 ? heed_attn_decode_heads_avx512
                                      : heed_attn_decode_heads_avx2)(order, &p, &tile, scratch);
    *served += st == HEED_OK;
    point(&want, &tile);
    for (uint32_t h = 0; st == HEED_OK && h < s->heads; h++) {
        heed_tile one = tile;
        const size_t rows = (size_t)h * s->group * ROWS;
        one.n_heads = s->group, one.kv_heads = 1;
        one.q.data = q + h * s->group * ROWS * dim;
        one.k.data = k + h * head * heed_dtype_bytes(s->type);
        one.v.data = v + h * head * heed_dtype_bytes(s->type);
        one.row_max += rows, one.row_sum += rows, one.acc += rows * MOST_DIM;
        if ((s->avx512 ? heed_attn_decode_avx512 : heed_attn_decode_avx2)(&plain, &p, &one,
                                                                          scratch) != HEED_OK)
            exit(99);
    }
    free(scratch);
    if (st != HEED_OK || memcmp(&want, &got, sizeof want) == 0)
        return 0;
    printf("%s, type %u, dim %u, %u heads, groups of %u, %s: other bits\n",
           s->avx512 ? "AVX-512" : "AVX2", s->type, s->dim, s->heads, s->group,
           s->paged ? "pages" : "side by side");
    return 1;
}

static int all(int avx512, const int32_t *table)
{
    static const uint32_t types[] = {HEED_F32, HEED_F16, HEED_BF16};
    static const heed_simd_tuning orders[] = {
        {.streams = 1}, {.cross_f32 = 1, .cross_f32_beside = 1, .cross_half = 1}};
    int failures = 0;
    for (int o = 0; o < 2; o++) {
        int served = 0, n = 0;
        heed_simd_tuning order = orders[o];
        order.lanes = avx512 ? 16 : 8;
        for (int t = 0; t < 3; t++)
            for (uint32_t dim = 64; dim <= 128; dim += 64)
                for (uint32_t heads = 2; heads <= MOST_HEADS; heads++)
                    for (uint32_t group = 1; group <= MOST_GROUP; group++)
                        for (int paged = 0; paged < 2; paged++, n++) {
                            const shape s = {avx512, types[t], dim, heads, group, paged};
                            failures += check(&s, &order, table, &served);
                        }
        printf("%s, order %d: %d of %d served, %d failures\n", avx512 ? "AVX-512" : "AVX2", o,
               served, n, failures);
        failures += served == 0;
    }
    return failures;
}

int main(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 77;
    const int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const int32_t *table = make_table();
    _mm_setcsr(_mm_getcsr() | 0x8040); /* as core does: subnormal results and inputs are zero */
    fill(HEED_F32, q, MOST_HEADS * MOST_ROWS * MOST_DIM);
    return all(0, table) + (wide ? all(1, table) : 0) != 0;
}
