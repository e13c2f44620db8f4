/* The arrays that a problem writes, and the result that the caller gets. */
#include "problem.h"

static void writable_view(heed_view *view, const array *a, const int64_t stride[4])
{
    view->data = address_of(a);
    memcpy(view->stride, stride, sizeof view->stride);
}

static int out_apart(const problem *p)
{
    const struct {
        const array *in;
        const char *name;
    } read[] = {{&p->q, "q"},           {&p->k, "k"},
                {&p->v, "v"},           {&p->mask, "mask"},
                {&p->bias, "bias"},     {&p->k_scale, "k_scale"},
                {&p->k_zero, "k_zero"}, {&p->v_scale, "v_scale"},
                {&p->v_zero, "v_zero"}};
    for (size_t i = 0; i < sizeof read / sizeof read[0]; i++)
        if (given_apart(&p->out, read[i].in, read[i].name, false) < 0)
            return -1;
    return 0;
}

static int given_out(problem *p, const attn_options *o, const attn_call *call,
                     const int64_t want[4], int64_t stride[4])
{
    int64_t shape[4];
    if (array_of(&p->out, call->out, "out", true, o->as_bf16) < 0 ||
        floats_needed(&p->out, "out") < 0 || in_layout(&p->out, &o->axes, "out", shape, stride) < 0)
        return -1;
    for (int i = 0; i < 4; i++)
        if (shape[i] != want[i]) {
            char have_text[128], want_text[128];
            PyErr_Format(PyExc_ValueError, "out has the shape %s (b, h, s, d), where %s is needed",
                         shape_text(have_text, sizeof have_text, 4, shape),
                         shape_text(want_text, sizeof want_text, 4, want));
            return -1;
        }
    return out_apart(p);
}

/* Makes a new f32 array with the axes that there are, filled where the run does not write. */
static int new_besides(problem *p, array *a, int axes, const int64_t *shape, float unwritten)
{
    if (array_new(a, &p->q, HEED_F32, axes, shape) < 0)
        return -1;
    if (p->args.q_lens) /* rows that no sequence has are not written */
        array_fill(a, unwritten);
    return 0;
}

static int make_lse(problem *p, const attn_options *o, const int64_t want[4])
{
    const int64_t stride[4] = {want[1] * want[2], want[2], 1, 0};
    int64_t shape[3];
    int axes = 0;
    if (o->axes.axis[0] >= 0)
        shape[axes++] = want[0];
    if (o->axes.axis[1] >= 0)
        shape[axes++] = want[1];
    shape[axes++] = want[2];
    if (new_besides(p, &p->lse, axes, shape, -INFINITY) < 0)
        return -1;
    p->desc.features |= HEED_HAS_LSE;
    writable_view(&p->args.lse, &p->lse, stride);
    return 0;
}

static int make_weights(problem *p, const attn_options *o)
{
    const int64_t full[4] = {p->args.batch, p->desc.q_heads, p->args.q_len, p->args.kv_len};
    int64_t shape[4], stride[4];
    int axes = 0;
    if (p->packed || o->axes.axis[0] >= 0)
        shape[axes++] = full[0];
    if (o->axes.axis[1] >= 0)
        shape[axes++] = full[1];
    shape[axes++] = full[2];
    shape[axes++] = full[3];
    if (new_besides(p, &p->weights, axes, shape, 0) < 0)
        return -1;
    stride[3] = 1;
    for (int i = 3; i-- > 0;) /* of an array that there is, so these fit */
        stride[i] = full[i + 1] * stride[i + 1];
    p->desc.features |= HEED_HAS_WEIGHTS;
    writable_view(&p->args.weights, &p->weights, stride);
    return 0;
}

int make_outputs(problem *p, const attn_options *o, const attn_call *call, const int64_t q_shape[4])
{
    const int64_t want[4] = {q_shape[0], q_shape[1], q_shape[2], p->desc.v_dim};
    int64_t shape[4], stride[4];
    if (call->out) {
        if (given_out(p, o, call, want, stride) < 0)
            return -1;
    } else {
        for (int i = 0; i < 4; i++)
            if (o->axes.axis[i] >= 0)
                shape[o->axes.axis[i]] = want[i];
        if (array_new(&p->out, &p->q, p->desc.q_type, o->axes.axes, shape) < 0)
            return -1;
        in_layout(&p->out, &o->axes, "out", shape, stride);
        if (p->args.q_lens) /* rows that no sequence has are not written */
            array_fill(&p->out, 0);
    }
    p->desc.out_type = p->out.type;
    writable_view(&p->args.out, &p->out, stride);
    if (call->return_lse && make_lse(p, o, want) < 0)
        return -1;
    return call->return_weights ? make_weights(p, o) : 0;
}

int describe_outputs(problem *p, const attn_options *o, const attn_call *call,
                     const int64_t q_shape[4])
{
    const int64_t want[4] = {q_shape[0], q_shape[1], q_shape[2], p->desc.v_dim};
    int64_t stride[4];
    if (call->out && given_out(p, o, call, want, stride) < 0)
        return -1;
    p->desc.out_type = call->out ? p->out.type : p->desc.q_type;
    if (call->return_lse)
        p->desc.features |= HEED_HAS_LSE;
    if (call->return_weights)
        p->desc.features |= HEED_HAS_WEIGHTS;
    return 0;
}

PyObject *problem_results(problem *p, const attn_call *call)
{
    PyObject *out, *lse = NULL, *weights = NULL, *all = NULL;
    out = result_of(&p->out, call->out, &p->q);
    if (!out || (!call->return_lse && !call->return_weights))
        return out;
    if (call->return_lse)
        lse = array_result(&p->lse, &p->q);
    if (call->return_weights)
        weights = array_result(&p->weights, &p->q);
    if ((call->return_lse && !lse) || (call->return_weights && !weights))
        goto end;
    if (lse && weights)
        all = PyTuple_Pack(3, out, lse, weights);
    else
        all = PyTuple_Pack(2, out, lse ? lse : weights);
end:
    Py_DECREF(out);
    Py_XDECREF(lse);
    Py_XDECREF(weights);
    return all;
}
