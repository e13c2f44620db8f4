/*
 * Arrays that come in, by DLPack or the buffer protocol; array_out.c makes those that go out.
 *
 * Kinds      numpy.ndarray comes by its buffer and goes out as numpy.empty; a type with DLPack's table of
 *            functions (torch) by that table, both ways, which takes a fraction of the time of a capsule;
 *            any other type with __dlpack__ (jax) by capsules; what has a buffer alone (memoryview,
 *            array.array) gets an Array of ours back, which has both protocols itself.
 * ml_dtypes  has types without a buffer format: bf16 and E4M3 are read through a view as uint16 or uint8.
 */
#include "dlpack.h"

static int too_many_axes(const char *name, int axes)
{
    PyErr_Format(PyExc_ValueError, "%s has %d axes, more than %d", name, axes, MAX_AXES);
    return -1;
}

/* Tensors of torch may have elements and no memory (meta and fake tensors, storage that was freed); a
 * view of such storage has its offset for an address. Nothing lies in the first page. */
static int in_memory(const array *a, const char *name)
{
    if ((uintptr_t)a->data >= 4096)
        return 0;
    for (int i = 0; i < a->axes; i++)
        if (a->shape[i] == 0)
            return 0;
    PyErr_Format(
        PyExc_ValueError,
        "%s has no memory, as a meta or fake tensor has none, or one whose storage was freed",
        name);
    return -1;
}

int from_tensor(array *a, const dl_tensor *t, const char *name)
{
    int64_t n = 1, count;
    if (t->device.type != DL_CPU) {
        PyErr_Format(PyExc_ValueError,
                     "%s lies on a device (DLPack type %d); Heed computes on the CPU", name,
                     (int)t->device.type);
        return -1;
    }
    if (t->ndim > MAX_AXES)
        return too_many_axes(name, t->ndim);
    count = t->strides ? 0 : array_count(t->ndim, t->shape);
    if (count < 0) {
        PyErr_Format(PyExc_ValueError, "%s has more elements than memory", name);
        return -1;
    }
    a->axes = t->ndim;
    a->type = type_of_dl(t->dtype);
    a->data = (char *)t->data + (t->data ? t->byte_offset : 0);
    for (int i = t->ndim; i-- > 0;) {
        a->shape[i] = t->shape[i];
        a->stride[i] = t->strides ? t->strides[i] : n;
        n *= count ? t->shape[i] : 1;
    }
    return in_memory(a, name);
}

/* The type of an array of numpy's that has no buffer: one of ml_dtypes', or one that is none of ours. */
static uint32_t type_without_buffer(PyObject *object)
{
    PyObject *dtype = PyObject_GetAttr(object, word_dtype);
    PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
    uint32_t type = EL_OTHER;
    if (name && PyUnicode_Check(name)) {
        if (PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0)
            type = HEED_BF16;
        else if (PyUnicode_CompareWithASCIIString(name, "float8_e4m3fn") == 0)
            type = HEED_F8_E4M3;
    }
    Py_XDECREF(name);
    Py_XDECREF(dtype);
    PyErr_Clear();
    return type;
}

/* numpy has no buffer for ml_dtypes' types, but for the same bytes as integers. An array that has none
 * becomes one of another type and without axes, which whoever asked for it refuses. */
