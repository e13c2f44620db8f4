/* One call of a MultiHeadAttention: reads Python's arguments, in the order of mha_call. */
#include "mha.h"
#include "problem.h"

enum {
    C_X,
    C_X_KV,
    C_CACHE,
    C_MASK,
    C_BIAS,
    C_Q_LENS,
    C_KV_LENS,
    C_POSITION,
    C_ALIBI,
    C_SINKS,
    C_RANGES,
    C_KEY_BLOCKS,
    C_MASK_FROM,
    C_POSITIONS,
    C_OUT,
    C_RETURN_LSE,
    C_RETURN_WEIGHTS,
    N_C
};

/* A call and everything that it holds references to. */
typedef struct layer_call {
    mha_object *self;
    PyObject *value[N_C];
    array x, x_kv, y, mask, bias, ranges, key_blocks, positions, lse, weights;
    numbers q_lens, kv_lens, offsets, mask_from, alibi, sinks;
    cache_object *cache; /* borrowed */
    bool cache_held, cache_writes;
    int64_t pages; /* that the cache has handed out; after a failure it is left with these */
    heed_attn_desc desc;
    heed_mha_args args;
    made_for key;
    bool return_lse, return_weights;
    int64_t keys, new_keys; /* keys that rows may see, and how many of them are new */
} layer_call;

static void call_start(layer_call *c, mha_object *self)
{
    c->self = self;
    c->cache = NULL;
    c->cache_held = false;
    c->desc = self->desc;
    c->args = (heed_mha_args){.struct_size = sizeof c->args};
    memset(&c->key, 0, sizeof c->key);
    array_none(&c->x), array_none(&c->x_kv), array_none(&c->y), array_none(&c->mask);
    array_none(&c->bias), array_none(&c->ranges), array_none(&c->key_blocks);
    array_none(&c->positions), array_none(&c->lse), array_none(&c->weights);
    numbers_none(&c->q_lens), numbers_none(&c->kv_lens), numbers_none(&c->offsets);
    numbers_none(&c->mask_from), numbers_none(&c->alibi), numbers_none(&c->sinks);
}

static void call_release(layer_call *c)
{
    if (c->cache_held) {
        if (c->cache_writes) /* entries beyond a sequence's length are ignored */
            c->cache->pages_used = c->pages;
        cache_end(c->cache, c->cache_writes);
    }
    array_release(&c->x), array_release(&c->x_kv), array_release(&c->y), array_release(&c->mask);
    array_release(&c->bias), array_release(&c->ranges), array_release(&c->key_blocks);
    array_release(&c->positions), array_release(&c->lse), array_release(&c->weights);
    numbers_release(&c->q_lens), numbers_release(&c->kv_lens), numbers_release(&c->offsets);
    numbers_release(&c->mask_from), numbers_release(&c->alibi), numbers_release(&c->sinks);
}

static int rows_shape(const array *a, const char *name, int64_t columns)
{
    char text[128];
    if (a->axes == 3 && a->shape[2] == columns)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s has the shape %s; [batch, rows, %lld] is needed", name,
                 shape_text(text, sizeof text, a->axes, a->shape), (long long)columns);
    return -1;
}

static int64_t rounded_up(int64_t n)
{
    int64_t power = 1;
    while (power < n)
        power *= 2;
    return power > INT32_MAX ? INT32_MAX : power;
}

static int read_x(layer_call *c)
{
    if (float_array(&c->x, c->value[C_X], "x", false, c->self->x_type, false) < 0 ||
        rows_shape(&c->x, "x", c->self->d_model) < 0)
        return -1;
    c->args.batch = c->x.shape[0];
    c->args.q_len = c->new_keys = c->keys = c->x.shape[1];
    c->args.x_q.data = address_of(&c->x);
    memcpy(c->args.x_q.stride, c->x.stride, 3 * sizeof *c->x.stride);
    return 0;
}

static int read_cache(layer_call *c)
{
    PyObject *given = c->value[C_CACHE];
    if (!given)
        return 0;
    if (Py_TYPE(given) != (PyTypeObject *)cache_type) {
        PyErr_Format(PyExc_ValueError, "cache is %R; a heed.KVCache is needed", given);
        return -1;
    }
    c->cache = (cache_object *)given;
    if (c->cache->batch == c->args.batch && c->cache->kv_heads == c->desc.kv_heads &&
        c->cache->qk_dim == c->desc.qk_dim && c->cache->v_dim == c->desc.v_dim)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the cache is of another batch, heads or dims");
    return -1;
}

