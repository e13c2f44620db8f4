/* The kit's own parts: the oracle on problems that can be done by hand, decoding against encoding,
 * the guard pages, what the tolerances let through, poison, seeds, coverage. */
#define _DEFAULT_SOURCE
#include "cases.h"
#include "encode.h"
#include "guard.h"
#include "run.h"
#include "tolerance.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int n_failed;

static void expect(int ok, const char *what)
{
    if (!ok) {
        printf("FAILED: %s\n", what);
        n_failed++;
    }
}

static int near(double got, double want)
{
    return fabs(got - want) <= 1e-14 * (1 + fabs(want)) || (isinf(want) && got == want);
}

/* One head of one dim, with scores q * k. */
static reference_problem one_head(const float *q, const float *k, const float *v, int64_t q_len,
                                  int64_t kv_len)
{
    return (reference_problem){.batch = 1,
                               .q_heads = 1,
                               .kv_heads = 1,
                               .q_len = q_len,
                               .kv_len = kv_len,
                               .qk_dim = 1,
                               .v_dim = 1,
                               .scale = 1,
                               .window_left = -1,
                               .window_right = -1,
                               .q = {.data = q, .type = REFERENCE_F32, .stride = {0, 0, 1, 1}},
                               .k = {.data = k, .type = REFERENCE_F32, .stride = {0, 0, 1, 1}},
                               .v = {.data = v, .type = REFERENCE_F32, .stride = {0, 0, 1, 1}}};
}

/* Two queries, three keys; the third key is past kv_lens. */
typedef struct hand {
    float q[2], k[3], v[3];
    int32_t kv_len;
    double w, w2; /* exp of row 0's and of row 1's score of key 1: 3 and 9, nearly */
    double out[2], lse[2], weights[6], biased[6];
    reference_problem p;
} hand;

static int oracle_of(hand *h)
{
    const reference_result to = {
        .out = h->out, .lse = h->lse, .weights = h->weights, .biased = h->biased};
    return reference_tensors(&h->p, &to);
}

static void make_hand(hand *h)
{
    *h = (hand){.q = {1, 2}, .k = {0, logf(3), 5}, .v = {10, 20, 40}, .kv_len = 2};
    h->w = exp((double)h->k[1]);
    h->w2 = exp(2 * (double)h->k[1]);
    h->p = one_head(h->q, h->k, h->v, 2, 3);
    h->p.kv_lens = &h->kv_len;
}

/* Softmax, kv_lens, a sink, and who sees what by position. */
static void rows_by_hand(hand *h)
{
    const float sink = 0;
    const int64_t offset = -1; /* row 0 sees nothing */
    const double w = h->w, w2 = h->w2, *out = h->out, *lse = h->lse, *weights = h->weights;
    expect(oracle_of(h) == 0, "the oracle runs");
    expect(near(weights[0], 1 / (1 + w)) && near(weights[1], w / (1 + w)) && weights[2] == 0,
           "weights");
    expect(near(out[0], (10 + 20 * w) / (1 + w)) && near(lse[0], log(1 + w)), "out and lse");
    expect(near(out[1], (10 + 20 * w2) / (1 + w2)) && near(h->biased[4], 2 * (double)h->k[1]),
           "row 1");
    expect(h->biased[2] == -(double)INFINITY, "no score past kv_lens");

    h->p.sink = &sink; /* one more exp(0) below, none above */
    oracle_of(h);
    expect(near(out[0], (10 + 20 * w) / (2 + w)) && near(lse[0], log(2 + w)), "sink");
    h->p.sink = NULL;

    h->p.causal = 1; /* row 0 sees key 0 alone */
    oracle_of(h);
    expect(out[0] == 10 && lse[0] == 0 && near(out[1], (10 + 20 * w2) / (1 + w2)), "causal");
    h->p.offset = &offset;
    oracle_of(h);
    expect(out[0] == 0 && lse[0] == -(double)INFINITY && weights[0] == 0 && out[1] == 10,
           "empty row");
    h->p.causal = 0;
    h->p.window_left = 0; /* row i sees key i - 1 */
    h->p.window_right = 0;
    oracle_of(h);
    expect(out[0] == 0 && out[1] == 10 && near(lse[1], 0), "window");
    h->p.window_left = h->p.window_right = -1;
    h->p.offset = NULL;
}

