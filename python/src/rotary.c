/* rotary: applies rotary positions to rows. */
#include "layer.h"

/* A number of the rotation, of which 0 would mean to the library that none was given. */
static int nonzero_of(PyObject *object, const char *name, float *out)
{
    if (!object)
        return 0;
    if (float_of(object, name, out) < 0)
        return -1;
    if (*out != 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is %R; a number other than 0 in f32 is needed", name,
                 object);
    return -1;
}

int rotary_numbers(heed_rotary_desc *r, numbers *freq, const rotary_given *given, int64_t dim)
{
    static const char *const styles[] = {"half", "interleaved", NULL};
    int at = given->style ? word_of(given->style, "style", styles) : 0;
    int64_t turned = dim;
    numbers_none(freq);
    memset(r, 0, sizeof *r);
    if (at < 0 || (given->dims && int64_of(given->dims, "dims", 1, &turned) < 0))
        return -1;
    if (turned > dim || turned % 2) {
        PyErr_Format(PyExc_ValueError,
                     "dims is %lld; an even number up to the %lld of a row is needed",
                     (long long)turned, (long long)dim);
        return -1;
    }
    r->style = at ? HEED_ROTARY_INTERLEAVED : HEED_ROTARY_HALF;
    r->dims = (uint32_t)turned;
    if (nonzero_of(given->base, "base", &r->base) < 0 ||
        nonzero_of(given->scale, "scale", &r->scale) < 0 ||
        nonzero_of(given->mscale, "mscale", &r->mscale) < 0)
        return -1;
    if (given->freq) {
        if (floats_of(freq, given->freq, "freq", turned / 2, false) < 0)
            return -1;
        r->freq = freq->data;
    }
    return 0;
}

int positions_of(array *a, PyObject *given, int64_t batch, int64_t rows, const int32_t **positions,
                 int64_t *stride)
{
    if (array_of(a, given, "positions", false, false) < 0)
        return -1;
    if (a->type != EL_I32 || a->axes < 1 || a->axes > 2 || a->shape[a->axes - 1] != rows ||
        (a->axes == 2 && a->shape[0] != batch) || (rows > 1 && a->stride[a->axes - 1] != 1)) {
        PyErr_SetString(PyExc_ValueError,
                        "positions is no int32 array [batch, rows] with adjacent rows");
        return -1;
    }
    if (a->axes == 1 && batch > 1) {
        PyErr_SetString(PyExc_ValueError, "positions has one axis, and x several sequences");
        return -1;
    }
    if (alignment_needed(a, "positions") < 0)
        return -1;
    *positions = address_of(a);
    *stride = a->axes == 2 ? a->stride[0] : rows;
    return 0;
}

enum {
    R_X,
    R_OFFSETS,
    R_POSITIONS,
    R_LENS,
    R_STYLE,
    R_DIMS,
    R_BASE,
    R_SCALE,
    R_MSCALE,
    R_FREQ,
    R_LAYOUT,
    R_OUT,
    R_DTYPE,
    N_R
};

/* What a call holds. */
typedef struct rotary_call {
    array x, y, positions;
    numbers offsets, lens, freq;
    heed_rotary_args args;
} rotary_call;

/* Reads x and the caller's out, or makes an array for the result. */
static int read_rows(rotary_call *c, PyObject *const value[N_R], const layout *axes, uint32_t type)
{
    heed_rotary_args *a = &c->args;
    const rotary_given given = {.style = value[R_STYLE],
                                .dims = value[R_DIMS],
                                .base = value[R_BASE],
                                .scale = value[R_SCALE],
                                .mscale = value[R_MSCALE],
                                .freq = value[R_FREQ]};
    int64_t shape[4], out_shape[4];
    if (float_array(&c->x, value[R_X], "x", false, type, false) < 0 ||
        in_layout(&c->x, axes, "x", shape, a->x.stride) < 0 ||
        positive_int32(shape[1], "the number of x's heads") < 0 ||
        positive_int32(shape[3], "the head dim of x") < 0 ||
        rotary_numbers(&a->rotary, &c->freq, &given, shape[3]) < 0)
        return -1;
    if (value[R_OUT]
            ? float_array(&c->y, value[R_OUT], "out", true, HEED_DTYPE_NONE, type == HEED_BF16) < 0
            : array_new(&c->y, &c->x, c->x.type, c->x.axes, c->x.shape) < 0)
        return -1;
    if (in_layout(&c->y, axes, "out", out_shape, a->y.stride) < 0)
        return -1;
    if (memcmp(shape, out_shape, sizeof shape)) {
        PyErr_SetString(PyExc_ValueError, "out differs from x in shape");
        return -1;
    }
    if (value[R_OUT] && given_apart(&c->y, &c->x, "x", true) < 0)
        return -1;
    a->x.data = address_of(&c->x);
    a->y.data = address_of(&c->y);
    a->x_type = c->x.type;
    a->y_type = c->y.type;
    a->batch = shape[0];
    a->heads = (uint32_t)shape[1];
    a->len = shape[2];
    a->dim = (uint32_t)shape[3];
    return 0;
}

static int read_places(rotary_call *c, PyObject *const value[N_R])
{
    heed_rotary_args *a = &c->args;
    if (value[R_OFFSETS]) {
        if (int32s_of(&c->offsets, value[R_OFFSETS], "offsets", a->batch) < 0)
            return -1;
        a->offsets = c->offsets.data;
    }
    if (value[R_POSITIONS] && positions_of(&c->positions, value[R_POSITIONS], a->batch, a->len,
                                           &a->positions, &a->positions_stride) < 0)
        return -1;
    if (value[R_LENS]) {
        if (int32s_of(&c->lens, value[R_LENS], "lens", a->batch) < 0)
            return -1;
        a->lens = c->lens.data;
        if (!value[R_OUT])
            array_fill(&c->y, 0);
    }
    return 0;
}

static int turn(const heed_rotary_args *a)
{
    PyThreadState *state = PyEval_SaveThread();
    heed_status status = heed_rotary(a);
    PyEval_RestoreThread(state);
    return check(status);
}

PyObject *py_rotary(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "rotary", 1, 1, "x", "offsets", "positions", "lens", "style", "dims", "base",
              "scale", "mscale", "freq", "layout", "out", "dtype");
    PyObject *value[N_R], *result = NULL;
    rotary_call c;
    layout axes;
    uint32_t type = HEED_DTYPE_NONE;
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || layout_of(value[R_LAYOUT], &axes) < 0 ||
        (value[R_DTYPE] && dtype_of(value[R_DTYPE], "dtype", false, &type) < 0) ||
        arrays_needed(&sig, value, 1) < 0)
        return NULL;
    c.args = (heed_rotary_args){.struct_size = sizeof c.args};
    array_none(&c.x), array_none(&c.y), array_none(&c.positions);
    numbers_none(&c.offsets), numbers_none(&c.lens), numbers_none(&c.freq);
    if (read_rows(&c, value, &axes, type) == 0 && read_places(&c, value) == 0 && turn(&c.args) == 0)
        result = result_of(&c.y, value[R_OUT], &c.x);
    array_release(&c.x), array_release(&c.y), array_release(&c.positions);
    numbers_release(&c.offsets), numbers_release(&c.lens), numbers_release(&c.freq);
    return result;
}
