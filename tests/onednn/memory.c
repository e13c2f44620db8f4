/* With a caller's workspace the backend itself allocates nothing, takes no lock and does not yield
 * its core. oneDNN does allocate, in dnnl_primitive_execute and as often as heed/attention.h says:
 * that function is interposed too, so that what happens inside it is counted apart. */
#define _GNU_SOURCE
#include "../check.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <heed/heed.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a product may allocate, as documented. */
enum { MOST = DNNL_VERSION_MAJOR == 2 ? 6 : 8 };

enum { DIM = 64, ROWS = 40, KEYS = 3000, OUT = 200 };

static atomic_int inside; /* a product is under way */
static atomic_int n_products, n_allocations[2], n_locks[2], n_yields[2];

#define INTERPOSE(result, name, counter, params, args)                                             \
    result name params                                                                             \
    {                                                                                              \
        static result(*real) params;                                                               \
        if (!real)                                                                                 \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                             \
        atomic_fetch_add(&(counter)[atomic_load(&inside)], 1);                                     \
        return real args;                                                                          \
    }

INTERPOSE(void *, malloc, n_allocations, (size_t bytes), (bytes))
INTERPOSE(void *, realloc, n_allocations, (void *p, size_t bytes), (p, bytes))
INTERPOSE(int, posix_memalign, n_allocations, (void **p, size_t align, size_t bytes),
          (p, align, bytes))
INTERPOSE(void *, aligned_alloc, n_allocations, (size_t align, size_t bytes), (align, bytes))
INTERPOSE(int, pthread_mutex_lock, n_locks, (pthread_mutex_t * mutex), (mutex))
INTERPOSE(int, pthread_rwlock_rdlock, n_locks, (pthread_rwlock_t * lock), (lock))
INTERPOSE(int, pthread_rwlock_wrlock, n_locks, (pthread_rwlock_t * lock), (lock))
INTERPOSE(int, sched_yield, n_yields, (void), ())

/* The program exports this function, so the plugin finds it before oneDNN's. */
dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                     int n_args, const dnnl_exec_arg_t *args)
{
    static dnnl_status_t (*real)(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int n_args,
                                 const dnnl_exec_arg_t *args);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
    atomic_fetch_add(&n_products, 1);
    atomic_store(&inside, 1);
    dnnl_status_t status = real(primitive, stream, n_args, args);
    atomic_store(&inside, 0);
    return status;
}

static void *workspace_of(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

typedef struct call {
    heed_attn *plan;
    const heed_attn_args *args;
    heed_linear *linear;
    const heed_linear_args *linear_args;
    void *workspace;
    size_t bytes;
} call;

static heed_status run(const call *c)
{
    return c->plan ? heed_attn_run(c->plan, c->args, c->workspace, c->bytes)
                   : heed_linear_run(c->linear, c->linear_args, c->workspace, c->bytes);
}

static heed_status run_parts(const call *c)
{
    heed_status st = c->plan
                         ? heed_attn_begin(c->plan, c->args, 2, c->workspace, c->bytes)
                         : heed_linear_begin(c->linear, c->linear_args, 2, c->workspace, c->bytes);
    for (uint32_t i = 0; i < 2 && st == HEED_OK; i++)
        st = heed_run_part(c->workspace, i);
    return st;
}

static void count(const char *what, const call *c, heed_status (*form)(const call *c), int products)
{
    /* oneDNN allocates some memory once, in the first product of a process. */
    CHECK(form(c) == HEED_OK, "%s: %s", what, heed_last_error());
    atomic_store(&n_products, 0);
    for (int i = 0; i < 2; i++) {
        atomic_store(&n_allocations[i], 0);
        atomic_store(&n_locks[i], 0);
        atomic_store(&n_yields[i], 0);
    }
    CHECK(form(c) == HEED_OK, "%s: %s", what, heed_last_error());
    const int made = atomic_load(&n_products);
    const int allocations[2] = {atomic_load(&n_allocations[0]), atomic_load(&n_allocations[1])};
    const int locks[2] = {atomic_load(&n_locks[0]), atomic_load(&n_locks[1])};
    const int yields[2] = {atomic_load(&n_yields[0]), atomic_load(&n_yields[1])};
    printf("%s: %d products with %d allocations, %d locks, %d yields\n", what, made, allocations[1],
           locks[1], yields[1]);
    CHECK(made == products, "%s: %d products, not %d", what, made, products);
    CHECK(allocations[0] == 0 && locks[0] == 0 && yields[0] == 0,
          "%s: %d allocations, %d locks and %d yields outside of oneDNN's products", what,
          allocations[0], locks[0], yields[0]);
    CHECK(allocations[1] <= MOST * made, "%s: more than %d allocations for a product", what, MOST);
    CHECK(locks[1] <= made && yields[1] == 0, "%s: more than one lock for a product, or a yield",
          what);
}

/* Attention has two products for each block of keys. */
static void attention(heed_context *context, uint32_t type, int64_t q_len, int products)
{
    static float q[2][ROWS * DIM], k[2][KEYS * DIM], v[2][KEYS * DIM], out[2][ROWS * DIM];
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .q_heads = 2,
                                 .kv_heads = 2,
                                 .qk_dim = DIM,
                                 .v_dim = DIM,
                                 .q_type = type,
                                 .k_type = type,
                                 .v_type = type,
                                 .out_type = HEED_F32,
                                 .accuracy =
                                     type == HEED_BF16 ? HEED_ACCURACY_BF16 : HEED_ACCURACY_EXACT,
                                 .max_batch = 1,
                                 .max_q_len = q_len,
                                 .max_kv_len = KEYS};
    const heed_attn_args args = {.struct_size = sizeof args,
                                 .batch = 1,
                                 .q_len = q_len,
                                 .kv_len = KEYS,
                                 .q = {q, {0, ROWS * DIM, DIM, 1}},
                                 .k = {k, {0, KEYS * DIM, DIM, 1}},
                                 .v = {v, {0, KEYS * DIM, DIM, 1}},
                                 .out = {out, {0, ROWS * DIM, DIM, 1}}};
    char what[64];
    call c = {.args = &args};
    if (heed_attn_create(context, &desc, &c.plan) != HEED_OK) {
        CHECK(0, "%s", heed_last_error());
        return;
    }
    c.bytes = heed_attn_workspace_bytes(c.plan, 2);
    c.workspace = workspace_of(c.bytes);
    snprintf(what, sizeof what, "attention, %s, %d queries", type == HEED_BF16 ? "bf16" : "f32",
             (int)q_len);
    count(what, &c, run, products);
    count(what, &c, run_parts, products);
    heed_attn_release(c.plan);
    free(c.workspace);
}

