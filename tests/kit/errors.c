/* What a caller may get wrong: each mistake has to come back with its status, a sentence that names
 * the argument, and untouched outputs, whichever call meets it first. */
#include "cases.h"
#include "run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Where a mistake is found. AT_PLAN: heed_attention does not look at it. */
enum { IN_DESC, IN_DESC_AT_PLAN, IN_ARGS, IN_ARGS_AT_PLAN };

typedef struct mistake {
    const char *name, *word; /* word: has to be in the sentence */
    int where;
    heed_status status;
    uint64_t features; /* of the good problem */
    void (*make)(kit_problem *p);
} mistake;

/* Where a tensor's element 0, 0, 0, 0 lies. */
static void *begin_of(const kit_problem *p, int tensor)
{
    const kit_tensor *t = &p->tensor[tensor];
    return p->buffer[t->buffer].data + t->first * t->bytes;
}

/* One function per mistake, from one line each. */
#define SPOIL(name, ...)                                                                           \
    static void name(kit_problem *p)                                                               \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }

/* clang-format off */
static float some_floats[KIT_MAX_HEADS];
static int32_t some_ints[KIT_MAX_BATCH];

SPOIL(q_heads_0, p->desc.q_heads = 0)
SPOIL(kv_heads_0, p->desc.kv_heads = 0)
SPOIL(qk_dim_0, p->desc.qk_dim = 0)
SPOIL(v_dim_0, p->desc.v_dim = 0)
SPOIL(heads_uneven, p->desc.q_heads = 5)
SPOIL(q_type_none, p->desc.q_type = HEED_DTYPE_NONE)
SPOIL(k_type_unknown, p->desc.k_type = 99)
SPOIL(v_type_none, p->desc.v_type = HEED_DTYPE_NONE)
SPOIL(out_type_unknown, p->desc.out_type = 6)
SPOIL(k_type_i8, p->desc.k_type = HEED_I8)
SPOIL(v_type_q8, p->desc.v_type = HEED_Q8_0)
SPOIL(bias_type_alone, p->desc.bias_type = HEED_F32)
SPOIL(bias_type_none, p->desc.bias_type = HEED_DTYPE_NONE)
SPOIL(unknown_bit, p->desc.features |= UINT64_C(1) << 40)
SPOIL(pages, p->desc.features |= HEED_HAS_PAGES)
SPOIL(quant, p->desc.features |= HEED_HAS_QUANT)
SPOIL(slope_alone, p->desc.features |= HEED_HAS_BIAS_SLOPE)
SPOIL(position_unset, p->desc.position = HEED_POS_UNSET)
SPOIL(position_unknown, p->desc.position = 9)
SPOIL(stage_alone, p->desc.scores_stage = HEED_SCORES_RAW)
SPOIL(stage_none, p->desc.scores_stage = HEED_SCORES_NONE)
SPOIL(stage_unknown, p->desc.scores_stage = 4)
SPOIL(page_len, p->desc.page_len = 16)
SPOIL(accuracy_unknown, p->desc.accuracy = 4)
SPOIL(desc_reserved, p->desc.reserved = 1)
SPOIL(max_rows, p->desc.max_rows = 1)
SPOIL(scale_nan, p->desc.scale = NAN)
SPOIL(scale_inf, p->desc.scale = INFINITY)
SPOIL(scale_alone, p->desc.scale = 1)
SPOIL(softcap_negative, p->desc.softcap = -1)
SPOIL(softcap_nan, p->desc.softcap = NAN)
SPOIL(softcap_inf, p->desc.softcap = INFINITY)
SPOIL(softcap_alone, p->desc.softcap = 1)
SPOIL(window_left_low, p->desc.window_left = -2)
SPOIL(window_right_low, p->desc.window_right = -2)
SPOIL(window_alone, p->desc.window_left = 5)
SPOIL(max_batch_negative, p->desc.max_batch = -1)
SPOIL(max_q_len_large, p->desc.max_q_len = INT64_C(1) << 31)
SPOIL(max_kv_len_large, p->desc.max_kv_len = INT64_MAX)
SPOIL(desc_size_0, p->desc.struct_size = 0)
SPOIL(batch_negative, p->args.batch = -1)
SPOIL(q_len_negative, p->args.q_len = -1)
SPOIL(kv_len_negative, p->args.kv_len = -1)
SPOIL(batch_huge, p->args.batch = INT64_C(1) << 40)
SPOIL(q_len_huge, p->args.q_len = INT64_C(1) << 31)
SPOIL(kv_len_huge, p->args.kv_len = INT64_MAX)
SPOIL(batch_large, p->args.batch = p->desc.max_batch + 1)
SPOIL(q_len_large, p->args.q_len = p->desc.max_q_len + 1)
SPOIL(kv_len_large, p->args.kv_len = p->desc.max_kv_len + 1)
SPOIL(q_null, p->args.q.data = NULL)
SPOIL(k_null, p->args.k.data = NULL)
SPOIL(v_null, p->args.v.data = NULL)
SPOIL(out_null, p->args.out.data = NULL)
SPOIL(mask_null, p->args.mask.data = NULL)
SPOIL(bias_null, p->args.bias.data = NULL)
SPOIL(lse_null, p->args.lse.data = NULL)
SPOIL(weights_null, p->args.weights.data = NULL)
SPOIL(scores_null, p->args.scores.data = NULL)
SPOIL(mask_alone, p->args.mask.data = p->args.q.data)
SPOIL(bias_alone, p->args.bias.data = p->args.q.data)
SPOIL(lse_alone, p->args.lse.data = some_floats)
SPOIL(weights_alone, p->args.weights.data = some_floats)
SPOIL(scores_alone, p->args.scores.data = some_floats)
SPOIL(out_broadcast, p->args.out.stride[2] = 0)
SPOIL(lse_broadcast, p->args.lse.stride[1] = 0)
SPOIL(weights_broadcast, p->args.weights.stride[3] = 0)
SPOIL(scores_broadcast, p->args.scores.stride[0] = 0)
SPOIL(q_far, p->args.q.stride[2] = INT64_MAX / 2)
SPOIL(k_far, p->args.k.stride[1] = INT64_MIN)
SPOIL(mask_far, p->args.mask.stride[3] = INT64_MAX)
SPOIL(out_is_q, p->args.out.data = begin_of(p, KIT_Q))
SPOIL(out_is_k, p->args.out.data = begin_of(p, KIT_K))
SPOIL(out_is_v, p->args.out.data = begin_of(p, KIT_V))
SPOIL(alibi_null, p->args.alibi_slope = NULL)
SPOIL(alibi_alone, p->args.alibi_slope = some_floats)
SPOIL(slope_null, p->args.bias_slope = NULL)
SPOIL(slope_given_alone, p->args.bias_slope = some_floats)
SPOIL(sink_null, p->args.sink = NULL)
SPOIL(sink_alone, p->args.sink = some_floats)
SPOIL(offsets_null, p->args.q_offsets = NULL)
SPOIL(offsets_alone, p->args.q_offsets = some_ints)
SPOIL(lens_null, p->args.q_lens = p->args.kv_lens = NULL)
SPOIL(q_lens_alone, p->args.q_lens = p->q_lens)
SPOIL(kv_lens_alone, p->args.kv_lens = p->kv_lens)
SPOIL(q_lens_negative, p->q_lens[1] = -1)
SPOIL(q_lens_large, p->q_lens[1] = (int32_t)p->args.q_len + 1)
SPOIL(kv_lens_negative, p->kv_lens[1] = INT32_MIN)
SPOIL(kv_lens_large, p->kv_lens[1] = INT32_MAX)
SPOIL(k_scale, p->args.k_quant.scale = some_floats)
SPOIL(k_zero, p->args.k_quant.zero = some_floats)
SPOIL(k_key_group, p->args.k_quant.key_group = 32)
SPOIL(v_scale, p->args.v_quant.scale = some_floats)
SPOIL(v_zero, p->args.v_quant.zero = some_floats)
SPOIL(v_group, p->args.v_quant.group = 32)
SPOIL(q_starts, p->args.q_starts = some_ints)
SPOIL(kv_starts, p->args.kv_starts = some_ints)
SPOIL(block_table, p->args.block_table = some_ints)
SPOIL(n_pages, p->args.n_pages = 1)
SPOIL(max_rows_large, p->desc.max_rows = INT64_C(1) << 31)
SPOIL(starts_null, p->args.q_starts = NULL)
SPOIL(q_starts_negative, p->q_starts[1] = -1)
SPOIL(q_starts_past_the_end, p->q_starts[1] = (int32_t)(p->desc.max_rows - p->q_lens[1] + 1))
SPOIL(kv_starts_negative, p->args.kv_starts = (p->kv_starts[1] = INT32_MIN, p->kv_starts))
SPOIL(kv_starts_with_pages, p->args.kv_starts = some_ints)
SPOIL(table_null, p->args.block_table = NULL)
SPOIL(table_narrow, p->args.block_table_stride = (p->args.kv_len - 1) / p->desc.page_len)
SPOIL(page_negative, p->block_table[p->table_stride] = -1)
SPOIL(page_past_the_end, p->block_table[0] = (int32_t)p->n_pages)
SPOIL(page_huge, p->block_table[p->table_stride + 1] = INT32_MAX)
SPOIL(n_pages_0, p->args.n_pages = 0)
SPOIL(n_pages_negative, p->args.n_pages = -1)
SPOIL(n_pages_large, p->args.n_pages = INT64_C(1) << 31)
SPOIL(k_pages_far, p->args.k.stride[0] = INT64_MAX / 2)
SPOIL(out_rows_broadcast, p->args.out.stride[2] = 0)
SPOIL(args_size_0, p->args.struct_size = 0)
/* In an empty problem too: whether an argument is there does not depend on the sizes. */
SPOIL(empty_offsets_null, p->args.q_len = 0; p->args.q_offsets = NULL)
SPOIL(empty_sink_alone, p->args.q_len = 0; p->args.sink = some_floats)
SPOIL(empty_lens_null, p->args.batch = 0; p->args.q_lens = p->args.kv_lens = NULL)

