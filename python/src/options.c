/* Arguments of calls: keywords, lists of numbers, words, types and layouts. */
#include "dlpack.h"

#include <stdlib.h>

/* ---- keywords ------------------------------------------------------------------------------------------ */

static int intern_names(signature *sig)
{
    if (__atomic_load_n(&sig->interned[sig->n - 1], __ATOMIC_ACQUIRE))
        return 0;
    for (int i = 0; i < sig->n; i++) { /* if two threads do so at once, they write the same */
        PyObject *name = PyUnicode_InternFromString(sig->names[i]);
        if (!name)
            return -1;
        __atomic_store_n(&sig->interned[i], name, __ATOMIC_RELEASE);
    }
    return 0;
}

/* The names in a call are mostly interned, so comparing addresses usually finds them. */
static int index_of(const signature *sig, PyObject *name)
{
    for (int i = 0; i < sig->n; i++)
        if (sig->interned[i] == name)
            return i;
    if (!PyUnicode_Check(name)) { /* types are called with a dict that nobody has looked at */
        PyErr_Format(PyExc_TypeError, "%s() keywords must be strings, not %R", sig->function, name);
        return -1;
    }
    for (int i = 0; i < sig->n; i++)
        if (PyUnicode_CompareWithASCIIString(name, sig->names[i]) == 0)
            return i;
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", sig->function,
                 name);
    return -1;
}

static int put(const signature *sig, PyObject **values, bool *given, int at, PyObject *value)
{
    if (given[at]) {
        PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", sig->function,
                     sig->names[at]);
        return -1;
    }
    given[at] = true;
    values[at] = value == Py_None ? NULL : value;
    return 0;
}

static int too_many(const signature *sig, Py_ssize_t n)
{
    PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments (%zd given)",
                 sig->function, sig->n_positional, n);
    return -1;
}

static int all_there(const signature *sig, const bool *given)
{
    for (int i = 0; i < sig->n_required; i++)
        if (!given[i]) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", sig->function,
                         sig->names[i]);
            return -1;
        }
    return 0;
}

int read_call(signature *sig, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
              PyObject **values)
{
    bool given[64] = {false};
    Py_ssize_t n_named = kwnames ? PyTuple_Size(kwnames) : 0;
    memset(values, 0, (size_t)sig->n * sizeof *values);
    if (intern_names(sig) < 0)
        return -1;
    if (nargs > sig->n_positional)
        return too_many(sig, nargs);
    for (Py_ssize_t i = 0; i < nargs; i++)
        put(sig, values, given, (int)i, args[i]);
    for (Py_ssize_t i = 0; i < n_named; i++) {
        int at = index_of(sig, PyTuple_GetItem(kwnames, i));
        if (at < 0 || put(sig, values, given, at, args[nargs + i]) < 0)
            return -1;
    }
    return all_there(sig, given);
}

int read_tuple(signature *sig, PyObject *args, PyObject *kwargs, PyObject **values)
{
    bool given[64] = {false};
    Py_ssize_t nargs = PyTuple_Size(args), at = 0;
    PyObject *name, *value;
    memset(values, 0, (size_t)sig->n * sizeof *values);
    if (intern_names(sig) < 0)
        return -1;
    if (nargs > sig->n_positional)
        return too_many(sig, nargs);
    for (Py_ssize_t i = 0; i < nargs; i++)
        put(sig, values, given, (int)i, PyTuple_GetItem(args, i));
    while (kwargs && PyDict_Next(kwargs, &at, &name, &value)) {
        int i = index_of(sig, name);
        if (i < 0 || put(sig, values, given, i, value) < 0)
            return -1;
    }
    return all_there(sig, given);
}

int arrays_needed(const signature *sig, PyObject *const *values, int n)
{
    for (int i = 0; i < n; i++)
        if (!values[i]) {
            PyErr_Format(PyExc_ValueError, "%s is None; an array is needed", sig->names[i]);
            return -1;
        }
    return 0;
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

void numbers_release(numbers *x)
{
    if (x->data && x->data != (void *)&x->room)
        free(x->data);
    x->data = NULL;
}

int numbers_room(numbers *x, int64_t n)
{
    x->n = n;
    x->data = n <= 64 ? (void *)&x->room : malloc((size_t)n * 4);
    if (x->data)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int length_is(const char *name, int64_t have, int64_t want)
{
    if (want < 0 || have == want)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s has %lld entries where %lld are needed", name,
                 (long long)have, (long long)want);
    return -1;
}

/* The number of what has __index__. Its errors name the argument. */
static int whole_of(PyObject *object, const char *name, long long *out)
{
    PyObject *whole = PyNumber_Index(object);
    *out = whole ? PyLong_AsLongLong(whole) : -1;
    Py_XDECREF(whole);
    if (*out != -1 || !PyErr_Occurred())
        return 0;
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s does not fit 64 bits", name);
    } else if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is %R; a whole number is needed", name, object);
    }
    return -1;
}

