/* Whether a call is worth a second thread: by its estimated work, and by whether OpenMP's workers
 * sleep between calls. And an executor that runs nothing is noticed. */
#define _GNU_SOURCE
#include <heed/backend.h>

#include "changed.h"
#include "heed_config.h"
#include "unit.h"

const heed_backend *heed_naive_backend(void);

static double microseconds; /* that a call is said to take */

static double told_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                        int64_t kv_len)
{
    (void)machine, (void)problem, (void)q_len, (void)kv_len;
    return microseconds * 1e3;
}

static char lines[UNIT_LINES];

/* How many parts a call has, with two threads, whose kernel says that it takes `us`
 * microseconds. */
static int parts_of(double us, const char *policy, const heed_executor *executor)
{
    unit_problem p = unit_make(1, 4, 3, 5, 4, 1);
    changed_backend told;
    heed_context *context = NULL;
    heed_context_options o = {.struct_size = sizeof o,
                              .n_threads = 2,
                              .backends = "told",
                              .verbose = "run",
                              .user = lines,
                              .log = unit_collect,
                              .executor = executor};
    int parts = 0;
    change_backend(&told, heed_naive_backend(), "told");
    told.attn.cost = told_cost;
    microseconds = us;
    lines[0] = 0;
    if (policy)
        setenv("OMP_WAIT_POLICY", policy, 1);
    else
        unsetenv("OMP_WAIT_POLICY");
    CHECK_OK(heed_context_create(&o, &context));
    CHECK_OK(heed_context_register(context, &told.backend));
    CHECK_OK(heed_attention(context, &p.desc, &p.args));
    CHECK(sscanf(lines, "run batch 1 q_len 3 kv_len 5: HEED_OK, %d parts,", &parts) == 1,
          "the log has: %s", lines);
    heed_context_release(context);
    unit_free(&p);
    return parts;
}

static void nothing(void *user, uint32_t n, void (*body)(void *arg, uint32_t i), void *arg)
{
    (void)user, (void)n, (void)body, (void)arg;
}

/* A pool of threads that is shut down already. What it was to write is not taken for written. */
static void runs_nothing(void)
{
    enum { IN = 64, OUT = 2048 };
    static float w[IN * OUT];
    const heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = 2, .parallel_for = nothing};
    heed_context_options options = {.struct_size = sizeof options, .n_threads = 1};
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = IN,
                                   .out_dim = OUT,
                                   .x_type = HEED_F32,
                                   .w_type = HEED_F32,
                                   .y_type = HEED_F32};
    const heed_const_view weight = {w, {OUT, 1}};
    heed_linear *linear = NULL;
    heed_context *context = NULL;
    unit_problem p = unit_make(2, 4, 200, 200, 32, 3);
    CHECK_OK(heed_context_create(&options, &context));
    p.args.executor = &executor;
    CHECK_REFUSED(heed_attention(context, &p.desc, &p.args), HEED_ERR_INVALID, "ran none of 2");
    heed_context_release(context);
    options.executor = &executor;
    CHECK_OK(heed_context_create(&options, &context));
    CHECK_REFUSED(heed_linear_create(context, &desc, &weight, NULL, &linear), HEED_ERR_INVALID,
                  "ran nothing");
    CHECK(!linear, "a layer beside a failure");
    heed_context_release(context);
    unit_free(&p);
}

int main(void)
{
    static const struct {
        double us;
        const char *policy;
        int own, openmp; /* parts on an executor's threads, on OpenMP's */
    } want[] = {
        {2, NULL, 1, 1},       {50, NULL, 2, 2},        {50, "active", 2, 2},
        {50, "passive", 2, 1}, {50, " PASSIVE ", 2, 1}, {500, "passive", 2, 2},
    };
    const heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = 2, .parallel_for = unit_backwards};
    runs_nothing();
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const char *policy = want[i].policy;
        int n = parts_of(want[i].us, policy, &executor);
        CHECK(n == want[i].own, "%g us, %s, an executor: %d parts", want[i].us,
              policy ? policy : "unset", n);
        n = parts_of(want[i].us, policy, NULL);
        CHECK(n == (HEED_HAVE_OPENMP ? want[i].openmp : 1), "%g us, %s: %d parts", want[i].us,
              policy ? policy : "unset", n);
    }
    return checks_end();
}
