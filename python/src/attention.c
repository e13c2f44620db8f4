/*
 * Attention: Python's arguments as one heed_attention call. attention, varlen, a Plan's run and a
 * KVCache's attention all come here.
 *
 * The GIL is released while Heed computes, so other threads of Python run; they leave the arrays of the
 * call alone meanwhile, as with numpy.
 */
#include "heed_py.h"

/* ---- options ------------------------------------------------------------------------------------------- */

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
    if (int64_of(window, "window", 0, &o->window_left) < 0)
        return -1;
    o->window_right = o->window_left;
    return 0;
}

int attn_options_of(attn_options *o, PyObject *causal, PyObject *window, PyObject *scale,
                    PyObject *softcap, PyObject *position, PyObject *accuracy, PyObject *order,
                    PyObject *dtype)
{
    static const char *const accuracies[] = {"default", "exact", "bf16", "split", "int8", NULL};
    memset(o, 0, sizeof *o);
    o->position = position;
    if (truth_of(causal, &o->causal) < 0 || layout_of(order, &o->axes) < 0)
        return -1;
    if (window && window_of(window, o) < 0)
        return -1;
    o->has_scale = scale;
    if (scale && float_of(scale, "scale", &o->scale) < 0)
        return -1;
    o->has_softcap = softcap;
    if (softcap && float_of(softcap, "softcap", &o->softcap) < 0)
        return -1;
    if (accuracy) {
        int at = word_of(accuracy, "accuracy", accuracies);
        if (at < 0)
            return -1;
        o->accuracy = (uint32_t)at;
    }
    if (dtype) { /* says what uint16 stands for */
        uint32_t type;
        if (dtype_of(dtype, "dtype", false, &type) < 0)
            return -1;
        o->as_bf16 = type == HEED_BF16;
    }
    return 0;
}

static bool is_word(PyObject *object, const char *word)
{
    return PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, word) == 0;
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
        desc->position = !o->position || is_word(o->position, "end") ? HEED_POS_BOTTOM_RIGHT
                         : is_word(o->position, "start")             ? HEED_POS_TOP_LEFT
                                                                     : HEED_POS_GIVEN;
}

/* ---- one problem --------------------------------------------------------------------------------------- */

/* Everything that a call holds; released by problem_release. */
typedef struct problem {
    heed_attn_desc desc;
    heed_attn_args args;
    array q, k, v, out, lse, weights, mask, bias, ranges, key_blocks, block_table;
    array k_scale, k_zero, v_scale, v_zero;
    numbers q_lens, kv_lens, offsets, q_starts, kv_starts, mask_from, alibi, sinks;
    bool packed;
} problem;

static void problem_start(problem *p)
{
    memset(&p->desc, 0, sizeof p->desc);
    memset(&p->args, 0, sizeof p->args);
    p->desc.struct_size = sizeof p->desc;
    p->args.struct_size = sizeof p->args;
    p->packed = false;
    array_none(&p->q), array_none(&p->k), array_none(&p->v), array_none(&p->out);
    array_none(&p->lse), array_none(&p->weights), array_none(&p->mask), array_none(&p->bias);
    array_none(&p->ranges), array_none(&p->key_blocks), array_none(&p->block_table);
    array_none(&p->k_scale), array_none(&p->k_zero), array_none(&p->v_scale),
        array_none(&p->v_zero);
    numbers_none(&p->q_lens), numbers_none(&p->kv_lens), numbers_none(&p->offsets);
    numbers_none(&p->q_starts), numbers_none(&p->kv_starts), numbers_none(&p->mask_from);
    numbers_none(&p->alibi), numbers_none(&p->sinks);
}

static void problem_release(problem *p)
{
    array_release(&p->q), array_release(&p->k), array_release(&p->v), array_release(&p->out);
    array_release(&p->lse), array_release(&p->weights), array_release(&p->mask);
    array_release(&p->bias), array_release(&p->ranges), array_release(&p->key_blocks);
    array_release(&p->block_table), array_release(&p->k_scale), array_release(&p->k_zero);
    array_release(&p->v_scale), array_release(&p->v_zero);
    numbers_release(&p->q_lens), numbers_release(&p->kv_lens), numbers_release(&p->offsets);
    numbers_release(&p->q_starts), numbers_release(&p->kv_starts), numbers_release(&p->mask_from);
    numbers_release(&p->alibi), numbers_release(&p->sinks);
}

static bool is_float(uint32_t type)
{
    return type >= HEED_F32 && type <= HEED_BF16;
}

static int floats_needed(const array *a, const char *name)
{
    if (is_float(a->type))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is of %s; f32, f16 or bf16 is needed%s", name,
                 element_name(a->type),
                 a->type == EL_U16 ? " (dtype=\"bf16\" says that uint16 holds its bits)" : "");
    return -1;
}

static int positive_int32(int64_t value, const char *name)
{
    if (value <= INT32_MAX)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is %lld, more than 2^31 - 1", name, (long long)value);
    return -1;
}

/* An empty tensor may have no address, which would say that there is no tensor. */
static void *address_of(const array *a)
{
    static char nothing[64];
    return a->data ? a->data : nothing;
}

