/* Linear layers on tiles: x that is read in place gives the same bits as x that has to be copied,
 * and so do the same rows in calls of other sizes. The layers have many blocks of inputs, groups of
 * panels, and sums that wait for the next products. Argument: the backend's name. */
#include <heed/kit.h>

#include "../unit/unit.h"

enum { MOST_ROWS = 96, MOST_IN = 4128, MOST_OUT = 200, ALIGNED = 32 };

static _Alignas(64) uint16_t x[2][MOST_ROWS * (MOST_IN + 1) + ALIGNED], w[MOST_IN * MOST_OUT];
static uint16_t residual[MOST_ROWS * MOST_OUT];
static float bias[MOST_OUT], y[3][MOST_ROWS * MOST_OUT];

typedef struct layer {
    uint32_t in_dim, out_dim, y_type, activation;
} layer;

static void check(heed_context *context, const layer *l)
{
    const int64_t in = l->in_dim, out = l->out_dim, whole = (in + 31) / 32 * 32;
    const heed_linear_desc desc = {
        .struct_size = sizeof desc,
        .features = HEED_LINEAR_HAS_BIAS | (l->y_type == HEED_BF16 ? HEED_LINEAR_HAS_RESIDUAL : 0),
        .in_dim = l->in_dim,
        .out_dim = l->out_dim,
        .x_type = HEED_BF16,
        .w_type = HEED_BF16,
        .y_type = l->y_type,
        .bias_type = HEED_F32,
        .activation = l->activation,
        .accuracy = HEED_ACCURACY_BF16};
    const heed_const_view weight = {w, {out, 1}}, bias_view = {bias, {1}};
    const size_t bytes = heed_dtype_bytes(l->y_type);
    heed_linear *linear = NULL;
    CHECK_OK(heed_linear_create(context, &desc, &weight, &bias_view, &linear));
    memset(x[0], 0xff, sizeof x[0]); /* NaN between rows */
    for (int64_t r = 0; r < MOST_ROWS; r++)
        memcpy(x[0] + r * whole, x[1] + 1 + r * (in + 1), (size_t)in * sizeof **x);
    heed_linear_args args = {.struct_size = sizeof args,
                             .rows = MOST_ROWS,
                             .x = {x[1] + 1, {in + 1, 1}},
                             .y = {y[0], {out, 1}}};
    if (l->y_type == HEED_BF16)
        args.residual = (heed_const_view){residual, {out, 1}};
    CHECK_OK(heed_linear_run(linear, &args, NULL, 0));
    args.x = (heed_const_view){x[0], {whole, 1}};
    for (int64_t rows = 16; rows <= MOST_ROWS; rows += 80) {
        args.rows = rows;
        args.y.data = y[1];
        memset(y[1], 0xff, sizeof y[1]);
        CHECK_OK(heed_linear_run(linear, &args, NULL, 0));
        CHECK(memcmp(y[0], y[1], (size_t)(rows * out) * bytes) == 0,
              "%u x %u, type %u, activation %u: other bits of %lld rows", l->in_dim, l->out_dim,
              l->y_type, l->activation, (long long)rows);
    }
    for (int64_t r = 0; r < MOST_ROWS; r += 17) { /* and row by row */
        args.rows = 1;
        args.x.data = x[0] + r * whole;
        args.residual.data = args.residual.data ? residual + r * out : NULL;
        args.y.data = y[2];
        CHECK_OK(heed_linear_run(linear, &args, NULL, 0));
        CHECK(memcmp((char *)y[0] + (size_t)(r * out) * bytes, y[2], (size_t)out * bytes) == 0,
              "%u x %u, type %u, activation %u: other bits of row %lld alone", l->in_dim,
              l->out_dim, l->y_type, l->activation, (long long)r);
    }
    heed_linear_release(linear);
}

int main(int argc, char **argv)
{
    static const layer layers[] = {
        {384, 200, HEED_BF16, HEED_ACT_NONE}, {64, 96, HEED_F32, HEED_ACT_NONE},
        {72, 40, HEED_F32, HEED_ACT_NONE},    {2048, 64, HEED_BF16, HEED_ACT_GELU},
        {2080, 100, HEED_F32, HEED_ACT_NONE}, {4128, 40, HEED_BF16, HEED_ACT_NONE},
        {1536, 160, HEED_F32, HEED_ACT_SILU}};
    const char *backend = argc > 1 ? argv[1] : "amx";
    heed_context *context = unit_context(1, backend);
    unit_problem any = unit_make(1, 1, 1, 1, 8, 7);
    any.desc.accuracy = HEED_ACCURACY_SPLIT;
    const heed_status st = heed_attn_supported(context, &any.desc, NULL);
    unit_free(&any);
    if (st != HEED_OK) {
        printf("not here: %s\n", heed_last_error());
        heed_context_release(context);
        return strcmp(backend, "amx_model") != 0 ? 77 : 1; /* the model runs everywhere */
    }
    uint64_t seed = 11;
    for (int64_t i = 0; i < MOST_ROWS * (MOST_IN + 1) + ALIGNED; i++)
        heed_store(HEED_BF16, x[1], i, unit_number(&seed));
    for (int64_t i = 0; i < MOST_IN * MOST_OUT; i++)
        heed_store(HEED_BF16, w, i, unit_number(&seed) / 16);
    for (int64_t i = 0; i < MOST_ROWS * MOST_OUT; i++)
        heed_store(HEED_BF16, residual, i, unit_number(&seed));
    for (int64_t i = 0; i < MOST_OUT; i++)
        bias[i] = unit_number(&seed);
    for (size_t n = 0; n < sizeof layers / sizeof *layers; n++)
        check(context, &layers[n]);
    heed_context_release(context);
    return checks_end();
}
