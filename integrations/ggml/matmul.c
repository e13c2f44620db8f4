/* Runs MUL_MAT as a linear layer of Heed's.
 *
 *     w    f32, f16 or bf16 [out, in]: a matrix of rows that may have gaps between them
 *     x    f32 [.., rows, in]
 *     out  f32 [.., rows, out]
 *
 * Numerics   x is rounded to the weights' type first, as ggml does, so that a batch computed here
 *            equals its tokens computed one by one there; sums are in f32.
 * Claimed    products with weights (weights.h) that were measured to be faster than ggml's own
 *            (`measured`, `few_rows_of`, README.md). Not small ones, which are not worth two splits of
 *            the graph.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "ggml_heed.h"
#include "weights.h"

#include <heed/kit.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- what is faster -------------------------------------------------------------------------- */

enum { MANY_ROWS = 8, TYPES = 3, PROBE = 1024 };

/* Multiply-adds that take a core a third of a millisecond; two splits of the graph take 30 us. */
#define LEAST_WORK (INT64_C(1) << 24)

static const struct {
    const char *backend, *kernel;
    uint32_t type;
} measured[] = {
    {"avx512", "products", HEED_F32},       {"avx512", "products", HEED_F16},
    {"avx512", "products_bf16", HEED_BF16}, {"avx2", "products", HEED_F32},
    {"avx2", "products", HEED_BF16},        {"amx", "tiles", HEED_BF16},
};

static const uint32_t types[TYPES] = {HEED_F32, HEED_F16, HEED_BF16};

static uint32_t type_of(enum ggml_type type)
{
    return type == GGML_TYPE_F32    ? HEED_F32
           : type == GGML_TYPE_F16  ? HEED_F16
           : type == GGML_TYPE_BF16 ? HEED_BF16
                                    : HEED_DTYPE_NONE;
}

static heed_linear_desc describe(uint32_t type, int64_t in, int64_t out)
{
    return (heed_linear_desc){.struct_size = sizeof(heed_linear_desc),
                              .in_dim = (uint32_t)in,
                              .out_dim = (uint32_t)out,
                              .x_type = type,
                              .w_type = type,
                              .y_type = HEED_F32,
                              .layout = HEED_LINEAR_OUT_IN};
}

/* The context of the layers, with as many threads as any backend may ask for, and the types that
 * are faster with it. Made once and kept to the process's end. */
static heed_context *shared;
static int is_faster[TYPES];
static int is_forked; /* in a child process, where an OpenMP pool of the parent's has no threads */

/* Is the kernel of a layer of this type a measured one? */
static int probe(heed_context *context, uint32_t type)
{
    static const uint64_t zero;
    const heed_linear_desc desc = describe(type, PROBE, PROBE);
    const heed_const_view weight = {&zero, {0, 0}};
    heed_linear *linear = NULL;
    heed_kernel_info kernel = {.struct_size = sizeof kernel};
    int found = 0;
    if (heed_linear_create(context, &desc, &weight, NULL, &linear) == HEED_OK &&
        heed_linear_kernel_of(linear, &kernel) == HEED_OK)
        for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
            found |= measured[i].type == type && !strcmp(measured[i].backend, kernel.backend) &&
                     !strcmp(measured[i].kernel, kernel.kernel);
    heed_linear_release(linear);
    return found;
}

static void note_fork(void)
{
    is_forked = 1;
}

void ggml_heed_matmul_open(void)
{
    pthread_atfork(NULL, NULL, note_fork);
}

/* The types are found out by one thread: whoever only asks what is supported starts none. */
static void make_shared(void)
{
    cpu_set_t cpus;
    const int n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
    const heed_context_options options = {.struct_size = sizeof options, .n_threads = (uint32_t)n};
    const heed_context_options alone = {.struct_size = sizeof alone, .n_threads = 1};
    heed_context *prober = NULL;
    if (heed_context_create(&options, &shared) != HEED_OK)
        shared = NULL;
    if (shared && heed_context_create(&alone, &prober) == HEED_OK)
        for (int i = 0; i < TYPES; i++)
            is_faster[i] = probe(prober, types[i]);
    heed_context_release(prober);
}

static heed_context *shared_context(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_shared);
    return shared;
}

/* ---- claiming -------------------------------------------------------------------------------- */

/* Does ggml_prec_set_src allow that x is rounded to this type? Precisions are greater the less they keep, and
 * 0 where none was set. */
static int may_round(const struct ggml_tensor *op, enum ggml_type type)
{
    const int asked = op->op_params[3]; /* of src[1] */
    const int gets = type == GGML_TYPE_F32    ? GGML_PREC_F32
                     : type == GGML_TYPE_BF16 ? GGML_PREC_BF16
                                              : GGML_PREC_F16;
    return asked == GGML_PREC_UNDEFINED || gets <= asked;
}

