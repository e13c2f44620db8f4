/* Self-attention step by step, on three small published computations, with inputs, projections,
 * scores, weights and outputs that can be checked by hand.
 *
 *     q = x Wq,  k = x Wk,  v = x Wv,  weights = softmax(scale q k^T),  out = weights v
 *
 * 1. Three tokens with projections, and a scale of 1 instead of 1 / sqrt(d).
 * 2. Five tokens that are q, k and v themselves. Scores reach 1.5e7, so the softmax is one-hot.
 * 3. Five tokens, projections from 3 to 4 columns, scale 1/2. Every row attends to the third token.
 */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>

enum { MOST = 8 };

typedef float matrix[MOST][MOST];

typedef struct example {
    const char *title;
    int tokens, in, out; /* the rows of x, its columns, and the columns of q, k and v */
    float scale;
    int projected;
    matrix x, w_query, w_key, w_value;
    matrix published;
} example;

static const example examples[] = {
    {.title = "three tokens, scale 1",
     .tokens = 3,
     .in = 4,
     .out = 3,
     .scale = 1,
     .projected = 1,
     .x = {{1, 0, 1, 0}, {0, 2, 0, 2}, {1, 1, 1, 1}},
     .w_query = {{1, 0, 1}, {1, 0, 0}, {0, 0, 1}, {0, 1, 1}},
     .w_key = {{0, 0, 1}, {1, 1, 0}, {0, 1, 0}, {1, 1, 0}},
     .w_value = {{0, 2, 0}, {0, 3, 0}, {1, 0, 3}, {1, 1, 0}},
     .published = {{1.9366210616669624F, 6.683105308334811F, 1.5950684074995565F},
                   {1.9999939663351456F, 7.9639915951322156F, 0.0539764053125496F},
                   {1.9997046127769653F, 7.759892254657784F, 0.3583892946751152F}}},
    {.title = "huge scores without projections",
     .tokens = 5,
     .in = 3,
     .out = 3,
     .scale = 0.57735026919F,
     .x = {{1501, 502, 503}, {2502, 501, 503}, {503, 501, 502}, {503, 502, 501}, {501, 503, 5020}},
     .published = {{2502, 501, 503},
                   {2502, 501, 503},
                   {501, 503, 5020},
                   {501, 503, 5020},
                   {501, 503, 5020}}},
    {.title = "projections from 3 to 4 columns",
     .tokens = 5,
     .in = 3,
     .out = 4,
     .scale = 0.5F,
     .projected = 1,
     .x = {{1, 2, 3}, {2, 2, 4}, {5, 9, 7}, {6, 6, 6}, {8, 1, 4}},
     .w_query = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 1, 2, 3}},
     .w_key = {{9, 8, 7, 6}, {5, 4, 3, 2}, {1, 9, 8, 7}},
     .w_value = {{3, 6, 9, 7}, {1, 8, 3, 6}, {4, 5, 2, 2}},
     .published = {{52, 137, 86, 103},
                   {52, 137, 86, 103},
                   {52, 137, 86, 103},
                   {52, 137, 86, 103},
                   {52, 137, 86, 103}}},
};

static void print(const char *name, matrix m, int rows, int columns)
{
    for (int i = 0; i < rows; i++) {
        printf("%-8s", i ? "" : name);
        for (int c = 0; c < columns; c++)
            printf(" %12.7g", (double)m[i][c]);
        printf("\n");
    }
}

static heed_view view_of(matrix m)
{
    return (heed_view){m, {0, 0, MOST, 1}};
}

/* y = x w, by a linear layer that is made for it. */
static heed_status project(heed_context *context, const example *e, const matrix w, matrix y)
{
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = (uint32_t)e->in,
                                   .out_dim = (uint32_t)e->out,
                                   .x_type = HEED_F32,
                                   .w_type = HEED_F32,
                                   .y_type = HEED_F32,
                                   .layout = HEED_LINEAR_IN_OUT};
    const heed_const_view weight = {w, {MOST, 1}};
    const heed_linear_args args = {
        .struct_size = sizeof args, .rows = e->tokens, .x = {e->x, {MOST, 1}}, .y = {y, {MOST, 1}}};
    heed_linear *linear;
    heed_status status = heed_linear_create(context, &desc, &weight, NULL, &linear);
    if (status != HEED_OK)
        return status;
    status = heed_linear_run(linear, &args, NULL, 0);
    heed_linear_release(linear);
    return status;
}

static heed_status attend(heed_context *context, const example *e, matrix qkv[3], matrix scores,
                          matrix weights, matrix out)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = HEED_HAS_SCALE | HEED_HAS_WEIGHTS | HEED_HAS_SCORES,
                                 .q_heads = 1,
                                 .kv_heads = 1,
                                 .qk_dim = (uint32_t)e->out,
                                 .v_dim = (uint32_t)e->out,
                                 .q_type = HEED_F32,
                                 .k_type = HEED_F32,
                                 .v_type = HEED_F32,
                                 .out_type = HEED_F32,
                                 .scores_stage = HEED_SCORES_RAW,
                                 .scale = e->scale};
    const heed_attn_args args = {.struct_size = sizeof args,
                                 .batch = 1,
                                 .q_len = e->tokens,
                                 .kv_len = e->tokens,
                                 .q = heed_as_const(view_of(qkv[0])),
                                 .k = heed_as_const(view_of(qkv[1])),
                                 .v = heed_as_const(view_of(qkv[2])),
                                 .out = view_of(out),
                                 .weights = view_of(weights),
                                 .scores = view_of(scores)};
    return heed_attention(context, &desc, &args);
}

/* Computes and prints an example. Returns how many outputs differ from the published ones. */
static int show(heed_context *context, const example *e)
{
    static const char *const name[] = {"q", "k", "v"};
    matrix qkv[3] = {{{0}}}, scores = {{0}}, weights = {{0}}, out = {{0}}, x;
    const matrix *w[] = {&e->w_query, &e->w_key, &e->w_value};
    int wrong = 0;
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < e->tokens; t++)
            for (int c = 0; c < e->in; c++)
                x[t][c] = qkv[i][t][c] = e->x[t][c];
    for (int i = 0; i < 3 && e->projected; i++)
        if (project(context, e, *w[i], qkv[i]) != HEED_OK)
            return 1;
    if (attend(context, e, qkv, scores, weights, out) != HEED_OK)
        return 1;

    printf("\n%s\n", e->title);
    print("x", x, e->tokens, e->in);
    for (int i = 0; i < 3 && e->projected; i++)
        print(name[i], qkv[i], e->tokens, e->out);
    print("scores", scores, e->tokens, e->tokens);
    print("weights", weights, e->tokens, e->tokens);
    print("out", out, e->tokens, e->out);
    for (int t = 0; t < e->tokens; t++)
        for (int c = 0; c < e->out; c++)
            wrong += !(fabsf(out[t][c] - e->published[t][c]) <= 1e-6F);
    return wrong;
}

int main(void)
{
    heed_context *context;
    int wrong = 0;
    if (heed_context_create(NULL, &context) != HEED_OK) {
        fprintf(stderr, "%s\n", heed_last_error());
        return 1;
    }
    for (size_t n = 0; n < sizeof examples / sizeof *examples; n++)
        wrong += show(context, &examples[n]);
    if (wrong)
        fprintf(stderr, "%d numbers are not the published ones %s\n", wrong, heed_last_error());
    heed_context_release(context);
    return wrong != 0;
}