/* Reads the sequence of the keys, if the layer is a cross-attention. */
static int read_x_kv(layer_call *c)
{
    PyObject *given = c->value[C_X_KV];
    if (!c->self->cross) {
        if (!given)
            return 0;
        PyErr_SetString(PyExc_ValueError,
                        "x_kv is given, but the layer was made without cross=True");
        return -1;
    }
    c->key.features |= HEED_MHA_HAS_CROSS;
    c->new_keys = 0;
    if (given) {
        if (float_array(&c->x_kv, given, "x_kv", false, c->self->x_type, false) < 0 ||
            rows_shape(&c->x_kv, "x_kv", c->self->d_kv) < 0)
            return -1;
        if (c->x_kv.shape[0] != c->args.batch) {
            PyErr_Format(PyExc_ValueError, "the batch of x_kv is %lld, of x %lld",
                         (long long)c->x_kv.shape[0], (long long)c->args.batch);
            return -1;
        }
        c->new_keys = c->x_kv.shape[1];
        memcpy(c->args.x_kv.stride, c->x_kv.stride, 3 * sizeof *c->x_kv.stride);
    } else if (!c->cache) {
        PyErr_SetString(PyExc_ValueError, "x_kv is needed: the layer is a cross-attention");
        return -1;
    }
    c->args.x_kv.data = address_of(&c->x_kv);
    c->args.kv_len = c->keys = c->new_keys;
    return 0;
}

static int read_lens(layer_call *c)
{
    if (c->value[C_Q_LENS]) {
        if (int32s_of(&c->q_lens, c->value[C_Q_LENS], "q_lens", c->args.batch) < 0)
            return -1;
        c->args.q_lens = c->q_lens.data;
        c->desc.features |= HEED_HAS_LENS;
    }
    if (!c->value[C_KV_LENS])
        return 0;
    if (!c->self->cross) {
        PyErr_SetString(PyExc_ValueError, "kv_lens is given, but the layer was made without "
                                          "cross=True; q_lens counts its rows");
        return -1;
    }
    if (int32s_of(&c->kv_lens, c->value[C_KV_LENS], "kv_lens", c->args.batch) < 0)
        return -1;
    c->args.kv_lens = c->kv_lens.data;
    c->desc.features |= HEED_HAS_LENS;
    return 0;
}

/* How many keys each sequence appends; NULL means new_keys for all. */
static const int32_t *appended(const layer_call *c)
{
    return c->self->cross ? c->args.kv_lens : c->args.q_lens;
}

static int use_cache(layer_call *c)
{
    cache_object *cache = c->cache;
    heed_mha_args *a = &c->args;
    if (!cache)
        return 0;
    c->cache_writes = !c->self->cross || c->value[C_X_KV];
    if (cache_begin(cache, c->cache_writes) < 0)
        return -1;
    c->cache_held = true;
    c->pages = cache->pages_used;
    if (cache_make_room(cache, c->self->cross ? "kv_lens" : "q_lens", appended(c), c->new_keys) < 0)
        return -1;
    c->key.features |= HEED_MHA_HAS_CACHE;
    a->capacity = c->keys = cache->capacity;
    a->k_cache.data = cache->k;
    a->v_cache.data = cache->v;
    memcpy(a->k_cache.stride, cache->k_stride, sizeof cache->k_stride);
    memcpy(a->v_cache.stride, cache->v_stride, sizeof cache->v_stride);
    a->cache_lens = cache->lens;
    c->desc.k_type = cache->k_type;
    c->desc.v_type = cache->v_type;
    if (cache->k_quant.scale || cache->v_quant.scale) {
        c->desc.features |= HEED_HAS_QUANT;
        a->k_quant = cache_written_scales(&cache->k_quant);
        a->v_quant = cache_written_scales(&cache->v_quant);
        a->append = HEED_APPEND_FRESH_SCALES;
    }
    if (cache->page_len) {
        c->desc.features |= HEED_HAS_PAGES;
        c->desc.page_len = cache->page_len;
        a->block_table = cache->block_table;
        a->block_table_stride = cache->table_stride;
        a->n_pages = cache->n_pages;
    }
    return 0;
}

