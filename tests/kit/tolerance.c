/* Tolerances, derived.
 *
 * u = 2^-24 is the unit roundoff of f32, in which all sums and the softmax are done or better.
 *
 * Sums. A sum of n terms done in any order has an error of at most n u sum|terms| (Higham, Accuracy
 * and Stability, 4.2). With roundings that are independent in the mean it stays below
 * lambda sqrt(n) u sum|terms| with probability 1 - 2 exp(-lambda^2 / 2) (Higham & Mary 2019, A new
 * approach to probabilistic rounding error analysis, thm 2.4; lambda = 6 gives 3e-8). The smaller
 * of the two is taken: grow(n) u.
 *
 * Scores. raw = scale * sum q k with M = |scale| sum |q k|: each product has a relative error
 * `product` (rounding of scale, of scale * q, of log2(e) folded into it, of q k: 4 u), the sum
 * grow(qk_dim) u:         e_raw = (product + grow(qk_dim) u) M + the underflow of qk_dim products
 * Softcap has a slope of at most 1, and its own division, tanh and product (tanh to 4 ulp):
 *                         e_cap = e_raw + 8 u |softcapped|
 * ALiBi and bias each round their term twice (position as f32, product) and the sum once:
 *                         e_s = e_cap + 4 u (|alibi| + |bias| + |softcapped|)
 * The exponential's argument s - m is rounded after the change to log2 units (2 u |s| + 2 u |m|,
 * because m cancels only where it was subtracted exactly), and the exponential itself to 4 ulp:
 *                         delta_j = e_s + 2 u (|s| + |m|) + 8 u
 * so a computed weight is exp(s - m) times a factor in [exp(-delta), exp(delta)].
 *
 * Weights. For w_j = p_j / (p_j + R_j), R_j the others' sum (sink included), the computed one lies
 * between what the ends of these intervals give. This holds for scores of any size: next to scores
 * of 1e7 delta is 1, and yet a lone maximum with the next one 1e3 below gives exactly 1 and 0.
 * Powers below the smallest normal f32 may be flushed, or come out as 2^-126 from a clamped
 * exponent. They are powers of what a score lies below the row's reference, which is an integer and
 * so up to 1 above the largest score; where products are of bf16 it leaves room for larger scores
 * to come, 1 more by SPLIT and 6 more by BF16: `floor`, in weights. The division and the sum l add
 * (grow(n) + 2) u, and storing in bf16 `weight`.
 *
 * Output. |error| <= sum_j dw_j |v_j| + (grow(n) + 2) u sum_j w_j |v_j|, and half an ulp of its
 * type.
 *
 * lse. log of the interval of l, plus grow(n) u for its sum, plus the rounding of lse and m.
 *
 * Accuracies (heed/attention.h). BF16: scale * q is rounded to bf16 (2^-8 a product) and so are the
 * weights, whose exponential need be no better than that (2 * 2^-8). SPLIT: see split_tolerance.
 * lse and weights are made of weights before that, which are off by 1e-5 more than scores: `lone`.
 *
 * Codes. The oracle computes with the numbers that heed_decode gives; those of (c - zero) * scale
 * are rounded twice. A kernel may apply the scale to the sum over all codes that share it, or to q
 * or the weights: the oracle's rounding of one product and the kernel's of another add 2 u of each
 * term. It has to round c - zero, d * c + m and the products of the Q formats, which are exact, as
 * the oracle does, since their parts may cancel. A weight times a scale may be flushed before it
 * meets |c - zero|, which is 448 at most for F8 and less than 512 for all that the kit makes:
 * 512 2^-126 for each key.
 *
 * INT8. scale * q becomes a multiple of 1/127 of the greatest |scale * q| of its block, which is at
 * most that of the row, and is off by half of such a step:
 *                         e_raw += |scale| max|q| / 254 sum |k|
 * Sums of codes are exact, and what lies beneath a code (its zero, its block's least value) may be
 * subtracted from their sum in f32: 4 u |scale| sum |q| (|c| + |beneath|), in units of k. The
 * errors of scale * q are spread evenly over the step, with a deviation of 1 / sqrt(3) of their
 * bound. They add as the root of the sum of squares, where the bound itself counts as one
 * deviation: 1.7 of it.
 *
 * The bound has to cover the worst alignment of errors, so a small systematic mistake could hide in
 * it. Therefore the relative L2 error of a row and of a whole output is compared with `typical` too:
 * there the errors of different keys add as random ones do (root of the sum of squares), the error of a
 * random-sign dot product is u M and not grow(n) u M (the partial sums grow as sqrt(k), so that
 * sqrt(sum k) u = n u / sqrt(2) times a term, and M is 0.64 n terms), and a running sum of weights
 * of one sign, whose partial sums grow as k, has sqrt(n) u.
 */
