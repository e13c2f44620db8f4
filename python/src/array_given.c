/*
 * Arrays that the caller gives for results.
 *
 * Overlap   a result may lie among the arrays that are read (a part of packed rows, a head among others),
 *           but not on their elements: Heed writes it while it reads. Elements of two arrays are looked for
 *           at one address by halving both, as far as that is quick; an array apart from the others, as
 *           most are, costs one comparison. What is not found in that time is let through.
 * Torch     its own out= refuses a tensor that requires a gradient, and counts what is written to one, so
 *           that a backward pass which needs what was there before says so.
 */
#include "dlpack.h"

enum { STEPS = 512 };

/* Bytes that an array has, as steps from the first one: the longest first. */
typedef struct lattice {
    uintptr_t first;
    int axes;
    int64_t length[MAX_AXES], step[MAX_AXES];
    int64_t size[MAX_AXES + 1]; /* from the first to behind the last byte, of axes i and on */
} lattice;

/* Puts an axis among those that are there, by its step. */
static void add_axis(lattice *l, int64_t length, int64_t step)
{
    int at = l->axes++;
    for (; at > 0 && l->step[at - 1] < step; at--) {
        l->step[at] = l->step[at - 1];
        l->length[at] = l->length[at - 1];
    }
    l->step[at] = step;
    l->length[at] = length;
}

/* false: there are no elements, or their addresses are not known. */
static bool lattice_of(lattice *l, const array *a)
{
    const int64_t bytes = element_bytes(a->type);
    int64_t inner = bytes;
    if (bytes < 1)
        return false;
    l->first = (uintptr_t)a->data;
    l->axes = 0;
    for (int i = 0; i < a->axes; i++) {
        int64_t step, reach;
        if (a->shape[i] < 1 || __builtin_mul_overflow(a->stride[i], bytes, &step) ||
            __builtin_mul_overflow(a->shape[i] - 1, step, &reach) || step == INT64_MIN)
            return false;
        if (reach < 0) /* the same elements, from the last one on */
            l->first += (uintptr_t)reach, step = -step;
        if (reach)
            add_axis(l, a->shape[i], step);
    }
    for (; l->axes > 0 && l->step[l->axes - 1] <= inner; l->axes--) /* adjacent elements */
        if (__builtin_add_overflow(inner, (l->length[l->axes - 1] - 1) * l->step[l->axes - 1],
                                   &inner))
            return false;
    l->size[l->axes] = inner;
    for (int i = l->axes; i-- > 0;)
        if (__builtin_add_overflow(l->size[i + 1], (l->length[i] - 1) * l->step[i], &l->size[i]))
            return false;
    return true;
}

/* Do a's bytes from `at` on, along its axes from i on, and b's from `bt` on, have one in common? */
static bool meet(const lattice *a, int i, uintptr_t at, const lattice *b, int j, uintptr_t bt,
                 int *left)
{
    if (at + (uintptr_t)a->size[i] <= bt || bt + (uintptr_t)b->size[j] <= at)
        return false;
    if (i == a->axes && j == b->axes)
        return true;
    if (i == a->axes || (j < b->axes && b->size[j] > a->size[i]))
        return meet(b, j, bt, a, i, at, left);
    const uintptr_t step = (uintptr_t)a->step[i], end = at + (uintptr_t)a->size[i + 1];
    int64_t n = bt >= end ? (int64_t)((bt - end) / step) + 1 : 0; /* the first that reaches b */
    for (; n < a->length[i]; n++) {
        const uintptr_t here = at + (uintptr_t)n * step;
        if (here >= bt + (uintptr_t)b->size[j] || --*left < 0)
            return false;
        if (meet(a, i + 1, here, b, j, bt, left))
            return true;
    }
    return false;
}

static bool share_elements(const array *a, const array *b)
{
    lattice x, y;
    int left = STEPS;
    return lattice_of(&x, a) && lattice_of(&y, b) && meet(&x, 0, x.first, &y, 0, y.first, &left);
}

/* Is each element of a at the address of b's? */
static bool same_elements(const array *a, const array *b)
{
    bool same = a->data == b->data && a->type == b->type && a->axes == b->axes;
    for (int i = 0; i < a->axes && same; i++)
        same = a->shape[i] == b->shape[i] && (a->shape[i] == 1 || a->stride[i] == b->stride[i]);
    return same;
}

int given_apart(const array *out, const array *in, const char *name, bool in_place)
{
    if (!in->object || (in_place && same_elements(out, in)) || !share_elements(out, in))
        return 0;
    if (in_place)
        PyErr_Format(PyExc_ValueError,
                     "out overlaps %s: it may be the same elements, each in its place, or none",
                     name);
    else
        PyErr_Format(PyExc_ValueError, "out overlaps %s: they may share no element", name);
    return -1;
}

/* An attribute of sys.modules["torch"]; NULL without an exception where there is none. */
static PyObject *of_torch(const char *space, const char *name)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *torch = modules ? PyDict_GetItemString(modules, "torch") : NULL; /* borrowed */
    PyObject *module = torch, *found = NULL;
    Py_XINCREF(module);
    if (module && *space) {
        PyObject *autograd = PyObject_GetAttrString(torch, "autograd");
        Py_DECREF(module);
        module = autograd ? PyObject_GetAttrString(autograd, space) : NULL;
        Py_XDECREF(autograd);
    }
    if (module)
        found = PyObject_GetAttrString(module, name);
    Py_XDECREF(module);
    PyErr_Clear();
    return found;
}

int given_without_gradient(PyObject *object, const char *name)
{
    PyObject *requires = PyObject_GetAttr(object, word_requires_grad);
    const int needed = requires ? PyObject_IsTrue(requires) : 0;
    PyObject *function, *recorded = NULL;
    int is;
    Py_XDECREF(requires);
    PyErr_Clear(); /* types without the attribute have no gradients */
    if (needed != 1)
        return 0;
    function = of_torch("", "is_grad_enabled");
    recorded = function ? PyObject_CallNoArgs(function) : NULL;
    Py_XDECREF(function);
    PyErr_Clear();
    is = recorded ? PyObject_IsTrue(recorded) : 0;
    Py_XDECREF(recorded);
    if (is == 1)
        PyErr_Format(PyExc_ValueError,
                     "%s requires a gradient, and Heed records none; within torch.no_grad() it "
                     "may be written to",
                     name);
    return is ? -1 : 0;
}

/* Tells torch that the tensor was written to. */
static void count_write(PyObject *object)
{
    static PyObject *count; /* torch.autograd.graph.increment_version, held */
    PyObject *one, *done;
    if (!count && !(count = of_torch("graph", "increment_version")))
        return;
    one = PyTuple_Pack(1, object);
    done = one ? PyObject_CallFunctionObjArgs(count, one, NULL) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(one);
    PyErr_Clear(); /* arrays of other libraries */
}

PyObject *result_of(array *a, PyObject *given, const array *like)
{
    if (!given)
        return array_result(a, like);
    if ((a->kind == KIND_EXCHANGE || a->kind == KIND_DLPACK) && !threads_hinted())
        count_write(given);
    Py_INCREF(given);
    return given;
}
