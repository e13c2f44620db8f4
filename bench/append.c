/* heed-append: measures how fast new keys and values are appended to a cache, for each of its
 * types, compared with copying bf16 rows into a bf16 cache. Each timed call comes right after such
 * a copy of as many rows, and the medians of the ratios are printed. Times are CPU times of the
 * thread, so that other processes do not count.
 *
 * heed-append [TOKENS [DIM [PAGE_LEN [REPETITIONS]]]]
 *
 * The defaults are 1024 128 0 31; a PAGE_LEN of 0 means a cache without pages. The rows of 8 heads
 * lie as a projection writes them, token by token; in the cache, or in a page of it, the heads
 * follow one another. HEED_BACKEND chooses the backend that encodes.
 * */
#define _GNU_SOURCE
#include <heed/formats.h>
#include <heed/heed.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "program.h"

enum { HEADS = 8, MOST_REPETITIONS = 999, MOST_DIM = 65536 };

typedef struct memory {
    int64_t tokens, dim, page_len;
    void *from[HEED_BF16 + 1], *k, *v; /* from: the rows in each type, keys, then values */
    float *scale, *zero;               /* of keys, then of values */
    int32_t *table;
} memory;

static const struct {
    const char *name;
    uint32_t type;
    int fresh;
} kinds[] = {{"bf16", HEED_BF16, 0},       {"f16", HEED_F16, 0},
             {"f32", HEED_F32, 0},         {"i8 fresh", HEED_I8, 1},
             {"i8", HEED_I8, 0},           {"u8 fresh", HEED_U8, 1},
             {"u8", HEED_U8, 0},           {"u4 fresh", HEED_U4, 1},
             {"u4", HEED_U4, 0},           {"f8_e4m3 fresh", HEED_F8_E4M3, 1},
             {"f8_e4m3", HEED_F8_E4M3, 0}, {"q8_0", HEED_Q8_0, 0},
             {"q4_0", HEED_Q4_0, 0},       {"q4_1", HEED_Q4_1, 0},
             {"q5_0", HEED_Q5_0, 0},       {"q5_1", HEED_Q5_1, 0},
             {"iq4_nl", HEED_IQ4_NL, 0}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *room(int64_t bytes)
{
    void *p = aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64);
    if (!p) {
        fprintf(stderr, "heed-append: no memory\n");
        exit(1);
    }
    memset(p, 0, (size_t)bytes);
    return p;
}

/* Fills rows with nearly normal numbers, sums of four uniform ones, and the table with pages from
 * the last to the first. */
static void make(memory *m)
{
    const int64_t n = m->tokens * HEADS * m->dim, pages = m->page_len ? m->tokens / m->page_len : 0;
    uint64_t state = 1;
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++)
        m->from[type] = room(2 * n * heed_dtype_bytes(type));
    m->k = room(n * 4);
    m->v = room(n * 4);
    m->scale = room(2 * m->tokens * HEADS * 4);
    m->zero = room(2 * m->tokens * HEADS * 4);
    m->table = room(pages * 4);
    for (int64_t i = 0; i < 2 * n; i++) {
        float x = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            x += (float)(int32_t)(uint32_t)(state >> 32) * 0x1p-31f;
        }
        for (uint32_t type = HEED_F32; type <= HEED_BF16; type++)
            heed_store(type, m->from[type], i, x);
    }
    for (int64_t i = 0; i < pages; i++)
        m->table[i] = (int32_t)(pages - 1 - i);
}

static heed_kv_append_args args_of(const memory *m, uint32_t from, int kind)
{
    const uint32_t type = kinds[kind].type;
    const int64_t token = HEADS * m->dim, keys = m->page_len ? m->page_len : m->tokens;
    const int64_t in[] = {m->tokens * token, m->dim, token, 1};
    const int64_t out[] = {keys * token, keys * m->dim, m->dim, 1};
    heed_kv_append_args a = {.struct_size = sizeof a,
                             .batch = 1,
                             .len = m->tokens,
                             .capacity = m->tokens,
                             .kv_heads = HEADS,
                             .qk_dim = (uint32_t)m->dim,
                             .v_dim = (uint32_t)m->dim,
                             .page_len = (uint32_t)m->page_len,
                             .k_type = from,
                             .v_type = from,
                             .k_cache_type = type,
                             .v_cache_type = type};
    a.k.data = m->from[from];
    a.v.data = (char *)m->from[from] + m->tokens * token * heed_dtype_bytes(from);
    a.k_cache.data = m->k;
    a.v_cache.data = m->v;
    memcpy(a.k.stride, in, sizeof in);
    memcpy(a.v.stride, in, sizeof in);
    memcpy(a.k_cache.stride, out, sizeof out);
    memcpy(a.v_cache.stride, out, sizeof out);
    if (m->page_len) {
        a.block_table = m->table;
        a.n_pages = a.block_table_stride = m->tokens / m->page_len;
    }
    if (heed_takes_scale(type)) {
        a.k_quant.scale = m->scale;
        a.k_quant.zero = type == HEED_U8 || type == HEED_U4 ? m->zero : NULL;
        a.k_quant.stride[0] = kinds[kind].fresh ? keys * HEADS : 0;
        a.k_quant.stride[1] = kinds[kind].fresh ? keys : 1; /* fixed scales: one for each head */
        a.k_quant.stride[2] = kinds[kind].fresh;
        a.v_quant = a.k_quant;
        a.v_quant.scale += m->tokens * HEADS;
        a.v_quant.zero = a.k_quant.zero ? a.k_quant.zero + m->tokens * HEADS : NULL;
    }
    if (kinds[kind].fresh)
        a.options = HEED_APPEND_FRESH_SCALES;
    return a;
}