#include "tolerance.h"

#include <heed/attention.h>
#include <heed/formats.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define U 0x1p-24
/* The weights output comes from a second pass, which may sum the scores in another order than the
 * pass that gave their sum l: then not even a lone key's two exponentials are the same, and 2 delta
 * comes on top. But huge scores have to give one-hot rows all the same, so 2 delta counts only up
 * to this many times the error of a product. */
#define RECOMPUTED 64

/* SPLIT: x y as hi hi + hi lo + lo hi of x = hi + lo + rest, each part rounded to the 8 bits of
 * bf16. For x in [1, 2): |x - hi| <= 2^-8, so |lo| <= 2^-8; where it is 2^-8 there is no rest, else
 * its half ulp is 2^-17 at most, so |rest| <= 2^-17. Left out are x's rest times y, y's rest times
 * x and lo lo: 2 * 2^-17 + 2^-16 = 2^-15 of a product, for q k and for weights times values alike.
 * One deviation: x - hi is spread evenly over +-2^-8, so lo is 2^-8 / sqrt(3) and rest is
 * 2^-17 sqrt(4 / 21) (half of them in the first binade, a quarter in the next ..), relative to an x
 * of sqrt(2): lo lo 2.5e-6 and the two rests 2.4e-6 each, together 4.2e-6. 2^-17 is 1.8 of that,
 * the same margin as the other numbers of `scatter` have. Three products are three times as many
 * sums. */
static void split_tolerance(kit_tolerance *t)
{
    t->product = t->weight = 0x1p-15;
    t->product_scatter = t->weight_scatter = 0x1p-17;
    t->lone = 1e-5;
    t->terms = 3;
    t->floor = 0x1p-124;
}

kit_tolerance kit_tolerance_of(uint32_t accuracy, uint32_t out_type)
{
    kit_tolerance t = {.product = 4 * U, .weight = 0, .terms = 1, .floor = 0x1p-125};
    if (accuracy == HEED_ACCURACY_BF16) {
        t.product = 0x1p-8;
        t.weight = 2 * 0x1p-8;
        t.lone = 1e-5;
        t.floor = 0x1p-119;
    }
    t.product_scatter = t.product;
    t.weight_scatter = t.weight;
    if (accuracy == HEED_ACCURACY_SPLIT)
        split_tolerance(&t);
    t.out = out_type == HEED_F32 ? U : out_type == HEED_F16 ? 0x1p-11 : 0x1p-8;
    t.out_floor = out_type == HEED_F16 ? 0x1p-25 : 0x1p-126; /* f32 and bf16 may flush */
    t.out_max = out_type == HEED_F32 ? (double)FLT_MAX : out_type == HEED_F16 ? 65504 : 0x1.FEp127;
    return t;
}

int kit_row_tolerance_make(kit_row_tolerance *to, int64_t keys, int64_t dims)
{
    double *memory = calloc((size_t)(4 * keys + 3 * dims) + 1, sizeof *memory);
    *to = (kit_row_tolerance){.raw = memory};
    if (!memory)
        return -1;
    to->softcapped = to->raw + keys;
    to->score = to->softcapped + keys;
    to->weight = to->score + keys;
    to->out = to->weight + keys;
    to->typical = to->out + dims;
    to->sum = to->typical + dims;
    return 0;
}

void kit_tolerate_codes(kit_tolerance *how, uint32_t accuracy, uint32_t k_type, uint32_t v_type,
                        const float *sizes)
{
    if (heed_takes_scale(k_type)) {
        how->product += 2 * U;
        how->product_scatter += 2 * U;
    }
    if (heed_takes_scale(v_type))
        how->value = 2 * U;
    if (heed_is_code(v_type))
        how->value_floor = 512 * 0x1p-126;
    if (accuracy == HEED_ACCURACY_INT8) {
        how->step_q = 1.0 / 254;
        how->sizes = sizes;
    }
}

/* Error of a dot product's terms below the normal range: each product, and each factor where the
 * host or the backend reads subnormals as 0. */
static double underflow(const reference_problem *p, const reference_row *r, int64_t j)
{
    double sum = (double)p->qk_dim;
    for (int64_t d = 0; d < p->qk_dim; d++)
        sum += fabs(r->q[d]) + fabs(r->k[j * p->qk_dim + d]);
    return 0x1p-126 * sum * (1 + fabs(p->scale));
}

