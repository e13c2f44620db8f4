/*
 * Arrays: in by DLPack or the buffer protocol, out as what came in.
 *
 * Kinds      numpy.ndarray comes by its buffer and goes out as numpy.empty; a type with DLPack's table of
 *            functions (torch) by that table, both ways, which takes a fraction of the time of a capsule;
 *            any other type with __dlpack__ (jax) by capsules; what has a buffer alone (memoryview,
 *            array.array) gets an Array of ours back, which has both protocols itself.
 * DLPack     the structs below are declared from its specification, version 1.3.
 * bf16       has no buffer format: numpy arrays of ml_dtypes' type are read through a view as uint16.
 */
#include "heed_py.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- DLPack, from its specification ---------------------------------------------------------------- */

enum {
    DL_CPU = 1,
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_BOOL = 6,
    DL_E4M3FN = 10
};
#define DL_READ_ONLY UINT64_C(1)

typedef struct dl_device {
    int32_t type, id;
} dl_device;

typedef struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
} dl_type;

typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_type dtype;
    int64_t *shape, *strides; /* strides NULL: C-contiguous */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed { /* what a capsule "dltensor" holds */
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_version {
    uint32_t major, minor;
} dl_version;

typedef struct dl_versioned { /* what a capsule "dltensor_versioned" holds */
    dl_version version;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

typedef struct exchange_api { /* what type(x).__dlpack_c_exchange_api__ holds */
    dl_version version;
    struct exchange_api *previous;
    int (*allocate)(dl_tensor *prototype, dl_versioned **out, void *error,
                    void (*set_error)(void *error, const char *kind, const char *message));
    int (*managed_of)(void *object, dl_versioned **out);
    int (*to_object)(dl_versioned *tensor, void **out);
    int (*tensor_of)(void *object, dl_tensor *out); /* may be NULL */
    int (*stream)(int32_t device_type, int32_t device, void **out);
} exchange_api;

/* ---- element types ----------------------------------------------------------------------------------- */

int element_bytes(uint32_t type)
{
    switch (type) {
    case EL_BOOL:
        return 1;
    case EL_I16:
    case EL_U16:
        return 2;
    case EL_I32:
    case EL_U32:
        return 4;
    case EL_I64:
    case EL_U64:
    case EL_F64:
        return 8;
    default:
        return (int)heed_dtype_bytes(type);
    }
}

const char *element_name(uint32_t type)
{
    static const char *const name[] = {"bool",  "int16",  "uint16",  "int32",       "uint32",
                                       "int64", "uint64", "float64", "another type"};
    return type >= EL_BOOL && type <= EL_OTHER ? name[type - EL_BOOL] : heed_dtype_name(type);
}

static uint32_t type_of_format(const char *format, Py_ssize_t bytes)
{
    if (!format)
        return HEED_U8;
    if (*format == '@' || *format == '=' || *format == '<') /* little endian is what we run on */
        format++;
    if (format[0] == 0 || format[1] != 0)
        return EL_OTHER;
    switch (format[0]) {
    case 'f':
        return HEED_F32;
    case 'e':
        return HEED_F16;
    case 'd':
        return EL_F64;
    case '?':
        return EL_BOOL;
    case 'b':
        return HEED_I8;
    case 'B':
    case 'c':
        return HEED_U8;
    case 'h':
        return EL_I16;
    case 'H':
        return EL_U16;
    case 'i':
    case 'l':
    case 'q':
        return bytes == 8 ? EL_I64 : EL_I32;
    case 'I':
    case 'L':
    case 'Q':
        return bytes == 8 ? EL_U64 : EL_U32;
    default:
        return EL_OTHER;
    }
}

static const char *format_of_type(uint32_t type)
{
    switch (type) {
    case HEED_F32:
        return "f";
    case HEED_F16:
        return "e";
    case HEED_I8:
        return "b";
    case HEED_BF16:
    case EL_U16:
        return "H";
    case EL_BOOL:
        return "?";
    case EL_I32:
        return "i";
    case EL_U64:
        return "Q";
    default:
        return "B";
    }
}

static uint32_t type_of_dl(dl_type t)
{
    if (t.lanes != 1)
        return EL_OTHER;
    switch (t.code << 8 | t.bits) {
    case DL_FLOAT << 8 | 32:
        return HEED_F32;
    case DL_FLOAT << 8 | 16:
        return HEED_F16;
    case DL_BFLOAT << 8 | 16:
        return HEED_BF16;
    case DL_FLOAT << 8 | 64:
        return EL_F64;
    case DL_BOOL << 8 | 8:
        return EL_BOOL;
    case DL_E4M3FN << 8 | 8:
    case DL_UINT << 8 | 8:
        return HEED_U8;
    case DL_INT << 8 | 8:
        return HEED_I8;
    case DL_INT << 8 | 16:
        return EL_I16;
    case DL_UINT << 8 | 16:
        return EL_U16;
    case DL_INT << 8 | 32:
        return EL_I32;
    case DL_UINT << 8 | 32:
        return EL_U32;
    case DL_INT << 8 | 64:
        return EL_I64;
    case DL_UINT << 8 | 64:
        return EL_U64;
    default:
        return EL_OTHER;
    }
}

static dl_type dl_of_type(uint32_t type)
{
    dl_type t = {DL_UINT, (uint8_t)(8 * element_bytes(type)), 1};
    if (type == HEED_F32 || type == HEED_F16 || type == EL_F64)
        t.code = DL_FLOAT;
    else if (type == HEED_BF16)
        t.code = DL_BFLOAT;
    else if (type == EL_BOOL)
        t.code = DL_BOOL;
    else if (type == HEED_I8 || type == EL_I16 || type == EL_I32 || type == EL_I64)
        t.code = DL_INT;
    return t;
}

const char *shape_text(char *text, size_t bytes, int axes, const int64_t *shape)
{
    size_t at = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < axes && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (at < bytes)
        snprintf(text + at, bytes - at, "]");
    return text;
}

/* ---- Array: memory of ours, with both protocols ------------------------------------------------------ */

typedef struct array_object {
    PyObject_HEAD void *memory; /* to be freed; NULL: base's */
    PyObject *base;             /* held */
    char *data;
    uint32_t type;
    int axes;
    int64_t shape[MAX_AXES], stride[MAX_AXES];                  /* in elements */
    Py_ssize_t buffer_shape[MAX_AXES], buffer_stride[MAX_AXES]; /* in bytes, for buffers */
} array_object;

PyObject *array_type;

static array_object *array_object_new(PyObject *base, void *data, uint32_t type, int axes,
                                      const int64_t *shape, const int64_t *stride)
{
    array_object *self = (array_object *)PyType_GenericAlloc((PyTypeObject *)array_type, 0);
    int64_t n = 1;
    if (!self)
        return NULL;
    self->type = type;
    self->axes = axes;
    for (int i = axes; i-- > 0;) {
        self->shape[i] = shape[i];
        self->stride[i] = stride ? stride[i] : n;
        n *= shape[i];
        self->buffer_shape[i] = (Py_ssize_t)shape[i];
        self->buffer_stride[i] = (Py_ssize_t)(self->stride[i] * element_bytes(type));
    }
    if (base) {
        Py_INCREF(base);
        self->base = base;
        self->data = data;
    } else {
        size_t bytes = (size_t)n * (size_t)element_bytes(type);
        if (posix_memalign(&self->memory, 64, bytes ? bytes : 1)) {
            self->memory = NULL;
            Py_DECREF(self);
            PyErr_NoMemory();
            return NULL;
        }
        self->data = self->memory;
    }
    return self;
}

static void array_object_free(PyObject *object)
{
    array_object *self = (array_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    free(self->memory);
    Py_XDECREF(self->base);
    PyObject_Free(object);
    Py_DECREF((PyObject *)type);
}

static int array_object_buffer(PyObject *object, Py_buffer *view, int flags)
{
    array_object *self = (array_object *)object;
    int64_t n = 1;
    bool contiguous = true;
    for (int i = self->axes; i-- > 0;) {
        contiguous = contiguous && (self->shape[i] <= 1 || self->stride[i] == n);
        n *= self->shape[i];
    }
    if (!contiguous && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "the Array is not contiguous");
        return -1;
    }
    view->buf = self->data;
    Py_INCREF(object);
    view->obj = object;
    view->itemsize = element_bytes(self->type);
    view->len = (Py_ssize_t)n * view->itemsize;
    view->readonly = 0;
    view->ndim = self->axes;
    view->format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format_of_type(self->type) : NULL;
    view->shape = (flags & PyBUF_ND) == PyBUF_ND ? self->buffer_shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->buffer_stride : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

/* A DLPack tensor holds its Array; shape and strides are the Array's own. */
static void managed_delete(dl_managed *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)managed->context);
    free(managed);
    PyGILState_Release(state);
}

static void versioned_delete(dl_versioned *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)managed->context);
    free(managed);
    PyGILState_Release(state);
}

