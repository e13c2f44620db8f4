/*
 * KVCache: keys and values that grow, in memory of ours. Contiguous it is
 * [batch, kv_heads, capacity, dim]; in pages [n_pages, kv_heads, page_len, dim], with a block table that
 * hands pages out as sequences reach them.
 */
#include "docs.h"
#include "heed_py.h"

#include <stdlib.h>

PyObject *cache_type;

static int number_of(PyObject *object, const char *name, int64_t *out)
{
    if (!object) {
        PyErr_Format(PyExc_ValueError, "%s is needed", name);
        return -1;
    }
    if (int64_of(object, name, 1, out) < 0)
        return -1;
    if (*out <= INT32_MAX)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is %lld, more than 2^31 - 1", name, (long long)*out);
    return -1;
}

/* Sets the strides, in elements, of contiguous memory. Returns its bytes, or -1 if they are more
 * than 2^60. */
static int64_t lie(uint32_t type, int64_t first, int64_t heads, int64_t rows, int64_t dim,
                   int64_t stride[4])
{
    int64_t bytes = heed_offset_bytes(type, dim);
    stride[3] = 1, stride[2] = dim, stride[1] = dim * rows, stride[0] = dim * rows * heads;
    for (int i = 0; i < 3; i++) {
        int64_t n = i == 0 ? rows : i == 1 ? heads : first;
        if (bytes > (INT64_C(1) << 60) / (n ? n : 1))
            return -1;
        bytes *= n;
    }
    return bytes;
}

static int whole_blocks(const char *name, int64_t dim, uint32_t type)
{
    if (dim % heed_block_len(type) == 0)
        return 0;
    PyErr_Format(PyExc_NotImplementedError,
                 "%s is %lld; rows of %s are whole blocks of %u elements", name, (long long)dim,
                 heed_dtype_name(type), (unsigned)heed_block_len(type));
    return -1;
}

/* Makes memory for fresh scales: one for each row of a head, and a zero where the type has one. */
static int make_scales(heed_quant *quant, uint32_t type, int64_t first, int64_t heads, int64_t rows)
{
    const size_t n = (size_t)(first * heads * rows);
    if (!heed_takes_scale(type))
        return 0;
    quant->stride[0] = heads * rows, quant->stride[1] = rows, quant->stride[2] = 1;
    quant->scale = calloc(n, sizeof *quant->scale);
    if (type == HEED_U8 || type == HEED_U4)
        quant->zero = calloc(n, sizeof *quant->zero);
    return quant->scale && (quant->zero || (type != HEED_U8 && type != HEED_U4)) ? 0 : -1;
}

heed_quant_out cache_written_scales(const heed_quant *quant)
{
    heed_quant_out out = {
        (float *)(uintptr_t)quant->scale, (float *)(uintptr_t)quant->zero, {0}, 0, 0};
    memcpy(out.stride, quant->stride, sizeof out.stride);
    return out;
}

/* Refuses a type that no kernel can attend to, with the reason. */
static int can_attend(heed_context *context, const cache_object *self)
{
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           .features =
                               self->page_len ? HEED_HAS_LENS | HEED_HAS_PAGES : HEED_HAS_LENS,
                           .q_heads = self->kv_heads,
                           .kv_heads = self->kv_heads,
                           .qk_dim = self->qk_dim,
                           .v_dim = self->v_dim,
                           .q_type = HEED_F32,
                           .k_type = self->k_type,
                           .v_type = self->v_type,
                           .out_type = HEED_F32,
                           .page_len = self->page_len,
                           .max_batch = self->batch,
                           .max_q_len = 1,
                           .max_kv_len = self->capacity};
    if (heed_takes_scale(self->k_type) || heed_takes_scale(self->v_type))
        desc.features |= HEED_HAS_QUANT;
    return check(heed_attn_supported(context, &desc, NULL));
}