static int real_of(PyObject *object, const char *name, double *out)
{
    *out = PyFloat_AsDouble(object);
    if (*out != -1 || !PyErr_Occurred())
        return 0;
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is beyond all floats", name);
    } else if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is %R; a number is needed", name, object);
    }
    return -1;
}

static int fits_int32(const char *name, long long value)
{
    if (value >= INT32_MIN && value <= INT32_MAX)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s: %lld does not fit 32 bits", name, value);
    return -1;
}

bool is_list(PyObject *object)
{
    const struct exchange_api *api;
    if (PyList_Check(object) || PyTuple_Check(object))
        return true;
    if (!PySequence_Check(object) || PyUnicode_Check(object))
        return false;
    /* Arrays are sequences too, and bytes are arrays. */
    return kind_of(object, &api) == KIND_NONE;
}

static int one_axis(const array *a, const char *name)
{
    if (a->axes == 1)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s has %d axes where one is needed", name, a->axes);
    return -1;
}

static int int32s_of_list(numbers *x, PyObject *list, const char *name, int64_t n)
{
    Py_ssize_t length = PySequence_Size(list);
    if (length < 0 || length_is(name, length, n) < 0 || numbers_room(x, length) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        long long value;
        const int failed = item ? whole_of(item, name, &value) : -1;
        Py_XDECREF(item);
        if (failed || fits_int32(name, value) < 0)
            return -1;
        ((int32_t *)x->data)[i] = (int32_t)value;
    }
    return 0;
}

static int int32s_of_array(numbers *x, const array *a, const char *name, int64_t n)
{
    if (a->type != EL_I32 && a->type != EL_I64) {
        PyErr_Format(PyExc_ValueError, "%s is of %s; int32 or int64 is needed", name,
                     element_name(a->type));
        return -1;
    }
    if (one_axis(a, name) < 0 || length_is(name, a->shape[0], n) < 0 ||
        numbers_room(x, a->shape[0]) < 0)
        return -1;
    for (int64_t i = 0; i < a->shape[0]; i++) {
        int64_t wide;
        int32_t narrow;
        if (a->type == EL_I32) {
            memcpy(&narrow, a->data + i * a->stride[0] * 4, sizeof narrow);
        } else {
            memcpy(&wide, a->data + i * a->stride[0] * 8, sizeof wide);
            if (fits_int32(name, wide) < 0)
                return -1;
            narrow = (int32_t)wide;
        }
        ((int32_t *)x->data)[i] = narrow;
    }
    return 0;
}

bool is_number(PyObject *object)
{
    PyObject *axes;
    bool none;
    if (PyLong_Check(object))
        return true;
    /* The types of arrays have __index__ too, for those without axes. */
    if (!PyIndex_Check(object) || PyObject_Size(object) >= 0)
        return false;
    PyErr_Clear(); /* those of the array API have no length either */
    axes = PyObject_GetAttrString(object, "ndim");
    none = !axes || PyObject_IsTrue(axes) == 0;
    Py_XDECREF(axes);
    PyErr_Clear();
    return none;
}

bool are_numbers(PyObject *object)
{
    const struct exchange_api *api;
    if (is_number(object) || is_list(object))
        return true;
    const int kind = PyUnicode_Check(object) ? KIND_NONE : kind_of(object, &api);
    if (kind < 0)
        PyErr_Clear(); /* whoever reads the object meets it again */
    return kind != KIND_NONE;
}

