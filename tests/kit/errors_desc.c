/* What a caller may get wrong in a description, by itself or (IN_CALL) for the arguments of a
 * call. */
#include "errors_table.h"

#include <heed/formats.h>

static const char *uneven_heads(void *call, int arg, uint32_t pick)
{
    heed_attn_desc *d = &((kit_problem *)call)->desc;
    (void)arg;
    if (pick & 1)
        d->kv_heads = d->q_heads + 1 + (pick >> 1);
    else if (d->kv_heads > 1)
        d->q_heads++;
    else
        return NULL;
    return "q_heads";
}

/* A type of which the row is no whole number of blocks. */
static const char *torn_row(void *call, int arg, uint32_t pick)
{
    static const uint32_t type[] = {HEED_U4,   HEED_Q8_0, HEED_Q4_0,  HEED_Q4_1,
                                    HEED_Q5_0, HEED_Q5_1, HEED_IQ4_NL};
    heed_attn_desc *d = &((kit_problem *)call)->desc;
    *(arg ? &d->v_type : &d->k_type) = type[pick % KIT_COUNT(type)];
    *(arg ? &d->v_dim : &d->qk_dim) |= 1;
    return arg ? "v_dim" : "qk_dim";
}

/* Scales are promised where neither k nor v takes any. */
static const char *quant_of_none(void *call, int arg, uint32_t pick)
{
    heed_attn_desc *d = &((kit_problem *)call)->desc;
    (void)arg, (void)pick;
    d->features |= HEED_HAS_QUANT;
    return heed_takes_scale(d->k_type) || heed_takes_scale(d->v_type) ? NULL : "HEED_HAS_QUANT";
}

static const char *no_room_for_rows(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)arg;
    (void)pick;
    p->desc.max_rows = 0;
    return p->args.q_starts && p->q_lens[0] > 0 ? "desc.max_rows" : NULL;
}

