/* What must hold without an oracle: permutations, constants, first rows, empty rows, sums of
 * weights. Bounds are in u = 2^-24 and follow tolerance.c. */
#include "cases.h"
#include "decode.h"
#include "encode.h"
#include "random.h"
#include "run.h"
#include "tolerance.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define U 0x1p-24

static const kit_way plainly = {.how = KIT_BY_WORKSPACE, .n_parts = 1, .garbage = 0xff};

static double read_element(const kit_problem *p, int which, int64_t b, int64_t h, int64_t i,
                           int64_t d)
{
    const kit_tensor *t = &p->tensor[which];
    return kit_decode(t->type, p->buffer[t->buffer].data, kit_at(t, b, h, i, d) / t->bytes);
}

/* A random order of n things. */
static void shuffle(int64_t *order, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n; i-- > 1;) {
        int64_t j = kit_below(&seed, i + 1), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

/* Row i of every head of a tensor becomes the old row order[i]. */
static int reorder(kit_problem *p, int which, const int64_t *order)
{
    const kit_tensor *t = &p->tensor[which];
    unsigned char *data = p->buffer[t->buffer].data, *old = malloc(p->buffer[t->buffer].bytes + 1);
    if (!old)
        return -1;
    memcpy(old, data, p->buffer[t->buffer].bytes);
    for (int64_t b = 0; b < t->dim[0]; b++)
        for (int64_t h = 0; h < t->dim[1]; h++)
            for (int64_t i = 0; i < t->dim[2]; i++)
                for (int64_t d = 0; d < t->dim[3]; d++)
                    memcpy(data + kit_at(t, b, h, i, d), old + kit_at(t, b, h, order[i], d),
                           t->bytes);
    free(old);
    return 0;
}

/* Runs a problem that is built already. Returns 0, or -1 with the outcome set. */
static int run_built(const kit_env *env, kit_problem *p, kit_outcome *outcome)
{
    heed_error sentence = {""};
    const char *changed;
    heed_status status = kit_run(env->context, p, &plainly, &sentence, &changed);
    return kit_status(outcome, status, sentence.text, "the run");
}

/* Permuting keys and values together changes nothing but rounding: the result has to stay within
 * the tolerance of the problem in its old order. */
static void permute_keys(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    kit_problem p = {0}, permuted = {0};
    int64_t *order = calloc((size_t)c->spec.kv_len, sizeof *order);
    if (!order || kit_build(&p, &c->spec, GUARD_HIGH) != 0 ||
        kit_build(&permuted, &c->spec, GUARD_HIGH) != 0) {
        kit_fail(outcome, "out of memory");
    } else {
        shuffle(order, c->spec.kv_len, c->spec.seed);
        if (reorder(&permuted, KIT_K, order) != 0 || reorder(&permuted, KIT_V, order) != 0)
            kit_fail(outcome, "out of memory");
        else if (run_built(env, &permuted, outcome) == 0) {
            for (int t = KIT_OUT; t < KIT_TENSORS; t++)
                if ((t == KIT_OUT || t == KIT_LSE) && p.tensor[t].bytes)
                    memcpy(p.buffer[t].data, permuted.buffer[t].data, p.buffer[t].bytes);
            kit_check(&p, outcome);
        }
    }
    free(order);
    kit_free(&p);
    kit_free(&permuted);
}

/* Permuting the query rows permutes the outputs, bit for bit: where a row stands is not part of its
 * problem when nothing goes by position. */
static void permute_rows(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    kit_problem p = {0}, permuted = {0};
    kit_result x = {0}, y = {0};
    int64_t *order = calloc((size_t)c->spec.q_len, sizeof *order);
    if (!order ||
        kit_run_once(env->context, &p, &c->spec, GUARD_HIGH, NULL, &plainly, &x, outcome) != 0 ||
        kit_build_again(&permuted, &c->spec, GUARD_HIGH, &p) != 0) {
        if (outcome->verdict == KIT_PASSED)
            kit_fail(outcome, "out of memory");
    } else {
        shuffle(order, c->spec.q_len, c->spec.seed);
        if (reorder(&permuted, KIT_Q, order) == 0 && run_built(env, &permuted, outcome) == 0) {
            /* Put the rows back where they were, and compare. */
            int64_t *back = calloc((size_t)c->spec.q_len, sizeof *back);
            for (int64_t i = 0; back && i < c->spec.q_len; i++)
                back[order[i]] = i;
            if (!back || reorder(&permuted, KIT_OUT, back) != 0 ||
                reorder(&permuted, KIT_LSE, back) != 0 || kit_take(&permuted, &y) != 0)
                kit_fail(outcome, "out of memory");
            else
                kit_all_differ(outcome, "permuted query rows", &p, &x, &permuted, &y);
            free(back);
        }
    }
    free(order);
    kit_drop(&x);
    kit_drop(&y);
    kit_free(&p);
    kit_free(&permuted);
}

static int64_t head_of(const kit_problem *p, int64_t h)
{
    return h / (p->spec.q_heads / p->spec.kv_heads);
}

/* A row of the output is the first one of v, up to the rounding of n weights that sum to 1 and the
 * output's. */
static void expect_first_v(const kit_problem *p, const char *what, int64_t b, int64_t h, int64_t i,
                           double n, kit_outcome *outcome)
{
    kit_tolerance how = kit_tolerance_of(kit_accuracy(&p->spec), p->spec.out_type);
    double random = 12 * sqrt(n), bound = ((n < random ? 2 * n : random) + 6) * U + how.weight;
    for (int64_t d = 0; d < p->spec.v_dim; d++) {
        double got = read_element(p, KIT_OUT, b, h, i, d);
        double want = read_element(p, KIT_V, b, head_of(p, h), 0, d);
        if (!kit_close(&how, got, want, bound * fabs(want)))
            kit_fail(outcome, "%s: out[%lld, %lld, %lld, %lld] is %.9g, should be %.9g +- %.2g",
                     what, (long long)b, (long long)h, (long long)i, (long long)d, got, want,
                     bound * fabs(want));
    }
}

/* Runs the case's problem and calls `each` for every row. */
static void for_all(const kit_env *env, const kit_case *c, kit_outcome *outcome,
                    void (*each)(const kit_problem *p, int64_t b, int64_t h, int64_t i,
                                 kit_outcome *outcome))
{
    kit_problem p = {0};
    kit_result x = {0};
    if (kit_run_once(env->context, &p, &c->spec, GUARD_HIGH, NULL, &plainly, &x, outcome) == 0)
        for (uint32_t b = 0; b < c->spec.batch; b++)
            for (uint32_t h = 0; h < c->spec.q_heads; h++)
                for (int64_t i = 0; i < p.q_lens[b]; i++)
                    each(&p, b, h, i, outcome);
    kit_drop(&x);
    kit_free(&p);
}

static void each_constant(const kit_problem *p, int64_t b, int64_t h, int64_t i,
                          kit_outcome *outcome)
{
    expect_first_v(p, "constant v", b, h, i, (double)p->kv_lens[b], outcome);
}

static void constant_v(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    for_all(env, c, outcome, each_constant);
}

/* KIT_BIAS_LEAST: -FLT_MAX is a number. A row that has it for all keys weighs them alike, although
 * log2(e) times it is no f32, and its lse is one that a row with any other key outweighs. */
static void each_least(const kit_problem *p, int64_t b, int64_t h, int64_t i, kit_outcome *outcome)
{
    const double lse = read_element(p, KIT_LSE, b, h, i, 0);
    each_constant(p, b, h, i, outcome);
    if (i % 3 == 1 && !(lse < (p->spec.bias_type == HEED_F16 ? -65000 : -2e38) && isfinite(lse)))
        kit_fail(outcome, "row %lld has the least biases, and lse is %g", (long long)i, lse);
}

static void least_bias(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    for_all(env, c, outcome, each_least);
}

/* KIT_BIAS_LEAST with slopes: a score in the range of f32 in log2 units is lse as it is, but for q k
 * and ln(keys), together less than 40, and rounding. One below that may count as the least there,
 * and one below -FLT_MAX is -inf. */
static void each_sloped(const kit_problem *p, int64_t b, int64_t h, int64_t i, kit_outcome *outcome)
{
    const double least = p->spec.bias_type == HEED_F32   ? -(double)FLT_MAX
                         : p->spec.bias_type == HEED_F16 ? -65504
                                                         : -0x1.FEp127;
    const double lse = read_element(p, KIT_LSE, b, h, i, 0), slope = (double)p->bias_slope[h];
    const double want = slope * least, held = want < -2.35859e38 ? -2.35859e38 : want;
    const double off = 1e-6 * fabs(held) + 40;
    const int good =
        want < -(double)FLT_MAX ? isinf(lse) && lse < 0 : lse >= want - off && lse <= held + off;
    if (i % 3 == 1 && slope > 0 && !good)
        kit_fail(outcome, "row %lld of head %lld has the least biases with slope %g, and lse is %g",
                 (long long)i, (long long)h, slope, lse);
}

static void least_sloped(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    for_all(env, c, outcome, each_sloped);
}

/* Causal from the top left: row 0 sees key 0 alone. */
static void each_first(const kit_problem *p, int64_t b, int64_t h, int64_t i, kit_outcome *outcome)
{
    if (i == 0)
        expect_first_v(p, "the first row is v[0]", b, h, i, 1, outcome);
}

static void first_row(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    for_all(env, c, outcome, each_first);
}

/* KIT_MASK_EMPTY_ROWS: rows 1, 4, 7, ... see nothing, so that out and weights are exactly 0 and lse
 * is the sink's, or -inf without one. */
static void each_empty(const kit_problem *p, int64_t b, int64_t h, int64_t i, kit_outcome *outcome)
{
    if (i % 3 != 1)
        return;
    for (int64_t d = 0; d < p->spec.v_dim; d++)
        if (read_element(p, KIT_OUT, b, h, i, d) != 0)
            kit_fail(outcome, "row %lld sees nothing, and out is %g", (long long)i,
                     read_element(p, KIT_OUT, b, h, i, d));
    for (int64_t j = 0; j < p->spec.kv_len; j++)
        if (read_element(p, KIT_WEIGHTS, b, h, i, j) != 0)
            kit_fail(outcome, "row %lld sees nothing, and has a weight", (long long)i);
    double want = p->spec.features & HEED_HAS_SINK ? (double)p->sink[h] : -(double)INFINITY;
    double got = read_element(p, KIT_LSE, b, h, i, 0);
    /* Through log2 units the sink comes back with a rounding or two. */
    if (got != want && !(fabs(got - want) <= 4 * U * fabs(want)))
        kit_fail(outcome, "row %lld sees nothing, and lse is %g, not %g", (long long)i, got, want);
}

static void empty_rows(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    for_all(env, c, outcome, each_empty);
}

/* Weights are in [0, 1] and sum to 1: n of them, each off by its division and the common sum, and
 * by the products' errors where a second pass computes the scores anew (RECOMPUTED in tolerance.c).
 */
static void each_weights(const kit_problem *p, int64_t b, int64_t h, int64_t i,
                         kit_outcome *outcome)
{
    double sum = 0, n = (double)p->kv_lens[b], random = 6 * sqrt(n);
    kit_tolerance how = kit_tolerance_of(kit_accuracy(&p->spec), HEED_F32);
    double bound = ((n < random ? n : random) + 4) * U + how.weight + 16 * how.product;
    for (int64_t j = 0; j < p->spec.kv_len; j++) {
        double w = read_element(p, KIT_WEIGHTS, b, h, i, j);
        if (!(w >= 0 && w <= 1 + bound))
            kit_fail(outcome, "weights[%lld, %lld, %lld, %lld] is %g", (long long)b, (long long)h,
                     (long long)i, (long long)j, w);
        sum += w;
    }
    if (!(fabs(sum - 1) <= bound))
        kit_fail(outcome, "the weights of row [%lld, %lld, %lld] sum to %.9g", (long long)b,
                 (long long)h, (long long)i, sum);
}

static void weights_sum(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    for_all(env, c, outcome, each_weights);
}

void kit_property_cases(kit_list *list)
{
    /* clang-format off */
    static const struct {
        const char *name;
        void (*run)(const kit_env *, const kit_case *, kit_outcome *);
        kit_spec spec;
    } table[] = {
        {"permute_keys", permute_keys, {.features = HEED_HAS_LSE}},
        {"permute_query_rows", permute_rows, {.features = HEED_HAS_LSE}},
        {"constant_v", constant_v, {.values = KIT_CONSTANT_V}},
        {"least_bias",
         least_bias,
         {.features = HEED_HAS_BIAS | HEED_HAS_LSE,
          .bias_kind = KIT_BIAS_LEAST,
          .values = KIT_CONSTANT_V}},
        {"least_bias_alibi",
         least_bias,
         {.features = HEED_HAS_BIAS | HEED_HAS_ALIBI | HEED_HAS_LSE,
          .bias_kind = KIT_BIAS_LEAST,
          .values = KIT_CONSTANT_V,
          .position = HEED_POS_TOP_LEFT}},
        {"least_bias_sloped",
         least_sloped,
         {.features = HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE | HEED_HAS_LSE,
          .bias_kind = KIT_BIAS_LEAST,
          .values = KIT_CONSTANT_V,
          .q_heads = 8,
          .kv_heads = 8}},
        {"least_bias_weights",
         weights_sum,
         {.features = HEED_HAS_BIAS | HEED_HAS_WEIGHTS, .bias_kind = KIT_BIAS_LEAST}},
        {"first_causal_row",
         first_row,
         {.features = HEED_HAS_CAUSAL, .position = HEED_POS_TOP_LEFT}},
        {"empty_rows",
         empty_rows,
         {.features = HEED_HAS_MASK | HEED_HAS_WEIGHTS | HEED_HAS_LSE,
          .mask_kind = KIT_MASK_EMPTY_ROWS}},
        {"empty_rows_sink",
         empty_rows,
         {.features = HEED_HAS_MASK | HEED_HAS_WEIGHTS | HEED_HAS_LSE | HEED_HAS_SINK,
          .mask_kind = KIT_MASK_EMPTY_ROWS}},
        {"weights_sum_to_one", weights_sum, {.features = HEED_HAS_WEIGHTS}},
    };
    /* clang-format on */
    static const int64_t shape[][3] = {{23, 37, 24}, {70, 150, 64}, {3, 1100, 17}};
    for (size_t n = 0; n < COUNT(table); n++)
        for (size_t at = 0; at < COUNT(shape); at++)
            for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
                kit_case c = {.quick = at == 0, .run = table[n].run, .spec = table[n].spec};
                c.spec.q_type = c.spec.k_type = c.spec.v_type = c.spec.out_type = type;
                c.spec.q_len = shape[at][0];
                c.spec.kv_len = shape[at][1];
                c.spec.qk_dim = c.spec.v_dim = (uint32_t)shape[at][2];
                kit_complete(&c.spec);
                snprintf(c.name, sizeof c.name, "property/%s_%lldx%lld/%s", table[n].name,
                         (long long)c.spec.q_len, (long long)c.spec.kv_len, kit_type_name(type));
                kit_add(list, &c);
            }
}
