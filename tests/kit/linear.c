/* Building test problems of linear layers, and their oracle: three loops in float64. See linear.h.
 *
 * Tolerance, in the terms of tolerance.c, with M = sum |x w| + |bias|: the sum of in_dim products
 * and a bias is off by e = (product + grow(in_dim + 2) u) M and the underflow of products and
 * factors. The slope of every activation is below 1.13 (GELU's greatest is 1.129, SiLU's 1.100),
 * and its own error below 16 u of its result or, where its exponential is cut off, 2^-120; the
 * residual's sum adds u of both. Random errors amount to u M, and the rest rounds a few times. */
#include "linear.h"

#include "decode.h"
#include "encode.h"
#include "random.h"
#include "reference_f64.h"
#include "strides.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define U 0x1p-24
#define CANARY 0xff /* every byte of y before the call: a NaN in every type */

/* ---- memory ---------------------------------------------------------------------------------- */

int64_t kit_linear_at(const kit_matrix *m, int64_t r, int64_t c)
{
    return (m->first + r * m->row_stride + c / m->head_cols * m->head_stride +
            c % m->head_cols * m->col_stride) *
           (int64_t)m->bytes;
}

double kit_linear_value(const kit_linear *p, int tensor, int64_t r, int64_t c)
{
    const kit_matrix *m = &p->tensor[tensor];
    return kit_decode(m->type, m->buffer.data + kit_linear_at(m, r, c), 0);
}

/* Draws the strides of up to three axes of a tensor, by `places`. Which axes of an input are
 * broadcast depends on the seed, as its values do. */
static void draw_strides(kit_matrix *m, const kit_linear_spec *s, int tensor, int n_axes,
                         const int64_t *dim, int64_t *stride)
{
    const uint64_t places = kit_hash(kit_hash(s->seed, 80 + tensor), (int64_t)s->places);
    const int same = tensor == KIT_LINEAR_Y
                         ? 0
                         : kit_draw_same(kit_hash(s->seed, 70 + tensor)) & 7 >> (3 - n_axes);
    m->elements = kit_draw_strides(places, n_axes, dim, same, stride, &m->first);
}

/* Strides of an [n_rows, n_cols] matrix. */
static void lay_out(kit_matrix *m, const kit_linear_spec *s, int tensor, int64_t n_rows,
                    int64_t n_cols, int broadcast)
{
    const int64_t dim[2] = {n_rows, n_cols};
    int64_t stride[2];
    m->rows = n_rows;
    m->cols = m->head_cols = n_cols;
    m->row_stride = n_cols;
    m->col_stride = 1;
    m->elements = n_rows * n_cols;
    switch (s->memory) {
    case KIT_LINEAR_DRAWN:
        draw_strides(m, s, tensor, 2, dim, stride);
        m->row_stride = stride[0];
        m->col_stride = stride[1];
        break;
    case KIT_LINEAR_PADDED:
    case KIT_LINEAR_ODD:
        m->row_stride = n_cols + 7;
        m->elements = n_rows * m->row_stride - 7;
        break;
    case KIT_LINEAR_NEGATIVE:
        m->row_stride = -n_cols - 3;
        m->first = (n_rows - 1) * (n_cols + 3);
        m->elements = n_rows * (n_cols + 3) - 3;
        break;
    case KIT_LINEAR_STRIDED:
        m->col_stride = 2;
        m->row_stride = 2 * n_cols + 1;
        m->elements = n_rows * m->row_stride - 2;
        break;
    case KIT_LINEAR_REVERSED:
        m->col_stride = -1;
        m->first = n_cols - 1;
        break;
    case KIT_LINEAR_COLUMNS:
        m->col_stride = n_rows + 2;
        m->row_stride = 1;
        m->elements = n_cols * m->col_stride - 2;
        break;
    case KIT_LINEAR_BROADCAST:
        if (broadcast) {
            m->row_stride = 0;
            m->elements = n_cols;
        }
        break;
    default:
        break;
    }
    if (n_rows == 0)
        m->first = m->elements = 0;
}