static int read_hidden(layer_call *c)
{
    PyObject *const *given = c->value;
    const bool as_bf16 = c->self->x_type == HEED_BF16;
    heed_attn_desc *desc = &c->desc;
    heed_mha_args *args = &c->args;
    const int64_t pairs[4] = {args->batch, desc->q_heads, args->q_len, c->keys};
    int64_t masked[4] = {args->batch, desc->q_heads, args->q_len, c->keys};
    if (given[C_MASK_FROM]) {
        if (mask_from_of(&c->mask_from, given[C_MASK_FROM], args->batch, &masked[3], desc) < 0)
            return -1;
        args->mask_from = c->mask_from.data;
    }
    if ((given[C_MASK] && mask_of(&c->mask, given[C_MASK], masked, desc, &args->mask) < 0) ||
        (given[C_BIAS] &&
         bias_of(&c->bias, given[C_BIAS], as_bf16, masked, desc, &args->bias) < 0) ||
        (given[C_RANGES] && ranges_of(&c->ranges, given[C_RANGES], pairs, desc, &args->ranges) < 0))
        return -1;
    return given[C_KEY_BLOCKS]
               ? key_blocks_of(&c->key_blocks, given[C_KEY_BLOCKS], pairs, desc, &args->key_blocks)
               : 0;
}

/* Reads the positions that rows are turned by. */
static int read_positions(layer_call *c)
{
    heed_mha_args *a = &c->args;
    if (!c->value[C_POSITIONS])
        return 0;
    if (c->self->rotary.style == HEED_ROTARY_NONE) {
        PyErr_SetString(PyExc_ValueError,
                        "positions is given, but the layer was made without rotary");
        return -1;
    }
    return positions_of(&c->positions, c->value[C_POSITIONS], a->batch, a->q_len, &a->positions,
                        &a->positions_stride);
}

static int read_head_numbers(layer_call *c)
{
    attn_options o = c->self->options;
    const bool as_bf16 = c->self->x_type == HEED_BF16;
    if (c->value[C_ALIBI]) {
        if (floats_of(&c->alibi, c->value[C_ALIBI], "alibi", c->desc.q_heads, as_bf16) < 0)
            return -1;
        c->args.alibi_slope = c->alibi.data;
        c->desc.features |= HEED_HAS_ALIBI;
    }
    if (c->value[C_SINKS]) {
        if (floats_of(&c->sinks, c->value[C_SINKS], "sinks", c->desc.q_heads, as_bf16) < 0)
            return -1;
        c->args.sink = c->sinks.data;
        c->desc.features |= HEED_HAS_SINK;
    }
    if (c->value[C_POSITION] && attn_position_of(&o, c->value[C_POSITION]) < 0)
        return -1;
    attn_options_into(&o, c->value[C_ALIBI], &c->desc);
    /* Rows are turned by their positions where nothing else goes by them, too; those of a cross-attention
     * would be at 0 if the library were told none. */
    if (c->self->rotary.style != HEED_ROTARY_NONE)
        c->desc.position = attn_position(&o);
    if (!o.position || PyUnicode_Check(o.position))
        return 0;
    if (int32s_of(&c->offsets, o.position, "position", c->args.batch) < 0)
        return -1;
    if (c->desc.position == HEED_POS_GIVEN)
        c->args.q_offsets = c->offsets.data;
    return 0;
}

/* Without wo attention writes y, and may still read the others meanwhile. */
static int y_apart(const layer_call *c)
{
    const bool in_place = c->self->proj[3];
    if (given_apart(&c->y, &c->x, "x", in_place) < 0 ||
        given_apart(&c->y, &c->x_kv, "x_kv", in_place) < 0)
        return -1;
    if (in_place)
        return 0;
    return given_apart(&c->y, &c->mask, "mask", false) < 0
               ? -1
               : given_apart(&c->y, &c->bias, "bias", false);
}

static int make_y(layer_call *c)
{
    const mha_object *self = c->self;
    const int64_t shape[3] = {c->args.batch, c->args.q_len, self->out_dim};
    if (c->value[C_OUT]) {
        if (float_array(&c->y, c->value[C_OUT], "out", true, self->desc.out_type, false) < 0 ||
            rows_shape(&c->y, "out", self->out_dim) < 0)
            return -1;
        if (c->y.shape[0] != shape[0] || c->y.shape[1] != shape[1]) {
            PyErr_SetString(PyExc_ValueError, "out does not have the rows of x");
            return -1;
        }
        if (y_apart(c) < 0)
            return -1;
    } else if (array_new(&c->y, &c->x, self->desc.out_type, 3, shape) < 0) {
        return -1;
    } else if (c->args.q_lens) {
        array_fill(&c->y, 0);
    }
    c->args.y.data = address_of(&c->y);
    memcpy(c->args.y.stride, c->y.stride, 3 * sizeof *c->y.stride);
    return 0;
}

