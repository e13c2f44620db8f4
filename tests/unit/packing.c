/* Weights of a linear layer are packed by the threads of the context: the results are those of one
 * thread, whichever part takes which panel, an executor is called in the host's floating-point
 * environment, little weights are not worth it, and a panel that fails is the error. */
#include <fenv.h>

#include <heed/backend.h>

#include "changed.h"
#include "unit.h"

const heed_backend *heed_naive_backend(void);

enum { IN = 500, OUT = 700, ROWS = 3 };

static float w[IN * OUT], bias[OUT], x[ROWS * IN];
static int n_calls, n_bodies, rounded_up;

/* fegetround asks the x87 unit alone. The sum is volatile so that it is formed here. */
static int rounds_up(void)
{
    volatile float one = 1, little = 0x1p-30f, sum = one + little;
    return sum > 1;
}

/* The parts of a call, the last one first. */
static void backwards(void *user, uint32_t n, void (*body)(void *arg, uint32_t part), void *arg)
{
    n_calls++;
    n_bodies = (int)n;
    rounded_up = rounds_up();
    unit_backwards(user, n, body, arg);
}

static const heed_executor executor = {
    .struct_size = sizeof executor, .n_threads = 3, .parallel_for = backwards};

/* Nothing that was packed before is found again. */
static void *filled(void *user, size_t bytes, size_t align)
{
    const size_t to = align < 16 ? 16 : align, all = (bytes + to - 1) / to * to;
    void *p = aligned_alloc(to, all);
    (void)user;
    return p ? memset(p, 0xff, all) : NULL;
}

static void release(void *user, void *p, size_t bytes)
{
    (void)user, (void)bytes;
    free(p);
}

static heed_context *context_of(const char *backends, const heed_executor *with)
{
    const heed_context_options o = {.struct_size = sizeof o,
                                    .n_threads = 1,
                                    .backends = backends,
                                    .executor = with,
                                    .alloc = filled,
                                    .release = release};
    heed_context *context = NULL;
    if (heed_context_create(&o, &context) != HEED_OK) {
        printf("no context: %s\n", heed_last_error());
        exit(1);
    }
    return context;
}

/* A layer of the first `out_dim` outputs. */
static heed_status layer_of(heed_context *context, uint32_t out_dim, heed_linear **layer)
{
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .features = HEED_LINEAR_HAS_BIAS,
                                   .in_dim = IN,
                                   .out_dim = out_dim,
                                   .layout = HEED_LINEAR_OUT_IN,
                                   .x_type = HEED_F32,
                                   .w_type = HEED_F32,
                                   .y_type = HEED_F32,
                                   .bias_type = HEED_F32};
    const heed_const_view weight = {w, {IN, 1}}, b = {bias, {1}};
    return heed_linear_create(context, &desc, &weight, &b, layer);
}

static int run(const heed_linear *layer, float *y)
{
    const heed_linear_args args = {
        .struct_size = sizeof args, .rows = ROWS, .x = {x, {IN, 1}}, .y = {y, {OUT, 1}}};
    return heed_linear_run(layer, &args, NULL, 0) == HEED_OK;
}

static void check_backend(const char *name)
{
    static float alone[ROWS * OUT], together[ROWS * OUT];
    heed_context *one = context_of(name, NULL), *three = context_of(name, &executor);
    heed_linear *layer = NULL;
    if (layer_of(one, OUT, &layer) == HEED_OK) {
        CHECK(run(layer, alone), "%s: %s", name, heed_last_error());
        heed_linear_release(layer);
        n_calls = n_bodies = 0;
        fesetround(FE_UPWARD);
        const heed_status st = layer_of(three, OUT, &layer);
        const int after = rounds_up();
        fesetround(FE_TONEAREST);
        CHECK(st == HEED_OK, "%s: %s", name, heed_last_error());
        CHECK(n_calls == 1 && n_bodies == 3, "%s: %d calls of %d parts", name, n_calls, n_bodies);
        CHECK(rounded_up && after, "%s: the host's rounding is not there", name);
        memset(together, 0xff, sizeof together);
        CHECK(run(layer, together), "%s: %s", name, heed_last_error());
        CHECK(!memcmp(alone, together, sizeof alone), "%s: other results", name);
        heed_linear_release(layer);
        n_calls = 0;
        CHECK(layer_of(three, 1, &layer) == HEED_OK && !n_calls, "%s: one output is shared", name);
        heed_linear_release(layer);
    }
    heed_context_release(one);
    heed_context_release(three);
}

static const heed_linear_kernel *naive;
static int n_packed;

/* The panel of output 9 cannot be packed. */
static heed_status pack_some(const void *machine, const heed_linear_problem *problem,
                             const heed_linear_weight *weight, int64_t first, int64_t end,
                             void *panel)
{
    n_packed++;
    return first <= 9 && 9 < end && problem->out_dim == OUT
               ? HEED_ERR_BACKEND
               : naive->pack(machine, problem, weight, first, end, panel);
}

static void check_failure(void)
{
    changed_backend failing;
    change_backend(&failing, heed_naive_backend(), "failing");
    naive = heed_naive_backend()->linear[0];
    failing.linear.pack = pack_some;
    heed_context *context = context_of("failing", &executor);
    heed_linear *layer = NULL;
    CHECK_OK(heed_context_register(context, &failing.backend));
    CHECK(layer_of(context, OUT, &layer) == HEED_ERR_BACKEND && !layer &&
              strstr(heed_last_error(), "failing could not pack weights"),
          "%s", heed_last_error());
    n_packed = 0;
    CHECK_OK(layer_of(context, OUT - 1, &layer));
    CHECK(n_packed > 3, "%d panels", n_packed); /* else no thread had a second one */
    heed_linear_release(layer);
    heed_context_release(context);
}

int main(void)
{
    static const char *const names[] = {"naive", "avx2", "avx512", "amx"};
    uint64_t state = 7;
    for (int i = 0; i < IN * OUT; i++)
        w[i] = unit_number(&state);
    for (int i = 0; i < OUT; i++)
        bias[i] = unit_number(&state);
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = unit_number(&state);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_backend(names[i]);
    check_failure();
    return checks_end();
}