/* What is done to a score after the product. */
static void scores_by_hand(hand *h)
{
    const float slope = 0.25F, bias[] = {0, 1, 0, -INFINITY, 2, 0}, bias_slope = 0;
    const double score = (double)h->k[1], *biased = h->biased; /* score: of row 0 and key 1 */
    h->p.softcap = 0.5;
    oracle_of(h);
    expect(near(biased[1], 0.5 * tanh(2 * score)), "softcap");
    h->p.softcap = 0;

    h->p.alibi_slope = &slope;
    oracle_of(h);
    expect(near(biased[3], -0.25) && near(biased[1], score + 0.25), "alibi");
    h->p.alibi_slope = NULL;
    h->p.bias = (reference_array){.data = bias, .type = REFERENCE_F32, .stride = {0, 0, 3, 1}};
    oracle_of(h);
    expect(near(biased[1], score + 1) && h->weights[3] == 0 && h->out[1] == 20, "bias");
    h->p.bias_slope = &bias_slope;
    oracle_of(h);
    expect(near(biased[1], score) && h->weights[3] == 0 && h->out[1] == 20,
           "a slope of 0 keeps -inf");
}

static void oracle_by_hand(void)
{
    hand h;
    make_hand(&h);
    rows_by_hand(&h);
    scores_by_hand(&h);
}

/* What scores that overflow, and NaN, have to give. */
static void oracle_extremes(void)
{
    float q[] = {1e30F}, k[] = {-1e30F, 1}, v[] = {NAN, 7};
    double out[1], lse[1], weights[2];
    reference_problem p = one_head(q, k, v, 1, 2);
    reference_result to = {.out = out, .lse = lse, .weights = weights};
    reference_tensors(&p, &to);
    expect(weights[0] == 0 && weights[1] == 1 && isnan(out[0]), "a visible NaN in v passes");
    v[0] = 3;
    reference_tensors(&p, &to);
    expect(out[0] == 7 && near(lse[0], (double)1e30F), "a score of -inf has weight 0");
    k[1] = -1e30F;
    v[0] = NAN;
    reference_tensors(&p, &to);
    expect(out[0] == 0 && lse[0] == -(double)INFINITY, "a row of -inf alone is empty");
    k[1] = 1e30F;
    reference_tensors(&p, &to);
    expect(isnan(out[0]) && isnan(lse[0]), "a score of +inf gives NaN");
    k[1] = NAN;
    reference_tensors(&p, &to);
    expect(isnan(out[0]) && isnan(lse[0]) && isnan(weights[1]), "a NaN in k");
}

static void decoding(void)
{
    for (int type = HEED_F16; type <= HEED_BF16; type++) {
        int bad = 0;
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t in = (uint16_t)bits, back;
            unsigned char bytes[2];
            double x = reference_decode(type == HEED_F16 ? REFERENCE_F16 : REFERENCE_BF16, &in, 0);
            kit_encode((uint32_t)type, bytes, 0, x);
            memcpy(&back, bytes, 2);
            bad += !(back == in ||
                     (isnan(x) && (back & 0x7fff) > (type == HEED_F16 ? 0x7c00 : 0x7f80)));
        }
        expect(bad == 0, type == HEED_F16 ? "f16 there and back" : "bf16 there and back");
    }
    const uint16_t f16[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x0400, 0x7c00};
    const double want[] = {1, -2, 65504, 0x1p-24, 0x1p-14, (double)INFINITY};
    for (int n = 0; n < 6; n++)
        expect(reference_decode(REFERENCE_F16, f16, n) == want[n], "f16 by value");
    const uint16_t bf16[] = {0x3f80, 0xc000, 0x7f7f, 0x0001};
    const double values[] = {1, -2, 0x1.FEp127, 0x1p-133};
    for (int n = 0; n < 4; n++)
        expect(reference_decode(REFERENCE_BF16, bf16, n) == values[n], "bf16 by value");
    expect(kit_f16_bits(65519.9) == 0x7bff && kit_f16_bits(65520) == 0x7c00, "f16 overflow");
    expect(kit_f16_bits(1 + 0x1p-11) == 0x3c00 && kit_f16_bits(1 + 3 * 0x1p-11) == 0x3c02,
           "to even");
}

/* Whether touching this byte ends a process. */
static int faults(volatile unsigned char *byte, int write_it)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would report it otherwise */
        if (write_it)
            *byte = 1;
        else
            (void)*byte;
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && !(WIFEXITED(status));
}