/* numpy's rules: axes are matched from the last one, and those of length 1 repeat. */
int broadcast(const array *a, const char *name, const int64_t want[4], int64_t stride[4])
{
    char have_text[128], want_text[128];
    bool fits = a->axes <= 4;
    for (int i = 0; i < 4 && fits; i++) {
        int axis = i - 4 + a->axes;
        stride[i] = axis < 0 || a->shape[axis] == 1 ? 0 : a->stride[axis];
        fits = axis < 0 || a->shape[axis] == 1 || a->shape[axis] == want[i];
    }
    if (fits)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s has the shape %s, which does not broadcast to %s", name,
                 shape_text(have_text, sizeof have_text, a->axes, a->shape),
                 shape_text(want_text, sizeof want_text, 4, want));
    return -1;
}

/* Keys or values of codes come as bytes; lengths and strides of their rows are those of elements. */
static int as_codes(array *a, const char *name, uint32_t code, int d)
{
    const int64_t bytes = heed_block_bytes(code), elements = heed_block_len(code);
    if (code == HEED_DTYPE_NONE || is_float(code))
        return 0;
    if (a->type != HEED_U8 && a->type != HEED_I8) {
        PyErr_Format(PyExc_ValueError, "%s is of %s; bytes of %s are needed", name,
                     element_name(a->type), heed_dtype_name(code));
        return -1;
    }
    a->type = code;
    if (bytes == 1 && elements == 1)
        return 0;
    for (int i = 0; i < a->axes; i++) {
        int64_t *number = i == d ? &a->shape[i] : &a->stride[i];
        if (*number % bytes || (i == d && a->stride[i] != 1)) {
            PyErr_Format(PyExc_ValueError, "%s: rows of %s are whole blocks of %d adjacent bytes",
                         name, heed_dtype_name(code), (int)bytes);
            return -1;
        }
        *number = *number / bytes * elements;
    }
    return 0;
}

static int same(const char *what, const char *name, int64_t have, const char *of, int64_t want)
{
    if (have == want)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s of %s is %lld, of %s %lld", what, name, (long long)have, of,
                 (long long)want);
    return -1;
}

static int64_t greatest(const numbers *x)
{
    int64_t most = 0;
    for (int64_t i = 0; i < x->n; i++)
        if (((int32_t *)x->data)[i] > most)
            most = ((int32_t *)x->data)[i];
    return most;
}

static void view_of(heed_const_view *view, const array *a, const int64_t stride[4])
{
    view->data = address_of(a);
    memcpy(view->stride, stride, sizeof view->stride);
}

/* Boundaries of sequences in packed rows as starts and lengths. */
static int cut(PyObject *object, const char *name, int64_t tokens, numbers *starts, numbers *lens)
{
    int32_t *at, *length;
    if (int32s_of(starts, object, name, -1) < 0)
        return -1;
    if (starts->n < 1) {
        PyErr_Format(PyExc_ValueError, "%s is empty; it begins with 0", name);
        return -1;
    }
    if (numbers_room(lens, starts->n - 1) < 0)
        return -1;
    at = starts->data;
    length = lens->data;
    if (at[0] < 0 || at[starts->n - 1] > tokens) {
        PyErr_Format(PyExc_ValueError, "%s goes from %d to %d; there are %lld tokens", name,
                     (int)at[0], (int)at[starts->n - 1], (long long)tokens);
        return -1;
    }
    for (int64_t i = 0; i + 1 < starts->n; i++) {
        if (at[i + 1] < at[i]) {
            PyErr_Format(PyExc_ValueError, "%s descends from %d to %d", name, (int)at[i],
                         (int)at[i + 1]);
            return -1;
        }
        length[i] = at[i + 1] - at[i];
    }
    starts->n--;
    return 0;
}

/* Is it what the plan was made for? */
static int plan_fits(const heed_attn_desc *plan, const heed_attn_desc *call)
{
    const struct {
        const char *what;
        uint32_t plan, call;
    } number[] = {{"q_heads", plan->q_heads, call->q_heads},
                  {"kv_heads", plan->kv_heads, call->kv_heads},
                  {"dim", plan->qk_dim, call->qk_dim},
                  {"v_dim", plan->v_dim, call->v_dim}},
      type[] = {{"q", plan->q_type, call->q_type},
                {"k", plan->k_type, call->k_type},
                {"v", plan->v_type, call->v_type}};
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++)
        if (number[i].plan != number[i].call) {
            PyErr_Format(PyExc_ValueError, "%s of the arrays is %u, of the plan %u", number[i].what,
                         (unsigned)number[i].call, (unsigned)number[i].plan);
            return -1;
        }
    for (size_t i = 0; i < sizeof type / sizeof type[0]; i++)
        if (type[i].plan != type[i].call) {
            PyErr_Format(PyExc_ValueError, "%s is of %s, the plan is for %s", type[i].what,
                         element_name(type[i].call), element_name(type[i].plan));
            return -1;
        }
    return 0;
}