static int allocate(cache_object *self)
{
    const int64_t heads = self->kv_heads, page_len = self->page_len;
    int64_t first = self->batch, rows = self->capacity, k_bytes, v_bytes;
    if (page_len) {
        self->table_stride = (self->capacity + page_len - 1) / page_len;
        if (self->table_stride > INT32_MAX / self->batch) {
            PyErr_SetString(PyExc_ValueError, "there would be more than 2^31 - 1 pages");
            return -1;
        }
        first = self->n_pages = self->batch * self->table_stride;
        rows = page_len;
        self->block_table = calloc((size_t)self->n_pages, sizeof *self->block_table);
    }
    k_bytes = lie(self->k_type, first, heads, rows, self->qk_dim, self->k_stride);
    v_bytes = lie(self->v_type, first, heads, rows, self->v_dim, self->v_stride);
    if (k_bytes < 0 || v_bytes < 0) {
        PyErr_SetString(PyExc_MemoryError, "no memory for a cache of more than 2^60 bytes");
        return -1;
    }
    self->lens = calloc((size_t)self->batch, sizeof *self->lens);
    if (!self->lens ||
        make_scales(&self->k_quant, self->k_type, first, heads, rows) < 0 ||
        make_scales(&self->v_quant, self->v_type, first, heads, rows) < 0 ||
        (page_len && !self->block_table) ||
        posix_memalign(&self->memory, 64, (size_t)((k_bytes + 63) / 64 * 64 + v_bytes))) {
        self->memory = NULL;
        PyErr_Format(PyExc_MemoryError, "no memory for a cache of %lld + %lld bytes",
                     (long long)k_bytes, (long long)v_bytes);
        return -1;
    }
    self->k = self->memory;
    self->v = self->k + (k_bytes + 63) / 64 * 64;
    return 0;
}

static int cache_make(cache_object *self, heed_context *context, PyObject *const value[8])
{
    int64_t heads, dim, v_dim, page_len = 0;
    self->k_type = HEED_F32;
    self->kind = KIND_NONE;
    if (number_of(value[0], "batch", &self->batch) < 0 ||
        number_of(value[1], "capacity", &self->capacity) < 0 ||
        number_of(value[2], "kv_heads", &heads) < 0 || number_of(value[3], "dim", &dim) < 0 ||
        number_of(value[4] ? value[4] : value[3], "v_dim", &v_dim) < 0 ||
        (value[5] && dtype_of(value[5], "k_dtype", true, &self->k_type) < 0))
        return -1;
    self->v_type = self->k_type;
    if ((value[6] && dtype_of(value[6], "v_dtype", true, &self->v_type) < 0) ||
        (value[7] && number_of(value[7], "page_len", &page_len) < 0) ||
        whole_blocks("dim", dim, self->k_type) < 0 ||
        whole_blocks("v_dim", v_dim, self->v_type) < 0)
        return -1;
    self->kv_heads = (uint32_t)heads;
    self->qk_dim = (uint32_t)dim;
    self->v_dim = (uint32_t)v_dim;
    self->page_len = (uint32_t)page_len;
    return can_attend(context, self) < 0 ? -1 : allocate(self);
}

