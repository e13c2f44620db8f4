/* The worked examples: small published computations, from inputs and weight matrices to outputs.
 *
 *     worked FILE BACKEND    the library with that backend, in f32
 *     worked FILE oracle     the float64 oracle of the conformance kit
 *
 * The projections are computed here, in float64; their results are integers, which f32 holds
 * exactly. Then everything is computed again as one layer, projections, attention and weights, with
 * heed_mha. The published outputs have to be met to 1e-6 absolute; where the weights of a row are 0
 * and 1 in f32, weights and outputs have to be exact.
 */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference_f64.h"
#include "vector.h"

enum { MOST = 8, EXAMPLES = 3 }; /* MOST rows or columns of a matrix */

typedef struct matrix {
    int rows, columns;
    double at[MOST][MOST];
} matrix;

typedef struct attended {
    double out[MOST][MOST], weights[MOST][MOST], scores[MOST][MOST];
} attended;

static int failures, compared;

/* ---- matrices -------------------------------------------------------------------------------- */

/* The matrix of that name; it has no rows if it is absent or null. */
static matrix matrix_of(const cJSON *example, const char *name)
{
    matrix m = {0};
    const cJSON *row, *item;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(example, name))
    {
        m.columns = 0;
        cJSON_ArrayForEach(item, row)
        {
            if (m.rows < MOST && m.columns < MOST)
                m.at[m.rows][m.columns] = item->valuedouble;
            m.columns++;
        }
        m.rows++;
    }
    if (m.rows > MOST || m.columns > MOST) {
        fprintf(stderr, "%s is larger than %d x %d\n", name, MOST, MOST);
        failures++;
        m.rows = 0;
    }
    return m;
}

/* x @ w, or x if w has no rows. */
static matrix project(const matrix *x, const matrix *w)
{
    matrix y = {.rows = x->rows, .columns = w->columns};
    if (w->rows == 0)
        return *x;
    for (int i = 0; i < x->rows; i++)
        for (int c = 0; c < w->columns; c++)
            for (int d = 0; d < x->columns; d++)
                y.at[i][c] += x->at[i][d] * w->at[d][c];
    return y;
}

static void expect(const char *example, const char *what, int i, int c, double got, double want,
                   double bound)
{
    compared++;
    if (fabs(got - want) <= bound)
        return;
    failures++;
    fprintf(stderr, "%s: %s[%d][%d] is %.17g, should be %.17g +- %.2g\n", example, what, i, c, got,
            want, bound);
}

/* ---- attention ------------------------------------------------------------------------------- */

static void attend_by_oracle(const matrix *q, const matrix *k, const matrix *v, double scale,
                             float memory[3][MOST][MOST], attended *a)
{
    double out[MOST * MOST], weights[MOST * MOST], scores[MOST * MOST];
    reference_problem p = {
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = q->rows,
        .kv_len = k->rows,
        .qk_dim = q->columns,
        .v_dim = v->columns,
        .q = {.data = memory[0], .type = REFERENCE_F32, .stride = {0, 0, MOST, 1}},
        .k = {.data = memory[1], .type = REFERENCE_F32, .stride = {0, 0, MOST, 1}},
        .v = {.data = memory[2], .type = REFERENCE_F32, .stride = {0, 0, MOST, 1}},
        .scale = scale,
        .window_left = -1,
        .window_right = -1};
    reference_result result = {.out = out, .weights = weights, .raw = scores};
    if (reference_tensors(&p, &result) != 0) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (int i = 0; i < q->rows; i++) {
        for (int c = 0; c < v->columns; c++)
            a->out[i][c] = out[i * v->columns + c];
        for (int j = 0; j < k->rows; j++) {
            a->weights[i][j] = weights[i * k->rows + j];
            a->scores[i][j] = scores[i * k->rows + j];
        }
    }
}

/* The attention of an example, whose heads are as wide as q and v. */
static heed_attn_desc describe(const matrix *q, const matrix *v, double scale)
{
    return (heed_attn_desc){.struct_size = sizeof(heed_attn_desc),
                            .features = HEED_HAS_SCALE | HEED_HAS_WEIGHTS,
                            .q_heads = 1,
                            .kv_heads = 1,
                            .qk_dim = (uint32_t)q->columns,
                            .v_dim = (uint32_t)v->columns,
                            .q_type = HEED_F32,
                            .k_type = HEED_F32,
                            .v_type = HEED_F32,
                            .out_type = HEED_F32,
                            .scale = (float)scale,
                            .max_batch = 1,
                            .max_q_len = MOST};
}

