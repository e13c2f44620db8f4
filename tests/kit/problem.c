/* Builds, seals and looks after a test problem. See problem.h. */
#include "problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "random.h"
#include "strides.h"

int64_t kit_at(const kit_tensor *t, int64_t b, int64_t h, int64_t i, int64_t d)
{
    int64_t row = t->place ? t->place[b * t->dim[2] + i] : b * t->stride[0] + i * t->stride[2];
    return (t->first + row + h * t->stride[1] + d * t->stride[3]) * t->bytes;
}

/* The strides of axes of one element mean nothing: they become any number. Packed rows, pages and
 * columns behind mask_from keep theirs, since the call says elsewhere how many there are, and so do
 * scales, where a stride of 0 means that there is one scale. */
static void loosen(const kit_problem *p, int which, int64_t stride[4])
{
    const kit_tensor *t = &p->tensor[which];
    const int is_late =
        p->spec.features & HEED_HAS_MASK_FROM && (which == KIT_MASK || which == KIT_BIAS);
    if (t->place || (which >= KIT_K_SCALE && which <= KIT_V_ZERO))
        return;
    for (int a = 0; a < 4; a++)
        if (t->shape[a] == 1 && !(a == 3 && (t->block_len > 1 || is_late)))
            stride[a] = kit_any_stride(which + a);
}

static heed_view view_of(const kit_problem *p, int which)
{
    const kit_tensor *t = &p->tensor[which];
    heed_view view = {0};
    if (!t->bytes)
        return view;
    view.data = p->buffer[t->buffer].data + t->first * t->bytes;
    for (int a = 0; a < 4; a++)
        view.stride[a] = t->block_len > 1 && a == 3 ? 1 : t->stride[a] * t->block_len;
    if (which == KIT_LSE)
        view.stride[3] = 0;
    if (p->spec.layout == KIT_DRAWN)
        loosen(p, which, view.stride);
    return view;
}

static uint32_t unlisted(const kit_spec *s)
{
    return s->lens == KIT_LENS_FULL ? KIT_UNLISTED_Q | KIT_UNLISTED_KV
           : s->lens == KIT_LENS_KV ? KIT_UNLISTED_Q
           : s->lens == KIT_LENS_Q  ? KIT_UNLISTED_KV
                                    : s->unlisted;
}

static heed_quant quant_of(const kit_problem *p, int is_v)
{
    const kit_scaling how = kit_scaling_of(&p->spec, is_v);
    const heed_view scale = view_of(p, is_v ? KIT_V_SCALE : KIT_K_SCALE);
    heed_quant quant = {0};
    if (!how.kind)
        return quant;
    quant.scale = scale.data;
    quant.zero = view_of(p, is_v ? KIT_V_ZERO : KIT_K_ZERO).data;
    memcpy(quant.stride, scale.stride, sizeof quant.stride);
    quant.group = how.group;
    quant.key_group = how.key_group;
    return quant;
}

