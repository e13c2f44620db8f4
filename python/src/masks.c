/*
 * Ranges and key blocks. Ranges are int32 [batch, 1, rows, n, 2]: pairs {begin, end} that ascend, do not
 * overlap, and begin == end where there is none. Rows are the last q_len of the kv_len positions.
 * heed/masks.h makes them.
 */
#include "heed_py.h"

#include <stdlib.h>

enum { MOST_RANGES = 8 }; /* most ranges that attention takes for a row */

static int length_of(PyObject *object, const char *name, int64_t *out)
{
    if (!object) {
        PyErr_Format(PyExc_ValueError, "%s is None; a length is needed", name);
        return -1;
    }
    if (int64_of(object, name, 0, out) < 0)
        return -1;
    if (*out <= INT32_MAX)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is %lld, more than 2^31 - 1", name, (long long)*out);
    return -1;
}

/* Reads a helper's number of rows: all positions, or the last so many. */
static int rows_of(PyObject *object, int64_t kv_len, int64_t *rows)
{
    *rows = kv_len;
    if (object && length_of(object, "q_len", rows) < 0)
        return -1;
    if (*rows <= kv_len)
        return 0;
    PyErr_Format(PyExc_ValueError, "q_len is %lld, more than the %lld positions", (long long)*rows,
                 (long long)kv_len);
    return -1;
}

static int new_ranges(array *a, const array *like, int64_t batch, int64_t rows, int64_t n)
{
    int64_t shape[5] = {batch, 1, rows, n, 2};
    array any;
    array_none(&any);
    any.kind = default_kind();
    any.api = NULL;
    return array_new(a, like ? like : &any, EL_I32, 5, shape);
}

/* Integers [batch, n] or [n] of int32 or int64, as int32_t side by side. */
static int32_t *matrix_of(array *a, PyObject *object, const char *name, int64_t *batch, int64_t *n)
{
    int32_t *copy;
    int64_t row, column, count;
    if (array_of(a, object, name, false, false) < 0)
        return NULL;
    if ((a->type != EL_I32 && a->type != EL_I64) || a->axes < 1 || a->axes > 2) {
        PyErr_Format(PyExc_ValueError, "%s is no int32 or int64 array [batch, kv_len] or [kv_len]",
                     name);
        array_release(a);
        return NULL;
    }
    *batch = a->axes == 2 ? a->shape[0] : 1;
    *n = a->shape[a->axes - 1];
    row = a->axes == 2 ? a->stride[0] : 0;
    column = a->stride[a->axes - 1];
    count = array_count(a->axes, a->shape);
    copy = count < 0 ? NULL : malloc((size_t)(count + 1) * sizeof *copy);
    if (!copy) {
        array_release(a);
        PyErr_NoMemory();
        return NULL;
    }
    for (int64_t b = 0; b < *batch; b++)
        for (int64_t j = 0; j < *n; j++) {
            const int64_t at = b * row + j * column;
            int64_t wide;
            if (a->type == EL_I64)
                memcpy(&wide, a->data + at * 8, sizeof wide);
            else {
                int32_t narrow;
                memcpy(&narrow, a->data + at * 4, sizeof narrow);
                wide = narrow;
            }
            if (wide < INT32_MIN || wide > INT32_MAX) {
                PyErr_Format(PyExc_ValueError, "%s: %lld does not fit 32 bits", name,
                             (long long)wide);
                free(copy);
                array_release(a);
                return NULL;
            }
            copy[b * *n + j] = (int32_t)wide;
        }
    return copy;
}

/* What ranges are made from; `inputs` sets what differs for sequence b. */
typedef struct maker {
    heed_status (*make)(const heed_ranges_args *args);
    void (*inputs)(heed_ranges_args *args, const struct maker *m, int64_t b);
    const int32_t *list; /* segments, prefixes or parents */
    int64_t chunk;
} maker;

/* Counts the ranges and then writes them, each sequence by itself. Rows with fewer pairs end with
 * empty ones. */
static PyObject *ranges_by(const maker *m, const array *like, int64_t batch, heed_ranges_args a)
{
    uint32_t most = 1, needed = 0;
    heed_status status = HEED_OK;
    PyThreadState *state;
    array to;
    a.struct_size = sizeof a;
    a.needed = &needed;
    state = PyEval_SaveThread();
    for (int64_t b = 0; b < batch && status == HEED_OK; b++) {
        m->inputs(&a, m, b);
        status = m->make(&a);
        most = needed > most ? needed : most;
    }
    PyEval_RestoreThread(state);
    if (check(status) < 0)
        return NULL;
    if (most > MOST_RANGES) {
        PyErr_Format(PyExc_ValueError, "a row sees keys in %u pieces, more than %d; use a mask",
                     (unsigned)most, MOST_RANGES);
        return NULL;
    }
    if (new_ranges(&to, like, batch, a.rows, most) < 0)
        return NULL;
    a.n_ranges = most;
    state = PyEval_SaveThread();
    for (int64_t b = 0; b < batch && status == HEED_OK; b++) {
        m->inputs(&a, m, b);
        a.ranges = (int32_t *)to.data + b * a.rows * most * 2;
        status = m->make(&a);
    }
    PyEval_RestoreThread(state);
    if (check(status) < 0) {
        array_release(&to);
        return NULL;
    }
    return array_result(&to, like);
}

static void segments_of(heed_ranges_args *a, const maker *m, int64_t b)
{
    a->segments = m->list + b * a->keys;
}

