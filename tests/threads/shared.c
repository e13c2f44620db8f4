/* What threads may share of layers: runs of one linear or attention layer with workspaces of their
 * own and with the context's, parts of one run, layers that are made and released meanwhile,
 * appends to sequences of one cache. Every result is compared with the serial one. Meant to be run
 * under TSan too. */
#include <pthread.h>

#include "../unit/unit.h"
#include "on_pthreads.h"

enum { N_THREADS = 6, ROUNDS = 12, DIM = 32, HEADS = 4, ROWS = 70, CAPACITY = 160, BATCH = 2 };

static heed_context *context;
static heed_linear *linear;
static heed_mha *mha;
static float weight[DIM * 3 * DIM], x[BATCH * ROWS * DIM];
static float want_linear[BATCH * ROWS * 3 * DIM], want_mha[BATCH * ROWS * DIM];

static void hold(heed_status st, const void *got, const void *want, size_t bytes)
{
    if (st != HEED_OK || memcmp(got, want, bytes) != 0)
        wrong();
}

static heed_linear *make_linear(uint32_t in_dim, uint32_t out_dim)
{
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = in_dim,
                                   .out_dim = out_dim,
                                   .x_type = HEED_F32,
                                   .w_type = HEED_F32,
                                   .y_type = HEED_F32,
                                   .activation = HEED_ACT_SILU};
    const heed_const_view w = {weight, {out_dim, 1}};
    heed_linear *made = NULL;
    if (heed_linear_create(context, &desc, &w, NULL, &made) != HEED_OK)
        wrong();
    return made;
}

/* With rotary positions, a cache and rows that are gathered: all phases have work. */
static heed_mha *make_mha(void)
{
    const heed_attn_desc attn = {.struct_size = sizeof attn,
                                 .features = HEED_HAS_CAUSAL | HEED_HAS_LENS,
                                 .position = HEED_POS_BOTTOM_RIGHT,
                                 UNIT_SHAPE(HEADS, HEADS, DIM / HEADS, DIM / HEADS),
                                 UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                                 .max_batch = BATCH,
                                 .max_q_len = ROWS,
                                 .max_kv_len = CAPACITY};
    heed_mha_desc desc = {.struct_size = sizeof desc,
                          .features = HEED_MHA_HAS_CACHE,
                          .d_model = DIM,
                          .x_type = HEED_F32,
                          .rotary = {.style = HEED_ROTARY_HALF, .dims = 4}};
    heed_mha *made = NULL;
    desc.attn = &attn;
    desc.qkv_proj = make_linear(DIM, 3 * DIM);
    desc.out_proj = make_linear(DIM, DIM);
    if (heed_mha_create(context, &desc, &made) != HEED_OK)
        wrong();
    heed_linear_release(desc.qkv_proj);
    heed_linear_release(desc.out_proj);
    return made;
}

/* A caller's own cache and output. */
typedef struct own {
    float cache[2][BATCH * CAPACITY * DIM], y[BATCH * ROWS * DIM], middle[BATCH * ROWS * 3 * DIM];
    int32_t lens[BATCH];
    heed_mha_args args;
    heed_linear_args linear_args;
} own;

static own *make_own(void)
{
    own *o = calloc(1, sizeof *o);
    if (!o)
        exit(1);
    o->lens[0] = ROWS;
    o->lens[1] = ROWS / 2;
    o->args = (heed_mha_args){.struct_size = sizeof o->args,
                              .batch = BATCH,
                              .q_len = ROWS,
                              .capacity = CAPACITY,
                              .x_q = {x, {ROWS * DIM, DIM, 1}},
                              .y = {o->y, {ROWS * DIM, DIM, 1}},
                              .k_cache = {o->cache[0], {CAPACITY * DIM, DIM / HEADS, DIM, 1}},
                              .v_cache = {o->cache[1], {CAPACITY * DIM, DIM / HEADS, DIM, 1}},
                              .q_lens = o->lens};
    o->linear_args = (heed_linear_args){.struct_size = sizeof o->linear_args,
                                        .rows = BATCH * ROWS,
                                        .x = {x, {DIM, 1}},
                                        .y = {o->middle, {3 * DIM, 1}}};
    return o;
}

