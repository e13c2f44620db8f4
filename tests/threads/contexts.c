/* Eight threads make contexts with differing backends, caps on instruction sets and numbers of
 * threads, make plans and layers with them, have both explained and release everything, while other
 * threads run attention and linear layers on each backend that runs here. What a backend chose for
 * this CPU when the first context was made must not change meanwhile: every result has the bits
 * that it had when nothing else went on. Meant to be run under TSan too. */
#include <heed/kit.h>
#include <pthread.h>

#include "../unit/unit.h"
#include "on_pthreads.h"

enum { N_MAKERS = 8, ROUNDS = 30, N_ATTN = 4, IN = 96, OUT = 80, ROWS = 9 };

/* bf16 data has accuracy bf16: whether to use vdpbf16ps is such a choice. */
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

/* A single backend, with its results from before the other threads start. */
typedef struct side {
    const char *name;
    heed_context *context;
    attention attn[N_ATTN];
    layer layers[2];
    int n_served;        /* attention and layers; 0: it does not run here */
    heed_status refusal; /* the status of what it refuses */
} side;

static side sides[] = {
    {.name = "naive"}, {.name = "avx2"}, {.name = "avx512"}, {.name = "amx"}, {.name = "onednn"}};
enum { N_SIDES = sizeof sides / sizeof *sides };
static uint16_t x_bf16[ROWS * IN], w_bf16[IN * OUT];
static float x_f32[ROWS * IN], w_f32[IN * OUT];
static int stop, n_made[N_MAKERS], n_refused[N_MAKERS];

