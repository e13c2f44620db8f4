/* What a caller may get wrong in the arguments of a call. */
#include "errors_table.h"
#include "ways.h"

#include <heed/formats.h>

#include <stdio.h>
#include <string.h>

static const char *broken_stride(void *call, int arg, uint32_t pick)
{
    static const char *const name[KIT_TENSORS] = {
        [KIT_Q] = "args.q",        [KIT_K] = "args.k",        [KIT_V] = "args.v",
        [KIT_OUT] = "args.out",    [KIT_MASK] = "mask",       [KIT_BIAS] = "bias",
        [KIT_LSE] = "lse",         [KIT_WEIGHTS] = "weights", [KIT_SCORES] = "scores",
        [KIT_K_SCALE] = "k_quant", [KIT_V_SCALE] = "v_quant"};
    kit_problem *p = call;
    heed_attn_args *a = &p->args;
    int64_t *const stride[KIT_TENSORS] = {[KIT_Q] = a->q.stride,
                                          [KIT_K] = a->k.stride,
                                          [KIT_V] = a->v.stride,
                                          [KIT_OUT] = a->out.stride,
                                          [KIT_MASK] = a->mask.stride,
                                          [KIT_BIAS] = a->bias.stride,
                                          [KIT_LSE] = a->lse.stride,
                                          [KIT_WEIGHTS] = a->weights.stride,
                                          [KIT_SCORES] = a->scores.stride,
                                          [KIT_K_SCALE] = a->k_quant.stride,
                                          [KIT_V_SCALE] = a->v_quant.stride};
    const kit_tensor *t = &p->tensor[arg];
    const int is_output = arg == KIT_OUT || arg >= KIT_LSE;
    const uint32_t bytes = heed_is_code(t->type) ? 1 : t->bytes; /* of an element, at least */
    return t->bytes && kit_break_stride(stride[arg], t->shape, arg == KIT_LSE ? 3 : 4, bytes,
                                        is_output, pick)
               ? name[arg]
               : NULL;
}

static const char *out_is_another(void *call, int arg, uint32_t pick)
{
    heed_attn_args *a = &((kit_problem *)call)->args;
    void *const data[KIT_TENSORS] = {[KIT_Q] = &a->q.data,
                                     [KIT_K] = &a->k.data,
                                     [KIT_V] = &a->v.data,
                                     [KIT_MASK] = &a->mask.data,
                                     [KIT_BIAS] = &a->bias.data,
                                     [KIT_LSE] = &a->lse.data,
                                     [KIT_WEIGHTS] = &a->weights.data,
                                     [KIT_SCORES] = &a->scores.data};
    (void)pick;
    memcpy(data[arg], &a->out.data, sizeof a->out.data);
    return "args.out";
}

/* arg 1: in an empty problem, in which the argument is required just as well. */
static const char *no_offsets(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)pick;
    if (arg)
        p->args.q_len = 0;
    p->args.q_offsets = NULL;
    return p->desc.position == HEED_POS_GIVEN ? "q_offsets" : NULL;
}

static const char *offsets_alone(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)arg;
    (void)pick;
    p->args.q_offsets = p->q_offsets;
    return p->desc.position == HEED_POS_GIVEN ? NULL : "q_offsets";
}

static const char *no_lens(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)pick;
    if (arg)
        p->args.batch = 0;
    p->args.q_lens = p->args.kv_lens = NULL;
    return "q_lens";
}

static const char *empty_with_sink(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)arg;
    (void)pick;
    p->args.q_len = 0;
    p->args.sink = p->sink;
    return "sink";
}

static const char *bad_length(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    const int64_t most = arg ? p->args.kv_len : p->args.q_len;
    const int32_t bad[] = {-1, INT32_MIN, INT32_MAX, (int32_t)most + 1};
    if (!(arg ? p->args.kv_lens : p->args.q_lens))
        return NULL;
    (arg ? p->kv_lens : p->q_lens)[p->args.batch - 1 - pick / 4 % p->args.batch] = bad[pick % 4];
    return arg ? "kv_lens" : "q_lens";
}

