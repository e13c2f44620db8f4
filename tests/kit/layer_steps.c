/* The steps of a test layer around attention, in float64. See layer_steps.h. */
#include "layer_steps.h"

#include <stdlib.h>

layer_numbers layer_numbers_of(int64_t n)
{
    layer_numbers x = {calloc((size_t)n + 1, sizeof(double)), calloc((size_t)n + 1, sizeof(double)),
                       calloc((size_t)n + 1, sizeof(double))};
    if (!x.value || !x.error || !x.typical)
        abort(); /* a test's own memory */
    return x;
}

void layer_drop(layer_numbers x)
{
    free(x.value);
    free(x.error);
    free(x.typical);
}

layer_numbers layer_from(layer_numbers x, int64_t n)
{
    return (layer_numbers){x.value + n, x.error + n, x.typical + n};
}

void layer_project(const layer *l, layer_columns of, uint32_t y_type, layer_numbers x,
                   layer_numbers y)
{
    const int64_t in = of.in;
    for (int64_t c = 0; c < of.n; c++) {
        const double bias = l->bias[of.which][of.first + c];
        double sum = 0, magnitude = 0, carried = 0, variance = 0;
        for (int64_t i = 0; i < in; i++) {
            double w = l->weight[of.which][i * of.out + of.first + c];
            sum += x.value[i] * w;
            magnitude += fabs(x.value[i] * w);
            carried += (x.error ? x.error[i] : 0) * fabs(w);
            variance += square((x.typical ? x.typical[i] : 0) * w);
        }
        y.value[c] = sum + bias;
        y.error[c] = carried + (kit_grow((double)in) + 2) * LAYER_U * (magnitude + carried) +
                     2 * LAYER_U * fabs(bias);
        y.error[c] = layer_stored(y_type, y.value[c], y.error[c]);
        variance += square(LAYER_U * magnitude) + square(LAYER_U * bias);
        y.typical[c] = layer_scatter(y_type, y.value[c], variance, y.error[c]);
    }
}

void layer_source(const layer *l, int which, double *x, layer_numbers y)
{
    const layer_spec *s = &l->spec;
    const layer_numbers given = {.value = x};
    const int64_t in = which && s->d_kv ? s->d_kv : s->d_model;
    const int64_t heads = which ? s->kv_heads : s->q_heads;
    const int64_t dim = which == 2 ? s->v_dim : s->qk_dim, n = heads * dim;
    const int64_t q = (int64_t)s->q_heads * s->qk_dim, k = (int64_t)s->kv_heads * s->qk_dim,
                  v = (int64_t)s->kv_heads * s->v_dim;
    const uint32_t type =
        !which || s->cache || s->projections == LAYER_FUSED ? s->mid_type : s->kv_type;
    if (l->linear[3]) {
        const int64_t first = which == 0 ? 0 : which == 1 ? q : q + k;
        layer_project(l, (layer_columns){3, in, q + k + v, first, n}, type, given, y);
    } else if (which && l->linear[4]) {
        layer_project(l, (layer_columns){4, in, k + v, which == 1 ? 0 : k, n}, type, given, y);
    } else if (l->linear[which] && s->projections == LAYER_SHARED) {
        for (int64_t h = 0; h < heads; h++)
            layer_project(l, (layer_columns){which, in / heads, dim, 0, dim}, type,
                          (layer_numbers){.value = x + h * (in / heads)}, layer_from(y, h * dim));
    } else if (l->linear[which]) {
        layer_project(l, (layer_columns){which, in, n, 0, n}, type, given, y);
    } else {
        for (int64_t c = 0; c < n; c++)
            y.value[c] = x[c], y.error[c] = y.typical[c] = 0;
    }
}

void layer_turn(const layer *l, int64_t heads, int64_t position, uint32_t type, layer_numbers x)
{
    const heed_rotary_desc *r = &l->spec.rotary;
    const int64_t dim = l->spec.qk_dim, half = r->dims / 2;
    for (int64_t h = 0; h < heads && r->style; h++)
        for (int64_t p = 0; p < half; p++) {
            int64_t a = h * dim + (r->style == HEED_ROTARY_HALF ? p : 2 * p);
            int64_t b = a + (r->style == HEED_ROTARY_HALF ? half : 1);
            double base = r->base > 0 ? (double)r->base : 10000;
            double angle = (double)position / (r->scale > 0 ? (double)r->scale : 1) *
                           pow(base, -2.0 * (double)p / r->dims);
            double c = cos(angle), s = sin(angle), u = x.value[a], v = x.value[b];
            double both = x.error[a] + x.error[b],
                   e = both + 3 * LAYER_U * (fabs(u) + fabs(v) + both);
            double variance = square(x.typical[a]), other = square(x.typical[b]);
            double own = square(2 * LAYER_U) * (u * u + v * v);
            x.value[a] = u * c - v * s;
            x.value[b] = v * c + u * s;
            x.error[a] = layer_stored(type, x.value[a], e);
            x.error[b] = layer_stored(type, x.value[b], e);
            x.typical[a] =
                layer_scatter(type, x.value[a], variance * c * c + other * s * s + own, x.error[a]);
            x.typical[b] =
                layer_scatter(type, x.value[b], other * c * c + variance * s * s + own, x.error[b]);
        }
}

void layer_append(uint32_t type, int64_t n, layer_numbers x)
{
    for (int64_t d = 0; d < n; d++) {
        x.error[d] = layer_stored(type, x.value[d], x.error[d]);
        x.typical[d] = layer_scatter(type, x.value[d], square(x.typical[d]), x.error[d]);
    }
}