#define INVALID HEED_ERR_INVALID
#define REFUSED HEED_ERR_UNSUPPORTED
#define PACKED HEED_HAS_PACKED
#define PAGES HEED_HAS_PAGES
static const mistake mistakes[] = {
    {"q_heads_0", "q_heads", IN_DESC, INVALID, 0, q_heads_0},
    {"kv_heads_0", "kv_heads", IN_DESC, INVALID, 0, kv_heads_0},
    {"qk_dim_0", "qk_dim", IN_DESC, INVALID, 0, qk_dim_0},
    {"v_dim_0", "v_dim", IN_DESC, INVALID, 0, v_dim_0},
    {"q_heads_no_multiple", "q_heads", IN_DESC, INVALID, 0, heads_uneven},
    {"q_type_none", "q_type", IN_DESC, INVALID, 0, q_type_none},
    {"k_type_unknown", "k_type", IN_DESC, INVALID, 0, k_type_unknown},
    {"v_type_none", "v_type", IN_DESC, INVALID, 0, v_type_none},
    {"out_type_unknown", "out_type", IN_DESC, INVALID, 0, out_type_unknown},
    {"k_type_i8", "k_type", IN_DESC, REFUSED, 0, k_type_i8},
    {"v_type_q8_0", "v_type", IN_DESC, REFUSED, 0, v_type_q8},
    {"bias_type_without_bias", "bias_type", IN_DESC, INVALID, 0, bias_type_alone},
    {"bias_type_none", "bias_type", IN_DESC, INVALID, HEED_HAS_BIAS, bias_type_none},
    {"feature_unknown", "features", IN_DESC, INVALID, 0, unknown_bit},
    {"pages_of_0", "page_len", IN_DESC, INVALID, 0, pages},
    {"quant_reserved", "QUANT", IN_DESC, REFUSED, 0, quant},
    {"bias_slope_without_bias", "BIAS_SLOPE", IN_DESC, INVALID, 0, slope_alone},
    {"causal_without_position", "position", IN_DESC, INVALID, HEED_HAS_CAUSAL, position_unset},
    {"window_without_position", "position", IN_DESC, INVALID, HEED_HAS_WINDOW, position_unset},
    {"alibi_without_position", "position", IN_DESC, INVALID, HEED_HAS_ALIBI, position_unset},
    {"position_unknown", "position", IN_DESC, INVALID, HEED_HAS_CAUSAL, position_unknown},
    {"scores_stage_without_scores", "scores_stage", IN_DESC, INVALID, 0, stage_alone},
    {"scores_stage_none", "scores_stage", IN_DESC, INVALID, HEED_HAS_SCORES, stage_none},
    {"scores_stage_unknown", "scores_stage", IN_DESC, INVALID, HEED_HAS_SCORES, stage_unknown},
    {"page_len_without_pages", "page_len", IN_DESC, INVALID, 0, page_len},
    {"accuracy_unknown", "accuracy", IN_DESC, INVALID, 0, accuracy_unknown},
    {"desc_reserved", "reserved", IN_DESC, INVALID, 0, desc_reserved},
    {"max_rows_without_packed", "max_rows", IN_DESC, INVALID, 0, max_rows},
    {"scale_nan", "scale", IN_DESC, INVALID, HEED_HAS_SCALE, scale_nan},
    {"scale_inf", "scale", IN_DESC, INVALID, HEED_HAS_SCALE, scale_inf},
    {"scale_without_bit", "scale", IN_DESC, INVALID, 0, scale_alone},
    {"softcap_negative", "softcap", IN_DESC, INVALID, HEED_HAS_SOFTCAP, softcap_negative},
    {"softcap_nan", "softcap", IN_DESC, INVALID, HEED_HAS_SOFTCAP, softcap_nan},
    {"softcap_inf", "softcap", IN_DESC, INVALID, HEED_HAS_SOFTCAP, softcap_inf},
    {"softcap_without_bit", "softcap", IN_DESC, INVALID, 0, softcap_alone},
    {"window_left_low", "window_left", IN_DESC, INVALID, HEED_HAS_WINDOW, window_left_low},
    {"window_right_low", "window_right", IN_DESC, INVALID, HEED_HAS_WINDOW, window_right_low},
    {"window_without_bit", "window_left", IN_DESC, INVALID, 0, window_alone},
    {"max_batch_negative", "max_batch", IN_DESC_AT_PLAN, INVALID, 0, max_batch_negative},
    {"max_q_len_large", "max_q_len", IN_DESC_AT_PLAN, INVALID, 0, max_q_len_large},
    {"max_kv_len_large", "max_kv_len", IN_DESC_AT_PLAN, INVALID, 0, max_kv_len_large},
    {"desc_struct_size_0", "struct_size", IN_DESC, HEED_ERR_ABI, 0, desc_size_0},
    {"batch_negative", "batch", IN_ARGS, INVALID, 0, batch_negative},
    {"q_len_negative", "q_len", IN_ARGS, INVALID, 0, q_len_negative},
    {"kv_len_negative", "kv_len", IN_ARGS, INVALID, 0, kv_len_negative},
    {"batch_huge", "args.batch", IN_ARGS, INVALID, 0, batch_huge},
    {"q_len_huge", "args.q_len", IN_ARGS, INVALID, 0, q_len_huge},
    {"kv_len_huge", "args.kv_len", IN_ARGS, INVALID, 0, kv_len_huge},
    {"batch_above_plan", "batch", IN_ARGS_AT_PLAN, INVALID, 0, batch_large},
    {"q_len_above_plan", "q_len", IN_ARGS_AT_PLAN, INVALID, 0, q_len_large},
    {"kv_len_above_plan", "kv_len", IN_ARGS_AT_PLAN, INVALID, 0, kv_len_large},
    {"q_null", "args.q", IN_ARGS, INVALID, 0, q_null},
    {"k_null", "args.k", IN_ARGS, INVALID, 0, k_null},
    {"v_null", "args.v", IN_ARGS, INVALID, 0, v_null},
    {"out_null", "args.out", IN_ARGS, INVALID, 0, out_null},
    {"mask_null", "mask", IN_ARGS, INVALID, HEED_HAS_MASK, mask_null},
    {"bias_null", "bias", IN_ARGS, INVALID, HEED_HAS_BIAS, bias_null},
    {"lse_null", "lse", IN_ARGS, INVALID, HEED_HAS_LSE, lse_null},
    {"weights_null", "weights", IN_ARGS, INVALID, HEED_HAS_WEIGHTS, weights_null},
    {"scores_null", "scores", IN_ARGS, INVALID, HEED_HAS_SCORES, scores_null},
    {"mask_without_bit", "mask", IN_ARGS, INVALID, 0, mask_alone},
    {"bias_without_bit", "bias", IN_ARGS, INVALID, 0, bias_alone},
    {"lse_without_bit", "lse", IN_ARGS, INVALID, 0, lse_alone},
    {"weights_without_bit", "weights", IN_ARGS, INVALID, 0, weights_alone},
    {"scores_without_bit", "scores", IN_ARGS, INVALID, 0, scores_alone},
    {"out_broadcast", "args.out", IN_ARGS, INVALID, 0, out_broadcast},
    {"lse_broadcast", "lse", IN_ARGS, INVALID, HEED_HAS_LSE, lse_broadcast},
    {"weights_broadcast", "weights", IN_ARGS, INVALID, HEED_HAS_WEIGHTS, weights_broadcast},
    {"scores_broadcast", "scores", IN_ARGS, INVALID, HEED_HAS_SCORES, scores_broadcast},
    {"q_strides_overflow", "args.q", IN_ARGS, INVALID, 0, q_far},
    {"k_strides_overflow", "args.k", IN_ARGS, INVALID, 0, k_far},
    {"mask_strides_overflow", "mask", IN_ARGS, INVALID, HEED_HAS_MASK, mask_far},
    {"out_is_q", "args.out", IN_ARGS, INVALID, 0, out_is_q},
    {"out_is_k", "args.out", IN_ARGS, INVALID, 0, out_is_k},
    {"out_is_v", "args.out", IN_ARGS, INVALID, 0, out_is_v},
    {"alibi_slope_null", "alibi_slope", IN_ARGS, INVALID, HEED_HAS_ALIBI, alibi_null},
    {"alibi_slope_without_bit", "alibi_slope", IN_ARGS, INVALID, 0, alibi_alone},
    {"bias_slope_null", "bias_slope", IN_ARGS, INVALID, HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE,
     slope_null},
    {"bias_slope_without_bit", "bias_slope", IN_ARGS, INVALID, HEED_HAS_BIAS, slope_given_alone},
    {"sink_null", "sink", IN_ARGS, INVALID, HEED_HAS_SINK, sink_null},
    {"sink_without_bit", "sink", IN_ARGS, INVALID, 0, sink_alone},
    {"q_offsets_null", "q_offsets", IN_ARGS, INVALID, HEED_HAS_CAUSAL, offsets_null},
    {"q_offsets_without_given", "q_offsets", IN_ARGS, INVALID, 0, offsets_alone},
    {"lens_null", "q_lens", IN_ARGS, INVALID, HEED_HAS_LENS, lens_null},
    {"q_lens_without_bit", "q_lens", IN_ARGS, INVALID, 0, q_lens_alone},
    {"kv_lens_without_bit", "kv_lens", IN_ARGS, INVALID, 0, kv_lens_alone},
    {"q_lens_negative", "q_lens", IN_ARGS, INVALID, HEED_HAS_LENS, q_lens_negative},
    {"q_lens_above_q_len", "q_lens", IN_ARGS, INVALID, HEED_HAS_LENS, q_lens_large},
    {"kv_lens_negative", "kv_lens", IN_ARGS, INVALID, HEED_HAS_LENS, kv_lens_negative},
    {"kv_lens_above_kv_len", "kv_lens", IN_ARGS, INVALID, HEED_HAS_LENS, kv_lens_large},
    {"k_scale_reserved", "k_quant", IN_ARGS, INVALID, 0, k_scale},
    {"k_zero_reserved", "k_quant", IN_ARGS, INVALID, 0, k_zero},
    {"k_key_group_reserved", "k_quant", IN_ARGS, INVALID, 0, k_key_group},
    {"v_scale_reserved", "v_quant", IN_ARGS, INVALID, 0, v_scale},
    {"v_zero_reserved", "v_quant", IN_ARGS, INVALID, 0, v_zero},
    {"v_group_reserved", "v_quant", IN_ARGS, INVALID, 0, v_group},
    {"q_starts_alone", "q_starts", IN_ARGS, INVALID, 0, q_starts},
    {"kv_starts_alone", "kv_starts", IN_ARGS, INVALID, 0, kv_starts},
    {"block_table_alone", "block_table", IN_ARGS, INVALID, 0, block_table},
    {"n_pages_alone", "n_pages", IN_ARGS, INVALID, 0, n_pages},
    {"max_rows_large", "max_rows", IN_DESC, INVALID, PACKED, max_rows_large},
    {"starts_null", "q_starts", IN_ARGS, INVALID, PACKED, starts_null},
    {"q_starts_negative", "q_starts[1]", IN_ARGS, INVALID, PACKED, q_starts_negative},
    {"q_starts_past_the_end", "q_starts[1]", IN_ARGS, INVALID, PACKED, q_starts_past_the_end},
    {"kv_starts_negative", "kv_starts[1]", IN_ARGS, INVALID, PACKED, kv_starts_negative},
    {"kv_starts_with_pages", "kv_starts", IN_ARGS, INVALID, PACKED | PAGES, kv_starts_with_pages},
    {"block_table_null", "block_table", IN_ARGS, INVALID, PAGES, table_null},
    {"block_table_narrow", "block_table_stride", IN_ARGS, INVALID, PAGES, table_narrow},
    {"page_negative", "block_table[1][0]", IN_ARGS, INVALID, PAGES, page_negative},
    {"page_past_the_end", "block_table[0][0]", IN_ARGS, INVALID, PAGES, page_past_the_end},
    {"page_huge", "block_table[1][1]", IN_ARGS, INVALID, PAGES | HEED_HAS_LENS, page_huge},
    {"n_pages_0", "n_pages", IN_ARGS, INVALID, PAGES, n_pages_0},
    {"n_pages_negative", "n_pages", IN_ARGS, INVALID, PAGES, n_pages_negative},
    {"n_pages_large", "n_pages", IN_ARGS, INVALID, PAGES, n_pages_large},
    {"k_pages_overflow", "args.k", IN_ARGS, INVALID, PAGES, k_pages_far},
    {"out_rows_broadcast", "args.out", IN_ARGS, INVALID, PACKED, out_rows_broadcast},
    {"args_struct_size_0", "struct_size", IN_ARGS, HEED_ERR_ABI, 0, args_size_0},
    {"empty_q_offsets_null", "q_offsets", IN_ARGS, INVALID, HEED_HAS_CAUSAL, empty_offsets_null},
    {"empty_sink_without_bit", "sink", IN_ARGS, INVALID, 0, empty_sink_alone},
    {"empty_lens_null", "q_lens", IN_ARGS, INVALID, HEED_HAS_LENS, empty_lens_null},
};
/* clang-format on */