static void describe(kit_problem *p)
{
    const kit_spec *s = &p->spec;
    uint64_t has = s->features;
    const int64_t left = s->window_left == KIT_FAR ? INT64_MAX : s->window_left;
    /* clang-format off */
    p->desc =
        (heed_attn_desc){.struct_size = sizeof p->desc,
                         .features = has,
                         .q_heads = s->q_heads,
                         .kv_heads = s->kv_heads,
                         .qk_dim = s->qk_dim,
                         .v_dim = s->v_dim,
                         .q_type = s->q_type,
                         .k_type = s->k_type,
                         .v_type = s->v_type,
                         .out_type = s->out_type,
                         .bias_type = has & HEED_HAS_BIAS ? s->bias_type : HEED_DTYPE_NONE,
                         .position = s->position,
                         .accuracy = s->accuracy,
                         .scores_stage = has & HEED_HAS_SCORES ? s->scores_stage : HEED_SCORES_NONE,
                         .scale = has & HEED_HAS_SCALE ? s->scale : 0,
                         .softcap = has & HEED_HAS_SOFTCAP ? s->softcap : 0,
                         .window_left = has & HEED_HAS_WINDOW ? left : 0,
                         .window_right = has & HEED_HAS_WINDOW ? s->window_right : 0,
                         .page_len = has & HEED_HAS_PAGES ? s->page_len : 0,
                         .max_batch = s->batch,
                         .max_q_len = s->q_len,
                         .max_kv_len = s->kv_len,
                         .max_rows = p->q_rows};
    p->args = (heed_attn_args){
        .struct_size = sizeof p->args,
        .batch = s->batch,
        .q_len = s->q_len,
        .kv_len = s->kv_len,
        .q = heed_as_const(view_of(p, KIT_Q)),
        .k = heed_as_const(view_of(p, KIT_K)),
        .v = heed_as_const(view_of(p, KIT_V)),
        .out = view_of(p, KIT_OUT),
        .mask = heed_as_const(view_of(p, KIT_MASK)),
        .bias = heed_as_const(view_of(p, KIT_BIAS)),
        .lse = view_of(p, KIT_LSE),
        .weights = view_of(p, KIT_WEIGHTS),
        .scores = view_of(p, KIT_SCORES),
        .k_quant = quant_of(p, 0),
        .v_quant = quant_of(p, 1),
        .q_lens = unlisted(s) & KIT_UNLISTED_Q ? NULL : p->q_lens,
        .kv_lens = unlisted(s) & KIT_UNLISTED_KV ? NULL : p->kv_lens,
        .q_offsets = s->position == HEED_POS_GIVEN ? p->q_offsets : NULL,
        .q_starts = p->q_rows ? p->q_starts : NULL,
        .kv_starts = p->kv_rows ? p->kv_starts : NULL,
        .block_table = p->block_table,
        .block_table_stride = p->table_stride,
        .n_pages = p->n_pages,
        .alibi_slope = has & HEED_HAS_ALIBI ? p->alibi_slope : NULL,
        .bias_slope = has & HEED_HAS_BIAS_SLOPE ? p->bias_slope : NULL,
        .sink = has & HEED_HAS_SINK ? p->sink : NULL};
    /* clang-format on */
}

static reference_array array_of(const kit_problem *p, int which)
{
    heed_view view = view_of(p, which);
    uint32_t type = p->tensor[which].type;
    const float *decoded = which == KIT_K || which == KIT_V ? p->decoded[which == KIT_V] : NULL;
    if (decoded) {
        const int64_t dim = which == KIT_K ? p->spec.qk_dim : p->spec.v_dim;
        return (reference_array){
            .data = decoded,
            .type = REFERENCE_F32,
            .stride = {p->spec.kv_heads * p->spec.kv_len * dim, p->spec.kv_len * dim, dim, 1}};
    }
    reference_array array = {
        .data = view.data, .place = p->tensor[which].place, .place_rows = p->tensor[which].dim[2]};
    array.type = kit_reads_as(type);
    memcpy(array.stride, view.stride, sizeof array.stride);
    return array;
}

static void describe_for_oracle(kit_problem *p)
{
    const kit_spec *s = &p->spec;
    uint64_t has = s->features;
    int window = (has & HEED_HAS_WINDOW) != 0;
    /* clang-format off */
    p->reference =
        (reference_problem){.batch = s->batch,
                            .q_heads = s->q_heads,
                            .kv_heads = s->kv_heads,
                            .q_len = s->q_len,
                            .kv_len = s->kv_len,
                            .qk_dim = s->qk_dim,
                            .v_dim = s->v_dim,
                            .q = array_of(p, KIT_Q),
                            .k = array_of(p, KIT_K),
                            .v = array_of(p, KIT_V),
                            .mask = array_of(p, KIT_MASK),
                            .bias = array_of(p, KIT_BIAS),
                            .scale = has & HEED_HAS_SCALE ? (double)s->scale : 1 / sqrt(s->qk_dim),
                            .softcap = has & HEED_HAS_SOFTCAP ? (double)s->softcap : 0,
                            .causal = (has & HEED_HAS_CAUSAL) != 0,
                            .window_left = window ? s->window_left : -1,
                            .window_right = window ? s->window_right : -1,
                            .q_lens = p->q_lens,
                            .kv_lens = p->kv_lens,
                            .offset = p->offset,
                            .alibi_slope = has & HEED_HAS_ALIBI ? p->alibi_slope : NULL,
                            .bias_slope = has & HEED_HAS_BIAS_SLOPE ? p->bias_slope : NULL,
                            .sink = has & HEED_HAS_SINK ? p->sink : NULL};
    /* clang-format on */
    kit_describe_lists(p);
}

