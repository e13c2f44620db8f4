/* Parts of one layer on threads: phases follow each other though no thread waits at a barrier, and
 * the result is the serial one, bit for bit. Rows lie with gaps, so that they are gathered and
 * scattered; q and k are rotated; k and v go to a cache. Meant to be run under TSan too. */
#include <heed/heed.h>

#include "../unit/unit.h"
#include "on_pthreads.h"

enum { BATCH = 3, MOST = 40, MODEL = 24, HEADS = 3, HEAD = 8, GAP = 5, CAPACITY = 48 };

static float x[BATCH][MOST + 2][MODEL + GAP], y[2][BATCH][MOST + 2][MODEL + GAP];
static float k_cache[BATCH][CAPACITY][HEADS][HEAD], v_cache[BATCH][CAPACITY][HEADS][HEAD];
static float w[MODEL][3 * MODEL];
static const int32_t cache_lens[BATCH] = {0, 3, 8};

static heed_mha *make(heed_context *context)
{
    heed_linear_desc linear = {.struct_size = sizeof linear,
                               .in_dim = MODEL,
                               .out_dim = 3 * MODEL,
                               .x_type = HEED_F32,
                               .w_type = HEED_F32,
                               .y_type = HEED_F32};
    const heed_const_view weight = {w, {3 * MODEL, 1}};
    const heed_attn_desc attn = {.struct_size = sizeof attn,
                                 .features = HEED_HAS_CAUSAL | HEED_HAS_LENS,
                                 .position = HEED_POS_BOTTOM_RIGHT,
                                 UNIT_SHAPE(HEADS, HEADS, HEAD, HEAD),
                                 UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                                 .max_batch = BATCH,
                                 .max_q_len = MOST,
                                 .max_kv_len = CAPACITY};
    heed_mha_desc desc = {.struct_size = sizeof desc,
                          .features = HEED_MHA_HAS_CACHE,
                          .attn = &attn,
                          .d_model = MODEL,
                          .x_type = HEED_F32,
                          .rotary = {.style = HEED_ROTARY_HALF, .dims = HEAD}};
    heed_mha *layer = NULL;
    CHECK_OK(heed_linear_create(context, &linear, &weight, NULL, &desc.qkv_proj));
    linear.features = HEED_LINEAR_HAS_RESIDUAL;
    linear.out_dim = MODEL;
    CHECK_OK(heed_linear_create(context, &linear, &weight, NULL, &desc.out_proj));
    CHECK_OK(heed_mha_create(context, &desc, &layer));
    heed_linear_release(desc.qkv_proj);
    heed_linear_release(desc.out_proj);
    return layer;
}

static heed_mha_args args_of(const int32_t *lens, void *to)
{
    const int64_t row = MODEL + GAP, sequence = (MOST + 2) * row;
    return (heed_mha_args){
        .struct_size = sizeof(heed_mha_args),
        .batch = BATCH,
        .q_len = MOST,
        .capacity = CAPACITY,
        .x_q = {x, {sequence, row, 1}},
        .y = {to, {sequence, row, 1}},
        .residual = {x, {sequence, row, 1}},
        .k_cache = {k_cache, {CAPACITY * HEADS * HEAD, HEAD, HEADS * HEAD, 1}},
        .v_cache = {v_cache, {CAPACITY * HEADS * HEAD, HEAD, HEADS * HEAD, 1}},
        .q_lens = lens,
        .cache_lens = cache_lens,
    };
}

static void on_threads(const heed_mha *layer, const heed_mha_args *args, uint32_t n)
{
    const size_t bytes = heed_mha_workspace_bytes(layer, n);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!workspace)
        exit(1);
    memset(workspace, 0xa5, bytes); /* what it held before must not matter */
    CHECK_OK(heed_mha_begin(layer, args, n, workspace, bytes));
    on_pthreads(NULL, n, run_one_part, workspace);
    CHECK(n_wrong == 0, "%d of the parts of %u failed", n_wrong, n);
    free(workspace);
}

int main(void)
{
    heed_context *context = unit_context(1, NULL), *two = unit_context(2, NULL);
    uint64_t random = 3;
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < MOST; i++)
            for (int c = 0; c < MODEL; c++)
                x[b][i][c] = unit_number(&random);
    for (int i = 0; i < MODEL * 3 * MODEL; i++)
        w[i / (3 * MODEL)][i % (3 * MODEL)] = unit_number(&random) / 4;
    heed_mha *layer = make(context), *on_openmp = make(two);
    for (int round = 0; round < 24; round++) {
        const int32_t lens[BATCH] = {1 + round % MOST, round % 3 ? MOST - round : 0, MOST};
        heed_mha_args args = args_of(lens, y[0]);
        memset(y, 0xff, sizeof y);
        CHECK_OK(heed_mha_run(layer, &args, NULL, 0));
        args.y.data = y[1];
        on_threads(layer, &args, 1 + (uint32_t)round % 8);
        CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0, "round %d: other bits by parts", round);
        memset(y[1], 0xff, sizeof y[1]);
        CHECK_OK(heed_mha_run(on_openmp, &args, NULL, 0));
        CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0, "round %d: other bits by OpenMP", round);
    }
    heed_mha_release(layer);
    heed_mha_release(on_openmp);
    heed_context_release(context);
    heed_context_release(two);
    return checks_end();
}
