/* What a caller of linear layers may get wrong. Each of these turns a valid layer or run into one
 * that has to be refused before anything is read or written, so none needs memory behind it. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_linear.h"
#include "view.h"
#include "ways.h"

#define N(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

/* ---- making the layer -------------------------------------------------------------------------
 */

/* Strides whose farthest element has no address; 0 where the shape has but one on that axis. */
static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 4};

static int far_stride(fuzz_bytes *bytes, int64_t *stride, int64_t dim_0, int64_t dim_1)
{
    const int axis = (int)fuzz_below(bytes, 2);
    stride[axis] = far[fuzz_below(bytes, N(far))];
    return (axis ? dim_1 : dim_0) > 1;
}

static int bad_choice(heed_linear_desc *d, fuzz_bytes *bytes)
{
    uint32_t *choice[] = {&d->layout, &d->activation, &d->accuracy};
    static const uint32_t past[] = {HEED_LINEAR_OUT_IN, HEED_ACT_SILU, HEED_ACCURACY_SPLIT};
    const uint32_t which = fuzz_below(bytes, 3), by = 1 + fuzz_byte(bytes);
    *choice[which] = fuzz_byte(bytes) & 1 ? past[which] + by : UINT32_MAX;
    return 1;
}

static int bad_type(heed_linear_desc *d, fuzz_bytes *bytes)
{
    uint32_t *type[] = {&d->x_type, &d->w_type, &d->y_type, &d->bias_type};
    static const uint32_t bad[] = {HEED_I8, HEED_Q8_0, 6, UINT32_MAX, HEED_DTYPE_NONE, HEED_F16};
    const uint32_t which = fuzz_below(bytes, 4), has_bias = d->bias_type != HEED_DTYPE_NONE;
    const uint32_t n = which < 3 || has_bias ? 5 : N(bad);
    uint32_t value = bad[fuzz_below(bytes, n)];
    if (which == 3 && !has_bias && value == HEED_DTYPE_NONE)
        return 0;
    *type[which] = value;
    return 1;
}

/* Returns what was spoilt, or NULL. */
static const char *spoil_layer(fuzz_linear *f, fuzz_bytes *bytes)
{
    heed_linear_desc *d = &f->p.desc;
    const uint64_t unknown[] = {4, UINT64_C(1) << 32, UINT64_C(1) << 63};
    const uint32_t size[] = {0, (1u << 24) + 1, UINT32_MAX};
    const size_t struct_size[] = {0, 7, 8, 20, 65537, SIZE_MAX};
    const int64_t heads = d->heads > 1 ? d->heads : 1, cols = d->out_dim / heads;
    const int transposed = d->layout == HEED_LINEAR_OUT_IN, first = heads > 1;
    switch (fuzz_below(bytes, 13)) {
    case 0:
        return d->features |= unknown[fuzz_below(bytes, N(unknown))], "an unknown feature";
    case 1:
        return d->in_dim = size[fuzz_below(bytes, N(size))], "in_dim";
    case 2:
        return d->out_dim = size[fuzz_below(bytes, N(size))], "out_dim";
    case 3:
        return bad_type(d, bytes) ? "a type" : NULL;
    case 4:
        return bad_choice(d, bytes) ? "layout, activation or accuracy" : NULL;
    case 5:
        return d->heads = d->out_dim + 1 + fuzz_byte(bytes), "heads";
    case 6:
        return d->struct_size = struct_size[fuzz_below(bytes, N(struct_size))], "desc.struct_size";
    case 7:
        return f->weight_given = NULL, "no weight";
    case 8:
        return f->weight.data = NULL, "no data of weight";
    case 9:
        if (fuzz_byte(bytes) & 1)
            f->bias.data = NULL;
        else
            f->bias_given = NULL;
        return f->p.spec.bias_type ? "no bias" : NULL;
    case 10:
        f->bias = f->weight;
        f->bias_given = &f->bias;
        return f->p.spec.bias_type ? NULL : "a bias";
    case 11: {
        const int axis = (int)fuzz_below(bytes, (uint32_t)(2 + first));
        const int64_t n = axis < first ? heads : (axis - first) == transposed ? d->in_dim : cols;
        f->weight.stride[axis] = far[fuzz_below(bytes, N(far))];
        return n > 1 ? "a stride of weight" : NULL;
    }
    default:
        f->bias.stride[0] = far[fuzz_below(bytes, N(far))];
        return f->p.spec.bias_type && d->out_dim > 1 ? "the stride of bias" : NULL;
    }
}

/* ---- a run ------------------------------------------------------------------------------------
 */

typedef struct call {
    heed_linear_args *args;
    const heed_linear *linear;
    heed_executor executor;
    uint32_t n_parts, begins;
    void *workspace;
    size_t bytes;
} call;

static const char *spoil_view(fuzz_linear *f, fuzz_bytes *bytes, heed_linear_args *a)
{
    const kit_view view[] = {KIT_IN_VIEW(a->x), KIT_OUT_VIEW(a->y), KIT_IN_VIEW(a->residual)};
    static const char *const name[] = {"x", "y", "residual"};
    const kit_linear_spec *s = &f->p.spec;
    const uint32_t which = fuzz_below(bytes, 3);
    const int64_t cols = which ? s->out_dim : s->in_dim;
    if (s->rows == 0 || (which == 2 && !s->residual))
        return NULL;
    if (fuzz_byte(bytes) & 1)
        return kit_view_point(view[which], NULL), name[which];
    return far_stride(bytes, view[which].stride, s->rows, cols) ? name[which] : NULL;
}