static int is_output(int which)
{
    return which == KIT_OUT || which >= KIT_LSE;
}

void kit_reset_outputs(kit_problem *p)
{
    for (int which = 0; which < KIT_TENSORS; which++) {
        const kit_tensor *t = &p->tensor[which];
        if (!is_output(which) || !t->bytes)
            continue;
        guard_buffer *buffer = &p->buffer[t->buffer];
        guard_open(buffer);
        if (t->buffer == (uint32_t)which) {
            memset(buffer->data, KIT_CANARY, buffer->bytes);
            continue;
        }
        for (int64_t b = 0; b < t->dim[0]; b++)
            for (int64_t h = 0; h < t->dim[1]; h++)
                for (int64_t i = 0; i < p->q_lens[b]; i++)
                    for (int64_t d = 0; d < t->dim[3]; d++)
                        memset(buffer->data + kit_at(t, b, h, i, d), KIT_CANARY, t->bytes);
    }
}

/* Takes the contents of p's inputs from `first` where they are the same. Returns 0 if not. */
static int take_contents(kit_problem *p, const kit_problem *first)
{
    const uint64_t no_matter = HEED_HAS_LSE | HEED_HAS_WEIGHTS;
    kit_spec a = p->spec, b = first->spec;
    a.features &= ~no_matter;
    b.features &= ~no_matter;
    if (memcmp(&a, &b, sizeof a) != 0)
        return 0;
    for (int which = 0; which < KIT_TENSORS; which++) {
        const kit_tensor *t = &p->tensor[which], *from = &first->tensor[which];
        if (is_output(which)) {
            if (t->bytes && t->buffer != (uint32_t)which) /* the run wrote among inputs */
                return 0;
        } else if (p->elements[which] != first->elements[which] || t->first != from->first ||
                   memcmp(t->stride, from->stride, sizeof t->stride) != 0) {
            return 0;
        }
    }
    for (int which = 0; which < KIT_TENSORS; which++)
        if (!is_output(which) && p->buffer[which].map)
            memcpy(p->buffer[which].data, first->buffer[which].data, p->buffer[which].bytes);
    return 1;
}

