/* heed_merge_parts: any number of parts, cut anywhere, with a sink or without, against sums in f64;
 * two parts give the bits of heed_merge; it works in place; and it refuses mistakes. */
#include <heed/heed.h>

#include "../check.h"
#include "decode.h"
#include "guard.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 6, ROWS = 3, HEADS = 2, DIM = 5, MOST = 12 };
#define U 0x1p-24

/* Scores and values of one row and head. */
typedef struct row {
    double s[KEYS], v[KEYS][DIM];
} row;

static row rows[ROWS * HEADS];

static void draw(uint64_t seed, double spread)
{
    for (int r = 0; r < ROWS * HEADS; r++)
        for (int k = 0; k < KEYS; k++) {
            rows[r].s[k] = spread * kit_normal(kit_next(&seed));
            if (kit_next(&seed) % 5 == 0)
                rows[r].s[k] = -(double)INFINITY;
            for (int d = 0; d < DIM; d++)
                rows[r].v[k][d] = kit_normal(kit_next(&seed));
        }
}

/* Attention over keys [first, end) and a sink. A row that sees nothing gives zeros and
 * -INFINITY. */
static void part_of(const row *r, int first, int end, double sink, double out[DIM], double *lse)
{
    double m = sink, sum;
    for (int k = first; k < end; k++)
        m = fmax(m, r->s[k]);
    *lse = m;
    for (int d = 0; d < DIM; d++)
        out[d] = 0;
    if (m == -(double)INFINITY)
        return;
    sum = exp(sink - m);
    for (int k = first; k < end; k++) {
        sum += exp(r->s[k] - m);
        for (int d = 0; d < DIM; d++)
            out[d] += exp(r->s[k] - m) * r->v[k][d];
    }
    for (int d = 0; d < DIM; d++)
        out[d] /= sum;
    *lse = m + log(sum);
}

typedef struct parts {
    float out[MOST][ROWS * HEADS * DIM], lse[MOST][ROWS * HEADS];
    heed_const_view view[MOST], lse_view[MOST];
} parts;

static void set_parts(parts *p, const int *cut, int n)
{
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < ROWS * HEADS; r++) {
            double out[DIM], lse;
            part_of(&rows[r], cut[i], cut[i + 1], -(double)INFINITY, out, &lse);
            p->lse[i][r] = (float)lse;
            for (int d = 0; d < DIM; d++)
                p->out[i][r * DIM + d] = lse == -(double)INFINITY ? NAN : (float)out[d];
        }
        p->view[i] = (heed_const_view){p->out[i], {HEADS * DIM, DIM, 1, 0}};
        p->lse_view[i] = (heed_const_view){p->lse[i], {HEADS, 1, 0, 0}};
    }
}

static heed_merge_parts_args args_of(parts *p, int n, uint32_t type, void *out, float *lse,
                                     const float *sink)
{
    return (heed_merge_parts_args){.struct_size = sizeof(heed_merge_parts_args),
                                   .rows = ROWS,
                                   .heads = HEADS,
                                   .dim = DIM,
                                   .n_parts = (uint32_t)n,
                                   .out_type = type,
                                   .parts = p->view,
                                   .lses = p->lse_view,
                                   .sink = sink,
                                   .out = {out, {HEADS * DIM, DIM, 1, 0}},
                                   .lse = {lse, {HEADS, 1, 0, 0}}};
}

/* Each part's out and lse are rounded to f32 once, and the result once to its type. */
static void check(const char *what, const void *out, const float *lse, uint32_t type,
                  const float *sink)
{
    const double u = type == HEED_F32 ? U : type == HEED_F16 ? 0x1p-11 : 0x1p-8;
    for (int r = 0; r < ROWS * HEADS; r++) {
        double want[DIM], want_lse;
        part_of(&rows[r], 0, KEYS, sink ? (double)sink[r % HEADS] : -(double)INFINITY, want,
                &want_lse);
        const double known = isfinite(want_lse) ? fabs(want_lse) : 0;
        if (lse)
            CHECK((double)lse[r] == want_lse ||
                      fabs((double)lse[r] - want_lse) <= 4 * U * (1 + known),
                  "%s: lse %g for %g", what, (double)lse[r], want_lse);
        for (int d = 0; d < DIM; d++) {
            const double got = kit_decode(type, out, r * DIM + d);
            CHECK(fabs(got - want[d]) <= u * fabs(want[d]) + 4 * U * (4 + known) * 3.5,
                  "%s: out %g for %g", what, got, want[d]);
        }
    }
}