static const char *no_starts(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)arg;
    (void)pick;
    if (!p->args.q_starts || p->args.kv_starts)
        return NULL;
    p->args.q_starts = NULL;
    return "q_starts";
}

static const char *bad_start(void *call, int arg, uint32_t pick)
{
    static char word[40];
    kit_problem *p = call;
    const int64_t b = p->args.batch - 1 - pick / 4 % p->args.batch;
    const int32_t len = (arg ? p->kv_lens : p->q_lens)[b];
    const int32_t bad[] = {-1, INT32_MIN, INT32_MAX,
                           arg ? INT32_MAX : (int32_t)p->desc.max_rows - len + 1};
    if (pick % 4 > 1 && len == 0)
        return NULL; /* no row lies there: any start is good */
    if (!(arg ? p->args.kv_starts : p->args.q_starts)) {
        if (!arg || p->args.block_table || pick % 4 > 1)
            return NULL;
        p->args.kv_starts = p->kv_starts; /* it may be given where the call had none */
    }
    (arg ? p->kv_starts : p->q_starts)[b] = bad[pick % 4];
    snprintf(word, sizeof word, "%s_starts[%lld]", arg ? "kv" : "q", (long long)b);
    return word;
}

static const char *narrow_table(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)arg;
    p->args.block_table_stride = pick & 1 ? -1 : (p->args.kv_len - 1) / p->desc.page_len;
    return "block_table_stride";
}

static const char *bad_page(void *call, int arg, uint32_t pick)
{
    static char word[40];
    kit_problem *p = call;
    const int32_t bad[] = {-1, INT32_MIN, INT32_MAX, (int32_t)p->n_pages};
    const int64_t b = pick / 4 % p->args.batch;
    const int64_t pages = (p->kv_lens[b] + p->desc.page_len - 1) / p->desc.page_len;
    (void)arg;
    if (p->q_lens[b] == 0 || pages == 0)
        return NULL;
    const int64_t page = pick / 16 % pages;
    p->block_table[b * p->table_stride + page] = bad[pick % 4];
    snprintf(word, sizeof word, "block_table[%lld][%lld]", (long long)b, (long long)page);
    return word;
}

static const char *no_pages(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)arg;
    (void)pick;
    p->args.n_pages = 0;
    for (uint32_t b = 0; b < p->spec.batch; b++)
        if (p->q_lens[b] > 0 && p->kv_lens[b] > 0)
            return "n_pages";
    return NULL;
}

static const char *out_is_lists(void *call, int arg, uint32_t pick)
{
    heed_attn_args *a = &((kit_problem *)call)->args;
    (void)pick;
    (arg ? &a->key_blocks : &a->ranges)->data = a->out.data;
    return "args.out";
}

static const char *far_lists(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    const kit_spec *s = &p->spec;
    heed_const_view *view = arg ? &p->args.key_blocks : &p->args.ranges;
    const int64_t shape[] = {p->args.batch, s->q_heads, arg ? 1 : p->args.q_len};
    const uint32_t axis = pick % 3;
    if (shape[axis] < 2)
        return NULL;
    view->stride[axis] = INT64_MAX / 8;
    return arg ? "args.key_blocks" : "args.ranges";
}

/* Ranges that are negative, beyond the keys or the wrong way round, and ranges that lie within the
 * one before them or begin in it. */