/* What INT8 adds to the error of a raw score. *scatter is what it adds to one deviation. */
static double coarse(const kit_tolerance *how, const reference_problem *p, const reference_row *r,
                     int64_t j, double *scatter)
{
    const int64_t dim = p->qk_dim;
    const float *size = how->sizes + ((r->b * p->kv_heads + r->g) * p->kv_len + j) * dim;
    const double *k = r->k + j * dim;
    double greatest = 0, sum = 0, squares = 0, parts = 0;
    for (int64_t d = 0; d < dim; d++) {
        greatest = fmax(greatest, fabs(r->q[d]));
        sum += fabs(k[d]);
        squares += k[d] * k[d];
        parts += fabs(r->q[d]) * (double)size[d];
    }
    const double step = fabs(p->scale) * greatest * how->step_q;
    *scatter = step * sqrt(squares) + U * fabs(p->scale) * parts;
    return step * sum + 4 * U * fabs(p->scale) * parts;
}

static void scores(const kit_tolerance *how, const reference_problem *p, const reference_row *r,
                   kit_row_tolerance *to)
{
    for (int64_t j = 0; j < p->kv_len; j++) {
        to->raw[j] = to->softcapped[j] = to->score[j] = 0;
        if (!r->in_range[j])
            continue;
        double sum = how->product + kit_grow(how->terms * (double)p->qk_dim) * U;
        to->raw[j] = sum * r->magnitude[j] + underflow(p, r, j);
        if (how->step_q > 0) {
            double scatter;
            to->raw[j] += coarse(how, p, r, j, &scatter);
        }
        to->softcapped[j] = to->raw[j];
        if (p->softcap > 0) { /* however far raw is off, the result stays within +-softcap */
            double most = 2 * p->softcap;
            to->softcapped[j] = (to->raw[j] < most ? to->raw[j] : most) + 8 * U * p->softcap;
        }
        to->score[j] = to->softcapped[j] + FLT_MIN;
        if (r->visible[j])
            to->score[j] += 4 * U * (fabs(r->alibi[j]) + fabs(r->bias[j]) + fabs(r->softcapped[j]));
    }
}

static double finite_or_0(double x)
{
    return isfinite(x) ? x : 0;
}

/* The sum of exp(term), as a logarithm, kept without its largest term: a lone maximum's weight is
 * decided by the others, which its own interval would swamp. `all` is known at the end. */
typedef struct log_sum {
    double largest, others, all;
    int64_t where;
} log_sum;

static double all_of(const log_sum *sum)
{
    if (sum->largest == -(double)INFINITY)
        return sum->largest;
    return sum->largest + log1p(exp(sum->others - sum->largest));
}

static void add(log_sum *sum, double term, int64_t where)
{
    if (term > sum->largest) {
        sum->others = all_of(sum);
        sum->largest = term;
        sum->where = where;
    } else {
        double top = fmax(sum->others, term);
        if (term > -(double)INFINITY)
            sum->others = top + log(exp(sum->others - top) + exp(term - top));
    }
}

/* The logarithm of the sum without the term that was added for `where`. */
static double without(const log_sum *sum, double term, int64_t where)
{
    if (where == sum->where)
        return sum->others;
    return sum->all + log1p(-exp(term - sum->all));
}

/* The size of the terms of raw score j, if they add as random ones do. Where a few terms outweigh the
 * others it is near `magnitude`, else near magnitude / sqrt(qk_dim). */
static double root_of_squares(const reference_problem *p, const reference_row *r, int64_t j)
{
    const double *k = r->k + j * p->qk_dim;
    double squares = 0;
    for (int64_t d = 0; d < p->qk_dim; d++)
        squares += r->q[d] * k[d] * (r->q[d] * k[d]);
    return fabs(p->scale) * sqrt(squares);
}

static double delta_of(const reference_row *r, const kit_row_tolerance *to, int64_t j)
{
    return to->score[j] + 2 * U * (fabs(r->score[j]) + fabs(r->max)) + 8 * U;
}

/* Sums of all exponentials, relative to the row's maximum, with every error downwards (low) and
 * upwards (high). Returns the number of terms, the sink included. */
static double sum_up(const reference_problem *p, const reference_row *r,
                     const kit_row_tolerance *to, log_sum *low, log_sum *high)
{
    double n = 1;
    low->largest = low->all = low->others = -(double)INFINITY;
    low->where = -2;
    *high = *low;
    if (p->sink && p->sink[r->h] > -INFINITY) {
        double sink = (double)p->sink[r->h], delta = 4 * U * (fabs(sink) + fabs(r->max));
        add(low, sink - r->max - delta, -1);
        add(high, sink - r->max + delta, -1);
    }
    for (int64_t j = 0; j < p->kv_len; j++) {
        if (!r->visible[j] || !isfinite(r->score[j]))
            continue;
        add(low, r->score[j] - r->max - delta_of(r, to, j), j);
        add(high, r->score[j] - r->max + delta_of(r, to, j), j);
        n++;
    }
    low->all = all_of(low);
    high->all = all_of(high);
    return n;
}