/* Parts at every pair of cuts, and each key alone between empty ones. */
static void every_cut(void)
{
    static parts p;
    const float sink[HEADS] = {0.5F, -INFINITY};
    for (int a = 0; a <= KEYS; a++)
        for (int b = a; b <= KEYS; b++)
            for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
                const int cut[] = {0, a, b, KEYS};
                unsigned char out[ROWS * HEADS * DIM * 4];
                float lse[ROWS * HEADS];
                set_parts(&p, cut, 3);
                heed_merge_parts_args m =
                    args_of(&p, 3, type, out, (a + b) % 2 ? lse : NULL, b % 2 ? sink : NULL);
                CHECK_OK(heed_merge_parts(&m));
                check("three parts", out, m.lse.data, type, m.sink);
            }
    const int cut[] = {0, 0, 1, 1, 2, 3, 4, 5, 6, 6, 6};
    float out[ROWS * HEADS * DIM], lse[ROWS * HEADS];
    set_parts(&p, cut, 10);
    heed_merge_parts_args m = args_of(&p, 10, HEED_F32, out, lse, sink);
    CHECK_OK(heed_merge_parts(&m));
    check("ten parts", out, lse, HEED_F32, sink);
    m = args_of(&p, 10, HEED_F32, p.out[4], p.lse[4], NULL); /* into one of them */
    CHECK_OK(heed_merge_parts(&m));
    check("into a part", p.out[4], p.lse[4], HEED_F32, NULL);
}

static void of_two(void)
{
    static parts p;
    for (int a = 0; a <= KEYS; a++) {
        const int cut[] = {0, a, KEYS};
        float out[2][ROWS * HEADS * DIM], lse[2][ROWS * HEADS];
        set_parts(&p, cut, 2);
        heed_merge_parts_args m = args_of(&p, 2, HEED_F32, out[0], lse[0], NULL);
        heed_merge_args two = {.struct_size = sizeof two,
                               .rows = ROWS,
                               .heads = HEADS,
                               .dim = DIM,
                               .a = p.view[0],
                               .b = p.view[1],
                               .a_lse = p.lse_view[0],
                               .b_lse = p.lse_view[1],
                               .out = {out[1], {HEADS * DIM, DIM, 1, 0}},
                               .lse = {lse[1], {HEADS, 1, 0, 0}},
                               .out_type = HEED_F32};
        CHECK(heed_merge_parts(&m) == HEED_OK && heed_merge(&two) == HEED_OK, "%s",
              heed_last_error());
        CHECK(memcmp(out[0], out[1], sizeof *out) == 0 && memcmp(lse[0], lse[1], sizeof *lse) == 0,
              "cut %d: not heed_merge's bits", a);
    }
}

/* Two parts and a sink of one lse beside which ln 3 is nothing share the weight all the same. */
static void huge_ones(void)
{
    static const float lses[] = {3e38F, -3e38F, 0x1p60F};
    static parts p;
    const int cut[] = {0, 3, KEYS};
    for (int n = 0; n < 3; n++) {
        const float sink[HEADS] = {lses[n], lses[n]};
        float out[ROWS * HEADS * DIM], lse[ROWS * HEADS];
        set_parts(&p, cut, 2);
        for (int r = 0; r < ROWS * HEADS; r++) {
            p.lse[0][r] = p.lse[1][r] = lses[n];
            for (int d = 0; d < DIM; d++) {
                p.out[0][r * DIM + d] = 3;
                p.out[1][r * DIM + d] = 6;
            }
        }
        heed_merge_parts_args m = args_of(&p, 2, HEED_F32, out, lse, sink);
        CHECK_OK(heed_merge_parts(&m));
        for (int i = 0; i < ROWS * HEADS * DIM; i++) /* (3 + 6 + 0) / 3, rounded to f32 */
            CHECK(out[i] == 3, "lse %g: out is %g", (double)lses[n], (double)out[i]);
        for (int r = 0; r < ROWS * HEADS; r++)
            CHECK(lse[r] == lses[n], "lse %g has become %g", (double)lses[n], (double)lse[r]);
    }
}