static void capsule_delete(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
        managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        managed->deleter(managed);
    }
}

static void tensor_of_object(array_object *self, dl_tensor *out)
{
    out->data = self->data;
    out->device.type = DL_CPU;
    out->device.id = 0;
    out->ndim = self->axes;
    out->dtype = dl_of_type(self->type);
    out->shape = self->shape;
    out->strides = self->stride;
    out->byte_offset = 0;
}

static PyObject *array_object_dlpack(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                                     PyObject *kwnames)
{
    SIGNATURE(sig, "__dlpack__", 1, 0, "stream", "max_version", "dl_device", "copy");
    array_object *self = (array_object *)object;
    PyObject *value[4], *capsule;
    long major = 0;
    if (read_call(&sig, args, nargs, kwnames, value) < 0)
        return NULL;
    if (value[1]) {
        PyObject *first = PySequence_GetItem(value[1], 0);
        if (!first)
            return NULL;
        major = PyLong_AsLong(first);
        Py_DECREF(first);
        if (major == -1 && PyErr_Occurred())
            return NULL;
    }
    if (value[3] && PyObject_IsTrue(value[3]) == 1) {
        PyErr_SetString(PyExc_BufferError, "Array.__dlpack__ makes no copies");
        return NULL;
    }
    if (major >= 1) {
        dl_versioned *managed = calloc(1, sizeof *managed);
        if (!managed)
            return PyErr_NoMemory();
        managed->version.major = 1;
        managed->context = object;
        managed->deleter = versioned_delete;
        tensor_of_object(self, &managed->tensor);
        capsule = PyCapsule_New(managed, "dltensor_versioned", capsule_delete);
        if (!capsule)
            free(managed);
    } else {
        dl_managed *managed = calloc(1, sizeof *managed);
        if (!managed)
            return PyErr_NoMemory();
        managed->context = object;
        managed->deleter = managed_delete;
        tensor_of_object(self, &managed->tensor);
        capsule = PyCapsule_New(managed, "dltensor", capsule_delete);
        if (!capsule)
            free(managed);
    }
    if (capsule)
        Py_INCREF(object);
    return capsule;
}