PyObject *masks_segments(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "segments", 2, 1, "ids", "q_len");
    PyObject *value[2], *result = NULL;
    heed_ranges_args a = {0};
    array ids;
    int32_t *list;
    int64_t batch;
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || arrays_needed(&sig, value, 1) < 0)
        return NULL;
    list = matrix_of(&ids, value[0], "ids", &batch, &a.keys);
    if (!list)
        return NULL;
    if (rows_of(value[1], a.keys, &a.rows) == 0) {
        const maker m = {heed_ranges_segments, segments_of, list, 0};
        a.offset = a.keys - a.rows;
        result = ranges_by(&m, &ids, batch, a);
    }
    free(list);
    array_release(&ids);
    return result;
}

static void chunks_of(heed_ranges_args *a, const maker *m, int64_t b)
{
    (void)b;
    a->chunk = m->chunk;
}

PyObject *masks_chunks(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "chunks", 3, 2, "kv_len", "length", "q_len");
    PyObject *value[3];
    heed_ranges_args a = {0};
    maker m = {heed_ranges_chunks, chunks_of, NULL, 0};
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 ||
        length_of(value[0], "kv_len", &a.keys) < 0 || length_of(value[1], "length", &m.chunk) < 0 ||
        rows_of(value[2], a.keys, &a.rows) < 0)
        return NULL;
    a.offset = a.keys - a.rows;
    return ranges_by(&m, NULL, 1, a);
}

static void prefix_of(heed_ranges_args *a, const maker *m, int64_t b)
{
    a->prefix = m->list[b];
}

PyObject *masks_prefix(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "prefix", 3, 2, "kv_len", "prefix_len", "q_len");
    PyObject *value[3], *result = NULL;
    heed_ranges_args a = {0};
    numbers prefix;
    (void)self;
    numbers_none(&prefix);
    if (read_call(&sig, args, nargs, kwnames, value) < 0 ||
        length_of(value[0], "kv_len", &a.keys) < 0 || rows_of(value[2], a.keys, &a.rows) < 0)
        return NULL;
    if (!value[1]) {
        PyErr_SetString(PyExc_ValueError, "prefix_len is None; a length is needed");
        return NULL;
    }
    if (int32s_of(&prefix, value[1], "prefix_len", is_number(value[1]) ? 1 : -1) == 0) {
        const maker m = {heed_ranges_prefix, prefix_of, prefix.data, 0};
        a.offset = a.keys - a.rows;
        result = ranges_by(&m, NULL, prefix.n, a);
    }
    numbers_release(&prefix);
    return result;
}

static void parents_of(heed_ranges_args *a, const maker *m, int64_t b)
{
    a->parents = m->list + b * a->rows;
}

PyObject *masks_tree(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "tree", 2, 1, "parents", "prefix");
    PyObject *value[2], *result;
    heed_ranges_args a = {0};
    maker m = {heed_ranges_tree, parents_of, NULL, 0};
    array given;
    numbers list;
    int32_t *copy = NULL;
    int64_t batch = 1;
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || arrays_needed(&sig, value, 1) < 0 ||
        (value[1] && length_of(value[1], "prefix", &a.offset) < 0)) /* what the cache holds */
        return NULL;
    array_none(&given), numbers_none(&list);
    if (is_list(value[0])) {
        if (int32s_of(&list, value[0], "parents", -1) < 0)
            return NULL;
        m.list = list.data;
        a.rows = list.n;
    } else {
        m.list = copy = matrix_of(&given, value[0], "parents", &batch, &a.rows);
        if (!copy)
            return NULL;
    }
    a.keys = a.offset + a.rows;
    result = ranges_by(&m, copy ? &given : NULL, batch, a);
    free(copy);
    numbers_release(&list);
    array_release(&given);
    return result;
}

PyObject *masks_blocks(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "blocks", 1, 3, "bits", "block_rows", "block_keys");
    PyObject *value[3], *words, *result;
    array bits, out, any;
    int64_t shape[4], rows, keys, blocks, at = 0;
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0)
        return NULL;
    if (arrays_needed(&sig, value, 1) < 0 || length_of(value[1], "block_rows", &rows) < 0 ||
        length_of(value[2], "block_keys", &keys) < 0)
        return NULL;
    if (!rows || !keys) {
        PyErr_SetString(PyExc_ValueError, "block_rows and block_keys are at least 1");
        return NULL;
    }
    if (array_of(&bits, value[0], "bits", false, false) < 0)
        return NULL;
    if (bits.axes != 4 || !is_truth(bits.type)) {
        PyErr_SetString(PyExc_ValueError,
                        "bits is no bool array [batch, heads, row_blocks, key_blocks]");
        array_release(&bits);
        return NULL;
    }
    memcpy(shape, bits.shape, sizeof shape);
    blocks = shape[3];
    shape[3] = (shape[3] + 63) / 64;
    array_none(&any);
    any.kind = KIND_BUFFER;
    if (array_new(&out, &any, EL_U64, 4, shape) < 0) {
        array_release(&bits);
        return NULL;
    }
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t r = 0; r < shape[2]; r++)
                for (int64_t w = 0; w < shape[3]; w++) {
                    uint64_t word = 0;
                    for (int64_t n = w * 64; n < bits.shape[3] && n < w * 64 + 64; n++)
                        if (bits.data[b * bits.stride[0] + h * bits.stride[1] + r * bits.stride[2] +
                                      n * bits.stride[3]])
                            word |= UINT64_C(1) << n % 64;
                    ((uint64_t *)(void *)out.data)[at++] = word;
                }
    array_release(&bits);
    words = array_result(&out, NULL);
    result =
        words ? Py_BuildValue("(NLLL)", words, (long long)rows, (long long)keys, (long long)blocks)
              : NULL;
    return result;
}
