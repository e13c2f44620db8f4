/* Relative L2 error of out against float64, over whole problems: what docs/accuracy.md promises.
 *
 * errors NAME checks backend NAME (amx, or from HEED_PLUGIN_PATH amx_model or amx_emulated) and
 * prints a line per problem. The bounds of single elements are those of the conformance suite.
 *
 * The promise is for N(0,1). With other values fewer keys may carry the weight of a row, so that
 * fewer roundings average out: a fifth more is allowed. And scores of a large size S have errors of
 * some u S in any f32 arithmetic (3 u S in sums of 40 to 128 terms that one large term dominates),
 * and with SPLIT that of one split product (2^-18, see tests/kit/tolerance.c); the relative errors
 * of weights are as large. Both errors are independent: the root of the sum of the squares. */
#include "run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct sums {
    const kit_problem *problem;
    double error2, want2, largest; /* score */
} sums;

static void add_row(void *user, const reference_problem *p, const reference_row *r)
{
    sums *s = user;
    const kit_tensor *t = &s->problem->tensor[KIT_OUT];
    int type = t->type == HEED_F32 ? REFERENCE_F32 : REFERENCE_BF16;
    for (int64_t j = 0; j < r->n_keys; j++)
        s->largest = fmax(s->largest, fabs(r->score[j]));
    for (int64_t d = 0; d < p->v_dim; d++) {
        const void *data = s->problem->buffer[t->buffer].data;
        double got = reference_decode(type, data, kit_at(t, r->b, r->h, r->i, d) / t->bytes);
        s->error2 += (got - r->out[d]) * (got - r->out[d]);
        s->want2 += r->out[d] * r->out[d];
    }
}

/* The relative L2 error of one problem, or NaN after a failure. *limit is that of N(0,1) and
 * becomes that of this problem. */
static double error_of(heed_context *context, const kit_spec *spec, double *limit)
{
    static const kit_way way = {.how = KIT_BY_WORKSPACE, .n_parts = 1, .garbage = 0xa5};
    kit_problem p = {0};
    kit_outcome outcome = {0};
    kit_result bits = {0};
    sums s = {.problem = &p};
    double error = (double)NAN;
    if (kit_run_once(context, &p, spec, GUARD_HIGH, NULL, &way, &bits, &outcome) == 0)
        kit_check(&p, &outcome); /* each element within its bound, too */
    if (outcome.verdict == KIT_PASSED && reference_attention(&p.reference, add_row, &s) == 0)
        error = sqrt(s.error2 / s.want2);
    else
        printf("%s\n", outcome.text);
    if (spec->values != KIT_NORMAL) {
        double score = 3 * 0x1p-24 + (spec->accuracy == HEED_ACCURACY_SPLIT ? 0x1p-18 : 0);
        *limit = hypot(1.2 * *limit, s.largest > 16 ? score * s.largest : 0);
    }
    kit_drop(&bits);
    kit_free(&p);
    return error;
}

static const struct {
    const char *name;
    uint32_t values;
} values[] = {{"N(0,1)", KIT_NORMAL},       {"creeping", KIT_CREEPING},
              {"rising", KIT_RISING},       {"falling", KIT_FALLING},
              {"1e4 apart", KIT_APART},     {"equal", KIT_EQUAL_KEYS},
              {"v denormal", KIT_DENORMAL}, {"signed zeros", KIT_SIGNED_ZEROS}};
static const struct {
    const char *name;
    uint32_t type, out_type, accuracy;
    double most; /* of the relative L2 error */
} kinds[] = {{"bf16, out bf16", HEED_BF16, HEED_BF16, HEED_ACCURACY_BF16, 2.6e-3},
             {"bf16, out f32", HEED_BF16, HEED_F32, HEED_ACCURACY_BF16, 2.0e-3},
             {"f32 split", HEED_F32, HEED_F32, HEED_ACCURACY_SPLIT, 1.0e-5},
             {"f16 split", HEED_F16, HEED_F32, HEED_ACCURACY_SPLIT, 1.0e-5}};
static const struct {
    uint32_t dim;
    int64_t q_len, kv_len;
} shapes[] = {{64, 48, 700}, {128, 48, 1500}, {40, 3, 2500}};

int main(int argc, char **argv)
{
    const char *backend = argc > 1 ? argv[1] : "amx_model";
    heed_context_options options = {.struct_size = sizeof options, .backends = backend};
    heed_context *context = NULL;
    heed_attn_desc probe = {.struct_size = sizeof probe,
                            .q_heads = 1,
                            .kv_heads = 1,
                            .qk_dim = 64,
                            .v_dim = 64,
                            .q_type = HEED_BF16,
                            .k_type = HEED_BF16,
                            .v_type = HEED_BF16,
                            .out_type = HEED_BF16};
    heed_error why = {""};
    int bad = 0;
    if (heed_context_create(&options, &context) != HEED_OK)
        printf("%s\n", heed_last_error());
    if (!context || heed_attn_supported(context, &probe, &why) != HEED_OK) {
        printf("%s cannot run here: %s\n", backend, why.text);
        heed_context_release(context);
        return strcmp(backend, "amx_model") != 0 ? 77 : 1;
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t n = 0; n < sizeof values / sizeof *values; n++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                kit_spec spec = {.q_type = kinds[k].type,
                                 .k_type = kinds[k].type,
                                 .v_type = kinds[k].type,
                                 .out_type = kinds[k].out_type,
                                 .accuracy = kinds[k].accuracy,
                                 .q_heads = 1,
                                 .kv_heads = 1,
                                 .batch = 1,
                                 .qk_dim = shapes[s].dim,
                                 .v_dim = shapes[s].dim,
                                 .q_len = shapes[s].q_len,
                                 .kv_len = shapes[s].kv_len,
                                 .values = values[n].values,
                                 .seed = 100 * n + s + 1};
                double limit = kinds[k].most, error = error_of(context, &spec, &limit);
                int ok = error <= limit;
                bad += !ok;
                printf("%-15s %-13s D %3u %2lld x %4lld: %.2e of %.2e%s\n", kinds[k].name,
                       values[n].name, shapes[s].dim, (long long)spec.q_len, (long long)spec.kv_len,
                       error, limit, ok ? "" : "  TOO LARGE");
            }
    heed_context_release(context);
    return bad != 0;
}
