/* AVX2 and AVX-512 give the same bits for linear layers in f32 arithmetic: types, activations,
 * numbers of rows around both kernels' steps. Without activation the bits are those of the order
 * that the kernels promise. */
#include <heed/heed.h>
#include <heed/kit.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 600, OUT = 150, ROWS = 37, BLOCK = 256 };

static float x[ROWS * IN], bias[OUT], residual[ROWS * OUT];
static char w[IN * OUT * sizeof(float)];

static uint32_t random_state = 12345;

static float uniform(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) * 0x1p-23f - 1;
}

/* The same numbers every time. Sums of about 6 in size: activations bend there. */
static heed_status run(heed_context *context, uint32_t w_type, uint32_t activation, int64_t rows,
                       float *y)
{
    const heed_view weight = {w, {OUT, 1}}, bias_view = {bias, {1}};
    heed_linear *linear = NULL;
    random_state = 12345;
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = uniform();
    for (int i = 0; i < IN * OUT; i++) {
        const float value = uniform() * 0.7f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        const uint16_t half = (uint16_t)(w_type == HEED_BF16 ? bits >> 16 : bits & 0xbbff);
        if (w_type == HEED_F32)
            memcpy(w + 4 * i, &value, 4);
        else /* for f16 any bits of a number below 2 will do */
            memcpy(w + 2 * i, &half, 2);
    }
    for (int i = 0; i < OUT; i++)
        bias[i] = uniform();
    for (int i = 0; i < ROWS * OUT; i++)
        residual[i] = uniform();
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .features = HEED_LINEAR_HAS_BIAS | HEED_LINEAR_HAS_RESIDUAL,
                                   .in_dim = IN,
                                   .out_dim = OUT,
                                   .x_type = HEED_F32,
                                   .w_type = w_type,
                                   .y_type = HEED_F32,
                                   .bias_type = HEED_F32,
                                   .activation = activation};
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
 * order; bias and residual once they are all in. */
static float promised(uint32_t w_type, int64_t row, int64_t col)
{
    float total = 0;
    for (int64_t first = 0; first < IN; first += BLOCK) {
        float sum = 0;
        for (int64_t i = first; i < IN && i < first + BLOCK; i++)
            sum = fmaf(x[row * IN + i], heed_load(w_type, w, i * OUT + col), sum);
        total = first ? total + sum : sum;
    }
    return total + bias[col] + residual[row * OUT + col];
}

static int is_promised(uint32_t w_type, int64_t rows, const float *y)
{
    static float want[ROWS * OUT];
    static uint32_t want_type;
    for (int64_t i = 0; i < ROWS * OUT && want_type != w_type; i++)
        want[i] = promised(w_type, i / OUT, i % OUT);
    want_type = w_type;
    for (int64_t i = 0; i < rows * OUT; i++)
        if (y[i] != want[i]) {
            printf("type %u, %lld rows: y[%lld, %lld] is %.9g, not %.9g\n", w_type, (long long)rows,
                   (long long)(i / OUT), (long long)(i % OUT), (double)y[i], (double)want[i]);
            return 0;
        }
    return 1;
}

int main(void)
{
    static const char *const name[2] = {"avx2", "avx512"};
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, ROWS};
    static float y[2][ROWS * OUT];
    heed_context *context[2] = {NULL, NULL};
    int bad = 0, n = 0;
    for (int i = 0; i < 2; i++) {
        const heed_context_options options = {.struct_size = sizeof options, .backends = name[i]};
        if (heed_context_create(&options, &context[i]) != HEED_OK)
            return 1;
    }
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++)
        for (uint32_t act = HEED_ACT_NONE; act <= HEED_ACT_SILU; act++)
            for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++, n++) {
                for (int i = 0; i < 2; i++) {
                    heed_status status = run(context[i], type, act, rows[r], y[i]);
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
                    printf("type %u, activation %u, %lld rows: the bits differ\n", type, act,
                           (long long)rows[r]);
                    bad++;
                }
                if (act == HEED_ACT_NONE && !is_promised(type, rows[r], y[0]))
                    bad++;
            }
    printf("%d layers, %d differ\n", n, bad);
    heed_context_release(context[0]);
    heed_context_release(context[1]);
    return bad != 0;
}