/* The weight as the description's layout has it, every head for itself. */
static void lay_out_weight(kit_matrix *m, const kit_linear_spec *s)
{
    const int64_t heads = s->heads > 1 ? s->heads : 1, cols = s->out_dim / heads;
    kit_matrix one = {0};
    m->rows = s->in_dim;
    m->cols = s->out_dim;
    m->head_cols = cols;
    if (s->memory == KIT_LINEAR_DRAWN) {
        const int transposed = s->layout == HEED_LINEAR_OUT_IN, n_axes = heads > 1 ? 3 : 2;
        const int64_t dim[3] = {heads, transposed ? cols : s->in_dim,
                                transposed ? s->in_dim : cols};
        int64_t stride[3] = {0};
        draw_strides(m, s, KIT_LINEAR_W, n_axes, dim + 3 - n_axes, stride + 3 - n_axes);
        m->head_stride = stride[0];
        m->row_stride = stride[1 + transposed];
        m->col_stride = stride[1 + !transposed];
        return;
    }
    if (s->layout == HEED_LINEAR_OUT_IN) {
        lay_out(&one, s, KIT_LINEAR_W, cols, s->in_dim, 0);
        m->row_stride = one.col_stride;
        m->col_stride = one.row_stride;
    } else {
        lay_out(&one, s, KIT_LINEAR_W, s->in_dim, cols, 0);
        m->row_stride = one.row_stride;
        m->col_stride = one.col_stride;
    }
    m->first = one.first;
    m->head_stride = one.elements + (s->memory == KIT_LINEAR_DENSE ? 0 : 5);
    m->elements = (heads - 1) * m->head_stride + one.elements;
}