static PyObject *array_object_device(PyObject *object, PyObject *ignored)
{
    (void)object, (void)ignored;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

static PyObject *tuple_of(int axes, const int64_t *entries)
{
    PyObject *tuple = PyTuple_New(axes);
    for (int i = 0; tuple && i < axes; i++) {
        PyObject *number = PyLong_FromLongLong(entries[i]);
        if (!number) {
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SetItem(tuple, i, number);
    }
    return tuple;
}

static PyObject *array_object_shape(PyObject *object, void *ignored)
{
    (void)ignored;
    return tuple_of(((array_object *)object)->axes, ((array_object *)object)->shape);
}

static PyObject *array_object_dtype(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyUnicode_FromString(element_name(((array_object *)object)->type));
}

static PyObject *array_object_tolist(PyObject *object, PyObject *ignored)
{
    PyObject *memory = PyMemoryView_FromObject(object), *list = NULL;
    (void)ignored;
    if (memory)
        list = PyObject_CallMethod(memory, "tolist", NULL);
    Py_XDECREF(memory);
    return list;
}

static PyObject *array_object_repr(PyObject *object)
{
    array_object *self = (array_object *)object;
    char text[128];
    return PyUnicode_FromFormat("heed.Array(shape=%s, dtype=%s)",
                                shape_text(text, sizeof text, self->axes, self->shape),
                                element_name(self->type));
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", METHOD(array_object_dlpack), METH_FASTCALL | METH_KEYWORDS,
     "The array for another library, without a copy."},
    {"__dlpack_device__", array_object_device, METH_NOARGS, "(1, 0): the CPU."},
    {"tolist", array_object_tolist, METH_NOARGS, "Its elements as nested lists; bf16 as integers."},
    {0}};

static PyGetSetDef array_members[] = {
    {"shape", array_object_shape, NULL, "lengths of the axes", NULL},
    {"dtype", array_object_dtype, NULL, "\"f32\", \"f16\", \"bf16\", \"int32\", ...", NULL},
    {0}};

static PyType_Slot array_slots[] = {
    {Py_tp_doc,
     (void *)(uintptr_t) "Memory of Heed's. numpy.asarray, memoryview, torch.from_dlpack and "
                         "others read it without a copy."},
    {Py_tp_dealloc, SLOT(array_object_free)},
    {Py_tp_repr, SLOT(array_object_repr)},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_members},
    {Py_bf_getbuffer, SLOT(array_object_buffer)},
    {0, NULL}};

