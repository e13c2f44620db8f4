/* Queries, keys and values of a problem, from arrays, packed rows, pages or a cache of ours. */
#include "problem.h"

int floats_needed(const array *a, const char *name)
{
    if (is_float(a->type))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is of %s; f32, f16 or bf16 is needed%s", name,
                 element_name(a->type),
                 a->type == EL_U16 ? " (dtype=\"bf16\" says that uint16 holds its bits)" : "");
    return -1;
}

int positive_int32(int64_t value, const char *name)
{
    if (value <= INT32_MAX)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is %lld, more than 2^31 - 1", name, (long long)value);
    return -1;
}

void view_of(heed_const_view *view, const array *a, const int64_t stride[4])
{
    view->data = address_of(a);
    memcpy(view->stride, stride, sizeof view->stride);
}

/* Keys or values without a code are floats: what codes of an array's own type stand for is not known. */
static int no_codes(const array *a, const char *name)
{
    if (!heed_is_code(a->type))
        return floats_needed(a, name);
    PyErr_Format(PyExc_ValueError,
                 "%s is of %s; f32, f16 or bf16 is needed (a plan with kv_dtype takes codes)", name,
                 element_name(a->type));
    return -1;
}

/* Keys or values of codes come as bytes, whole numbers with their sign; lengths and strides of their rows
 * are those of elements. */
