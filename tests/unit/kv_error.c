/* The cost of a cache in few bits: the error of attention over codes, compared with float64 over
 * the numbers that were encoded. Prints the table of docs/accuracy.md, and checks that every entry
 * agrees with the page. */
#include "unit.h"

#include <heed/formats.h>
#include <math.h>

enum { HEADS = 4, ROWS = 16, KEYS = 1024, DIM = 128, OUTLIERS = 4 };
enum { NORMAL, NORMAL_HADAMARD, OUTLIER, OUTLIER_HADAMARD, COLUMNS };

typedef struct problem {
    float q[HEADS][ROWS][DIM], k[HEADS][KEYS][DIM], v[HEADS][KEYS][DIM];
    double want[HEADS][ROWS][DIM];
} problem;

/* In percent: relative L2 error of out, k and v both of that type. */
static const struct {
    uint32_t type;
    double error[COLUMNS];
} expected[] = {
    {HEED_BF16, {0.246, 0.233, 0.514, 0.471}}, {HEED_F16, {0.0301, 0.0295, 0.0857, 0.0541}},
    {HEED_I8, {0.911, 0.914, 4.89, 1.41}},     {HEED_U8, {0.826, 0.84, 3.78, 1.5}},
    {HEED_F8_E4M3, {3.67, 3.79, 5.11, 7.15}},  {HEED_Q8_0, {0.771, 0.769, 3.23, 1.25}},
    {HEED_Q5_1, {5.5, 5.41, 12.4, 8.42}},      {HEED_Q5_0, {6.03, 6.05, 26.7, 8.98}},
    {HEED_Q4_1, {11.1, 11.2, 29.1, 16.8}},     {HEED_Q4_0, {12.2, 12.3, 40.9, 16.7}},
    {HEED_IQ4_NL, {11.1, 10.9, 39.8, 24.2}},   {HEED_U4, {13.9, 14.5, 77.3, 25.4}},
};

/* Numbers from N(0, 1); with outliers, a few channels of the keys are ten times as large, as in
 * models. */
static void make(problem *p, int outliers)
{
    uint64_t state = 11;
    for (int h = 0; h < HEADS; h++) {
        for (int i = 0; i < ROWS; i++)
            for (int d = 0; d < DIM; d++)
                p->q[h][i][d] = unit_normal(&state);
        for (int j = 0; j < KEYS; j++)
            for (int d = 0; d < DIM; d++) {
                const int is_outlier = outliers && d % (DIM / OUTLIERS) == 5 + 7 * h;
                p->k[h][j][d] = unit_normal(&state) * (is_outlier ? 10 : 1);
                p->v[h][j][d] = unit_normal(&state);
            }
    }
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < ROWS; i++) {
            double score[KEYS], most = -INFINITY, sum = 0;
            for (int j = 0; j < KEYS; j++) {
                score[j] = 0;
                for (int d = 0; d < DIM; d++)
                    score[j] += (double)p->q[h][i][d] * (double)p->k[h][j][d];
                score[j] /= sqrt((double)DIM);
                most = fmax(most, score[j]);
            }
            memset(p->want[h][i], 0, sizeof p->want[h][i]);
            for (int j = 0; j < KEYS; j++) {
                const double weight = exp(score[j] - most);
                sum += weight;
                for (int d = 0; d < DIM; d++)
                    p->want[h][i][d] += weight * (double)p->v[h][j][d];
            }
            for (int d = 0; d < DIM; d++)
                p->want[h][i][d] /= sum;
        }
}

static void transform(float *x)
{
    const heed_hadamard_args args = {.struct_size = sizeof args,
                                     .batch = 1,
                                     .len = ROWS,
                                     .heads = HEADS,
                                     .dim = DIM,
                                     .group = DIM,
                                     .x_type = HEED_F32,
                                     .y_type = HEED_F32,
                                     .x = {x, {0, ROWS * DIM, DIM, 1}},
                                     .y = {x, {0, ROWS * DIM, DIM, 1}}};
    CHECK_OK(heed_hadamard(&args));
}

static heed_attn_desc desc_of(uint32_t type)
{
    return (heed_attn_desc){.struct_size = sizeof(heed_attn_desc),
                            .features = heed_takes_scale(type) ? HEED_HAS_QUANT : 0,
                            UNIT_SHAPE(HEADS, HEADS, DIM, DIM),
                            UNIT_TYPES(HEED_F32, type, type, HEED_F32),
                            .accuracy = HEED_ACCURACY_EXACT,
                            .max_batch = 1,
                            .max_q_len = ROWS,
                            .max_kv_len = KEYS};
}

