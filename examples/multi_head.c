/* A multi-head attention layer: four heads, each with its own weights, and an output projection.
 *
 *     head h:  q = x Wq[h] + bq[h], k = x Wk[h] + bk[h], v = x Wv[h] + bv[h],  o[h] = attention
 *     y = [o[0] .. o[3]] Wo + bo
 *
 * The weights of each head are a separate matrix, [heads, model, head], as in textbooks; a linear
 * layer can read them in this layout. The results are compared with plain loops.
 */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>

enum { BATCH = 4, TOKENS = 10, MODEL = 32, HEADS = 4, HEAD = MODEL / HEADS };

static float x[BATCH][TOKENS][MODEL], y[BATCH][TOKENS][MODEL];
static float w[3][HEADS][MODEL][HEAD], b[3][HEADS][HEAD]; /* for q, k and v */
static float w_out[MODEL][MODEL], b_out[MODEL];

static void fill(float *to, size_t n, double scale, uint32_t *state)
{
    for (size_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        to[i] = (float)(((double)(*state >> 8) / (1 << 23) - 1) * scale);
    }
}

/* An element of y by the definition, in float64. */
static double by_loops(int n, int row, int column)
{
    double y_value = (double)b_out[column];
    for (int h = 0; h < HEADS; h++) {
        double qkv[3][TOKENS][HEAD], weight[TOKENS], sum = 0;
        for (int i = 0; i < 3; i++)
            for (int t = 0; t < TOKENS; t++)
                for (int c = 0; c < HEAD; c++) {
                    qkv[i][t][c] = (double)b[i][h][c];
                    for (int d = 0; d < MODEL; d++)
                        qkv[i][t][c] += (double)x[n][t][d] * (double)w[i][h][d][c];
                }
        for (int t = 0; t < TOKENS; t++) {
            double score = 0;
            for (int c = 0; c < HEAD; c++)
                score += qkv[0][row][c] * qkv[1][t][c];
            weight[t] = exp(score / sqrt(HEAD)); /* the scores are small here */
            sum += weight[t];
        }
        for (int t = 0; t < TOKENS; t++)
            for (int c = 0; c < HEAD; c++)
                y_value += weight[t] / sum * qkv[2][t][c] * (double)w_out[h * HEAD + c][column];
    }
    return y_value;
}

static heed_status make_layer(heed_context *context, heed_mha **layer)
{
    const heed_linear_desc in = {.struct_size = sizeof in,
                                 .features = HEED_LINEAR_HAS_BIAS,
                                 .in_dim = MODEL,
                                 .out_dim = MODEL,
                                 .x_type = HEED_F32,
                                 .w_type = HEED_F32,
                                 .y_type = HEED_F32,
                                 .bias_type = HEED_F32,
                                 .heads = HEADS};
    heed_linear_desc out = in;
    const heed_attn_desc attn = {.struct_size = sizeof attn,
                                 .q_heads = HEADS,
                                 .kv_heads = HEADS,
                                 .qk_dim = HEAD,
                                 .v_dim = HEAD,
                                 .q_type = HEED_F32,
                                 .k_type = HEED_F32,
                                 .v_type = HEED_F32,
                                 .out_type = HEED_F32,
                                 .max_batch = BATCH,
                                 .max_q_len = TOKENS};
    heed_mha_desc desc = {
        .struct_size = sizeof desc, .attn = &attn, .d_model = MODEL, .x_type = HEED_F32};
    heed_linear *part[4] = {NULL};
    heed_status status = HEED_OK;
    for (int i = 0; i < 3 && status == HEED_OK; i++) {
        const heed_const_view weight = {w[i], {MODEL * HEAD, HEAD, 1}}, bias = {b[i], {1}};
        status = heed_linear_create(context, &in, &weight, &bias, &part[i]);
    }
    out.heads = 1;
    const heed_const_view weight = {w_out, {MODEL, 1}}, bias = {b_out, {1}};
    if (status == HEED_OK)
        status = heed_linear_create(context, &out, &weight, &bias, &part[3]);
    desc.q_proj = part[0], desc.k_proj = part[1], desc.v_proj = part[2], desc.out_proj = part[3];
    if (status == HEED_OK)
        status = heed_mha_create(context, &desc, layer);
    for (int i = 0; i < 4; i++)
        heed_linear_release(part[i]); /* the layer holds references */
    return status;
}

int main(void)
{
    heed_context *context = NULL;
    heed_mha *layer = NULL;
    double worst = 0;
    uint32_t state = 1;
    fill(&x[0][0][0], BATCH * TOKENS * MODEL, 1, &state);
    fill(&w[0][0][0][0], 3 * MODEL * MODEL, 0.3, &state);
    fill(&b[0][0][0], 3 * MODEL, 0.1, &state);
    fill(&w_out[0][0], MODEL * MODEL, 0.3, &state);
    fill(b_out, MODEL, 0.1, &state);

    const heed_mha_args args = {.struct_size = sizeof args,
                                .batch = BATCH,
                                .q_len = TOKENS,
                                .x_q = {x, {TOKENS * MODEL, MODEL, 1}},
                                .y = {y, {TOKENS * MODEL, MODEL, 1}}};
    if (heed_context_create(NULL, &context) != HEED_OK || make_layer(context, &layer) != HEED_OK ||
        heed_mha_run(layer, &args, NULL, 0) != HEED_OK) {
        fprintf(stderr, "%s\n", heed_last_error());
        return 1;
    }
    for (int n = 0; n < BATCH; n++)
        for (int t = 0; t < TOKENS; t++)
            for (int c = 0; c < MODEL; c++)
                worst = fmax(worst, fabs((double)y[n][t][c] - by_loops(n, t, c)));
    printf("%d x %d x %d by %d heads: off by at most %.2g from float64\n", BATCH, TOKENS, MODEL,
           HEADS, worst);
    heed_mha_release(layer);
    heed_context_release(context);
    return !(worst < 1e-5);
}