static PyType_Spec array_spec = {"heed.Array", sizeof(array_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 array_slots};

PyObject *array_view(PyObject *base, void *data, uint32_t type, int axes, const int64_t *shape,
                     const int64_t *stride)
{
    return (PyObject *)array_object_new(base, data, type, axes, shape, stride);
}

/* ---- what kind of array a type is ---------------------------------------------------------------------- */

/* The kinds of types that were seen; each is held, so its address stays its own. */
static struct {
    PyTypeObject *type;
    int kind;
    const exchange_api *api;
} seen[32];
static int n_seen;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;

/* numpy's own dtypes of these types, one object each; held. */
enum { N_DTYPES = 6 };
static const struct {
    const char *name;
    uint32_t type;
} dtypes[N_DTYPES] = {{"float32", HEED_F32}, {"float16", HEED_F16}, {"int32", EL_I32},
                      {"bool", EL_BOOL},     {"int64", EL_I64},     {"uint16", EL_U16}};
static PyObject *numpy_empty, *numpy_dtype[N_DTYPES];
static PyObject *word_dlpack, *word_api, *word_max_version, *word_dtype;

static int load_numpy(PyObject *numpy)
{
    PyObject *dtype = PyObject_GetAttrString(numpy, "dtype");
    for (int i = 0; i < N_DTYPES && dtype; i++)
        if (!numpy_dtype[i])
            numpy_dtype[i] = PyObject_CallFunction(dtype, "s", dtypes[i].name);
    Py_XDECREF(dtype);
    if (!numpy_empty)
        numpy_empty = PyObject_GetAttrString(numpy, "empty");
    return numpy_empty && numpy_dtype[N_DTYPES - 1] ? 0 : -1;
}

/* Is it numpy.ndarray or a subclass? numpy is not imported for that. */
static int is_numpy(PyTypeObject *type)
{
    PyObject *modules = PyImport_GetModuleDict(), *numpy, *ndarray;
    int is;
    numpy = modules ? PyDict_GetItemString(modules, "numpy") : NULL; /* borrowed */
    if (!numpy || !PyObject_HasAttrString(numpy, "ndarray"))         /* or half imported */
        return 0;
    ndarray = PyObject_GetAttrString(numpy, "ndarray");
    if (!ndarray)
        return -1;
    is = PyObject_IsSubclass((PyObject *)type, ndarray);
    Py_DECREF(ndarray);
    return is == 1 && load_numpy(numpy) < 0 ? -1 : is;
}

int default_kind(void)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *numpy = modules ? PyDict_GetItemString(modules, "numpy") : NULL; /* borrowed */
    if (numpy && PyObject_HasAttrString(numpy, "ndarray") && load_numpy(numpy) == 0)
        return KIND_NUMPY;
    PyErr_Clear();
    return KIND_BUFFER;
}

static int kind_of(PyObject *object, const exchange_api **api)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject *capsule;
    int kind;
    *api = NULL;
    for (int i = 0, n = __atomic_load_n(&n_seen, __ATOMIC_ACQUIRE); i < n; i++)
        if (seen[i].type == type) {
            *api = seen[i].api;
            return seen[i].kind;
        }
    kind = is_numpy(type);
    if (kind < 0)
        return -1;
    if (kind) {
        kind = KIND_NUMPY;
    } else if (PyObject_HasAttr((PyObject *)type, word_api)) {
        capsule = PyObject_GetAttr((PyObject *)type, word_api);
        *api = capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")
                   ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
                   : NULL;
        Py_XDECREF(capsule); /* the table is the library's own, for good */
        PyErr_Clear();
        while (*api && (*api)->version.major != 1)
            *api = (*api)->previous;
        kind = *api ? KIND_EXCHANGE : KIND_DLPACK;
    } else if (type != (PyTypeObject *)array_type &&
               PyObject_HasAttr((PyObject *)type, word_dlpack)) {
        kind = KIND_DLPACK;
    } else if (PyObject_CheckBuffer(object)) {
        kind = KIND_BUFFER;
    } else {
        kind = KIND_NONE;
    }
    pthread_mutex_lock(&seen_lock);
    if (kind != KIND_NONE && n_seen < (int)(sizeof seen / sizeof seen[0])) {
        Py_INCREF((PyObject *)type);
        seen[n_seen].type = type;
        seen[n_seen].kind = kind;
        seen[n_seen].api = *api;
        __atomic_store_n(&n_seen, n_seen + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&seen_lock);
    return kind;
}