static const char *spoil_executor(call *c, fuzz_bytes *bytes)
{
    c->args->executor = &c->executor;
    c->begins = 0; /* parts need no executor */
    switch (fuzz_below(bytes, 3)) {
    case 0:
        return c->executor.struct_size = 4, "executor.struct_size";
    case 1:
        return c->executor.n_threads = 0, "executor.n_threads";
    default:
        return c->executor.parallel_for = NULL, "executor.parallel_for";
    }
}

static const char *spoil_workspace(call *c, fuzz_bytes *bytes)
{
    switch (fuzz_below(bytes, 4)) {
    case 0:
        return c->workspace = (char *)c->workspace + 1 + fuzz_below(bytes, 63), "its alignment";
    case 1:
        c->bytes = heed_linear_workspace_bytes(c->linear, c->begins ? c->n_parts : 1) - 1;
        return "a workspace that is a byte too small";
    case 2:
        c->bytes = fuzz_byte(bytes);
        return "a workspace that is much too small";
    default:
        c->begins = 1;
        return c->n_parts = fuzz_byte(bytes) & 1 ? 0 : UINT32_MAX, "n_parts";
    }
}

static const char *spoil_run(fuzz_linear *f, fuzz_bytes *bytes, call *c)
{
    heed_linear_args *a = c->args;
    const int64_t rows[] = {-1, INT64_C(1) << 31, INT64_MAX, INT64_MIN};
    const size_t struct_size[] = {0, 1, 7, 8, 20, 65537, SIZE_MAX};
    const kit_linear_spec *s = &f->p.spec;
    switch (fuzz_below(bytes, 10)) {
    case 9:
        a->residual = heed_as_const(a->y);
        a->residual.stride[s->out_dim > 1] *= -1;
        return s->residual && s->rows > (s->out_dim == 1) ? "y backwards as residual" : NULL;
    case 0:
        return a->rows = rows[fuzz_below(bytes, N(rows))], "rows";
    case 1:
    case 2:
        return spoil_view(f, bytes, a);
    case 3:
        a->residual = a->x;
        return s->residual ? NULL : "a residual";
    case 4:
        a->y.stride[s->rows > 1 && fuzz_byte(bytes) & 1 ? 0 : 1] = 0;
        return s->rows > 1 && s->out_dim > 1 ? "a y that broadcasts" : NULL;
    case 5:
        a->y.data = f->p.tensor[KIT_LINEAR_X].view.data;
        return s->rows ? "y is x" : NULL;
    case 6:
        a->struct_size = struct_size[fuzz_below(bytes, N(struct_size))];
        f->p.args.error = NULL; /* cannot be known then */
        return "args.struct_size";
    case 7:
        return spoil_executor(c, bytes);
    default:
        return spoil_workspace(c, bytes);
    }
}

/* ---- calling ----------------------------------------------------------------------------------
 */

static void take_sentence(fuzz_linear *f, fuzz_linear_refusal *r)
{
    const heed_linear_args *a = &f->p.args;
    memcpy(r->sentence.text, a->error ? a->error->text : heed_last_error(),
           sizeof r->sentence.text);
}

static void run(heed_context *context, fuzz_linear *f, fuzz_bytes *bytes, fuzz_linear_refusal *r)
{
    heed_linear *linear;
    r->status = heed_linear_create(context, &f->p.desc, f->weight_given, f->bias_given, &linear);
    if (r->status != HEED_OK)
        return; /* a backend alone may refuse */
    struct {
        heed_linear_args args;
        char tail[64];
    } room = {f->p.args, {0}};
    call c = {.args = &room.args,
              .linear = linear,
              .executor = {.struct_size = sizeof c.executor,
                           .n_threads = 2,
                           .parallel_for = kit_backwards},
              .n_parts = 1 + fuzz_below(bytes, 4),
              .begins = fuzz_byte(bytes) & 1};
    const size_t all = heed_linear_workspace_bytes(linear, c.n_parts);
    char *memory = aligned_alloc(64, (all + 63) / 64 * 64 + 64);
    c.workspace = memory;
    c.bytes = all;
    if (memory) {
        memset(memory, 0xa5, all);
        r->what = spoil_run(f, bytes, &c);
    }
    if (r->what) {
        r->status = c.begins ? heed_linear_begin(linear, c.args, c.n_parts, c.workspace, c.bytes)
                             : heed_linear_run(linear, c.args, c.workspace, c.bytes);
        take_sentence(f, r);
        if (c.begins && c.bytes == all && r->status != HEED_OK &&
            heed_run_part(memory, 0) == HEED_OK)
            r->what = "a part of a run that never began";
    }
    free(memory);
    heed_linear_release(linear);
}

fuzz_linear_refusal fuzz_linear_spoil(heed_context *context, fuzz_linear *f, fuzz_bytes *bytes)
{
    fuzz_linear_refusal r = {.status = HEED_OK};
    kit_matrix *y = &f->p.tensor[KIT_LINEAR_Y];
    unsigned char *before = malloc(y->buffer.bytes);
    if (!before)
        return r;
    memcpy(before, y->buffer.data, y->buffer.bytes);
    if (fuzz_byte(bytes) & 1) {
        heed_linear *linear = NULL;
        r.what = spoil_layer(f, bytes);
        if (r.what) {
            r.status =
                heed_linear_create(context, &f->p.desc, f->weight_given, f->bias_given, &linear);
            memcpy(r.sentence.text, heed_last_error(), sizeof r.sentence.text);
            r.touched = linear != NULL;
            heed_linear_release(linear);
        }
    } else {
        run(context, f, bytes, &r);
    }
    r.touched |= memcmp(before, y->buffer.data, y->buffer.bytes) != 0;
    free(before);
    return r;
}
