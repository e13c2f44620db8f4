/* Co-attention of two sequences A and B, such as the words of a question and the regions of an
 * image.
 *
 *     parallel      A' = A attends to B,  B' = B attends to A        both from the inputs
 *     alternating   A' = A attends to B,  B' = B attends to A'
 *
 * Each step is cross-attention by one layer. The two steps of the parallel form are independent, so
 * an engine may run them at the same time. Every result is compared with plain loops in float64.
 */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>

enum { A_LEN = 4, B_LEN = 7, MODEL = 16, HEADS = 4, HEAD = MODEL / HEADS, MOST = 8 };

static float w[4][MODEL][MODEL]; /* weights of q, k, v and the output */

static void fill(float *to, size_t n, double scale, uint32_t *state)
{
    for (size_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        to[i] = (float)(((double)(*state >> 8) / (1 << 23) - 1) * scale);
    }
}

/* The layer in float64: rows x attend to rows z. */
static void by_loops(float x[][MODEL], int x_len, float z[][MODEL], int z_len,
                     double y[MOST][MODEL])
{
    double q[MOST][MODEL] = {{0}}, k[MOST][MODEL] = {{0}}, v[MOST][MODEL] = {{0}};
    for (int c = 0; c < MODEL; c++)
        for (int d = 0; d < MODEL; d++) {
            for (int t = 0; t < x_len; t++)
                q[t][c] += (double)x[t][d] * (double)w[0][d][c];
            for (int t = 0; t < z_len; t++) {
                k[t][c] += (double)z[t][d] * (double)w[1][d][c];
                v[t][c] += (double)z[t][d] * (double)w[2][d][c];
            }
        }
    for (int t = 0; t < x_len; t++) {
        double o[MODEL] = {0};
        for (int h = 0; h < HEADS; h++) {
            double weight[MOST], sum = 0;
            for (int j = 0; j < z_len; j++) {
                double score = 0;
                for (int c = h * HEAD; c < (h + 1) * HEAD; c++)
                    score += q[t][c] * k[j][c];
                sum += weight[j] = exp(score / sqrt(HEAD)); /* the scores are small here */
            }
            for (int j = 0; j < z_len; j++)
                for (int c = h * HEAD; c < (h + 1) * HEAD; c++)
                    o[c] += weight[j] / sum * v[j][c];
        }
        for (int c = 0; c < MODEL; c++) {
            y[t][c] = 0;
            for (int d = 0; d < MODEL; d++)
                y[t][c] += o[d] * (double)w[3][d][c];
        }
    }
}

static heed_status make_layer(heed_context *context, heed_mha **layer)
{
    const heed_linear_desc linear = {.struct_size = sizeof linear,
                                     .in_dim = MODEL,
                                     .out_dim = MODEL,
                                     .x_type = HEED_F32,
                                     .w_type = HEED_F32,
                                     .y_type = HEED_F32};
    const heed_attn_desc attn = {.struct_size = sizeof attn,
                                 .q_heads = HEADS,
                                 .kv_heads = HEADS,
                                 .qk_dim = HEAD,
                                 .v_dim = HEAD,
                                 .q_type = HEED_F32,
                                 .k_type = HEED_F32,
                                 .v_type = HEED_F32,
                                 .out_type = HEED_F32,
                                 .max_batch = 1,
                                 .max_q_len = MOST,
                                 .max_kv_len = MOST};
    heed_linear *part[4] = {NULL};
    heed_status status = HEED_OK;
    for (int i = 0; i < 4 && status == HEED_OK; i++) {
        const heed_const_view weight = {w[i], {MODEL, 1}};
        status = heed_linear_create(context, &linear, &weight, NULL, &part[i]);
    }
    const heed_mha_desc desc = {.struct_size = sizeof desc,
                                .features = HEED_MHA_HAS_CROSS,
                                .attn = &attn,
                                .q_proj = part[0],
                                .k_proj = part[1],
                                .v_proj = part[2],
                                .out_proj = part[3],
                                .d_model = MODEL,
                                .d_kv = MODEL,
                                .x_type = HEED_F32,
                                .kv_type = HEED_F32};
    if (status == HEED_OK)
        status = heed_mha_create(context, &desc, layer);
    for (int i = 0; i < 4; i++)
        heed_linear_release(part[i]); /* the layer holds references */
    return status;
}

/* Computes y, where x attends to z. Returns how far y is from float64. */
static double attend(const heed_mha *layer, const char *step, float x[][MODEL], int x_len,
                     float z[][MODEL], int z_len, float y[][MODEL])
{
    double want[MOST][MODEL], worst = 0;
    const heed_mha_args args = {.struct_size = sizeof args,
                                .batch = 1,
                                .q_len = x_len,
                                .kv_len = z_len,
                                .x_q = {x, {0, MODEL, 1}},
                                .x_kv = {z, {0, MODEL, 1}},
                                .y = {y, {0, MODEL, 1}}};
    if (heed_mha_run(layer, &args, NULL, 0) != HEED_OK) {
        fprintf(stderr, "%s: %s\n", step, heed_last_error());
        return INFINITY;
    }
    by_loops(x, x_len, z, z_len, want);
    for (int t = 0; t < x_len; t++)
        for (int c = 0; c < MODEL; c++)
            worst = fmax(worst, fabs((double)y[t][c] - want[t][c]));
    printf("%-28s %d rows, the first begins %.4f %.4f %.4f, off by at most %.1g\n", step, x_len,
           (double)y[0][0], (double)y[0][1], (double)y[0][2], worst);
    return worst;
}

int main(void)
{
    static float a[A_LEN][MODEL], b[B_LEN][MODEL], new_a[A_LEN][MODEL], new_b[2][B_LEN][MODEL];
    heed_context *context = NULL;
    heed_mha *layer = NULL;
    uint32_t state = 3;
    fill(&a[0][0], A_LEN * MODEL, 1, &state);
    fill(&b[0][0], B_LEN * MODEL, 1, &state);
    fill(&w[0][0][0], 4 * MODEL * MODEL, 0.5, &state);
    if (heed_context_create(NULL, &context) != HEED_OK || make_layer(context, &layer) != HEED_OK) {
        fprintf(stderr, "%s\n", heed_last_error());
        return 1;
    }
    double worst = attend(layer, "parallel: A to B", a, A_LEN, b, B_LEN, new_a);
    worst = fmax(worst, attend(layer, "parallel: B to A", b, B_LEN, a, A_LEN, new_b[0]));
    worst = fmax(worst, attend(layer, "alternating: A to B", a, A_LEN, b, B_LEN, new_a));
    worst = fmax(worst, attend(layer, "alternating: B to new A", b, B_LEN, new_a, A_LEN, new_b[1]));
    int same = new_b[0][0][0] == new_b[1][0][0]; /* B' depends on A, so the forms must differ */
    heed_mha_release(layer);
    heed_context_release(context);
    return same || !(worst < 1e-5);
}
