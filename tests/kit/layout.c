/* Where the tensors of a test problem lie: strides, shared buffers, gaps. See problem.h. */
#include "problem.h"

#include <string.h>

#include "decode.h"
#include "random.h"
#include "strides.h"

enum { B = 1, H = 2, I = 4, D = 8 }; /* axes, as bits */

/* Sets the strides of the axes in `order`, the innermost first: it has stride `step`, `gap`
 * elements follow after each axis, axes in `back` run backwards and those in `same` are broadcast.
 * Returns how many elements the tensor spans. */
static int64_t lay(kit_tensor *t, const int order[4], int64_t gap, int64_t step, int back, int same)
{
    int64_t extent = step, last = 0;
    t->first = 0;
    for (int n = 0; n < 4; n++) {
        int a = order[n];
        int64_t count = t->shape[a] > 0 ? t->shape[a] : 1;
        if (same >> a & 1) {
            t->stride[a] = 0;
            continue;
        }
        t->stride[a] = extent;
        last += (count - 1) * extent;
        if (back >> a & 1) {
            t->first += (count - 1) * extent;
            t->stride[a] = -extent;
        }
        extent = extent * count + gap;
    }
    for (int a = 0; a < 4; a++)
        if (t->shape[a] == 0)
            return 0;
    return last + 1;
}

static int in_line(const kit_problem *p, int which)
{
    return (which == KIT_K || which == KIT_V) &&
           kit_scaling_of(&p->spec, which == KIT_V).kind == KIT_SCALES_IN_LINE;
}

enum { HEADER = 8 }; /* bytes: a scale and a zero */

/* Lays out rows that are in one piece: blocks in sequence, perhaps after a header, whose
 * floats are aligned. The other axes lie as the layout says. */
static void lay_blocks(kit_problem *p, int which, const int order[4], int64_t gap, int back,
                       int same)
{
    static const int rows_first[4] = {3, 2, 1, 0};
    kit_tensor *t = &p->tensor[which];
    const int64_t dim = t->shape[3];
    const int header = in_line(p, which);
    if (header)
        t->shape[3] = HEADER + (dim + 3) / 4 * 4; /* of types of one byte a block */
    if (p->spec.layout == KIT_DRAWN) {
        const uint64_t draw = kit_hash(p->spec.seed, 60 + which);
        back = (int)(draw & (B | H | I));
        gap = header ? 0 : (int64_t)(draw >> 8 & 3);
        order = rows_first;
    }
    p->elements[which] =
        lay(t, order[0] == 3 ? order : rows_first, header ? 4 * gap : gap, 1, back & ~D, same & ~D);
    if (!header)
        return;
    t->shape[3] = dim;
    t->first += HEADER;
}

/* Scales and zeros, which lie alike: in buffers of their own, each zero behind its scale, or as the
 * headers of rows. */
static void lay_scales(kit_problem *p, int is_v, const int order[4], int64_t gap, int back)
{
    const kit_scaling how = kit_scaling_of(&p->spec, is_v);
    const int which = is_v ? KIT_V_SCALE : KIT_K_SCALE;
    kit_tensor *scale = &p->tensor[which], *zero = &p->tensor[which + 1];
    const kit_tensor *codes = &p->tensor[is_v ? KIT_V : KIT_K];
    if (!how.kind)
        return;
    scale->buffer = (uint32_t)which;
    if (how.kind == KIT_SCALES_IN_LINE) {
        for (int a = 0; a < 3; a++)
            scale->stride[a] = codes->stride[a] / 4;
        scale->buffer = codes->buffer;
        scale->first = (codes->first - HEADER) / 4;
    } else if (p->spec.layout == KIT_DRAWN && how.kind != KIT_SCALES_PAIRS) {
        p->elements[which] = kit_draw_strides(kit_hash(p->spec.seed, 60 + which), 4, scale->shape,
                                              (int)how.same, scale->stride, &scale->first);
    } else {
        const int step = how.kind == KIT_SCALES_PAIRS ? 2 : 1;
        p->elements[which] = lay(scale, order, gap, step, back, (int)how.same) + step - 1;
    }
    if (how.group == 0)
        scale->stride[3] = 0;
    if (!how.zeros)
        return;
    memcpy(zero->stride, scale->stride, sizeof zero->stride);
    zero->first = scale->first;
    zero->buffer = (uint32_t)which + 1;
    if (how.kind == KIT_SCALES_IN_LINE || how.kind == KIT_SCALES_PAIRS) {
        zero->buffer = scale->buffer;
        zero->first++;
    } else {
        p->elements[which + 1] = p->elements[which];
    }
}

static void lay_alone(kit_problem *p, int which, const int order[4], int64_t gap, int64_t step,
                      int back, int same)
{
    kit_tensor *t = &p->tensor[which];
    if (!t->bytes)
        return;
    t->buffer = (uint32_t)which;
    if (t->block_len > 1 || in_line(p, which)) {
        lay_blocks(p, which, order, gap, back, same);
        return;
    }
    if (p->spec.layout == KIT_DRAWN) {
        const uint64_t draw = kit_hash(p->spec.seed, 60 + which);
        const int input = which == KIT_Q || which == KIT_K || which == KIT_V;
        p->elements[which] = kit_draw_strides(draw, 4, t->shape, input ? kit_draw_same(draw) : same,
                                              t->stride, &t->first);
        return;
    }
    p->elements[which] = lay(t, order, gap, step, back, same);
}

