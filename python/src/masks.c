/*
 * Ranges and key blocks. Ranges are int32 [batch, 1, rows, n, 2]: pairs {begin, end} that ascend, do not
 * overlap, and begin == end where there is none. Rows are the last q_len of the kv_len positions.
 */
#include "heed_py.h"

#include <stdlib.h>

enum { MOST_RANGES = 8 };

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

/* The rows of a helper: all positions, or the last so many. */
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
    int64_t row, column;
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
    copy = malloc((size_t)(*batch * *n + 1) * sizeof *copy);
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

/* Lists of pairs of every row, until it is known how many the longest has. */
typedef struct pairs {
    int32_t (*pair)[MOST_RANGES][2];
    int64_t rows;
    int most;
} pairs;

static int pairs_new(pairs *p, int64_t rows)
{
    p->rows = rows;
    p->most = 1;
    p->pair = calloc((size_t)rows + 1, sizeof *p->pair);
    if (p->pair)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* Adds key j as the next of a row's keys, which come in ascending order; *n counts its pairs. */
static int add_key(pairs *p, int64_t row, int *n, int32_t j)
{
    int32_t(*pair)[2] = p->pair[row];
    if (*n && pair[*n - 1][1] == j) {
        pair[*n - 1][1] = j + 1;
        return 0;
    }
    if (*n == MOST_RANGES) {
        PyErr_Format(PyExc_ValueError, "a row sees keys in more than %d pieces; use a mask",
                     MOST_RANGES);
        return -1;
    }
    pair[*n][0] = j;
    pair[*n][1] = j + 1;
    ++*n;
    if (*n > p->most)
        p->most = *n;
    return 0;
}

/* Pairs that a row does not have are empty, behind the others. */
static PyObject *pairs_result(pairs *p, const array *like, int64_t batch)
{
    array a;
    if (new_ranges(&a, like, batch, batch ? p->rows / batch : 0, p->most) < 0)
        return NULL;
    for (int64_t i = 0; i < p->rows; i++)
        for (int n = 0; n < p->most; n++) {
            int32_t *to = (int32_t *)a.data + (i * p->most + n) * 2;
            const int32_t *from = p->pair[i][n];
            to[0] = from[0], to[1] = from[1];
            if (from[0] == from[1] && n) /* none: where the one before ends */
                to[0] = to[1] = to[-1];
        }
    return array_result(&a, like);
}

PyObject *masks_segments(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "segments", 2, 1, "ids", "q_len");
    PyObject *value[2], *result = NULL;
    array a;
    pairs p = {NULL, 0, 0};
    int32_t *ids;
    int64_t batch, n, rows;
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0)
        return NULL;
    if (!value[0]) {
        PyErr_SetString(PyExc_ValueError, "ids is None; an array is needed");
        return NULL;
    }
    ids = matrix_of(&a, value[0], "ids", &batch, &n);
    if (!ids)
        return NULL;
    if (rows_of(value[1], n, &rows) < 0 || pairs_new(&p, batch * rows) < 0)
        goto end;
    for (int64_t b = 0; b < batch; b++) {
        const int32_t *id = ids + b * n;
        for (int64_t i = 0; i < rows; i++) {
            const int64_t at = n - rows + i, row = b * rows + i;
            int count = 0;
            if (id[at] < 0) /* padding */
                continue;
            if (i && id[at - 1] == id[at]) { /* as the row before */
                memcpy(p.pair[row], p.pair[row - 1], sizeof *p.pair);
                continue;
            }
            for (int64_t j = 0; j < n; j++)
                if (id[j] == id[at] && add_key(&p, row, &count, (int32_t)j) < 0)
                    goto end;
        }
    }
    result = pairs_result(&p, &a, batch);
end:
    free(p.pair);
    free(ids);
    array_release(&a);
    return result;
}

PyObject *masks_chunks(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "chunks", 3, 2, "kv_len", "length", "q_len");
    PyObject *value[3];
    int64_t kv_len, length, rows;
    array a;
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 ||
        length_of(value[0], "kv_len", &kv_len) < 0 || length_of(value[1], "length", &length) < 0 ||
        rows_of(value[2], kv_len, &rows) < 0)
        return NULL;
    if (!length) {
        PyErr_SetString(PyExc_ValueError, "length is 0; a chunk has keys");
        return NULL;
    }
    if (new_ranges(&a, NULL, 1, rows, 1) < 0)
        return NULL;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t begin = (kv_len - rows + i) / length * length;
        ((int32_t *)a.data)[2 * i] = (int32_t)begin;
        ((int32_t *)a.data)[2 * i + 1] =
            (int32_t)(begin + length < kv_len ? begin + length : kv_len);
    }
    return array_result(&a, NULL);
}

