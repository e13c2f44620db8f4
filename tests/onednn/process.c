/* What a process has set for its own use of oneDNN and OpenMP neither changes products of plans and layers
 * nor is changed by them.
 * Threads    Core has spread the work already: oneDNN creates and executes on one thread, and OpenMP's
 *            number of threads, which is the calling thread's and the host's, is afterwards what it was.
 * Math mode  A process may let oneDNN make f32 products of bf16 ones, as a default for all that it creates
 *            from then on. Plans and layers have an accuracy that was asked for. Few CPUs have such
 *            products, so the attributes of what is created are looked at, not numbers. */
#define _GNU_SOURCE /* RTLD_NEXT, RTLD_DEFAULT */
#include "../check.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <heed/heed.h>
#include <stdlib.h>

#define HAS_MATH_MODES (DNNL_VERSION_MAJOR > 2 || DNNL_VERSION_MINOR >= 6)

enum { DIM = 64, ROWS = 20, THREADS = 3 };

static int (*get_threads)(void); /* NULL: oneDNN has no threads */
static int n_calls, n_spread;    /* of oneDNN; those that saw more than one thread */
static int n_created, n_loose;   /* products; those that may be made of other ones */

static void look(void)
{
    n_calls++;
    n_spread += get_threads && get_threads() != 1;
}

static void look_at_mode(const_dnnl_primitive_desc_t description)
{
    n_created++;
#if HAS_MATH_MODES
    const_dnnl_primitive_attr_t attributes;
    dnnl_fpmath_mode_t mode = dnnl_fpmath_mode_any;
    if (dnnl_primitive_desc_get_attr(description, &attributes) == dnnl_success)
        dnnl_primitive_attr_get_fpmath_mode(attributes, &mode);
    n_loose += mode != dnnl_fpmath_mode_strict;
#else
    (void)description;
#endif
}

/* The program exports these two functions, so the plugin finds them before oneDNN's. */
dnnl_status_t dnnl_primitive_create(dnnl_primitive_t *primitive,
                                    const_dnnl_primitive_desc_t description)
{
    static dnnl_status_t (*real)(dnnl_primitive_t * primitive,
                                 const_dnnl_primitive_desc_t description);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dnnl_primitive_create");
    look();
    look_at_mode(description);
    return real(primitive, description);
}

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                     int n_args, const dnnl_exec_arg_t *args)
{
    static dnnl_status_t (*real)(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int n_args,
                                 const dnnl_exec_arg_t *args);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
    look();
    return real(primitive, stream, n_args, args);
}

static void expect(const char *what)
{
    CHECK(n_calls > 0 && n_spread == 0, "%s: %d of %d calls could use more threads", what, n_spread,
          n_calls);
    CHECK(!get_threads || get_threads() == THREADS, "%s: OpenMP is left with %d threads", what,
          get_threads());
    n_calls = n_spread = 0;
}

static void expect_new(const char *what)
{
    expect(what);
    CHECK(n_created > 0 && n_loose == 0, "%s: %d of %d products are loose", what, n_loose,
          n_created);
    n_created = n_loose = 0;
}

static float x[ROWS * DIM], y[ROWS * DIM], w[DIM * DIM];

/* By a begun part: it runs on this thread, whose number of threads is looked at. */
static void attention(heed_context *context)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .q_heads = 1,
                                 .kv_heads = 1,
                                 .qk_dim = DIM,
                                 .v_dim = DIM,
                                 .q_type = HEED_F32,
                                 .k_type = HEED_F32,
                                 .v_type = HEED_F32,
                                 .out_type = HEED_F32,
                                 .max_batch = 1,
                                 .max_q_len = ROWS,
                                 .max_kv_len = DIM};
    const heed_attn_args args = {.struct_size = sizeof args,
                                 .batch = 1,
                                 .q_len = ROWS,
                                 .kv_len = DIM,
                                 .q = {x, {0, 0, DIM, 1}},
                                 .k = {w, {0, 0, DIM, 1}},
                                 .v = {w, {0, 0, DIM, 1}},
                                 .out = {y, {0, 0, DIM, 1}}};
    heed_attn *plan = NULL;
    CHECK_OK(heed_attn_create(context, &desc, &plan));
    expect_new("a plan");
    const size_t bytes = (heed_attn_workspace_bytes(plan, 1) + 63) / 64 * 64;
    void *workspace = aligned_alloc(64, bytes);
    CHECK_OK(heed_attn_begin(plan, &args, 1, workspace, bytes));
    CHECK_OK(heed_run_part(workspace, 0));
    expect("attention");
    heed_attn_release(plan);
    free(workspace);
}

static void linear(heed_context *context)
{
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = DIM,
                                   .out_dim = DIM,
                                   .x_type = HEED_F32,
                                   .w_type = HEED_F32,
                                   .y_type = HEED_F32};
    const heed_const_view weight = {w, {DIM, 1}};
    const heed_linear_args args = {
        .struct_size = sizeof args, .rows = ROWS, .x = {x, {DIM, 1}}, .y = {y, {DIM, 1}}};
    heed_linear *layer = NULL;
    CHECK_OK(heed_linear_create(context, &desc, &weight, NULL, &layer));
    expect_new("a layer");
    const size_t bytes = (heed_linear_workspace_bytes(layer, 1) + 63) / 64 * 64;
    void *workspace = aligned_alloc(64, bytes);
    CHECK_OK(heed_linear_begin(layer, &args, 1, workspace, bytes));
    CHECK_OK(heed_run_part(workspace, 0));
    expect("linear");
    heed_linear_release(layer);
    free(workspace);
}

int main(void)
{
    const heed_context_options options = {
        .struct_size = sizeof options, .n_threads = 1, .backends = "onednn"};
    heed_context *context;
    void (*set_threads)(int);
    *(void **)&get_threads = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (get_threads)
        set_threads(THREADS);
#if HAS_MATH_MODES
    CHECK(dnnl_set_default_fpmath_mode(dnnl_fpmath_mode_bf16) == dnnl_success, "no such default");
#endif
    /* A use of oneDNN, or the linker would leave it out, and RTLD_NEXT not find a plugin's. */
    printf("oneDNN %d.%d\n", dnnl_version()->major, dnnl_version()->minor);
    if (heed_context_create(&options, &context) != HEED_OK) {
        printf("%s\n", heed_last_error());
        return 1;
    }
    attention(context);
    linear(context);
    heed_context_release(context);
    return checks_end();
}
