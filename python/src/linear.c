/* Linear. A layer belongs to the setting (threads, backends) under which it was made. */
#include "layer.h"

PyObject *linear_type;

int float_array(array *a, PyObject *object, const char *name, bool writable, uint32_t want,
                bool as_bf16)
{
    if (array_of(a, object, name, writable, as_bf16 || want == HEED_BF16) < 0)
        return -1;
    if (is_float(a->type) && (want == HEED_DTYPE_NONE || a->type == want))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is of %s; %s is needed", name, element_name(a->type),
                 want == HEED_DTYPE_NONE ? "f32, f16 or bf16" : element_name(want));
    array_release(a);
    return -1;
}

typedef struct linear_object {
    PyObject_HEAD heed_linear *linear;
    heed_linear_desc desc;
} linear_object;

static int accuracy_of(PyObject *object, uint32_t *out)
{
    static const char *const accuracies[] = {"default", "exact", "bf16", "split", NULL};
    int at = object ? word_of(object, "accuracy", accuracies) : 0;
    *out = (uint32_t)at;
    return at < 0 ? -1 : 0;
}

int weight_layout_of(PyObject *object, uint32_t *out)
{
    static const char *const layouts[] = {"in_out", "out_in", NULL};
    int at = object ? word_of(object, "layout", layouts) : HEED_LINEAR_OUT_IN;
    *out = (uint32_t)at;
    return at < 0 ? -1 : 0;
}

/* Reads in_dim, out_dim and heads of a weight. */
static int weight_dims(const array *w, const char *name, heed_linear_desc *desc)
{
    const int heads_first = w->axes == 3;
    const int in = heads_first + (desc->layout == HEED_LINEAR_IN_OUT ? 0 : 1);
    const int to = heads_first + (desc->layout == HEED_LINEAR_IN_OUT ? 1 : 0);
    int64_t heads;
    if (w->axes != 2 && !heads_first) {
        PyErr_Format(PyExc_ValueError, "%s has %d axes; 2 are needed, or 3 with heads first", name,
                     w->axes);
        return -1;
    }
    for (int i = 0; i < w->axes; i++)
        if (w->shape[i] < 1 || w->shape[i] > 1 << 24) {
            PyErr_Format(PyExc_ValueError, "axis %d of %s has %lld elements; 1 to 2^24 are needed",
                         i, name, (long long)w->shape[i]);
            return -1;
        }
    heads = heads_first ? w->shape[0] : 1;
    if (w->shape[to] * heads > 1 << 24) {
        PyErr_Format(PyExc_ValueError, "%s has more than 2^24 outputs", name);
        return -1;
    }
    desc->in_dim = (uint32_t)w->shape[in];
    desc->out_dim = (uint32_t)(w->shape[to] * heads);
    desc->heads = heads_first ? (uint32_t)heads : 0;
    return 0;
}

static int read_bias(array *b, PyObject *bias, const char *name, bool as_bf16,
                     heed_linear_desc *desc)
{
    if (float_array(b, bias, name, false, HEED_DTYPE_NONE, as_bf16 || desc->w_type == HEED_BF16) <
        0)
        return -1;
    if (b->axes != 1 || b->shape[0] != desc->out_dim) {
        PyErr_Format(PyExc_ValueError, "%s is not [%u]", name, (unsigned)desc->out_dim);
        return -1;
    }
    desc->features |= HEED_LINEAR_HAS_BIAS;
    desc->bias_type = b->type;
    return 0;
}

int make_linear(heed_context *context, heed_linear_desc *desc, PyObject *weight, PyObject *bias,
                const char *weight_name, const char *bias_name, bool as_bf16, heed_linear **out)
{
    array w, b;
    heed_const_view w_view = {NULL, {0}}, b_view = {NULL, {0}};
    int failed = -1, axes;
    array_none(&b);
    if (float_array(&w, weight, weight_name, false, desc->w_type, as_bf16) < 0)
        return -1;
    if (weight_dims(&w, weight_name, desc) < 0)
        goto end;
    desc->struct_size = sizeof *desc;
    desc->w_type = w.type;
    if (!desc->x_type)
        desc->x_type = w.type;
    if (!desc->y_type)
        desc->y_type = desc->x_type;
    w_view.data = w.data;
    axes = desc->heads == 1 ? 2 : w.axes; /* of one head the library sees its matrix */
    memcpy(w_view.stride, w.stride + (w.axes - axes), (size_t)axes * sizeof *w.stride);
    if (bias) {
        if (read_bias(&b, bias, bias_name, as_bf16, desc) < 0)
            goto end;
        b_view.data = b.data;
        b_view.stride[0] = b.stride[0];
    }
    {
        heed_status status;
        PyThreadState *state = PyEval_SaveThread();
        status = heed_linear_create(context, desc, &w_view, bias ? &b_view : NULL, out);
        PyEval_RestoreThread(state);
        failed = check(status);
    }
end:
    array_release(&w), array_release(&b);
    return failed;
}