static heed_status attend(heed_context *context, const matrix *q, const matrix *k, const matrix *v,
                          double scale, float memory[3][MOST][MOST], attended *a)
{
    float out[MOST][MOST], weights[MOST][MOST], scores[MOST][MOST];
    heed_attn_desc desc = describe(q, v, scale);
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = q->rows,
                           .kv_len = k->rows,
                           .q = {memory[0], {0, 0, MOST, 1}},
                           .k = {memory[1], {0, 0, MOST, 1}},
                           .v = {memory[2], {0, 0, MOST, 1}},
                           .out = {out, {0, 0, MOST, 1}},
                           .weights = {weights, {0, 0, MOST, 1}},
                           .scores = {scores, {0, 0, MOST, 1}}};
    desc.features |= HEED_HAS_SCORES;
    desc.scores_stage = HEED_SCORES_RAW;
    heed_status status = heed_attention(context, &desc, &args);
    for (int i = 0; i < MOST && status == HEED_OK; i++)
        for (int c = 0; c < MOST; c++) {
            a->out[i][c] = i < q->rows && c < v->columns ? (double)out[i][c] : 0;
            a->weights[i][c] = i < q->rows && c < k->rows ? (double)weights[i][c] : 0;
            a->scores[i][c] = i < q->rows && c < k->rows ? (double)scores[i][c] : 0;
        }
    return status;
}

/* ---- the example as a layer ------------------------------------------------------------------ */

static heed_status linear_of(heed_context *context, const matrix *w, heed_linear **out)
{
    float weight[MOST][MOST];
    heed_linear_desc desc = {.struct_size = sizeof desc,
                             .in_dim = (uint32_t)w->rows,
                             .out_dim = (uint32_t)w->columns,
                             .x_type = HEED_F32,
                             .w_type = HEED_F32,
                             .y_type = HEED_F32};
    const heed_const_view view = {weight, {MOST, 1}};
    *out = NULL;
    for (int i = 0; i < w->rows; i++)
        for (int c = 0; c < w->columns; c++)
            weight[i][c] = (float)w->at[i][c];
    return w->rows ? heed_linear_create(context, &desc, &view, NULL, out) : HEED_OK;
}

/* Scores are not requested, so a->scores is left alone. */
static heed_status attend_as_layer(heed_context *context, const matrix *x, const matrix w[3],
                                   const matrix *q, const matrix *v, double scale, attended *a)
{
    float rows[MOST][MOST], out[MOST][MOST], weights[MOST][MOST];
    const heed_attn_desc attn = describe(q, v, scale);
    heed_mha_desc desc = {.struct_size = sizeof desc,
                          .attn = &attn,
                          .d_model = (uint32_t)x->columns,
                          .x_type = HEED_F32};
    heed_mha_args args = {.struct_size = sizeof args,
                          .batch = 1,
                          .q_len = x->rows,
                          .x_q = {rows, {0, MOST, 1}},
                          .y = {out, {0, MOST, 1}},
                          .weights = {weights, {0, 0, MOST, 1}}};
    heed_mha *mha = NULL;
    for (int i = 0; i < x->rows; i++)
        for (int c = 0; c < x->columns; c++)
            rows[i][c] = (float)x->at[i][c];
    heed_status status = linear_of(context, &w[0], &desc.q_proj);
    if (status == HEED_OK)
        status = linear_of(context, &w[1], &desc.k_proj);
    if (status == HEED_OK)
        status = linear_of(context, &w[2], &desc.v_proj);
    if (status == HEED_OK)
        status = heed_mha_create(context, &desc, &mha);
    if (status == HEED_OK)
        status = heed_mha_run(mha, &args, NULL, 0);
    for (int i = 0; i < x->rows && status == HEED_OK; i++) {
        for (int c = 0; c < v->columns; c++)
            a->out[i][c] = (double)out[i][c];
        for (int c = 0; c < x->rows; c++)
            a->weights[i][c] = (double)weights[i][c];
    }
    heed_mha_release(mha);
    heed_linear_release(desc.q_proj);
    heed_linear_release(desc.k_proj);
    heed_linear_release(desc.v_proj);
    return status;
}

/* ---- one example ----------------------------------------------------------------------------- */

static void check_projection(const cJSON *example, const char *name, const char *field,
                             const matrix *got)
{
    matrix want = matrix_of(example, field);
    for (int i = 0; i < want.rows; i++)
        for (int c = 0; c < want.columns; c++)
            expect(name, field, i, c, got->at[i][c], want.at[i][c], 0);
}

