/* Contexts come and go, with every cap on instruction sets, while other threads run attention and
 * linear layers: what a backend chose for this CPU when the first context was made must not change
 * under them. Every result has the bits of before, on each backend that runs here. Meant to be run
 * under TSan too. */
#include <heed/kit.h>
#include <pthread.h>

#include "../unit/unit.h"

enum { N_MAKERS = 2, N_RUNNERS = 2, ROUNDS = 30, N_ATTN = 4, IN = 96, OUT = 80, ROWS = 9 };

/* Of bf16 data with accuracy bf16: vdpbf16ps or not is such a choice. */
typedef struct attention {
    heed_attn_desc desc;
    heed_attn_args args;
    void *data[3];
    float *want;
    size_t out_bytes;
} attention;

typedef struct layer {
    heed_linear *made;
    float want[ROWS * OUT];
} layer;

static const struct {
    uint32_t type, q_len, kv_len, dim;
} shapes[N_ATTN] = {
    {HEED_F32, 1, 1300, 64},  /* decode: chunks */
    {HEED_F32, 4, 10, 8},     /* small */
    {HEED_BF16, 24, 100, 32}, /* prefill */
    {HEED_BF16, 1, 300, 64},
};
static const uint32_t layer_types[2] = {HEED_F32, HEED_BF16};

static const char *backend;
static heed_context *context;
static attention attn[N_ATTN];
static layer layers[2];
static uint16_t x_bf16[ROWS * IN], w_bf16[IN * OUT];
static float x_f32[ROWS * IN], w_f32[IN * OUT];
static int n_wrong, stop, n_made;

static void wrong(void)
{
    __atomic_add_fetch(&n_wrong, 1, __ATOMIC_RELAXED);
}

static attention make_attention(int shape)
{
    const int64_t heads = 2, dim = shapes[shape].dim;
    const int64_t rows[3] = {shapes[shape].q_len, shapes[shape].kv_len, shapes[shape].kv_len};
    const uint32_t type = shapes[shape].type;
    uint64_t seed = (uint64_t)shape;
    attention a = {
        .desc = {.struct_size = sizeof a.desc,
                 .q_heads = (uint32_t)heads,
                 .kv_heads = (uint32_t)heads,
                 .qk_dim = (uint32_t)dim,
                 .v_dim = (uint32_t)dim,
                 .q_type = type,
                 .k_type = type,
                 .v_type = type,
                 .out_type = HEED_F32,
                 .accuracy = type == HEED_BF16 ? HEED_ACCURACY_BF16 : HEED_ACCURACY_DEFAULT,
                 .max_batch = 1,
                 .max_q_len = rows[0],
                 .max_kv_len = rows[1]},
        .args = {.struct_size = sizeof a.args, .batch = 1, .q_len = rows[0], .kv_len = rows[1]},
        .out_bytes = (size_t)(heads * rows[0] * dim) * sizeof(float)};
    heed_const_view *to[3] = {&a.args.q, &a.args.k, &a.args.v};
    for (int n = 0; n < 3; n++) {
        a.data[n] = malloc((size_t)(heads * rows[n] * dim) * sizeof(float));
        if (!a.data[n])
            exit(1);
        for (int64_t i = 0; i < heads * rows[n] * dim; i++)
            heed_store(type, a.data[n], i, unit_number(&seed));
        *to[n] = (heed_const_view){a.data[n], {heads * rows[n] * dim, rows[n] * dim, dim, 1}};
    }
    memcpy(a.args.out.stride, a.args.q.stride, sizeof a.args.out.stride);
    a.want = calloc(1, a.out_bytes);
    return a;
}

static heed_status run_attention(heed_context *on, const attention *a, void *out)
{
    heed_attn_args args = a->args;
    args.out.data = out;
    return heed_attention(on, &a->desc, &args);
}

static heed_status make_layer(heed_context *on, uint32_t type, heed_linear **out)
{
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = IN,
                                   .out_dim = OUT,
                                   .x_type = type,
                                   .w_type = type,
                                   .y_type = HEED_F32,
                                   .accuracy = type == HEED_BF16 ? HEED_ACCURACY_BF16
                                                                 : HEED_ACCURACY_DEFAULT};
    const heed_const_view weight = {type == HEED_BF16 ? (const void *)w_bf16 : w_f32, {OUT, 1}};
    return heed_linear_create(on, &desc, &weight, NULL, out);
}

static heed_status run_layer(const heed_linear *linear, uint32_t type, float *y)
{
    const heed_linear_args args = {.struct_size = sizeof args,
                                   .rows = ROWS,
                                   .x = {type == HEED_BF16 ? (const void *)x_bf16 : x_f32, {IN, 1}},
                                   .y = {y, {OUT, 1}}};
    return heed_linear_run(linear, &args, NULL, 0);
}