static const char *bad_range(void *call, int arg, uint32_t pick)
{
    static char word[60];
    kit_problem *p = call;
    const int64_t *t = p->ranges_stride, h = pick / 9 % p->spec.q_heads;
    const uint32_t n = p->spec.n_ranges, kind = pick % 9;
    int64_t b = 0;
    (void)arg;
    while (b < p->spec.batch && (p->q_lens[b] == 0 || p->kv_lens[b] < 2))
        b++;
    if (b == p->spec.batch || (kind >= 7 && n == 1)) /* one range overlaps with nothing */
        return NULL;
    const int64_t i = (pick / 18) % p->q_lens[b];
    const int32_t keys = p->kv_lens[b];
    const int32_t bad[9][2] = {{-1, 1},
                               {0, keys + 1},
                               {1, 0},
                               {INT32_MIN, INT32_MAX},
                               {keys, INT32_MAX},
                               {keys + 1, keys + 1},
                               {-1, -1},
                               {0, 1},
                               {1, 2}};
    guard_open(&p->ranges);
    int32_t *to = (int32_t *)(void *)p->ranges.data + 2 * (b * t[0] + h * t[1] + i * t[2]);
    for (uint32_t k = 0; k < n; k++) {
        to[2 * k * t[3]] = k == 0 && kind >= 7 ? 0 : bad[kind][0];
        to[2 * k * t[3] + 1] = k == 0 && kind >= 7 ? 2 : bad[kind][1];
    }
    /* Another sequence or head may share the list and be read, and named, first. */
    snprintf(word, sizeof word, "args.ranges[");
    return word;
}

static const char *bad_from(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    const int64_t b = p->args.batch - 1 - pick / 4 % p->args.batch;
    const int32_t bad[] = {-1, INT32_MIN, INT32_MAX, p->kv_lens[b] + 1};
    (void)arg;
    p->mask_from[b] = bad[pick % 4];
    return "args.mask_from[";
}

static const char *bad_executor(void *call, int arg, uint32_t pick)
{
    /* Two lack parallel_for, and one of them has no threads either. */
    static const heed_executor executors[] = {
        {.struct_size = sizeof(heed_executor), .n_threads = 2},
        {.struct_size = sizeof(heed_executor)},
        {.struct_size = sizeof(heed_executor),
         .n_threads = 2,
         .parallel_for = kit_backwards,
         .reserved = 1}};
    (void)arg;
    ((kit_problem *)call)->args.executor = &executors[pick % 3];
    return pick % 3 == 2 ? "executor.reserved" : "executor.parallel_for";
}