/* q, k and v, with heads, dims and lengths. */
static int read_inputs(problem *p, const attn_options *o, const attn_call *call, int64_t q_shape[4])
{
    heed_attn_desc *desc = &p->desc;
    heed_attn_args *args = &p->args;
    int64_t k_shape[4], v_shape[4], stride[4];
    if (array_of(&p->q, call->q, "q", false, o->as_bf16) < 0 || floats_needed(&p->q, "q") < 0 ||
        in_layout(&p->q, &o->axes, "q", q_shape, stride) < 0)
        return -1;
    view_of(&args->q, &p->q, stride);
    desc->q_type = p->q.type;
    desc->q_heads = (uint32_t)q_shape[1];
    args->batch = q_shape[0];
    args->q_len = q_shape[2];
    if (call->cache) {
        const cache_object *cache = call->cache;
        desc->k_type = cache->k_type;
        desc->v_type = cache->v_type;
        k_shape[1] = cache->kv_heads;
        k_shape[3] = cache->qk_dim;
        v_shape[3] = cache->v_dim;
        args->k.data = cache->k;
        args->v.data = cache->v;
        memcpy(args->k.stride, cache->k_stride, sizeof cache->k_stride);
        memcpy(args->v.stride, cache->v_stride, sizeof cache->v_stride);
        if (same("the batch", "q", q_shape[0], "the cache", cache->batch) < 0)
            return -1;
        if (cache->k_quant.scale || cache->v_quant.scale) {
            desc->features |= HEED_HAS_QUANT;
            args->k_quant = cache->k_quant;
            args->v_quant = cache->v_quant;
        }
        args->kv_len = 0;
        for (int64_t b = 0; b < cache->batch; b++)
            if (cache->lens[b] > args->kv_len)
                args->kv_len = cache->lens[b];
        args->kv_lens = cache->lens;
        desc->features |= HEED_HAS_LENS;
        if (cache->page_len) {
            desc->features |= HEED_HAS_PAGES;
            desc->page_len = cache->page_len;
            args->block_table = cache->block_table;
            args->block_table_stride = cache->table_stride;
            args->n_pages = cache->n_pages;
        }
    } else {
        if (array_of(&p->k, call->k, "k", false, o->as_bf16) < 0 ||
            array_of(&p->v, call->v, "v", false, o->as_bf16) < 0 ||
            as_codes(&p->k, "k", call->k_code, o->axes.axis[3]) < 0 ||
            as_codes(&p->v, "v", call->v_code, o->axes.axis[3]) < 0)
            return -1;
        if (!heed_is_code(p->k.type) && floats_needed(&p->k, "k") < 0)
            return -1;
        if (!heed_is_code(p->v.type) && floats_needed(&p->v, "v") < 0)
            return -1;
        desc->k_type = p->k.type;
        desc->v_type = p->v.type;
        if (in_layout(&p->k, &o->axes, "k", k_shape, stride) < 0)
            return -1;
        view_of(&args->k, &p->k, stride);
        if (in_layout(&p->v, &o->axes, "v", v_shape, stride) < 0)
            return -1;
        view_of(&args->v, &p->v, stride);
        if (same("the heads", "v", v_shape[1], "k", k_shape[1]) < 0 ||
            same("the length", "v", v_shape[2], "k", k_shape[2]) < 0 ||
            same(call->block_table ? "the pages" : "the batch", "v", v_shape[0], "k", k_shape[0]) <
                0)
            return -1;
        if (!call->block_table && same("the batch", "k", k_shape[0], "q", q_shape[0]) < 0)
            return -1;
        args->kv_len = k_shape[2];
    }
    if (same("the head dim", "k", k_shape[3], "q", q_shape[3]) < 0)
        return -1;
    desc->kv_heads = (uint32_t)k_shape[1];
    desc->qk_dim = (uint32_t)k_shape[3];
    desc->v_dim = (uint32_t)v_shape[3];
    if (call->plan && plan_fits(call->plan, desc) < 0)
        return -1;
    if (call->cu_q) {
        if (cut(call->cu_q, "cu_q", q_shape[2], &p->q_starts, &p->q_lens) < 0 ||
            cut(call->cu_k, "cu_k", k_shape[2], &p->kv_starts, &p->kv_lens) < 0 ||
            same("the number of sequences", "cu_k", p->kv_lens.n, "cu_q", p->q_lens.n) < 0)
            return -1;
        p->packed = true;
        desc->features |= HEED_HAS_PACKED | HEED_HAS_LENS;
        desc->max_rows = q_shape[2];
        args->batch = p->q_lens.n;
        args->q_len = greatest(&p->q_lens);
        args->kv_len = greatest(&p->kv_lens);
        args->q_lens = p->q_lens.data;
        args->kv_lens = p->kv_lens.data;
        args->q_starts = p->q_starts.data;
        args->kv_starts = p->kv_starts.data;
        if (!args->batch) /* nothing is read or written, but the arrays are not missing */
            args->q_lens = args->kv_lens = args->q_starts = args->kv_starts = &p->q_lens.room.i[0];
    } else if (call->block_table) {
        int64_t most;
        if (array_of(&p->block_table, call->block_table, "block_table", false, false) < 0)
            return -1;
        if (p->block_table.type != EL_I32 || p->block_table.axes != 2 ||
            (p->block_table.shape[1] > 1 && p->block_table.stride[1] != 1)) {
            PyErr_SetString(PyExc_ValueError,
                            "block_table is no int32 array [batch, pages] with adjacent pages");
            return -1;
        }
        if (same("the batch", "block_table", p->block_table.shape[0], "q", q_shape[0]) < 0 ||
            same("the rows of a page", "k", k_shape[2], "the plan", call->page_len) < 0)
            return -1;
        desc->features |= HEED_HAS_PAGES;
        desc->page_len = call->page_len;
        args->block_table = address_of(&p->block_table);
        args->block_table_stride = p->block_table.stride[0];
        args->n_pages = k_shape[0];
        most = p->block_table.shape[1] * (int64_t)call->page_len;
        args->kv_len = most;
    }
    if (!p->packed && call->q_lens) {
        if (int32s_of(&p->q_lens, call->q_lens, "q_lens", args->batch) < 0)
            return -1;
        desc->features |= HEED_HAS_LENS;
        args->q_lens = p->q_lens.data;
    }
    if (!p->packed && call->kv_lens) {
        if (int32s_of(&p->kv_lens, call->kv_lens, "kv_lens", args->batch) < 0)
            return -1;
        desc->features |= HEED_HAS_LENS;
        args->kv_lens = p->kv_lens.data;
        if (call->block_table) {
            int64_t most = greatest(&p->kv_lens);
            if (most > args->kv_len) {
                PyErr_Format(PyExc_ValueError,
                             "kv_lens has %lld, where the block table has pages for %lld",
                             (long long)most, (long long)args->kv_len);
                return -1;
            }
            args->kv_len = most;
        }
    }
    return positive_int32(args->q_len, "the number of rows") < 0 ||
                   positive_int32(args->kv_len, "the number of keys") < 0
               ? -1
               : 0;
}