static void hold_attention(heed_context *on, int shape)
{
    void *out = malloc(attn[shape].out_bytes);
    if (run_attention(on, &attn[shape], out) != HEED_OK ||
        memcmp(out, attn[shape].want, attn[shape].out_bytes) != 0)
        wrong();
    free(out);
}

/* Contexts with each cap, for all backends; where this one may still run, to the same bits. */
static void *makes(void *arg)
{
    static const char *const cap[] = {NULL, "baseline", "avx2", "avx512", "amx"};
    for (unsigned i = (unsigned)(intptr_t)arg; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++) {
        const heed_context_options options = {.struct_size = sizeof options,
                                              .n_threads = 1,
                                              .backends = backend,
                                              .max_isa = cap[i % 5]};
        heed_context *made = NULL;
        if (heed_context_create(&options, &made) != HEED_OK) {
            wrong();
            continue;
        }
        const int shape = (int)(i / 5 % N_ATTN);
        if (!cap[i % 5] && attn[shape].want)
            hold_attention(made, shape);
        heed_context_release(made);
        __atomic_add_fetch(&n_made, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *runs(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        for (int shape = 0; shape < N_ATTN; shape++)
            if (attn[shape].want)
                hold_attention(context, shape);
        for (int n = 0; n < 2; n++) {
            float y[ROWS * OUT];
            heed_linear *again = NULL;
            if (!layers[n].made)
                continue;
            if (run_layer(layers[n].made, layer_types[n], y) != HEED_OK ||
                memcmp(y, layers[n].want, sizeof y) != 0)
                wrong();
            if (make_layer(context, layer_types[n], &again) != HEED_OK ||
                run_layer(again, layer_types[n], y) != HEED_OK ||
                memcmp(y, layers[n].want, sizeof y) != 0)
                wrong();
            heed_linear_release(again);
        }
    }
    return arg;
}

/* What the backend does not serve is left out. */
static int expectations(void)
{
    int n_served = 0;
    for (int shape = 0; shape < N_ATTN; shape++) {
        attn[shape] = make_attention(shape);
        if (run_attention(context, &attn[shape], attn[shape].want) == HEED_OK) {
            n_served++;
        } else {
            free(attn[shape].want);
            attn[shape].want = NULL;
        }
    }
    for (int n = 0; n < 2; n++) {
        layers[n].made = NULL;
        if (make_layer(context, layer_types[n], &layers[n].made) == HEED_OK &&
            run_layer(layers[n].made, layer_types[n], layers[n].want) == HEED_OK)
            n_served++;
    }
    return n_served;
}

static void on_backend(const char *name)
{
    pthread_t maker[N_MAKERS], runner[N_RUNNERS];
    backend = name;
    context = unit_context(1, name);
    n_wrong = stop = n_made = 0;
    const int served = expectations();
    if (served) {
        for (int i = 0; i < N_MAKERS; i++)
            pthread_create(&maker[i], NULL, makes, (void *)(intptr_t)(i * 2));
        for (int i = 0; i < N_RUNNERS; i++)
            pthread_create(&runner[i], NULL, runs, NULL);
        for (int i = 0; i < N_RUNNERS; i++)
            pthread_join(runner[i], NULL);
        __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
        for (int i = 0; i < N_MAKERS; i++)
            pthread_join(maker[i], NULL);
        printf("%s: %d problems beside %d contexts\n", name, served, n_made);
        CHECK(n_made > 0, "%s: no context was made meanwhile", name);
        CHECK(n_wrong == 0, "%s: %d wrong beside contexts that come and go", name, n_wrong);
    } else {
        printf("%s: not here: %s\n", name, heed_last_error());
        CHECK(strcmp(name, "naive") != 0, "naive runs everywhere");
    }
    for (int shape = 0; shape < N_ATTN; shape++) {
        for (int n = 0; n < 3; n++)
            free(attn[shape].data[n]);
        free(attn[shape].want);
    }
    for (int n = 0; n < 2; n++)
        heed_linear_release(layers[n].made);
    heed_context_release(context);
}

int main(void)
{
    static const char *const names[] = {"naive", "avx2", "avx512", "amx", "onednn"};
    uint64_t seed = 5;
    for (int i = 0; i < ROWS * IN; i++)
        heed_store(HEED_BF16, x_bf16, i, x_f32[i] = unit_number(&seed));
    for (int i = 0; i < IN * OUT; i++)
        heed_store(HEED_BF16, w_bf16, i, w_f32[i] = unit_number(&seed));
    for (int i = 0; i < 5; i++)
        on_backend(names[i]);
    return unit_end();
}
