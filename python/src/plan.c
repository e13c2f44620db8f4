/*
 * Plan: what is the same in many calls, checked once. With maxima it is one heed_attn and its runs
 * promise to stay within them; without, each run sizes itself. Optional arguments are a run's own: each
 * combination is a plan that the context caches.
 */
#include "docs.h"
#include "heed_py.h"

typedef struct plan_object {
    PyObject_HEAD attn_options options; /* position is held */
    heed_attn_desc desc;
    uint32_t k_code, v_code;
} plan_object;

static PyObject *plan_type;

static int uint_of(PyObject *object, const char *name, uint32_t *out)
{
    int64_t value;
    if (int64_of(object, name, 0, &value) < 0)
        return -1;
    if (value > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%s is %lld, more than 2^31 - 1", name, (long long)value);
        return -1;
    }
    *out = (uint32_t)value;
    return 0;
}

/* Reads the maxima: of rows and keys both or neither, and with them one sequence unless batch is given. Checks
 * that a backend serves the plan. */
static int plan_maxima(plan_object *self, heed_context *context, PyObject *const most[3])
{
    static const char *const name[] = {"max_batch", "max_q_len", "max_kv_len"};
    heed_attn_desc *desc = &self->desc, asked;
    int64_t *into[] = {&desc->max_batch, &desc->max_q_len, &desc->max_kv_len};
    if ((most[1] || most[2] || most[0]) && !(most[1] && most[2])) {
        PyErr_SetString(PyExc_ValueError, "max_q_len and max_kv_len are given both or not at all");
        return -1;
    }
    for (int i = 0; i < 3; i++)
        if (most[i] && int64_of(most[i], name[i], 1, into[i]) < 0)
            return -1;
    if (most[1] && !most[0])
        desc->max_batch = 1;
    asked = *desc;
    if (!most[1])
        asked.max_batch = asked.max_q_len = asked.max_kv_len = 1;
    return check(heed_attn_supported(context, &asked, NULL));
}

static int plan_make(plan_object *self, heed_context *context, PyObject *const value[17])
{
    heed_attn_desc *desc = &self->desc;
    uint32_t q_type = HEED_F32, kv_type;
    const attn_given given = {.causal = value[7],
                              .window = value[8],
                              .scale = value[9],
                              .softcap = value[10],
                              .position = value[11],
                              .accuracy = value[12],
                              .order = value[13]};
    if (attn_options_of(&self->options, &given) < 0)
        return -1;
    if (attn_position_keep(&self->options) < 0)
        return -1;
    if (!value[0] || !value[1]) {
        PyErr_SetString(PyExc_ValueError, "q_heads and dim are needed");
        return -1;
    }
    desc->struct_size = sizeof *desc;
    if (uint_of(value[0], "q_heads", &desc->q_heads) < 0 ||
        uint_of(value[2] ? value[2] : value[0], "kv_heads", &desc->kv_heads) < 0 ||
        uint_of(value[1], "dim", &desc->qk_dim) < 0 ||
        uint_of(value[3] ? value[3] : value[1], "v_dim", &desc->v_dim) < 0 ||
        (value[4] && dtype_of(value[4], "dtype", false, &q_type) < 0))
        return -1;
    kv_type = q_type;
    if ((value[5] && dtype_of(value[5], "kv_dtype", true, &kv_type) < 0) ||
        (value[6] && uint_of(value[6], "page_len", &desc->page_len) < 0))
        return -1;
    desc->q_type = desc->out_type = q_type;
    desc->k_type = desc->v_type = kv_type;
    self->options.as_bf16 = q_type == HEED_BF16 || kv_type == HEED_BF16;
    self->k_code = self->v_code = heed_is_code(kv_type) ? kv_type : HEED_DTYPE_NONE;
    if (desc->page_len)
        desc->features |= HEED_HAS_PAGES;
    attn_options_into(&self->options, false, desc);
    return plan_maxima(self, context, &value[14]);
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    SIGNATURE(sig, "plan", 0, 2, "q_heads", "dim", "kv_heads", "v_dim", "dtype", "kv_dtype",
              "page_len", "causal", "window", "scale", "softcap", "position", "accuracy", "layout",
              "max_batch", "max_q_len", "max_kv_len");
    PyObject *value[17];
    heed_context *context = current_context();
    plan_object *self;
    if (!context || read_tuple(&sig, args, kwargs, value) < 0)
        return NULL;
    self = (plan_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    if (plan_make(self, context, value) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void plan_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((plan_object *)object)->options.position);
    PyObject_Free(object);
    Py_DECREF((PyObject *)type);
}

static PyObject *plan_run(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames)
{
    SIGNATURE(sig, "run", 3, 3, "q", "k", "v", "mask", "bias", "alibi", "sinks", "q_lens",
              "kv_lens", "position", "ranges", "key_blocks", "mask_from", "block_table", "out",
              "return_lse", "return_weights", "k_scale", "k_zero", "v_scale", "v_zero",
              "k_key_group", "v_key_group");
    plan_object *self = (plan_object *)object;
    PyObject *value[23];
    attn_options o = self->options;
    attn_call call;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || arrays_needed(&sig, value, 3) < 0)
        return NULL;
    if (!value[13] != !self->desc.page_len) {
        PyErr_SetString(PyExc_ValueError,
                        self->desc.page_len ? "block_table is needed: the plan has pages"
                                            : "block_table is given, but the plan has no page_len");
        return NULL;
    }
    memset(&call, 0, sizeof call);
    call.q = value[0], call.k = value[1], call.v = value[2];
    call.mask = value[3], call.bias = value[4], call.alibi = value[5], call.sinks = value[6];
    call.q_lens = value[7], call.kv_lens = value[8];
    if (value[9] && attn_position_of(&o, value[9]) < 0)
        return NULL;
    call.ranges = value[10], call.key_blocks = value[11], call.mask_from = value[12];
    call.block_table = value[13], call.out = value[14];
    call.k_scale = value[17], call.k_zero = value[18], call.v_scale = value[19];
    call.v_zero = value[20], call.k_key_group = value[21], call.v_key_group = value[22];
    call.k_code = self->k_code, call.v_code = self->v_code, call.page_len = self->desc.page_len;
    call.plan = &self->desc;
    call.max_batch = self->desc.max_batch, call.max_q_len = self->desc.max_q_len;
    call.max_kv_len = self->desc.max_kv_len;
    if (truth_of(value[15], "return_lse", &call.return_lse) < 0 ||
        truth_of(value[16], "return_weights", &call.return_weights) < 0)
        return NULL;
    return attn_call_run(&o, &call);
}

