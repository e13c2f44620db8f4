/* The float64 oracle. See reference_f64.h. */
#include "reference_f64.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double of_f16(uint16_t bits)
{
    int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double magnitude;
    if (exponent == 31)
        magnitude = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        magnitude = fraction * 0x1p-24;
    else
        magnitude = ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

double reference_decode(int type, const void *data, int64_t index)
{
    if (type == REFERENCE_F32) {
        float x;
        memcpy(&x, (const char *)data + index * 4, 4);
        return (double)x;
    }
    if (type == REFERENCE_F64)
        return ((const double *)data)[index];
    if (type == REFERENCE_BYTE)
        return ((const unsigned char *)data)[index];
    uint16_t half;
    memcpy(&half, (const char *)data + index * 2, 2);
    if (type == REFERENCE_F16)
        return of_f16(half);
    uint32_t word = (uint32_t)half << 16;
    float x;
    memcpy(&x, &word, 4);
    return (double)x;
}

static double element(const reference_array *a, int64_t b, int64_t h, int64_t i, int64_t d)
{
    int64_t row = a->place ? a->place[b * a->place_rows + i] : b * a->stride[0] + i * a->stride[2];
    return reference_decode(a->type, a->data, row + h * a->stride[1] + d * a->stride[3]);
}

/* A score beyond the range of f32 is an infinity: backends hold scores in f32 or wider types, and
 * all of them have to mean the same. Halfway to the next f32 rounds up. */
static double f32_range(double x)
{
    const double limit = (double)FLT_MAX + 0x1p103;
    return x >= limit ? (double)INFINITY : x <= -limit ? -(double)INFINITY : x;
}

/* A row's score of key j, stage by stage, and whether the key is visible. */
static void one_score(const reference_problem *p, reference_row *r, int64_t position, int64_t j)
{
    r->in_range[j] = j < r->n_keys && (!p->causal || j <= position) &&
                     (p->window_left < 0 || j >= position - p->window_left) &&
                     (p->window_right < 0 || j <= position + p->window_right) &&
                     (!p->listed || p->listed(p->listed_of, r->b, r->h, r->i, j));
    r->visible[j] = 0;
    r->magnitude[j] = r->alibi[j] = r->bias[j] = r->weight[j] = 0;
    r->raw[j] = r->softcapped[j] = r->score[j] = -(double)INFINITY;
    if (!r->in_range[j])
        return;
    double dot = 0, magnitude = 0;
    for (int64_t d = 0; d < p->qk_dim; d++) {
        dot += r->q[d] * r->k[j * p->qk_dim + d];
        magnitude += fabs(r->q[d] * r->k[j * p->qk_dim + d]);
    }
    r->magnitude[j] = fabs(p->scale) * magnitude;
    r->raw[j] = f32_range(p->scale * dot);
    r->softcapped[j] = r->raw[j];
    if (p->softcap > 0)
        r->softcapped[j] = p->softcap * tanh(r->raw[j] / p->softcap);
    if (p->alibi_slope)
        r->alibi[j] = (double)p->alibi_slope[r->h] * (double)(j - position);
    const int64_t column = j - (p->mask_from ? p->mask_from[r->b] : 0);
    r->visible[j] = !p->mask.data || column < 0 || element(&p->mask, r->b, r->h, r->i, column) != 0;
    if (p->bias.data && column >= 0) {
        double bias = element(&p->bias, r->b, r->h, r->i, column);
        if (bias == -(double)INFINITY)
            r->visible[j] = 0;
        r->bias[j] = (p->bias_slope ? (double)p->bias_slope[r->h] : 1) * bias;
    }
    if (r->visible[j])
        r->score[j] = f32_range(r->softcapped[j] + r->alibi[j] + r->bias[j]);
}

/* Computes the softmax of a row's scores and the outputs that follow from it. */
static void one_row(const reference_problem *p, reference_row *r, int64_t position)
{
    double sink = p->sink ? (double)p->sink[r->h] : -(double)INFINITY;
    int any_nan = 0;
    r->max = sink;
    for (int64_t j = 0; j < p->kv_len; j++) {
        one_score(p, r, position, j);
        if (!r->visible[j])
            continue;
        if (isnan(r->score[j]))
            any_nan = 1;
        if (r->score[j] > r->max)
            r->max = r->score[j];
    }

    /* A NaN score makes the row NaN. A row with nothing but -inf is empty: zeros. */
    double sum = sink == -(double)INFINITY ? 0 : exp(sink - r->max);
    int sees = any_nan;
    for (int64_t j = 0; j < p->kv_len; j++)
        if (r->visible[j] && r->score[j] > -(double)INFINITY)
            sees = 1;
    memset(r->out, 0, (size_t)p->v_dim * sizeof(double));
    if (!sees) {
        r->lse = sink;
        return;
    }
    if (any_nan)
        r->max = (double)NAN;
    for (int64_t j = 0; j < p->kv_len; j++)
        if (r->visible[j])
            sum += exp(r->score[j] - r->max);
    r->lse = r->max + log(sum);
    for (int64_t j = 0; j < p->kv_len; j++) {
        if (!r->visible[j])
            continue;
        r->weight[j] = exp(r->score[j] - r->max) / sum;
        /* A weight too small for f64 is not 0: an infinite value times it stays infinite. */
        const double least = r->score[j] > -(double)INFINITY ? 0x1p-1074 : 0;
        const double weight = r->weight[j] < least ? least : r->weight[j];
        for (int64_t d = 0; d < p->v_dim; d++)
            r->out[d] += weight * r->v[j * p->v_dim + d];
    }
}

int reference_attention(const reference_problem *p, reference_visit visit, void *user)
{
    size_t keys = (size_t)p->kv_len + 1, qk = (size_t)p->qk_dim, vd = (size_t)p->v_dim;
    double *memory = malloc((keys * (qk + vd + 7) + qk + vd) * sizeof(double));
    unsigned char *flags = malloc(2 * keys);
    if (!memory || !flags) {
        free(memory);
        free(flags);
        return -1;
    }
    double *k = memory, *v = k + keys * qk, *q = v + keys * vd;
    reference_row r = {.q = q, .k = k, .v = v, .in_range = flags, .visible = flags + keys};
    r.out = q + qk;
    r.magnitude = r.out + vd;
    r.raw = r.magnitude + keys;
    r.softcapped = r.raw + keys;
    r.alibi = r.softcapped + keys;
    r.bias = r.alibi + keys;
    r.score = r.bias + keys;
    r.weight = r.score + keys;

    for (r.b = 0; r.b < p->batch; r.b++) {
        int64_t rows = p->q_lens ? p->q_lens[r.b] : p->q_len;
        r.n_keys = p->kv_lens ? p->kv_lens[r.b] : p->kv_len;
        for (r.h = 0; r.h < p->q_heads; r.h++) {
            r.g = r.h / (p->q_heads / p->kv_heads);
            for (int64_t j = 0; j < r.n_keys; j++) {
                for (int64_t d = 0; d < p->qk_dim; d++)
                    k[j * p->qk_dim + d] = element(&p->k, r.b, r.g, j, d);
                for (int64_t d = 0; d < p->v_dim; d++)
                    v[j * p->v_dim + d] = element(&p->v, r.b, r.g, j, d);
            }
            for (r.i = 0; r.i < rows; r.i++) {
                if (p->every && r.i % p->every >= p->some)
                    continue;
                for (int64_t d = 0; d < p->qk_dim; d++)
                    q[d] = element(&p->q, r.b, r.h, r.i, d);
                one_row(p, &r, r.i + (p->offset ? p->offset[r.b] : 0));
                visit(user, p, &r);
            }
        }
    }
    free(memory);
    free(flags);
    return 0;
}

static void store_row(void *user, const reference_problem *p, const reference_row *r)
{
    const reference_result *to = user;
    int64_t row = (r->b * p->q_heads + r->h) * p->q_len + r->i;
    size_t keys = (size_t)p->kv_len * sizeof(double);
    if (to->out)
        memcpy(to->out + row * p->v_dim, r->out, (size_t)p->v_dim * sizeof(double));
    if (to->lse)
        to->lse[row] = r->lse;
    if (to->weights)
        memcpy(to->weights + row * p->kv_len, r->weight, keys);
    if (to->raw)
        memcpy(to->raw + row * p->kv_len, r->raw, keys);
    if (to->softcapped)
        memcpy(to->softcapped + row * p->kv_len, r->softcapped, keys);
    if (to->biased)
        memcpy(to->biased + row * p->kv_len, r->score, keys);
}

int reference_tensors(const reference_problem *problem, const reference_result *result)
{
    reference_result to = *result;
    return reference_attention(problem, store_row, &to);
}