/* Could Heed compute this product, fast or not? */
static int can(const struct ggml_tensor *op, heed_error *why)
{
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    if (ggml_nelements(w) == 0 || ggml_nelements(op) == 0) {
        heed_refuse(why, "weights or result are empty");
        return 0;
    }
    if (type_of(w->type) == HEED_DTYPE_NONE || x->type != GGML_TYPE_F32 ||
        op->type != GGML_TYPE_F32) {
        heed_refuse(why,
                    "weights, x and out are %s, %s and %s: f32, f16 or bf16, f32 and f32 are "
                    "required",
                    ggml_type_name(w->type), ggml_type_name(x->type), ggml_type_name(op->type));
        return 0;
    }
    if (w->ne[2] != 1 || w->ne[3] != 1) {
        heed_refuse(why, "there are %d matrices of weights, one is required",
                    (int)(w->ne[2] * w->ne[3]));
        return 0;
    }
    if (w->nb[0] != ggml_type_size(w->type) || w->nb[1] % w->nb[0] || x->nb[0] != sizeof(float) ||
        x->nb[1] % sizeof(float) || !ggml_is_contiguous(op)) {
        heed_refuse(why, "it has rows of elements that are not adjacent");
        return 0;
    }
    if (op->op_params[1] == GGML_HINT_SRC0_IS_HADAMARD) {
        heed_refuse(why,
                    "the weights are a Hadamard matrix, whose products are a transform of ggml's");
        return 0;
    }
    if (!may_round(op, w->type)) {
        heed_refuse(why, "x would be rounded to %s, and is asked to be kept",
                    ggml_type_name(w->type));
        return 0;
    }
    return 1;
}

/* Products of few rows wait for memory, and gain where ggml does not read at its speed. */
typedef struct few_rows {
    int64_t rows;      /* the most */
    int64_t one, more; /* bytes of weights from which on one row and more are worth two splits */
} few_rows;

/* ggml converts f16 of x as well as of the weights for each product, and so reads them at half of what
 * memory gives an Intel (README.md). From 4 rows on it has another way, which is slower on an Ice Lake and
 * was faster on its followers. f32 and bf16 it reads there as fast as Heed. On a Zen 5 more rows gain with
 * all types, and one row of f32 and bf16 where the splits are a small part of it. Not measured on other
 * AMDs, which have no vp2intersect. */