/* Scales of codes: f32 [batch or pages, kv_heads, keys, groups], any of them 1. */
static int read_scales(array *scale, array *zero, PyObject *scale_given, PyObject *zero_given,
                       const char *name, const int64_t keys[4], heed_quant *out)
{
    int64_t stride[4];
    if (!scale_given && !zero_given)
        return 0;
    if (!scale_given) {
        PyErr_Format(PyExc_ValueError, "%s_zero is given without %s_scale", name, name);
        return -1;
    }
    if (array_of(scale, scale_given, "a scale", false, false) < 0)
        return -1;
    if (scale->type != HEED_F32 || scale->axes != 4) {
        PyErr_Format(PyExc_ValueError, "%s_scale is no f32 array of 4 axes", name);
        return -1;
    }
    for (int i = 0; i < 4; i++)
        stride[i] = scale->shape[i] == 1 ? 0 : scale->stride[i];
    if ((scale->shape[0] != 1 && scale->shape[0] != keys[0]) ||
        (scale->shape[1] != 1 && scale->shape[1] != keys[1]) || scale->shape[2] < 1 ||
        scale->shape[3] < 1 || keys[3] % scale->shape[3]) {
        PyErr_Format(PyExc_ValueError, "%s_scale does not fit the array it is for", name);
        return -1;
    }
    if (zero_given) {
        if (array_of(zero, zero_given, "a zero", false, false) < 0)
            return -1;
        for (int i = 0; i < 4; i++)
            if (zero->type != HEED_F32 || zero->axes != 4 || zero->shape[i] != scale->shape[i] ||
                (stride[i] && zero->stride[i] != stride[i])) {
                PyErr_Format(PyExc_ValueError, "%s_zero is not like %s_scale", name, name);
                return -1;
            }
        out->zero = address_of(zero);
    }
    out->scale = address_of(scale);
    memcpy(out->stride, stride, sizeof out->stride);
    out->group = scale->shape[3] == 1 ? 0 : (uint32_t)(keys[3] / scale->shape[3]);
    out->key_group = scale->shape[2] == 1 || scale->shape[2] == keys[2]
                         ? 0
                         : (uint32_t)((keys[2] + scale->shape[2] - 1) / scale->shape[2]);
    return 0;
}

