/* Finds the kind of array that a type is: numpy's, one with a table of DLPack's functions, one with
 * DLPack, or a buffer. */
#include "dlpack.h"

#include <pthread.h>

/* The kinds of the types seen so far. Each type is held, so that no other gets its address. */
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
PyObject *word_dlpack, *word_api, *word_max_version, *word_dtype, *word_is_neg, *word_requires_grad;

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

/* Is the type numpy.ndarray or a subclass? Does not import numpy to find out. */
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

int kind_of(PyObject *object, const exchange_api **api)
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
        Py_XDECREF(capsule); /* the library keeps the table for good */
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

PyObject *numpy_maker(void)
{
    return numpy_empty;
}

PyObject *numpy_dtype_of(uint32_t type)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].type == type)
            return numpy_dtype[i];
    return NULL;
}

uint32_t type_of_numpy_dtype(const PyObject *dtype)
{
    for (int i = 0; i < N_DTYPES && dtype; i++)
        if (dtype == numpy_dtype[i])
            return dtypes[i].type;
    return HEED_DTYPE_NONE;
}