static void build(const mistake *m, kit_spec *s)
{
    memset(s, 0, sizeof *s);
    s->q_type = s->k_type = s->v_type = s->out_type = HEED_F32;
    s->features = m->features & ~(HEED_HAS_LENS | PACKED | PAGES);
    if (m->features & (PACKED | PAGES)) {
        s->storage = !(m->features & PAGES) ? KIT_RAGGED_Q
                     : m->features & PACKED ? KIT_PAGED_RAGGED
                                            : KIT_PAGED;
        s->page_len = 8;
    }
    s->lens = m->features & HEED_HAS_LENS ? KIT_LENS_BOTH : KIT_LENS_FULL;
    if (m->features & (HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_ALIBI))
        s->position = HEED_POS_GIVEN;
    if (m->features & HEED_HAS_SCORES)
        s->scores_stage = HEED_SCORES_RAW;
    kit_complete(s);
}

/* The call has failed: was it for the reason that it should, and did it leave the outputs alone? */
static void judge(const mistake *m, kit_problem *p, const char *call, heed_status status,
                  const char *sentence, kit_outcome *outcome)
{
    if (status != m->status)
        kit_fail(outcome, "%s returned %s, %s is required (it says: %s)", call,
                 heed_status_string(status), heed_status_string(m->status),
                 status == HEED_OK ? "nothing" : sentence);
    else if (!strstr(sentence, m->word))
        kit_fail(outcome, "%s does not name %s: '%s'", call, m->word, sentence);
    for (int t = KIT_OUT; t < KIT_TENSORS; t++)
        for (size_t at = 0; (t == KIT_OUT || t >= KIT_LSE) && at < p->buffer[t].bytes; at++)
            if (p->buffer[t].data[at] != KIT_CANARY) {
                kit_fail(outcome, "%s failed and yet wrote to an output", call);
                return;
            }
}

