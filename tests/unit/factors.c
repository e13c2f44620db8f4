/* Scale and softcap may be any finite numbers: backends that keep scores in f32 refuse those at which
 * steps of theirs would overflow or be flushed to 0, by name, and naive computes them. None that
 * leaves room is refused, up to the limits of backends/simd/range.h. Results are compared with f64.
 * Usage: factors [backend ACCURACY]; without, all that are built in, at accuracy exact. */
#include <math.h>

#include "unit.h"

enum { HEADS = 2, KEYS = 70, DIM = 32 };

typedef struct factors {
    float scale, softcap; /* 0: without softcap */
    int q_power, k_power; /* q and k are in +-2^power */
    const char *refused;  /* what the sentence begins with; NULL: served */
} factors;

static const factors list[] = {
    {0, 0, 0, 0, NULL},
    {-0.3F, 0, 0, 2, NULL},
    {0.125F, 1e-3F, 2, 2, NULL},
    {0.125F, 30, 4, 4, NULL},
    {0.125F, 1e6F, 2, 2, NULL},
    {1e-6F, 0, 10, 10, NULL},
    {1e6F, 0, -10, -8, NULL},
    {0x1p64F, 0, -30, -32, NULL},
    {-0x1p64F, 0, 4, -66, NULL},
    {0x1p-64F, 0, 30, 36, NULL},
    {0, 0x1p64F, 0, 0, NULL},
    {0, 0x1p-64F, 0, 0, NULL},
    {1, 0x1p64F, 0, 0, NULL},
    {1, 0x1p-64F, 0, 0, NULL},
    {0x1p64F, 1, -30, -34, NULL},
    {0x1p-64F, 1, 30, 34, NULL},
    /* q * scale would be infinite, and with it sums of both signs NaN */
    {0x1p126F, 0, 4, -124, "desc.scale is "},
    {-1e38F, 0, 4, -124, "desc.scale is "},
    {3e38F, 0, 1, -124, "desc.scale is "},
    {0x1.000002p64F, 0, -30, -32, "desc.scale is "},
    /* scale would be 0 */
    {1e-39F, 0, 60, 70, "desc.scale is "},
    {0x1.fffffep-65F, 0, 30, 36, "desc.scale is "},
    /* 1 / softcap would be infinite; a score divided by softcap 0, and so it is with 2^64 */
    {1, 1e-39F, 0, 0, "desc.softcap is "},
    {1, 0x1.fffffep-65F, 0, 0, "desc.softcap is "},
    {1, 3e38F, 0, 0, "desc.softcap is "},
    {1, 0x1.000002p64F, 0, 0, "desc.softcap is "},
    {0x1p40F, 0x1p-40F, 25, 25, "desc.scale / desc.softcap is "},
    {0x1p-64F, 0x1p63F, 32, 32, "desc.scale / desc.softcap is "},
};

static const struct {
    const char *name;
    uint32_t value;
    double product; /* relative error of a product q k (docs/accuracy.md), and of a weight */
} accuracies[] = {{"exact", HEED_ACCURACY_EXACT, 4 * 0x1p-24},
                  {"split", HEED_ACCURACY_SPLIT, 0x1p-15}};

/* The greatest distance of a row's out from f64, in units of what is allowed: a score's error changes
 * its weight by as much, and out by twice that times the greatest |v|, 1. The error of tanh is 8 u of
 * the score at most, and f32 itself adds some u to weights and sums. */
