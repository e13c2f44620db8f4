/* lse and weights are computed from weights before they are rounded to bf16, and asking for one
 * output changes no bit of another; nor do keys that only other rows see.
 *
 * Rows of one key, a few and many, with every way of hiding the others, in calls of many and of few
 * query rows (whose keys are cut into chunks), against float64. */
#ifndef HEED_TESTS_SIMD_SUMS_H
#define HEED_TESTS_SIMD_SUMS_H

#include <heed/formats.h>

#include <math.h>

#include "../unit/unit.h"

enum { ROWS = 40, KEYS = 2100, DIM = 96 };
enum { PLAIN, CAUSAL, WINDOW, MASK, BIAS, SOFTCAP, ALIBI, SINK, KINDS };

static const char *const kind_name[] = {"plain", "causal",  "window", "mask",
                                        "bias",  "softcap", "alibi",  "sink"};

static uint16_t q[ROWS][DIM], k[KEYS][DIM], v[KEYS][DIM];
static uint8_t mask[ROWS][KEYS];
static float bias[ROWS][KEYS];
static const float sink = 1.5f, slope = 0.125f;

/* What differs between kernels. A sum of n weights is rounded up to first + n / per times. */
typedef struct sums_of {
    const char *backend;
    uint32_t dims[2]; /* of half of the calls each */
    double first, per;
} sums_of;

typedef struct results {
    float out[ROWS][DIM], lse[ROWS], weights[ROWS][KEYS], scores[ROWS][KEYS];
} results;

typedef struct call {
    int kind;
    uint32_t dim;
    int64_t rows, keys;
} call;

static int is_visible(const call *c, int64_t i, int64_t j)
{
    const int64_t position = i + c->keys - c->rows;
    return c->kind == CAUSAL   ? j <= position
           : c->kind == WINDOW ? j <= position && j >= position - 2
           : c->kind == MASK   ? mask[i][j]
           : c->kind == BIAS   ? bias[i][j] != -INFINITY
                               : 1;
}

static void run(heed_context *context, const call *c, uint64_t outputs, results *to)
{
    static const uint64_t features[KINDS] = {
        [CAUSAL] = HEED_HAS_CAUSAL,  [WINDOW] = HEED_HAS_CAUSAL | HEED_HAS_WINDOW,
        [MASK] = HEED_HAS_MASK,      [BIAS] = HEED_HAS_BIAS,
        [SINK] = HEED_HAS_SINK,      [ALIBI] = HEED_HAS_ALIBI,
        [SOFTCAP] = HEED_HAS_SOFTCAP};
    const int positioned = c->kind == CAUSAL || c->kind == WINDOW || c->kind == ALIBI;
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           .features = features[c->kind] | outputs,
                           .position = positioned ? HEED_POS_BOTTOM_RIGHT : HEED_POS_UNSET,
                           .window_left = c->kind == WINDOW ? 2 : 0,
                           .window_right = c->kind == WINDOW ? -1 : 0,
                           .softcap = c->kind == SOFTCAP ? 20 : 0,
                           .bias_type = c->kind == BIAS ? HEED_F32 : HEED_DTYPE_NONE,
                           .scores_stage = outputs & HEED_HAS_SCORES ? HEED_SCORES_RAW : 0,
                           UNIT_SHAPE(1, 1, c->dim, c->dim),
                           UNIT_TYPES(HEED_BF16, HEED_BF16, HEED_BF16, HEED_F32)};
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = c->rows,
                           .kv_len = c->keys,
                           .q = {q, {0, 0, DIM, 1}},
                           .k = {k, {0, 0, DIM, 1}},
                           .v = {v, {0, 0, DIM, 1}},
                           .out = {to->out, {0, 0, DIM, 1}}};
    memset(to, 0, sizeof *to);
    if (outputs & HEED_HAS_LSE)
        args.lse = (heed_view){to->lse, {0, 0, 1, 0}};
    if (outputs & HEED_HAS_WEIGHTS)
        args.weights = (heed_view){to->weights, {0, 0, KEYS, 1}};
    if (outputs & HEED_HAS_SCORES)
        args.scores = (heed_view){to->scores, {0, 0, KEYS, 1}};
    if (c->kind == MASK)
        args.mask = (heed_const_view){mask, {0, 0, KEYS, 1}};
    if (c->kind == BIAS)
        args.bias = (heed_const_view){bias, {0, 0, KEYS, 1}};
    if (c->kind == SINK)
        args.sink = &sink;
    if (c->kind == ALIBI)
        args.alibi_slope = &slope;
    CHECK_OK(heed_attention(context, &desc, &args));
}