static PyObject *linear_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    SIGNATURE(sig, "Linear", 2, 1, "weight", "bias", "layout", "activation", "residual", "accuracy",
              "dtype", "x_dtype", "y_dtype");
    static const char *const activations[] = {"none", "gelu", "gelu_tanh", "silu", NULL};
    PyObject *value[9];
    linear_object *self;
    heed_linear_desc desc = {0};
    heed_context *context = current_context();
    bool residual;
    int activation = 0;
    if (!context || read_tuple(&sig, args, kwargs, value) < 0 || arrays_needed(&sig, value, 1) < 0)
        return NULL;
    if (weight_layout_of(value[2], &desc.layout) < 0 ||
        (value[3] && (activation = word_of(value[3], "activation", activations)) < 0) ||
        truth_of(value[4], "residual", &residual) < 0 ||
        accuracy_of(value[5], &desc.accuracy) < 0 ||
        (value[6] && dtype_of(value[6], "dtype", false, &desc.w_type) < 0) ||
        (value[7] && dtype_of(value[7], "x_dtype", false, &desc.x_type) < 0) ||
        (value[8] && dtype_of(value[8], "y_dtype", false, &desc.y_type) < 0))
        return NULL;
    desc.activation = (uint32_t)activation;
    desc.features = residual ? HEED_LINEAR_HAS_RESIDUAL : 0;
    self = (linear_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    if (make_linear(context, &desc, value[0], value[1], "weight", "bias", false, &self->linear) <
        0) {
        Py_DECREF(self);
        return NULL;
    }
    self->desc = desc;
    return (PyObject *)self;
}

static void linear_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    heed_linear_release(((linear_object *)object)->linear);
    PyObject_Free(object);
    Py_DECREF((PyObject *)type);
}

/* x, the result and, if there is one, a residual. */
typedef struct linear_run {
    array x, y, residual;
    const array *all[3];
    int n;
    int64_t rows, step[3]; /* of one run, and where the next row of each array is */
    int first;             /* the axes before it number the runs */
} linear_run;

/* Joins the last axes before the columns to the rows of one run, as far as all arrays step through them
 * evenly. Axes of length 1 have no steps, whatever their strides. */
static void join_rows(linear_run *r)
{
    int axis = r->x.axes - 2;
    r->rows = 1;
    for (int i = 0; i < r->n; i++)
        r->step[i] = 0;
    for (; axis >= 0; axis--) {
        const int64_t length = r->x.shape[axis];
        for (int i = 0; i < r->n && length != 1; i++) {
            if (r->rows == 1)
                r->step[i] = r->all[i]->stride[axis];
            else if (r->all[i]->stride[axis] != r->rows * r->step[i])
                goto end;
        }
        r->rows *= length;
    }
end:
    r->first = axis + 1;
}

static int read_run(linear_run *r, const heed_linear_desc *desc, PyObject *const value[3])
{
    char have[128], want[128];
    int64_t shape[MAX_AXES];
    const bool added = desc->features & HEED_LINEAR_HAS_RESIDUAL;
    array *x = &r->x;
    if (float_array(x, value[0], "x", false, desc->x_type, false) < 0)
        return -1;
    if (x->axes < 1 || x->shape[x->axes - 1] != desc->in_dim) {
        PyErr_Format(PyExc_ValueError, "x has the shape %s; its last axis has %u elements",
                     shape_text(have, sizeof have, x->axes, x->shape), (unsigned)desc->in_dim);
        return -1;
    }
    memcpy(shape, x->shape, sizeof shape);
    shape[x->axes - 1] = desc->out_dim;
    if ((value[2] ? float_array(&r->y, value[2], "out", true, desc->y_type, false)
                  : array_new(&r->y, x, desc->y_type, x->axes, shape)) < 0 ||
        (added && float_array(&r->residual, value[1], "residual", false, desc->y_type, false) < 0))
        return -1;
    r->all[0] = x, r->all[1] = &r->y, r->all[2] = &r->residual;
    r->n = added ? 3 : 2;
    for (int i = 1; i < r->n; i++) {
        const array *a = r->all[i];
        if (a->axes != x->axes || memcmp(a->shape, shape, (size_t)x->axes * sizeof *shape)) {
            PyErr_Format(PyExc_ValueError, "%s has the shape %s, where %s is needed",
                         i == 2 ? "residual" : "out",
                         shape_text(have, sizeof have, a->axes, a->shape),
                         shape_text(want, sizeof want, x->axes, shape));
            return -1;
        }
    }
    if (!value[2])
        return 0;
    return given_apart(&r->y, x, "x", false) < 0
               ? -1
               : given_apart(&r->y, &r->residual, "residual", true);
}