/* The seconds of a call, or their mean over several calls if one is short. */
static double seconds_of(const heed_kv_append_args *a)
{
    const int calls = a->len < 1024 ? (int)(1024 / a->len) : 1;
    const double start = now();
    for (int i = 0; i < calls; i++)
        if (heed_kv_append(a) != HEED_OK) {
            fprintf(stderr, "heed-append: %s\n", heed_last_error());
            exit(1);
        }
    return (now() - start) / calls;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, compare);
    return x[n / 2];
}

static void row(const memory *m, int kind, int repetitions)
{
    static double seconds[MOST_REPETITIONS], share[MOST_REPETITIONS];
    printf("%-14s", kinds[kind].name);
    for (uint32_t from = HEED_F32; from <= HEED_BF16; from++) {
        const heed_kv_append_args copy = args_of(m, HEED_BF16, 0), a = args_of(m, from, kind);
        for (int64_t i = 0; i < 2 * m->tokens * HEADS; i++) {
            m->scale[i] = 0.03f;
            m->zero[i] = 8;
        }
        for (int r = -1; r < repetitions; r++) {
            const double whole = seconds_of(&copy), its = seconds_of(&a);
            if (r < 0)
                continue; /* the first call touches the memory */
            seconds[r] = its;
            share[r] = whole / its;
        }
        printf("  %8.3f %5.0f %%", (double)m->tokens / median(seconds, repetitions) * 1e-6,
               100 * median(share, repetitions));
    }
    printf("\n");
    fflush(stdout);
}

/* Checks what the environment says. heed_kv_append has no context that would: it takes the plain
 * loops where HEED_BACKEND names nothing that is there. Returns an exit status. */
static int check_environment(void)
{
    const char *list = getenv("HEED_BACKEND");
    heed_context *context = NULL;
    heed_backend_info info = {.struct_size = sizeof info};
    int status = 0;
    if (heed_context_create(NULL, &context) != HEED_OK) {
        fprintf(stderr, "heed-append: %s\n", heed_last_error());
        return 1;
    }
    for (size_t n; list && *list && !status; list += n + (list[n] == ',')) {
        uint32_t i = 0;
        n = strcspn(list, ",");
        while (heed_context_backend(context, i, &info) == HEED_OK &&
               (strlen(info.name) != n || strncmp(info.name, list, n) != 0))
            i++;
        const int found = heed_context_backend(context, i, &info) == HEED_OK;
        if (!found || !info.usable) {
            fprintf(stderr, "heed-append: HEED_BACKEND names '%.*s', which %s\n", (int)n, list,
                    found ? info.reason : "is no backend");
            status = 1;
        }
    }
    heed_context_release(context);
    return status;
}

static const char usage[] = "usage: heed-append [TOKENS [DIM [PAGE_LEN [REPETITIONS]]]]: DIM a "
                            "multiple of 32, TOKENS of PAGE_LEN\n";

static int measure(int argc, char **argv)
{
    memory m = {.tokens = argc > 1 ? program_number(argv[1], 1, INT_MAX) : 1024,
                .dim = argc > 2 ? program_number(argv[2], 1, MOST_DIM) : 128,
                .page_len = argc > 3 ? program_number(argv[3], 0, INT_MAX) : 0};
    const int repetitions = argc > 4 ? (int)program_number(argv[4], 1, MOST_REPETITIONS) : 31;
    if (argc > 5 || m.tokens < 1 || m.dim < 32 || m.dim % 32 || m.page_len < 0 ||
        (m.page_len && m.tokens % m.page_len) || repetitions < 1) {
        fputs(usage, stderr);
        return 2;
    }
    if (check_environment())
        return 1;
    make(&m);
    printf(
        "%lld tokens of %d heads of %lld, k and v, %s; million tokens a second from rows of each "
        "type, and the speed in %% of that of copying bf16\n",
        (long long)m.tokens, HEADS, (long long)m.dim, m.page_len ? "in pages" : "contiguous");
    printf("%-14s  %16s  %16s  %16s\n", "cache", "f32", "f16", "bf16");
    for (int kind = 0; kind < KINDS; kind++)
        row(&m, kind, repetitions);
    return 0;
}

int main(int argc, char **argv)
{
    return program_main("heed-append", usage, measure, argc, argv);
}
