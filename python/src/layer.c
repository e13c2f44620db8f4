/*
 * Linear, MultiHeadAttention and rotary. Layers belong to the setting (threads, backends) under which
 * they were made. A MultiHeadAttention makes its heed_mha for each combination of optional arguments and
 * greatest lengths, rounded up, and keeps the last few: that copies no weights.
 */
#include "docs.h"
#include "heed_py.h"

#include <pthread.h>

static PyObject *linear_type, *mha_type;

static void *there(const void *data)
{
    static char nothing[64];
    return data ? (void *)(uintptr_t)data : nothing;
}

static bool is_float(uint32_t type)
{
    return type >= HEED_F32 && type <= HEED_BF16;
}

static int float_array(array *a, PyObject *object, const char *name, bool writable, uint32_t want)
{
    if (array_of(a, object, name, writable, want == HEED_BF16) < 0)
        return -1;
    if (is_float(a->type) && (want == HEED_DTYPE_NONE || a->type == want))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is of %s; %s is needed", name, element_name(a->type),
                 want == HEED_DTYPE_NONE ? "f32, f16 or bf16" : element_name(want));
    array_release(a);
    return -1;
}

/* ---- Linear ------------------------------------------------------------------------------------------- */

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

static int weight_layout_of(PyObject *object, uint32_t *out)
{
    static const char *const layouts[] = {"in_out", "out_in", NULL};
    int at = object ? word_of(object, "layout", layouts) : HEED_LINEAR_OUT_IN;
    *out = (uint32_t)at;
    return at < 0 ? -1 : 0;
}