static PyObject *cache_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    SIGNATURE(sig, "KVCache", 0, 4, "batch", "capacity", "kv_heads", "dim", "v_dim", "k_dtype",
              "v_dtype", "page_len");
    PyObject *value[8];
    cache_object *self;
    heed_context *context = current_context();
    if (!context || read_tuple(&sig, args, kwargs, value) < 0)
        return NULL;
    self = (cache_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    if (cache_make(self, context, value) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void cache_free(PyObject *object)
{
    cache_object *self = (cache_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    free(self->memory);
    free((void *)(uintptr_t)self->k_quant.scale);
    free((void *)(uintptr_t)self->k_quant.zero);
    free((void *)(uintptr_t)self->v_quant.scale);
    free((void *)(uintptr_t)self->v_quant.zero);
    free(self->lens);
    free(self->block_table);
    PyObject_Free(object);
    Py_DECREF((PyObject *)type);
}

int cache_begin(cache_object *cache, bool writes)
{
    if (cache->written || (writes && cache->readers)) {
        PyErr_Format(
            PyExc_RuntimeError,
            "the cache is being %s by another call; a call that writes to a cache runs alone",
            cache->written ? "written to" : "read");
        return -1;
    }
    if (writes)
        cache->written = true;
    else
        cache->readers++;
    return 0;
}

void cache_end(cache_object *cache, bool writes)
{
    if (writes)
        cache->written = false;
    else
        cache->readers--;
}

int cache_make_room(cache_object *cache, const char *name, const int32_t *more, int64_t len)
{
    for (int64_t b = 0; b < cache->batch; b++) {
        int64_t want = cache->lens[b] + (more ? more[b] : len);
        if (more && (more[b] < 0 || more[b] > len)) {
            PyErr_Format(PyExc_ValueError, "%s[%lld] is %d; 0 to %lld rows are there", name,
                         (long long)b, (int)more[b], (long long)len);
            return -1;
        }
        if (want > cache->capacity) {
            PyErr_Format(PyExc_ValueError,
                         "sequence %lld has %d keys; %lld more exceed the capacity of %lld",
                         (long long)b, (int)cache->lens[b], (long long)(want - cache->lens[b]),
                         (long long)cache->capacity);
            return -1;
        }
    }
    for (int64_t b = 0; cache->page_len && b < cache->batch; b++) {
        const int64_t page_len = cache->page_len;
        int64_t have = (cache->lens[b] + page_len - 1) / page_len;
        int64_t want = (cache->lens[b] + (more ? more[b] : len) + page_len - 1) / page_len;
        for (; have < want;
             have++) /* each entry has its own page, so there are never too few */
            cache->block_table[b * cache->table_stride + have] = (int32_t)cache->pages_used++;
    }
    return 0;
}

/* Are k and v of an append floats, and is one of them of the type that was given? */
static int rows_types(const array *k, const array *v, uint32_t given)
{
    if (k->type < HEED_F32 || k->type > HEED_BF16 || v->type < HEED_F32 || v->type > HEED_BF16) {
        PyErr_Format(PyExc_ValueError, "k is of %s and v of %s; f32, f16 or bf16 is needed",
                     element_name(k->type), element_name(v->type));
        return -1;
    }
    if (given == HEED_DTYPE_NONE || given == k->type || given == v->type)
        return 0;
    PyErr_Format(PyExc_ValueError, "dtype is %s, but k is of %s and v of %s", element_name(given),
                 element_name(k->type), element_name(v->type));
    return -1;
}

/* Reads k and v of an append, of the cache's heads and dims. Strides and length go to a. */
static int read_rows(const cache_object *self, array *k, array *v, const layout *axes,
                     heed_kv_append_args *a)
{
    int64_t k_shape[4], v_shape[4];
    char k_text[128], v_text[128];
    if (in_layout(k, axes, "k", k_shape, a->k.stride) < 0 ||
        in_layout(v, axes, "v", v_shape, a->v.stride) < 0)
        return -1;
    if (k_shape[0] != self->batch || k_shape[1] != self->kv_heads || k_shape[3] != self->qk_dim ||
        v_shape[0] != self->batch || v_shape[1] != self->kv_heads || v_shape[3] != self->v_dim ||
        k_shape[2] != v_shape[2]) {
        PyErr_Format(
            PyExc_ValueError,
            "k is %s and v %s (b, h, s, d); the cache is for batch %lld, %u heads, dims %u and %u",
            shape_text(k_text, sizeof k_text, 4, k_shape),
            shape_text(v_text, sizeof v_text, 4, v_shape), (long long)self->batch,
            (unsigned)self->kv_heads, (unsigned)self->qk_dim, (unsigned)self->v_dim);
        return -1;
    }
    a->len = k_shape[2];
    a->k_type = k->type;
    a->v_type = v->type;
    a->k.data = address_of(k);
    a->v.data = address_of(v);
    return 0;
}

static void cache_into(cache_object *self, heed_kv_append_args *a)
{
    a->batch = self->batch;
    a->capacity = self->capacity;
    a->kv_heads = self->kv_heads;
    a->qk_dim = self->qk_dim;
    a->v_dim = self->v_dim;
    a->page_len = self->page_len;
    a->k_cache_type = self->k_type;
    a->v_cache_type = self->v_type;
    a->k_cache.data = self->k;
    a->v_cache.data = self->v;
    memcpy(a->k_cache.stride, self->k_stride, sizeof self->k_stride);
    memcpy(a->v_cache.stride, self->v_stride, sizeof self->v_stride);
    a->cache_lens = self->lens;
    a->block_table = self->block_table;
    a->block_table_stride = self->table_stride;
    a->n_pages = self->n_pages;
    if (self->k_quant.scale || self->v_quant.scale) {
        a->k_quant = cache_written_scales(&self->k_quant);
        a->v_quant = cache_written_scales(&self->v_quant);
        a->options = HEED_APPEND_FRESH_SCALES;
    }
}

/* Writes the rows, and counts them where that succeeded. */
static int append(cache_object *self, heed_kv_append_args *a)
{
    const int64_t pages_before = self->pages_used;
    heed_status status;
    PyThreadState *state;
    if (cache_make_room(self, "lens", a->lens, a->len) < 0)
        return -1;
    cache_into(self, a);
    state = PyEval_SaveThread();
    status = heed_kv_append(a);
    PyEval_RestoreThread(state);
    if (check(status) < 0) {
        self->pages_used = pages_before; /* entries beyond a sequence's length are ignored */
        return -1;
    }
    for (int64_t b = 0; b < self->batch; b++)
        self->lens[b] += a->lens ? a->lens[b] : (int32_t)a->len;
    return 0;
}

static PyObject *cache_append(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames)
{
    SIGNATURE(sig, "append", 3, 2, "k", "v", "lens", "layout", "dtype");
    cache_object *self = (cache_object *)object;
    PyObject *value[5], *result = NULL;
    array k, v;
    layout axes;
    numbers lens;
    uint32_t type = HEED_DTYPE_NONE;
    heed_kv_append_args a = {.struct_size = sizeof a};
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || layout_of(value[3], &axes) < 0 ||
        (value[4] && dtype_of(value[4], "dtype", false, &type) < 0) ||
        arrays_needed(&sig, value, 2) < 0)
        return NULL;
    if (cache_begin(self, true) < 0)
        return NULL;
    array_none(&k), array_none(&v), numbers_none(&lens);
    if (array_of(&k, value[0], "k", false, type == HEED_BF16) < 0 ||
        array_of(&v, value[1], "v", false, type == HEED_BF16) < 0 || rows_types(&k, &v, type) < 0 ||
        read_rows(self, &k, &v, &axes, &a) < 0 ||
        (value[2] && int32s_of(&lens, value[2], "lens", self->batch) < 0))
        goto end;
    a.lens = lens.data;
    if (append(self, &a) < 0)
        goto end;
    self->kind = k.kind == KIND_DLPACK ? KIND_BUFFER : k.kind;
    self->api = k.api;
    Py_INCREF(Py_None);
    result = Py_None;
end:
    cache_end(self, true);
    array_release(&k), array_release(&v), numbers_release(&lens);
    return result;
}

static PyObject *cache_attention(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    SIGNATURE(sig, "attention", 2, 1, "q", "causal", "mask", "bias", "window", "scale", "softcap",
              "alibi", "sinks", "q_lens", "position", "ranges", "key_blocks", "mask_from", "layout",
              "accuracy", "out", "return_lse", "return_weights", "dtype");
    PyObject *value[20];
    attn_options o;
    attn_call call;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || arrays_needed(&sig, value, 1) < 0)
        return NULL;
    const attn_given given = {.causal = value[1] ? value[1] : Py_True,
                              .window = value[4],
                              .scale = value[5],
                              .softcap = value[6],
                              .position = value[10],
                              .accuracy = value[15],
                              .order = value[14],
                              .dtype = value[19]};
    if (attn_options_of(&o, &given) < 0)
        return NULL;
    memset(&call, 0, sizeof call);
    call.cache = (cache_object *)object;
    call.q = value[0], call.mask = value[2], call.bias = value[3];
    call.alibi = value[7], call.sinks = value[8], call.q_lens = value[9];
    call.ranges = value[11], call.key_blocks = value[12], call.mask_from = value[13];
    call.out = value[16];
    if (truth_of(value[17], "return_lse", &call.return_lse) < 0 ||
        truth_of(value[18], "return_weights", &call.return_weights) < 0)
        return NULL;
    return attn_call_run(&o, &call);
}

static PyObject *cache_clear(PyObject *object, PyObject *ignored)
{
    cache_object *self = (cache_object *)object;
    (void)ignored;
    if (cache_begin(self, true) < 0)
        return NULL;
    memset(self->lens, 0, (size_t)self->batch * sizeof *self->lens);
    self->pages_used = 0;
    cache_end(self, true);
    Py_RETURN_NONE;
}

static PyObject *cache_lens(PyObject *object, void *ignored)
{
    cache_object *self = (cache_object *)object;
    PyObject *list = PyList_New((Py_ssize_t)self->batch);
    (void)ignored;
    for (int64_t b = 0; list && b < self->batch; b++) {
        PyObject *number = PyLong_FromLong(self->lens[b]);
        if (!number) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, (Py_ssize_t)b, number);
    }
    return list;
}

