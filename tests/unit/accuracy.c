/* The promise of heed/attention.h for EXACT: for inputs from N(0,1) the relative L2 error of out in
 * f32 is below u (8 + sqrt(qk_dim)), u = 2^-24, on every backend of this machine, at any head dim.
 * The derivation is in docs/accuracy.md. */
#include <math.h>

#include "unit.h"

enum { V_DIM = 16, MOST_KEYS = 2048 };

static float *normals(int64_t n, uint64_t *seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    if (!x)
        exit(1);
    for (int64_t i = 0; i < n; i++)
        x[i] = unit_normal(seed);
    return x;
}

/* The squares of a row's error, and of the row itself, are added to *error and *size. */
static void compare_row(const float *q, const float *k, const float *v, const float *out,
                        int64_t dim, int64_t keys, double *error, double *size)
{
    static double weight[MOST_KEYS];
    double most = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        double s = 0;
        for (int64_t d = 0; d < dim; d++)
            s += (double)q[d] * (double)k[j * dim + d];
        weight[j] = s / sqrt((double)dim);
        most = fmax(most, weight[j]);
    }
    for (int64_t j = 0; j < keys; j++)
        sum += weight[j] = exp(weight[j] - most);
    for (int64_t d = 0; d < V_DIM; d++) {
        double want = 0;
        for (int64_t j = 0; j < keys; j++)
            want += weight[j] / sum * (double)v[j * V_DIM + d];
        *error += ((double)out[d] - want) * ((double)out[d] - want);
        *size += want * want;
    }
}

static void check(heed_context *context, const char *backend, int64_t q_len, int64_t keys,
                  int64_t dim)
{
    uint64_t seed = (uint64_t)(dim + keys);
    float *q = normals(q_len * dim, &seed), *k = normals(keys * dim, &seed);
    float *v = normals(keys * V_DIM, &seed), *out = normals(q_len * V_DIM, &seed);
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 UNIT_SHAPE(1, 1, (uint32_t)dim, V_DIM),
                                 UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                                 .accuracy = HEED_ACCURACY_EXACT};
    const heed_attn_args args = {.struct_size = sizeof args,
                                 .batch = 1,
                                 .q_len = q_len,
                                 .kv_len = keys,
                                 .q = {q, {0, 0, dim, 1}},
                                 .k = {k, {0, 0, dim, 1}},
                                 .v = {v, {0, 0, V_DIM, 1}},
                                 .out = {out, {0, 0, V_DIM, 1}}};
    double error = 0, size = 0;
    CHECK_OK(heed_attention(context, &desc, &args));
    for (int64_t i = 0; i < q_len; i++)
        compare_row(q + i * dim, k, v, out + i * V_DIM, dim, keys, &error, &size);
    const double is = sqrt(error / size), stated = 0x1p-24 * (8 + sqrt((double)dim));
    CHECK(is < stated, "%s, %lld queries, %lld keys, qk_dim %lld: %.2e, stated is %.2e", backend,
          (long long)q_len, (long long)keys, (long long)dim, is, stated);
    free(q);
    free(k);
    free(v);
    free(out);
}

static void check_all(heed_context *context, const char *backend)
{
    static const int64_t lengths[][2] = {{1, 64}, {1, MOST_KEYS}, {8, 64}, {40, 100}};
    const int there = unit_runs_here(context);
    printf("%s: %s\n", backend, there ? "checked" : "takes no f32");
    for (int64_t dim = 64; there && dim <= 16384; dim *= 2)
        for (int n = 0; n < 4; n++)
            if (lengths[n][1] * dim <= 1 << 22) /* seconds, not minutes */
                check(context, backend, lengths[n][0], lengths[n][1], dim);
}

int main(void)
{
    unit_each_backend(check_all);
    return checks_end();
}