/* Puts tensor `which` into the tokens of a shared buffer: `width` elements a token, `rows` tokens a
 * sequence, heads `head` elements apart, from element `at` of the token on. */
static void put(kit_problem *p, int which, int buffer, int64_t width, int64_t rows, int64_t head,
                int64_t at)
{
    kit_tensor *t = &p->tensor[which];
    t->buffer = (uint32_t)buffer;
    t->stride[0] = rows * width;
    t->stride[1] = head;
    t->stride[2] = width;
    t->stride[3] = 1;
    t->first = at;
}

static void lay_packed(kit_problem *p, int with_out)
{
    const kit_spec *s = &p->spec;
    int64_t q = (int64_t)s->q_heads * s->qk_dim, k = (int64_t)s->kv_heads * s->qk_dim;
    int64_t v = (int64_t)s->kv_heads * s->v_dim,
            out = with_out ? (int64_t)s->q_heads * s->v_dim : 0;
    int64_t width = q + k + v + out, q_rows = p->tensor[KIT_Q].shape[2],
            kv_rows = p->tensor[KIT_K].shape[2], rows = q_rows > kv_rows ? q_rows : kv_rows;
    put(p, KIT_Q, KIT_Q, width, rows, s->qk_dim, 0);
    put(p, KIT_K, KIT_Q, width, rows, s->qk_dim, q);
    put(p, KIT_V, KIT_Q, width, rows, s->v_dim, q + k);
    p->elements[KIT_K] = p->elements[KIT_V] = 0;
    if (with_out) {
        put(p, KIT_OUT, KIT_Q, width, rows, s->v_dim, q + k + v);
        p->elements[KIT_OUT] = 0;
    }
    p->elements[KIT_Q] = p->tensor[KIT_Q].shape[0] * rows * width;
}

static void lay_kv_pairs(kit_problem *p)
{
    const kit_tensor *k = &p->tensor[KIT_K];
    int64_t pair = k->shape[3] + p->tensor[KIT_V].shape[3], width = pair * p->spec.kv_heads;
    put(p, KIT_K, KIT_K, width, k->shape[2], pair, 0);
    put(p, KIT_V, KIT_K, width, k->shape[2], pair, k->shape[3]);
    p->elements[KIT_V] = 0;
    p->elements[KIT_K] = k->shape[0] * k->shape[2] * width;
}

/* Lays out q, k, v, out and the scales as the layout says. */
static void lay_inputs(kit_problem *p)
{
    static const int bhsd[4] = {3, 2, 1, 0}, bshd[4] = {3, 1, 2, 0}, dim_major[4] = {2, 3, 1, 0};
    const kit_spec *s = &p->spec;
    const int *order = bhsd;
    int64_t gap = 0, step = 1;
    int back = 0;
    switch (s->layout) {
    case KIT_BSHD:
    case KIT_PACKED:
    case KIT_PACKED_OUT:
    case KIT_KV_PAIRS:
        order = bshd;
        break;
    case KIT_PADDED:
    case KIT_ODD:
        gap = 3;
        break;
    case KIT_NEGATIVE:
        back = B | H | I;
        break;
    case KIT_DIM_MAJOR:
        order = dim_major;
        break;
    case KIT_DIM_REVERSED:
        back = D;
        step = 2;
        break;
    default:
        break;
    }
    for (int t = KIT_Q; t <= KIT_OUT; t++) {
        int same = 0;
        if (s->layout == KIT_SHARED && t != KIT_OUT)
            same = t == KIT_Q ? B : H;
        lay_alone(p, t, order, gap, step, back, same);
    }
    /* q, k and v can share a token's memory where they have one type and are stored alike. */
    int one_type = s->q_type == s->k_type && s->q_type == s->v_type &&
                   (s->storage == KIT_PADDED_ROWS || s->storage == KIT_RAGGED);
    if (s->layout == KIT_PACKED && one_type)
        lay_packed(p, 0);
    if (s->layout == KIT_PACKED_OUT && one_type && s->q_type == s->out_type)
        lay_packed(p, 1);
    const int headers = in_line(p, KIT_K) || in_line(p, KIT_V);
    if (s->layout == KIT_KV_PAIRS && s->k_type == s->v_type && !headers)
        lay_kv_pairs(p);
    if (s->layout == KIT_V_IN_K) {
        kit_tensor *v = &p->tensor[KIT_V];
        *v = p->tensor[KIT_K];
        v->dim[3] = v->shape[3] = s->v_dim / v->block_len;
        p->elements[KIT_V] = 0;
    }
    for (int is_v = 0; is_v < 2; is_v++)
        lay_scales(p, is_v, order, gap, back);
}