/*
 * Row i against float64. A score is off by (dim / 2 + 4) 2^-24 of the sizes of its terms, of which
 * the products add pairs, softcap's tanh and quotient by 8 2^-24 of the cap, and what is subtracted
 * from the reference by 2^-22 of the score (log2(e), its product, scale); an exponential by 4
 * 2^-24, their sum by its roundings. That is below 1e-4 for scores of up to
 * about 100. Weights are at most 2^-6 before they are divided, and 0 below 2^-126: below 2^-119
 * afterwards.
 */
static void check_row(const sums_of *of, const call *c, const results *r, int64_t i, double *worst)
{
    static double score[KEYS];
    const double scale = 1 / sqrt(c->dim);
    double most = c->kind == SINK ? (double)sink : -(double)INFINITY, error = 0, sum, lse;
    for (int64_t j = 0; j < c->keys; j++) {
        double terms = 0;
        score[j] = -(double)INFINITY;
        if (!is_visible(c, i, j))
            continue;
        score[j] = 0;
        for (uint32_t d = 0; d < c->dim; d++) {
            const double term = (double)heed_f32_of_bf16(q[i][d]) * heed_f32_of_bf16(k[j][d]);
            score[j] += term * scale;
            terms += fabs(term) * scale;
        }
        if (c->kind == SOFTCAP)
            score[j] = 20 * tanh(score[j] / 20);
        if (c->kind == ALIBI)
            score[j] += (double)slope * (double)(j - i - c->keys + c->rows);
        if (c->kind == BIAS)
            score[j] += (double)bias[i][j];
        terms = (c->dim / 2 + 4) * 0x1p-24 * terms + 0x1p-22 * fabs(score[j]) +
                (c->kind == SOFTCAP ? 8 * 20 * 0x1p-24 : 0);
        error = terms > error ? terms : error;
        most = score[j] > most ? score[j] : most;
    }
    error += (4 + of->first + (double)c->keys / of->per) * 0x1p-24;
    if (most == -(double)INFINITY) {
        CHECK(r->lse[i] == -INFINITY, "%s: lse of a row that sees nothing", kind_name[c->kind]);
        return;
    }
    sum = c->kind == SINK ? exp((double)sink - most) : 0;
    for (int64_t j = 0; j < c->keys; j++)
        sum += exp(score[j] - most);
    lse = most + log(sum);
    *worst = fmax(*worst, fabs(r->lse[i] - lse));
    CHECK(fabs(r->lse[i] - lse) <= error + 0x1p-23 * fabs(lse),
          "%s: %s, %d rows x %d keys, dim %u, row %d: lse %.8g, not %.8g", of->backend,
          kind_name[c->kind], (int)c->rows, (int)c->keys, c->dim, (int)i, (double)r->lse[i], lse);
    for (int64_t j = 0; j < c->keys; j++) {
        const double want = exp(score[j] - lse);
        *worst = fmax(*worst, fabs(r->weights[i][j] - want));
        CHECK(fabs(r->weights[i][j] - want) <= 2 * error * want + 0x1p-119,
              "%s: %s, %d rows x %d keys, dim %u, row %d: weight of key %d %.8g, not %.8g",
              of->backend, kind_name[c->kind], (int)c->rows, (int)c->keys, c->dim, (int)i, (int)j,
              (double)r->weights[i][j], want);
    }
}

