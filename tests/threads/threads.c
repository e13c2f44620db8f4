/* What threads may do at once: parts of one run, runs of one plan, simple calls that share the
 * context's workspace and plan cache (with evictions), registration meanwhile, and an executor of
 * pthreads. Every result is compared with the serial one. Meant to be run under TSan too. */
#include <heed/backend.h>
#include <pthread.h>

#include "../unit/unit.h"
#include "on_pthreads.h"

enum { N_THREADS = 6, ROUNDS = 20, N_SHAPES = 24 };

static heed_context *context;
static unit_problem problem[N_SHAPES];
static float *expected[N_SHAPES];

/* A thread's own args: the same inputs, an output of its own. */
static heed_attn_args own_args(int shape, float **out)
{
    heed_attn_args args = problem[shape].args;
    *out = malloc(problem[shape].out_bytes);
    args.out.data = *out;
    return args;
}

static void compare(int shape, heed_status st, const float *out)
{
    if (st != HEED_OK || memcmp(out, expected[shape], problem[shape].out_bytes) != 0)
        wrong();
}

/* ---- simple calls ---------------------------------------------------------------------------- */

static void *simple_calls(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        int shape = (i * 7 + (int)(intptr_t)arg) % N_SHAPES;
        float *out;
        heed_attn_args args = own_args(shape, &out);
        heed_attn_desc desc = problem[shape].desc;
        compare(shape, heed_attention(context, &desc, &args), out);
        for (int n = 0; n < 8; n++) { /* enough plans that they evict each other */
            heed_attn *plan;
            desc.max_kv_len = 2000 + (i * 8 + n) * N_THREADS + (int)(intptr_t)arg;
            if (heed_attn_create(context, &desc, &plan) != HEED_OK)
                wrong();
            else
                heed_attn_release(plan);
        }
        free(out);
    }
    return NULL;
}

/* ---- runs of one plan ------------------------------------------------------------------------ */

static heed_attn *shared_plan;

static void *own_workspace(void *arg)
{
    float *out;
    size_t bytes;
    heed_attn_args args = own_args(0, &out);
    void *workspace = unit_workspace(shared_plan, 1, &bytes);
    for (int i = 0; i < ROUNDS; i++)
        compare(0, heed_attn_run(shared_plan, &args, workspace, bytes), out);
    free(workspace);
    free(out);
    return arg;
}

/* ---- parts of one run ------------------------------------------------------------------------ */

static void parts_of(int shape, uint32_t n_parts)
{
    float *out;
    size_t bytes;
    heed_attn *plan;
    heed_attn_args args = own_args(shape, &out);
    if (heed_attn_create(context, &problem[shape].desc, &plan) != HEED_OK)
        exit(1);
    void *workspace = unit_workspace(plan, n_parts, &bytes);
    heed_status st = heed_attn_begin(plan, &args, n_parts, workspace, bytes);
    if (st == HEED_OK)
        on_pthreads(NULL, n_parts, run_one_part, workspace);
    compare(shape, st, out);
    free(workspace);
    heed_attn_release(plan);
    free(out);
}

static void executor_of(int shape, uint32_t n_threads)
{
    float *out;
    heed_attn_args args = own_args(shape, &out);
    const heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = n_threads, .parallel_for = on_pthreads};
    args.executor = &executor;
    compare(shape, heed_attention(context, &problem[shape].desc, &args), out);
    free(out);
}

/* ---- registration meanwhile ------------------------------------------------------------------ */

static heed_status refuse_machine(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    (void)cpu, (void)machine;
    return heed_refuse(why, "never runs");
}

static heed_status refuse_problem(const void *machine, const heed_problem *p, heed_error *why)
{
    (void)machine, (void)p;
    return heed_refuse(why, "never runs");
}

static double no_cost(const void *machine, const heed_problem *p, int64_t q_len, int64_t kv_len)
{
    (void)machine, (void)p, (void)q_len, (void)kv_len;
    return 0;
}

static heed_status no_tiling(const void *machine, const heed_problem *p, heed_tiling *out)
{
    (void)machine, (void)p, (void)out;
    return HEED_ERR_BACKEND;
}

static heed_status no_tile(const void *machine, const void *state, const heed_problem *p,
                           heed_tile *t, void *scratch)
{
    (void)machine, (void)state, (void)p, (void)t, (void)scratch;
    return HEED_ERR_BACKEND;
}

static void *registering(void *arg)
{
    static const heed_attn_kernel kernel = {.struct_size = sizeof kernel,
                                            .name = "none",
                                            .supports = refuse_problem,
                                            .cost = no_cost,
                                            .tiling = no_tiling,
                                            .run = no_tile};
    static const heed_attn_kernel *const kernels[] = {&kernel};
    static char names[8][8];
    static heed_backend tables[8];
    for (int i = 0; i < 8; i++) {
        snprintf(names[i], sizeof names[i], "never%d", i);
        tables[i] = (heed_backend){.abi = HEED_BACKEND_ABI,
                                   .struct_size = sizeof tables[i],
                                   .name = names[i],
                                   .summary = "refuses",
                                   .open = refuse_machine,
                                   .attn = kernels,
                                   .n_attn = 1};
        if (heed_context_register(context, &tables[i]) != HEED_OK)
            wrong();
    }
    return arg;
}

static void together(void *(*body)(void *), void *(*other)(void *))
{
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, i == 0 && other ? other : body, (void *)(intptr_t)i);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    context = unit_context(1, NULL);
    for (int i = 0; i < N_SHAPES; i++) {
        const int decode = i % 3 == 1; /* keys cut into chunks, states merged by the last part */
        problem[i] = unit_make(1 + i % 3, 2, decode ? 1 + i % 4 : 20 + i, decode ? 2500 : 30 + i, 8,
                               (uint64_t)i);
        expected[i] = malloc(problem[i].out_bytes);
        CHECK_OK(heed_attention(context, &problem[i].desc, &problem[i].args));
        memcpy(expected[i], problem[i].out, problem[i].out_bytes);
    }
    together(simple_calls, registering);
    CHECK(n_wrong == 0, "%d wrong in simple calls", n_wrong);
    CHECK_OK(heed_attn_create(context, &problem[0].desc, &shared_plan));
    together(own_workspace, NULL);
    heed_attn_release(shared_plan);
    CHECK(n_wrong == 0, "%d wrong in runs of one plan", n_wrong);
    for (int shape = 0; shape < N_SHAPES; shape++)
        for (uint32_t n = 2; n <= 8; n += 3) {
            parts_of(shape, n);
            executor_of(shape, n);
        }
    CHECK(n_wrong == 0, "%d wrong in parts or executor", n_wrong);
    heed_context_release(context);
    context = unit_context(3, NULL); /* OpenMP */
    together(simple_calls, NULL);
    CHECK(n_wrong == 0, "%d wrong with OpenMP", n_wrong);
    heed_context_release(context);
    for (int i = 0; i < N_SHAPES; i++) {
        unit_free(&problem[i]);
        free(expected[i]);
    }
    return checks_end();
}
