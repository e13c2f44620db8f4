/* Array: memory of ours, with the buffer protocol and DLPack. */
#include "dlpack.h"

#include <stdlib.h>

PyObject *array_type;

int64_t array_count(int axes, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < axes; i++)
        if (shape[i] == 0)
            return 0;
    for (int i = 0; i < axes; i++) {
        if (n > (INT64_C(1) << 60) / shape[i])
            return -1;
        n *= shape[i];
    }
    return n;
}

array_object *array_object_new(uint32_t type, int axes, const int64_t *shape)
{
    const int64_t count = array_count(axes, shape);
    const size_t bytes = count < 0 ? 0 : (size_t)count * (size_t)element_bytes(type);
    array_object *self;
    int64_t n = 1;
    if (count < 0) {
        PyErr_NoMemory();
        return NULL;
    }
    self = (array_object *)PyType_GenericAlloc((PyTypeObject *)array_type, 0);
    if (!self)
        return NULL;
    self->type = type;
    self->axes = axes;
    for (int i = axes; i-- > 0;) {
        self->shape[i] = shape[i];
        self->stride[i] = n;
        n *= count ? shape[i] : 1; /* an array of nothing is not stepped through */
        self->buffer_shape[i] = (Py_ssize_t)shape[i];
        self->buffer_stride[i] = (Py_ssize_t)(self->stride[i] * element_bytes(type));
    }
    if (posix_memalign(&self->memory, 64, bytes ? bytes : 1)) {
        self->memory = NULL;
        Py_DECREF(self);
        PyErr_NoMemory();
        return NULL;
    }
    return self;
}

bool array_is_bf16(PyObject *object)
{
    return Py_TYPE(object) == (PyTypeObject *)array_type &&
           ((array_object *)object)->type == HEED_BF16;
}

static void array_object_free(PyObject *object)
{
    array_object *self = (array_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    free(self->memory);
    PyObject_Free(object);
    Py_DECREF((PyObject *)type);
}

static int array_object_buffer(PyObject *object, Py_buffer *view, int flags)
{
    array_object *self = (array_object *)object;
    int64_t n = 1;
    int long_axes = 0;
    for (int i = 0; i < self->axes; i++) {
        n *= self->shape[i];
        long_axes += self->shape[i] > 1;
    }
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && n > 0 && long_axes > 1) {
        view->obj = NULL; /* as the protocol wants it after a failure */
        PyErr_SetString(PyExc_BufferError, "the Array is C-contiguous, and not in Fortran's order");
        return -1;
    }
    view->buf = self->memory;
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

/* A DLPack tensor holds a reference to its Array, whose shape and strides it uses. C++ may delete its
 * objects when there is no Python any more; the Array then stays. */
static void let_go(void *owner)
{
    PyGILState_STATE state;
    if (!Py_IsInitialized())
        return;
    state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

static void managed_delete(dl_managed *managed)
{
    let_go(managed->context);
    free(managed);
}

static void versioned_delete(dl_versioned *managed)
{
    let_go(managed->context);
    free(managed);
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
    out->data = self->memory;
    out->device.type = DL_CPU;
    out->device.id = 0;
    out->ndim = self->axes;
    out->dtype = dl_of_type(self->type);
    out->shape = self->shape;
    out->strides = self->stride;
    out->byte_offset = 0;
}

/* Is it the CPU, where Arrays lie? They are not copied elsewhere. */
static int on_device(PyObject *device)
{
    PyObject *type = PySequence_GetItem(device, 0),
             *id = type ? PySequence_GetItem(device, 1) : NULL;
    const long type_number = id ? PyLong_AsLong(type) : -1;
    const long id_number = id ? PyLong_AsLong(id) : -1;
    Py_XDECREF(type);
    Py_XDECREF(id);
    if (PyErr_Occurred())
        return -1;
    if (type_number == DL_CPU && id_number == 0)
        return 0;
    PyErr_Format(PyExc_BufferError, "the Array lies on the CPU, (1, 0), not on %R", device);
    return -1;
}

static PyObject *array_object_dlpack(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                                     PyObject *kwnames)
{
    SIGNATURE(sig, "__dlpack__", 1, 0, "stream", "max_version", "dl_device", "copy");
    array_object *self = (array_object *)object;
    PyObject *value[4], *capsule;
    long major = 0;
    bool copy;
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
    if (value[2] && on_device(value[2]) < 0)
        return NULL;
    if (truth_of(value[3], "copy", &copy) < 0)
        return NULL;
    if (copy) {
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

PyObject *tuple_of(int axes, const int64_t *entries)
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

/* The elements from index `at` on, along `axis` and those after it, as nested lists of floats. */
static PyObject *floats_list(const array_object *self, int axis, int64_t at)
{
    PyObject *list;
    if (axis == self->axes)
        return PyFloat_FromDouble((double)heed_load(self->type, self->memory, at));
    list = PyList_New((Py_ssize_t)self->shape[axis]);
    for (int64_t i = 0; list && i < self->shape[axis]; i++) {
        PyObject *item = floats_list(self, axis + 1, at + i * self->stride[axis]);
        if (!item) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, (Py_ssize_t)i, item);
    }
    return list;
}

static PyObject *array_object_tolist(PyObject *object, PyObject *ignored)
{
    const array_object *self = (array_object *)object;
    PyObject *memory, *list = NULL;
    (void)ignored;
    /* memoryview reads no f16 before Python 3.12, and has bf16 as integers. */
    if (self->type == HEED_F16 || self->type == HEED_BF16)
        return floats_list(self, 0, 0);
    memory = PyMemoryView_FromObject(object);
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
    {"tolist", array_object_tolist, METH_NOARGS, "Its elements as nested lists."},
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

int arrays_init(PyObject *module)
{
    array_type = PyType_FromSpec(&array_spec);
    word_dlpack = PyUnicode_InternFromString("__dlpack__");
    word_api = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    word_max_version = PyUnicode_InternFromString("max_version");
    word_dtype = PyUnicode_InternFromString("dtype");
    word_is_neg = PyUnicode_InternFromString("is_neg");
    word_requires_grad = PyUnicode_InternFromString("requires_grad");
    if (!array_type || !word_dlpack || !word_api || !word_max_version || !word_dtype ||
        !word_is_neg || !word_requires_grad)
        return -1;
    return PyModule_AddObjectRef(module, "Array", array_type);
}