/* ---- in ---------------------------------------------------------------------------------------------- */

static int too_many_axes(const char *name, int axes)
{
    PyErr_Format(PyExc_ValueError, "%s has %d axes, more than %d", name, axes, MAX_AXES);
    return -1;
}

static int from_tensor(array *a, const dl_tensor *t, const char *name)
{
    int64_t n = 1;
    if (t->device.type != DL_CPU) {
        PyErr_Format(PyExc_ValueError,
                     "%s lies on a device (DLPack type %d); Heed computes on the CPU", name,
                     (int)t->device.type);
        return -1;
    }
    if (t->ndim > MAX_AXES)
        return too_many_axes(name, t->ndim);
    a->axes = t->ndim;
    a->type = type_of_dl(t->dtype);
    a->data = (char *)t->data + (t->data ? t->byte_offset : 0);
    for (int i = t->ndim; i-- > 0;) {
        a->shape[i] = t->shape[i];
        a->stride[i] = t->strides ? t->strides[i] : n;
        n *= t->shape[i];
    }
    return 0;
}

/* numpy has no buffer for ml_dtypes' bfloat16, but for the same bytes as uint16. */
static int bf16_buffer(array *a, PyObject *object, int flags)
{
    PyObject *type, *value, *words, *dtype = PyObject_GetAttr(object, word_dtype);
    int is;
    PyErr_Fetch(&type, &value, &words); /* the buffer's refusal, which stands if it is no bf16 */
    PyErr_Clear();
    {
        PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
        is = name && PyUnicode_Check(name) &&
             PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0;
        Py_XDECREF(name);
        Py_XDECREF(dtype);
    }
    PyErr_Clear();
    if (!is) {
        PyErr_Restore(type, value, words);
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(words);
    {
        PyObject *bits = PyObject_CallMethod(object, "view", "s", "uint16");
        int failed = bits ? PyObject_GetBuffer(bits, &a->view, flags) : -1;
        Py_XDECREF(bits); /* the buffer holds it */
        return failed;
    }
}

static int from_buffer(array *a, PyObject *object, const char *name)
{
    int flags = PyBUF_STRIDES | PyBUF_FORMAT; /* array_of looks whether it may be written */
    bool bf16 = false;
    uint32_t known = HEED_DTYPE_NONE;
    if (a->kind == KIND_NUMPY) { /* writing a format takes numpy longer than all else */
        PyObject *dtype = PyObject_GetAttr(object, word_dtype);
        for (int i = 0; i < N_DTYPES && dtype; i++)
            if (dtype == numpy_dtype[i])
                known = dtypes[i].type;
        Py_XDECREF(dtype);
        PyErr_Clear();
        if (known != HEED_DTYPE_NONE)
            flags = PyBUF_STRIDES;
    }
    if (PyObject_GetBuffer(object, &a->view, flags) < 0) {
        if (a->kind != KIND_NUMPY || bf16_buffer(a, object, flags) < 0) {
            if (PyErr_ExceptionMatches(PyExc_BufferError)) {
                PyErr_Clear();
                PyErr_Format(PyExc_ValueError, "%s gives no buffer with strides", name);
            }
            return -1;
        }
        bf16 = true;
    }
    a->has_view = true;
    if (a->view.ndim > MAX_AXES)
        return too_many_axes(name, a->view.ndim);
    a->axes = a->view.ndim;
    a->data = a->view.buf;
    a->type = known != HEED_DTYPE_NONE ? known
              : bf16                   ? HEED_BF16
                                       : type_of_format(a->view.format, a->view.itemsize);
    a->read_only = a->view.readonly;
    for (int i = 0; i < a->axes; i++) {
        a->shape[i] = a->view.shape[i];
        a->stride[i] = a->view.strides[i] / a->view.itemsize;
        if (a->view.strides[i] % a->view.itemsize && a->shape[i] > 1) {
            PyErr_Format(PyExc_ValueError,
                         "%s: the stride of axis %d is %zd bytes, no multiple of its element's %zd",
                         name, i, a->view.strides[i], a->view.itemsize);
            return -1;
        }
    }
    return 0;
}

static int from_capsule(array *a, PyObject *object, const char *name)
{
    PyObject *method = PyObject_GetAttr(object, word_dlpack), *capsule = NULL;
    if (!method)
        return -1;
    {
        PyObject *none = PyTuple_New(0), *named = Py_BuildValue("{O(ii)}", word_max_version, 1, 1);
        capsule = none && named ? PyObject_Call(method, none, named) : NULL;
        if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) { /* older than the keyword */
            PyErr_Clear();
            capsule = PyObject_CallNoArgs(method);
        }
        Py_XDECREF(none);
        Py_XDECREF(named);
    }
    Py_DECREF(method);
    if (!capsule)
        return -1;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (managed->version.major != 1) {
            PyErr_Format(PyExc_ValueError, "%s speaks DLPack %u, Heed 1", name,
                         (unsigned)managed->version.major);
            Py_DECREF(capsule);
            return -1;
        }
        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        a->managed = managed;
        a->versioned = true;
        a->read_only = managed->flags & DL_READ_ONLY;
        Py_DECREF(capsule);
        return from_tensor(a, &managed->tensor, name);
    }
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
        PyCapsule_SetName(capsule, "used_dltensor");
        a->managed = managed;
        a->versioned = false;
        Py_DECREF(capsule);
        return from_tensor(a, &managed->tensor, name);
    }
    Py_DECREF(capsule);
    PyErr_Format(PyExc_ValueError, "%s: what __dlpack__ returned is no DLPack tensor", name);
    return -1;
}

