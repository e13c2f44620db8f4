/* The golden vectors, which are results of PyTorch in float64, compared with the library and with
 * the oracle.
 *
 *     golden FOLDER BACKEND            the library with that backend, which may refuse cases
 *     golden FOLDER BACKEND complete   the same, but the backend may refuse nothing
 *     golden FOLDER oracle             the float64 oracle of the conformance kit
 *
 * Every case runs with out in f32 and in the type of q; those of bf16 also with exact products,
 * those of f32 and f16 also with split products. Tolerances are those of the kit, derived for each
 * row from the rounding of its own numbers, with one rounding more: that of the expected value to
 * f32. The exit status is 77 (skipped) when the backend refuses every case, as one that cannot run
 * on this machine does.
 */
#include <float.h>
#include <heed/backend.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tolerance.h"
#include "vector.h"

enum { CASES = 61 };

typedef struct tally {
    int runs, refused, failed;
    int64_t compared;
} tally;

/* The results of one run as dense doubles; NULL where one was not requested. */
typedef struct result {
    double *value[VECTOR_RESULTS];
} result;

typedef struct checker {
    const vector *v;
    const char *how_named;
    const result *got; /* NULL: the oracle itself is checked */
    kit_tolerance out_how, f32_how;
    kit_row_tolerance tolerance;
    tally *tally;
    int failures;
} checker;

/* ---- comparing ------------------------------------------------------------------------------- */

static void compare(checker *c, int which, int64_t index, double oracle, double bound)
{
    static const char *const names[] = {"out", "lse", "weights", "raw", "softcapped", "biased"};
    double want, got;
    int close;
    if (!c->v->expected[which].data || (c->got && !c->got->value[which]))
        return;
    want = heed_npy_number(&c->v->expected[which], index);
    c->tally->compared++;
    if (c->got) {
        got = c->got->value[which][index];
        bound += 0x1p-24 * (isfinite(want) ? fabs(want) : 0) + 0x1p-150;
        close = kit_close(which == VECTOR_OUT ? &c->out_how : &c->f32_how, got, want, bound);
    } else {
        /* Both are float64: what is left is the rounding of the file to f32, and that of float64,
         * which is 2^-29 of the bound for f32. */
        got = oracle;
        bound = 0x1p-29 * bound + 0x1p-24 * fabs(want) + 0x1p-150;
        close = got == want || fabs(got - want) <= bound;
    }
    if (close)
        return;
    if (c->failures++ < 3)
        fprintf(stderr, "%s (%s): %s[%lld] is %.9g, should be %.9g +- %.2g\n", c->v->name,
                c->how_named, names[which], (long long)index, got, want, bound);
}

static void check_row(void *user, const reference_problem *p, const reference_row *r)
{
    checker *c = user;
    kit_row_tolerance *to = &c->tolerance;
    int64_t row = (r->b * p->q_heads + r->h) * p->q_len + r->i;
    kit_tolerate(&c->out_how, p, r, to);
    for (int64_t d = 0; d < p->v_dim; d++)
        compare(c, VECTOR_OUT, row * p->v_dim + d, r->out[d], to->out[d]);
    compare(c, VECTOR_LSE, row, r->lse, to->lse);
    for (int64_t j = 0; j < p->kv_len; j++) {
        int64_t pair = row * p->kv_len + j;
        compare(c, VECTOR_WEIGHTS, pair, r->weight[j], to->weight[j]);
        compare(c, VECTOR_RAW, pair, r->raw[j], to->raw[j]);
        compare(c, VECTOR_SOFTCAPPED, pair, r->softcapped[j], to->softcapped[j]);
        compare(c, VECTOR_BIASED, pair, r->score[j], to->score[j]);
    }
}

/* Compares every expected result of the vector with got, or with the oracle if got is NULL. */
static void check(const vector *v, const result *got, uint32_t accuracy, uint32_t out_type,
                  const char *how_named, tally *t)
{
    checker c = {.v = v, .how_named = how_named, .got = got, .tally = t};
    int exponent;
    c.out_how = kit_tolerance_of(accuracy, out_type);
    c.f32_how = kit_tolerance_of(accuracy, HEED_F32);
    /* Scaling by a power of two does not round, and products of bf16 are exact in f32. */
    if (accuracy == HEED_ACCURACY_BF16 && frexp(fabs(v->reference.scale), &exponent) == 0.5)
        c.out_how.product = c.out_how.product_scatter =
            kit_tolerance_of(HEED_ACCURACY_EXACT, out_type).product;
    if (kit_row_tolerance_make(&c.tolerance, v->reference.kv_len, v->reference.v_dim) != 0 ||
        reference_attention(&v->reference, check_row, &c) != 0) {
        fprintf(stderr, "%s: out of memory\n", v->name);
        c.failures++;
    }
    t->runs++;
    t->failed += c.failures > 0;
    free(c.tolerance.raw);
}

/* ---- running --------------------------------------------------------------------------------- */

static void *widen(void *data, uint32_t type, int64_t count)
{
    double *to = malloc(((size_t)count + 1) * sizeof *to);
    for (int64_t i = 0; to && i < count; i++)
        to[i] = (double)heed_load(type, data, i);
    return to;
}

