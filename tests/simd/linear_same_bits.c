/* AVX2 and AVX-512 give the same bits for linear layers in f32 arithmetic, for all types and
 * activations and for numbers of rows around both kernels' steps. Without activation they are the
 * bits of sums in the order that the kernels promise. */
#include <heed/heed.h>
#include <heed/kit.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../draw.h"

enum { IN = 600, OUT = 150, ROWS = 37, BLOCK = 256 };

static float bias[OUT], residual[ROWS * OUT];
static char x[ROWS * IN * sizeof(float)], w[IN * OUT * sizeof(float)];

/* Types of x and w. Unless both are bf16, the arithmetic is f32 with any accuracy. */
typedef struct types {
    uint32_t x, w, accuracy;
} types;

/* Numbers below `limit` in size. */
static void fill(uint32_t type, char *to, int n, float limit)
{
    for (int i = 0; i < n; i++)
        heed_store(type, to, i, kit_next_float(&random_state) * limit);
}

/* Runs a layer with the same numbers every time. Its sums are about 6 in size, where activations
 * bend. */
static heed_status run(heed_context *context, types type, uint32_t activation, int64_t rows,
                       float *y)
{
    const heed_const_view weight = {w, {OUT, 1}}, bias_view = {bias, {1}};
    heed_linear *linear = NULL;
    random_state = 12345;
    fill(type.x, x, ROWS * IN, 1);
    fill(type.w, w, IN * OUT, 0.7f);
    for (int i = 0; i < OUT; i++)
        bias[i] = kit_next_float(&random_state);
    for (int i = 0; i < ROWS * OUT; i++)
        residual[i] = kit_next_float(&random_state);
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .features = HEED_LINEAR_HAS_BIAS | HEED_LINEAR_HAS_RESIDUAL,
                                   .in_dim = IN,
                                   .out_dim = OUT,
                                   .x_type = type.x,
                                   .w_type = type.w,
                                   .y_type = HEED_F32,
                                   .bias_type = HEED_F32,
                                   .activation = activation,
                                   .accuracy = type.accuracy};
    const heed_linear_args args = {.struct_size = sizeof args,
                                   .rows = rows,
                                   .x = {x, {IN, 1}},
                                   .y = {y, {OUT, 1}},
                                   .residual = {residual, {OUT, 1}}};
    heed_status status = heed_linear_create(context, &desc, &weight, &bias_view, &linear);
    if (status == HEED_OK)
        status = heed_linear_run(linear, &args, NULL, 0);
    heed_linear_release(linear);
    return status;
}

/* An element of y: sums of BLOCK inputs, each a chain of fused multiply-adds from zero, added in
 * order, and then bias and residual. */
static float promised(types type, int64_t row, int64_t col)
{
    float total = 0;
    for (int64_t first = 0; first < IN; first += BLOCK) {
        float sum = 0;
        for (int64_t i = first; i < IN && i < first + BLOCK; i++)
            sum =
                fmaf(heed_load(type.x, x, row * IN + i), heed_load(type.w, w, i * OUT + col), sum);
        total = first ? total + sum : sum;
    }
    return total + bias[col] + residual[row * OUT + col];
}

static int is_promised(types type, int64_t rows, const float *y)
{
    static float want[ROWS * OUT];
    static types want_type;
    if (memcmp(&want_type, &type, sizeof type) != 0)
        for (int64_t i = 0; i < ROWS * OUT; i++)
            want[i] = promised(type, i / OUT, i % OUT);
    want_type = type;
    for (int64_t i = 0; i < rows * OUT; i++)
        if (y[i] != want[i]) {
            printf("x %u, w %u, %lld rows: y[%lld, %lld] is %.9g, not %.9g\n", type.x, type.w,
                   (long long)rows, (long long)(i / OUT), (long long)(i % OUT), (double)y[i],
                   (double)want[i]);
            return 0;
        }
    return 1;
}

int main(void)
{
    static const char *const name[2] = {"avx2", "avx512"};
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, ROWS};
    static const types type[] = {{HEED_F32, HEED_F32, HEED_ACCURACY_DEFAULT},
                                 {HEED_F32, HEED_F16, HEED_ACCURACY_DEFAULT},
                                 {HEED_F32, HEED_BF16, HEED_ACCURACY_DEFAULT},
                                 {HEED_BF16, HEED_BF16, HEED_ACCURACY_EXACT}};
    static float y[2][ROWS * OUT];
    heed_context *context[2] = {NULL, NULL};
    int bad = 0, n = 0;
    for (int i = 0; i < 2; i++) {
        const heed_context_options options = {.struct_size = sizeof options, .backends = name[i]};
        if (heed_context_create(&options, &context[i]) != HEED_OK)
            return 1;
    }
    for (size_t t = 0; t < sizeof type / sizeof *type; t++)
        for (uint32_t act = HEED_ACT_NONE; act <= HEED_ACT_SILU; act++)
            for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++, n++) {
                for (int i = 0; i < 2; i++) {
                    heed_status status = run(context[i], type[t], act, rows[r], y[i]);
                    if (status == HEED_ERR_UNSUPPORTED) {
                        printf("%s cannot run here: %s\n", name[i], heed_last_error());
                        return 77;
                    }
                    if (status != HEED_OK) {
                        printf("%s: %s\n", name[i], heed_last_error());
                        return 1;
                    }
                }
                if (memcmp(y[0], y[1], sizeof(float) * (size_t)(rows[r] * OUT)) != 0) {
                    printf("x %u, w %u, activation %u, %lld rows: the bits differ\n", type[t].x,
                           type[t].w, act, (long long)rows[r]);
                    bad++;
                }
                if (act == HEED_ACT_NONE && !is_promised(type[t], rows[r], y[0]))
                    bad++;
            }
    printf("%d layers, %d differ\n", n, bad);
    heed_context_release(context[0]);
    heed_context_release(context[1]);
    return bad != 0;
}