/* Gets the heed_attn from the context; for a plan without maxima, one of middling lengths. */
static heed_attn *plan_made(const plan_object *self)
{
    heed_context *context = current_context();
    heed_attn_desc desc = self->desc;
    heed_attn *plan = NULL;
    if (!context)
        return NULL;
    if (!desc.max_q_len) {
        desc.max_batch = 1;
        desc.max_q_len = 512;
        desc.max_kv_len = 4096;
    }
    check(heed_attn_create(context, &desc, &plan));
    return plan;
}

static heed_status plan_text(const void *plan, uint32_t json, char *text, size_t *bytes)
{
    return heed_attn_explain(plan, json, text, bytes);
}

static PyObject *plan_explain(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames)
{
    SIGNATURE(sig, "explain", 0, 0, "json");
    PyObject *value[1], *text;
    heed_attn *plan;
    bool json;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || truth_of(value[0], "json", &json) < 0)
        return NULL;
    plan = plan_made((plan_object *)object);
    if (!plan)
        return NULL;
    text = text_of(plan_text, plan, json);
    heed_attn_release(plan);
    return text;
}

static PyObject *plan_workspace(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames)
{
    SIGNATURE(sig, "workspace", 1, 0, "n");
    PyObject *value[1];
    heed_attn *plan;
    int64_t n = 1;
    size_t bytes;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 ||
        (value[0] && int64_of(value[0], "n", 1, &n) < 0))
        return NULL;
    if (n > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "n is more than 2^31 - 1");
        return NULL;
    }
    plan = plan_made((plan_object *)object);
    if (!plan)
        return NULL;
    bytes = heed_attn_workspace_bytes(plan, (uint32_t)n);
    heed_attn_release(plan);
    if (!bytes)
        return PyErr_NoMemory();
    return PyLong_FromSize_t(bytes);
}

static PyMethodDef plan_methods[] = {
    {"run", METHOD(plan_run), METH_FASTCALL | METH_KEYWORDS, DOC_PLAN_RUN},
    {"explain", METHOD(plan_explain), METH_FASTCALL | METH_KEYWORDS, DOC_PLAN_EXPLAIN},
    {"workspace", METHOD(plan_workspace), METH_FASTCALL | METH_KEYWORDS, DOC_PLAN_WORKSPACE},
    {0}};

static PyType_Slot plan_slots[] = {{Py_tp_doc, (void *)(uintptr_t)DOC_PLAN},
                                   {Py_tp_new, SLOT(plan_new)},
                                   {Py_tp_dealloc, SLOT(plan_free)},
                                   {Py_tp_methods, plan_methods},
                                   {0, NULL}};

static PyType_Spec plan_spec = {"heed.Plan", sizeof(plan_object), 0, Py_TPFLAGS_DEFAULT,
                                plan_slots};

int plan_init(PyObject *module)
{
    plan_type = PyType_FromSpec(&plan_spec);
    return plan_type ? PyModule_AddObjectRef(module, "Plan", plan_type) : -1;
}
