/* A host may round in any direction, flush subnormals and let exceptions trap where it calls: what
 * is made there (plans, layers, schedules) and what is computed has the same bits as without, the
 * same backends are chosen for the same reasons, and the host's settings are left as they were. */
#define _GNU_SOURCE /* feenableexcept */
#include <fenv.h>
#include <math.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "layer_setup.h"

enum { MOST_DIM = 256, Q_LEN = 2, KV_LEN = 3, TEXT = 1 << 15 };

static const struct {
    const char *name;
    int rounding;
    unsigned mxcsr; /* bits set besides: 0x8000 flush results, 0x40 subnormal inputs are zero */
    int trap;
} modes[] = {
    {"to nearest", FE_TONEAREST, 0, 0},    {"upward", FE_UPWARD, 0, 0},
    {"downward", FE_DOWNWARD, 0, 0},       {"toward zero", FE_TOWARDZERO, 0, 0},
    {"flushing", FE_TONEAREST, 0x8040, 0}, {"upward and flushing", FE_UPWARD, 0x8040, 0},
    {"with traps", FE_TONEAREST, 0, 1},    {"upward with traps", FE_UPWARD, 0, 1},
};

/* The host's settings. They are compared after a call, once they are reset: printing may round. */
static unsigned control(void)
{
#if defined(__SSE2__)
    return _mm_getcsr() & ~0x3fu;
#else
    return (unsigned)fegetround();
#endif
}

static unsigned set_host(size_t mode)
{
    fesetround(modes[mode].rounding);
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() | modes[mode].mxcsr);
#endif
#if defined(__GLIBC__)
    if (modes[mode].trap) {
        feclearexcept(FE_ALL_EXCEPT); /* what was raised before must not trap */
        feenableexcept(FE_ALL_EXCEPT);
    }
#endif
    return control();
}

static void reset_host(size_t mode, unsigned was)
{
    const unsigned is = control();
    fesetenv(FE_DFL_ENV);
    CHECK(is == was, "%s: the host had %x and has %x", modes[mode].name, was, is);
}

static const char *backend;

/* A call with a plan of its own for every head dim: all that is computed where plans are made shows
 * in the results. */
static void run_attention(size_t mode, int dim, int simple, float *out)
{
    heed_context *context;
    unit_problem p = unit_make(1, 1, Q_LEN, KV_LEN, (uint32_t)dim, (uint64_t)dim);
    heed_attn *plan = NULL;
    const heed_context_options options = {
        .struct_size = sizeof options, .n_threads = 1, .backends = backend};
    for (int j = 0; j < KV_LEN; j++)
        p.v[j * dim] = 0x1p-130F; /* subnormal, and so is what comes out */
    heed_status st = HEED_OK, made = HEED_OK, supported;
    const unsigned was = set_host(mode);
    made = heed_context_create(&options, &context);
    supported = heed_attn_supported(context, &p.desc, NULL);
    if (simple) {
        st = heed_attention(context, &p.desc, &p.args);
    } else {
        st = heed_attn_create(context, &p.desc, &plan);
        if (st == HEED_OK)
            st = heed_attn_run(plan, &p.args, NULL, 0);
    }
    heed_attn_release(plan);
    reset_host(mode, was);
    CHECK(made == HEED_OK && supported == HEED_OK && st == HEED_OK, "%s: %s", modes[mode].name,
          heed_last_error());
    memcpy(out, p.out, p.out_bytes);
    heed_context_release(context);
    unit_free(&p);
}

static void attention(size_t mode)
{
    static float want[2][MOST_DIM + 1][Q_LEN * MOST_DIM], got[Q_LEN * MOST_DIM];
    for (int simple = 0; simple < 2; simple++)
        for (int dim = 1; dim <= MOST_DIM; dim++) {
            float *first = want[simple][dim];
            run_attention(mode, dim, simple, mode ? got : first);
            CHECK(mode == 0 || !memcmp(got, first, sizeof *got * Q_LEN * (size_t)dim),
                  "%s: head dim %d, %s has other bits", modes[mode].name, dim,
                  simple ? "the simple call" : "a plan");
        }
}

/* A soft cap that is no number is refused, and does not trap. */
static void bad_numbers(size_t mode)
{
    heed_context *context = unit_context(1, backend);
    unit_problem p = unit_make(1, 1, Q_LEN, KV_LEN, 4, 3);
    heed_attn *plan = NULL;
    p.desc.features |= HEED_HAS_SOFTCAP;
    p.desc.softcap = NAN;
    const unsigned was = set_host(mode);
    heed_status st = heed_attn_create(context, &p.desc, &plan);
    heed_status asked = heed_attn_supported(context, &p.desc, NULL);
    reset_host(mode, was);
    CHECK(st == HEED_ERR_INVALID && asked == HEED_ERR_INVALID, "a soft cap of NaN gives %s, %s",
          heed_status_string(st), heed_status_string(asked));
    heed_context_release(context);
    unit_free(&p);
}

/* All of a layer: packing, projections, rotary positions, the cache, attention. Without `freq` the
 * angles are the library's own. */
