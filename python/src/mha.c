/*
 * MultiHeadAttention. A layer belongs to the setting (threads, backends) under which it was made. It makes
 * its heed_mha for each combination of optional arguments and greatest lengths, rounded up, and keeps the
 * last few: that copies no weights.
 */
#include "mha.h"

static PyObject *mha_type;

static PyObject *dict_item(PyObject *dict, const char *name)
{
    PyObject *item = PyDict_GetItemString(dict, name); /* borrowed */
    return item == Py_None ? NULL : item;
}

static int read_rotary(mha_object *self, PyObject *rotary)
{
    static const char *const known[] = {"style", "dims", "base", "scale", "mscale", "freq", NULL};
    rotary_given given = {.style = NULL}; /* nothing */
    PyObject *name, *item, *kept;
    Py_ssize_t at = 0;
    int failed;
    if (!rotary || rotary == Py_False)
        return 0;
    if (rotary == Py_True)
        return rotary_numbers(&self->rotary, &self->freq, &given, self->desc.qk_dim);
    if (!PyDict_Check(rotary)) {
        PyErr_Format(PyExc_ValueError,
                     "rotary is %R; True or a dict with what heed.rotary takes is needed", rotary);
        return -1;
    }
    while (PyDict_Next(rotary, &at, &name, &item))
        if (word_of(name, "a key of rotary", known) < 0)
            return -1;
    kept =
        PyDict_Copy(rotary); /* the caller's may change while numbers are read, which runs Python */
    if (!kept)
        return -1;
    given = (rotary_given){.style = dict_item(kept, "style"),
                           .dims = dict_item(kept, "dims"),
                           .base = dict_item(kept, "base"),
                           .scale = dict_item(kept, "scale"),
                           .mscale = dict_item(kept, "mscale"),
                           .freq = dict_item(kept, "freq")};
    failed = rotary_numbers(&self->rotary, &self->freq, &given, self->desc.qk_dim);
    Py_DECREF(kept);
    return failed;
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

enum {
    M_Q_HEADS,
    M_WEIGHT, /* wq, wk, wv, wo */
    M_BIAS = M_WEIGHT + 4,
    M_KV_HEADS = M_BIAS + 4,
    M_LAYOUT,
    M_CROSS,
    M_CAUSAL,
    M_WINDOW,
    M_SCALE,
    M_SOFTCAP,
    M_POSITION,
    M_ROTARY,
    M_ACCURACY,
    M_DTYPE,
    N_M
};

/* Makes the projections and writes their descriptions to `linear`. x has the type dtype, or else
 * that of wq. */
static int make_projections(mha_object *self, PyObject *const value[N_M],
                            heed_linear_desc linear[4])
{
    static const char *const weight_name[] = {"wq", "wk", "wv", "wo"};
    static const char *const bias_name[] = {"bq", "bk", "bv", "bo"};
    uint32_t given_type = HEED_DTYPE_NONE, order;
    if (weight_layout_of(value[M_LAYOUT], &order) < 0 ||
        (value[M_DTYPE] && dtype_of(value[M_DTYPE], "dtype", false, &given_type) < 0))
        return -1;
    for (int i = 0; i < 4; i++) {
        memset(&linear[i], 0, sizeof linear[i]);
        if (!value[M_WEIGHT + i])
            continue;
        linear[i].layout = order;
        linear[i].x_type = given_type;
        linear[i].accuracy =
            self->options.accuracy == HEED_ACCURACY_INT8 ? 0 : self->options.accuracy;
        if (make_linear(self->context, &linear[i], value[M_WEIGHT + i], value[M_BIAS + i],
                        weight_name[i], bias_name[i], given_type == HEED_BF16, &self->proj[i]) < 0)
            return -1;
        if (linear[i].x_type != linear[0].x_type) {
            PyErr_Format(PyExc_ValueError, "wq is of %s and %s of %s; dtype says what x is",
                         element_name(linear[0].w_type), weight_name[i],
                         element_name(linear[i].w_type));
            return -1;
        }
    }
    return 0;
}

/* Describes the layer's attention by its projections and options. */
static int describe(mha_object *self, const heed_linear_desc linear[4], bool has_out)
{
    heed_attn_desc *desc = &self->desc;
    uint32_t k_dim;
    if (head_dim("wq", linear[0].out_dim, desc->q_heads, &desc->qk_dim) < 0 ||
        head_dim("wk", linear[1].out_dim, desc->kv_heads, &k_dim) < 0 ||
        head_dim("wv", linear[2].out_dim, desc->kv_heads, &desc->v_dim) < 0)
        return -1;
    if (k_dim != desc->qk_dim) {
        PyErr_Format(PyExc_ValueError, "a head of wq has %u dims, of wk %u", (unsigned)desc->qk_dim,
                     (unsigned)k_dim);
        return -1;
    }
    desc->struct_size = sizeof *desc;
    desc->q_type = desc->k_type = desc->v_type = desc->out_type = linear[0].y_type;
    attn_options_into(&self->options, false, desc);
    self->x_type = linear[0].x_type;
    self->d_model = linear[0].in_dim;
    self->d_kv = self->cross ? linear[1].in_dim : 0;
    self->out_dim = has_out ? linear[3].out_dim : desc->q_heads * desc->v_dim;
    return 0;
}

static int mha_make(mha_object *self, PyObject *const value[N_M])
{
    heed_linear_desc linear[4];
    const attn_given given = {.causal = value[M_CAUSAL],
                              .window = value[M_WINDOW],
                              .scale = value[M_SCALE],
                              .softcap = value[M_SOFTCAP],
                              .position = value[M_POSITION],
                              .accuracy = value[M_ACCURACY]};
    self->context = current_context();
    if (!self->context || truth_of(value[M_CROSS], "cross", &self->cross) < 0 ||
        attn_options_of(&self->options, &given) < 0)
        return -1;
    if (attn_position_keep(&self->options) < 0 ||
        heads_of(value[M_Q_HEADS], "q_heads", &self->desc.q_heads) < 0 ||
        heads_of(value[value[M_KV_HEADS] ? M_KV_HEADS : M_Q_HEADS], "kv_heads",
                 &self->desc.kv_heads) < 0)
        return -1;
    if (value[M_BIAS + 3] && !value[M_WEIGHT + 3]) {
        PyErr_SetString(PyExc_ValueError, "bo is given without wo");
        return -1;
    }
    if (make_projections(self, value, linear) < 0 ||
        describe(self, linear, value[M_WEIGHT + 3]) < 0)
        return -1;
    return read_rotary(self, value[M_ROTARY]);
}

static PyObject *mha_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    SIGNATURE(sig, "MultiHeadAttention", 5, 4, "q_heads", "wq", "wk", "wv", "wo", "bq", "bk", "bv",
              "bo", "kv_heads", "layout", "cross", "causal", "window", "scale", "softcap",
              "position", "rotary", "accuracy", "dtype");
    PyObject *value[N_M];
    mha_object *self;
    if (read_tuple(&sig, args, kwargs, value) < 0)
        return NULL;
    for (int i = M_Q_HEADS; i < M_WEIGHT + 3; i++)
        if (!value[i]) {
            PyErr_Format(PyExc_ValueError, "%s is needed", sig.names[i]);
            return NULL;
        }
    self = (mha_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    pthread_mutex_init(&self->lock, NULL);
    if (mha_make(self, value) == 0)
        return (PyObject *)self;
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

heed_mha *mha_for(mha_object *self, const made_for *key, const heed_attn_desc *call)
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
    heed_mha_release(old); /* a run under way holds its own reference */
    return mha;
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
    mha_type = PyType_FromSpec(&mha_spec);
    if (linear_init(module) < 0 || !mha_type)
        return -1;
    return PyModule_AddObjectRef(module, "MultiHeadAttention", mha_type);
}