/* Makes run i of those that join_rows leaves. */
static heed_status run_rows(const linear_object *self, const linear_run *r, int64_t i)
{
    const array *x = &r->x, *y = &r->y, *residual = &r->residual;
    heed_linear_args a = {.struct_size = sizeof a, .rows = r->rows};
    int64_t at[3] = {0}, rest = i;
    for (int axis = r->first; axis-- > 0; rest /= x->shape[axis])
        for (int j = 0; j < r->n; j++)
            at[j] += rest % x->shape[axis] * r->all[j]->stride[axis];
    a.x.data = (char *)address_of(x) + at[0] * element_bytes(x->type);
    a.y.data = (char *)address_of(y) + at[1] * element_bytes(y->type);
    a.x.stride[0] = r->step[0];
    a.y.stride[0] = r->step[1];
    a.x.stride[1] = x->stride[x->axes - 1];
    a.y.stride[1] = y->stride[y->axes - 1];
    if (r->rows == 1) /* this stride is not used, but an output's may not be 0 */
        a.y.stride[0] = self->desc.out_dim;
    if (r->n == 3) {
        a.residual.data = (char *)address_of(residual) + at[2] * element_bytes(residual->type);
        a.residual.stride[0] = r->step[2];
        a.residual.stride[1] = residual->stride[x->axes - 1];
    }
    return heed_linear_run(self->linear, &a, NULL, 0);
}

static int run_all(const linear_object *self, linear_run *r)
{
    int64_t outer = 1;
    heed_status status = HEED_OK;
    PyThreadState *state;
    join_rows(r);
    if (r->rows > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "x has more than 2^31 - 1 rows");
        return -1;
    }
    for (int i = 0; i < r->first; i++) {
        outer *= r->x.shape[i];
        if (r->y.shape[i] > 1 && r->y.stride[i] == 0) { /* the library sees one run at a time */
            PyErr_Format(PyExc_ValueError, "axis %d of out is repeated: outputs cannot broadcast",
                         i);
            return -1;
        }
    }
    state = PyEval_SaveThread();
    for (int64_t i = 0; i < outer && status == HEED_OK; i++)
        status = run_rows(self, r, i);
    PyEval_RestoreThread(state);
    return check(status);
}

static PyObject *linear_call(PyObject *object, PyObject *tuple, PyObject *named)
{
    SIGNATURE(sig, "Linear", 2, 1, "x", "residual", "out");
    linear_object *self = (linear_object *)object;
    PyObject *value[3], *result = NULL;
    linear_run r;
    const bool added = self->desc.features & HEED_LINEAR_HAS_RESIDUAL;
    if (read_tuple(&sig, tuple, named, value) < 0 || arrays_needed(&sig, value, 1) < 0)
        return NULL;
    if (!value[1] != !added) {
        PyErr_SetString(PyExc_ValueError, added ? "residual is needed: the layer was made with one"
                                                : "the layer was made without residual=True");
        return NULL;
    }
    array_none(&r.x), array_none(&r.y), array_none(&r.residual);
    if (read_run(&r, &self->desc, value) == 0 && run_all(self, &r) == 0)
        result = result_of(&r.y, value[2], &r.x);
    array_release(&r.x), array_release(&r.residual), array_release(&r.y);
    return result;
}

static heed_status linear_text(const void *linear, uint32_t json, char *text, size_t *bytes)
{
    return heed_linear_explain(linear, json, text, bytes);
}

static PyObject *linear_explain(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames)
{
    SIGNATURE(sig, "explain", 0, 0, "json");
    PyObject *value[1];
    bool json;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || truth_of(value[0], "json", &json) < 0)
        return NULL;
    return text_of(linear_text, ((linear_object *)object)->linear, json);
}

static PyObject *linear_dim(PyObject *object, void *out)
{
    const heed_linear_desc *desc = &((linear_object *)object)->desc;
    return PyLong_FromLong((long)(out ? desc->out_dim : desc->in_dim));
}

static PyMethodDef linear_methods[] = {
    {"explain", METHOD(linear_explain), METH_FASTCALL | METH_KEYWORDS, DOC_LINEAR_EXPLAIN}, {0}};

static PyGetSetDef linear_members[] = {
    {"in_dim", linear_dim, NULL, "columns of x", NULL},
    {"out_dim", linear_dim, NULL, "columns of the result", (void *)1},
    {0}};

static PyType_Slot linear_slots[] = {{Py_tp_doc, (void *)(uintptr_t)DOC_LINEAR},

                                     {Py_tp_new, SLOT(linear_new)},
                                     {Py_tp_call, SLOT(linear_call)},
                                     {Py_tp_dealloc, SLOT(linear_free)},
                                     {Py_tp_methods, linear_methods},
                                     {Py_tp_getset, linear_members},
                                     {0, NULL}};

static PyType_Spec linear_spec = {"heed.Linear", sizeof(linear_object), 0, Py_TPFLAGS_DEFAULT,
                                  linear_slots};

int linear_init(PyObject *module)
{
    linear_type = PyType_FromSpec(&linear_spec);
    return linear_type ? PyModule_AddObjectRef(module, "Linear", linear_type) : -1;
}
