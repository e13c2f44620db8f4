/* merge: joins attention over parts of the keys into attention over all of them. */
#include "problem.h"

enum { M_A, M_A_LSE, M_B, M_B_LSE, M_LAYOUT, M_DTYPE, M_OUT, N_M };

/* The arrays of a call, in[M_A], in[M_A_LSE], ..., and their strides in the order b, h, s, d. */
typedef struct merging {
    array in[4], out, lse;
    int64_t shape[4], stride[2][4], lse_stride[2][4], out_stride[4];
} merging;

/* Reads one part: out, and its lse, which has no dim axis. */
static int read_part(merging *m, int i, const layout *axes, const char *const *names,
                     int64_t shape[4])
{
    layout rows = {{-1, -1, -1, -1}, 0};
    int64_t lse_shape[4];
    if (in_layout(&m->in[2 * i], axes, names[2 * i], shape, m->stride[i]) < 0)
        return -1;
    for (int j = 0; j < 3; j++)
        if (axes->axis[j] >= 0)
            rows.axis[j] = rows.axes++;
    if (in_layout(&m->in[2 * i + 1], &rows, names[2 * i + 1], lse_shape, m->lse_stride[i]) < 0)
        return -1;
    for (int j = 0; j < 3; j++)
        if (lse_shape[j] != shape[j]) {
            PyErr_Format(PyExc_ValueError, "%s does not have the rows of %s", names[2 * i + 1],
                         names[2 * i]);
            return -1;
        }
    return 0;
}

static int read_parts(merging *m, PyObject *const value[N_M], const layout *axes,
                      const char *const *names)
{
    int64_t other[4];
    for (int i = 0; i < 4; i++) {
        if (array_of(&m->in[i], value[i], names[i], false, false) < 0)
            return -1;
        if (m->in[i].type != HEED_F32) {
            PyErr_Format(PyExc_ValueError, "%s is of %s; f32 is needed, whatever q was", names[i],
                         element_name(m->in[i].type));
            return -1;
        }
    }
    if (read_part(m, 0, axes, names, m->shape) < 0 || read_part(m, 1, axes, names, other) < 0)
        return -1;
    if (memcmp(m->shape, other, sizeof other)) {
        PyErr_SetString(PyExc_ValueError, "a and b differ in shape");
        return -1;
    }
    return 0;
}

static int make_merged(merging *m, PyObject *given, const layout *axes, uint32_t type)
{
    int64_t shape[4];
    if (given) {
        if (array_of(&m->out, given, "out", true, type == HEED_BF16) < 0 ||
            floats_needed(&m->out, "out") < 0)
            return -1;
        if (type != HEED_DTYPE_NONE && m->out.type != type) {
            PyErr_Format(PyExc_ValueError, "out is of %s, dtype is %s", element_name(m->out.type),
                         element_name(type));
            return -1;
        }
        if (in_layout(&m->out, axes, "out", shape, m->out_stride) < 0)
            return -1;
        if (memcmp(shape, m->shape, sizeof shape)) {
            PyErr_SetString(PyExc_ValueError, "out differs from a in shape");
            return -1;
        }
        for (int axis = 0; axis < 4; axis++)
            if (shape[axis] > 1 &&
                m->out_stride[axis] == 0) { /* the library sees one sequence at a time */
                PyErr_SetString(PyExc_ValueError, "out is repeated: outputs cannot broadcast");
                return -1;
            }
        if (given_apart(&m->out, &m->in[M_A], "a", true) < 0 ||
            given_apart(&m->out, &m->in[M_A_LSE], "a_lse", false) < 0 ||
            given_apart(&m->out, &m->in[M_B], "b", true) < 0 ||
            given_apart(&m->out, &m->in[M_B_LSE], "b_lse", false) < 0)
            return -1;
    } else if (array_new(&m->out, &m->in[M_A], type == HEED_DTYPE_NONE ? HEED_F32 : type,
                         m->in[M_A].axes, m->in[M_A].shape) < 0 ||
               in_layout(&m->out, axes, "out", shape, m->out_stride) < 0) {
        return -1;
    }
    return array_new(&m->lse, &m->in[M_A_LSE], HEED_F32, m->in[M_A_LSE].axes, m->in[M_A_LSE].shape);
}

/* Merges one sequence, [rows, heads, dim], which is what heed_merge takes. */
static heed_status merge_sequence(const merging *m, int64_t b)
{
    const int64_t heads = m->shape[1], rows = m->shape[2];
    heed_merge_args args = {.struct_size = sizeof args,
                            .rows = rows,
                            .heads = heads,
                            .dim = m->shape[3],
                            .out_type = m->out.type};
    heed_const_view *part[2] = {&args.a, &args.b}, *lse[2] = {&args.a_lse, &args.b_lse};
    for (int i = 0; i < 2; i++) {
        part[i]->data = (char *)address_of(&m->in[2 * i]) + b * m->stride[i][0] * 4;
        part[i]->stride[0] = m->stride[i][2];
        part[i]->stride[1] = m->stride[i][1];
        part[i]->stride[2] = m->stride[i][3];
        lse[i]->data = (char *)address_of(&m->in[2 * i + 1]) + b * m->lse_stride[i][0] * 4;
        lse[i]->stride[0] = m->lse_stride[i][2];
        lse[i]->stride[1] = m->lse_stride[i][1];
    }
    args.out.data = (char *)address_of(&m->out) + b * m->out_stride[0] * element_bytes(m->out.type);
    args.out.stride[0] = m->out_stride[2];
    args.out.stride[1] = m->out_stride[1];
    args.out.stride[2] = m->out_stride[3];
    args.lse.data = (char *)address_of(&m->lse) + b * heads * rows * 4;
    args.lse.stride[0] = 1;
    args.lse.stride[1] = rows;
    return heed_merge(&args);
}

static int merge_all(const merging *m)
{
    heed_status status = HEED_OK;
    PyThreadState *state = PyEval_SaveThread();
    for (int64_t b = 0; b < m->shape[0] && status == HEED_OK; b++)
        status = merge_sequence(m, b);
    PyEval_RestoreThread(state);
    return check(status);
}

PyObject *py_merge(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "merge", 4, 4, "a", "a_lse", "b", "b_lse", "layout", "dtype", "out");
    PyObject *value[N_M], *out, *lse, *result = NULL;
    merging m;
    layout axes;
    uint32_t type = HEED_DTYPE_NONE;
    (void)self;
    for (int i = 0; i < 4; i++)
        array_none(&m.in[i]);
    array_none(&m.out), array_none(&m.lse);
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || layout_of(value[M_LAYOUT], &axes) < 0 ||
        (value[M_DTYPE] && dtype_of(value[M_DTYPE], "dtype", false, &type) < 0) ||
        arrays_needed(&sig, value, 4) < 0)
        return NULL;
    if (read_parts(&m, value, &axes, sig.names) == 0 &&
        make_merged(&m, value[M_OUT], &axes, type) == 0 && merge_all(&m) == 0) {
        out = result_of(&m.out, value[M_OUT], &m.in[M_A]);
        lse = array_result(&m.lse, &m.in[M_A_LSE]);
        if (out && lse)
            result = PyTuple_Pack(2, out, lse);
        Py_XDECREF(out);
        Py_XDECREF(lse);
    }
    for (int i = 0; i < 4; i++)
        array_release(&m.in[i]);
    array_release(&m.out), array_release(&m.lse);
    return result;
}