static int read_masks(problem *p, const attn_options *o, const attn_call *call)
{
    heed_attn_desc *desc = &p->desc;
    heed_attn_args *args = &p->args;
    int64_t want[4] = {args->batch, desc->q_heads, args->q_len, args->kv_len}, stride[4];
    if (call->mask_from) {
        int64_t least = args->kv_len;
        if (int32s_of(&p->mask_from, call->mask_from, "mask_from", args->batch) < 0)
            return -1;
        for (int64_t b = 0; b < args->batch; b++)
            if (((int32_t *)p->mask_from.data)[b] < least)
                least = ((int32_t *)p->mask_from.data)[b];
        if (least < 0) {
            PyErr_SetString(PyExc_ValueError, "mask_from is negative");
            return -1;
        }
        want[3] = args->kv_len - least;
        desc->features |= HEED_HAS_MASK_FROM;
        args->mask_from = p->mask_from.data;
    }
    if (call->mask) {
        if (array_of(&p->mask, call->mask, "mask", false, false) < 0)
            return -1;
        if (p->mask.type != EL_BOOL && p->mask.type != HEED_U8 && p->mask.type != HEED_I8) {
            PyErr_Format(
                PyExc_ValueError,
                "mask is of %s; bool is needed, true where a row attends (a float that is added "
                "is a bias)",
                element_name(p->mask.type));
            return -1;
        }
        if (broadcast(&p->mask, "mask", want, stride) < 0)
            return -1;
        desc->features |= HEED_HAS_MASK;
        view_of(&args->mask, &p->mask, stride);
    }
    if (call->bias) {
        if (array_of(&p->bias, call->bias, "bias", false, o->as_bf16) < 0 ||
            floats_needed(&p->bias, "bias") < 0 || broadcast(&p->bias, "bias", want, stride) < 0)
            return -1;
        desc->features |= HEED_HAS_BIAS;
        desc->bias_type = p->bias.type;
        view_of(&args->bias, &p->bias, stride);
    }
    if (call->ranges) {
        array *a = &p->ranges;
        array rows;
        bool fits;
        if (array_of(a, call->ranges, "ranges", false, false) < 0)
            return -1;
        fits = a->type == EL_I32 && a->axes >= 2 && a->axes <= 5 && a->shape[a->axes - 1] == 2 &&
               a->stride[a->axes - 1] == 1;
        for (int i = 0; fits && i + 1 < a->axes; i++)
            fits = a->shape[i] <= 1 || a->stride[i] % 2 == 0;
        if (!fits) {
            PyErr_SetString(
                PyExc_ValueError,
                "ranges is no int32 array [batch, heads, rows, n, 2] with adjacent pairs");
            return -1;
        }
        array_none(&rows);
        rows.axes = a->axes - 1;
        for (int i = 0; i + 1 < a->axes; i++) {
            rows.shape[i] = a->shape[i];
            rows.stride[i] = a->stride[i] / 2;
        }
        want[3] = rows.shape[rows.axes - 1];
        if (rows.axes >= 2 && rows.shape[rows.axes - 2] > args->q_len) { /* its last rows are q's */
            const int row = rows.axes - 2;
            a->data += (rows.shape[row] - args->q_len) * rows.stride[row] * 8;
            rows.shape[row] = args->q_len;
        }
        if (broadcast(&rows, "ranges", want, stride) < 0)
            return -1;
        if (want[3] == 1)
            stride[3] = 1;
        desc->features |= HEED_HAS_RANGES;
        desc->n_ranges = (uint32_t)want[3];
        view_of(&args->ranges, a, stride);
    }
    if (call->key_blocks) {
        array *a = &p->key_blocks;
        int64_t rows, keys;
        PyObject *part[3] = {NULL, NULL, NULL};
        int failed;
        if (!PyTuple_Check(call->key_blocks) || PyTuple_Size(call->key_blocks) != 3) {
            PyErr_SetString(PyExc_ValueError,
                            "key_blocks is what heed.masks.blocks gives, or a tuple "
                            "(uint64 words, block_rows, block_keys)");
            return -1;
        }
        for (int i = 0; i < 3; i++)
            part[i] = PyTuple_GetItem(call->key_blocks, i);
        failed = array_of(a, part[0], "key_blocks", false, false) < 0 ||
                 int64_of(part[1], "block_rows", 1, &rows) < 0 ||
                 int64_of(part[2], "block_keys", 1, &keys) < 0;
        if (failed)
            return -1;
        if (a->type != EL_U64 && a->type != EL_I64) {
            PyErr_Format(PyExc_ValueError, "key_blocks is of %s; uint64 is needed",
                         element_name(a->type));
            return -1;
        }
        want[2] = (args->q_len + rows - 1) / rows;
        want[3] = ((args->kv_len + keys - 1) / keys + 63) / 64;
        if (positive_int32(rows, "block_rows") < 0 || positive_int32(keys, "block_keys") < 0 ||
            broadcast(a, "key_blocks", want, stride) < 0)
            return -1;
        desc->features |= HEED_HAS_KEY_BLOCKS;
        desc->block_rows = (uint32_t)rows;
        desc->block_keys = (uint32_t)keys;
        view_of(&args->key_blocks, a, stride);
    }
    return 0;
}

static int read_numbers(problem *p, const attn_options *o, const attn_call *call)
{
    heed_attn_desc *desc = &p->desc;
    heed_attn_args *args = &p->args;
    if (call->alibi) {
        if (floats_of(&p->alibi, call->alibi, "alibi", desc->q_heads) < 0)
            return -1;
        desc->features |= HEED_HAS_ALIBI;
        args->alibi_slope = p->alibi.data;
    }
    if (call->sinks) {
        if (floats_of(&p->sinks, call->sinks, "sinks", desc->q_heads) < 0)
            return -1;
        desc->features |= HEED_HAS_SINK;
        args->sink = p->sinks.data;
    }
    attn_options_into(o, call->alibi, desc);
    if (o->position && !is_word(o->position, "end") && !is_word(o->position, "start")) {
        if (PyUnicode_Check(o->position)) {
            PyErr_Format(
                PyExc_ValueError,
                "position is %R; \"start\", \"end\" or the position of each sequence's row 0 is "
                "needed",
                o->position);
            return -1;
        }
        if (int32s_of(&p->offsets, o->position, "position", args->batch) < 0)
            return -1;
        if (desc->position == HEED_POS_GIVEN)
            args->q_offsets = p->offsets.data;
    }
    return 0;
}

static void writable_view(heed_view *view, const array *a, const int64_t stride[4])
{
    view->data = address_of(a);
    memcpy(view->stride, stride, sizeof view->stride);
}