/* Nothing at all, nothing but sinks, and NaNs. */
static void odd_ones(void)
{
    static parts p;
    const int cut[] = {0, 3, KEYS};
    const float sink[HEADS] = {-2.5F, 7};
    float out[ROWS * HEADS * DIM], lse[ROWS * HEADS];
    for (int sinks = 0; sinks < 2; sinks++) {
        heed_merge_parts_args m = args_of(&p, 0, HEED_F32, out, lse, sinks ? sink : NULL);
        m.parts = m.lses = NULL;
        memset(out, 0xff, sizeof out);
        CHECK_OK(heed_merge_parts(&m));
        for (int i = 0; i < ROWS * HEADS * DIM; i++)
            CHECK(out[i] == 0, "out of nothing is %g", (double)out[i]);
        for (int r = 0; r < ROWS * HEADS; r++)
            CHECK(lse[r] == (sinks ? sink[r % HEADS] : -INFINITY), "lse of nothing is %g",
                  (double)lse[r]);
    }
    for (int where = 0; where < 4; where++) {
        set_parts(&p, cut, 2);
        (where < 2 ? p.lse[where] : &p.out[where - 2][DIM])[1] = NAN;
        p.lse[0][1] = where == 0 ? NAN : 90; /* outweighs the other part by far */
        if (where == 2 || where == 3)
            p.lse[where - 2][1] = 1;
        heed_merge_parts_args m = args_of(&p, 2, HEED_F32, out, lse, sink);
        CHECK_OK(heed_merge_parts(&m));
        CHECK(where < 2 ? isnan(out[DIM]) && isnan(lse[1]) : isnan(out[DIM + 1]), "a NaN is lost");
    }
    /* More rows than anybody could count, of which nothing is written. */
    heed_merge_parts_args m = args_of(&p, 0, HEED_F32, out, NULL, NULL);
    m.rows = INT64_MAX;
    m.heads = 0;
    CHECK(heed_merge_parts(&m) == HEED_OK, "no heads: %s", heed_last_error());
    m.heads = 2;
    m.dim = 0;
    CHECK(heed_merge_parts(&m) == HEED_OK, "no dims: %s", heed_last_error());
}

/* Without dims the lse are merged alone, in place too. Where parts and out begin means nothing. */
static void without_dims(void)
{
    static parts p;
    const int cut[] = {0, 3, KEYS};
    float want[ROWS * HEADS];
    set_parts(&p, cut, 2);
    heed_merge_parts_args m = args_of(&p, 2, HEED_F32, NULL, want, NULL);
    m.dim = 0;
    CHECK_OK(heed_merge_parts(&m));
    m.out = (heed_view){p.lse[0], {1, 1, 1, 0}};
    m.lse.data = p.lse[0];
    CHECK_OK(heed_merge_parts(&m));
    for (int r = 0; r < ROWS * HEADS; r++)
        CHECK(memcmp(&p.lse[0][r], &want[r], sizeof *want) == 0, "lse in place is %g, not %g",
              (double)p.lse[0][r], (double)want[r]);
}

/* Long rows, odd strides and addresses, between unmapped pages. */
static void strides(void)
{
    enum { LONG = 700, N = 3 };
    for (int64_t step = -2; step <= 2; step += step == -1 ? 2 : 1)
        for (int side = 0; side < 2; side++) {
            guard_buffer in[N], out;
            heed_const_view view[N], lse_view[N];
            float lse[N] = {0.5F, -1.25F, 2};
            const int64_t span = (LONG - 1) * llabs(step) + 1;
            double total = 0, weight[N];
            for (int i = 0; i < N; i++)
                total += exp((double)lse[i]);
            for (int i = 0; i < N; i++) {
                weight[i] = exp((double)lse[i]) / total;
                if (guard_map(&in[i], (size_t)span * 4, side, 1, 0xff) != 0)
                    exit(1);
                const int64_t first = step < 0 ? span - 1 : 0;
                for (int64_t d = 0; d < LONG; d++) {
                    const float x = (float)(d % 17) * 0.25F + (float)i;
                    memcpy(in[i].data + (first + d * step) * 4, &x, 4);
                }
                view[i] = (heed_const_view){in[i].data + first * 4, {0, 0, step, 0}};
                lse_view[i] = (heed_const_view){&lse[i], {0, 0, 0, 0}};
            }
            if (guard_map(&out, (size_t)span * 4, side, 1, 0xff) != 0)
                exit(1);
            memset(out.data, 0xff, out.bytes);
            const int64_t first = step < 0 ? span - 1 : 0;
            heed_merge_parts_args m = {.struct_size = sizeof m,
                                       .rows = 1,
                                       .heads = 1,
                                       .dim = LONG,
                                       .n_parts = N,
                                       .out_type = HEED_F32,
                                       .parts = view,
                                       .lses = lse_view,
                                       .out = {out.data + first * 4, {0, 0, step, 0}}};
            CHECK_OK(heed_merge_parts(&m));
            for (int64_t d = 0; d < LONG; d++) {
                double want = 0;
                for (int i = 0; i < N; i++)
                    want += weight[i] * ((double)(d % 17) * 0.25 + i);
                const double got = kit_decode(HEED_F32, out.data + (first + d * step) * 4, 0);
                CHECK(fabs(got - want) <= 4 * U * (1 + want), "stride %lld: %g for %g",
                      (long long)step, got, want);
            }
            CHECK(guard_slack_is(&out, 0xff), "it wrote beside out");
            for (int i = 0; i < N; i++)
                guard_unmap(&in[i]);
            guard_unmap(&out);
        }
}