static double row_error(const unit_problem *p, const factors *f, int64_t head, int64_t row,
                        double product)
{
    const float *q = p->q + (head * p->args.q_len + row) * DIM;
    const float *k = p->k + head * KEYS * DIM, *v = p->v + head * KEYS * DIM;
    const float *out = p->out + (head * p->args.q_len + row) * DIM;
    double weight[KEYS], most = -HUGE_VAL, sum = 0, size = 0, worst = 0;
    for (int j = 0; j < KEYS; j++) {
        double s = 0, m = 0;
        for (int d = 0; d < DIM; d++) {
            const double x = (double)f->scale * (double)q[d] * (double)k[j * DIM + d];
            s += x, m += fabs(x);
        }
        if (f->softcap > 0) {
            s = (double)f->softcap * tanh(s / (double)f->softcap);
            m = fmin(m, 2 * (double)f->softcap);
        }
        weight[j] = s;
        most = fmax(most, s);
        size = fmax(size, m);
    }
    for (int j = 0; j < KEYS; j++)
        sum += weight[j] = exp(weight[j] - most);
    for (int d = 0; d < DIM; d++) {
        double want = 0;
        for (int j = 0; j < KEYS; j++)
            want += weight[j] / sum * (double)v[j * DIM + d];
        const double off = fabs((double)out[d] - want);
        worst = off <= worst ? worst : off; /* a NaN stays */
    }
    return worst / (2 * size * (product + 8 * 0x1p-24) + 2 * product + 32 * 0x1p-24);
}

static void check_results(heed_context *context, const char *backends, const factors *f,
                          unit_problem *p, double product)
{
    memset(p->out, 0xff, p->out_bytes);
    CHECK_OK(heed_attention(context, &p->desc, &p->args));
    for (int64_t head = 0; head < HEADS; head++)
        for (int64_t row = 0; row < p->args.q_len; row++) {
            const double error = row_error(p, f, head, row, product);
            CHECK(error <= 1,
                  "%s, scale %g, softcap %g, %lld rows, row %lld: %g of what is allowed", backends,
                  (double)f->scale, (double)f->softcap, (long long)p->args.q_len, (long long)row,
                  error);
        }
}

static void check(const char *backend, const factors *f, int64_t q_len, int accuracy)
{
    unit_problem p = unit_make(1, HEADS, q_len, KEYS, DIM, 7);
    char both[64];
    heed_error why = {""};
    snprintf(both, sizeof both, "%s,naive", backend);
    heed_context *alone = unit_context(1, backend), *with_naive = unit_context(1, both);
    p.desc.features = HEED_HAS_SCALE | (f->softcap > 0 ? HEED_HAS_SOFTCAP : 0);
    p.desc.scale = f->scale;
    p.desc.softcap = f->softcap;
    p.desc.accuracy = accuracies[accuracy].value;
    for (int64_t i = 0; i < HEADS * q_len * DIM; i++)
        p.q[i] = ldexpf(p.q[i], f->q_power);
    for (int64_t i = 0; i < HEADS * KEYS * DIM; i++)
        p.k[i] = ldexpf(p.k[i], f->k_power);
    const heed_status st = heed_attn_supported(alone, &p.desc, &why);
    if (f->refused && strcmp(backend, "naive") != 0)
        CHECK(st == HEED_ERR_UNSUPPORTED && strstr(why.text, f->refused) &&
                  strstr(why.text, "2^64"),
              "%s, scale %g, softcap %g, %lld rows: '%s'", backend, (double)f->scale,
              (double)f->softcap, (long long)q_len, why.text);
    else
        CHECK(st == HEED_OK, "%s, scale %g, softcap %g, %lld rows: %s", backend, (double)f->scale,
              (double)f->softcap, (long long)q_len, why.text);
    check_results(st == HEED_OK ? alone : with_naive, st == HEED_OK ? backend : both, f, &p,
                  accuracies[accuracy].product);
    heed_context_release(alone);
    heed_context_release(with_naive);
    unit_free(&p);
}

int main(int argc, char **argv)
{
    static const char *const built_in[] = {"naive", "avx2", "avx512", "onednn"};
    static const int64_t rows[] = {1, 8, 40};
    const int accuracy = argc > 2 && !strcmp(argv[2], accuracies[1].name);
    const int n = argc > 1 ? 1 : (int)(sizeof built_in / sizeof *built_in);
    for (int i = 0; i < n; i++) {
        const char *backend = argc > 1 ? argv[1] : built_in[i];
        heed_context *context = unit_context(1, backend);
        const int there = argc > 1 || unit_runs_here(context);
        printf("%s: %s\n", backend, there ? "checked" : "not here");
        for (size_t f = 0; there && f < sizeof list / sizeof *list; f++)
            for (int r = 0; r < 3; r++)
                check(backend, &list[f], rows[r], accuracy);
        heed_context_release(context);
    }
    return checks_end();
}