/* clang-format off */
const kit_mistake kit_args_mistakes[] = {
    {"batch_bad", "args.batch", IN_ARGS, INVALID, PUT(args.batch, KIT_BAD_SIZES, INT64_C(1) << 40)},
    {"q_len_bad", "args.q_len", IN_ARGS, INVALID, PUT(args.q_len, KIT_BAD_SIZES)},
    {"kv_len_bad", "args.kv_len", IN_ARGS, INVALID, PUT(args.kv_len, KIT_BAD_SIZES)},
    {"batch_above_plan", "batch", IN_ARGS_AT_PLAN, INVALID, ADD(args.batch, 1)},
    {"q_len_above_plan", "q_len", IN_ARGS_AT_PLAN, INVALID, ADD(args.q_len, 1)},
    {"kv_len_above_plan", "kv_len", IN_ARGS_AT_PLAN, INVALID, ADD(args.kv_len, 1)},
    {"q_null", "args.q", IN_ARGS, INVALID, PUT(args.q.data, 0), WITH(ELEMENTS)},
    {"k_null", "args.k", IN_ARGS, INVALID, PUT(args.k.data, 0), WITH(ELEMENTS)},
    {"v_null", "args.v", IN_ARGS, INVALID, PUT(args.v.data, 0), WITH(ELEMENTS)},
    {"out_null", "args.out", IN_ARGS, INVALID, PUT(args.out.data, 0), WITH(ELEMENTS)},
    {"mask_null", "mask", IN_ARGS, INVALID, PUT(args.mask.data, 0), WITH(HEED_HAS_MASK | ELEMENTS)},
    {"bias_null", "bias", IN_ARGS, INVALID, PUT(args.bias.data, 0), WITH(HEED_HAS_BIAS | ELEMENTS)},
    {"lse_null", "lse", IN_ARGS, INVALID, PUT(args.lse.data, 0), WITH(HEED_HAS_LSE | ELEMENTS)},
    {"weights_null", "weights", IN_ARGS, INVALID, PUT(args.weights.data, 0),
     WITH(HEED_HAS_WEIGHTS | ELEMENTS)},
    {"scores_null", "scores", IN_ARGS, INVALID, PUT(args.scores.data, 0),
     WITH(HEED_HAS_SCORES | ELEMENTS)},
    {"mask_without_bit", "mask", IN_ARGS, INVALID, PUT(args.mask.data, KIT_SOMETHING),
     WITHOUT(HEED_HAS_MASK)},
    {"bias_without_bit", "bias", IN_ARGS, INVALID, PUT(args.bias.data, KIT_SOMETHING),
     WITHOUT(HEED_HAS_BIAS)},
    {"lse_without_bit", "lse", IN_ARGS, INVALID, PUT(args.lse.data, KIT_SOMETHING),
     WITHOUT(HEED_HAS_LSE)},
    {"weights_without_bit", "weights", IN_ARGS, INVALID, PUT(args.weights.data, KIT_SOMETHING),
     WITHOUT(HEED_HAS_WEIGHTS)},
    {"scores_without_bit", "scores", IN_ARGS, INVALID, PUT(args.scores.data, KIT_SOMETHING),
     WITHOUT(HEED_HAS_SCORES)},
    {"q_strides", "args.q", IN_ARGS, INVALID, DO(broken_stride, KIT_Q, 32), WITH(ELEMENTS)},
    {"k_torn_block", "args.k", IN_ARGS, INVALID, DO(kit_torn_block, 0, 16), WITH(K_BLOCKS | ELEMENTS)},
    {"v_torn_block", "args.v", IN_ARGS, INVALID, DO(kit_torn_block, 1, 16), WITH(V_BLOCKS | ELEMENTS)},
    {"k_scale_strides", "k_quant", IN_ARGS, INVALID, DO(broken_stride, KIT_K_SCALE, 32),
     WITH(HEED_HAS_QUANT | ELEMENTS)},
    {"v_scale_strides", "v_quant", IN_ARGS, INVALID, DO(broken_stride, KIT_V_SCALE, 32),
     WITH(HEED_HAS_QUANT | ELEMENTS)},
    {"k_quant_without_scale", "k_quant", IN_ARGS, INVALID, DO(kit_part_of_none, 0, 16)},
    {"v_quant_without_scale", "v_quant", IN_ARGS, INVALID, DO(kit_part_of_none, 1, 16)},
    {"k_quant_of_none", "k_quant", IN_ARGS, INVALID, DO(kit_scales_of_none, 0, 1),
     WITH(HEED_HAS_QUANT | K_BLOCKS)},
    {"v_quant_of_none", "v_quant", IN_ARGS, INVALID, DO(kit_scales_of_none, 1, 1),
     WITH(HEED_HAS_QUANT | V_BLOCKS)},
    {"k_zero_of_f8", "k_quant", IN_ARGS, INVALID, DO(kit_zeros_of_f8, 0, 1), WITH(HEED_HAS_QUANT | F8)},
    {"v_zero_of_f8", "v_quant", IN_ARGS, INVALID, DO(kit_zeros_of_f8, 1, 1), WITH(HEED_HAS_QUANT | F8)},
    {"k_scale_stride_of_no_group", "k_quant", IN_ARGS, INVALID, DO(kit_stride_of_no_group, 0, 2),
     WITH(HEED_HAS_QUANT)},
    {"v_scale_stride_of_no_group", "v_quant", IN_ARGS, INVALID, DO(kit_stride_of_no_group, 1, 2),
     WITH(HEED_HAS_QUANT)},
    {"quant_null", "k_quant", IN_ARGS, INVALID, DO(kit_no_scales, 0, 1), WITH(HEED_HAS_QUANT | ELEMENTS)},
    {"k_start_in_group", "kv_starts", IN_ARGS, INVALID, DO(kit_start_in_group, 0, 4),
     WITH(HEED_HAS_QUANT | HEED_HAS_PACKED | ELEMENTS)},
    {"v_start_in_group", "kv_starts", IN_ARGS, INVALID, DO(kit_start_in_group, 1, 4),
     WITH(HEED_HAS_QUANT | HEED_HAS_PACKED | ELEMENTS)},
    {"k_strides", "args.k", IN_ARGS, INVALID, DO(broken_stride, KIT_K, 32), WITH(ELEMENTS)},
    {"v_strides", "args.v", IN_ARGS, INVALID, DO(broken_stride, KIT_V, 32), WITH(ELEMENTS)},
    {"out_strides", "args.out", IN_ARGS, INVALID, DO(broken_stride, KIT_OUT, 32), WITH(ELEMENTS)},
    {"mask_strides", "mask", IN_ARGS, INVALID, DO(broken_stride, KIT_MASK, 32),
     WITH(HEED_HAS_MASK | ELEMENTS)},
    {"bias_strides", "bias", IN_ARGS, INVALID, DO(broken_stride, KIT_BIAS, 32),
     WITH(HEED_HAS_BIAS | ELEMENTS)},
    {"lse_strides", "lse", IN_ARGS, INVALID, DO(broken_stride, KIT_LSE, 24),
     WITH(HEED_HAS_LSE | ELEMENTS)},
    {"weights_strides", "weights", IN_ARGS, INVALID, DO(broken_stride, KIT_WEIGHTS, 32),
     WITH(HEED_HAS_WEIGHTS | ELEMENTS)},
    {"scores_strides", "scores", IN_ARGS, INVALID, DO(broken_stride, KIT_SCORES, 32),
     WITH(HEED_HAS_SCORES | ELEMENTS)},
    {"strides_of_packed_rows", "args.out", IN_ARGS, INVALID, DO(broken_stride, KIT_OUT, 32),
     WITH(HEED_HAS_PACKED | ELEMENTS)},
    {"strides_of_pages", "args.k", IN_ARGS, INVALID, DO(broken_stride, KIT_K, 32),
     WITH(HEED_HAS_PAGES | ELEMENTS)},
    {"out_is_q", "args.out", IN_ARGS, INVALID, DO(out_is_another, KIT_Q, 1), WITH(ELEMENTS)},
    {"out_is_k", "args.out", IN_ARGS, INVALID, DO(out_is_another, KIT_K, 1), WITH(ELEMENTS)},
    {"out_is_v", "args.out", IN_ARGS, INVALID, DO(out_is_another, KIT_V, 1), WITH(ELEMENTS)},
    {"out_is_mask", "args.out", IN_ARGS, INVALID, DO(out_is_another, KIT_MASK, 1),
     WITH(HEED_HAS_MASK | ELEMENTS)},
    {"out_is_bias", "args.out", IN_ARGS, INVALID, DO(out_is_another, KIT_BIAS, 1),
     WITH(HEED_HAS_BIAS | ELEMENTS)},
    {"out_is_lse", "args.out", IN_ARGS, INVALID, DO(out_is_another, KIT_LSE, 1),
     WITH(HEED_HAS_LSE | ELEMENTS)},
    {"out_is_weights", "args.out", IN_ARGS, INVALID, DO(out_is_another, KIT_WEIGHTS, 1),
     WITH(HEED_HAS_WEIGHTS | ELEMENTS)},
    {"out_is_scores", "args.out", IN_ARGS, INVALID, DO(out_is_another, KIT_SCORES, 1),
     WITH(HEED_HAS_SCORES | ELEMENTS)},
    {"alibi_slope_null", "alibi_slope", IN_ARGS, INVALID, PUT(args.alibi_slope, 0),
     WITH(HEED_HAS_ALIBI)},
    {"alibi_slope_without_bit", "alibi_slope", IN_ARGS, INVALID,
     PUT(args.alibi_slope, KIT_SOMETHING), WITHOUT(HEED_HAS_ALIBI)},
    {"bias_slope_null", "bias_slope", IN_ARGS, INVALID, PUT(args.bias_slope, 0),
     WITH(HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE)},
    {"bias_slope_without_bit", "bias_slope", IN_ARGS, INVALID, PUT(args.bias_slope, KIT_SOMETHING),
     WITH(HEED_HAS_BIAS), WITHOUT(HEED_HAS_BIAS_SLOPE)},
    {"sink_null", "sink", IN_ARGS, INVALID, PUT(args.sink, 0), WITH(HEED_HAS_SINK)},
    {"sink_without_bit", "sink", IN_ARGS, INVALID, PUT(args.sink, KIT_SOMETHING),
     WITHOUT(HEED_HAS_SINK)},
    {"q_offsets_null", "q_offsets", IN_ARGS, INVALID, DO(no_offsets, 0, 1), WITH(HEED_HAS_CAUSAL)},
    {"q_offsets_without_given", "q_offsets", IN_ARGS, INVALID, DO(offsets_alone, 0, 1)},
    {"lens_null", "q_lens", IN_ARGS, INVALID, DO(no_lens, 0, 1), WITH(HEED_HAS_LENS)},
    {"q_lens_without_bit", "q_lens", IN_ARGS, INVALID, PUT(args.q_lens, KIT_SOMETHING),
     WITHOUT(HEED_HAS_LENS)},
    {"kv_lens_without_bit", "kv_lens", IN_ARGS, INVALID, PUT(args.kv_lens, KIT_SOMETHING),
     WITHOUT(HEED_HAS_LENS)},
    {"q_lens_bad", "q_lens", IN_ARGS, INVALID, DO(bad_length, 0, 8), WITH(HEED_HAS_LENS | ELEMENTS)},
    {"kv_lens_bad", "kv_lens", IN_ARGS, INVALID, DO(bad_length, 1, 8),
     WITH(HEED_HAS_LENS | ELEMENTS)},
    {"k_quant_without_bit", "k_quant", IN_ARGS, INVALID, PUT(args.k_quant.scale, KIT_SOMETHING),
     WITHOUT(HEED_HAS_QUANT)},
    {"v_quant_without_bit", "v_quant", IN_ARGS, INVALID, PUT(args.v_quant.scale, KIT_SOMETHING),
     WITHOUT(HEED_HAS_QUANT)},
    {"ranges_unwanted", "ranges", IN_ARGS, INVALID, PUT(args.ranges.data, KIT_SOMETHING),
     WITHOUT(HEED_HAS_RANGES)},
    {"key_blocks_unwanted", "key_blocks", IN_ARGS, INVALID, PUT(args.key_blocks.data, KIT_SOMETHING),
     WITHOUT(HEED_HAS_KEY_BLOCKS)},
    {"mask_from_unwanted", "mask_from", IN_ARGS, INVALID, PUT(args.mask_from, KIT_SOMETHING),
     WITHOUT(HEED_HAS_MASK_FROM)},
    {"ranges_null", "ranges", IN_ARGS, INVALID, PUT(args.ranges.data, 0),
     WITH(HEED_HAS_RANGES | ELEMENTS)},
    {"key_blocks_null", "key_blocks", IN_ARGS, INVALID, PUT(args.key_blocks.data, 0),
     WITH(HEED_HAS_KEY_BLOCKS | ELEMENTS)},
    {"mask_from_null", "mask_from", IN_ARGS, INVALID, PUT(args.mask_from, 0),
     WITH(HEED_HAS_MASK | HEED_HAS_MASK_FROM)},
    {"out_is_ranges", "args.out", IN_ARGS, INVALID, DO(out_is_lists, 0, 1),
     WITH(HEED_HAS_RANGES | ELEMENTS)},
    {"out_is_key_blocks", "args.out", IN_ARGS, INVALID, DO(out_is_lists, 1, 1),
     WITH(HEED_HAS_KEY_BLOCKS | ELEMENTS)},
    {"ranges_strides", "args.ranges", IN_ARGS, INVALID, DO(far_lists, 0, 3),
     WITH(HEED_HAS_RANGES | ELEMENTS)},
    {"key_blocks_strides", "args.key_blocks", IN_ARGS, INVALID, DO(far_lists, 1, 2),
     WITH(HEED_HAS_KEY_BLOCKS | ELEMENTS)},
    {"ranges_bad", "args.ranges[", IN_ARGS, INVALID, DO(bad_range, 0, 72),
     WITH(HEED_HAS_RANGES | ELEMENTS)},
    {"mask_from_bad", "args.mask_from[", IN_ARGS, INVALID, DO(bad_from, 0, 8),
     WITH(HEED_HAS_MASK | HEED_HAS_MASK_FROM | ELEMENTS)},
    {"q_starts_alone", "q_starts", IN_ARGS, INVALID, PUT(args.q_starts, KIT_SOMETHING),
     WITHOUT(HEED_HAS_PACKED)},
    {"kv_starts_alone", "kv_starts", IN_ARGS, INVALID, PUT(args.kv_starts, KIT_SOMETHING),
     WITHOUT(HEED_HAS_PACKED)},
    {"block_table_alone", "block_table", IN_ARGS, INVALID, PUT(args.block_table, KIT_SOMETHING),
     WITHOUT(HEED_HAS_PAGES)},
    {"n_pages_alone", "n_pages", IN_ARGS, INVALID, PUT(args.n_pages, 1), WITHOUT(HEED_HAS_PAGES)},
    {"starts_null", "q_starts", IN_ARGS, INVALID, DO(no_starts, 0, 1), WITH(HEED_HAS_PACKED)},
    {"q_starts_bad", "q_starts", IN_ARGS, INVALID, DO(bad_start, 0, 8),
     WITH(HEED_HAS_PACKED | ELEMENTS)},
    {"kv_starts_bad", "kv_starts", IN_ARGS, INVALID, DO(bad_start, 1, 8),
     WITH(HEED_HAS_PACKED | ELEMENTS)},
    {"kv_starts_with_pages", "kv_starts", IN_ARGS, INVALID, PUT(args.kv_starts, KIT_SOMETHING),
     WITH(HEED_HAS_PACKED | HEED_HAS_PAGES)},
    {"block_table_null", "block_table", IN_ARGS, INVALID, PUT(args.block_table, 0),
     WITH(HEED_HAS_PAGES | ELEMENTS)},
    {"block_table_narrow", "block_table_stride", IN_ARGS, INVALID, DO(narrow_table, 0, 2),
     WITH(HEED_HAS_PAGES | ELEMENTS)},
    {"block_table_far", "block_table_stride", IN_ARGS, INVALID,
     PUT(args.block_table_stride, INT64_C(1) << 31, INT64_MAX), WITH(HEED_HAS_PAGES | ELEMENTS)},
    /* A page that no row sees may be bad: hence WITHOUT(SOME_KEYS). */
    {"page_bad", "block_table", IN_ARGS, INVALID, DO(bad_page, 0, 32),
     WITH(HEED_HAS_PAGES | ELEMENTS), WITHOUT(SOME_KEYS)},
    {"page_bad_of_some_length", "block_table", IN_ARGS, INVALID, DO(bad_page, 0, 32),
     WITH(HEED_HAS_PAGES | HEED_HAS_LENS | ELEMENTS), WITHOUT(SOME_KEYS)},
    {"n_pages_bad", "n_pages", IN_ARGS, INVALID, PUT(args.n_pages, -1, INT64_C(1) << 31),
     WITH(HEED_HAS_PAGES | ELEMENTS)},
    {"n_pages_0", "n_pages", IN_ARGS, INVALID, DO(no_pages, 0, 1), WITH(HEED_HAS_PAGES | ELEMENTS),
     WITHOUT(SOME_KEYS)},
    {"args_struct_size", "struct_size", IN_ARGS, HEED_ERR_ABI,
     PUT(args.struct_size, KIT_BAD_STRUCTS)},
    {"executor_bad", "executor", IN_RUN, INVALID, DO(bad_executor, 0, 3)},
    {"empty_q_offsets_null", "q_offsets", IN_ARGS, INVALID, DO(no_offsets, 1, 1),
     WITH(HEED_HAS_CAUSAL)},
    {"empty_sink_without_bit", "sink", IN_ARGS, INVALID, DO(empty_with_sink, 0, 1),
     WITHOUT(HEED_HAS_SINK)},
    {"empty_lens_null", "q_lens", IN_ARGS, INVALID, DO(no_lens, 1, 1), WITH(HEED_HAS_LENS)},
};
/* clang-format on */

const size_t kit_n_args_mistakes = KIT_COUNT(kit_args_mistakes);
