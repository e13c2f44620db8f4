/* Bytes to a valid linear layer. See fuzz_linear.h. */
#include "fuzz_linear.h"

#include <math.h>
#include <string.h>

#include "decode.h"
#include "encode.h"
#include "fuzz_layout.h"
#include "random.h"

#define CANARY 0xff /* as the kit's: a NaN in every type */

enum { MOST_PRODUCTS = 1 << 21 }; /* for the oracle's sake */

/* ---- shape ------------------------------------------------------------------------------------
 */

/* Kernels go by blocks of 256 inputs, chunks of 4096, tiles of 128 rows and 768 columns (AVX2: 384). */
static void shape(kit_linear_spec *s, fuzz_bytes *bytes)
{
    const uint32_t rare = fuzz_below(bytes, 64);
    s->rows = fuzz_length(bytes, 20, 300);
    s->in_dim = 1 + (uint32_t)fuzz_length(bytes, 40, 700);
    uint32_t columns = 1 + (uint32_t)fuzz_length(bytes, 120, 900);
    if (rare == 1)
        s->in_dim = 4000 + fuzz_below(bytes, 300), s->rows %= 12;
    const int large = fuzz_rarely(bytes, 100);
    if (large)
        s->rows = 1 + fuzz_below(bytes, 700), s->in_dim = 1 + fuzz_below(bytes, 3000);
    s->heads = fuzz_rarely(bytes, 3) ? fuzz_below(bytes, 6) : 0;
    if (s->heads > 1)
        columns = (columns + s->heads - 1) / s->heads * s->heads;
    while (!large && (int64_t)columns * s->in_dim > MOST_PRODUCTS / 8)
        s->in_dim = (s->in_dim + 1) / 2;
    while (large && s->rows * columns * s->in_dim > 16 * MOST_PRODUCTS)
        columns = s->heads > 1 ? (columns / 2 / s->heads + 1) * s->heads : (columns + 1) / 2;
    while (s->rows * columns * s->in_dim > (large ? 32 : 1) * MOST_PRODUCTS)
        s->rows /= 2;
    s->out_dim = columns;
    s->layout = fuzz_below(bytes, 2);
    s->x_type = s->w_type = s->y_type = fuzz_type(bytes);
    if (fuzz_rarely(bytes, 3)) {
        s->w_type = fuzz_type(bytes);
        s->y_type = fuzz_type(bytes);
    }
    s->bias_type = fuzz_byte(bytes) & 1 ? fuzz_type(bytes) : HEED_DTYPE_NONE;
    s->residual = fuzz_below(bytes, 3);
    s->activation = fuzz_below(bytes, 4);
    s->accuracy = fuzz_below(bytes, 4);
    s->values = fuzz_rarely(bytes, 3) ? fuzz_below(bytes, KIT_LINEAR_OVERFLOW + 1) : 0;
    s->seed = fuzz_byte(bytes) << 8 | fuzz_byte(bytes);
}

/* ---- memory -----------------------------------------------------------------------------------
 */

static void lay_out_matrix(kit_matrix *m, fuzz_bytes *bytes, int64_t rows, int64_t cols,
                           int is_input)
{
    const int64_t dim[2] = {rows, cols};
    int64_t stride[2];
    m->elements = fuzz_lay_out(bytes, 2, dim, stride, is_input, &m->first);
    m->rows = rows;
    m->cols = m->head_cols = cols;
    m->row_stride = m->view.stride[0] = stride[0];
    m->col_stride = m->view.stride[1] = stride[1];
}

static void lay_out_weight(kit_matrix *m, fuzz_bytes *bytes, const kit_linear_spec *s)
{
    const int64_t heads = s->heads > 1 ? s->heads : 1, cols = s->out_dim / heads;
    const int transposed = s->layout == HEED_LINEAR_OUT_IN, n_axes = heads > 1 ? 3 : 2;
    int64_t dim[3] = {heads, s->in_dim, cols}, stride[3] = {0};
    if (transposed)
        dim[1] = cols, dim[2] = s->in_dim;
    m->elements = fuzz_lay_out(bytes, n_axes, dim + 3 - n_axes, stride + 3 - n_axes, 1, &m->first);
    m->rows = s->in_dim;
    m->cols = s->out_dim;
    m->head_cols = cols;
    m->head_stride = stride[0];
    m->row_stride = stride[1 + transposed];
    m->col_stride = stride[1 + !transposed];
}