static few_rows few_rows_of(enum ggml_type type)
{
    const few_rows none = {0, 0, 0};
#if defined(__x86_64__)
    const int64_t mib = INT64_C(1) << 20;
    if (__builtin_cpu_is("intel") && type == GGML_TYPE_F16) {
        const int old = __builtin_cpu_supports("avx512f") && !__builtin_cpu_supports("avx512bf16");
        return (few_rows){old ? 7 : 3, mib, mib};
    }
    if (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx512vp2intersect"))
        return (few_rows){15, type == GGML_TYPE_F16 ? 2 * mib : 8 * mib, 2 * mib};
#endif
    (void)type;
    return none;
}

/* Is the product large enough to be worth the splits? */
static int is_large(const struct ggml_tensor *w, int64_t rows)
{
    const few_rows few = few_rows_of(w->type);
    const int64_t least = rows == 1 ? few.one : few.more;
    if (rows <= few.rows && w->ne[1] >= least / (int64_t)ggml_row_size(w->type, w->ne[0]))
        return 1;
    return rows >= MANY_ROWS && rows * w->ne[0] >= LEAST_WORK / w->ne[1];
}

/* Is the product faster by Heed, and can its weights be packed once for all calls? */
static int is_worth_it(const struct ggml_tensor *op, heed_error *why)
{
    const struct ggml_tensor *w = op->src[0];
    const int64_t rows = ggml_nrows(op->src[1]);
    if (!is_large(w, rows)) {
        heed_refuse(why, "%lld rows of %lld x %lld are too few to gain from Heed", (long long)rows,
                    (long long)w->ne[0], (long long)w->ne[1]);
        return 0;
    }
    if (!weights_stay(w)) {
        heed_refuse(why, "%s lies in no buffer of weights", w->name);
        return 0;
    }
    if (!is_faster[type_of(w->type) - HEED_F32]) {
        heed_refuse(why, "of %s it was not measured to be faster on such a CPU",
                    ggml_type_name(w->type));
        return 0;
    }
    return 1;
}

int ggml_heed_matmul_supported(const struct ggml_tensor *op, unsigned wanted, heed_error *why)
{
    const struct ggml_tensor *w = op->src[0];
    if (!shared_context()) {
        heed_refuse(why, "Heed has no context");
        return 0;
    }
    if (!can(op, why) || (!(wanted & GGML_HEED_MATMUL_ALL) && !is_worth_it(op, why)))
        return 0;
    const heed_linear_desc desc = describe(type_of(w->type), w->ne[0], w->ne[1]);
    if (heed_linear_supported(shared_context(), &desc, why) != HEED_OK)
        return 0;
    return !weights_stay(w) || weights_reserve(w, why);
}

/* ---- a call ---------------------------------------------------------------------------------- */

static void round_bf16(const float *x, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = heed_bf16_of_f32(x[i]);
}

static void round_f16(const float *x, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = heed_f16_of_f32(x[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static void round_f16_wide(const float *x, int64_t n,
                                                               uint16_t *to)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    round_f16(x + i, n - i, to + i);
}

/* Every CPU with AVX2 has F16C, for which clang has no name here. */
static int has_f16c(void)
{
    return __builtin_cpu_supports("avx2") != 0;
}
#else
#define round_f16_wide round_f16
static int has_f16c(void)
{
    return 0;
}
#endif

static const float *row_of(const struct ggml_tensor *x, int64_t r)
{
    const int64_t at[3] = {r % x->ne[1], r / x->ne[1] % x->ne[2], r / x->ne[1] / x->ne[2]};
    return (const float *)(const void *)((const char *)x->data + (size_t)at[0] * x->nb[1] +
                                         (size_t)at[1] * x->nb[2] + (size_t)at[2] * x->nb[3]);
}

/* Rounds all rows of x to the weights' type and stores them one after the other. */
static void round_rows(const struct ggml_tensor *x, enum ggml_type type, int parts, uint16_t *to)
{
    const int64_t rows = ggml_nrows(x), n = x->ne[0];
    const int wide = has_f16c();
    (void)parts;
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) if (!is_forked && rows * n > 65536)
#endif
    for (int64_t r = 0; r < rows; r++) {
        if (type == GGML_TYPE_BF16)
            round_bf16(row_of(x, r), n, to + r * n);
        else if (wide)
            round_f16_wide(row_of(x, r), n, to + r * n);
        else
            round_f16(row_of(x, r), n, to + r * n);
    }
}

/* Is the distance from row to row the same all over x, as in one matrix? */
static int is_even(const struct ggml_tensor *x)
{
    return (x->ne[2] == 1 || x->nb[2] == (size_t)x->ne[1] * x->nb[1]) &&
           (x->ne[3] == 1 || x->nb[3] == (size_t)(x->ne[1] * x->ne[2]) * x->nb[1]);
}

/* Computes the product, with memory for the layer's work and for the rounded x. */
static heed_status multiply(ggml_heed *backend, const heed_linear *linear, struct ggml_tensor *op,
                            heed_error *why)
{
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    const int64_t all = ggml_nrows(x), rounded = w->type != GGML_TYPE_F32;
    const int64_t rows = rounded || is_even(x) ? all : x->ne[1];
    const int asked = ggml_heed_threads(backend), parts = asked ? asked : GGML_DEFAULT_N_THREADS;
    const size_t work = (heed_linear_workspace_bytes(linear, (uint32_t)parts) + 63) / 64 * 64;
    char *memory = ggml_heed_memory(backend, work + (rounded ? (size_t)(all * x->ne[0]) * 2 : 0));
    heed_linear_args args = {.struct_size = sizeof args, .error = why, .rows = rows};
    heed_status st = HEED_OK;
    if (!memory)
        return HEED_ERR_NOMEM;
    if (rounded)
        round_rows(x, w->type, parts, (uint16_t *)(void *)(memory + work));
    for (int64_t first = 0; first < all && st == HEED_OK; first += rows) {
        if (rounded)
            args.x = (heed_const_view){memory + work, {x->ne[0], 1}};
        else
            args.x = (heed_const_view){row_of(x, first), {(int64_t)(x->nb[1] / sizeof(float)), 1}};
        args.y = (heed_view){(float *)op->data + first * op->ne[0], {op->ne[0], 1}};
        st = heed_linear_run(linear, &args, memory, work);
    }
    return st;
}

heed_status ggml_heed_matmul(ggml_heed *backend, struct ggml_tensor *op, heed_error *why)
{
    const struct ggml_tensor *w = op->src[0];
    const heed_linear_desc desc = describe(type_of(w->type), w->ne[0], w->ne[1]);
    heed_linear *linear = NULL;
    const int few = ggml_nrows(op->src[1]) < MANY_ROWS;
    if (!can(op, why)) /* ggml asks before, unless a program assigns the operation by hand */
        return HEED_ERR_UNSUPPORTED;
    heed_status st = weights_get(backend, shared_context(), &desc, w, few, &linear, why);
    if (st == HEED_OK)
        st = multiply(backend, linear, op, why);
    heed_linear_release(linear);
    return st;
}