static void spoil(heed_merge_parts_args *m, parts *p, int n)
{
    int64_t *const size[] = {&m->rows, &m->heads, &m->dim};
    if (n < 3)
        *size[n] = -1;
    else if (n == 3)
        m->parts = NULL;
    else if (n == 4)
        m->lses = NULL;
    else if (n == 5)
        p->view[1].data = NULL;
    else if (n == 6)
        p->lse_view[2].data = NULL;
    else if (n == 7)
        m->out.data = NULL;
    else if (n == 8)
        m->out_type = HEED_I8;
    else if (n == 9)
        m->out.stride[1] = 0;
    else if (n == 10)
        p->view[2].stride[0] = INT64_MAX;
    else if (n == 11)
        p->lse_view[1].stride[0] = INT64_MIN;
    else if (n == 12)
        m->out.data = (void *)p->view[2].data, m->out.stride[0]++;
    else if (n == 13)
        m->out.data = (void *)p->lse_view[1].data;
    else if (n == 14)
        m->lse.data = (void *)p->view[0].data;
    else if (n == 15)
        m->lse.data = m->out.data;
    else if (n == 16)
        m->dim = 0, m->lse.data = (void *)p->lse_view[1].data, m->lse.stride[0]++;
    else
        m->struct_size = 8;
}

static void refusals(void)
{
    static parts p;
    static const char *const word[] = {"args.rows",
                                       "args.heads",
                                       "args.dim",
                                       "args.parts is",
                                       "args.lses is",
                                       "args.parts[1]",
                                       "args.lses[2]",
                                       "args.out",
                                       "args.out_type",
                                       "out.stride[1]",
                                       "parts[2] has",
                                       "lses[1] has",
                                       "out.data equals args.parts[2]",
                                       "out.data equals args.lses[1]",
                                       "lse.data equals args.parts[0]",
                                       "lse.data equals args.out",
                                       "lse.data equals args.lses[1]",
                                       "struct_size"};
    for (int n = 0; n < 18; n++) {
        const int cut[] = {0, 2, 4, KEYS};
        float out[ROWS * HEADS * DIM], lse[ROWS * HEADS];
        heed_error why = {""};
        set_parts(&p, cut, 3);
        for (int i = 0; i < ROWS * HEADS * DIM; i++)
            out[i] = 7;
        heed_merge_parts_args m = args_of(&p, 3, HEED_F32, out, lse, NULL);
        m.error = &why;
        spoil(&m, &p, n);
        const heed_status st = heed_merge_parts(&m);
        const char *said = n == 17 ? heed_last_error() : why.text;
        CHECK(st == (n == 17 ? HEED_ERR_ABI : HEED_ERR_INVALID) && strstr(said, word[n]),
              "a bad %s: %s, '%s'", word[n], heed_status_string(st), said);
        for (int i = 0; i < ROWS * HEADS * DIM; i++)
            CHECK(out[i] == 7, "a bad %s: out was written", word[n]);
    }
}

int main(void)
{
    for (int n = 0; n < 6; n++) {
        draw(11 + (uint64_t)n, n < 3 ? 1 : 30);
        every_cut();
        of_two();
        odd_ones();
    }
    huge_ones();
    without_dims();
    strides();
    refusals();
    return checks_end();
}