static void spoiled_desc(const kit_env *env, const mistake *m, kit_problem *p, kit_outcome *outcome)
{
    heed_error why = {""};
    heed_attn *plan = NULL;
    m->make(p);
    judge(m, p, "heed_attn_create", heed_attn_create(env->context, &p->desc, &plan),
          heed_last_error(), outcome);
    if (plan)
        kit_fail(outcome, "heed_attn_create failed and yet gave a plan");
    heed_status status = heed_attn_supported(env->context, &p->desc, &why);
    judge(m, p, "heed_attn_supported", status, why.text, outcome);
    if (m->where == IN_DESC_AT_PLAN)
        return;
    p->args.error = &why;
    why.text[0] = '\0';
    status = heed_attention(env->context, &p->desc, &p->args);
    judge(m, p, "heed_attention", status, why.text, outcome);
}

static void spoiled_args(const kit_env *env, const mistake *m, kit_problem *p, kit_outcome *outcome)
{
    heed_error why = {""};
    heed_attn *plan = NULL;
    guard_buffer workspace = {0};
    heed_status status = heed_attn_create(env->context, &p->desc, &plan);
    if (kit_status(outcome, status, heed_last_error(), "heed_attn_create") != 0)
        return;
    m->make(p);
    judge(m, p, "heed_attn_run", heed_attn_run(plan, &p->args, NULL, 0), heed_last_error(),
          outcome);
    size_t bytes = (heed_attn_workspace_bytes(plan, 2) + 63) / 64 * 64;
    if (guard_map(&workspace, bytes, GUARD_HIGH, 0, 0xff) == 0) {
        p->args.error = &why;
        status = heed_attn_begin(plan, &p->args, 2, workspace.data, bytes);
        /* args of an unknown size: where its `error` is cannot be known either. */
        judge(m, p, "heed_attn_begin", status,
              m->status == HEED_ERR_ABI ? heed_last_error() : why.text, outcome);
        if (status != HEED_OK && heed_run_part(workspace.data, 0) == HEED_OK)
            kit_fail(outcome, "heed_run_part succeeds on a run that did not begin");
        guard_unmap(&workspace);
    }
    if (m->where == IN_ARGS) {
        p->args.error = NULL;
        status = heed_attention(env->context, &p->desc, &p->args);
        judge(m, p, "heed_attention", status, heed_last_error(), outcome);
    }
    heed_attn_release(plan);
}