/* A linear layer has one product for each 16 rows and 64 columns, of which there are 4 blocks here.
 * Multiples of 16 rows are still multiples of 16 in the tiles of two parts. */
static void linear(heed_context *context, uint32_t type, int64_t rows)
{
    static float x[ROWS * DIM], w[DIM * OUT], y[ROWS * OUT];
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = DIM,
                                   .out_dim = OUT,
                                   .x_type = type,
                                   .w_type = type,
                                   .y_type = HEED_F32,
                                   .accuracy = type == HEED_BF16 ? HEED_ACCURACY_BF16
                                                                 : HEED_ACCURACY_EXACT};
    const heed_const_view weight = {w, {OUT, 1}};
    const heed_linear_args args = {
        .struct_size = sizeof args, .rows = rows, .x = {x, {DIM, 1}}, .y = {y, {OUT, 1}}};
    const int products = (int)(rows + 15) / 16 * 4;
    char what[64];
    call c = {.linear_args = &args};
    if (heed_linear_create(context, &desc, &weight, NULL, &c.linear) != HEED_OK) {
        CHECK(0, "%s", heed_last_error());
        return;
    }
    c.bytes = heed_linear_workspace_bytes(c.linear, 2);
    c.workspace = workspace_of(c.bytes);
    snprintf(what, sizeof what, "linear, %s, %d rows", type == HEED_BF16 ? "bf16" : "f32",
             (int)rows);
    count(what, &c, run, products);
    count(what, &c, run_parts, products);
    heed_linear_release(c.linear);
    free(c.workspace);
}

/* The counters see an allocation, a lock and a yield: so this test can fail. */
static void check_counters(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const int allocations = atomic_load(&n_allocations[0]), locks = atomic_load(&n_locks[0]);
    const int yields = atomic_load(&n_yields[0]);
    void *volatile p = malloc(3);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    sched_yield();
    free(p);
    CHECK(atomic_load(&n_allocations[0]) > allocations, "malloc is not counted");
    CHECK(atomic_load(&n_locks[0]) > locks, "locks are not counted");
    CHECK(atomic_load(&n_yields[0]) > yields, "yields are not counted");
}

int main(void)
{
    const heed_context_options options = {
        .struct_size = sizeof options, .n_threads = 1, .backends = "onednn"};
    heed_context *context;
    if (dnnl_version()->major != DNNL_VERSION_MAJOR ||
        heed_context_create(&options, &context) != HEED_OK) {
        printf("%s\n", heed_last_error());
        return 1;
    }
    check_counters();
    for (int i = 0; i < 2; i++) {
        const uint32_t type = i ? HEED_BF16 : HEED_F32;
        attention(context, type, 1, 2 * 2 * 3); /* blocks of 1024 keys */
        attention(context, type, 8, 2 * 2 * 3);
        attention(context, type, ROWS, 2 * 2 * 12); /* of 256 */
        linear(context, type, 1);
        linear(context, type, 32);
    }
    heed_context_release(context);
    return checks_end();
}
