/* Linear and attention layers when memory runs out: at any moment while they are made and run, in a
 * backend's trial, and with more threads than there is memory for. And a shortage that passes: what is
 * made in spite of it is what is made without. */
#include <heed/backend.h>
#include <limits.h>

#include "changed.h"
#include "layer_setup.h"

const heed_backend *heed_naive_backend(void);

/* Makes a context and layers and runs them with n allocations. Returns whether that was enough. */
static int with_allocations(int n, layer_setup *s)
{
    unit_budget b = {.left = n};
    heed_context *context = NULL;
    heed_mha *mha = NULL;
    heed_context_options o = {.struct_size = sizeof o,
                              .n_threads = 1,
                              .user = &b,
                              .alloc = unit_spend,
                              .release = unit_refund};
    memset(s->y, 0x5a, sizeof s->y);
    heed_status st = heed_context_create(&o, &context);
    if (st == HEED_OK)
        st = layer_create(context, s, &mha);
    CHECK(st == HEED_OK || !mha, "a layer beside a failure");
    if (st == HEED_OK)
        st = heed_mha_run(mha, &s->args, NULL, 0);
    int touched = 0;
    for (size_t i = 0; i < sizeof s->y; i++)
        touched |= ((unsigned char *)s->y)[i] != 0x5a;
    CHECK(touched == (st == HEED_OK), "%d allocations: y", n);
    CHECK(st == HEED_OK || (st == HEED_ERR_NOMEM && strstr(heed_last_error(), "memory")),
          "%d allocations: status %d, %s", n, st, heed_last_error());
    heed_context_release(context); /* a layer holds its context */
    heed_mha_release(mha);
    CHECK(b.in_use == 0, "%d allocations: %lld bytes are lost", n, (long long)b.in_use);
    return st == HEED_OK;
}

static void check_exhaustion(layer_setup *s)
{
    int n = 0;
    while (n < 200 && !with_allocations(n, s))
        n++;
    CHECK(n > 8 && n < 200, "%d allocations were enough", n);
}

static uint32_t most_bodies;

static void counted(void *user, uint32_t n, void (*body)(void *arg, uint32_t i), void *arg)
{
    (void)user;
    most_bodies = n > most_bodies ? n : most_bodies;
    while (n > 0)
        body(arg, --n);
}

/* An executor with more threads than there is memory for is given fewer parts. */
static void check_crowds(layer_setup *s)
{
    const uint32_t crowd[] = {3, 1000, 1000000, UINT32_MAX};
    unit_problem p = unit_make(2, 2, 64, 64, 16, 3);
    unit_budget b = {.left = INT_MAX, .most = 1 << 20};
    heed_executor executor = {.struct_size = sizeof executor, .parallel_for = counted};
    heed_context *context = NULL;
    heed_context_options o = {.struct_size = sizeof o,
                              .user = &b,
                              .alloc = unit_spend,
                              .release = unit_refund,
                              .executor = &executor};
    for (size_t i = 0; i < sizeof crowd / sizeof *crowd; i++) {
        heed_mha *mha = NULL;
        executor.n_threads = crowd[i];
        most_bodies = 0;
        CHECK_OK(heed_context_create(&o, &context));
        heed_linear *linear = layer_linear(context, s);
        CHECK_OK(layer_create(context, s, &mha));
        CHECK(heed_attention(context, &p.desc, &p.args) == HEED_OK, "%u threads: %s", crowd[i],
              heed_last_error());
        CHECK(heed_linear_run(linear, &s->linear_args, NULL, 0) == HEED_OK, "%u threads: %s",
              crowd[i], heed_last_error());
        CHECK(heed_mha_run(mha, &s->args, NULL, 0) == HEED_OK, "%u threads: %s", crowd[i],
              heed_last_error());
        CHECK(most_bodies > 1 && most_bodies <= crowd[i], "%u threads, %u parts", crowd[i],
              most_bodies);
        heed_linear_release(linear);
        heed_mha_release(mha);
        heed_context_release(context);
    }
    unit_free(&p);
}

static heed_status bad_tile(const void *machine, const void *state, const heed_problem *problem,
                            heed_tile *tile, void *scratch)
{
    (void)machine, (void)state, (void)problem, (void)tile, (void)scratch;
    return HEED_ERR_BACKEND;
}

static heed_status bad_linear_tile(const void *machine, const void *state,
                                   const heed_linear_problem *problem, const heed_linear_tile *tile,
                                   void *scratch)
{
    (void)machine, (void)state, (void)problem, (void)tile, (void)scratch;
    return HEED_ERR_BACKEND;
}

/* A trial for which there was no memory is repeated later, and its reason is reported then. */
static void check_trials(layer_setup *s)
{
    unit_budget b = {.left = 1000};
    changed_backend faulty;
    heed_context *context = NULL;
    heed_error error;
    heed_context_options o = {.struct_size = sizeof o,
                              .n_threads = 1,
                              .backends = "faulty",
                              .user = &b,
                              .alloc = unit_spend,
                              .release = unit_refund};
    change_backend(&faulty, heed_naive_backend(), "faulty");
    faulty.attn.run = bad_tile;
    faulty.linear.run = bad_linear_tile;
    CHECK_OK(heed_context_create(&o, &context));
    CHECK_OK(heed_context_register(context, &faulty.backend));
    for (int linear = 0; linear < 2; linear++)
        for (int memory = 0; memory < 2; memory++) {
            b.left = memory * 1000;
            heed_status st = linear ? heed_linear_supported(context, &s->in, &error)
                                    : heed_attn_supported(context, &s->attn, &error);
            CHECK(st == (memory ? HEED_ERR_UNSUPPORTED : HEED_ERR_NOMEM) &&
                      strstr(error.text, memory ? "returned HEED_ERR_BACKEND" : "no memory"),
                  "linear %d, memory %d: status %d, %s", linear, memory, st, error.text);
        }
    heed_context_release(context);
}