static int map(kit_matrix *m, fuzz_bytes *bytes)
{
    if (!m->bytes)
        return 0;
    const size_t slack = fuzz_rarely(bytes, 4) ? 1 + fuzz_below(bytes, 7) : 0;
    if (guard_map(&m->buffer, (size_t)m->elements * m->bytes, fuzz_byte(bytes) & 1, slack,
                  CANARY) != 0)
        return -1;
    m->view.data = m->buffer.data + m->first * m->bytes;
    return 0;
}

/* ---- values -----------------------------------------------------------------------------------
 */

static double value_of(const kit_linear_spec *s, int tensor, uint64_t bits)
{
    const int is_x = tensor == KIT_LINEAR_X, is_w = tensor == KIT_LINEAR_W;
    double value = kit_normal(bits), size = is_w ? 3 / sqrt((double)s->in_dim) : 1;
    switch (s->values) {
    case KIT_LINEAR_SMALL:
        size /= is_w ? 30 : 1;
        break;
    case KIT_LINEAR_LARGE:
        size *= is_w ? 30 : 1;
        break;
    case KIT_LINEAR_DENORMAL:
        size = (is_x || is_w) && bits & 1 ? 0x1p-130 : size;
        break;
    case KIT_LINEAR_NAN_X:
    case KIT_LINEAR_NAN_W:
        if ((s->values == KIT_LINEAR_NAN_X ? is_x : is_w) && bits % 97 == 0)
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
        size = is_x && bits & 1 ? s->x_type == HEED_F16 ? 6e4 : 1e38 : size;
        break;
    default:
        break;
    }
    return value * size;
}

static void fill(kit_linear *p, int tensor)
{
    kit_matrix *m = &p->tensor[tensor];
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->cols; c++) {
            const int64_t at = kit_linear_at(m, r, c); /* broadcast elements are one */
            kit_encode(m->type, m->buffer.data + at, 0,
                       value_of(&p->spec, tensor, kit_hash(kit_hash(p->spec.seed, tensor), at)));
        }
}

/* ---- the layer --------------------------------------------------------------------------------
 */

static void describe(fuzz_linear *layer, fuzz_bytes *bytes)
{
    kit_linear *p = &layer->p;
    const kit_matrix *t = p->tensor;
    kit_linear_describe(p);
    p->args.error = fuzz_byte(bytes) & 1 ? &layer->error : NULL;
    layer->weight = heed_as_const(t[KIT_LINEAR_W].view);
    layer->weight_given = &layer->weight;
    if (p->spec.bias_type) {
        layer->bias = heed_as_const(t[KIT_LINEAR_BIAS].view);
        layer->bias_given = &layer->bias;
    }
}

int fuzz_linear_build(fuzz_linear *layer, fuzz_bytes *bytes)
{
    kit_linear *p = &layer->p;
    kit_linear_spec *s = &p->spec;
    kit_matrix *t = p->tensor;
    memset(layer, 0, sizeof *layer);
    shape(s, bytes);
    const uint32_t type[] = {s->x_type, s->w_type, s->bias_type,
                             s->residual ? s->y_type : HEED_DTYPE_NONE, s->y_type};
    for (int i = 0; i < KIT_LINEAR_TENSORS; i++) {
        t[i].type = type[i];
        t[i].bytes = type[i] ? kit_bytes_of(type[i]) : 0; /* 0: absent */
    }
    lay_out_matrix(&t[KIT_LINEAR_X], bytes, s->rows, s->in_dim, 1);
    lay_out_matrix(&t[KIT_LINEAR_Y], bytes, s->rows, s->out_dim, 0);
    /* What lies in y is remembered here. */
    lay_out_matrix(&t[KIT_LINEAR_R], bytes, s->rows, s->out_dim,
                   s->residual == KIT_LINEAR_RESIDUAL);
    lay_out_matrix(&t[KIT_LINEAR_BIAS], bytes, 1, s->out_dim, 1);
    lay_out_weight(&t[KIT_LINEAR_W], bytes, s);
    for (int i = 0; i < KIT_LINEAR_TENSORS; i++)
        if (map(&t[i], bytes) != 0)
            return -1;
    for (int i = 0; i < KIT_LINEAR_Y; i++)
        if (t[i].bytes)
            fill(p, i);
    describe(layer, bytes);
    kit_linear_reset(p);
    return 0;
}