/* Takes the roots of the sums in to->typical and adds the roundings of sums of n terms. */
static void finish_typical(const reference_problem *p, const reference_row *r, double n,
                           kit_row_tolerance *to)
{
    for (int64_t d = 0; d < p->v_dim; d++)
        to->typical[d] = sqrt(to->typical[d]) + 2 * U * to->sum[d] +
                         2 * U * sqrt(n) * finite_or_0(fabs(r->out[d]));
}

/* Adds one key: a value times `bound`, and `floor`, to the bounds of the dims; to the squares of
 * their deviations a value times `spread`; and to the sums a value times its weight. */
static void add_value(const kit_row_tolerance *to, const double *restrict v, int64_t dims,
                      double weight, double spread, double bound, double floor)
{
    double *restrict out = to->out, *restrict typical = to->typical, *restrict sum = to->sum;
    for (int64_t d = 0; d < dims; d++) {
        const double size = fabs(v[d]), a = size <= DBL_MAX ? size : 0;
        out[d] += bound * a + floor;
        typical[d] += spread * a * spread * a;
        sum[d] += weight * a;
    }
}

void kit_tolerate(const kit_tolerance *how, const reference_problem *p, const reference_row *r,
                  kit_row_tolerance *to)
{
    log_sum low, high;
    scores(how, p, r, to);
    to->lse = 0;
    for (int64_t d = 0; d < p->v_dim; d++)
        to->out[d] = to->typical[d] = to->sum[d] = 0;
    for (int64_t j = 0; j < p->kv_len; j++)
        to->weight[j] = 0;
    if (!isfinite(r->max) || !isfinite(r->lse))
        return;

    double n = sum_up(p, r, to, &low, &high), sum_error = (kit_grow(how->terms * n) + 2) * U;
    double lse = r->lse - r->max; /* exact: l >= 1 */
    to->lse = fmax(high.all - lse, lse - low.all) + sum_error + how->lone +
              4 * U * (fabs(r->max) + fabs(r->lse)) + FLT_MIN;

    for (int64_t j = 0; j < p->kv_len; j++) {
        if (!r->visible[j])
            continue;
        double dw = how->floor, rounding = 0, lone = 0, spread = 0, delta = 0;
        if (isfinite(r->score[j])) {
            double s = r->score[j] - r->max;
            delta = delta_of(r, to, j);
            double w_high = 1 / (1 + exp(without(&low, s - delta, j) - (s + delta)));
            double w_low = 1 / (1 + exp(without(&high, s + delta, j) - (s - delta)));
            dw += fmax(w_high - r->weight[j], r->weight[j] - w_low);
            dw += sum_error * w_high;
            rounding = how->weight * w_high;
            lone = how->lone * w_high;
            /* One deviation: u M for the dot product; its products' errors average out too. */
            spread = U * (r->magnitude[j] + 4 * fabs(r->score[j]) + 4 * fabs(r->max) + 4) +
                     how->product_scatter * root_of_squares(p, r, j) + how->weight_scatter +
                     how->value;
            if (how->step_q > 0) {
                double scatter;
                coarse(how, p, r, j, &scatter);
                spread += scatter;
            }
            spread = fmin(r->weight[j] * spread, dw + rounding);
        }
        /* For the weights as an output: see RECOMPUTED. */
        to->weight[j] =
            dw + lone +
            r->weight[j] * fmin(2 * delta, RECOMPUTED * fmax(how->product, how->step_q));
        add_value(to, r->v + j * p->v_dim, p->v_dim, r->weight[j], spread,
                  dw + rounding + (sum_error + how->value) * r->weight[j],
                  r->weight[j] * 0x1p-126 + how->value_floor);
    }
    finish_typical(p, r, n, to);
}

int kit_close_out(const kit_tolerance *how, double got, double want, double bound)
{
    return (isinf(want) && isnan(got)) || kit_close(how, got, want, bound);
}

int kit_close(const kit_tolerance *how, double got, double want, double bound)
{
    double half_ulp, largest = how->out_max * (1 + how->out / 2);
    if (isnan(want))
        return isnan(got) != 0;
    if (isinf(want))
        return got == want;
    if (isnan(got))
        return 0;
    half_ulp = how->out * (fabs(want) + bound) + how->out_floor;
    if (isinf(got)) /* right where rounding may reach it */
        return fabs(want) + bound + half_ulp >= largest && (got > 0) == (want > 0);
    if (fabs(want) - bound - half_ulp > largest)
        return 0;
    return fabs(got - want) <= bound + half_ulp;
}