static PyObject *cache_bytes(PyObject *object, void *ignored)
{
    cache_object *self = (cache_object *)object;
    int64_t stride[4], first = self->page_len ? self->n_pages : self->batch;
    int64_t rows = self->page_len ? self->page_len : self->capacity;
    (void)ignored;
    return PyLong_FromLongLong(
        lie(self->k_type, first, self->kv_heads, rows, self->qk_dim, stride) +
        lie(self->v_type, first, self->kv_heads, rows, self->v_dim, stride));
}

static PyObject *cache_capacity(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromLongLong(((cache_object *)object)->capacity);
}

static PyObject *cache_page_len(PyObject *object, void *ignored)
{
    (void)ignored;
    if (!((cache_object *)object)->page_len)
        Py_RETURN_NONE;
    return PyLong_FromLong((long)((cache_object *)object)->page_len);
}

static PyObject *cache_dtype(PyObject *object, void *values)
{
    cache_object *self = (cache_object *)object;
    return PyUnicode_FromString(heed_dtype_name(values ? self->v_type : self->k_type));
}

static PyMethodDef cache_methods[] = {
    {"append", METHOD(cache_append), METH_FASTCALL | METH_KEYWORDS, DOC_CACHE_APPEND},
    {"attention", METHOD(cache_attention), METH_FASTCALL | METH_KEYWORDS, DOC_CACHE_ATTENTION},
    {"decoded", cache_decoded, METH_NOARGS, DOC_CACHE_DECODED},
    {"clear", cache_clear, METH_NOARGS, DOC_CACHE_CLEAR},
    {0}};