/* In percent. */
static double distance(float (*out)[ROWS][DIM], const problem *p)
{
    double off = 0, size = 0;
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < ROWS; i++)
            for (int d = 0; d < DIM; d++) {
                off += pow((double)out[h][i][d] - p->want[h][i][d], 2);
                size += pow(p->want[h][i][d], 2);
            }
    return 100 * sqrt(off / size);
}

/* In percent. */
static double error_of(heed_context *context, const problem *p, uint32_t type, int hadamard)
{
    static unsigned char cache[2][HEADS * KEYS * DIM * 2];
    static float scale[2][HEADS * KEYS], zero[2][HEADS * KEYS];
    static float q[HEADS][ROWS][DIM], out[HEADS][ROWS][DIM];
    const int takes = heed_takes_scale(type);
    const int64_t stride[4] = {HEADS * KEYS * DIM, KEYS * DIM, DIM, 1};
    heed_kv_append_args append = {.struct_size = sizeof append,
                                  .batch = 1,
                                  .len = KEYS,
                                  .capacity = KEYS,
                                  .kv_heads = HEADS,
                                  .qk_dim = DIM,
                                  .v_dim = DIM,
                                  .k_type = HEED_F32,
                                  .v_type = HEED_F32,
                                  .k_cache_type = type,
                                  .v_cache_type = type,
                                  .options = takes ? HEED_APPEND_FRESH_SCALES : 0};
    append.k = (heed_const_view){p->k, {stride[0], stride[1], stride[2], 1}};
    append.v = (heed_const_view){p->v, {stride[0], stride[1], stride[2], 1}};
    append.k_cache = (heed_view){cache[0], {stride[0], stride[1], stride[2], 1}};
    append.v_cache = (heed_view){cache[1], {stride[0], stride[1], stride[2], 1}};
    heed_quant_out *const quant[] = {&append.k_quant, &append.v_quant};
    for (int i = 0; i < 2 && takes; i++)
        *quant[i] = (heed_quant_out){
            scale[i], type == HEED_F8_E4M3 ? NULL : zero[i], {HEADS * KEYS, KEYS, 1, 0}, 0, 0};
    memcpy(q, p->q, sizeof q);
    if (hadamard) {
        append.options |= HEED_APPEND_HADAMARD_K | HEED_APPEND_HADAMARD_V;
        append.hadamard = DIM;
        transform(q[0][0]);
    }
    CHECK_OK(heed_kv_append(&append));
    const heed_attn_desc desc = desc_of(type);
    const heed_attn_args args = {.struct_size = sizeof args,
                                 .batch = 1,
                                 .q_len = ROWS,
                                 .kv_len = KEYS,
                                 .q = {q, {0, ROWS * DIM, DIM, 1}},
                                 .k = heed_as_const(append.k_cache),
                                 .v = heed_as_const(append.v_cache),
                                 .out = {out, {0, ROWS * DIM, DIM, 1}},
                                 .k_quant = heed_quant_as_const(append.k_quant),
                                 .v_quant = heed_quant_as_const(append.v_quant)};
    CHECK_OK(heed_attention(context, &desc, &args));
    if (hadamard)
        transform(out[0][0]);
    return distance(out, p);
}

int main(void)
{
    static problem p[2];
    heed_context *context = unit_context(1, NULL);
    make(&p[0], 0);
    make(&p[1], 1);
    printf("relative L2 error of out in percent\n%-8s %8s %8s %8s %8s\n", "type", "N(0,1)",
           "Hadamard", "outliers", "Hadamard");
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        printf("%-8s", heed_dtype_name(expected[i].type));
        for (int c = 0; c < COLUMNS; c++) {
            const double error = error_of(context, &p[c / 2], expected[i].type, c % 2);
            printf(" %8.3g", error);
            /* another libm or order of sums moves it by far less */
            CHECK(fabs(error - expected[i].error[c]) <= 0.03 * expected[i].error[c],
                  "%s, column %d: %g, should be about %g", heed_dtype_name(expected[i].type), c,
                  error, expected[i].error[c]);
        }
        printf("\n");
    }
    heed_context_release(context);
    return checks_end();
}