static void declare(kit_problem *p, int which, uint32_t type, uint32_t bytes, int64_t h, int64_t i,
                    int64_t d)
{
    kit_tensor *t = &p->tensor[which];
    t->type = type;
    t->bytes = bytes;
    t->block_len = heed_is_code(type) ? heed_block_len(type) : 1;
    t->dim[0] = p->spec.batch;
    t->dim[1] = h;
    t->dim[2] = i;
    t->dim[3] = d / t->block_len;
    memcpy(t->shape, t->dim, sizeof t->shape);
}

/* Declares the scales of k or v, if there are any, in the shape in which their rows lie. */
static void declare_scales(kit_problem *p, int is_v)
{
    const kit_scaling how = kit_scaling_of(&p->spec, is_v);
    const kit_tensor *of = &p->tensor[is_v ? KIT_V : KIT_K];
    const int64_t keys = how.key_group ? how.key_group : 1, dim = of->dim[3] * of->block_len;
    const int64_t groups = how.group ? (dim + how.group - 1) / how.group : 1;
    const int first = is_v ? KIT_V_SCALE : KIT_K_SCALE;
    for (int t = first; how.kind && t <= first + (how.zeros != 0); t++) {
        declare(p, t, HEED_F32, 4, p->spec.kv_heads, (of->dim[2] + keys - 1) / keys, groups);
        p->tensor[t].shape[0] = of->shape[0];
        p->tensor[t].shape[2] = (of->shape[2] + keys - 1) / keys;
    }
}

/* Packed rows lie as those of one long sequence; pages take the place of the batch. */
static void reshape(kit_problem *p, int which, int64_t batch, int64_t rows)
{
    p->tensor[which].shape[0] = batch;
    p->tensor[which].shape[2] = rows;
}

void kit_lay_out(kit_problem *p)
{
    static const int straight[4] = {3, 2, 1, 0}, keys_outside[4] = {2, 3, 0, 1};
    const kit_spec *s = &p->spec;
    uint64_t has = s->features;
    memset(p->tensor, 0, sizeof p->tensor);
    memset(p->elements, 0, sizeof p->elements);
    declare(p, KIT_Q, s->q_type, kit_bytes_of(s->q_type), s->q_heads, s->q_len, s->qk_dim);
    declare(p, KIT_K, s->k_type, kit_bytes_of(s->k_type), s->kv_heads, s->kv_len, s->qk_dim);
    declare(p, KIT_V, s->v_type, kit_bytes_of(s->v_type), s->kv_heads, s->kv_len, s->v_dim);
    declare(p, KIT_OUT, s->out_type, kit_bytes_of(s->out_type), s->q_heads, s->q_len, s->v_dim);
    if (has & HEED_HAS_MASK)
        declare(p, KIT_MASK, HEED_DTYPE_NONE, 1, s->q_heads, s->q_len, s->kv_len - p->least_from);
    if (has & HEED_HAS_BIAS)
        declare(p, KIT_BIAS, s->bias_type, kit_bytes_of(s->bias_type), s->q_heads, s->q_len,
                s->kv_len - p->least_from);
    if (has & HEED_HAS_LSE)
        declare(p, KIT_LSE, HEED_F32, 4, s->q_heads, s->q_len, 1);
    if (has & HEED_HAS_WEIGHTS)
        declare(p, KIT_WEIGHTS, HEED_F32, 4, s->q_heads, s->q_len, s->kv_len);
    if (has & HEED_HAS_SCORES)
        declare(p, KIT_SCORES, HEED_F32, 4, s->q_heads, s->q_len, s->kv_len);
    for (int t = KIT_Q; t <= KIT_LSE; t = t == KIT_BIAS ? KIT_LSE : t + 1) {
        int is_kv = t == KIT_K || t == KIT_V;
        if (is_kv && p->n_pages)
            reshape(p, t, p->n_pages, s->page_len);
        else if (is_kv && p->kv_rows)
            reshape(p, t, 1, p->kv_rows);
        else if (!is_kv && t != KIT_MASK && t != KIT_BIAS && p->q_rows)
            reshape(p, t, 1, p->q_rows);
    }
    declare_scales(p, 0);
    declare_scales(p, 1);
    lay_inputs(p);

    /* The others follow the layout where it means something for them. */
    int64_t gap = s->layout == KIT_PADDED || s->layout == KIT_ODD ? 3 : 0;
    int back = s->layout == KIT_NEGATIVE ? B | H | I : s->layout == KIT_DIM_REVERSED ? D : 0;
    const int *order = s->layout == KIT_DIM_MAJOR ? keys_outside : straight;
    for (int t = KIT_MASK; t < KIT_TENSORS; t = t == KIT_BIAS ? KIT_LSE : t + 1) {
        int same = t == KIT_MASK ? (int)s->mask_form : t == KIT_BIAS ? (int)s->bias_form : 0;
        lay_alone(p, t, order, gap, s->layout == KIT_DIM_REVERSED ? 2 : 1, back, same);
    }
}
