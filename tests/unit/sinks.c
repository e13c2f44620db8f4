/* Weights and results agree about a sink that is far from 0. Values of 1 give the sum of a row's
 * weights: through the weights, whose kernels read the state that finishing a row leaves behind, as
 * through out. In log2 units sinks around 1.2e7 are beyond 2^24, where a reference above them often is
 * no float; others are so great that nothing is left of a row's sum. On every backend that runs here, in
 * each type, for rows of prefill and of decode. */
#include <heed/formats.h>

#include "unit.h"

enum { KEYS = 70, ROWS = 40, DIM = 32, NEAR = 64, BEYOND = NEAR + 128, SINKS = BEYOND + 49 };

#define Q 4096.0f /* one key's score is Q * K = 12189696, in few bits each; the others have 0 */
#define K 2976.0f
/* Two exponentials, a reciprocal and two products, 8 ulp or less each. */
#define ROUNDED (64 * 0x1p-24)

static unsigned char q[ROWS * DIM * 4], k[KEYS * DIM * 4], v[KEYS * DIM * 4];
static float out[ROWS * DIM], weights[ROWS * KEYS];
static const char *wanted = "naive"; /* the backend that has to serve some */
static int n_served, n_wanted, n_between;

static void fill(uint32_t type)
{
    for (int64_t i = 0; i < ROWS * DIM; i++)
        heed_store(type, q, i, i % DIM ? 0 : Q);
    for (int64_t i = 0; i < KEYS * DIM; i++) {
        heed_store(type, k, i, i ? 0 : K);
        heed_store(type, v, i, 1);
    }
}

/* Sinks about the greatest score; adjacent floats of which some leave so little of a row's sum that its
 * reciprocal is no float; and from 2^30 to 1.99 * 2^126 in steps of a factor of 4. */
static float sink_of(int n)
{
    if (n < NEAR)
        return Q * K - 4 + (float)n;
    if (n < BEYOND)
        return 3e9f + 256 * (float)(n - NEAR);
    return ldexpf(2 - 1.0f / (float)(n + 1), 30 + 2 * (n - BEYOND));
}

/* Returns 0 if the backend does not support the type. */
static int check_rows(heed_context *context, const char *name, uint32_t type, int64_t rows,
                      float sink)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = HEED_HAS_SCALE | HEED_HAS_SINK | HEED_HAS_WEIGHTS,
                                 .scale = 1,
                                 UNIT_SHAPE(1, 1, DIM, DIM),
                                 UNIT_TYPES(type, type, type, HEED_F32)};
    const heed_attn_args args = {.struct_size = sizeof args,
                                 .batch = 1,
                                 .q_len = rows,
                                 .kv_len = KEYS,
                                 .q = {q, {0, 0, DIM, 1}},
                                 .k = {k, {0, 0, DIM, 1}},
                                 .v = {v, {0, 0, DIM, 1}},
                                 .out = {out, {0, 0, DIM, 1}},
                                 .weights = {weights, {0, 0, KEYS, 1}},
                                 .sink = &sink};
    if (heed_attn_supported(context, &desc, NULL) == HEED_ERR_UNSUPPORTED)
        return 0;
    CHECK_OK(heed_attention(context, &desc, &args));
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t j = 0; j < KEYS; j++)
            sum += (double)weights[r * KEYS + j];
        const double got = (double)out[r * DIM];
        n_between += got > 0.1 && got < 0.9;
        CHECK(fabs(sum - got) <= ROUNDED,
              "%s, %s, sink %.9g: row %d of %d has weights of %g, out %g", name,
              heed_dtype_name(type), (double)sink, (int)r, (int)rows, sum, got);
    }
    return 1;
}

static void check(heed_context *context, const char *name)
{
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
        fill(type);
        for (int64_t rows = 1; rows <= ROWS; rows += ROWS - 1) /* decode, then prefill */
            for (int i = 0; i < SINKS; i++) {
                const int served = check_rows(context, name, type, rows, sink_of(i));
                n_served += served;
                n_wanted += served && strcmp(name, wanted) == 0;
            }
    }
}

/* sinks [BACKEND that has to serve some problems] */
int main(int argc, char **argv)
{
    if (argc > 1)
        wanted = argv[1];
    unit_each_backend(check);
    CHECK(n_wanted > 0, "%s served no problem", wanted);
    CHECK(n_served >= 3 * 2 * SINKS, "%d problems were served", n_served); /* naive runs all */
    CHECK(n_between >= 3, "%d rows shared their weight with the sink", n_between);
    return checks_end();
}
