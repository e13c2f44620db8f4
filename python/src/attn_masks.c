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

int mask_from_of(numbers *from, PyObject *given, int64_t batch, int64_t *keys, heed_attn_desc *desc)
{
    int64_t least = *keys;
    if (int32s_of(from, given, "mask_from", batch) < 0)
        return -1;
    for (int64_t b = 0; b < batch; b++) {
        const int32_t first = ((int32_t *)from->data)[b];
        if (first < 0 || first > *keys) {
            PyErr_Format(PyExc_ValueError, "mask_from[%lld] is %d; 0 to the %lld keys are possible",
                         (long long)b, (int)first, (long long)*keys);
            return -1;
        }
        if (first < least)
            least = first;
    }
    *keys -= least;
    desc->features |= HEED_HAS_MASK_FROM;
    return 0;
}

int mask_of(array *a, PyObject *given, const int64_t pairs[4], heed_attn_desc *desc,
            heed_const_view *view)
{
    int64_t stride[4];
    if (array_of(a, given, "mask", false, false) < 0)
        return -1;
    if (!is_truth(a->type)) {
        PyErr_Format(PyExc_ValueError,
                     "mask is of %s; bool is needed, true where a row attends (a float that is "
                     "added is a bias)",
                     element_name(a->type));
        return -1;
    }
    if (broadcast(a, "mask", pairs, stride) < 0)
        return -1;
    desc->features |= HEED_HAS_MASK;
    view_of(view, a, stride);
    return 0;
}

int bias_of(array *a, PyObject *given, bool as_bf16, const int64_t pairs[4], heed_attn_desc *desc,
            heed_const_view *view)
{
    int64_t stride[4];
    if (array_of(a, given, "bias", false, as_bf16) < 0 || floats_needed(a, "bias") < 0 ||
        broadcast(a, "bias", pairs, stride) < 0)
        return -1;
    desc->features |= HEED_HAS_BIAS;
    desc->bias_type = a->type;
    view_of(view, a, stride);
    return 0;
}

/* Reads ranges as an array with one axis less, whose elements are the pairs. */
int ranges_of(array *a, PyObject *given, const int64_t pairs[4], heed_attn_desc *desc,
              heed_const_view *view)
{
    array rows;
    int64_t want[4] = {pairs[0], pairs[1], pairs[2], 0}, stride[4];
    bool fits;
    if (array_of(a, given, "ranges", false, false) < 0)
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
    if (rows.axes >= 2 && rows.shape[rows.axes - 2] > pairs[2]) { /* its last rows are q's */
        const int row = rows.axes - 2;
        a->data += (rows.shape[row] - pairs[2]) * rows.stride[row] * 8;
        rows.shape[row] = pairs[2];
    }
    if (broadcast(&rows, "ranges", want, stride) < 0)
        return -1;
    if (want[3] == 1)
        stride[3] = 1;
    desc->features |= HEED_HAS_RANGES;
    desc->n_ranges = (uint32_t)want[3];
    view_of(view, a, stride);
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

int key_blocks_of(array *a, PyObject *given, const int64_t pairs[4], heed_attn_desc *desc,
                  heed_const_view *view)
{
    int64_t want[4] = {pairs[0], pairs[1], 0, 0}, stride[4], rows, keys, n;
    if (!PyTuple_Check(given) || PyTuple_Size(given) != 4) {
        PyErr_SetString(
            PyExc_ValueError,
            "key_blocks is no tuple (uint64 words, block_rows, block_keys, number of blocks "
            "of keys), which heed.masks.blocks gives");
        return -1;
    }
    if (array_of(a, PyTuple_GetItem(given, 0), "key_blocks", false, false) < 0 ||
        int64_of(PyTuple_GetItem(given, 1), "block_rows", 1, &rows) < 0 ||
        int64_of(PyTuple_GetItem(given, 2), "block_keys", 1, &keys) < 0 ||
        int64_of(PyTuple_GetItem(given, 3), "the number of blocks of keys", 0, &n) < 0)
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
    if (blocks_cover("rows", want[2], rows, pairs[2]) < 0 ||
        blocks_cover("keys", n, keys, pairs[3]) < 0)
        return -1;
    if (a->axes < 1 || a->shape[a->axes - 1] != want[3]) {
        PyErr_Format(
            PyExc_ValueError, "key_blocks has %lld words for %lld blocks of keys; %lld are needed",
            (long long)(a->axes < 1 ? 1 : a->shape[a->axes - 1]), (long long)n, (long long)want[3]);
        return -1;
    }
    if (broadcast(a, "key_blocks", want, stride) < 0)
        return -1;
    desc->features |= HEED_HAS_KEY_BLOCKS;
    desc->block_rows = (uint32_t)rows;
    desc->block_keys = (uint32_t)keys;
    view_of(view, a, stride);
    return 0;
}

int read_masks(problem *p, const attn_options *o, const attn_call *call)
{
    heed_attn_desc *desc = &p->desc;
    heed_attn_args *args = &p->args;
    const int64_t pairs[4] = {args->batch, desc->q_heads, args->q_len, args->kv_len};
    int64_t masked[4] = {args->batch, desc->q_heads, args->q_len, args->kv_len};
    if (call->mask_from) {
        if (mask_from_of(&p->mask_from, call->mask_from, args->batch, &masked[3], desc) < 0)
            return -1;
        args->mask_from = p->mask_from.data;
    }
    if ((call->mask && mask_of(&p->mask, call->mask, masked, desc, &args->mask) < 0) ||
        (call->bias && bias_of(&p->bias, call->bias, o->as_bf16, masked, desc, &args->bias) < 0) ||
        (call->ranges && ranges_of(&p->ranges, call->ranges, pairs, desc, &args->ranges) < 0))
        return -1;
    return call->key_blocks
               ? key_blocks_of(&p->key_blocks, call->key_blocks, pairs, desc, &args->key_blocks)
               : 0;
}

int read_numbers(problem *p, const attn_options *o, const attn_call *call)
{
    heed_attn_desc *desc = &p->desc;
    heed_attn_args *args = &p->args;
    if (call->alibi) {
        if (floats_of(&p->alibi, call->alibi, "alibi", desc->q_heads, o->as_bf16) < 0)
            return -1;
        desc->features |= HEED_HAS_ALIBI;
        args->alibi_slope = p->alibi.data;
    }
    if (call->sinks) {
        if (floats_of(&p->sinks, call->sinks, "sinks", desc->q_heads, o->as_bf16) < 0)
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