static int map(kit_matrix *m, const kit_linear_spec *s, int side)
{
    if (!m->bytes)
        return 0;
    const size_t slack = s->memory == KIT_LINEAR_ODD ? 1
                         : s->memory == KIT_LINEAR_DRAWN
                             ? kit_hash(s->places, m->elements) % 32 / 25
                             : 0;
    if (guard_map(&m->buffer, (size_t)m->elements * m->bytes, side, slack, CANARY) != 0)
        return -1;
    m->view.data = m->buffer.data + m->first * m->bytes;
    m->view.stride[0] = m->row_stride;
    m->view.stride[1] = m->col_stride;
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static double value_of(const kit_linear_spec *s, int tensor, int64_t r, int64_t c)
{
    const uint64_t bits = kit_hash(kit_hash(kit_hash(s->seed, tensor), r), c);
    double value = kit_normal(bits), size = 1;
    const int is_x = tensor == KIT_LINEAR_X, is_w = tensor == KIT_LINEAR_W;
    if (is_w)
        size = (s->values == KIT_LINEAR_LARGE   ? 100
                : s->values == KIT_LINEAR_SMALL ? 0.1
                                                : 3) /
               sqrt((double)s->in_dim);
    switch (s->values) {
    case KIT_LINEAR_DENORMAL:
        if ((is_x || is_w) && bits & 1)
            size = 0x1p-130;
        break;
    case KIT_LINEAR_NAN_X:
        if (is_x && bits % 97 == 0)
            return (double)NAN;
        break;
    case KIT_LINEAR_NAN_W:
        if (is_w && bits % 97 == 0)
            return (double)NAN;
        break;
    case KIT_LINEAR_INF_X:
        if (is_x && bits % 97 == 0)
            return bits & 128 ? (double)INFINITY : -(double)INFINITY;
        break;
    case KIT_LINEAR_MINUS_INF:
        if (tensor == KIT_LINEAR_BIAS && bits % 3 == 0)
            return -(double)INFINITY;
        break;
    case KIT_LINEAR_OVERFLOW:
        if (is_x && r % 2)
            size = s->x_type == HEED_F16 ? 6e4 : 1e38;
        break;
    default:
        break;
    }
    return value * size;
}

static void fill(kit_linear *p, int tensor)
{
    kit_matrix *m = &p->tensor[tensor];
    const int moves = tensor == KIT_LINEAR_X || tensor == KIT_LINEAR_R;
    const int64_t shift = moves && m->row_stride ? p->spec.first_row : 0;
    for (int64_t r = 0; r < (m->row_stride ? m->rows : m->rows > 0); r++)
        for (int64_t c = 0; c < m->cols; c++)
            kit_encode(m->type, m->buffer.data + kit_linear_at(m, r, c), 0,
                       value_of(&p->spec, tensor, r + shift, c));
}

void kit_linear_reset(kit_linear *p)
{
    kit_matrix *y = &p->tensor[KIT_LINEAR_Y];
    memset(y->buffer.data, CANARY, y->buffer.bytes);
    if (p->spec.residual == KIT_LINEAR_IN_PLACE)
        for (int64_t r = 0; r < y->rows; r++)
            for (int64_t c = 0; c < y->cols; c++)
                memcpy(y->buffer.data + kit_linear_at(y, r, c),
                       p->tensor[KIT_LINEAR_R].buffer.data +
                           kit_linear_at(&p->tensor[KIT_LINEAR_R], r, c),
                       y->bytes);
}

void kit_linear_describe(kit_linear *p)
{
    const kit_linear_spec *s = &p->spec;
    kit_matrix *t = p->tensor;
    p->desc = (heed_linear_desc){
        .struct_size = sizeof p->desc,
        .features = (s->bias_type ? HEED_LINEAR_HAS_BIAS : 0) |
                    (s->residual ? HEED_LINEAR_HAS_RESIDUAL : 0),
        .in_dim = s->in_dim,
        .out_dim = s->out_dim,
        .x_type = s->x_type,
        .w_type = s->w_type,
        .y_type = s->y_type,
        .bias_type = s->bias_type,
        .layout = s->layout,
        .activation = s->activation,
        .accuracy = s->accuracy,
        .heads = s->heads,
    };
    p->args = (heed_linear_args){
        .struct_size = sizeof p->args,
        .rows = s->rows,
        .x = heed_as_const(t[KIT_LINEAR_X].view),
        .y = t[KIT_LINEAR_Y].view,
    };
    if (s->residual)
        p->args.residual =
            heed_as_const(t[s->residual == KIT_LINEAR_IN_PLACE ? KIT_LINEAR_Y : KIT_LINEAR_R].view);
    int64_t *stride = t[KIT_LINEAR_W].view.stride, n = 0;
    const int transposed = s->layout == HEED_LINEAR_OUT_IN;
    if (s->heads > 1)
        stride[n++] = t[KIT_LINEAR_W].head_stride;
    stride[n + transposed] = t[KIT_LINEAR_W].row_stride;
    stride[n + !transposed] = t[KIT_LINEAR_W].col_stride;
    t[KIT_LINEAR_BIAS].view.stride[0] = t[KIT_LINEAR_BIAS].col_stride;
    t[KIT_LINEAR_BIAS].view.stride[1] = 0; /* it has one axis */
}

int kit_linear_build(kit_linear *p, const kit_linear_spec *spec, int side)
{
    kit_matrix *t = p->tensor;
    memset(p, 0, sizeof *p);
    p->spec = *spec;
    const uint32_t type[] = {spec->x_type, spec->w_type, spec->bias_type,
                             spec->residual ? spec->y_type : HEED_DTYPE_NONE, spec->y_type};
    for (int i = 0; i < KIT_LINEAR_TENSORS; i++)
        t[i].type = type[i], t[i].bytes = type[i] ? kit_bytes_of(type[i]) : 0; /* 0: absent */
    lay_out(&t[KIT_LINEAR_X], spec, KIT_LINEAR_X, spec->rows, spec->in_dim, 1);
    lay_out(&t[KIT_LINEAR_Y], spec, KIT_LINEAR_Y, spec->rows, spec->out_dim, 0);
    /* A residual that is added in place is kept here as well, laid out as y is. */
    lay_out(&t[KIT_LINEAR_R], spec, KIT_LINEAR_R, spec->rows, spec->out_dim,
            spec->residual == KIT_LINEAR_RESIDUAL);
    lay_out(&t[KIT_LINEAR_BIAS], spec, KIT_LINEAR_BIAS, 1, spec->out_dim, 0);
    lay_out_weight(&t[KIT_LINEAR_W], spec);
    for (int i = 0; i < KIT_LINEAR_TENSORS; i++)
        if (map(&t[i], spec, side) != 0)
            return -1;
    for (int i = 0; i < KIT_LINEAR_Y; i++)
        if (t[i].bytes)
            fill(p, i);
    kit_linear_describe(p);
    kit_linear_reset(p);
    return 0;
}

void kit_linear_open(kit_linear *p)
{
    for (int i = 0; i < KIT_LINEAR_Y; i++)
        if (p->tensor[i].buffer.map)
            guard_open(&p->tensor[i].buffer);
}

void kit_linear_seal(kit_linear *p, int created)
{
    for (int i = 0; i < KIT_LINEAR_Y; i++) {
        kit_matrix *m = &p->tensor[i];
        const int gone = created && (i == KIT_LINEAR_W || i == KIT_LINEAR_BIAS);
        unsigned char *used = m->buffer.map ? calloc(guard_pages(&m->buffer), 1) : NULL;
        if (!used)
            continue;
        guard_read_only(&m->buffer);
        for (int64_t r = 0; r < m->rows && !gone; r++)
            for (int64_t c = 0; c < m->cols; c++)
                guard_mark(&m->buffer, used, kit_linear_at(m, r, c), m->bytes);
        guard_seal(&m->buffer, used);
        free(used);
    }
}

void kit_linear_free(kit_linear *p)
{
    for (int i = 0; i < KIT_LINEAR_TENSORS; i++)
        guard_unmap(&p->tensor[i].buffer);
    free(p->want);
    p->want = p->bound = p->typical = p->opposed = NULL;
}

int kit_linear_untouched(const kit_linear *p, int64_t *where)
{
    const kit_matrix *y = &p->tensor[KIT_LINEAR_Y];
    unsigned char *mine = calloc(y->buffer.bytes + 1, 1);
    *where = -1;
    if (!mine || !guard_slack_is(&y->buffer, CANARY)) {
        free(mine);
        return 0;
    }
    for (int64_t r = 0; r < y->rows; r++)
        for (int64_t c = 0; c < y->cols; c++)
            memset(mine + kit_linear_at(y, r, c), 1, y->bytes);
    int clean = 1;
    for (size_t at = 0; at < y->buffer.bytes && clean; at++)
        if (!mine[at] && y->buffer.data[at] != CANARY)
            clean = 0, *where = (int64_t)at;
    free(mine);
    return clean;
}

/* ---- the oracle ------------------------------------------------------------------------------ */

static double activate(uint32_t activation, double s)
{
    const double pi = 3.14159265358979323846;
    if (activation == HEED_ACT_NONE || isnan(s))
        return s;
    if (s < -1e30) /* the limit */
        return 0;
    switch (activation) {
    case HEED_ACT_GELU:
        return 0.5 * s * erfc(-s / sqrt(2));
    case HEED_ACT_GELU_TANH:
        return s / (1 + exp(-2 * sqrt(2 / pi) * (s + 0.044715 * s * s * s)));
    default:
        return s / (1 + exp(-s));
    }
}

static double or_0(double x)
{
    return isfinite(x) ? x : 0;
}

static double product_error(const kit_linear_spec *s)
{
    return s->accuracy == HEED_ACCURACY_SPLIT && (s->x_type != HEED_BF16 || s->w_type != HEED_BF16)
               ? 0x1p-15
               : 2 * U;
}

int kit_linear_solve(kit_linear *p)
{
    const kit_linear_spec *s = &p->spec;
    const int64_t in = s->in_dim, out = s->out_dim;
    const size_t n = (size_t)(s->rows * out);
    const double product = product_error(s), terms = (double)in + 2;
    double *w = malloc((size_t)(in * out) * sizeof *w), *x = malloc((size_t)in * sizeof *x);
    p->want = calloc(4 * n + 1, sizeof *p->want);
    if (!w || !x || !p->want) {
        free(w);
        free(x);
        return -1;
    }
    p->bound = p->want + n;
    p->typical = p->bound + n;
    p->opposed = p->typical + n;
    for (int64_t c = 0; c < out; c++) /* each column in one piece */
        for (int64_t i = 0; i < in; i++)
            w[c * in + i] = kit_linear_value(p, KIT_LINEAR_W, i, c);
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t i = 0; i < in; i++)
            x[i] = kit_linear_value(p, KIT_LINEAR_X, r, i);
        for (int64_t c = 0; c < out; c++) {
            const size_t at = (size_t)(r * out + c);
            double sum = 0, m = 0, finite = 0, factors = (double)in;
            for (int64_t i = 0; i < in; i++) {
                const double term = x[i] * w[c * in + i];
                sum += term;
                m += fabs(term);
                finite += or_0(fabs(term));
                factors += fabs(x[i]) + fabs(w[c * in + i]);
            }
            const double bias = s->bias_type ? kit_linear_value(p, KIT_LINEAR_BIAS, 0, c) : 0;
            const double added = s->residual ? kit_linear_value(p, KIT_LINEAR_R, r, c) : 0;
            const double act = activate(s->activation, sum + bias);
            const int beyond = finite > 1e38; /* a sum in f32 may overflow on its way */
            p->opposed[at] = beyond && !isfinite(m);
            m = or_0(m) + or_0(fabs(bias));
            p->want[at] = act + added;
            double rounded = 16 * U * or_0(fabs(act)) + U * or_0(fabs(added)) + 0x1p-120;
            p->bound[at] =
                1.13 * ((product + kit_grow(terms) * U) * m + 0x1p-126 * or_0(factors)) + rounded;
            p->typical[at] = (U + product / sqrt(terms)) * m + rounded / 4;
            if (beyond && !p->opposed[at])
                p->bound[at] = p->typical[at] = (double)INFINITY;
        }
    }
    free(w);
    free(x);
    return 0;
}

int kit_linear_is_right(const kit_linear *p, const kit_tolerance *how, int64_t r, int64_t c)
{
    const int64_t at = r * p->spec.out_dim + c;
    const double got = kit_linear_value(p, KIT_LINEAR_Y, r, c);
    return !isfinite(p->bound[at]) || (isnan(got) && p->opposed[at] != 0) ||
           kit_close(how, got, p->want[at], p->bound[at]);
}