static int numpy_buffer(array *a, PyObject *object, int flags)
{
    PyObject *bits;
    int failed;
    if (PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyErr_Clear();
    a->type = type_without_buffer(object);
    if (a->type == EL_OTHER)
        return 0;
    bits = PyObject_CallMethod(object, "view", "s", a->type == HEED_BF16 ? "uint16" : "uint8");
    failed = bits ? PyObject_GetBuffer(bits, &a->view, flags) : -1;
    Py_XDECREF(bits); /* the buffer holds it */
    return failed;
}

/* ctypes gives no strides, though they are asked for: its arrays are C-contiguous. */
static int buffer_axes(array *a, const char *name)
{
    int64_t n = 1;
    for (int i = a->axes; i-- > 0;) {
        a->shape[i] = a->view.shape[i];
        a->stride[i] = a->view.strides ? a->view.strides[i] / a->view.itemsize : n;
        n *= a->view.strides ? 1 : a->shape[i];
        if (a->view.strides && a->view.strides[i] % a->view.itemsize && a->shape[i] > 1) {
            PyErr_Format(PyExc_ValueError,
                         "%s: the stride of axis %d is %zd bytes, no multiple of its element's %zd",
                         name, i, a->view.strides[i], a->view.itemsize);
            return -1;
        }
    }
    return in_memory(a, name);
}

int from_buffer(array *a, PyObject *object, const char *name)
{
    int flags = PyBUF_STRIDES | PyBUF_FORMAT; /* array_of checks whether it is writable */
    uint32_t known = HEED_DTYPE_NONE;
    if (a->kind == KIND_NUMPY) { /* numpy is slow at writing a format string */
        PyObject *dtype = PyObject_GetAttr(object, word_dtype);
        known = type_of_numpy_dtype(dtype);
        Py_XDECREF(dtype);
        PyErr_Clear();
        if (known != HEED_DTYPE_NONE)
            flags = PyBUF_STRIDES;
    }
    if (PyObject_GetBuffer(object, &a->view, flags) < 0) {
        if (a->kind != KIND_NUMPY || numpy_buffer(a, object, flags) < 0) {
            if (PyErr_ExceptionMatches(PyExc_BufferError)) {
                PyErr_Clear();
                PyErr_Format(PyExc_ValueError, "%s gives no buffer with strides", name);
            }
            return -1;
        }
        if (a->type == EL_OTHER)
            return 0;
        known = a->type;
    }
    a->has_view = true;
    if (a->view.ndim > MAX_AXES)
        return too_many_axes(name, a->view.ndim);
    a->axes = a->view.ndim;
    a->data = a->view.buf;
    a->type = known != HEED_DTYPE_NONE ? known : type_of_format(a->view.format, a->view.itemsize);
    a->read_only = a->view.readonly;
    if (a->view.itemsize < 1) {
        PyErr_Format(PyExc_ValueError, "%s has elements of no bytes", name);
        return -1;
    }
    return buffer_axes(a, name);
}

static void read_flags(array *a, const dl_versioned *managed)
{
    a->read_only = managed->flags & DL_READ_ONLY;
    a->copied = managed->flags & DL_IS_COPIED;
}

static int from_capsule(array *a, PyObject *object, const char *name)
{
    PyObject *method = PyObject_GetAttr(object, word_dlpack), *capsule = NULL;
    if (!method)
        return -1;
    {
        PyObject *none = PyTuple_New(0), *named = Py_BuildValue("{O(ii)}", word_max_version, 1, 1);
        capsule = none && named ? PyObject_Call(method, none, named) : NULL;
        if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) { /* it lacks the keyword */
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
        read_flags(a, managed);
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

/* torch's tensors may have a sign that has not been carried out (x.conj().imag): memory holds the
 * opposite numbers, and DLPack does not say so. Types without is_neg() have none. */
static int is_negated(PyObject *object, const char *name)
{
    PyObject *answer = PyObject_CallMethodObjArgs(object, word_is_neg, NULL);
    const int is = answer ? PyObject_IsTrue(answer) : 0;
    Py_XDECREF(answer);
    if (!answer && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    if (is > 0)
        PyErr_Format(PyExc_ValueError, "%s is a negated view; %s.resolve_neg() has its numbers",
                     name, name);
    return is || PyErr_Occurred() ? -1 : 0;
}

int array_of(array *a, PyObject *object, const char *name, bool writable, bool as_bf16)
{
    int failed;
    array_none(a);
    a->read_only = a->copied = false;
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
            read_flags(a, managed);
            failed = from_tensor(a, &managed->tensor, name);
        }
    } else if (a->kind == KIND_DLPACK) {
        failed = from_capsule(a, object, name);
    } else {
        failed = from_buffer(a, object, name);
    }
    if (!failed && (a->kind == KIND_EXCHANGE || a->kind == KIND_DLPACK))
        failed = is_negated(object, name);
    if (!failed && writable && (a->read_only || a->copied)) {
        PyErr_Format(PyExc_ValueError,
                     a->copied ? "%s comes as a copy, and would not be written to"
                               : "%s is read-only",
                     name);
        failed = -1;
    }
    if (!failed && writable && (a->kind == KIND_EXCHANGE || a->kind == KIND_DLPACK))
        failed = given_without_gradient(object, name);
    if (failed) {
        array_release(a);
        return -1;
    }
    if (a->type == EL_U16 && (as_bf16 || array_is_bf16(object)))
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

int alignment_needed(const array *a, const char *name)
{
    const int bytes = element_bytes(a->type);
    if ((uintptr_t)a->data % (uintptr_t)bytes == 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s does not lie at a multiple of %d bytes; a copy of it does",
                 name, bytes);
    return -1;
}

void *address_of(const array *a)
{
    static char nothing[64];
    return a->data ? a->data : nothing;
}