/* ---- a shortage that passes -------------------------------------------------------------------- */

static int no_memory; /* for `supports` of the backend below */

static heed_status asks_memory(const void *machine, const heed_problem *problem, heed_error *why)
{
    (void)machine, (void)problem, (void)why;
    return no_memory ? HEED_ERR_NOMEM : HEED_OK;
}

static heed_status asks_linear_memory(const void *machine, const heed_linear_problem *problem,
                                      heed_error *why)
{
    (void)machine, (void)problem, (void)why;
    return no_memory ? HEED_ERR_NOMEM : HEED_OK;
}

/* A kernel that has no memory to say whether it can is not passed over for another one. */
static void check_asking(layer_setup *s)
{
    changed_backend asking;
    heed_context *context = unit_context(1, "asking,naive");
    heed_error error;
    change_backend(&asking, heed_naive_backend(), "asking");
    asking.attn.supports = asks_memory;
    asking.linear.supports = asks_linear_memory;
    CHECK_OK(heed_context_register(context, &asking.backend));
    for (no_memory = 1; no_memory >= 0; no_memory--)
        for (int linear = 0; linear < 2; linear++) {
            const heed_status st = linear ? heed_linear_supported(context, &s->in, &error)
                                          : heed_attn_supported(context, &s->attn, &error);
            CHECK(st == (no_memory ? HEED_ERR_NOMEM : HEED_OK), "linear %d: status %d, %s", linear,
                  st, error.text);
            CHECK(!no_memory || (strstr(error.text, "asking") && strstr(error.text, "no memory")),
                  "linear %d: %s", linear, error.text);
        }
    heed_context_release(context);
}

enum { NAMES = 1024 };

/* Fails the allocation that is numbered `left` from now, and no other. */
static void *spend_but_one(void *user, size_t bytes, size_t align)
{
    return (*(int *)user)-- == 0 ? NULL : aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void free_any(void *user, void *p, size_t bytes)
{
    (void)user, (void)bytes;
    free(p);
}

static void add_name(char *names, const heed_kernel_info *info)
{
    const size_t used = strlen(names);
    snprintf(names + used, NAMES - used, "%s %s, ", info->backend, info->kernel);
}

/* Makes a plan of heads of so many dims and names its kernels. */
static heed_status name_attention(heed_context *context, uint32_t type, uint32_t dim, char *names)
{
    static const int64_t q_len[] = {1, 8, 64}, keys[] = {HEED_FEW_KEYS, 3000};
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 UNIT_SHAPE(2, 2, dim, dim),
                                 UNIT_TYPES(type, type, type, HEED_F32),
                                 .max_batch = 1,
                                 .max_q_len = 64,
                                 .max_kv_len = 4096};
    heed_attn *plan = NULL;
    heed_kernel_info info = {.struct_size = sizeof info};
    const heed_status st = heed_attn_create(context, &desc, &plan);
    for (int i = 0; i < 6 && st == HEED_OK; i++) {
        CHECK_OK(heed_attn_kernel_of(plan, q_len[i / 2], keys[i % 2], &info));
        add_name(names, &info);
    }
    heed_attn_release(plan);
    return st;
}

static heed_status name_linear(heed_context *context, uint32_t type, uint32_t dim, char *names)
{
    static const uint16_t weight[64 * 64 * 2];
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = dim,
                                   .out_dim = dim,
                                   .x_type = type,
                                   .w_type = type,
                                   .y_type = HEED_F32};
    const heed_const_view w = {weight, {dim, 1}};
    heed_linear *linear = NULL;
    heed_kernel_info info = {.struct_size = sizeof info};
    const heed_status st = heed_linear_create(context, &desc, &w, NULL, &linear);
    if (st == HEED_OK) {
        CHECK_OK(heed_linear_kernel_of(linear, &info));
        add_name(names, &info);
    }
    heed_linear_release(linear);
    return st;
}

/* Whichever single allocation fails, either the call says so, or it makes the same. */
static void check_one_shortage(heed_status (*name)(heed_context *, uint32_t, uint32_t, char *),
                               uint32_t type, uint32_t dim)
{
    char want[NAMES] = "";
    int failures = 0;
    for (int n = -1, left = n; left < 0; n++) { /* -1: none fails */
        char names[NAMES] = "";
        heed_context *context = NULL;
        left = n;
        heed_context_options o = {.struct_size = sizeof o,
                                  .n_threads = 1,
                                  .user = &left,
                                  .alloc = spend_but_one,
                                  .release = free_any};
        heed_status st = heed_context_create(&o, &context);
        if (st == HEED_OK)
            st = name(context, type, dim, n < 0 ? want : names);
        failures += st != HEED_OK;
        CHECK(st == HEED_OK || (n >= 0 && st == HEED_ERR_NOMEM), "%s", heed_last_error());
        CHECK(n < 0 || st != HEED_OK || strcmp(names, want) == 0,
              "type %u, dim %u, without allocation %d: %s not %s", type, dim, n, names, want);
        heed_context_release(context);
    }
    CHECK(failures > 2, "%d failures", failures);
}

int main(void)
{
    layer_setup *s = layer_prepare();
    check_exhaustion(s);
    check_crowds(s);
    check_trials(s);
    check_asking(s);
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++)
        for (uint32_t dim = 16; dim <= 64; dim += 48) {
            check_one_shortage(name_attention, type, dim);
            check_one_shortage(name_linear, type, dim);
        }
    free(s);
    return checks_end();
}
