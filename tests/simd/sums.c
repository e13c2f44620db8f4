/* lse and weights of bf16 problems are made of weights that are good for an f32, though out is made
 * of some that are rounded to bf16; and asking for them changes no bit of out.
 *
 * Against float64, with a scale that is a power of two: scores are then sums of exact products. In
 * calls of many and of few query rows, whose keys are cut into chunks. */
#include <heed/formats.h>

#include <math.h>

#include "../unit/unit.h"

enum { ROWS = 40, KEYS = 2100, DIM = 64 };
enum { PLAIN, CAUSAL, MASK, SINK, KINDS };

static const char *const kind_name[] = {"plain", "causal", "mask", "sink"};
static uint16_t q[ROWS][DIM], k[KEYS][DIM], v[KEYS][DIM];
static uint8_t mask[ROWS][KEYS];
static const float sink = 1.5f;

typedef struct results {
    float out[ROWS][DIM], lse[ROWS], weights[ROWS][KEYS];
} results;

typedef struct call {
    int kind;
    int64_t rows, keys;
} call;

static void run(heed_context *context, const call *c, uint64_t outputs, results *to)
{
    static const uint64_t features[KINDS] = {
        [CAUSAL] = HEED_HAS_CAUSAL, [MASK] = HEED_HAS_MASK, [SINK] = HEED_HAS_SINK};
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           .features = features[c->kind] | outputs | HEED_HAS_REPRODUCIBLE_CHUNKS,
                           .position = c->kind == CAUSAL ? HEED_POS_BOTTOM_RIGHT : HEED_POS_UNSET,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .qk_dim = DIM,
                           .v_dim = DIM,
                           .q_type = HEED_BF16,
                           .k_type = HEED_BF16,
                           .v_type = HEED_BF16,
                           .out_type = HEED_F32};
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
    if (c->kind == MASK)
        args.mask = (heed_const_view){mask, {0, 0, KEYS, 1}};
    if (c->kind == SINK)
        args.sink = &sink;
    CHECK(heed_attention(context, &desc, &args) == HEED_OK, "%s", heed_last_error());
}

/* Row i. A score is off by (DIM / 2 + 4) 2^-24 of the sizes of its terms, whose products are added
 * in pairs, and what is subtracted from the reference by 2^-22 of the score; an exponential by
 * 4 2^-24, and their sum, of blocks of 128 keys one after the other, by 128 + n / 128 roundings. */
static void check_row(const char *backend, const call *c, const results *r, int64_t i)
{
    static double score[KEYS];
    double most = c->kind == SINK ? (double)sink : -(double)INFINITY, error = 0, sum, lse;
    for (int64_t j = 0; j < c->keys; j++) {
        double terms = 0;
        score[j] = -(double)INFINITY;
        if ((c->kind == MASK && !mask[i][j]) || (c->kind == CAUSAL && j > i + c->keys - c->rows))
            continue;
        score[j] = 0;
        for (int d = 0; d < DIM; d++) {
            const double term = (double)heed_f32_of_bf16(q[i][d]) * heed_f32_of_bf16(k[j][d]) / 8;
            score[j] += term;
            terms += fabs(term);
        }
        terms = (DIM / 2 + 4) * 0x1p-24 * terms + 0x1p-22 * fabs(score[j]);
        error = terms > error ? terms : error;
        most = score[j] > most ? score[j] : most;
    }
    error += (4 + 128 + (double)c->keys / 128) * 0x1p-24;
    if (most == -(double)INFINITY) {
        CHECK(r->lse[i] == -INFINITY, "%s: lse of a row that sees nothing", kind_name[c->kind]);
        return;
    }
    sum = c->kind == SINK ? exp((double)sink - most) : 0;
    for (int64_t j = 0; j < c->keys; j++)
        sum += exp(score[j] - most);
    lse = most + log(sum);
    CHECK(fabs(r->lse[i] - lse) <= error + 0x1p-23 * fabs(lse),
          "%s, %s, %d rows x %d keys, row %d: lse %.8g, not %.8g", backend, kind_name[c->kind],
          (int)c->rows, (int)c->keys, (int)i, (double)r->lse[i], lse);
    for (int64_t j = 0; j < c->keys; j++) {
        const double want = exp(score[j] - lse);
        CHECK(fabs(r->weights[i][j] - want) <= 2 * error * want + 0x1p-119,
              "%s, %s, %d rows x %d keys, row %d: weight of key %d %.8g, not %.8g", backend,
              kind_name[c->kind], (int)c->rows, (int)c->keys, (int)i, (int)j,
              (double)r->weights[i][j], want);
    }
}

static void check_call(heed_context *context, const char *backend, const call *c)
{
    static const uint64_t outputs[] = {0, HEED_HAS_LSE, HEED_HAS_WEIGHTS,
                                       HEED_HAS_LSE | HEED_HAS_WEIGHTS};
    static results all, some;
    run(context, c, outputs[3], &all);
    for (int64_t i = 0; i < c->rows; i++)
        check_row(backend, c, &all, i);
    for (int n = 0; n < 3; n++) {
        run(context, c, outputs[n], &some);
        CHECK(!memcmp(some.out, all.out, sizeof all.out), "%s, %s: outputs %d change out", backend,
              kind_name[c->kind], n);
        CHECK(n != 1 || !memcmp(some.lse, all.lse, sizeof all.lse), "%s, %s: weights change lse",
              backend, kind_name[c->kind]);
        CHECK(n != 2 || !memcmp(some.weights, all.weights, sizeof all.weights),
              "%s, %s: lse changes weights", backend, kind_name[c->kind]);
    }
}

static void check_backend(const char *backend)
{
    static const int64_t keys[] = {1, 5, 128, 300, KEYS};
    heed_context *context = unit_context(1, backend);
    for (int kind = 0; kind < KINDS && unit_runs_here(context); kind++)
        for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
            for (int few = 0; few < 2; few++)
                check_call(context, backend, &(call){kind, few ? 5 : ROWS, keys[n]});
    heed_context_release(context);
}

int main(void)
{
    uint64_t seed = 5;
    for (int i = 0; i < ROWS; i++)
        for (int d = 0; d < DIM; d++)
            q[i][d] = heed_bf16_of_f32(4 * unit_number(&seed));
    for (int j = 0; j < KEYS; j++)
        for (int d = 0; d < DIM; d++) {
            k[j][d] = heed_bf16_of_f32(2 * unit_number(&seed));
            v[j][d] = heed_bf16_of_f32(unit_number(&seed));
        }
    for (int i = 0; i < ROWS; i++) /* row i sees up to i % 5 keys, or three of four */
        for (int j = 0; j < KEYS; j++)
            mask[i][j] = i % 5 == 4 ? unit_below(&seed, 4) != 0 : j % 300 == 7 && j / 300 < i % 5;
    check_backend("avx2");
    check_backend("avx512");
    if (!n_checks) {
        printf("neither avx2 nor avx512 runs here\n");
        return 77;
    }
    return checks_end();
}