/* out, lse and weights, where they are not given. */
static int make_outputs(problem *p, const attn_options *o, const attn_call *call,
                        const int64_t q_shape[4])
{
    heed_attn_desc *desc = &p->desc;
    heed_attn_args *args = &p->args;
    const int64_t want[4] = {q_shape[0], q_shape[1], q_shape[2], desc->v_dim};
    int64_t shape[4], stride[4];
    /* Rows that no sequence has are not written. */
    const bool partly = args->q_lens != NULL;
    for (int i = 0; i < 4; i++)
        if (o->axes.axis[i] >= 0)
            shape[o->axes.axis[i]] = want[i];
    if (call->out) {
        if (array_of(&p->out, call->out, "out", true, o->as_bf16) < 0 ||
            floats_needed(&p->out, "out") < 0 ||
            in_layout(&p->out, &o->axes, "out", shape, stride) < 0)
            return -1;
        for (int i = 0; i < 4; i++)
            if (shape[i] != want[i]) {
                char have_text[128], want_text[128];
                PyErr_Format(PyExc_ValueError,
                             "out has the shape %s (b, h, s, d), where %s is needed",
                             shape_text(have_text, sizeof have_text, 4, shape),
                             shape_text(want_text, sizeof want_text, 4, want));
                return -1;
            }
    } else {
        if (array_new(&p->out, &p->q, desc->q_type, o->axes.axes, shape) < 0)
            return -1;
        in_layout(&p->out, &o->axes, "out", shape, stride);
        if (partly)
            array_fill(&p->out, 0);
    }
    desc->out_type = p->out.type;
    writable_view(&args->out, &p->out, stride);
    if (call->return_lse) {
        int axes = 0;
        memset(stride, 0, sizeof stride);
        if (o->axes.axis[0] >= 0)
            shape[axes++] = want[0];
        if (o->axes.axis[1] >= 0)
            shape[axes++] = want[1];
        shape[axes++] = want[2];
        stride[0] = want[1] * want[2], stride[1] = want[2], stride[2] = 1;
        if (array_new(&p->lse, &p->q, HEED_F32, axes, shape) < 0)
            return -1;
        if (partly)
            array_fill(&p->lse, -INFINITY);
        desc->features |= HEED_HAS_LSE;
        writable_view(&args->lse, &p->lse, stride);
    }
    if (call->return_weights) {
        int axes = 0;
        const int64_t full[4] = {args->batch, desc->q_heads, args->q_len, args->kv_len};
        if (p->packed || o->axes.axis[0] >= 0)
            shape[axes++] = full[0];
        if (o->axes.axis[1] >= 0)
            shape[axes++] = full[1];
        shape[axes++] = full[2];
        shape[axes++] = full[3];
        stride[0] = full[1] * full[2] * full[3], stride[1] = full[2] * full[3];
        stride[2] = full[3], stride[3] = 1;
        if (array_new(&p->weights, &p->q, HEED_F32, axes, shape) < 0)
            return -1;
        if (partly)
            array_fill(&p->weights, 0);
        desc->features |= HEED_HAS_WEIGHTS;
        writable_view(&args->weights, &p->weights, stride);
    }
    return 0;
}

static heed_status run(heed_context *context, const problem *p, const attn_call *call)
{
    heed_attn *plan;
    heed_status status;
    if (!call->max_q_len)
        return heed_attention(context, &p->desc, &p->args);
    status = heed_attn_create(context, &p->desc, &plan);
    if (status == HEED_OK) {
        status = heed_attn_run(plan, &p->args, NULL, 0);
        heed_attn_release(plan);
    }
    return status;
}

static heed_status explain_text(const void *plan, uint32_t json, char *text, size_t *bytes)
{
    return heed_attn_explain(plan, json, text, bytes);
}

static PyObject *explain(heed_context *context, problem *p, bool json)
{
    heed_attn *plan;
    PyObject *text;
    p->desc.max_batch = p->args.batch;
    p->desc.max_q_len = p->args.q_len;
    p->desc.max_kv_len = p->args.kv_len;
    if (check(heed_attn_create(context, &p->desc, &plan)) < 0)
        return NULL;
    text = text_of(explain_text, plan, json);
    heed_attn_release(plan);
    return text;
}

static PyObject *results(problem *p, const attn_call *call)
{
    PyObject *out, *lse = NULL, *weights = NULL, *all = NULL;
    if (call->out) {
        out = call->out;
        Py_INCREF(out);
    } else {
        out = array_result(&p->out, &p->q);
    }
    if (!out || (!call->return_lse && !call->return_weights))
        return out;
    if (call->return_lse)
        lse = array_result(&p->lse, &p->q);
    if (call->return_weights)
        weights = array_result(&p->weights, &p->q);
    if ((call->return_lse && !lse) || (call->return_weights && !weights))
        goto end;
    if (lse && weights)
        all = PyTuple_Pack(3, out, lse, weights);
    else
        all = PyTuple_Pack(2, out, lse ? lse : weights);
end:
    Py_DECREF(out);
    Py_XDECREF(lse);
    Py_XDECREF(weights);
    return all;
}

PyObject *attn_call_run(const attn_options *o, const attn_call *call)
{
    problem p;
    PyObject *result = NULL;
    heed_context *context = current_context();
    int64_t q_shape[4], keys[4];
    if (!context)
        return NULL;
    problem_start(&p);
    if (read_inputs(&p, o, call, q_shape) < 0)
        goto end;
    keys[0] = call->block_table ? p.args.n_pages : p.args.batch;
    keys[1] = p.desc.kv_heads;
    keys[2] = call->block_table ? call->page_len : p.args.kv_len;
    keys[3] = p.desc.qk_dim;
    if (read_scales(&p.k_scale, &p.k_zero, call->k_scale, call->k_zero, "k", keys,
                    &p.args.k_quant) < 0)
        goto end;
    keys[3] = p.desc.v_dim;
    if (read_scales(&p.v_scale, &p.v_zero, call->v_scale, call->v_zero, "v", keys,
                    &p.args.v_quant) < 0)
        goto end;
    if (p.args.k_quant.scale || p.args.v_quant.scale)
        p.desc.features |= HEED_HAS_QUANT;
    if (read_masks(&p, o, call) < 0 || read_numbers(&p, o, call) < 0)
        goto end;
    p.desc.max_batch = call->max_batch;
    p.desc.max_q_len = call->max_q_len;
    p.desc.max_kv_len = call->max_kv_len;
    if (call->explain) {
        p.desc.out_type = p.desc.q_type;
        result = explain(context, &p, call->json);
        goto end;
    }
    if (make_outputs(&p, o, call, q_shape) < 0)
        goto end;
    {
        heed_status status;
        PyThreadState *state = PyEval_SaveThread();
        status = run(context, &p, call);
        PyEval_RestoreThread(state);
        if (check(status) < 0)
            goto end;
    }
    result = results(&p, call);
end:
    problem_release(&p);
    return result;
}