/* Memory for one output, filled with NaN, so that elements which are not written show. */
static void *output(int wanted, int64_t count, heed_view *view, int64_t heads, int64_t rows,
                    int64_t dims)
{
    void *data = wanted ? malloc((size_t)count * 4 + 1) : NULL;
    if (data) {
        memset(data, 0xff, (size_t)count * 4 + 1);
        *view = (heed_view){data, {heads * rows * dims, rows * dims, dims, dims > 1}};
    }
    return data;
}

/* Runs the vector, with the scores of one stage or without scores, and checks the results. */
static void run(heed_context *context, const vector *v, uint32_t accuracy, uint32_t out_type,
                uint32_t stage, const char *how_named, int complete, tally *t)
{
    heed_attn_desc desc = v->desc;
    heed_attn_args args = v->args;
    const int64_t h = desc.q_heads, n = args.q_len, m = args.kv_len, queries = args.batch * h * n;
    int weights = v->expected[VECTOR_WEIGHTS].data != NULL;
    void *out = output(1, queries * desc.v_dim, &args.out, h, n, desc.v_dim);
    float *lse = output(1, queries, &args.lse, h, n, 1);
    float *weight = output(weights, queries * m, &args.weights, h, n, m);
    float *score = output(stage != 0, queries * m, &args.scores, h, n, m);
    desc.accuracy = accuracy;
    desc.out_type = out_type;
    desc.scores_stage = stage;
    desc.features |=
        HEED_HAS_LSE | (weights ? HEED_HAS_WEIGHTS : 0) | (stage ? HEED_HAS_SCORES : 0);

    heed_status status = heed_attention(context, &desc, &args);
    if (status == HEED_ERR_UNSUPPORTED && !complete) {
        if (t->refused++ == 0)
            printf("%s (%s) is refused: %s\n", v->name, how_named, heed_last_error());
    } else if (status != HEED_OK) {
        fprintf(stderr, "%s (%s): %s\n", v->name, how_named, heed_last_error());
        t->failed++;
    } else {
        result got = {{widen(out, out_type, queries * desc.v_dim), widen(lse, HEED_F32, queries)}};
        if (weights)
            got.value[VECTOR_WEIGHTS] = widen(weight, HEED_F32, queries * m);
        if (stage)
            got.value[VECTOR_RAW + stage - HEED_SCORES_RAW] = widen(score, HEED_F32, queries * m);
        int all_bf16 = desc.q_type == HEED_BF16;
        check(v, &got,
              accuracy != HEED_ACCURACY_DEFAULT ? accuracy
              : all_bf16                        ? HEED_ACCURACY_BF16
                                                : HEED_ACCURACY_EXACT,
              out_type, how_named, t);
        for (int i = 0; i < VECTOR_RESULTS; i++)
            free(got.value[i]);
    }
    free(out);
    free(lse);
    free(weight);
    free(score);
}

static void run_all_ways(heed_context *context, const vector *v, int complete, tally *t)
{
    static const char *const accuracy_name[] = {"default", "exact", "bf16", "split"};
    const uint32_t second = v->desc.q_type == HEED_BF16 ? HEED_ACCURACY_EXACT : HEED_ACCURACY_SPLIT;
    const uint32_t accuracies[] = {HEED_ACCURACY_DEFAULT, second};
    const uint32_t types[] = {HEED_F32, v->desc.q_type};
    for (int a = 0; a < 2; a++)
        for (int o = 0; o < (types[0] == types[1] ? 1 : 2); o++)
            for (uint32_t stage = HEED_SCORES_NONE; stage <= HEED_SCORES_BIASED; stage++) {
                char named[64];
                if (stage && !v->expected[VECTOR_RAW + stage - HEED_SCORES_RAW].data)
                    continue;
                snprintf(named, sizeof named, "%s, out %s, scores stage %u",
                         accuracy_name[accuracies[a]], heed_dtype_name(types[o]), stage);
                run(context, v, accuracies[a], types[o], stage, named, complete, t);
            }
}

int main(int argc, char **argv)
{
    char path[1024];
    int cases = 0, oracle = argc == 3 && strcmp(argv[2], "oracle") == 0;
    heed_context *context = NULL;
    tally t = {0};
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: golden FOLDER oracle|BACKEND [complete]\n");
        return 2;
    }
    heed_context_options options = {.struct_size = sizeof options, .backends = argv[2]};
    if (!oracle && heed_context_create(&options, &context) != HEED_OK) {
        fprintf(stderr, "%s\n", heed_last_error());
        return 1;
    }
    snprintf(path, sizeof path, "%s/golden.json", argv[1]);
    cJSON *json = vector_json(path);
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(json, "cases"))
    {
        vector v;
        cases++;
        if (vector_load(argv[1], item, &v) != 0)
            t.failed++;
        else if (oracle)
            check(&v, NULL, HEED_ACCURACY_EXACT, HEED_F32, "oracle", &t);
        else
            run_all_ways(context, &v, argc == 4, &t);
        vector_free(&v);
    }
    cJSON_Delete(json);
    heed_context_release(context);
    printf("%s: %d golden cases, %d runs, %lld numbers compared, %d runs refused, %d failed\n",
           argv[2], cases, t.runs, (long long)t.compared, t.refused, t.failed);
    if (cases != CASES || t.failed)
        return 1;
    if (t.runs == 0)
        return 77;
    return t.compared == 0;
}
