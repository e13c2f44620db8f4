/* Makes arrays of results, of the kind of the arguments. */
#include "dlpack.h"

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
    if (from_tensor(a, &managed->tensor, "an output") < 0) {
        if (managed->deleter)
            managed->deleter(managed);
        return -1;
    }
    if (like->api->to_object(managed, &object)) /* which takes it over */
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
            dtype = numpy_dtype_of(type);
            Py_INCREF(dtype);
        } else if (type == like->type) {
            dtype = PyObject_GetAttr(like->object, word_dtype);
        } else {
            dtype = PyUnicode_FromString(type == HEED_BF16 ? "uint16" : element_name(type));
        }
        object = dtype ? PyObject_CallFunctionObjArgs(numpy_maker(), tuple, dtype, NULL) : NULL;
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
        array_object *own = array_object_new(type, axes, shape);
        if (!own)
            return -1;
        a->object = (PyObject *)own;
        a->data = own->memory;
        a->axes = axes;
        a->type = type;
        memcpy(a->shape, own->shape, sizeof a->shape);
        memcpy(a->stride, own->stride, sizeof a->stride);
    }
    return 0;
}

/* from_dlpack of the namespace of an array of jax and others; NULL without an exception where there is
 * none, as in pyarrow or beside a class of one's own. */
static PyObject *from_dlpack_of(PyObject *like)
{
    PyObject *space = NULL, *function;
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
    function = space ? PyObject_GetAttrString(space, "from_dlpack") : NULL;
    Py_XDECREF(space);
    if (!function &&
        (PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(PyExc_ImportError)))
        PyErr_Clear();
    return function;
}

/* Turns our memory into the library's own kind of array, where it has a function for that. */
static PyObject *by_namespace(PyObject *own, PyObject *like)
{
    PyObject *function = from_dlpack_of(like), *made;
    if (!function) {
        if (PyErr_Occurred())
            return NULL;
        Py_INCREF(own);
        return own;
    }
    made = PyObject_CallFunctionObjArgs(function, own, NULL);
    Py_DECREF(function);
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
