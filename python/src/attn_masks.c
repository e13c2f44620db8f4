/* Reads what hides keys from rows (masks, biases, ranges, key blocks), and numbers of heads
 * and sequences. */
#include "problem.h"

/* Broadcasts by numpy's rules: axes are matched from the last one, and those of length 1 repeat. */
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

static int read_mask_from(problem *p, const attn_call *call, int64_t *keys)
{
    heed_attn_args *args = &p->args;
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
    *keys = args->kv_len - least;
    p->desc.features |= HEED_HAS_MASK_FROM;
    args->mask_from = p->mask_from.data;
    return 0;
}

static int read_mask(problem *p, const attn_call *call, const int64_t want[4])
{
    int64_t stride[4];
    if (array_of(&p->mask, call->mask, "mask", false, false) < 0)
        return -1;
    if (!is_truth(p->mask.type)) {
        PyErr_Format(PyExc_ValueError,
                     "mask is of %s; bool is needed, true where a row attends (a float that is "
                     "added is a bias)",
                     element_name(p->mask.type));
        return -1;
    }
    if (broadcast(&p->mask, "mask", want, stride) < 0)
        return -1;
    p->desc.features |= HEED_HAS_MASK;
    view_of(&p->args.mask, &p->mask, stride);
    return 0;
}

static int read_bias(problem *p, const attn_options *o, const attn_call *call,
                     const int64_t want[4])
{
    int64_t stride[4];
    if (array_of(&p->bias, call->bias, "bias", false, o->as_bf16) < 0 ||
        floats_needed(&p->bias, "bias") < 0 || broadcast(&p->bias, "bias", want, stride) < 0)
        return -1;
    p->desc.features |= HEED_HAS_BIAS;
    p->desc.bias_type = p->bias.type;
    view_of(&p->args.bias, &p->bias, stride);
    return 0;
}

/* Reads ranges as an array with one axis less, whose elements are the pairs. */
static int read_ranges(problem *p, const attn_call *call)
{
    array *a = &p->ranges;
    array rows;
    int64_t want[4] = {p->args.batch, p->desc.q_heads, p->args.q_len, 0}, stride[4];
    bool fits;
    if (array_of(a, call->ranges, "ranges", false, false) < 0)
        return -1;
    fits = a->type == EL_I32 && a->axes >= 2 && a->axes <= 5 && a->shape[a->axes - 1] == 2 &&
           a->stride[a->axes - 1] == 1;
    for (int i = 0; fits && i + 1 < a->axes; i++)
        fits = a->shape[i] <= 1 || a->stride[i] % 2 == 0;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError,
                        "ranges is no int32 array [batch, heads, rows, n, 2] with adjacent pairs");
        return -1;
    }
    if (alignment_needed(a, "ranges") < 0)
        return -1;
    array_none(&rows);
    rows.axes = a->axes - 1;
    for (int i = 0; i + 1 < a->axes; i++) {
        rows.shape[i] = a->shape[i];
        rows.stride[i] = a->stride[i] / 2;
    }
    want[3] = rows.shape[rows.axes - 1];
    if (positive_int32(want[3], "the number of ranges of a row") < 0)
        return -1;
    if (rows.axes >= 2 && rows.shape[rows.axes - 2] > p->args.q_len) { /* its last rows are q's */
        const int row = rows.axes - 2;
        a->data += (rows.shape[row] - p->args.q_len) * rows.stride[row] * 8;
        rows.shape[row] = p->args.q_len;
    }
    if (broadcast(&rows, "ranges", want, stride) < 0)
        return -1;
    if (want[3] == 1)
        stride[3] = 1;
    p->desc.features |= HEED_HAS_RANGES;
    p->desc.n_ranges = (uint32_t)want[3];
    view_of(&p->args.ranges, a, stride);
    return 0;
}

/* Blocks of rows and keys do not broadcast: those of a shorter problem would pass unnoticed. */
static int blocks_cover(const char *what, int64_t have, int64_t block, int64_t length)
{
    const int64_t want = (length + block - 1) / block;
    if (have == want)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "key_blocks has %lld blocks of %lld %s; %lld are needed, which cover the %lld %s",
                 (long long)have, (long long)block, what, (long long)want, (long long)length, what);
    return -1;
}

static int read_key_blocks(problem *p, const attn_call *call)
{
    array *a = &p->key_blocks;
    int64_t want[4] = {p->args.batch, p->desc.q_heads, 0, 0}, stride[4], rows, keys, n;
    if (!PyTuple_Check(call->key_blocks) || PyTuple_Size(call->key_blocks) != 4) {
        PyErr_SetString(
            PyExc_ValueError,
            "key_blocks is no tuple (uint64 words, block_rows, block_keys, number of blocks "
            "of keys), which heed.masks.blocks gives");
        return -1;
    }
    if (array_of(a, PyTuple_GetItem(call->key_blocks, 0), "key_blocks", false, false) < 0 ||
        int64_of(PyTuple_GetItem(call->key_blocks, 1), "block_rows", 1, &rows) < 0 ||
        int64_of(PyTuple_GetItem(call->key_blocks, 2), "block_keys", 1, &keys) < 0 ||
        int64_of(PyTuple_GetItem(call->key_blocks, 3), "the number of blocks of keys", 0, &n) < 0)
        return -1;
    if (a->type != EL_U64 && a->type != EL_I64) {
        PyErr_Format(PyExc_ValueError, "key_blocks is of %s; uint64 is needed",
                     element_name(a->type));
        return -1;
    }
    if (alignment_needed(a, "key_blocks") < 0 || positive_int32(rows, "block_rows") < 0 ||
        positive_int32(keys, "block_keys") < 0)
        return -1;
    want[2] = a->axes < 2 ? 1 : a->shape[a->axes - 2];
    want[3] = n / 64 + (n % 64 > 0);
    if (blocks_cover("rows", want[2], rows, p->args.q_len) < 0 ||
        blocks_cover("keys", n, keys, p->args.kv_len) < 0)
        return -1;
    if (a->axes < 1 || a->shape[a->axes - 1] != want[3]) {
        PyErr_Format(
            PyExc_ValueError, "key_blocks has %lld words for %lld blocks of keys; %lld are needed",
            (long long)(a->axes < 1 ? 1 : a->shape[a->axes - 1]), (long long)n, (long long)want[3]);
        return -1;
    }
    if (broadcast(a, "key_blocks", want, stride) < 0)
        return -1;
    p->desc.features |= HEED_HAS_KEY_BLOCKS;
    p->desc.block_rows = (uint32_t)rows;
    p->desc.block_keys = (uint32_t)keys;
    view_of(&p->args.key_blocks, a, stride);
    return 0;
}

int read_masks(problem *p, const attn_options *o, const attn_call *call)
{
    int64_t want[4] = {p->args.batch, p->desc.q_heads, p->args.q_len, p->args.kv_len};
    if ((call->mask_from && read_mask_from(p, call, &want[3]) < 0) ||
        (call->mask && read_mask(p, call, want) < 0) ||
        (call->bias && read_bias(p, o, call, want) < 0) ||
        (call->ranges && read_ranges(p, call) < 0))
        return -1;
    return call->key_blocks ? read_key_blocks(p, call) : 0;
}

int read_numbers(problem *p, const attn_options *o, const attn_call *call)
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
    if (o->position && !PyUnicode_Check(o->position)) {
        if (int32s_of(&p->offsets, o->position, "position", args->batch) < 0)
            return -1;
        if (desc->position == HEED_POS_GIVEN)
            args->q_offsets = p->offsets.data;
    }
    return 0;
}