static int make_besides(layer_call *c)
{
    const int64_t full[4] = {c->args.batch, c->desc.q_heads, c->args.q_len, c->keys};
    if (c->return_lse) {
        if (array_new(&c->lse, &c->x, HEED_F32, 3, full) < 0)
            return -1;
        if (c->args.q_lens)
            array_fill(&c->lse, -INFINITY);
        c->args.lse.data = address_of(&c->lse);
        memcpy(c->args.lse.stride, c->lse.stride, 3 * sizeof *c->lse.stride);
        c->desc.features |= HEED_HAS_LSE;
    }
    if (c->return_weights) {
        if (array_new(&c->weights, &c->x, HEED_F32, 4, full) < 0)
            return -1;
        if (c->args.q_lens || c->cache)
            array_fill(&c->weights, 0);
        c->args.weights.data = address_of(&c->weights);
        memcpy(c->args.weights.stride, c->weights.stride, 4 * sizeof *c->weights.stride);
        c->desc.features |= HEED_HAS_WEIGHTS;
    }
    return 0;
}

static int run(layer_call *c)
{
    const heed_attn_desc *desc = &c->desc;
    made_for *key = &c->key;
    heed_mha *mha;
    heed_status status;
    PyThreadState *state;
    key->attn_features = desc->features;
    key->bias_type = desc->bias_type;
    key->k_type = desc->k_type;
    key->v_type = desc->v_type;
    key->page_len = desc->page_len;
    key->position = desc->position;
    key->n_ranges = desc->n_ranges;
    key->block_rows = desc->block_rows;
    key->block_keys = desc->block_keys;
    key->max_batch = rounded_up(c->args.batch);
    key->max_q_len = rounded_up(c->args.q_len);
    key->max_kv_len = c->cache         ? c->cache->capacity
                      : c->self->cross ? rounded_up(c->keys)
                                       : key->max_q_len;
    key->max_kv_rows = c->self->cross ? key->max_batch * rounded_up(c->new_keys) : 0;
    mha = mha_for(c->self, key, desc);
    if (!mha)
        return -1;
    state = PyEval_SaveThread();
    status = heed_mha_run(mha, &c->args, NULL, 0);
    PyEval_RestoreThread(state);
    heed_mha_release(mha);
    if (check(status) < 0)
        return -1;
    for (int64_t b = 0; c->cache && b < c->args.batch; b++)
        c->cache->lens[b] += appended(c) ? appended(c)[b] : (int32_t)c->new_keys;
    if (c->cache)
        c->pages = c->cache->pages_used;
    return 0;
}

static PyObject *results(layer_call *c)
{
    PyObject *part[3] = {NULL, NULL, NULL}, *all = NULL;
    int n = 0;
    bool complete = true;
    part[n++] = result_of(&c->y, c->value[C_OUT], &c->x);
    if (c->return_lse)
        part[n++] = array_result(&c->lse, &c->x);
    if (c->return_weights)
        part[n++] = array_result(&c->weights, &c->x);
    for (int i = 0; i < n; i++)
        complete = complete && part[i];
    if (n == 1)
        return part[0];
    if (complete)
        all =
            n == 2 ? PyTuple_Pack(2, part[0], part[1]) : PyTuple_Pack(3, part[0], part[1], part[2]);
    for (int i = 0; i < n; i++)
        Py_XDECREF(part[i]);
    return all;
}

PyObject *mha_call(PyObject *object, PyObject *tuple, PyObject *named)
{
    SIGNATURE(sig, "MultiHeadAttention", 2, 1, "x", "x_kv", "cache", "mask", "bias", "q_lens",
              "kv_lens", "position", "alibi", "sinks", "ranges", "key_blocks", "mask_from",
              "positions", "out", "return_lse", "return_weights");
    PyObject *result = NULL;
    layer_call c;
    if (read_tuple(&sig, tuple, named, c.value) < 0 || arrays_needed(&sig, c.value, 1) < 0 ||
        truth_of(c.value[C_RETURN_LSE], "return_lse", &c.return_lse) < 0 ||
        truth_of(c.value[C_RETURN_WEIGHTS], "return_weights", &c.return_weights) < 0)
        return NULL;
    call_start(&c, (mha_object *)object);
    if (read_x(&c) == 0 && read_cache(&c) == 0 && read_x_kv(&c) == 0 && read_lens(&c) == 0 &&
        use_cache(&c) == 0 && read_hidden(&c) == 0 && read_head_numbers(&c) == 0 &&
        read_positions(&c) == 0 && make_y(&c) == 0 && make_besides(&c) == 0 && run(&c) == 0)
        result = results(&c);
    call_release(&c);
    return result;
}