static void *workspace_of(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory)
        exit(1);
    memset(memory, 0xa5, bytes);
    return memory;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void *runs(void *arg)
{
    own *o = make_own();
    const size_t linear_bytes = heed_linear_workspace_bytes(linear, 1);
    const size_t mha_bytes = heed_mha_workspace_bytes(mha, 1);
    void *linear_workspace = workspace_of(linear_bytes), *mha_workspace = workspace_of(mha_bytes);
    for (int i = 0; i < ROUNDS; i++) {
        const int lent = (i + (int)(intptr_t)arg) % 2;
        hold(heed_linear_run(linear, &o->linear_args, lent ? NULL : linear_workspace,
                             lent ? 0 : linear_bytes),
             o->middle, want_linear, sizeof want_linear);
        hold(heed_mha_run(mha, &o->args, lent ? NULL : mha_workspace, lent ? 0 : mha_bytes), o->y,
             want_mha, sizeof want_mha);
        heed_mha *other = make_mha(); /* meanwhile layers come and go */
        heed_mha_retain(mha);
        heed_mha_release(mha);
        heed_mha_release(other);
    }
    free(linear_workspace);
    free(mha_workspace);
    free(o);
    return NULL;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void parts(uint32_t n)
{
    own *o = make_own();
    const heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = n, .parallel_for = on_pthreads};
    size_t bytes = heed_linear_workspace_bytes(linear, n);
    void *workspace = workspace_of(bytes);
    heed_status st = heed_linear_begin(linear, &o->linear_args, n, workspace, bytes);
    if (st == HEED_OK)
        on_pthreads(NULL, n, run_one_part, workspace);
    hold(st, o->middle, want_linear, sizeof want_linear);
    free(workspace);
    bytes = heed_mha_workspace_bytes(mha, n);
    workspace = workspace_of(bytes);
    for (int i = 0; i < ROUNDS; i++) {
        memset(o->y, 0, sizeof o->y);
        st = heed_mha_begin(mha, &o->args, n, workspace, bytes);
        if (st == HEED_OK)
            on_pthreads(NULL, n, run_one_part, workspace);
        hold(st, o->y, want_mha, sizeof want_mha);
    }
    free(workspace);
    o->args.executor = o->linear_args.executor = &executor;
    hold(heed_linear_run(linear, &o->linear_args, NULL, 0), o->middle, want_linear,
         sizeof want_linear);
    memset(o->y, 0, sizeof o->y);
    hold(heed_mha_run(mha, &o->args, NULL, 0), o->y, want_mha, sizeof want_mha);
    free(o);
}

/* ---- one cache ------------------------------------------------------------------------------- */

static float shared_cache[N_THREADS][CAPACITY * DIM];

/* Appends to sequence `arg` of a cache that all threads share, by calls with one sequence. */
static void *appends(void *arg)
{
    float *mine = shared_cache[(intptr_t)arg];
    for (int32_t there = 0; there < ROWS; there++) {
        const heed_kv_append_args args = {.struct_size = sizeof args,
                                          .batch = 1,
                                          .len = 1,
                                          .capacity = CAPACITY,
                                          .kv_heads = HEADS,
                                          .qk_dim = DIM / HEADS,
                                          .k_type = HEED_F32,
                                          .k_cache_type = HEED_F32,
                                          .k = {x + there * DIM, {0, DIM / HEADS, DIM, 1}},
                                          .k_cache = {mine, {0, DIM / HEADS, DIM, 1}},
                                          .cache_lens = &there};
        if (heed_kv_append(&args) != HEED_OK)
            wrong();
    }
    hold(HEED_OK, mine, x, ROWS * DIM * sizeof *x);
    return NULL;
}

static void together(void *(*body)(void *))
{
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, body, (void *)(intptr_t)i);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    uint64_t seed = 3;
    for (int i = 0; i < DIM * 3 * DIM; i++)
        weight[i] = unit_number(&seed);
    for (int i = 0; i < BATCH * ROWS * DIM; i++)
        x[i] = unit_number(&seed);
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads += 2) { /* the second with OpenMP */
        own *o = make_own();
        context = unit_context(n_threads, NULL);
        linear = make_linear(DIM, 3 * DIM);
        mha = make_mha();
        hold(heed_linear_run(linear, &o->linear_args, NULL, 0), "", "", 0);
        memcpy(want_linear, o->middle, sizeof want_linear);
        hold(heed_mha_run(mha, &o->args, NULL, 0), "", "", 0);
        memcpy(want_mha, o->y, sizeof want_mha);
        free(o);
        together(runs);
        CHECK(n_wrong == 0, "%d wrong in runs, %u threads", n_wrong, n_threads);
        for (uint32_t n = 1; n <= 9; n += 2)
            parts(n);
        CHECK(n_wrong == 0, "%d wrong in parts, %u threads", n_wrong, n_threads);
        together(appends);
        CHECK(n_wrong == 0, "%d wrong in appends", n_wrong);
        heed_linear_release(linear);
        heed_mha_release(mha);
        heed_context_release(context);
    }
    return checks_end();
}