/* clang-format off */
const kit_mistake kit_desc_mistakes[] = {
    {"q_heads_0", "q_heads", IN_DESC, INVALID, PUT(desc.q_heads, 0)},
    {"kv_heads_0", "kv_heads", IN_DESC, INVALID, PUT(desc.kv_heads, 0)},
    {"qk_dim_0", "qk_dim", IN_DESC, INVALID, PUT(desc.qk_dim, 0)},
    {"v_dim_0", "v_dim", IN_DESC, INVALID, PUT(desc.v_dim, 0)},
    {"q_heads_no_multiple", "q_heads", IN_DESC, INVALID, DO(uneven_heads, 0, 2)},
    {"q_type_unknown", "q_type", IN_DESC, INVALID, PUT(desc.q_type, KIT_BAD_TYPES, KIT_CODES)},
    {"k_type_unknown", "k_type", IN_DESC, INVALID, PUT(desc.k_type, KIT_BAD_TYPES)},
    {"v_type_unknown", "v_type", IN_DESC, INVALID, PUT(desc.v_type, KIT_BAD_TYPES)},
    {"out_type_unknown", "out_type", IN_DESC, INVALID, PUT(desc.out_type, KIT_BAD_TYPES, KIT_CODES)},
    {"k_type_torn_row", "qk_dim", IN_DESC, REFUSED, DO(torn_row, 0, 7)},
    {"v_type_torn_row", "v_dim", IN_DESC, REFUSED, DO(torn_row, 1, 7)},
    {"bias_type_without_bias", "bias_type", IN_DESC, INVALID, PUT(desc.bias_type, HEED_F32, 7),
     WITHOUT(HEED_HAS_BIAS)},
    {"bias_type_none", "bias_type", IN_DESC, INVALID, PUT(desc.bias_type, KIT_BAD_TYPES),
     WITH(HEED_HAS_BIAS)},
    {"feature_unknown", "features", IN_DESC, INVALID,
     OR(desc.features, INT64_C(1) << 40, INT64_MIN)},
    {"pages_of_0", "page_len", IN_DESC, INVALID, OR(desc.features, HEED_HAS_PAGES),
     WITHOUT(HEED_HAS_PAGES)},
    {"page_len_0", "page_len", IN_DESC, INVALID, PUT(desc.page_len, 0), WITH(HEED_HAS_PAGES)},
    {"quant_of_none", "HEED_HAS_QUANT", IN_DESC, INVALID, DO(quant_of_none, 0, 1)},
    {"ranges_of_none", "n_ranges", IN_DESC, INVALID, OR(desc.features, HEED_HAS_RANGES),
     WITHOUT(HEED_HAS_RANGES)},
    {"n_ranges_bad", "n_ranges", IN_DESC, INVALID, PUT(desc.n_ranges, 0, 9, 262, INT64_C(0xffffffff)),
     WITH(HEED_HAS_RANGES)},
    {"blocks_of_none", "block_rows", IN_DESC, INVALID, OR(desc.features, HEED_HAS_KEY_BLOCKS),
     WITHOUT(HEED_HAS_KEY_BLOCKS)},
    {"block_rows_bad", "block_rows", IN_DESC, INVALID,
     PUT(desc.block_rows, 0, INT64_C(1) << 31, INT64_C(0xffffffff)), WITH(HEED_HAS_KEY_BLOCKS)},
    {"block_keys_bad", "block_keys", IN_DESC, INVALID,
     PUT(desc.block_keys, 0, INT64_C(1) << 31, INT64_C(0xffffffff)), WITH(HEED_HAS_KEY_BLOCKS)},
    {"mask_from_of_nothing", "MASK_FROM", IN_DESC, INVALID, OR(desc.features, HEED_HAS_MASK_FROM),
     WITHOUT(HEED_HAS_MASK | HEED_HAS_BIAS)},
    {"bias_slope_without_bias", "BIAS_SLOPE", IN_DESC, INVALID,
     OR(desc.features, HEED_HAS_BIAS_SLOPE), WITHOUT(HEED_HAS_BIAS)},
    {"causal_without_position", "position", IN_DESC, INVALID, PUT(desc.position, HEED_POS_UNSET),
     WITH(HEED_HAS_CAUSAL)},
    {"window_without_position", "position", IN_DESC, INVALID, PUT(desc.position, HEED_POS_UNSET),
     WITH(HEED_HAS_WINDOW)},
    {"alibi_without_position", "position", IN_DESC, INVALID, PUT(desc.position, HEED_POS_UNSET),
     WITH(HEED_HAS_ALIBI)},
    {"position_unknown", "position", IN_DESC, INVALID, PUT(desc.position, 7, 9, 262),
     WITH(HEED_HAS_CAUSAL)},
    {"position_unknown_alone", "position", IN_DESC, INVALID, PUT(desc.position, 7, 9, 262),
     WITHOUT(RANGE)},
    {"scores_stage_without_scores", "scores_stage", IN_DESC, INVALID,
     PUT(desc.scores_stage, HEED_SCORES_RAW, 7), WITHOUT(HEED_HAS_SCORES)},
    {"scores_stage_none", "scores_stage", IN_DESC, INVALID,
     PUT(desc.scores_stage, HEED_SCORES_NONE), WITH(HEED_HAS_SCORES)},
    {"scores_stage_unknown", "scores_stage", IN_DESC, INVALID, PUT(desc.scores_stage, 4, 7, 262),
     WITH(HEED_HAS_SCORES)},
    {"page_len_without_pages", "page_len", IN_DESC, INVALID, PUT(desc.page_len, 7, 16),
     WITHOUT(HEED_HAS_PAGES)},
    {"accuracy_unknown", "accuracy", IN_DESC, INVALID, PUT(desc.accuracy, 5, 7, 262)},
    {"n_ranges", "n_ranges", IN_DESC, INVALID, PUT(desc.n_ranges, 1, 7, 262),
     WITHOUT(HEED_HAS_RANGES)},
    {"block_rows", "block_rows", IN_DESC, INVALID, PUT(desc.block_rows, 1, 7, 262),
     WITHOUT(HEED_HAS_KEY_BLOCKS)},
    {"block_keys", "block_keys", IN_DESC, INVALID, PUT(desc.block_keys, 1, 7, 262),
     WITHOUT(HEED_HAS_KEY_BLOCKS)},
    {"max_rows_without_packed", "max_rows", IN_DESC, INVALID, PUT(desc.max_rows, 1),
     WITHOUT(HEED_HAS_PACKED)},
    {"max_rows_large", "max_rows", IN_DESC, INVALID, PUT(desc.max_rows, INT64_C(1) << 31),
     WITH(HEED_HAS_PACKED)},
    {"max_rows_0", "desc.max_rows", IN_CALL, INVALID, DO(no_room_for_rows, 0, 1),
     WITH(HEED_HAS_PACKED | ELEMENTS)},
    {"scale_not_finite", "scale", IN_DESC, INVALID,
     PUT(desc.scale, KIT_BITS_NAN, KIT_BITS_INF, KIT_BITS_MINUS_INF), WITH(HEED_HAS_SCALE)},
    {"scale_without_bit", "scale", IN_DESC, INVALID,
     PUT(desc.scale, KIT_BITS_1, KIT_BITS_NAN, KIT_BITS_INF, KIT_BITS_MINUS_INF),
     WITHOUT(HEED_HAS_SCALE)},
    {"softcap_bad", "softcap", IN_DESC, INVALID,
     PUT(desc.softcap, KIT_BITS_MINUS_1, KIT_BITS_NAN, KIT_BITS_INF, KIT_BITS_MINUS_INF),
     WITH(HEED_HAS_SOFTCAP)},
    {"softcap_without_bit", "softcap", IN_DESC, INVALID,
     PUT(desc.softcap, KIT_BITS_1, KIT_BITS_NAN, KIT_BITS_INF, KIT_BITS_MINUS_INF),
     WITHOUT(HEED_HAS_SOFTCAP)},
    {"window_left_low", "window_left", IN_DESC, INVALID, PUT(desc.window_left, -2, INT64_MIN),
     WITH(HEED_HAS_WINDOW)},
    {"window_right_low", "window_right", IN_DESC, INVALID, PUT(desc.window_right, -2, INT64_MIN),
     WITH(HEED_HAS_WINDOW)},
    {"window_left_without_bit", "window_left", IN_DESC, INVALID,
     PUT(desc.window_left, 5, -2, INT64_MIN), WITHOUT(HEED_HAS_WINDOW)},
    {"window_right_without_bit", "window_right", IN_DESC, INVALID,
     PUT(desc.window_right, 5, -2, INT64_MIN), WITHOUT(HEED_HAS_WINDOW)},
    {"max_batch_bad", "max_batch", IN_DESC_AT_PLAN, INVALID, PUT(desc.max_batch, KIT_BAD_SIZES)},
    {"max_q_len_bad", "max_q_len", IN_DESC_AT_PLAN, INVALID, PUT(desc.max_q_len, KIT_BAD_SIZES)},
    {"max_kv_len_bad", "max_kv_len", IN_DESC_AT_PLAN, INVALID, PUT(desc.max_kv_len, KIT_BAD_SIZES)},
    {"desc_struct_size", "struct_size", IN_DESC, HEED_ERR_ABI,
     PUT(desc.struct_size, KIT_BAD_STRUCTS)},
};
/* clang-format on */

const size_t kit_n_desc_mistakes = KIT_COUNT(kit_desc_mistakes);
