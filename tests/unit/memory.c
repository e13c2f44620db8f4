/* With a caller's workspace a run allocates nothing, takes no lock and makes no system call. malloc
 * and the mutex are interposed and counted; for system calls the run happens in a child that the
 * kernel kills at the first one. Where OpenMP has threads to start, it may do so in its first call,
 * but nothing in the second. A context is not made if a backend gets no memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/seccomp.h>
#include <sys/prctl.h>
#endif

#include "unit.h"

static atomic_int n_allocations, n_locks;
static atomic_int refused; /* which call of malloc from now on gets no memory; 0: none */

#define INTERPOSE(result, name, params, args)                                                      \
    result name params                                                                             \
    {                                                                                              \
        static result(*real) params;                                                               \
        if (!real)                                                                                 \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                             \
        COUNT;                                                                                     \
        return real args;                                                                          \
    }

#define COUNT                                                                                      \
    atomic_fetch_add(&n_allocations, 1);                                                           \
    if (atomic_load(&refused) && atomic_fetch_sub(&refused, 1) == 1)                               \
    return NULL
INTERPOSE(void *, malloc, (size_t bytes), (bytes))
#undef COUNT
#define COUNT atomic_fetch_add(&n_allocations, 1)
INTERPOSE(void *, realloc, (void *p, size_t bytes), (p, bytes))
INTERPOSE(int, posix_memalign, (void **p, size_t align, size_t bytes), (p, align, bytes))
INTERPOSE(void *, aligned_alloc, (size_t align, size_t bytes), (align, bytes))
#undef COUNT
#define COUNT atomic_fetch_add(&n_locks, 1)
INTERPOSE(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
INTERPOSE(int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
#undef COUNT

typedef struct host {
    heed_attn *plan;
    const heed_attn_args *args;
    const heed_executor *executor;
    void *workspace;
    size_t bytes;
    heed_mha *layer;
    heed_mha_args layer_args;
    heed_linear *linear;
    heed_linear_args linear_args;
} host;

static void by_run(const host *h)
{
    heed_attn_run(h->plan, h->args, h->workspace, h->bytes);
}

static void by_parts(const host *h)
{
    heed_attn_begin(h->plan, h->args, 3, h->workspace, h->bytes);
    for (uint32_t i = 0; i < 3; i++)
        heed_run_part(h->workspace, i);
}

static void by_executor(const host *h)
{
    heed_attn_args args = *h->args;
    args.executor = h->executor;
    heed_attn_run(h->plan, &args, h->workspace, h->bytes);
}

static void by_layer(const host *h)
{
    heed_mha_run(h->layer, &h->layer_args, h->workspace, h->bytes);
}

static void by_layer_parts(const host *h)
{
    heed_mha_begin(h->layer, &h->layer_args, 3, h->workspace, h->bytes);
    for (uint32_t i = 0; i < 3; i++)
        heed_run_part(h->workspace, i);
}

static void by_linear(const host *h)
{
    heed_linear_run(h->linear, &h->linear_args, h->workspace, h->bytes);
}

static void by_linear_parts(const host *h)
{
    heed_linear_begin(h->linear, &h->linear_args, 3, h->workspace, h->bytes);
    for (uint32_t i = 0; i < 3; i++)
        heed_run_part(h->workspace, i);
}

static void by_linear_executor(const host *h)
{
    heed_linear_args args = h->linear_args;
    args.executor = h->executor;
    heed_linear_run(h->linear, &args, h->workspace, h->bytes);
}

/* Rotates the input's first row, as one head, into the output's first row and appends that as its
 * last. */
static void by_rotary_and_append(const host *h)
{
    const heed_const_view x = h->linear_args.x;
    const heed_view y = h->linear_args.y;
    const int64_t dim = x.stride[0], rows = h->linear_args.rows;
    const heed_rotary_args turn = {.struct_size = sizeof turn,
                                   .rotary = {.style = HEED_ROTARY_HALF, .dims = 4},
                                   .batch = 1,
                                   .len = 1,
                                   .heads = 1,
                                   .dim = (uint32_t)dim,
                                   .x_type = HEED_F32,
                                   .y_type = HEED_F32,
                                   .x = {x.data, {0, 0, dim, 1}},
                                   .y = {y.data, {0, 0, dim, 1}}};
    const int32_t there = (int32_t)rows - 1;
    const heed_kv_append_args append = {.struct_size = sizeof append,
                                        .batch = 1,
                                        .len = 1,
                                        .capacity = rows,
                                        .kv_heads = 1,
                                        .qk_dim = (uint32_t)dim,
                                        .k_type = HEED_F32,
                                        .k_cache_type = HEED_F32,
                                        .k = heed_as_const(turn.y),
                                        .k_cache = {y.data, {0, 0, dim, 1}},
                                        .cache_lens = &there};
    if (heed_rotary(&turn) == HEED_OK)
        heed_kv_append(&append);
}

/* Kills the child at any system call but write and exit. */
static int survives_without_system_calls(void (*run)(const host *), const host *h)
{
#if defined(__linux__) && defined(SECCOMP_MODE_STRICT) && !defined(__SANITIZE_ADDRESS__)
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
            _exit(0); /* the kernel does not offer it */
        run(h);
        syscall(SYS_exit, 0);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
#else
    (void)run, (void)h;
    return 1;
#endif
}

/* For the check that a system call is seen. */
static void by_system_call(const host *h)
{
    (void)h;
    syscall(SYS_getppid);
}

static void check_form(const char *name, void (*run)(const host *), const host *h,
                       const unit_problem *p)
{
    memset(p->out, 0xff, p->out_bytes);
    int allocations = atomic_load(&n_allocations), locks = atomic_load(&n_locks);
    run(h);
    allocations = atomic_load(&n_allocations) - allocations;
    locks = atomic_load(&n_locks) - locks;
    CHECK(allocations == 0, "%s: %d allocations", name, allocations);
    CHECK(locks == 0, "%s: %d locks", name, locks);
    CHECK(p->out[0] == p->out[0] && p->out[p->out_bytes / 4 - 1] == p->out[p->out_bytes / 4 - 1],
          "%s: nothing was computed", name);
}

/* The counters see an allocation and a lock, and a system call kills the child: so this test can
 * fail. */
static void check_counters(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int allocations = atomic_load(&n_allocations), locks = atomic_load(&n_locks);
    void *volatile p = malloc(3);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    free(p);
    CHECK(atomic_load(&n_allocations) > allocations, "malloc is not counted");
    CHECK(atomic_load(&n_locks) > locks, "locks are not counted");
#if defined(__linux__) && defined(SECCOMP_MODE_STRICT) && !defined(__SANITIZE_ADDRESS__)
    CHECK(!survives_without_system_calls(by_system_call, NULL), "system calls are not seen");
#endif
}

/* Backends allocate by malloc when they are opened, those that are linked in before plugins. One
 * that gets no memory has not been refused: the context must not go on without it. */
static void check_shortage(void)
{
    static char text[16384];
    size_t bytes = sizeof text;
    int failed = 0;
    heed_context *context = unit_context(1, NULL);
    CHECK(heed_context_backends(context, 0, text, &bytes) == HEED_OK, "%s", heed_last_error());
    heed_context_release(context);
    const heed_context_options options = {.struct_size = sizeof options, .n_threads = 1};
    for (;;) {
        atomic_store(&refused, failed + 1);
        const heed_status st = heed_context_create(&options, &context);
        atomic_store(&refused, 0);
        if (st == HEED_OK)
            break;
        failed++;
        CHECK(st == HEED_ERR_NOMEM && strstr(heed_last_error(), "no memory to open"),
              "malloc %d: status %d, %s", failed, st, heed_last_error());
    }
    heed_context_release(context);
    const int most =
        (strstr(text, "backend avx2:") != NULL) + (strstr(text, "backend avx512:") != NULL);
    CHECK(failed >= most, "%d of %d openings without memory failed", failed, most);
}

enum { LAYER_DIM = 16, LAYER_HEADS = 2, LAYER_KEYS = 400 };

static heed_attn_desc layer_attention(int32_t rows)
{
    return (heed_attn_desc){
        .struct_size = sizeof(heed_attn_desc),
        .features = HEED_HAS_CAUSAL | HEED_HAS_LENS | HEED_HAS_PACKED,
        .position = HEED_POS_BOTTOM_RIGHT,
        UNIT_SHAPE(LAYER_HEADS, LAYER_HEADS, LAYER_DIM / LAYER_HEADS, LAYER_DIM / LAYER_HEADS),
        UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
        .max_batch = 1,
        .max_q_len = rows,
        .max_kv_len = LAYER_KEYS};
}

/* A layer that rotates, appends and attends over packed rows; its input is the problem's q, as rows
 * of 16 columns, and its output goes to the problem's out. */
static void check_layer(heed_context *context, unit_problem *p)
{
    enum { DIM = LAYER_DIM, HEADS = LAYER_HEADS, MOST = LAYER_KEYS };
    static float cache[2][MOST][DIM], weight[DIM][3 * DIM];
    const int32_t rows = (int32_t)(p->out_bytes / sizeof(float) / DIM) < MOST
                             ? (int32_t)(p->out_bytes / sizeof(float) / DIM)
                             : MOST;
    const int32_t start = 0;
    heed_linear_desc in = {.struct_size = sizeof in,
                           .in_dim = DIM,
                           .out_dim = 3 * DIM,
                           .x_type = HEED_F32,
                           .w_type = HEED_F32,
                           .y_type = HEED_F32};
    heed_linear_desc back = in;
    back.out_dim = DIM;
    const heed_const_view w = {weight, {3 * DIM, 1}};
    const heed_view table = {cache, {0, DIM / HEADS, DIM, 1}};
    const heed_attn_desc attn = layer_attention(rows);
    heed_mha_desc desc = {.struct_size = sizeof desc,
                          .features = HEED_MHA_HAS_CACHE,
                          .attn = &attn,
                          .d_model = DIM,
                          .x_type = HEED_F32,
                          .rotary = {.style = HEED_ROTARY_HALF, .dims = 4}};
    host h = {.layer_args = {.struct_size = sizeof h.layer_args,
                             .batch = 1,
                             .q_len = rows,
                             .capacity = MOST,
                             .x_q = {p->q, {0, DIM, 1}},
                             .y = {p->out, {0, DIM, 1}},
                             .k_cache = table,
                             .v_cache = {cache[1], {0, DIM / HEADS, DIM, 1}},
                             .q_lens = &rows,
                             .q_starts = &start}};
    for (int i = 0; i < DIM * 3 * DIM; i++)
        weight[i / (3 * DIM)][i % (3 * DIM)] = (float)(i % 7) / 7;
    CHECK_OK(heed_linear_create(context, &in, &w, NULL, &desc.qkv_proj));
    CHECK_OK(heed_linear_create(context, &back, &w, NULL, &desc.out_proj));
    CHECK_OK(heed_mha_create(context, &desc, &h.layer));
    heed_linear_release(desc.qkv_proj);
    heed_linear_release(desc.out_proj);
    h.bytes = heed_mha_workspace_bytes(h.layer, 3);
    h.workspace = aligned_alloc(64, (h.bytes + 63) / 64 * 64);
    p->out_bytes = (size_t)rows * DIM * sizeof(float);
    if (h.workspace) {
        check_form("layer", by_layer, &h, p);
        check_form("layer, parts", by_layer_parts, &h, p);
        CHECK(survives_without_system_calls(by_layer, &h), "layer: a system call");
        CHECK(survives_without_system_calls(by_layer_parts, &h), "layer, parts: a system call");
    }
    heed_mha_release(h.layer);
    free(h.workspace);
}

/* Linear layers over one row and over all, with the problem's q and out as rows of 16 columns. */
static void check_linear(heed_context *one, heed_context *two, const heed_executor *executor,
                         unit_problem *p)
{
    enum { DIM = 16 };
    static float weight[DIM * DIM];
    const heed_const_view w = {weight, {DIM, 1}}, x = {p->q, {DIM, 1}};
    const heed_view y = {p->out, {DIM, 1}};
    const size_t out_bytes = p->out_bytes;
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = DIM,
                                   .out_dim = DIM,
                                   .x_type = HEED_F32,
                                   .w_type = HEED_F32,
                                   .y_type = HEED_F32,
                                   .activation = HEED_ACT_GELU};
    for (int i = 0; i < DIM * DIM; i++)
        weight[i] = (float)(i % 7) / 7;
    for (int64_t rows = 1; rows <= (int64_t)(out_bytes / sizeof(float) / DIM);
         rows = rows == 1 ? (int64_t)(out_bytes / sizeof(float) / DIM) : INT64_MAX) {
        host h = {
            .linear_args = {.struct_size = sizeof h.linear_args, .rows = rows, .x = x, .y = y},
            .executor = executor};
        CHECK_OK(heed_linear_create(one, &desc, &w, NULL, &h.linear));
        h.bytes = heed_linear_workspace_bytes(h.linear, 3);
        h.workspace = aligned_alloc(64, (h.bytes + 63) / 64 * 64);
        p->out_bytes = (size_t)rows * DIM * sizeof(float);
        check_form("linear", by_linear, &h, p);
        check_form("linear, parts", by_linear_parts, &h, p);
        check_form("linear, executor", by_linear_executor, &h, p);
        check_form("rotary and append", by_rotary_and_append, &h, p);
        CHECK(survives_without_system_calls(by_linear, &h), "linear: a system call");
        CHECK(survives_without_system_calls(by_linear_parts, &h), "linear, parts: a system call");
        CHECK(survives_without_system_calls(by_linear_executor, &h),
              "linear, executor: a system call");
        CHECK(survives_without_system_calls(by_rotary_and_append, &h),
              "rotary and append: a system call");
        heed_linear_release(h.linear);
        CHECK_OK(heed_linear_create(two, &desc, &w, NULL, &h.linear));
        by_linear(&h); /* starts the runtime's threads */
        check_form("linear, OpenMP, second call", by_linear, &h, p);
        heed_linear_release(h.linear);
        free(h.workspace);
    }
    p->out_bytes = out_bytes;
}

int main(void)
{
    static const int64_t shape[][4] = {
        {1, 2, 70, 90}, {3, 2, 1, 3000}, {2, 1, 5, 2100}, {4, 4, 10, 10}};
    check_counters();
    check_shortage();
    for (int i = 0; i < 4; i++) {
        unit_problem p = unit_make(shape[i][0], (uint32_t)shape[i][1], shape[i][2], shape[i][3], 16,
                                   (uint64_t)i);
        heed_context *one = unit_context(1, NULL), *two = unit_context(2, NULL);
        heed_executor executor = {
            .struct_size = sizeof executor, .n_threads = 3, .parallel_for = unit_backwards};
        host h = {.args = &p.args, .executor = &executor};
        CHECK_OK(heed_attn_create(one, &p.desc, &h.plan));
        h.workspace = unit_workspace(h.plan, 3, &h.bytes);
        check_form("one thread", by_run, &h, &p);
        check_form("parts", by_parts, &h, &p);
        check_form("executor", by_executor, &h, &p);
        CHECK(survives_without_system_calls(by_run, &h), "one thread: a system call");
        CHECK(survives_without_system_calls(by_parts, &h), "parts: a system call");
        CHECK(survives_without_system_calls(by_executor, &h), "executor: a system call");
        heed_attn_release(h.plan);
        CHECK_OK(heed_attn_create(two, &p.desc, &h.plan));
        by_run(&h); /* starts the runtime's threads */
        check_form("OpenMP, second call", by_run, &h, &p);
        heed_attn_release(h.plan);
        check_linear(one, two, &executor, &p);
        check_layer(one, &p);
        heed_context_release(one);
        heed_context_release(two);
        free(h.workspace);
        unit_free(&p);
    }
    return checks_end();
}