static void guards(void)
{
    guard_buffer b;
    unsigned char used[4] = {0};
    expect(guard_map(&b, 1001, GUARD_HIGH, 0, 0xff) == 0, "a buffer");
    expect(!faults(b.data + 1000, 1) && faults(b.data + 1001, 0), "high: one byte past it faults");
    guard_read_only(&b);
    expect(faults(b.data, 1) && !faults(b.data, 0), "read-only");
    guard_open(&b);
    expect(guard_slack_is(&b, 0xff), "slack untouched");
    b.data[-1] = 0;
    expect(!guard_slack_is(&b, 0xff), "slack touched");
    guard_unmap(&b);
    expect(guard_map(&b, 1000, GUARD_LOW, 0, 0xff) == 0, "a low buffer");
    expect(!faults(b.data, 1) && faults(b.data - 1, 0), "low: one byte before it faults");
    guard_unmap(&b);
    expect(guard_map(&b, 3 * 4096 + 8, GUARD_HIGH, 1, 0xff) == 0, "four pages, at an odd address");
    expect((uintptr_t)b.data % 2 == 1 && guard_pages(&b) == 4, "odd");
    guard_mark(&b, used, 0, 8);
    guard_seal(&b, used);
    expect(!faults(b.data, 0) && faults(b.data + 2 * 4096 + 8, 0), "sealed pages fault");
    guard_unmap(&b);
}

static void tolerances(void)
{
    kit_tolerance f32 = kit_tolerance_of(HEED_ACCURACY_EXACT, HEED_F32);
    kit_tolerance f16 = kit_tolerance_of(HEED_ACCURACY_EXACT, HEED_F16);
    expect(kit_close(&f32, 1, 1 + 0x1p-25, 0) && !kit_close(&f32, 1, 1 + 0x1p-22, 0),
           "f32 rounding");
    expect(kit_close(&f16, 1, 1 + 0x1p-11, 0) && !kit_close(&f16, 1, 1 + 0x1p-10, 0),
           "f16 rounding");
    expect(!kit_close(&f32, (double)NAN, 1, 1e30) && !kit_close(&f32, 1, (double)NAN, 1e30), "NaN");
    expect(kit_close(&f16, (double)INFINITY, 65520, 0) &&
               !kit_close(&f16, (double)INFINITY, 65000, 0),
           "infinity where rounding reaches it");
    expect(!kit_close(&f16, 65504, 70000, 0), "no finite number for one that overflows");
    expect(!kit_close(&f32, -(double)INFINITY, (double)INFINITY, 1), "the sign of infinity");
    expect(!kit_close(&f32, (double)NAN, -(double)INFINITY, 1) &&
               kit_close_out(&f32, (double)NAN, -(double)INFINITY, 1),
           "NaN for infinity in out alone");
}

static void widest(void *user, const reference_problem *p, const reference_row *r)
{
    const kit_tolerance how = kit_tolerance_of(HEED_ACCURACY_BF16, HEED_BF16);
    kit_row_tolerance to;
    double *most = user;
    if (kit_row_tolerance_make(&to, p->kv_len, p->v_dim) != 0)
        return;
    kit_tolerate(&how, p, r, &to);
    most[0] = to.lse;
    most[1] = to.weight[0] / r->weight[0];
    most[2] = to.out[0];
    free(to.raw);
}

/* Rounding weights to bf16 is a matter of out alone: with scores of 0, which are exact, lse and weights
 * are off by the 1e-5 that heed/attention.h allows. */
static void tolerances_of_sums(void)
{
    const float q = 0, k[4] = {1, 2, 3, 4}, v[4] = {1, 1, 1, 1};
    double most[3] = {1, 1, 0};
    const reference_problem p = one_head(&q, k, v, 1, 4);
    expect(reference_attention(&p, widest, most) == 0, "the oracle runs");
    expect(most[0] < 2e-5 && most[1] < 2e-5,
           "lse and weights come of weights that are not rounded");
    expect(most[2] > 0x1p-8, "out comes of rounded ones");
}

/* Writes the oracle's out, one row of it as if it had not seen one key. */
static void write_row(void *user, const reference_problem *p, const reference_row *r)
{
    kit_problem *to = user;
    const int64_t key = r->h == 1 && r->i == 30 ? 100 : -1;
    for (int64_t d = 0; d < p->v_dim; d++) {
        const double w = key < 0 ? 0 : r->weight[key];
        const double out = (r->out[d] - w * (key < 0 ? 0 : r->v[key * p->v_dim + d])) / (1 - w);
        kit_encode(HEED_BF16, to->buffer[KIT_OUT].data,
                   kit_at(&to->tensor[KIT_OUT], r->b, r->h, r->i, d) / 2, out);
    }
}

/* One key of 200 that one row of 128 does not see leaves no element's bound where products are of bf16,
 * and hardly changes the norm of the whole: it is noticed all the same. */