static void check_call(heed_context *context, const sums_of *of, const call *c)
{
    static const uint64_t outputs[] = {0, HEED_HAS_LSE, HEED_HAS_WEIGHTS, HEED_HAS_SCORES,
                                       HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_SCORES};
    static results all, some;
    double worst = 0;
    run(context, c, outputs[4], &all);
    for (int64_t i = 0; i < c->rows; i++)
        check_row(of, c, &all, i, &worst);
    CHECK(worst < 1e-4, "%s: off by %g", kind_name[c->kind], worst);
    for (int n = 0; n < 4; n++) {
        run(context, c, outputs[n], &some);
        CHECK(!memcmp(some.out, all.out, sizeof all.out), "%s: outputs %d change out",
              kind_name[c->kind], n);
        CHECK(n != 1 || !memcmp(some.lse, all.lse, sizeof all.lse), "%s: other outputs change lse",
              kind_name[c->kind]);
        CHECK(n != 2 || !memcmp(some.weights, all.weights, sizeof all.weights),
              "%s: other outputs change weights", kind_name[c->kind]);
        CHECK(n != 3 || !memcmp(some.scores, all.scores, sizeof all.scores),
              "%s: other outputs change scores", kind_name[c->kind]);
    }
    printf("%s: %-8s %2d rows x %4d keys, dim %2u: lse and weights off by %.1e at most\n",
           of->backend, kind_name[c->kind], (int)c->rows, (int)c->keys, c->dim, worst);
}

static void fill(uint64_t *seed)
{
    for (int i = 0; i < ROWS; i++)
        for (int d = 0; d < DIM; d++)
            q[i][d] = heed_bf16_of_f32(4 * unit_number(seed));
    for (int j = 0; j < KEYS; j++)
        for (int d = 0; d < DIM; d++) {
            k[j][d] = heed_bf16_of_f32(2 * unit_number(seed));
            v[j][d] = heed_bf16_of_f32(unit_number(seed));
        }
    for (int i = 0; i < ROWS; i++) /* row i sees up to i % 5 keys, or three of four */
        for (int j = 0; j < KEYS; j++) {
            mask[i][j] = i % 5 == 4 ? kit_below(seed, 4) != 0 : j % 300 == 7 && j / 300 < i % 5;
            bias[i][j] = mask[i][j] ? unit_number(seed) : -INFINITY;
        }
}

/* Blocks of which a row sees nothing, between others, change none of its bits: whatever the sums of
 * its blocks are, small ones before large ones too. */
static void check_beside(heed_context *context, const sums_of *of, int n, uint64_t *seed)
{
    /* of many rows and of few, in blocks from those of a kernel to whole chunks of keys */
    const call c = {.kind = MASK, .dim = of->dims[0], .rows = n % 2 ? 5 : ROWS, .keys = KEYS};
    const int64_t block = 128 * (1 + n % 9);
    static results alone, beside;
    int changed = 0;
    for (int64_t j = 0; j < KEYS; j++)
        for (int i = 0; i < ROWS; i++) /* even rows see some keys of every other block */
            mask[i][j] = j / block % 2 == 0 && kit_below(seed, 32) == 0;
    run(context, &c, HEED_HAS_LSE, &alone);
    for (int i = 1; i < ROWS; i += 2)
        memset(mask[i], 1, sizeof mask[i]);
    run(context, &c, HEED_HAS_LSE, &beside);
    for (int i = 0; i < c.rows; i += 2)
        changed += memcmp(alone.out[i], beside.out[i], sizeof alone.out[i]) != 0 ||
                   alone.lse[i] != beside.lse[i];
    CHECK(!changed, "%s: blocks that other rows see change %d of %d rows", of->backend, changed,
          (int)(c.rows + 1) / 2);
}

/* All calls, on the only backend of the context. */
static void check_sums(heed_context *context, const sums_of *of)
{
    static const int64_t keys[] = {1, 2, 5, 128, KEYS};
    uint64_t seed = 5;
    fill(&seed);
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
            for (int few = 0; few < 2; few++)
                check_call(context, of,
                           &(call){.kind = kind,
                                   .dim = of->dims[(n + (size_t)few) % 2],
                                   .rows = few ? 5 : ROWS,
                                   .keys = keys[n]});
    for (int n = 0; n < 90; n++)
        check_beside(context, of, n, &seed);
}

#endif