static void run_mistake(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const mistake *m = &mistakes[c->variant];
    kit_problem p;
    kit_spec spec;
    build(m, &spec);
    if (kit_build(&p, &spec, GUARD_HIGH) != 0)
        kit_fail(outcome, "out of memory");
    else if (m->where == IN_DESC || m->where == IN_DESC_AT_PLAN)
        spoiled_desc(env, m, &p, outcome);
    else
        spoiled_args(env, m, &p, outcome);
    kit_free(&p);
}

/* A workspace that is too small, parts that do not exist, and a good call after all of that. */
static void run_workspace(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const mistake small = {.word = "workspace", .status = HEED_ERR_NOMEM};
    static const mistake part = {.word = "part", .status = HEED_ERR_INVALID};
    kit_problem p;
    guard_buffer workspace = {0};
    heed_attn *plan = NULL;
    (void)c;
    kit_spec spec;
    build(&small, &spec);
    if (kit_build(&p, &spec, GUARD_HIGH) != 0 ||
        heed_attn_create(env->context, &p.desc, &plan) != HEED_OK) {
        kit_status(outcome, plan ? HEED_OK : HEED_ERR_UNSUPPORTED, heed_last_error(), "the plan");
        kit_free(&p);
        return;
    }
    size_t one = heed_attn_workspace_bytes(plan, 1), two = heed_attn_workspace_bytes(plan, 2);
    if (heed_attn_workspace_bytes(plan, 0) != 0 || one == 0 || two < one)
        kit_fail(outcome, "heed_attn_workspace_bytes of 0, 1, 2 parts: %zu, %zu, %zu",
                 heed_attn_workspace_bytes(plan, 0), one, two);
    if (guard_map(&workspace, (two + 63) / 64 * 64, GUARD_HIGH, 0, 0x5a) == 0) {
        judge(&small, &p, "heed_attn_run", heed_attn_run(plan, &p.args, workspace.data, one - 1),
              heed_last_error(), outcome);
        judge(&small, &p, "heed_attn_begin",
              heed_attn_begin(plan, &p.args, 2, workspace.data, two - 1), heed_last_error(),
              outcome);
        if (heed_run_part(workspace.data, 0) != HEED_ERR_INVALID)
            kit_fail(outcome, "heed_run_part takes a workspace that was not begun");
        if (heed_attn_begin(plan, &p.args, 0, workspace.data, two) != HEED_ERR_INVALID)
            kit_fail(outcome, "heed_attn_begin takes 0 parts");
        if (heed_attn_begin(plan, &p.args, 2, workspace.data, two) != HEED_OK)
            kit_fail(outcome, "heed_attn_begin fails: %s", heed_last_error());
        judge(&part, &p, "heed_run_part", heed_run_part(workspace.data, 2), heed_last_error(),
              outcome);
        if (heed_run_part(workspace.data, 1) != HEED_OK)
            kit_fail(outcome, "heed_run_part fails: %s", heed_last_error());
        kit_check(&p, outcome);
        if (heed_attn_begin(plan, &p.args, 2, workspace.data, two - 1) == HEED_OK ||
            heed_run_part(workspace.data, 0) != HEED_ERR_INVALID)
            kit_fail(outcome, "heed_run_part takes the run before the one that did not begin");
        guard_unmap(&workspace);
    }
    heed_attn_release(plan);
    kit_free(&p);
}

void kit_error_cases(kit_list *list)
{
    for (size_t n = 0; n < COUNT(mistakes); n++) {
        kit_case c = {.quick = 1, .run = run_mistake, .variant = (int)n};
        snprintf(c.name, sizeof c.name, "error/%s/f32", mistakes[n].name);
        kit_add(list, &c);
    }
    kit_case c = {.name = "error/workspace_and_parts/f32", .quick = 1, .run = run_workspace};
    kit_add(list, &c);
}