int int32s_of(numbers *x, PyObject *object, const char *name, int64_t n)
{
    int failed;
    numbers_none(x);
    if (n >= 0 && is_number(object)) {
        long long value;
        if (whole_of(object, name, &value) < 0 || fits_int32(name, value) < 0 ||
            numbers_room(x, n) < 0)
            return -1;
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)x->data)[i] = (int32_t)value;
        return 0;
    }
    if (is_list(object)) {
        failed = int32s_of_list(x, object, name, n);
    } else if (!are_numbers(object)) {
        PyErr_Format(PyExc_ValueError, "%s is %R; %sa list or an array of whole numbers is needed",
                     name, object, n >= 0 ? "a whole number, " : "");
        return -1;
    } else {
        array a;
        if (array_of(&a, object, name, false, false) < 0)
            return -1;
        failed = int32s_of_array(x, &a, name, n);
        array_release(&a);
    }
    if (failed)
        numbers_release(x);
    return failed;
}

static int floats_of_list(numbers *x, PyObject *list, const char *name, int64_t n)
{
    Py_ssize_t length = PySequence_Size(list);
    if (length < 0 || length_is(name, length, n) < 0 || numbers_room(x, length) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        double value;
        const int failed = item ? real_of(item, name, &value) : -1;
        Py_XDECREF(item);
        if (failed)
            return -1;
        ((float *)x->data)[i] = (float)value;
    }
    return 0;
}

static int floats_of_array(numbers *x, const array *a, const char *name, int64_t n)
{
    if (a->type != HEED_F32 && a->type != HEED_F16 && a->type != HEED_BF16 && a->type != EL_F64) {
        PyErr_Format(PyExc_ValueError, "%s is of %s; a floating-point type is needed", name,
                     element_name(a->type));
        return -1;
    }
    if (one_axis(a, name) < 0 || length_is(name, a->shape[0], n) < 0 ||
        numbers_room(x, a->shape[0]) < 0)
        return -1;
    for (int64_t i = 0; i < a->shape[0]; i++) {
        double wide;
        if (a->type == EL_F64)
            memcpy(&wide, a->data + i * a->stride[0] * 8, sizeof wide);
        else
            wide = (double)heed_load(a->type, a->data, i * a->stride[0]);
        ((float *)x->data)[i] = (float)wide;
    }
    return 0;
}

int floats_of(numbers *x, PyObject *object, const char *name, int64_t n, bool as_bf16)
{
    int failed;
    numbers_none(x);
    if (is_list(object)) {
        failed = floats_of_list(x, object, name, n);
    } else {
        array a;
        if (array_of(&a, object, name, false, as_bf16) < 0)
            return -1;
        x->type = a.type;
        failed = floats_of_array(x, &a, name, n);
        array_release(&a);
    }
    if (failed)
        numbers_release(x);
    return failed;
}

int int64_of(PyObject *object, const char *name, int64_t least, int64_t *out)
{
    long long value;
    if (whole_of(object, name, &value) < 0)
        return -1;
    if (value < least) {
        PyErr_Format(PyExc_ValueError, "%s is %lld, less than %lld", name, value, (long long)least);
        return -1;
    }
    *out = value;
    return 0;
}

int float_of(PyObject *object, const char *name, float *out)
{
    double value;
    if (real_of(object, name, &value) < 0)
        return -1;
    *out = (float)value;
    return 0;
}

/* Whether asking an object for its truth failed because it has none: arrays of many numbers raise
 * ValueError, torch's RuntimeError, others TypeError. Anything else is not about the argument. */
static bool has_no_truth(void)
{
    return PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_TypeError) ||
           PyErr_ExceptionMatches(PyExc_RuntimeError);
}

int truth_of(PyObject *object, const char *name, bool *out)
{
    /* Words and bytes are refused: "no" would be true. */
    const bool word =
        object && (PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object));
    const int is = object && !word ? PyObject_IsTrue(object) : 0;
    *out = is > 0;
    if (word) {
        PyErr_Format(PyExc_ValueError, "%s is %R; True or False is needed", name, object);
        return -1;
    }
    if (is < 0 && has_no_truth()) {
        PyObject *type = PyType_GetName(Py_TYPE(object));
        PyErr_Clear();
        if (type)
            PyErr_Format(PyExc_ValueError,
                         "%s is of type %U and neither true nor false; True or False is needed",
                         name, type);
        Py_XDECREF(type);
    }
    return is < 0 ? -1 : 0;
}

/* ---- words --------------------------------------------------------------------------------------------- */

const char *characters_of(PyObject *text)
{
    Py_ssize_t length;
    const char *word = PyUnicode_AsUTF8AndSize(text, &length);
    if (!word || strlen(word) == (size_t)length)
        return word;
    PyErr_Format(PyExc_ValueError, "%R has a NUL in it", text);
    return NULL;
}