static PyGetSetDef cache_members[] = {
    {"lens", cache_lens, NULL, "keys of each sequence, a list", NULL},
    {"capacity", cache_capacity, NULL, "the most keys of a sequence", NULL},
    {"page_len", cache_page_len, NULL, "keys of a page, or None", NULL},
    {"nbytes", cache_bytes, NULL, "bytes of keys and values", NULL},
    {"k_dtype", cache_dtype, NULL, "type of the keys", NULL},
    {"v_dtype", cache_dtype, NULL, "type of the values", (void *)1},
    {0}};

static PyType_Slot cache_slots[] = {{Py_tp_doc, (void *)(uintptr_t)DOC_KVCACHE},
                                    {Py_tp_new, SLOT(cache_new)},
                                    {Py_tp_dealloc, SLOT(cache_free)},
                                    {Py_tp_methods, cache_methods},
                                    {Py_tp_getset, cache_members},
                                    {0, NULL}};

static PyType_Spec cache_spec = {"heed.KVCache", sizeof(cache_object), 0, Py_TPFLAGS_DEFAULT,
                                 cache_slots};

int cache_init(PyObject *module)
{
    cache_type = PyType_FromSpec(&cache_spec);
    return cache_type ? PyModule_AddObjectRef(module, "KVCache", cache_type) : -1;
}
