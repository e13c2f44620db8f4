/* Cross-attention: the rows of one sequence attend to those of another, as those of a decoder do to
 * the output of an encoder. The two sequences have different lengths and widths.
 *
 *     q = x Wq,  k = memory Wk,  v = memory Wv,  y = softmax(q k^T / sqrt(d)) v
 *
 * The memory does not change while the decoder generates: the first call appends its keys and
 * values to a cache, and later calls find them there. Without positions, the order of the memory's
 * rows does not matter, which this program checks at its end.
 */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>

enum { TOKENS = 3, MODEL = 16, MEMORY = 6, WIDTH = 24, HEADS = 2, HEAD = MODEL / HEADS };

static float w_q[MODEL][MODEL], w_kv[WIDTH][2 * MODEL];
static float k_cache[MEMORY][HEADS][HEAD], v_cache[MEMORY][HEADS][HEAD];

static void fill(float *to, size_t n, double scale, uint32_t *state)
{
    for (size_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        to[i] = (float)(((double)(*state >> 8) / (1 << 23) - 1) * scale);
    }
}

static heed_status make_layer(heed_context *context, heed_mha **layer)
{
    heed_linear_desc linear = {.struct_size = sizeof linear,
                               .in_dim = MODEL,
                               .out_dim = MODEL,
                               .x_type = HEED_F32,
                               .w_type = HEED_F32,
                               .y_type = HEED_F32};
    const heed_const_view q = {w_q, {MODEL, 1}}, kv = {w_kv, {2 * MODEL, 1}};
    const heed_attn_desc attn = {.struct_size = sizeof attn,
                                 .features = HEED_HAS_WEIGHTS,
                                 .q_heads = HEADS,
                                 .kv_heads = HEADS,
                                 .qk_dim = HEAD,
                                 .v_dim = HEAD,
                                 .q_type = HEED_F32,
                                 .k_type = HEED_F32,
                                 .v_type = HEED_F32,
                                 .out_type = HEED_F32,
                                 .max_batch = 1,
                                 .max_q_len = TOKENS,
                                 .max_kv_len = MEMORY};
    heed_mha_desc desc = {.struct_size = sizeof desc,
                          .features = HEED_MHA_HAS_CROSS | HEED_MHA_HAS_CACHE,
                          .attn = &attn,
                          .d_model = MODEL,
                          .d_kv = WIDTH,
                          .x_type = HEED_F32,
                          .kv_type = HEED_F32};
    heed_status status = heed_linear_create(context, &linear, &q, NULL, &desc.q_proj);
    linear.in_dim = WIDTH, linear.out_dim = 2 * MODEL;
    if (status == HEED_OK)
        status = heed_linear_create(context, &linear, &kv, NULL, &desc.kv_proj);
    if (status == HEED_OK)
        status = heed_mha_create(context, &desc, layer);
    heed_linear_release(desc.q_proj); /* the layer holds references */
    heed_linear_release(desc.kv_proj);
    return status;
}

/* Makes one call. memory is NULL if the cache holds its keys and values already. */
static heed_status attend(const heed_mha *layer, float x[TOKENS][MODEL], float (*memory)[WIDTH],
                          float weights[HEADS][TOKENS][MEMORY], float y[TOKENS][MODEL])
{
    const int32_t cached = memory ? 0 : MEMORY;
    const heed_mha_args args = {
        .struct_size = sizeof args,
        .batch = 1,
        .q_len = TOKENS,
        .kv_len = memory ? MEMORY : 0,
        .capacity = MEMORY,
        .x_q = {x, {0, MODEL, 1}},
        .x_kv = {memory, {0, WIDTH, 1}},
        .y = {y, {0, MODEL, 1}},
        .weights = {weights, {0, TOKENS * MEMORY, MEMORY, 1}},
        .k_cache = {k_cache, {0, HEAD, HEADS * HEAD, 1}},
        .v_cache = {v_cache, {0, HEAD, HEADS * HEAD, 1}},
        .cache_lens = &cached,
    };
    return heed_mha_run(layer, &args, NULL, 0);
}

int main(void)
{
    static float x[TOKENS][MODEL], memory[MEMORY][WIDTH], backwards[MEMORY][WIDTH];
    static float y[2][TOKENS][MODEL], weights[2][HEADS][TOKENS][MEMORY];
    heed_context *context = NULL;
    heed_mha *layer = NULL;
    uint32_t state = 7;
    double unsummed = 0, moved = 0;
    fill(&x[0][0], TOKENS * MODEL, 1, &state);
    fill(&memory[0][0], MEMORY * WIDTH, 1, &state);
    fill(&w_q[0][0], MODEL * MODEL, 0.6, &state);
    fill(&w_kv[0][0], WIDTH * 2 * MODEL, 0.5, &state);
    for (int j = 0; j < MEMORY; j++)
        for (int c = 0; c < WIDTH; c++)
            backwards[MEMORY - 1 - j][c] = memory[j][c];

    if (heed_context_create(NULL, &context) != HEED_OK || make_layer(context, &layer) != HEED_OK ||
        attend(layer, x, memory, weights[0], y[0]) != HEED_OK ||
        attend(layer, x, NULL, weights[1], y[1]) != HEED_OK) {
        fprintf(stderr, "%s\n", heed_last_error());
        return 1;
    }
    int changed = 0; /* the second call found the same keys and values, so its bits are the same */
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < MODEL; c++)
            changed += y[0][t][c] != y[1][t][c];

    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < TOKENS; t++) {
            double sum = 0;
            printf("head %d, row %d attends to", h, t);
            for (int j = 0; j < MEMORY; j++) {
                printf(" %.3f", (double)weights[0][h][t][j]);
                sum += (double)weights[0][h][t][j];
            }
            printf("\n");
            unsummed = fmax(unsummed, fabs(sum - 1));
        }

    if (attend(layer, x, backwards, weights[1], y[1]) != HEED_OK) {
        fprintf(stderr, "%s\n", heed_last_error());
        return 1;
    }
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < MODEL; c++)
            moved = fmax(moved, fabs((double)y[0][t][c] - (double)y[1][t][c]));
    printf("rows of weights sum to 1 but for %.1g; the memory backwards changes y by %.1g\n",
           unsummed, moved);
    heed_mha_release(layer);
    heed_context_release(context);
    return changed || !(unsummed < 1e-6) || !(moved < 1e-5);
}