int word_of(PyObject *object, const char *name, const char *const *words)
{
    char list[256] = "";
    if (PyUnicode_Check(object))
        for (int i = 0; words[i]; i++)
            if (PyUnicode_CompareWithASCIIString(object, words[i]) == 0)
                return i;
    for (int i = 0; words[i]; i++) {
        strncat(list, i ? ", \"" : "\"", sizeof list - strlen(list) - 1);
        strncat(list, words[i], sizeof list - strlen(list) - 1);
        strncat(list, "\"", sizeof list - strlen(list) - 1);
    }
    PyErr_Format(PyExc_ValueError, "%s is %R; known are %s", name, object, list);
    return -1;
}

int dtype_of(PyObject *object, const char *name, bool codes, uint32_t *out)
{
    static const struct {
        const char *word;
        uint32_t type;
    } other[] = {{"float32", HEED_F32},   {"float", HEED_F32},
                 {"float16", HEED_F16},   {"half", HEED_F16},
                 {"bfloat16", HEED_BF16}, {"int8", HEED_I8},
                 {"uint8", HEED_U8},      {"float8_e4m3fn", HEED_F8_E4M3},
                 {"f8", HEED_F8_E4M3}};
    PyObject *text;
    const char *word;
    uint32_t type = HEED_DTYPE_NONE;
    if (PyUnicode_Check(object)) {
        text = object;
        Py_INCREF(text);
    } else if (PyObject_HasAttrString(object, "__name__")) { /* numpy.float32, ml_dtypes.bfloat16 */
        text = PyObject_GetAttrString(object, "__name__");
    } else { /* numpy.dtype("float32"), torch.float32 */
        text = PyObject_Str(object);
    }
    word = text ? characters_of(text) : NULL;
    if (!word) {
        Py_XDECREF(text);
        return -1;
    }
    if (strrchr(word, '.'))
        word = strrchr(word, '.') + 1;
    for (uint32_t i = HEED_F32; i <= HEED_IQ4_NL; i++)
        if (!strcmp(word, heed_dtype_name(i)))
            type = i;
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (!strcmp(word, other[i].word))
            type = other[i].type;
    Py_DECREF(text);
    if (type == HEED_DTYPE_NONE || (!codes && heed_is_code(type))) {
        PyErr_Format(PyExc_ValueError, "%s is %R; known are \"f32\", \"f16\", \"bf16\"%s", name,
                     object,
                     codes ? ", \"i8\", \"u8\", \"u4\", \"f8_e4m3\", \"q8_0\", \"q4_0\", \"q4_1\", "
                             "\"q5_0\", \"q5_1\", \"iq4_nl\""
                           : "");
        return -1;
    }
    *out = type;
    return 0;
}

/* ---- layouts ------------------------------------------------------------------------------------------- */

int layout_of(PyObject *object, layout *out)
{
    static const char letters[] = "bhsd";
    const char *word = letters;
    if (object && (!PyUnicode_Check(object) || !(word = characters_of(object))))
        word = "";
    for (int i = 0; i < 4; i++)
        out->axis[i] = -1;
    out->axes = (int)strlen(word);
    for (int i = 0; i < out->axes; i++) {
        const char *at = strchr(letters, word[i]);
        if (!at || out->axis[at - letters] >= 0)
            goto wrong;
        out->axis[at - letters] = i;
    }
    if (out->axis[2] >= 0 && out->axis[3] >= 0)
        return 0;
wrong:
    PyErr_Clear();
    PyErr_Format(
        PyExc_ValueError,
        "layout is %R; it names the axes b (batch), h (heads), s (rows) and d (dim) in their "
        "order, such as \"bhsd\", \"bshd\", \"hsd\"; s and d are needed",
        object);
    return -1;
}

int in_layout(const array *a, const layout *l, const char *name, int64_t shape[4],
              int64_t stride[4])
{
    if (a->axes != l->axes) {
        PyErr_Format(PyExc_ValueError, "%s has %d axes, its layout %d", name, a->axes, l->axes);
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        shape[i] = l->axis[i] < 0 ? 1 : a->shape[l->axis[i]];
        stride[i] = l->axis[i] < 0 ? 0 : a->stride[l->axis[i]];
    }
    return 0;
}