static void run_layer(size_t mode, layer_setup *s, char *text)
{
    const heed_context_options options = {
        .struct_size = sizeof options, .n_threads = 1, .backends = backend};
    heed_context *context;
    heed_mha *mha = NULL;
    size_t bytes = TEXT;
    s->desc.rotary.freq = NULL;
    s->bias[0] = 0x1p-130F;
    memset(s->y, 0xff, sizeof s->y);
    memset(text, 0, TEXT);
    const heed_const_view weight = {s->w_in, {3 * DIM, 1}}, bias = {s->bias, {1}};
    const unsigned was = set_host(mode);
    heed_status made = heed_context_create(&options, &context);
    heed_status asked = heed_linear_supported(context, &s->in, NULL);
    s->desc.qkv_proj = s->desc.out_proj = NULL;
    heed_status st = heed_linear_create(context, &s->in, &weight, &bias, &s->desc.qkv_proj);
    if (st == HEED_OK)
        st = heed_linear_run(s->desc.qkv_proj, &s->linear_args, NULL, 0);
    heed_linear_release(s->desc.qkv_proj);
    if (st == HEED_OK)
        st = layer_create(context, s, &mha);
    if (st == HEED_OK)
        st = heed_mha_run(mha, &s->args, NULL, 0);
    heed_status said = mha ? heed_mha_explain(mha, 0, text, &bytes) : HEED_OK;
    heed_mha_release(mha);
    reset_host(mode, was);
    CHECK(made == HEED_OK && asked == HEED_OK && st == HEED_OK && said == HEED_OK, "%s: %s",
          modes[mode].name, heed_last_error());
    heed_context_release(context);
}

static void layers(size_t mode)
{
    static char text[2][TEXT];
    static layer_setup *want;
    layer_setup *got = layer_prepare();
    run_layer(mode, got, text[mode > 0]);
    if (mode == 0) {
        free(want);
        want = got;
        return;
    }
    CHECK(!memcmp(got->middle, want->middle, sizeof got->middle), "%s: linear has other bits",
          modes[mode].name);
    CHECK(!memcmp(got->y, want->y, sizeof got->y) &&
              !memcmp(got->cache, want->cache, sizeof got->cache),
          "%s: a layer has other bits", modes[mode].name);
    CHECK(!strcmp(text[0], text[1]), "%s: explained as\n%s\nwithout as\n%s", modes[mode].name,
          text[1], text[0]);
    free(got);
}

/* A layer whose weights two threads pack: how many that takes is computed, too. */
static void wide_layer(size_t mode)
{
    enum { IN = 64, OUT = 512, N = 3 };
    static float w[IN * OUT], x[N * IN], y[N * OUT], want[N * OUT];
    const heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = 2, .parallel_for = unit_forwards};
    const heed_context_options options = {
        .struct_size = sizeof options, .executor = &executor, .backends = backend};
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = IN,
                                   .out_dim = OUT,
                                   .x_type = HEED_F32,
                                   .w_type = HEED_F32,
                                   .y_type = HEED_F32};
    const heed_linear_args args = {
        .struct_size = sizeof args, .rows = N, .x = {x, {IN, 1}}, .y = {y, {OUT, 1}}};
    const heed_const_view weight = {w, {OUT, 1}};
    heed_context *context = NULL;
    heed_linear *linear = NULL;
    for (int i = 0; i < IN * OUT; i++)
        w[i] = (float)(i % 37 - 18) / 7;
    for (int i = 0; i < N * IN; i++)
        x[i] = (float)(i % 29 - 14) / 11;
    CHECK_OK(heed_context_create(&options, &context));
    const unsigned was = set_host(mode);
    heed_status st = heed_linear_create(context, &desc, &weight, NULL, &linear);
    if (st == HEED_OK)
        st = heed_linear_run(linear, &args, NULL, 0);
    reset_host(mode, was);
    CHECK(st == HEED_OK, "%s: %s", modes[mode].name, heed_last_error());
    if (mode == 0)
        memcpy(want, y, sizeof want);
    CHECK(!memcmp(want, y, sizeof want), "%s: a wide layer has other bits", modes[mode].name);
    heed_linear_release(linear);
    heed_context_release(context);
}

/* A run in parts, each of which the host calls. */
static void parts(size_t mode)
{
    static float want[Q_LEN * 40];
    heed_context *context = unit_context(2, backend);
    unit_problem p = unit_make(1, 1, Q_LEN, 600, 40, 17);
    heed_attn *plan = NULL;
    size_t bytes;
    CHECK_OK(heed_attn_create(context, &p.desc, &plan));
    void *workspace = unit_workspace(plan, 2, &bytes);
    const unsigned was = set_host(mode);
    heed_status begun = heed_attn_begin(plan, &p.args, 2, workspace, bytes);
    heed_status one = heed_run_part(workspace, 0), two = heed_run_part(workspace, 1);
    reset_host(mode, was);
    CHECK(begun == HEED_OK && one == HEED_OK && two == HEED_OK, "%s: %s", modes[mode].name,
          heed_last_error());
    if (mode == 0)
        memcpy(want, p.out, sizeof want);
    CHECK(!memcmp(want, p.out, sizeof want), "%s: a run in parts has other bits", modes[mode].name);
    heed_attn_release(plan);
    free(workspace);
    heed_context_release(context);
    unit_free(&p);
}

int main(void)
{
    static const char *const backends[] = {NULL, "naive", "avx2", "avx512"};
    setvbuf(stdout, NULL, _IOLBF, 0); /* a trap ends the process: print findings before */
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        const heed_context_options options = {.struct_size = sizeof options,
                                              .backends = backends[i]};
        unit_problem p = unit_make(1, 1, 1, 1, 8, 1);
        heed_context *context = NULL;
        backend = backends[i];
        const int there = heed_context_create(&options, &context) == HEED_OK &&
                          heed_attn_supported(context, &p.desc, NULL) == HEED_OK;
        heed_context_release(context);
        unit_free(&p);
        for (size_t mode = 0; there && mode < sizeof modes / sizeof *modes; mode++) {
            attention(mode);
            bad_numbers(mode);
            layers(mode);
            wide_layer(mode);
            parts(mode);
        }
    }
    return checks_end();
}