static void key_of_one_row(void)
{
    kit_spec spec = {.q_type = HEED_BF16,
                     .k_type = HEED_BF16,
                     .v_type = HEED_BF16,
                     .out_type = HEED_BF16,
                     .q_heads = 2,
                     .kv_heads = 2,
                     .qk_dim = 64,
                     .v_dim = 64,
                     .batch = 1,
                     .q_len = 64,
                     .kv_len = 200,
                     .seed = 5};
    kit_problem p = {0};
    kit_outcome elements = {0}, whole = {0};
    kit_complete(&spec);
    expect(kit_build(&p, &spec, GUARD_HIGH) == 0, "build");
    expect(reference_attention(&p.reference, write_row, &p) == 0, "the oracle runs");
    kit_check_elements(&p, &elements);
    kit_check(&p, &whole);
    expect(elements.verdict != KIT_FAILED && whole.verdict == KIT_FAILED &&
               strstr(whole.text, "out[0, 1, 30]"),
           "a key that one row does not see");
    kit_free(&p);
}

/* The same seed gives the same bytes, another seed others, and what no row may see is poison. */
static void problems(void)
{
    kit_spec spec = {.q_type = HEED_F32,
                     .k_type = HEED_F32,
                     .v_type = HEED_F32,
                     .out_type = HEED_F32,
                     .lens = KIT_LENS_KV,
                     .seed = 5};
    kit_problem a = {0}, b = {0};
    kit_complete(&spec);
    expect(kit_build(&a, &spec, GUARD_HIGH) == 0 && kit_build(&b, &spec, GUARD_LOW) == 0, "build");
    expect(memcmp(a.buffer[KIT_K].data, b.buffer[KIT_K].data, a.buffer[KIT_K].bytes) == 0,
           "same seed");
    kit_free(&b);
    spec.seed = 6;
    expect(kit_build(&b, &spec, GUARD_LOW) == 0, "build");
    expect(memcmp(a.buffer[KIT_K].data, b.buffer[KIT_K].data, a.buffer[KIT_K].bytes) != 0,
           "other seed");
    const float *k = (const float *)(const void *)a.buffer[KIT_K].data;
    size_t hidden = (size_t)kit_at(&a.tensor[KIT_K], 1, 0, a.kv_lens[1], 0) / 4;
    expect(isfinite(k[hidden - 1]) && isnan(k[hidden]), "poison past kv_lens");
    int64_t where;
    expect(kit_untouched(&a, KIT_OUT, &where) == 0, "fresh outputs are untouched");
    kit_free(&b);
    /* Contents are taken over where they are the same, and from the first problem. */
    spec.seed = 5;
    spec.features = HEED_HAS_LSE;
    a.buffer[KIT_K].data[0] ^= 1;
    expect(kit_build_again(&b, &spec, GUARD_LOW, &a) == 0 && b.tensor[KIT_LSE].bytes, "build");
    expect(memcmp(a.buffer[KIT_K].data, b.buffer[KIT_K].data, a.buffer[KIT_K].bytes) == 0, "taken");
    kit_free(&b);
    spec.values = KIT_MEAN_ONE;
    expect(kit_build_again(&b, &spec, GUARD_LOW, &a) == 0, "build");
    expect(memcmp(a.buffer[KIT_V].data, b.buffer[KIT_V].data, a.buffer[KIT_V].bytes) != 0,
           "not taken");
    kit_free(&a);
    kit_free(&b);
}

static void names(void)
{
    kit_list list = {0};
    size_t same = 0;
    kit_cases(&list);
    for (size_t n = 0; n < list.n; n++)
        for (size_t m = n + 1; m < list.n; m++)
            same += strcmp(list.item[n].name, list.item[m].name) == 0;
    expect(same == 0, "every name is there once");
    expect(list.n >= 600, "at least 600 cases");
    free(list.item);
}

/* A problem's lengths and slopes lie in arrays of one size, and the next member begins behind them. */
static void rooms(void)
{
    kit_list list = {0};
    int wide = 0;
    kit_cases(&list);
    for (size_t n = 0; n < list.n; n++) {
        const kit_spec *s = &list.item[n].spec;
        wide += s->batch > KIT_MAX_BATCH || s->q_heads > KIT_MAX_HEADS;
    }
    expect(wide == 0, "every case has room for its sequences and heads");
    free(list.item);
}

int main(void)
{
    int covered, pairs;
    oracle_by_hand();
    oracle_extremes();
    decoding();
    guards();
    tolerances();
    tolerances_of_sums();
    key_of_one_row();
    problems();
    names();
    rooms();
    kit_coverage(&covered, &pairs);
    expect(covered == pairs && pairs > 2000, "every pair of options is covered");
    return n_failed != 0;
}