/* ---- functions ----------------------------------------------------------------------------------------- */

enum {
    A_Q,
    A_K,
    A_V,
    A_MASK,
    A_BIAS,
    A_CAUSAL,
    A_WINDOW,
    A_SCALE,
    A_SOFTCAP,
    A_ALIBI,
    A_SINKS,
    A_Q_LENS,
    A_KV_LENS,
    A_POSITION,
    A_RANGES,
    A_KEY_BLOCKS,
    A_MASK_FROM,
    A_LAYOUT,
    A_ACCURACY,
    A_OUT,
    A_RETURN_LSE,
    A_RETURN_WEIGHTS,
    A_DTYPE,
    A_JSON,
    N_A
};

static PyObject *attention(signature *sig, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames, bool explain_it)
{
    PyObject *value[N_A] = {NULL};
    attn_options o;
    attn_call call;
    if (read_call(sig, args, nargs, kwnames, value) < 0)
        return NULL;
    for (int i = A_Q; i <= A_V; i++)
        if (!value[i]) {
            PyErr_Format(PyExc_ValueError, "%s is None; an array is needed", sig->names[i]);
            return NULL;
        }
    if (attn_options_of(&o, value[A_CAUSAL], value[A_WINDOW], value[A_SCALE], value[A_SOFTCAP],
                        value[A_POSITION], value[A_ACCURACY], value[A_LAYOUT], value[A_DTYPE]) < 0)
        return NULL;
    memset(&call, 0, sizeof call);
    call.q = value[A_Q], call.k = value[A_K], call.v = value[A_V];
    call.mask = value[A_MASK], call.bias = value[A_BIAS];
    call.alibi = value[A_ALIBI], call.sinks = value[A_SINKS];
    call.q_lens = value[A_Q_LENS], call.kv_lens = value[A_KV_LENS];
    call.ranges = value[A_RANGES], call.key_blocks = value[A_KEY_BLOCKS];
    call.mask_from = value[A_MASK_FROM], call.out = value[A_OUT];
    call.explain = explain_it;
    if (truth_of(value[A_RETURN_LSE], &call.return_lse) < 0 ||
        truth_of(value[A_RETURN_WEIGHTS], &call.return_weights) < 0 ||
        truth_of(value[A_JSON], &call.json) < 0)
        return NULL;
    return attn_call_run(&o, &call);
}

PyObject *py_attention(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "attention", 3, 3, "q", "k", "v", "mask", "bias", "causal", "window", "scale",
              "softcap", "alibi", "sinks", "q_lens", "kv_lens", "position", "ranges", "key_blocks",
              "mask_from", "layout", "accuracy", "out", "return_lse", "return_weights", "dtype");
    (void)self;
    return attention(&sig, args, nargs, kwnames, false);
}

PyObject *py_explain_arrays(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    SIGNATURE(sig, "explain", 3, 3, "q", "k", "v", "mask", "bias", "causal", "window", "scale",
              "softcap", "alibi", "sinks", "q_lens", "kv_lens", "position", "ranges", "key_blocks",
              "mask_from", "layout", "accuracy", "out", "return_lse", "return_weights", "dtype",
              "json");
    (void)self;
    return attention(&sig, args, nargs, kwnames, true);
}

PyObject *py_varlen(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "varlen", 5, 5, "q", "k", "v", "cu_q", "cu_k", "mask", "bias", "causal",
              "window", "scale", "softcap", "alibi", "sinks", "position", "ranges", "key_blocks",
              "mask_from", "accuracy", "out", "return_lse", "return_weights", "dtype");
    PyObject *value[22];
    attn_options o;
    attn_call call;
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0)
        return NULL;
    for (int i = 0; i < 5; i++)
        if (!value[i]) {
            PyErr_Format(PyExc_ValueError, "%s is None; an array is needed", sig.names[i]);
            return NULL;
        }
    if (attn_options_of(&o, value[7], value[8], value[9], value[10], value[13], value[17], NULL,
                        value[21]) < 0)
        return NULL;
    o.axes = (layout){{-1, 1, 0, 2}, 3};
    memset(&call, 0, sizeof call);
    call.q = value[0], call.k = value[1], call.v = value[2];
    call.cu_q = value[3], call.cu_k = value[4];
    call.mask = value[5], call.bias = value[6];
    call.alibi = value[11], call.sinks = value[12];
    call.ranges = value[14], call.key_blocks = value[15], call.mask_from = value[16];
    call.out = value[18];
    if (truth_of(value[19], &call.return_lse) < 0 || truth_of(value[20], &call.return_weights) < 0)
        return NULL;
    return attn_call_run(&o, &call);
}

/* ---- merge --------------------------------------------------------------------------------------------- */