static int as_codes(array *a, const char *name, uint32_t code, int d)
{
    const int64_t bytes = heed_block_bytes(code), elements = heed_block_len(code);
    if (code == HEED_DTYPE_NONE)
        return no_codes(a, name);
    if (a->type != code && (code == HEED_I8 || code == HEED_U8)) {
        PyErr_Format(PyExc_ValueError, "%s is of %s; %s is needed", name, element_name(a->type),
                     code == HEED_I8 ? "int8" : "uint8");
        return -1;
    }
    if (a->type != code && a->type != HEED_U8 && a->type != HEED_I8) {
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

/* Turns the boundaries of sequences in packed rows into starts and lengths. */
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

/* Is the call what the plan was made for? */
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

static int read_query(problem *p, const attn_options *o, const attn_call *call, int64_t shape[4])
{
    int64_t stride[4];
    if (array_of(&p->q, call->q, "q", false, o->as_bf16) < 0 || floats_needed(&p->q, "q") < 0 ||
        in_layout(&p->q, &o->axes, "q", shape, stride) < 0)
        return -1;
    if (positive_int32(shape[1], "the number of q's heads") < 0)
        return -1;
    view_of(&p->args.q, &p->q, stride);
    p->desc.q_type = p->q.type;
    p->desc.q_heads = (uint32_t)shape[1];
    p->args.batch = shape[0];
    p->args.q_len = shape[2];
    return 0;
}

/* Keys and values of a cache of ours. */
static int read_cache(problem *p, cache_object *cache, int64_t k_shape[4], int64_t v_shape[4])
{
    heed_attn_desc *desc = &p->desc;
    heed_attn_args *args = &p->args;
    if (cache_begin(cache, false) < 0)
        return -1;
    p->cache = cache;
    desc->k_type = cache->k_type;
    desc->v_type = cache->v_type;
    k_shape[1] = cache->kv_heads;
    k_shape[3] = cache->qk_dim;
    v_shape[3] = cache->v_dim;
    args->k.data = cache->k;
    args->v.data = cache->v;
    memcpy(args->k.stride, cache->k_stride, sizeof cache->k_stride);
    memcpy(args->v.stride, cache->v_stride, sizeof cache->v_stride);
    if (same("the batch", "q", args->batch, "the cache", cache->batch) < 0)
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
    return 0;
}

static int read_keys(problem *p, const attn_options *o, const attn_call *call, int64_t k_shape[4],
                     int64_t v_shape[4])
{
    int64_t stride[4];
    if (array_of(&p->k, call->k, "k", false, o->as_bf16) < 0 ||
        array_of(&p->v, call->v, "v", false, o->as_bf16) < 0 ||
        as_codes(&p->k, "k", call->k_code, o->axes.axis[3]) < 0 ||
        as_codes(&p->v, "v", call->v_code, o->axes.axis[3]) < 0)
        return -1;
    p->desc.k_type = p->k.type;
    p->desc.v_type = p->v.type;
    if (in_layout(&p->k, &o->axes, "k", k_shape, stride) < 0)
        return -1;
    view_of(&p->args.k, &p->k, stride);
    if (in_layout(&p->v, &o->axes, "v", v_shape, stride) < 0)
        return -1;
    view_of(&p->args.v, &p->v, stride);
    if (same("the heads", "v", v_shape[1], "k", k_shape[1]) < 0 ||
        same("the length", "v", v_shape[2], "k", k_shape[2]) < 0 ||
        same(call->block_table ? "the pages" : "the batch", "v", v_shape[0], "k", k_shape[0]) < 0)
        return -1;
    if (!call->block_table && same("the batch", "k", k_shape[0], "q", p->args.batch) < 0)
        return -1;
    p->args.kv_len = k_shape[2];
    return 0;
}

/* Sequences behind each other in packed rows. */
static int read_packed(problem *p, const attn_call *call, int64_t q_rows, int64_t kv_rows)
{
    heed_attn_args *args = &p->args;
    if (cut(call->cu_q, "cu_q", q_rows, &p->q_starts, &p->q_lens) < 0 ||
        cut(call->cu_k, "cu_k", kv_rows, &p->kv_starts, &p->kv_lens) < 0 ||
        same("the number of sequences", "cu_k", p->kv_lens.n, "cu_q", p->q_lens.n) < 0)
        return -1;
    p->packed = true;
    p->desc.features |= HEED_HAS_PACKED | HEED_HAS_LENS;
    p->desc.max_rows = q_rows;
    args->batch = p->q_lens.n;
    args->q_len = greatest(&p->q_lens);
    args->kv_len = greatest(&p->kv_lens);
    args->q_lens = p->q_lens.data;
    args->kv_lens = p->kv_lens.data;
    args->q_starts = p->q_starts.data;
    args->kv_starts = p->kv_starts.data;
    if (!args->batch) /* nothing is read, but the pointers may not be NULL */
        args->q_lens = args->kv_lens = args->q_starts = args->kv_starts = &p->q_lens.room.i[0];
    return 0;
}

static int read_pages(problem *p, const attn_call *call, const int64_t k_shape[4])
{
    array *table = &p->block_table;
    if (array_of(table, call->block_table, "block_table", false, false) < 0)
        return -1;
    if (table->type != EL_I32 || table->axes != 2 ||
        (table->shape[1] > 1 && table->stride[1] != 1)) {
        PyErr_SetString(PyExc_ValueError,
                        "block_table is no int32 array [batch, pages] with adjacent pages");
        return -1;
    }
    if (alignment_needed(table, "block_table") < 0 ||
        same("the batch", "block_table", table->shape[0], "q", p->args.batch) < 0 ||
        same("the rows of a page", "k", k_shape[2], "the plan", call->page_len) < 0)
        return -1;
    p->desc.features |= HEED_HAS_PAGES;
    p->desc.page_len = call->page_len;
    p->args.block_table = address_of(table);
    p->args.block_table_stride = table->stride[0];
    p->args.n_pages = k_shape[0];
    p->args.kv_len = table->shape[1] * (int64_t)call->page_len;
    return 0;
}

static int read_lens(problem *p, const attn_call *call)
{
    heed_attn_args *args = &p->args;
    if (call->q_lens) {
        if (int32s_of(&p->q_lens, call->q_lens, "q_lens", args->batch) < 0)
            return -1;
        p->desc.features |= HEED_HAS_LENS;
        args->q_lens = p->q_lens.data;
    }
    if (!call->kv_lens)
        return 0;
    if (int32s_of(&p->kv_lens, call->kv_lens, "kv_lens", args->batch) < 0)
        return -1;
    p->desc.features |= HEED_HAS_LENS;
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
    return 0;
}

int read_inputs(problem *p, const attn_options *o, const attn_call *call, int64_t q_shape[4])
{
    heed_attn_desc *desc = &p->desc;
    int64_t k_shape[4] = {0}, v_shape[4] = {0};
    if (read_query(p, o, call, q_shape) < 0 ||
        (call->cache ? read_cache(p, call->cache, k_shape, v_shape)
                     : read_keys(p, o, call, k_shape, v_shape)) < 0 ||
        same("the head dim", "k", k_shape[3], "q", q_shape[3]) < 0 ||
        positive_int32(k_shape[1], "the number of k's heads") < 0 ||
        positive_int32(k_shape[3], "the head dim of k") < 0 ||
        positive_int32(v_shape[3], "the head dim of v") < 0)
        return -1;
    desc->kv_heads = (uint32_t)k_shape[1];
    desc->qk_dim = (uint32_t)k_shape[3];
    desc->v_dim = (uint32_t)v_shape[3];
    if (call->plan && plan_fits(call->plan, desc) < 0)
        return -1;
    if (call->cu_q ? read_packed(p, call, q_shape[2], k_shape[2]) < 0
                   : call->block_table && read_pages(p, call, k_shape) < 0)
        return -1;
    if (!p->packed && read_lens(p, call) < 0)
        return -1;
    if (positive_int32(p->args.q_len, "the number of rows") < 0)
        return -1;
    return positive_int32(p->args.kv_len, "the number of keys");
}

/* Whether groups of so many keys have n scales. */
static int groups_fit(const char *name, int64_t n, int64_t keys, int64_t group)
{
    const int64_t groups = keys / group + (keys % group > 0);
    if (groups == n)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "%s_scale has %lld along %lld keys, where groups of %lld (%s_key_group) have %lld",
                 name, (long long)n, (long long)keys, (long long)group, name, (long long)groups);
    return -1;
}

/* How many adjacent keys share a scale where n scales lie along the keys; 0: each has its own, or all
 * one. Groups of several sizes may be n, and which one it is the scales do not say. */
static int key_group_of(const char *name, PyObject *given, int64_t n, int64_t keys, uint32_t *group)
{
    const int64_t least = (keys + n - 1) / n, most = n > 1 ? (keys + n - 2) / (n - 1) - 1 : least;
    int64_t each;
    if (given) {
        if (int64_of(given, "a key group", 1, &each) < 0 ||
            positive_int32(each, "a key group") < 0 || groups_fit(name, n, keys, each) < 0)
            return -1;
        *group = n == 1 ? 0 : (uint32_t)each;
        return 0;
    }
    *group = n == 1 || n == keys ? 0 : (uint32_t)least;
    if (!*group || (least > 0 && least == most))
        return 0;
    if (least > 0 && least < most)
        PyErr_Format(PyExc_ValueError,
                     "%s_scale has %lld along %lld keys, as groups of %lld to %lld have; "
                     "%s_key_group, how many keys share a scale, is needed",
                     name, (long long)n, (long long)keys, (long long)least, (long long)most, name);
    else
        PyErr_Format(PyExc_ValueError,
                     "%s_scale has %lld along %lld keys; 1 or as many as there are keys or groups "
                     "of them is needed",
                     name, (long long)n, (long long)keys);
    return -1;
}

/* What a call gives for the codes of k or v; all borrowed, NULL where not given. */
typedef struct scale_given {
    const char *name; /* "k" or "v" */
    PyObject *scale, *zero, *key_group;
} scale_given;

/* Scales of codes: f32 [batch or pages, kv_heads, keys, groups], any of them 1. */
static int read_scale(array *scale, array *zero, const scale_given *given, const int64_t keys[4],
                      heed_quant *out)
{
    const char *name = given->name;
    int64_t stride[4];
    if (!given->scale && !given->zero && !given->key_group)
        return 0;
    if (!given->scale) {
        PyErr_Format(PyExc_ValueError, "%s_%s is given without %s_scale", name,
                     given->zero ? "zero" : "key_group", name);
        return -1;
    }
    if (array_of(scale, given->scale, "a scale", false, false) < 0)
        return -1;
    if (scale->type != HEED_F32 || scale->axes != 4) {
        PyErr_Format(PyExc_ValueError, "%s_scale is no f32 array of 4 axes", name);
        return -1;
    }
    if (alignment_needed(scale, "a scale") < 0)
        return -1;
    for (int i = 0; i < 4; i++)
        stride[i] = scale->shape[i] == 1 ? 0 : scale->stride[i];
    if ((scale->shape[0] != 1 && scale->shape[0] != keys[0]) ||
        (scale->shape[1] != 1 && scale->shape[1] != keys[1]) || scale->shape[2] < 1 ||
        scale->shape[3] < 1 || keys[3] % scale->shape[3]) {
        PyErr_Format(PyExc_ValueError, "%s_scale does not fit the array it is for", name);
        return -1;
    }
    if (given->zero) {
        if (array_of(zero, given->zero, "a zero", false, false) < 0)
            return -1;
        for (int i = 0; i < 4; i++)
            if (zero->type != HEED_F32 || zero->axes != 4 || zero->shape[i] != scale->shape[i] ||
                (scale->shape[i] > 1 && zero->stride[i] != scale->stride[i])) {
                PyErr_Format(PyExc_ValueError, "%s_zero differs from %s_scale in shape or strides",
                             name, name);
                return -1;
            }
        if (alignment_needed(zero, "a zero") < 0)
            return -1;
        out->zero = address_of(zero);
    }
    out->scale = address_of(scale);
    memcpy(out->stride, stride, sizeof out->stride);
    out->group = scale->shape[3] == 1 ? 0 : (uint32_t)(keys[3] / scale->shape[3]);
    return key_group_of(name, given->key_group, scale->shape[2], keys[2], &out->key_group);
}

int read_scales(problem *p, const attn_call *call)
{
    heed_attn_args *args = &p->args;
    int64_t keys[4] = {call->block_table ? args->n_pages : args->batch, p->desc.kv_heads,
                       call->block_table ? call->page_len : args->kv_len, p->desc.qk_dim};
    const scale_given k = {"k", call->k_scale, call->k_zero, call->k_key_group},
                      v = {"v", call->v_scale, call->v_zero, call->v_key_group};
    if (read_scale(&p->k_scale, &p->k_zero, &k, keys, &args->k_quant) < 0)
        return -1;
    keys[3] = p->desc.v_dim;
    if (read_scale(&p->v_scale, &p->v_zero, &v, keys, &args->v_quant) < 0)
        return -1;
    if (args->k_quant.scale || args->v_quant.scale)
        p->desc.features |= HEED_HAS_QUANT;
    return 0;
}