int array_of(array *a, PyObject *object, const char *name, bool writable, bool as_bf16)
{
    int failed;
    array_none(a);
    a->read_only = false;
    a->kind = kind_of(object, &a->api);
    if (a->kind < 0)
        return -1;
    if (a->kind == KIND_NONE) {
        PyErr_Format(PyExc_ValueError,
                     "%s is no array: its type has neither __dlpack__ nor a buffer", name);
        return -1;
    }
    Py_INCREF(object);
    a->object = object;
    if (a->kind == KIND_EXCHANGE && a->api->tensor_of) {
        dl_tensor tensor;
        failed = a->api->tensor_of(object, &tensor) ? -1 : from_tensor(a, &tensor, name);
    } else if (a->kind == KIND_EXCHANGE) {
        dl_versioned *managed;
        failed = a->api->managed_of(object, &managed) ? -1 : 0;
        if (!failed) {
            a->managed = managed;
            a->versioned = true;
            a->read_only = managed->flags & DL_READ_ONLY;
            failed = from_tensor(a, &managed->tensor, name);
        }
    } else if (a->kind == KIND_DLPACK) {
        failed = from_capsule(a, object, name);
    } else {
        failed = from_buffer(a, object, name);
    }
    if (!failed && writable && a->read_only) {
        PyErr_Format(PyExc_ValueError, "%s is read-only", name);
        failed = -1;
    }
    if (failed) {
        array_release(a);
        return -1;
    }
    if (as_bf16 && a->type == EL_U16)
        a->type = HEED_BF16;
    return 0;
}

void array_release(array *a)
{
    if (!a->object)
        return;
    if (a->has_view)
        PyBuffer_Release(&a->view);
    if (a->managed && a->versioned) {
        dl_versioned *managed = a->managed;
        if (managed->deleter)
            managed->deleter(managed);
    } else if (a->managed) {
        dl_managed *managed = a->managed;
        if (managed->deleter)
            managed->deleter(managed);
    }
    Py_DECREF(a->object);
    array_none(a);
}

/* ---- out ----------------------------------------------------------------------------------------------- */

static void allocation_failed(void *error, const char *kind, const char *message)
{
    (void)error;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_MemoryError, "%s: %s", kind, message);
}