PyObject *py_merge(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "merge", 4, 4, "a", "a_lse", "b", "b_lse", "layout", "dtype", "out");
    PyObject *value[7], *out = NULL, *lse = NULL, *result = NULL;
    array a[4], merged, merged_lse;
    layout axes;
    uint32_t type = HEED_F32;
    int64_t shape[2][4], stride[2][4], lse_stride[2][4], out_shape[4], out_stride[4];
    (void)self;
    for (int i = 0; i < 4; i++)
        array_none(&a[i]);
    array_none(&merged), array_none(&merged_lse);
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || layout_of(value[4], &axes) < 0)
        return NULL;
    if (value[5] && dtype_of(value[5], "dtype", false, &type) < 0)
        return NULL;
    for (int i = 0; i < 4; i++) {
        if (!value[i]) {
            PyErr_Format(PyExc_ValueError, "%s is None; an array is needed", sig.names[i]);
            goto end;
        }
        if (array_of(&a[i], value[i], sig.names[i], false, false) < 0)
            goto end;
        if (a[i].type != HEED_F32) {
            PyErr_Format(PyExc_ValueError, "%s is of %s; f32 is needed, whatever q was",
                         sig.names[i], element_name(a[i].type));
            goto end;
        }
    }
    for (int i = 0; i < 2; i++) { /* of out and lse, the lse without its dim */
        const array *l = &a[2 * i + 1];
        layout rows = {{-1, -1, -1, -1}, 0};
        int64_t lse_shape[4];
        if (in_layout(&a[2 * i], &axes, sig.names[2 * i], shape[i], stride[i]) < 0)
            goto end;
        for (int j = 0; j < 3; j++)
            if (axes.axis[j] >= 0)
                rows.axis[j] = rows.axes++;
        if (in_layout(l, &rows, sig.names[2 * i + 1], lse_shape, lse_stride[i]) < 0)
            goto end;
        for (int j = 0; j < 3; j++)
            if (lse_shape[j] != shape[i][j]) {
                PyErr_Format(PyExc_ValueError, "%s does not have the rows of %s",
                             sig.names[2 * i + 1], sig.names[2 * i]);
                goto end;
            }
    }
    if (memcmp(shape[0], shape[1], sizeof shape[0])) {
        PyErr_SetString(PyExc_ValueError, "a and b differ in shape");
        goto end;
    }
    if (value[6]) {
        if (array_of(&merged, value[6], "out", true, type == HEED_BF16) < 0 ||
            floats_needed(&merged, "out") < 0 ||
            in_layout(&merged, &axes, "out", out_shape, out_stride) < 0)
            goto end;
        if (memcmp(out_shape, shape[0], sizeof out_shape)) {
            PyErr_SetString(PyExc_ValueError, "out differs from a in shape");
            goto end;
        }
    } else if (array_new(&merged, &a[0], type, a[0].axes, a[0].shape) < 0 ||
               in_layout(&merged, &axes, "out", out_shape, out_stride) < 0) {
        goto end;
    }
    if (array_new(&merged_lse, &a[1], HEED_F32, a[1].axes, a[1].shape) < 0)
        goto end;
    {
        heed_status status = HEED_OK;
        PyThreadState *state = PyEval_SaveThread();
        for (int64_t i = 0; i < shape[0][0] && status == HEED_OK; i++) {
            heed_merge_args m = {.struct_size = sizeof m,
                                 .rows = shape[0][2],
                                 .heads = shape[0][1],
                                 .dim = shape[0][3],
                                 .out_type = merged.type};
            const int bytes = element_bytes(merged.type);
            m.a.data = (char *)address_of(&a[0]) + i * stride[0][0] * 4;
            m.b.data = (char *)address_of(&a[2]) + i * stride[1][0] * 4;
            m.a_lse.data = (char *)address_of(&a[1]) + i * lse_stride[0][0] * 4;
            m.b_lse.data = (char *)address_of(&a[3]) + i * lse_stride[1][0] * 4;
            m.out.data = (char *)address_of(&merged) + i * out_stride[0] * bytes;
            m.lse.data = (char *)address_of(&merged_lse) + i * shape[0][1] * shape[0][2] * 4;
            m.a.stride[0] = stride[0][2], m.a.stride[1] = stride[0][1],
            m.a.stride[2] = stride[0][3];
            m.b.stride[0] = stride[1][2], m.b.stride[1] = stride[1][1],
            m.b.stride[2] = stride[1][3];
            m.a_lse.stride[0] = lse_stride[0][2], m.a_lse.stride[1] = lse_stride[0][1];
            m.b_lse.stride[0] = lse_stride[1][2], m.b_lse.stride[1] = lse_stride[1][1];
            m.out.stride[0] = out_stride[2], m.out.stride[1] = out_stride[1];
            m.out.stride[2] = out_stride[3];
            m.lse.stride[0] = 1, m.lse.stride[1] = shape[0][2];
            status = heed_merge(&m);
        }
        PyEval_RestoreThread(state);
        if (check(status) < 0)
            goto end;
    }
    if (value[6]) {
        out = value[6];
        Py_INCREF(out);
    } else {
        out = array_result(&merged, &a[0]);
    }
    lse = array_result(&merged_lse, &a[1]);
    if (out && lse)
        result = PyTuple_Pack(2, out, lse);
    Py_XDECREF(out);
    Py_XDECREF(lse);
end:
    for (int i = 0; i < 4; i++)
        array_release(&a[i]);
    array_release(&merged), array_release(&merged_lse);
    return result;
}