static void check_rows(const cJSON *example, const char *name, const attended *a)
{
    matrix weights = matrix_of(example, "expected_weights");
    matrix output = matrix_of(example, "published_output");
    matrix scores = matrix_of(example, "expected_scores");
    matrix below = matrix_of(example, "published_scores_minus_max");
    for (int i = 0; i < output.rows; i++) {
        int one_hot = 1;
        double most = -(double)INFINITY, largest = 0;
        for (int j = 0; j < weights.columns; j++) {
            one_hot &= (float)weights.at[i][j] == 0 || (float)weights.at[i][j] == 1;
            most = fmax(most, a->scores[i][j]);
            largest = fmax(largest, fabs(a->scores[i][j]));
        }
        for (int j = 0; j < weights.columns; j++)
            expect(name, "weights", i, j, a->weights[i][j],
                   one_hot ? (double)(float)weights.at[i][j] : weights.at[i][j],
                   one_hot ? 0x1p-149 : 1e-6);
        for (int c = 0; c < output.columns; c++)
            expect(name, "out", i, c, a->out[i][c], output.at[i][c], one_hot ? 0 : 1e-6);
        /* At most 4 products, their sum, the scale and the subtraction: 8 roundings of f32. */
        for (int j = 0; j < scores.columns; j++)
            expect(name, "scores", i, j, a->scores[i][j], scores.at[i][j], 8 * 0x1p-24 * largest);
        for (int j = 0; j < below.columns; j++)
            expect(name, "scores - max", i, j, a->scores[i][j] - most, below.at[i][j],
                   2 * 8 * 0x1p-24 * largest);
    }
}

static int run_example(heed_context *context, const cJSON *example)
{
    static float memory[3][MOST][MOST];
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(example, "name"));
    double scale = cJSON_GetObjectItemCaseSensitive(example, "scale")->valuedouble;
    matrix x = matrix_of(example, "x"), w_query = matrix_of(example, "w_query"),
           w_key = matrix_of(example, "w_key"), w_value = matrix_of(example, "w_value");
    matrix q = project(&x, &w_query), k = project(&x, &w_key), v = project(&x, &w_value);
    const matrix *tensor[] = {&q, &k, &v};
    attended a = {0};
    check_projection(example, name, "expected_query", &q);
    check_projection(example, name, "expected_key", &k);
    check_projection(example, name, "expected_value", &v);
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < MOST; i++)
            for (int c = 0; c < MOST; c++)
                memory[t][i][c] = (float)tensor[t]->at[i][c];
    if (!context) {
        attend_by_oracle(&q, &k, &v, scale, memory, &a);
    } else {
        heed_status status = attend(context, &q, &k, &v, scale, memory, &a);
        if (status == HEED_ERR_UNSUPPORTED)
            return 0;
        if (status != HEED_OK) {
            fprintf(stderr, "%s: %s\n", name, heed_last_error());
            failures++;
        }
    }
    check_rows(example, name, &a);
    if (!context)
        return 1;
    const matrix w[3] = {w_query, w_key, w_value};
    memset(a.out, 0xff, sizeof a.out);
    memset(a.weights, 0xff, sizeof a.weights);
    heed_status status = attend_as_layer(context, &x, w, &q, &v, scale, &a);
    if (status == HEED_ERR_UNSUPPORTED)
        return 1; /* a backend without linear layers */
    if (status != HEED_OK) {
        fprintf(stderr, "%s as a layer: %s\n", name, heed_last_error());
        failures++;
    }
    check_rows(example, name, &a);
    return 1;
}

int main(int argc, char **argv)
{
    heed_context *context = NULL;
    int examples = 0, run = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: worked FILE oracle|BACKEND\n");
        return 2;
    }
    heed_context_options options = {.struct_size = sizeof options, .backends = argv[2]};
    if (strcmp(argv[2], "oracle") != 0 && heed_context_create(&options, &context) != HEED_OK) {
        fprintf(stderr, "%s\n", heed_last_error());
        return 1;
    }
    cJSON *json = vector_json(argv[1]);
    const cJSON *example;
    cJSON_ArrayForEach(example, json)
    {
        examples++;
        run += run_example(context, example);
    }
    cJSON_Delete(json);
    if (context && run < examples)
        printf("%s refuses: %s\n", argv[2], heed_last_error());
    heed_context_release(context);
    printf("%s: %d of %d worked examples run, %d numbers compared, %d failed\n", argv[2], run,
           examples, compared, failures);
    return failures || examples != EXAMPLES ? 1 : run == 0 ? 77 : 0;
}