static int new_by_exchange(array *a, const array *like, uint32_t type, int axes,
                           const int64_t *shape)
{
    dl_tensor prototype = {0};
    dl_versioned *managed = NULL;
    void *object = NULL;
    int64_t room[MAX_AXES];
    memcpy(room, shape, (size_t)axes * sizeof *room);
    prototype.device.type = DL_CPU;
    prototype.ndim = axes;
    prototype.dtype = dl_of_type(type);
    prototype.shape = room;
    if (like->api->allocate(&prototype, &managed, NULL, allocation_failed))
        return -1;
    if (from_tensor(a, &managed->tensor, "an output") < 0 || like->api->to_object(managed, &object))
        return -1;
    a->object = object;
    return 0;
}

int array_new(array *a, const array *like, uint32_t type, int axes, const int64_t *shape)
{
    int kind = like ? like->kind : KIND_BUFFER;
    array_none(a);
    a->kind = kind;
    a->api = like ? like->api : NULL;
    a->read_only = false;
    if (kind == KIND_NUMPY) {
        PyObject *tuple = tuple_of(axes, shape), *dtype, *object;
        if (!tuple)
            return -1;
        if (type == HEED_F32 || type == HEED_F16 || type == EL_I32) {
            dtype = numpy_dtype[type == HEED_F32 ? 0 : type == HEED_F16 ? 1 : 2];
            Py_INCREF(dtype);
        } else if (type == like->type) {
            dtype = PyObject_GetAttr(like->object, word_dtype);
        } else {
            dtype = PyUnicode_FromString(type == HEED_BF16 ? "uint16" : element_name(type));
        }
        object = dtype ? PyObject_CallFunctionObjArgs(numpy_empty, tuple, dtype, NULL) : NULL;
        Py_XDECREF(dtype);
        Py_DECREF(tuple);
        if (!object)
            return -1;
        a->object = object;
        if (from_buffer(a, object, "an output") < 0) {
            array_release(a);
            return -1;
        }
        a->type = type;
        return 0;
    }
    if (kind == KIND_EXCHANGE)
        return new_by_exchange(a, like, type, axes, shape);
    {
        array_object *own = array_object_new(NULL, NULL, type, axes, shape, NULL);
        if (!own)
            return -1;
        a->object = (PyObject *)own;
        a->data = own->data;
        a->axes = axes;
        a->type = type;
        memcpy(a->shape, own->shape, sizeof a->shape);
        memcpy(a->stride, own->stride, sizeof a->stride);
    }
    return 0;
}

/* Our memory as the library's own kind of array: jax and others by from_dlpack of their namespace. */
static PyObject *by_namespace(PyObject *own, PyObject *like)
{
    PyObject *space = NULL, *made;
    if (PyObject_HasAttrString(like, "__array_namespace__")) {
        space = PyObject_CallMethod(like, "__array_namespace__", NULL);
    } else { /* such as torch before it had a table */
        PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(like), "__module__");
        PyObject *parts = name ? PyObject_CallMethod(name, "partition", "s", ".") : NULL;
        PyObject *root = parts ? PySequence_GetItem(parts, 0) : NULL;
        space = root ? PyImport_Import(root) : NULL;
        Py_XDECREF(root);
        Py_XDECREF(parts);
        Py_XDECREF(name);
    }
    if (!space)
        return NULL;
    made = PyObject_CallMethod(space, "from_dlpack", "O", own);
    Py_DECREF(space);
    return made;
}

PyObject *array_result(array *a, const array *like)
{
    PyObject *object = a->object;
    if (!object)
        return NULL;
    Py_INCREF(object);
    if (a->kind == KIND_DLPACK && like && Py_TYPE(object) == (PyTypeObject *)array_type) {
        PyObject *made = by_namespace(object, like->object);
        Py_DECREF(object);
        object = made;
    }
    array_release(a);
    return object;
}

void array_fill(array *a, float value)
{
    int64_t n = 1;
    for (int i = 0; i < a->axes; i++)
        n *= a->shape[i];
    if (value == 0)
        memset(a->data, 0, (size_t)n * (size_t)element_bytes(a->type));
    else
        for (int64_t i = 0; i < n; i++)
            heed_store(a->type, a->data, i, value);
}

int arrays_init(PyObject *module)
{
    array_type = PyType_FromSpec(&array_spec);
    word_dlpack = PyUnicode_InternFromString("__dlpack__");
    word_api = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    word_max_version = PyUnicode_InternFromString("max_version");
    word_dtype = PyUnicode_InternFromString("dtype");
    if (!array_type || !word_dlpack || !word_api || !word_max_version || !word_dtype)
        return -1;
    return PyModule_AddObjectRef(module, "Array", array_type);
}