/* first is NULL for a problem that goes to the oracle. */
static int build(kit_problem *p, const kit_spec *spec, int side, const kit_problem *first)
{
    if (spec->batch > KIT_MAX_BATCH || spec->q_heads > KIT_MAX_HEADS)
        abort(); /* the case has more than p has room for */
    memset(p, 0, sizeof *p);
    p->spec = *spec;
    if (unlisted(spec) != (KIT_UNLISTED_Q | KIT_UNLISTED_KV))
        p->spec.features |= HEED_HAS_LENS;
    p->spec.features &= ~(HEED_HAS_PACKED | HEED_HAS_PAGES | HEED_HAS_QUANT);
    if (kit_scaling_of(spec, 0).kind || kit_scaling_of(spec, 1).kind)
        p->spec.features |= HEED_HAS_QUANT;
    if (spec->storage && spec->storage != KIT_PAGED)
        p->spec.features |= HEED_HAS_PACKED;
    if (spec->storage >= KIT_PAGED)
        p->spec.features |= HEED_HAS_PAGES;
    kit_choose(p);
    if (kit_choose_lists(p) != 0)
        return -1;
    if (kit_store(p) != 0)
        return -1;
    kit_lay_out(p);
    if (kit_place(p) != 0) {
        kit_free(p);
        return -1;
    }
    for (int which = 0; which < KIT_TENSORS; which++) {
        const kit_tensor *t = &p->tensor[which];
        if (!t->bytes || t->buffer != (uint32_t)which)
            continue;
        const int is_kv = which == KIT_K || which == KIT_V;
        const int floats =
            (which >= KIT_K_SCALE && which <= KIT_V_ZERO) ||
            (is_kv && kit_scaling_of(spec, which == KIT_V).kind == KIT_SCALES_IN_LINE);
        size_t slack = floats                      ? 0
                       : spec->layout == KIT_ODD   ? 1
                       : spec->layout == KIT_DRAWN ? kit_hash(spec->seed, which) % 24 / 21
                                                   : 0;
        if (guard_map(&p->buffer[which], (size_t)p->elements[which] * t->bytes, side, slack,
                      KIT_CANARY) != 0) {
            kit_free(p);
            return -1;
        }
    }
    if (kit_make_lists(p, side) != 0) {
        kit_free(p);
        return -1;
    }
    if (!first || !take_contents(p, first))
        kit_fill(p);
    if (!first && kit_decode_codes(p) != 0) {
        kit_free(p);
        return -1;
    }
    kit_reset_outputs(p);
    describe(p);
    describe_for_oracle(p);
    return 0;
}

int kit_build(kit_problem *p, const kit_spec *spec, int side)
{
    return build(p, spec, side, NULL);
}

int kit_build_again(kit_problem *p, const kit_spec *spec, int side, const kit_problem *first)
{
    return build(p, spec, side, first);
}

void kit_reach(const kit_problem *p, int64_t b, int64_t *first, int64_t *end)
{
    const kit_spec *s = &p->spec;
    int64_t low = p->offset[b], high = p->q_lens[b] - 1 + p->offset[b];
    *first = 0;
    *end = p->kv_lens[b];
    if ((s->features & HEED_HAS_CAUSAL) && high + 1 < *end)
        *end = high + 1;
    if ((s->features & HEED_HAS_WINDOW) && s->window_left >= 0 && low - s->window_left > *first)
        *first = low - s->window_left;
    if ((s->features & HEED_HAS_WINDOW) && s->window_right >= 0 &&
        high + s->window_right + 1 < *end)
        *end = high + s->window_right + 1;
    if (p->q_lens[b] == 0)
        *end = *first;
}

/* The elements of tensor t that a call may touch: rows and keys below the lengths, keys that some
 * row of the sequence reaches. */
static void reach(const kit_problem *p, int which, int64_t b, int64_t *rows, int64_t *first,
                  int64_t *end)
{
    *rows = p->q_lens[b];
    *first = 0;
    *end = p->tensor[which].dim[3];
    if (which == KIT_Q || which == KIT_OUT || which == KIT_LSE || which >= KIT_WEIGHTS)
        return; /* weights and scores are written for every key */
    kit_reach(p, b, first, end);
    if (which == KIT_MASK || which == KIT_BIAS) { /* whose columns begin late */
        *first = *first > p->mask_from[b] ? *first - p->mask_from[b] : 0;
        *end = *end > p->mask_from[b] ? *end - p->mask_from[b] : 0;
    }
}

static void mark_scales(const kit_problem *p, int which, unsigned char *used)
{
    const kit_tensor *t = &p->tensor[which];
    const int64_t group = kit_scaling_of(&p->spec, which >= KIT_V_SCALE).group;
    for (int64_t b = 0; b < p->spec.batch; b++) {
        int64_t first, end;
        kit_reach(p, b, &first, &end);
        for (int64_t g = 0; g < t->dim[1]; g++)
            for (int64_t j = first; j < end; j++)
                for (int64_t n = 0; n < t->dim[3]; n++)
                    guard_mark(&p->buffer[t->buffer], used,
                               kit_scale_at(p, which, b, g, j, n * group), t->bytes);
    }
}