/* desc's layout, activation, accuracy and features are set; the rest is read off the arrays. */
static int make_linear(heed_context *context, heed_linear_desc *desc, PyObject *weight,
                       PyObject *bias, const char *weight_name, const char *bias_name,
                       heed_linear **out)
{
    array w, b;
    heed_const_view w_view = {NULL, {0}}, b_view = {NULL, {0}};
    int failed = -1, heads_first;
    array_none(&b);
    if (float_array(&w, weight, weight_name, false,
                    desc->w_type == HEED_BF16 ? HEED_BF16 : HEED_DTYPE_NONE) < 0)
        return -1;
    heads_first = w.axes == 3;
    if (w.axes != 2 && !heads_first) {
        PyErr_Format(PyExc_ValueError, "%s has %d axes; 2 are needed, or 3 with heads first",
                     weight_name, w.axes);
        goto end;
    }
    for (int i = 0; i < w.axes; i++)
        if (w.shape[i] < 1 || w.shape[i] > 1 << 24) {
            PyErr_Format(PyExc_ValueError, "axis %d of %s has %lld elements; 1 to 2^24 are needed",
                         i, weight_name, (long long)w.shape[i]);
            goto end;
        }
    {
        const int in = heads_first + (desc->layout == HEED_LINEAR_IN_OUT ? 0 : 1);
        const int to = heads_first + (desc->layout == HEED_LINEAR_IN_OUT ? 1 : 0);
        const int64_t heads = heads_first ? w.shape[0] : 1;
        if (w.shape[to] * heads > 1 << 24) {
            PyErr_Format(PyExc_ValueError, "%s has more than 2^24 outputs", weight_name);
            goto end;
        }
        desc->in_dim = (uint32_t)w.shape[in];
        desc->out_dim = (uint32_t)(w.shape[to] * heads);
        desc->heads = heads_first ? (uint32_t)heads : 0;
    }
    desc->struct_size = sizeof *desc;
    desc->w_type = w.type;
    if (!desc->x_type)
        desc->x_type = w.type;
    if (!desc->y_type)
        desc->y_type = desc->x_type;
    w_view.data = w.data;
    memcpy(w_view.stride, w.stride, (size_t)w.axes * sizeof *w.stride);
    if (bias) {
        if (float_array(&b, bias, bias_name, false,
                        w.type == HEED_BF16 ? HEED_BF16 : HEED_DTYPE_NONE) < 0) {
            if (w.type != HEED_BF16)
                goto end;
            PyErr_Clear(); /* an f32 bias of bf16 weights */
            if (float_array(&b, bias, bias_name, false, HEED_DTYPE_NONE) < 0)
                goto end;
        }
        if (b.axes != 1 || b.shape[0] != desc->out_dim) {
            PyErr_Format(PyExc_ValueError, "%s is not [%u]", bias_name, (unsigned)desc->out_dim);
            goto end;
        }
        desc->features |= HEED_LINEAR_HAS_BIAS;
        desc->bias_type = b.type;
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
    if (!context || read_tuple(&sig, args, kwargs, value) < 0)
        return NULL;
    if (!value[0]) {
        PyErr_SetString(PyExc_ValueError, "weight is None; an array is needed");
        return NULL;
    }
    if (weight_layout_of(value[2], &desc.layout) < 0 ||
        (value[3] && (activation = word_of(value[3], "activation", activations)) < 0) ||
        truth_of(value[4], &residual) < 0 || accuracy_of(value[5], &desc.accuracy) < 0 ||
        (value[6] && dtype_of(value[6], "dtype", false, &desc.w_type) < 0) ||
        (value[7] && dtype_of(value[7], "x_dtype", false, &desc.x_type) < 0) ||
        (value[8] && dtype_of(value[8], "y_dtype", false, &desc.y_type) < 0))
        return NULL;
    desc.activation = (uint32_t)activation;
    desc.features = residual ? HEED_LINEAR_HAS_RESIDUAL : 0;
    self = (linear_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    if (make_linear(context, &desc, value[0], value[1], "weight", "bias", &self->linear) < 0) {
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

/* The last axes before the columns that lie behind each other in all arrays are the rows of one run. */
static int64_t joined_rows(const array *const *arrays, int n, int *first)
{
    int axis = arrays[0]->axes - 2;
    int64_t rows = axis < 0 ? 1 : arrays[0]->shape[axis];
    for (; axis > 0; axis--) {
        for (int i = 0; i < n; i++)
            if (arrays[i]->shape[axis - 1] != 1 &&
                arrays[i]->stride[axis - 1] != rows * arrays[i]->stride[arrays[i]->axes - 2])
                goto end;
        rows *= arrays[0]->shape[axis - 1];
    }
end:
    *first = axis < 0 ? 0 : axis;
    return rows;
}

static PyObject *linear_call(PyObject *object, PyObject *tuple, PyObject *named)
{
    SIGNATURE(sig, "Linear", 2, 1, "x", "residual", "out");
    linear_object *self = (linear_object *)object;
    PyObject *value[3], *result = NULL;
    array x, residual, y;
    const array *all[3];
    int n = 2, first;
    int64_t shape[MAX_AXES], rows, outer = 1;
    const bool added = self->desc.features & HEED_LINEAR_HAS_RESIDUAL;
    if (read_tuple(&sig, tuple, named, value) < 0)
        return NULL;
    if (!value[0]) {
        PyErr_SetString(PyExc_ValueError, "x is None; an array is needed");
        return NULL;
    }
    if (!value[1] != !added) {
        PyErr_SetString(PyExc_ValueError, added ? "residual is needed: the layer was made with one"
                                                : "the layer was made without residual=True");
        return NULL;
    }
    array_none(&residual), array_none(&y);
    if (float_array(&x, value[0], "x", false, self->desc.x_type) < 0)
        return NULL;
    if (x.axes < 1 || x.shape[x.axes - 1] != self->desc.in_dim) {
        char text[128];
        PyErr_Format(PyExc_ValueError, "x has the shape %s; its last axis has %u elements",
                     shape_text(text, sizeof text, x.axes, x.shape), (unsigned)self->desc.in_dim);
        goto end;
    }
    memcpy(shape, x.shape, sizeof shape);
    shape[x.axes - 1] = self->desc.out_dim;
    if (value[2]) {
        if (float_array(&y, value[2], "out", true, self->desc.y_type) < 0)
            goto end;
    } else if (array_new(&y, &x, self->desc.y_type, x.axes, shape) < 0) {
        goto end;
    }
    if (added && float_array(&residual, value[1], "residual", false, self->desc.y_type) < 0)
        goto end;
    for (int i = 0; i < 2; i++) {
        const array *a = i ? &residual : &y;
        if (a->object &&
            (a->axes != x.axes || memcmp(a->shape, shape, (size_t)x.axes * sizeof *shape))) {
            char have[128], want[128];
            PyErr_Format(PyExc_ValueError, "%s has the shape %s, where %s is needed",
                         i ? "residual" : "out", shape_text(have, sizeof have, a->axes, a->shape),
                         shape_text(want, sizeof want, x.axes, shape));
            goto end;
        }
    }
    all[0] = &x, all[1] = &y;
    if (added)
        all[n++] = &residual;
    rows = joined_rows(all, n, &first);
    if (rows > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "x has more than 2^31 - 1 rows");
        goto end;
    }
    for (int i = 0; i < first; i++)
        outer *= x.shape[i];
    {
        heed_status status = HEED_OK;
        PyThreadState *state = PyEval_SaveThread();
        for (int64_t i = 0; i < outer && status == HEED_OK; i++) {
            heed_linear_args a = {.struct_size = sizeof a, .rows = rows};
            int64_t at[3] = {0}, rest = i;
            for (int axis = first; axis-- > 0; rest /= x.shape[axis])
                for (int j = 0; j < n; j++)
                    at[j] += rest % x.shape[axis] * all[j]->stride[axis];
            a.x.data = (char *)there(x.data) + at[0] * element_bytes(x.type);
            a.y.data = (char *)there(y.data) + at[1] * element_bytes(y.type);
            if (x.axes > 1) {
                a.x.stride[0] = x.stride[x.axes - 2];
                a.y.stride[0] = y.stride[y.axes - 2];
            }
            a.x.stride[1] = x.stride[x.axes - 1];
            a.y.stride[1] = y.stride[y.axes - 1];
            if (rows == 1) /* a stride that no row takes may be anything, but of an output not 0 */
                a.y.stride[0] = self->desc.out_dim;
            if (added) {
                a.residual.data =
                    (char *)there(residual.data) + at[2] * element_bytes(residual.type);
                a.residual.stride[0] = x.axes > 1 ? residual.stride[x.axes - 2] : 0;
                a.residual.stride[1] = residual.stride[x.axes - 1];
            }
            status = heed_linear_run(self->linear, &a, NULL, 0);
        }
        PyEval_RestoreThread(state);
        if (check(status) < 0)
            goto end;
    }
    if (value[2]) {
        result = value[2];
        Py_INCREF(result);
    } else {
        result = array_result(&y, &x);
    }
end:
    array_release(&x), array_release(&residual), array_release(&y);
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
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || truth_of(value[0], &json) < 0)
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

/* ---- rotary --------------------------------------------------------------------------------------------- */

/* Its frequencies are held in `freq`. */
static int rotary_numbers(heed_rotary_desc *r, numbers *freq, PyObject *style, PyObject *dims,
                          PyObject *base, PyObject *scale, PyObject *mscale, PyObject *given_freq,
                          int64_t dim)
{
    static const char *const styles[] = {"half", "interleaved", NULL};
    int at = style ? word_of(style, "style", styles) : 0;
    int64_t turned = dim;
    numbers_none(freq);
    memset(r, 0, sizeof *r);
    if (at < 0 || (dims && int64_of(dims, "dims", 1, &turned) < 0))
        return -1;
    if (turned > dim || turned % 2) {
        PyErr_Format(PyExc_ValueError,
                     "dims is %lld; an even number up to the %lld of a row is needed",
                     (long long)turned, (long long)dim);
        return -1;
    }
    r->style = at ? HEED_ROTARY_INTERLEAVED : HEED_ROTARY_HALF;
    r->dims = (uint32_t)turned;
    if ((base && float_of(base, "base", &r->base) < 0) ||
        (scale && float_of(scale, "scale", &r->scale) < 0) ||
        (mscale && float_of(mscale, "mscale", &r->mscale) < 0))
        return -1;
    if (given_freq) {
        if (floats_of(freq, given_freq, "freq", turned / 2) < 0)
            return -1;
        r->freq = freq->data;
    }
    return 0;
}

PyObject *py_rotary(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "rotary", 1, 1, "x", "offsets", "positions", "lens", "style", "dims", "base",
              "scale", "mscale", "freq", "layout", "out", "dtype");
    PyObject *value[13], *result = NULL;
    array x, y, positions;
    numbers offsets, lens, freq;
    layout axes;
    uint32_t type = HEED_DTYPE_NONE;
    int64_t shape[4], out_shape[4];
    heed_rotary_args a = {.struct_size = sizeof a};
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || layout_of(value[10], &axes) < 0 ||
        (value[12] && dtype_of(value[12], "dtype", false, &type) < 0))
        return NULL;
    if (!value[0]) {
        PyErr_SetString(PyExc_ValueError, "x is None; an array is needed");
        return NULL;
    }
    array_none(&y), array_none(&positions);
    numbers_none(&offsets), numbers_none(&lens), numbers_none(&freq);
    if (float_array(&x, value[0], "x", false, type) < 0)
        return NULL;
    if (in_layout(&x, &axes, "x", shape, a.x.stride) < 0 ||
        rotary_numbers(&a.rotary, &freq, value[4], value[5], value[6], value[7], value[8], value[9],
                       shape[3]) < 0)
        goto end;
    if (value[11] ? float_array(&y, value[11], "out", true,
                                type == HEED_BF16 ? HEED_BF16 : HEED_DTYPE_NONE) < 0
                  : array_new(&y, &x, x.type, x.axes, x.shape) < 0)
        goto end;
    if (in_layout(&y, &axes, "out", out_shape, a.y.stride) < 0)
        goto end;
    if (memcmp(shape, out_shape, sizeof shape)) {
        PyErr_SetString(PyExc_ValueError, "out differs from x in shape");
        goto end;
    }
    a.x.data = there(x.data);
    a.y.data = there(y.data);
    a.x_type = x.type;
    a.y_type = y.type;
    a.batch = shape[0];
    a.heads = (uint32_t)shape[1];
    a.len = shape[2];
    a.dim = (uint32_t)shape[3];
    if (value[1]) {
        if (int32s_of(&offsets, value[1], "offsets", shape[0]) < 0)
            goto end;
        a.offsets = offsets.data;
    }
    if (value[2]) {
        if (array_of(&positions, value[2], "positions", false, false) < 0)
            goto end;
        if (positions.type != EL_I32 || positions.axes < 1 || positions.axes > 2 ||
            positions.shape[positions.axes - 1] != shape[2] ||
            (positions.axes == 2 && positions.shape[0] != shape[0]) ||
            (shape[2] > 1 && positions.stride[positions.axes - 1] != 1)) {
            PyErr_SetString(PyExc_ValueError,
                            "positions is no int32 array [batch, rows] with adjacent rows");
            goto end;
        }
        if (positions.axes == 1 && shape[0] > 1) {
            PyErr_SetString(PyExc_ValueError, "positions has one axis, and x several sequences");
            goto end;
        }
        a.positions = there(positions.data);
        a.positions_stride = positions.axes == 2 ? positions.stride[0] : shape[2];
    }
    if (value[3]) {
        if (int32s_of(&lens, value[3], "lens", shape[0]) < 0)
            goto end;
        a.lens = lens.data;
        if (!value[11])
            array_fill(&y, 0);
    }
    {
        heed_status status;
        PyThreadState *state = PyEval_SaveThread();
        status = heed_rotary(&a);
        PyEval_RestoreThread(state);
        if (check(status) < 0)
            goto end;
    }
    if (value[11]) {
        result = value[11];
        Py_INCREF(result);
    } else {
        result = array_result(&y, &x);
    }
end:
    array_release(&x), array_release(&y), array_release(&positions);
    numbers_release(&offsets), numbers_release(&lens), numbers_release(&freq);
    return result;
}

/* ---- MultiHeadAttention --------------------------------------------------------------------------------- */

/* What a heed_mha was made for besides the layer. */
typedef struct made_for {
    uint64_t attn_features, features;
    uint32_t bias_type, k_type, v_type, page_len;
    int64_t max_batch, max_q_len, max_kv_len, max_kv_rows;
} made_for;

enum { KEPT = 8 };

typedef struct mha_object {
    PyObject_HEAD heed_context *context;
    heed_linear *proj[4]; /* q, k, v, out; out may be NULL */
    attn_options options; /* position is held */
    heed_attn_desc desc;
    heed_rotary_desc rotary;
    numbers freq;
    uint32_t d_model, d_kv, x_type, out_dim;
    bool cross;
    pthread_mutex_t lock;
    struct {
        made_for key;
        heed_mha *mha;
    } kept[KEPT];
    int n_kept, next;
} mha_object;

static PyObject *dict_item(PyObject *dict, const char *name)
{
    PyObject *item = PyDict_GetItemString(dict, name); /* borrowed */
    return item == Py_None ? NULL : item;
}

static int read_rotary(mha_object *self, PyObject *rotary)
{
    static const char *const known[] = {"style", "dims", "base", "scale", "mscale", "freq", NULL};
    PyObject *name, *item;
    Py_ssize_t at = 0;
    if (!rotary || rotary == Py_False)
        return 0;
    if (rotary == Py_True)
        return rotary_numbers(&self->rotary, &self->freq, NULL, NULL, NULL, NULL, NULL, NULL,
                              self->desc.qk_dim);
    if (!PyDict_Check(rotary)) {
        PyErr_Format(PyExc_ValueError,
                     "rotary is %R; True or a dict with what heed.rotary takes is needed", rotary);
        return -1;
    }
    while (PyDict_Next(rotary, &at, &name, &item))
        if (word_of(name, "a key of rotary", known) < 0)
            return -1;
    return rotary_numbers(&self->rotary, &self->freq, dict_item(rotary, "style"),
                          dict_item(rotary, "dims"), dict_item(rotary, "base"),
                          dict_item(rotary, "scale"), dict_item(rotary, "mscale"),
                          dict_item(rotary, "freq"), self->desc.qk_dim);
}

static int heads_of(PyObject *object, const char *name, uint32_t *out)
{
    int64_t n;
    if (int64_of(object, name, 1, &n) < 0)
        return -1;
    if (n > 1 << 24) {
        PyErr_Format(PyExc_ValueError, "%s is %lld, more than 2^24", name, (long long)n);
        return -1;
    }
    *out = (uint32_t)n;
    return 0;
}

static int head_dim(const char *name, uint32_t columns, uint32_t heads, uint32_t *out)
{
    *out = columns / heads;
    if (columns % heads == 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s has %u outputs, no multiple of %u heads", name,
                 (unsigned)columns, (unsigned)heads);
    return -1;
}

static PyObject *mha_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    SIGNATURE(sig, "MultiHeadAttention", 5, 4, "q_heads", "wq", "wk", "wv", "wo", "bq", "bk", "bv",
              "bo", "kv_heads", "layout", "cross", "causal", "window", "scale", "softcap",
              "position", "rotary", "accuracy", "dtype");
    static const char *const weight_name[] = {"wq", "wk", "wv", "wo"};
    static const char *const bias_name[] = {"bq", "bk", "bv", "bo"};
    PyObject *value[20];
    mha_object *self;
    heed_linear_desc linear[4];
    heed_attn_desc *desc;
    uint32_t given_type = HEED_DTYPE_NONE, k_dim, w_layout;
    if (read_tuple(&sig, args, kwargs, value) < 0 || weight_layout_of(value[10], &w_layout) < 0 ||
        (value[19] && dtype_of(value[19], "dtype", false, &given_type) < 0))
        return NULL;
    for (int i = 0; i < 4; i++)
        if (!value[i]) {
            PyErr_Format(PyExc_ValueError, "%s is needed", sig.names[i]);
            return NULL;
        }
    self = (mha_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    pthread_mutex_init(&self->lock, NULL);
    desc = &self->desc;
    self->context = current_context();
    if (!self->context || truth_of(value[11], &self->cross) < 0 ||
        attn_options_of(&self->options, value[12], value[13], value[14], value[15], value[16],
                        value[18], NULL, NULL) < 0)
        goto failed;
    Py_XINCREF(self->options.position);
    if (heads_of(value[0], "q_heads", &desc->q_heads) < 0 ||
        heads_of(value[9] ? value[9] : value[0], "kv_heads", &desc->kv_heads) < 0)
        goto failed;
    if (value[8] && !value[4]) {
        PyErr_SetString(PyExc_ValueError, "bo is given without wo");
        goto failed;
    }
    for (int i = 0; i < 4; i++) {
        memset(&linear[i], 0, sizeof linear[i]);
        if (!value[1 + i])
            continue;
        linear[i].layout = w_layout;
        linear[i].w_type = given_type == HEED_BF16 ? HEED_BF16 : HEED_DTYPE_NONE;
        linear[i].x_type = given_type;
        linear[i].accuracy =
            self->options.accuracy == HEED_ACCURACY_INT8 ? 0 : self->options.accuracy;
        if (make_linear(self->context, &linear[i], value[1 + i], value[5 + i], weight_name[i],
                        bias_name[i], &self->proj[i]) < 0)
            goto failed;
        if (linear[i].x_type != linear[0].x_type) {
            PyErr_Format(PyExc_ValueError, "wq is of %s and %s of %s; dtype says what x is",
                         element_name(linear[0].w_type), weight_name[i],
                         element_name(linear[i].w_type));
            goto failed;
        }
    }
    if (head_dim("wq", linear[0].out_dim, desc->q_heads, &desc->qk_dim) < 0 ||
        head_dim("wk", linear[1].out_dim, desc->kv_heads, &k_dim) < 0 ||
        head_dim("wv", linear[2].out_dim, desc->kv_heads, &desc->v_dim) < 0)
        goto failed;
    if (k_dim != desc->qk_dim) {
        PyErr_Format(PyExc_ValueError, "a head of wq has %u dims, of wk %u", (unsigned)desc->qk_dim,
                     (unsigned)k_dim);
        goto failed;
    }
    desc->struct_size = sizeof *desc;
    desc->q_type = desc->k_type = desc->v_type = desc->out_type = linear[0].y_type;
    attn_options_into(&self->options, false, desc);
    self->x_type = linear[0].x_type;
    self->d_model = linear[0].in_dim;
    self->d_kv = self->cross ? linear[1].in_dim : 0;
    self->out_dim = value[4] ? linear[3].out_dim : desc->q_heads * desc->v_dim;
    if (read_rotary(self, value[17]) < 0)
        goto failed;
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static void mha_free(PyObject *object)
{
    mha_object *self = (mha_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (int i = 0; i < self->n_kept; i++)
        heed_mha_release(self->kept[i].mha);
    for (int i = 0; i < 4; i++)
        heed_linear_release(self->proj[i]);
    numbers_release(&self->freq);
    pthread_mutex_destroy(&self->lock);
    Py_XDECREF(self->options.position);
    PyObject_Free(object);
    Py_DECREF((PyObject *)type);
}

static int64_t rounded_up(int64_t n)
{
    int64_t power = 1;
    while (power < n)
        power *= 2;
    return power > INT32_MAX ? INT32_MAX : power;
}

/* A hold on the heed_mha for this key. */
static heed_mha *mha_for(mha_object *self, const made_for *key, const heed_attn_desc *call)
{
    heed_mha *mha = NULL, *old = NULL;
    pthread_mutex_lock(&self->lock);
    for (int i = 0; i < self->n_kept && !mha; i++)
        if (!memcmp(&self->kept[i].key, key, sizeof *key)) {
            mha = self->kept[i].mha;
            heed_mha_retain(mha);
        }
    pthread_mutex_unlock(&self->lock);
    if (mha)
        return mha;
    {
        heed_attn_desc attn = *call;
        heed_mha_desc desc = {.struct_size = sizeof desc, .features = key->features, .attn = &attn};
        attn.max_batch = key->max_batch;
        attn.max_q_len = key->max_q_len;
        attn.max_kv_len = key->max_kv_len;
        desc.q_proj = self->proj[0];
        desc.k_proj = self->proj[1];
        desc.v_proj = self->proj[2];
        desc.out_proj = self->proj[3];
        desc.d_model = self->d_model;
        desc.d_kv = self->d_kv;
        desc.x_type = self->x_type;
        desc.kv_type = self->cross ? self->x_type : HEED_DTYPE_NONE;
        desc.rotary = self->rotary;
        desc.max_kv_rows = key->max_kv_rows;
        if (check(heed_mha_create(self->context, &desc, &mha)) < 0)
            return NULL;
    }
    heed_mha_retain(mha);
    pthread_mutex_lock(&self->lock);
    {
        int at = self->n_kept < KEPT ? self->n_kept++ : self->next++ % KEPT;
        old = self->kept[at].mha;
        self->kept[at].mha = mha;
        self->kept[at].key = *key;
    }
    pthread_mutex_unlock(&self->lock);
    heed_mha_release(old); /* a run of it has its own hold */
    return mha;
}

static int rows_shape(const array *a, const char *name, int64_t columns)
{
    char text[128];
    if (a->axes == 3 && a->shape[2] == columns)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s has the shape %s; [batch, rows, %lld] is needed", name,
                 shape_text(text, sizeof text, a->axes, a->shape), (long long)columns);
    return -1;
}

static PyObject *mha_call(PyObject *object, PyObject *tuple, PyObject *named)
{
    SIGNATURE(sig, "MultiHeadAttention", 2, 1, "x", "x_kv", "cache", "mask", "bias", "q_lens",
              "kv_lens", "position", "alibi", "sinks", "out", "return_lse", "return_weights");
    mha_object *self = (mha_object *)object;
    PyObject *value[13], *result = NULL, *part[3] = {NULL, NULL, NULL};
    array x, x_kv, y, mask, bias, lse, weights;
    numbers q_lens, kv_lens, offsets, alibi, sinks;
    cache_object *cache = NULL;
    heed_attn_desc desc = self->desc;
    heed_mha_args a = {.struct_size = sizeof a};
    attn_options o = self->options;
    made_for key;
    heed_mha *mha = NULL;
    bool return_lse, return_weights;
    int64_t keys, new_keys, want[4];
    int n = 0;
    if (read_tuple(&sig, tuple, named, value) < 0 || truth_of(value[11], &return_lse) < 0 ||
        truth_of(value[12], &return_weights) < 0)
        return NULL;
    array_none(&x), array_none(&x_kv), array_none(&y), array_none(&mask), array_none(&bias);
    array_none(&lse), array_none(&weights);
    numbers_none(&q_lens), numbers_none(&kv_lens), numbers_none(&offsets);
    numbers_none(&alibi), numbers_none(&sinks);
    memset(&key, 0, sizeof key);
    if (!value[0]) {
        PyErr_SetString(PyExc_ValueError, "x is None; an array is needed");
        return NULL;
    }
    if (float_array(&x, value[0], "x", false, self->x_type) < 0 ||
        rows_shape(&x, "x", self->d_model) < 0)
        goto end;
    a.batch = x.shape[0];
    a.q_len = new_keys = keys = x.shape[1];
    a.x_q.data = there(x.data);
    memcpy(a.x_q.stride, x.stride, 3 * sizeof *x.stride);
    if (value[2]) {
        if (Py_TYPE(value[2]) != (PyTypeObject *)cache_type) {
            PyErr_Format(PyExc_ValueError, "cache is %R; a heed.KVCache is needed", value[2]);
            goto end;
        }
        cache = (cache_object *)value[2];
        if (cache->batch != a.batch || cache->kv_heads != desc.kv_heads ||
            cache->qk_dim != desc.qk_dim || cache->v_dim != desc.v_dim) {
            PyErr_SetString(PyExc_ValueError, "the cache is of another batch, heads or dims");
            goto end;
        }
    }
    if (self->cross) {
        key.features |= HEED_MHA_HAS_CROSS;
        new_keys = 0;
        if (value[1]) {
            if (float_array(&x_kv, value[1], "x_kv", false, self->x_type) < 0 ||
                rows_shape(&x_kv, "x_kv", self->d_kv) < 0)
                goto end;
            if (x_kv.shape[0] != a.batch) {
                PyErr_Format(PyExc_ValueError, "the batch of x_kv is %lld, of x %lld",
                             (long long)x_kv.shape[0], (long long)a.batch);
                goto end;
            }
            new_keys = x_kv.shape[1];
            memcpy(a.x_kv.stride, x_kv.stride, 3 * sizeof *x_kv.stride);
        } else if (!cache) {
            PyErr_SetString(PyExc_ValueError, "x_kv is needed: the layer is a cross-attention");
            goto end;
        }
        a.x_kv.data = there(x_kv.data);
        a.kv_len = keys = new_keys;
    } else if (value[1]) {
        PyErr_SetString(PyExc_ValueError,
                        "x_kv is given, but the layer was made without cross=True");
        goto end;
    }
    if (value[5]) {
        if (int32s_of(&q_lens, value[5], "q_lens", a.batch) < 0)
            goto end;
        a.q_lens = q_lens.data;
        desc.features |= HEED_HAS_LENS;
    }
    if (value[6]) {
        if (!self->cross) {
            PyErr_SetString(PyExc_ValueError, "kv_lens is given, but the layer was made without "
                                              "cross=True; q_lens counts its rows");
            goto end;
        }
        if (int32s_of(&kv_lens, value[6], "kv_lens", a.batch) < 0)
            goto end;
        a.kv_lens = kv_lens.data;
        desc.features |= HEED_HAS_LENS;
    }
    if (cache) {
        const int32_t *more = self->cross ? a.kv_lens : a.q_lens;
        if (cache_make_room(cache, more, new_keys) < 0)
            goto end;
        key.features |= HEED_MHA_HAS_CACHE;
        a.capacity = keys = cache->capacity;
        a.k_cache.data = cache->k;
        a.v_cache.data = cache->v;
        memcpy(a.k_cache.stride, cache->k_stride, sizeof cache->k_stride);
        memcpy(a.v_cache.stride, cache->v_stride, sizeof cache->v_stride);
        a.cache_lens = cache->lens;
        desc.k_type = cache->k_type;
        desc.v_type = cache->v_type;
        if (cache->page_len) {
            desc.features |= HEED_HAS_PAGES;
            desc.page_len = cache->page_len;
            a.block_table = cache->block_table;
            a.block_table_stride = cache->table_stride;
            a.n_pages = cache->n_pages;
        }
    }
    want[0] = a.batch, want[1] = desc.q_heads, want[2] = a.q_len, want[3] = keys;
    if (value[3]) {
        if (array_of(&mask, value[3], "mask", false, false) < 0)
            goto end;
        if (element_bytes(mask.type) != 1) {
            PyErr_Format(PyExc_ValueError,
                         "mask is of %s; bool is needed, true where a row attends",
                         element_name(mask.type));
            goto end;
        }
        if (broadcast(&mask, "mask", want, a.mask.stride) < 0)
            goto end;
        a.mask.data = there(mask.data);
        desc.features |= HEED_HAS_MASK;
    }
    if (value[4]) {
        if (float_array(&bias, value[4], "bias", false, HEED_DTYPE_NONE) < 0 ||
            broadcast(&bias, "bias", want, a.bias.stride) < 0)
            goto end;
        a.bias.data = there(bias.data);
        desc.bias_type = bias.type;
        desc.features |= HEED_HAS_BIAS;
    }
    if (value[8]) {
        if (floats_of(&alibi, value[8], "alibi", desc.q_heads) < 0)
            goto end;
        a.alibi_slope = alibi.data;
        desc.features |= HEED_HAS_ALIBI;
    }
    if (value[9]) {
        if (floats_of(&sinks, value[9], "sinks", desc.q_heads) < 0)
            goto end;
        a.sink = sinks.data;
        desc.features |= HEED_HAS_SINK;
    }
    if (value[7])
        o.position = value[7];
    attn_options_into(&o, value[8], &desc);
    if (desc.position == HEED_POS_GIVEN) {
        if (int32s_of(&offsets, o.position, "position", a.batch) < 0)
            goto end;
        a.q_offsets = offsets.data;
    }
    {
        const int64_t shape[3] = {a.batch, a.q_len, self->out_dim};
        if (value[10]) {
            if (float_array(&y, value[10], "out", true, self->desc.out_type) < 0 ||
                rows_shape(&y, "out", self->out_dim) < 0)
                goto end;
            if (y.shape[0] != shape[0] || y.shape[1] != shape[1]) {
                PyErr_SetString(PyExc_ValueError, "out does not have the rows of x");
                goto end;
            }
        } else if (array_new(&y, &x, self->desc.out_type, 3, shape) < 0) {
            goto end;
        } else if (a.q_lens) {
            array_fill(&y, 0);
        }
        a.y.data = there(y.data);
        memcpy(a.y.stride, y.stride, 3 * sizeof *y.stride);
    }
    if (return_lse) {
        const int64_t shape[3] = {a.batch, desc.q_heads, a.q_len};
        if (array_new(&lse, &x, HEED_F32, 3, shape) < 0)
            goto end;
        if (a.q_lens)
            array_fill(&lse, -INFINITY);
        a.lse.data = there(lse.data);
        memcpy(a.lse.stride, lse.stride, 3 * sizeof *lse.stride);
        desc.features |= HEED_HAS_LSE;
    }
    if (return_weights) {
        if (array_new(&weights, &x, HEED_F32, 4, want) < 0)
            goto end;
        if (a.q_lens || cache)
            array_fill(&weights, 0);
        a.weights.data = there(weights.data);
        memcpy(a.weights.stride, weights.stride, 4 * sizeof *weights.stride);
        desc.features |= HEED_HAS_WEIGHTS;
    }
    key.attn_features = desc.features;
    key.bias_type = desc.bias_type;
    key.k_type = desc.k_type;
    key.v_type = desc.v_type;
    key.page_len = desc.page_len;
    key.max_batch = rounded_up(a.batch);
    key.max_q_len = rounded_up(a.q_len);
    key.max_kv_len = cache ? cache->capacity : self->cross ? rounded_up(keys) : key.max_q_len;
    key.max_kv_rows = self->cross ? key.max_batch * rounded_up(new_keys) : 0;
    mha = mha_for(self, &key, &desc);
    if (!mha)
        goto end;
    {
        heed_status status;
        PyThreadState *state = PyEval_SaveThread();
        status = heed_mha_run(mha, &a, NULL, 0);
        PyEval_RestoreThread(state);
        heed_mha_release(mha);
        if (check(status) < 0)
            goto end;
    }
    if (cache) {
        const int32_t *more = self->cross ? a.kv_lens : a.q_lens;
        for (int64_t b = 0; b < a.batch; b++)
            cache->lens[b] += more ? more[b] : (int32_t)new_keys;
    }
    if (value[10]) {
        part[n] = value[10];
        Py_INCREF(part[n]);
    } else {
        part[n] = array_result(&y, &x);
    }
    n++;
    if (return_lse)
        part[n++] = array_result(&lse, &x);
    if (return_weights)
        part[n++] = array_result(&weights, &x);
    for (int i = 0; i < n; i++)
        if (!part[i])
            goto end;
    if (n == 1) {
        result = part[0];
        Py_INCREF(result);
    } else {
        result =
            n == 2 ? PyTuple_Pack(2, part[0], part[1]) : PyTuple_Pack(3, part[0], part[1], part[2]);
    }
end:
    for (int i = 0; i < 3; i++)
        Py_XDECREF(part[i]);
    array_release(&x), array_release(&x_kv), array_release(&y), array_release(&mask);
    array_release(&bias), array_release(&lse), array_release(&weights);
    numbers_release(&q_lens), numbers_release(&kv_lens), numbers_release(&offsets);
    numbers_release(&alibi), numbers_release(&sinks);
    return result;
}

static PyType_Slot mha_slots[] = {{Py_tp_doc, (void *)(uintptr_t)DOC_MHA},
                                  {Py_tp_new, SLOT(mha_new)},
                                  {Py_tp_call, SLOT(mha_call)},
                                  {Py_tp_dealloc, SLOT(mha_free)},
                                  {0, NULL}};

static PyType_Spec mha_spec = {"heed.MultiHeadAttention", sizeof(mha_object), 0, Py_TPFLAGS_DEFAULT,
                               mha_slots};

int layer_init(PyObject *module)
{
    linear_type = PyType_FromSpec(&linear_spec);
    mha_type = PyType_FromSpec(&mha_spec);
    if (!linear_type || !mha_type || PyModule_AddObjectRef(module, "Linear", linear_type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "MultiHeadAttention", mha_type);
}
