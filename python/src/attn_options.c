/* The options of attention that are the same from call to call. */
#include "problem.h"

static int window_side(PyObject *object, int64_t *out)
{
    *out = -1;
    return object == Py_None ? 0 : int64_of(object, "window", -1, out);
}

static int window_of(PyObject *window, attn_options *o)
{
    o->has_window = true;
    if (PyTuple_Check(window) || PyList_Check(window)) {
        PyObject *left, *right;
        int failed;
        if (PySequence_Size(window) != 2) {
            PyErr_Format(PyExc_ValueError, "window is %R; two integers are needed, (left, right)",
                         window);
            return -1;
        }
        left = PySequence_GetItem(window, 0);
        right = PySequence_GetItem(window, 1);
        failed = !left || !right || window_side(left, &o->window_left) < 0 ||
                 window_side(right, &o->window_right) < 0;
        Py_XDECREF(left);
        Py_XDECREF(right);
        return failed ? -1 : 0;
    }
    if (int64_of(window, "window", -1, &o->window_left) < 0)
        return -1;
    o->window_right = o->window_left;
    return 0;
}

static bool is_word(PyObject *object, const char *word)
{
    return PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, word) == 0;
}

int attn_position_of(attn_options *o, PyObject *given)
{
    if (given && !is_word(given, "end") && !is_word(given, "start") && !are_numbers(given)) {
        PyErr_Format(
            PyExc_ValueError,
            "position is %R; \"start\", \"end\" or the position of each sequence's row 0, a "
            "whole number or a list or an array of them, is needed",
            given);
        return -1;
    }
    o->position = given;
    return 0;
}

/* Whole numbers as Python's own: an int, or a tuple of them. */
static PyObject *ints_of(const numbers *x, bool one)
{
    const int32_t *from = x->data;
    PyObject *tuple = one ? NULL : PyTuple_New((Py_ssize_t)x->n);
    if (one)
        return PyLong_FromLong(from[0]);
    for (int64_t i = 0; tuple && i < x->n; i++) {
        PyObject *number = PyLong_FromLong(from[i]);
        if (!number || PyTuple_SetItem(tuple, (Py_ssize_t)i, number) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

int attn_position_keep(attn_options *o)
{
    numbers x;
    bool one;
    PyObject *given = o->position, *copy;
    if (!given || PyUnicode_Check(given)) {
        Py_XINCREF(given);
        return 0;
    }
    o->position = NULL; /* not held yet */
    one = is_number(given);
    if (int32s_of(&x, given, "position", one ? 1 : -1) < 0)
        return -1;
    copy = ints_of(&x, one);
    numbers_release(&x);
    o->position = copy;
    return copy ? 0 : -1;
}

static int causal_of(PyObject *causal, bool *out)
{
    if (!causal || (!is_word(causal, "start") && !is_word(causal, "end")))
        return truth_of(causal, "causal", out);
    PyErr_Format(PyExc_ValueError,
                 "causal is %R; True or False is needed, with position=%R beside it", causal,
                 causal);
    return -1;
}

int attn_options_of(attn_options *o, const attn_given *given)
{
    static const char *const accuracies[] = {"default", "exact", "bf16", "split", "int8", NULL};
    memset(o, 0, sizeof *o);
    if (causal_of(given->causal, &o->causal) < 0 || layout_of(given->order, &o->axes) < 0)
        return -1;
    if (given->window && window_of(given->window, o) < 0)
        return -1;
    o->has_scale = given->scale;
    if (given->scale && float_of(given->scale, "scale", &o->scale) < 0)
        return -1;
    o->has_softcap = given->softcap;
    if (given->softcap && float_of(given->softcap, "softcap", &o->softcap) < 0)
        return -1;
    if (given->accuracy) {
        int at = word_of(given->accuracy, "accuracy", accuracies);
        if (at < 0)
            return -1;
        o->accuracy = (uint32_t)at;
    }
    if (given->dtype && dtype_of(given->dtype, "dtype", false, &o->dtype) < 0)
        return -1;
    o->as_bf16 = o->dtype == HEED_BF16; /* it says what uint16 stands for */
    /* Set last: objects that keep options hold a reference to it, but none after a failure. */
    return attn_position_of(o, given->position);
}

uint32_t attn_position(const attn_options *o)
{
    return !o->position || is_word(o->position, "end") ? HEED_POS_BOTTOM_RIGHT
           : is_word(o->position, "start")             ? HEED_POS_TOP_LEFT
                                                       : HEED_POS_GIVEN;
}

void attn_options_into(const attn_options *o, bool alibi, heed_attn_desc *desc)
{
    if (o->causal)
        desc->features |= HEED_HAS_CAUSAL;
    if (o->has_window) {
        desc->features |= HEED_HAS_WINDOW;
        desc->window_left = o->window_left;
        desc->window_right = o->window_right;
    }
    if (o->has_scale) {
        desc->features |= HEED_HAS_SCALE;
        desc->scale = o->scale;
    }
    if (o->has_softcap) {
        desc->features |= HEED_HAS_SOFTCAP;
        desc->softcap = o->softcap;
    }
    desc->accuracy = o->accuracy;
    if (o->causal || o->has_window || alibi)
        desc->position = attn_position(o);
}