PyObject *masks_prefix(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "prefix", 3, 2, "kv_len", "prefix_len", "q_len");
    PyObject *value[3], *result = NULL;
    int64_t kv_len, rows;
    numbers prefix;
    array a;
    (void)self;
    numbers_none(&prefix);
    if (read_call(&sig, args, nargs, kwnames, value) < 0 ||
        length_of(value[0], "kv_len", &kv_len) < 0 || rows_of(value[2], kv_len, &rows) < 0)
        return NULL;
    if (!value[1]) {
        PyErr_SetString(PyExc_ValueError, "prefix_len is None; a length is needed");
        return NULL;
    }
    if (int32s_of(&prefix, value[1], "prefix_len", PyLong_Check(value[1]) ? 1 : -1) < 0)
        return NULL;
    for (int64_t b = 0; b < prefix.n; b++)
        if (((int32_t *)prefix.data)[b] < 0 || ((int32_t *)prefix.data)[b] > kv_len) {
            PyErr_Format(PyExc_ValueError, "prefix_len is %d; 0 to %lld are possible",
                         (int)((int32_t *)prefix.data)[b], (long long)kv_len);
            goto end;
        }
    if (new_ranges(&a, NULL, prefix.n, rows, 1) < 0)
        goto end;
    for (int64_t b = 0; b < prefix.n; b++)
        for (int64_t i = 0; i < rows; i++) {
            const int64_t own = kv_len - rows + i + 1, least = ((int32_t *)prefix.data)[b];
            int32_t *pair = (int32_t *)a.data + 2 * (b * rows + i);
            pair[0] = 0;
            pair[1] = (int32_t)(own > least ? own : least);
        }
    result = array_result(&a, NULL);
end:
    numbers_release(&prefix);
    return result;
}

PyObject *masks_tree(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "tree", 2, 1, "parents", "prefix");
    PyObject *value[2], *result = NULL;
    array a;
    numbers list;
    pairs p = {NULL, 0, 0};
    int32_t *parents, *path = NULL;
    int64_t batch = 1, n, prefix = 0;
    bool is_list;
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 ||
        (value[1] && length_of(value[1], "prefix", &prefix) < 0))
        return NULL;
    if (!value[0]) {
        PyErr_SetString(PyExc_ValueError, "parents is None; an array is needed");
        return NULL;
    }
    array_none(&a), numbers_none(&list);
    is_list = PyList_Check(value[0]) || PyTuple_Check(value[0]);
    if (is_list) {
        if (int32s_of(&list, value[0], "parents", -1) < 0)
            return NULL;
        parents = list.data;
        n = list.n;
    } else {
        parents = matrix_of(&a, value[0], "parents", &batch, &n);
        if (!parents)
            return NULL;
    }
    if (prefix + n > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "prefix and tree have more than 2^31 - 1 positions");
        goto end;
    }
    path = malloc((size_t)(n + 1) * sizeof *path);
    if (!path) {
        PyErr_NoMemory();
        goto end;
    }
    if (pairs_new(&p, batch * n) < 0)
        goto end;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < n; i++) {
            int64_t depth = 0;
            int count = 0;
            for (int32_t at = (int32_t)i; at >= 0; at = parents[b * n + at]) {
                path[depth++] = at;
                if (parents[b * n + at] >= at) {
                    PyErr_Format(PyExc_ValueError,
                                 "parents[%d] is %d; a parent stands before its child", (int)at,
                                 (int)parents[b * n + at]);
                    goto end;
                }
            }
            if (prefix) {
                p.pair[b * n + i][0][1] = (int32_t)prefix;
                count = 1;
            }
            while (depth--)
                if (add_key(&p, b * n + i, &count, (int32_t)prefix + path[depth]) < 0)
                    goto end;
        }
    result = pairs_result(&p, is_list ? NULL : &a, batch);
end:
    free(p.pair);
    free(path);
    if (!is_list)
        free(parents);
    numbers_release(&list);
    array_release(&a);
    return result;
}

PyObject *masks_blocks(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "blocks", 1, 3, "bits", "block_rows", "block_keys");
    PyObject *value[3], *words, *result;
    array bits, out, any;
    int64_t shape[4], rows, keys, at = 0;
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0)
        return NULL;
    if (!value[0]) {
        PyErr_SetString(PyExc_ValueError, "bits is None; an array is needed");
        return NULL;
    }
    if (length_of(value[1], "block_rows", &rows) < 0 ||
        length_of(value[2], "block_keys", &keys) < 0)
        return NULL;
    if (!rows || !keys) {
        PyErr_SetString(PyExc_ValueError, "block_rows and block_keys are at least 1");
        return NULL;
    }
    if (array_of(&bits, value[0], "bits", false, false) < 0)
        return NULL;
    if (bits.axes != 4 || element_bytes(bits.type) != 1) {
        PyErr_SetString(PyExc_ValueError,
                        "bits is no bool array [batch, heads, row_blocks, key_blocks]");
        array_release(&bits);
        return NULL;
    }
    memcpy(shape, bits.shape, sizeof shape);
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
    result = words ? Py_BuildValue("(NLL)", words, (long long)rows, (long long)keys) : NULL;
    return result;
}