static attention make_attention(int shape)
{
    const int64_t heads = 2, dim = shapes[shape].dim;
    const int64_t rows[3] = {shapes[shape].q_len, shapes[shape].kv_len, shapes[shape].kv_len};
    const uint32_t type = shapes[shape].type;
    uint64_t seed = (uint64_t)shape;
    attention a = {
        .desc = {.struct_size = sizeof a.desc,
                 UNIT_SHAPE((uint32_t)heads, (uint32_t)heads, (uint32_t)dim, (uint32_t)dim),
                 UNIT_TYPES(type, type, type, HEED_F32),
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

static void hold_attention(heed_context *on, const attention *a)
{
    void *out = malloc(a->out_bytes);
    if (run_attention(on, a, out) != HEED_OK || memcmp(out, a->want, a->out_bytes) != 0)
        wrong();
    free(out);
}

static void hold_layer(const heed_linear *made, uint32_t type, const float *want)
{
    float y[ROWS * OUT];
    if (run_layer(made, type, y) != HEED_OK || memcmp(y, want, sizeof y) != 0)
        wrong();
}

/* Makes a plan and a layer and has both explained. They may be refused where the cap leaves no
 * backend for them. Returns how many were made. */
static int explain(heed_context *on, const attention *a, uint32_t type, heed_status refusal)
{
    char text[8192];
    heed_attn *plan = NULL;
    heed_linear *linear = NULL;
    const heed_status st[2] = {heed_attn_create(on, &a->desc, &plan),
                               make_layer(on, type, &linear)};
    for (uint32_t json = 0; json < 2; json++) {
        size_t bytes = sizeof text;
        if (plan && (heed_attn_explain(plan, json, text, &bytes) != HEED_OK || !*text))
            wrong();
        bytes = sizeof text;
        if (linear && (heed_linear_explain(linear, json, text, &bytes) != HEED_OK || !*text))
            wrong();
    }
    for (int n = 0; n < 2; n++)
        if (st[n] != HEED_OK && st[n] != HEED_ERR_UNSUPPORTED && st[n] != refusal)
            wrong();
    heed_attn_release(plan);
    heed_linear_release(linear);
    return (st[0] == HEED_OK) + (st[1] == HEED_OK);
}

/* Makes contexts of every backend and of all of them, with each cap. Where nothing is capped, the
 * attention of such a context has the bits of before. */
static void *makes(void *arg)
{
    static const char *const cap[] = {NULL, "baseline", "avx2", "avx512", "amx"};
    const int me = (int)(intptr_t)arg;
    for (int i = me; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++) {
        const side *on = i % (N_SIDES + 1) < N_SIDES ? &sides[i % (N_SIDES + 1)] : NULL;
        const int capped = i / 2 % 5, shape = i % N_ATTN;
        const heed_context_options options = {.struct_size = sizeof options,
                                              .n_threads = 1 + (uint32_t)i % 3,
                                              .backends = on ? on->name : NULL,
                                              .max_isa = cap[capped]};
        heed_context *made = NULL;
        if (heed_context_create(&options, &made) != HEED_OK) {
            wrong();
            continue;
        }
        n_refused[me] += 2 - explain(made, &sides[0].attn[shape], layer_types[i % 2],
                                     on ? on->refusal : HEED_OK);
        if (on && !capped && on->attn[shape].want)
            hold_attention(made, &on->attn[shape]);
        heed_context_release(made);
        n_made[me]++;
    }
    return arg;
}

static void *runs(void *arg)
{
    const side *on = arg;
    for (int i = 0; i < ROUNDS; i++) {
        for (int shape = 0; shape < N_ATTN; shape++)
            if (on->attn[shape].want)
                hold_attention(on->context, &on->attn[shape]);
        for (int n = 0; n < 2; n++) {
            heed_linear *again = NULL;
            if (!on->layers[n].made)
                continue;
            hold_layer(on->layers[n].made, layer_types[n], on->layers[n].want);
            if (make_layer(on->context, layer_types[n], &again) != HEED_OK)
                wrong();
            else
                hold_layer(again, layer_types[n], on->layers[n].want);
            heed_linear_release(again);
        }
    }
    return arg;
}

/* Computes the expected results. Problems that the backend refuses are left out. */
static void expect(side *on)
{
    on->context = unit_context(1, on->name);
    for (int shape = 0; shape < N_ATTN; shape++) {
        attention *a = &on->attn[shape];
        *a = make_attention(shape);
        const heed_status st = run_attention(on->context, a, a->want);
        if (st == HEED_OK) {
            on->n_served++;
        } else {
            on->refusal = st; /* a backend that is not here is unknown, not without support */
            free(a->want);
            a->want = NULL;
        }
    }
    for (int n = 0; n < 2; n++)
        if (make_layer(on->context, layer_types[n], &on->layers[n].made) == HEED_OK &&
            run_layer(on->layers[n].made, layer_types[n], on->layers[n].want) == HEED_OK)
            on->n_served++;
    printf("%s: %d problems%s%s\n", on->name, on->n_served, on->n_served ? "" : ": ",
           on->n_served ? "" : heed_last_error());
}

static void drop(side *on)
{
    for (int shape = 0; shape < N_ATTN; shape++) {
        for (int n = 0; n < 3; n++)
            free(on->attn[shape].data[n]);
        free(on->attn[shape].want);
    }
    for (int n = 0; n < 2; n++)
        heed_linear_release(on->layers[n].made);
    heed_context_release(on->context);
}

int main(void)
{
    pthread_t maker[N_MAKERS], runner[N_SIDES];
    uint64_t seed = 5;
    int n_contexts = 0, n_without = 0;
    for (int i = 0; i < ROWS * IN; i++)
        heed_store(HEED_BF16, x_bf16, i, x_f32[i] = unit_number(&seed));
    for (int i = 0; i < IN * OUT; i++)
        heed_store(HEED_BF16, w_bf16, i, w_f32[i] = unit_number(&seed));
    for (int i = 0; i < N_SIDES; i++)
        expect(&sides[i]);
    CHECK(sides[0].n_served == N_ATTN + 2, "naive serves %d", sides[0].n_served);
    for (int i = 0; i < N_MAKERS; i++)
        pthread_create(&maker[i], NULL, makes, (void *)(intptr_t)i);
    for (int i = 0; i < N_SIDES; i++)
        pthread_create(&runner[i], NULL, runs, &sides[i]);
    for (int i = 0; i < N_SIDES; i++)
        pthread_join(runner[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < N_MAKERS; i++) {
        pthread_join(maker[i], NULL);
        CHECK(n_made[i] > 0, "thread %d made no context meanwhile", i);
        n_contexts += n_made[i];
        n_without += n_refused[i];
    }
    printf("%d contexts came and went, without %d of their plans and layers\n", n_contexts,
           n_without);
    CHECK(n_without < 2 * n_contexts, "nothing was planned in any of %d contexts", n_contexts);
    CHECK(n_wrong == 0, "%d wrong beside contexts that come and go", n_wrong);
    for (int i = 0; i < N_SIDES; i++)
        drop(&sides[i]);
    return checks_end();
}