static void mark_reached(const kit_problem *p, int which, unsigned char *used)
{
    const kit_tensor *t = &p->tensor[which];
    const guard_buffer *buffer = &p->buffer[t->buffer];
    if (which >= KIT_K_SCALE && which <= KIT_V_ZERO) {
        mark_scales(p, which, used);
        return;
    }
    int is_kv = which == KIT_K || which == KIT_V;
    for (int64_t b = 0; b < t->dim[0]; b++) {
        int64_t rows, first, end;
        reach(p, which, b, &rows, &first, &end);
        for (int64_t h = 0; h < t->dim[1]; h++)
            for (int64_t i = is_kv ? first : 0; i < (is_kv ? end : rows); i++) {
                if (is_kv && !kit_reaches(p, b, i))
                    continue;
                const int64_t from = is_kv ? 0 : first, to = is_kv ? t->dim[3] : end;
                const int64_t step = t->stride[3] == 1 && to > from ? to - from : 1;
                for (int64_t d = from; d < to; d += step) /* all of them if they are adjacent */
                    guard_mark(buffer, used, kit_at(t, b, h, i, d), (size_t)(step * t->bytes));
            }
    }
}

void kit_seal(kit_problem *p)
{
    for (int n = 0; n < KIT_TENSORS; n++) {
        guard_buffer *buffer = &p->buffer[n];
        if (!buffer->map)
            continue;
        size_t pages = guard_pages(buffer);
        int output = 0;
        unsigned char *used = pages > 1 ? calloc(pages, 1) : NULL;
        for (int which = 0; which < KIT_TENSORS; which++) {
            if (!p->tensor[which].bytes || p->tensor[which].buffer != (uint32_t)n)
                continue;
            output |= is_output(which);
            if (used)
                mark_reached(p, which, used);
        }
        if (!output)
            guard_read_only(buffer);
        if (used)
            guard_seal(buffer, used);
        free(used);
    }
}

void kit_free(kit_problem *p)
{
    for (int n = 0; n < KIT_TENSORS; n++)
        guard_unmap(&p->buffer[n]);
    kit_free_lists(p);
    guard_unmap(&p->table);
    free(p->true_table);
    free(p->places);
    free(p->decoded[0]);
    free(p->decoded[1]);
    free(p->sizes);
    p->decoded[0] = p->decoded[1] = p->sizes = NULL;
    p->block_table = p->true_table = NULL;
    p->places = NULL;
}

int kit_untouched(const kit_problem *p, int which, int64_t *where)
{
    const kit_tensor *t = &p->tensor[which];
    const guard_buffer *buffer = &p->buffer[t->buffer];
    kit_problem fresh = {0};
    int shared = t->buffer != (uint32_t)which, bad = -1;
    unsigned char *owned = calloc(buffer->bytes + 1, 1);
    *where = -1;
    /* Where the output lies among inputs, another build of the problem tells what the bytes
     * were. */
    if (owned && guard_slack_is(buffer, KIT_CANARY) &&
        (!shared || kit_build_again(&fresh, &p->spec, GUARD_LOW, p) == 0)) {
        for (int64_t b = 0; b < t->dim[0]; b++)
            for (int64_t h = 0; h < t->dim[1]; h++)
                for (int64_t i = 0; i < p->q_lens[b]; i++)
                    for (int64_t d = 0; d < t->dim[3]; d++)
                        memset(owned + kit_at(t, b, h, i, d), 1, t->bytes);
        bad = 0;
        for (size_t at = 0; at < buffer->bytes && !bad; at++) {
            unsigned char was = shared ? fresh.buffer[t->buffer].data[at] : KIT_CANARY;
            if (!owned[at] && buffer->data[at] != was) {
                *where = (int64_t)at;
                bad = -1;
            }
        }
    }
    kit_free(&fresh);
    free(owned);
    return bad;
}
