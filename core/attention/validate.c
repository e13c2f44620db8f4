/* Checks of a description. Each failure names the argument, its value and the condition. Those of a call's
 * arguments are in validate_args.c. */
#include "validate.h"

#include "base/reason.h"
#include "base/rows.h"

#define MAX_LENGTH INT32_MAX
#define KNOWN_FEATURES ((HEED_HAS_MASK_FROM << 1) - 1)
#define WITH_POSITION (HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_ALIBI)

static heed_status check_heads_and_dims(const heed_attn_desc *desc, heed_error *why)
{
    const heed_number size[] = {{"desc.q_heads", desc->q_heads, 1, 1 << 20},
                                {"desc.kv_heads", desc->kv_heads, 1, 1 << 20},
                                {"desc.qk_dim", desc->qk_dim, 1, 1 << 20},
                                {"desc.v_dim", desc->v_dim, 1, 1 << 20}};
    heed_status st = heed_check_numbers(size, 4, why);
    if (st == HEED_OK && desc->q_heads % desc->kv_heads)
        INVALID("desc.q_heads is %u, a multiple of desc.kv_heads = %u is required", desc->q_heads,
                desc->kv_heads);
    return st;
}

static heed_status check_types(const heed_attn_desc *desc, heed_error *why)
{
    const struct {
        const char *name;
        uint32_t value;
        uint32_t dim; /* of a row, where codes are served */
        const char *dim_name;
    } type[] = {{"q_type", desc->q_type, 0, NULL},
                {"k_type", desc->k_type, desc->qk_dim, "qk_dim"},
                {"v_type", desc->v_type, desc->v_dim, "v_dim"},
                {"out_type", desc->out_type, 0, NULL},
                {"bias_type", desc->bias_type, 0, NULL}};
    int has_bias = (desc->features & HEED_HAS_BIAS) != 0;
    for (int i = 0; i < 4 + has_bias; i++) {
        const uint32_t value = type[i].value;
        if (type[i].dim && heed_is_code(value)) {
            if (type[i].dim % heed_block_len(value))
                return heed_refuse(why, "desc.%s is %u, a multiple of %u is required with %s %s",
                                   type[i].dim_name, type[i].dim, heed_block_len(value),
                                   type[i].name, heed_dtype_name(value));
        } else if (value < HEED_F32 || value > HEED_BF16) {
            INVALID("desc.%s is %u, HEED_F32, HEED_F16 or HEED_BF16%s is required", type[i].name,
                    value, type[i].dim ? " or a type of codes" : "");
        }
    }
    if ((desc->features & HEED_HAS_QUANT) && !heed_takes_scale(desc->k_type) &&
        !heed_takes_scale(desc->v_type))
        INVALID(
            "desc.features has HEED_HAS_QUANT, but neither k_type %s nor v_type %s takes scales",
            heed_dtype_name(desc->k_type), heed_dtype_name(desc->v_type));
    if (!has_bias && desc->bias_type != HEED_DTYPE_NONE)
        INVALID("desc.bias_type is %u without HEED_HAS_BIAS", desc->bias_type);
    return HEED_OK;
}

/* Checks what is said of pages, ranges, key blocks and masks that begin late. */
static heed_status check_lists(const heed_attn_desc *desc, heed_error *why)
{
    const uint64_t f = desc->features;
    const struct {
        const char *name, *feature;
        uint64_t bit;
        uint32_t value, most;
    } size[] = {{"page_len", "PAGES", HEED_HAS_PAGES, desc->page_len, MAX_LENGTH},
                {"n_ranges", "RANGES", HEED_HAS_RANGES, desc->n_ranges, 8},
                {"block_rows", "KEY_BLOCKS", HEED_HAS_KEY_BLOCKS, desc->block_rows, MAX_LENGTH},
                {"block_keys", "KEY_BLOCKS", HEED_HAS_KEY_BLOCKS, desc->block_keys, MAX_LENGTH}};
    for (int i = 0; i < 4; i++) {
        if (f & size[i].bit && (size[i].value == 0 || size[i].value > size[i].most))
            INVALID("desc.%s is %u, 1 to %u is required", size[i].name, size[i].value,
                    size[i].most);
        if (!(f & size[i].bit) && size[i].value)
            INVALID("desc.%s is %u without HEED_HAS_%s", size[i].name, size[i].value,
                    size[i].feature);
    }
    if (f & HEED_HAS_MASK_FROM && !(f & (HEED_HAS_MASK | HEED_HAS_BIAS)))
        INVALID("desc.features has HEED_HAS_MASK_FROM without HEED_HAS_MASK or HEED_HAS_BIAS");
    return HEED_OK;
}

static heed_status check_features(const heed_attn_desc *desc, heed_error *why)
{
    uint64_t f = desc->features;
    if (f & ~KNOWN_FEATURES)
        INVALID("desc.features has the unknown bits 0x%llx",
                (unsigned long long)(f & ~KNOWN_FEATURES));
    if ((f & HEED_HAS_BIAS_SLOPE) && !(f & HEED_HAS_BIAS))
        INVALID("desc.features has HEED_HAS_BIAS_SLOPE without HEED_HAS_BIAS");
    if (desc->position > HEED_POS_GIVEN)
        INVALID("desc.position is %u, HEED_POS_* is required", desc->position);
    if ((f & WITH_POSITION) && desc->position == HEED_POS_UNSET)
        INVALID("desc.position is HEED_POS_UNSET, causal, window and ALiBi need a choice");
    if (desc->accuracy > HEED_ACCURACY_INT8)
        INVALID("desc.accuracy is %u, HEED_ACCURACY_* is required", desc->accuracy);
    if (f & HEED_HAS_SCORES) {
        if (desc->scores_stage < HEED_SCORES_RAW || desc->scores_stage > HEED_SCORES_BIASED)
            INVALID("desc.scores_stage is %u, RAW, SOFTCAPPED or BIASED is required",
                    desc->scores_stage);
    } else if (desc->scores_stage) {
        INVALID("desc.scores_stage is %u without HEED_HAS_SCORES", desc->scores_stage);
    }
    return check_lists(desc, why);
}

static heed_status check_numbers(const heed_attn_desc *desc, heed_error *why)
{
    uint64_t f = desc->features;
    if ((f & HEED_HAS_SCALE) && !isfinite(desc->scale))
        INVALID("desc.scale is %g, a finite value is required", (double)desc->scale);
    if (!(f & HEED_HAS_SCALE) && desc->scale != 0)
        INVALID("desc.scale is %g without HEED_HAS_SCALE", (double)desc->scale);
    if ((f & HEED_HAS_SOFTCAP) && !(desc->softcap >= 0 && isfinite(desc->softcap)))
        INVALID("desc.softcap is %g, a finite value of at least 0 is required",
                (double)desc->softcap);
    if (!(f & HEED_HAS_SOFTCAP) && desc->softcap != 0)
        INVALID("desc.softcap is %g without HEED_HAS_SOFTCAP", (double)desc->softcap);
    const int64_t window[] = {desc->window_left, desc->window_right};
    for (int i = 0; i < 2; i++) {
        const char *side = i ? "right" : "left";
        if (window[i] < -1)
            INVALID("desc.window_%s is %lld, at least -1 is required", side, (long long)window[i]);
        if (!(f & HEED_HAS_WINDOW) && window[i] > 0)
            INVALID("desc.window_%s is %lld without HEED_HAS_WINDOW", side, (long long)window[i]);
    }
    const heed_number max[] = {{"desc.max_batch", desc->max_batch, 0, MAX_LENGTH},
                               {"desc.max_q_len", desc->max_q_len, 0, MAX_LENGTH},
                               {"desc.max_kv_len", desc->max_kv_len, 0, MAX_LENGTH},
                               {"desc.max_rows", desc->max_rows, 0, MAX_LENGTH}};
    heed_status st = heed_check_numbers(max, 4, why);
    if (st == HEED_OK && desc->max_rows && !(f & HEED_HAS_PACKED))
        INVALID("desc.max_rows is %lld without HEED_HAS_PACKED", (long long)desc->max_rows);
    return st;
}

/* BF16 accuracy means something only where q, k and v are all bf16, INT8 only with keys of codes. */
static uint32_t resolve_accuracy(const heed_attn_desc *desc)
{
    int all_bf16 =
        desc->q_type == HEED_BF16 && desc->k_type == HEED_BF16 && desc->v_type == HEED_BF16;
    if (desc->accuracy == HEED_ACCURACY_DEFAULT || desc->accuracy == HEED_ACCURACY_BF16 ||
        (desc->accuracy == HEED_ACCURACY_INT8 && !heed_is_code(desc->k_type)))
        return all_bf16 ? HEED_ACCURACY_BF16 : HEED_ACCURACY_EXACT;
    return desc->accuracy;
}

/* A window that reaches beyond every position is dropped: sums with it would overflow. */
static int64_t resolve_window(const heed_attn_desc *desc, int64_t size)
{
    return desc->features & HEED_HAS_WINDOW && size < HEED_UNBOUNDED ? size : -1;
}

heed_status heed_validate_desc(const heed_attn_desc *desc, heed_problem *problem, heed_error *why)
{
    heed_status st = check_heads_and_dims(desc, why);
    if (st == HEED_OK)
        st = check_features(desc, why);
    if (st == HEED_OK)
        st = check_types(desc, why);
    if (st == HEED_OK)
        st = check_numbers(desc, why);
    if (st != HEED_OK)
        return st;
    heed_problem p = {
        .struct_size = sizeof p,
        .features = desc->features,
        .q_heads = desc->q_heads,
        .kv_heads = desc->kv_heads,
        .qk_dim = desc->qk_dim,
        .v_dim = desc->v_dim,
        .q_type = desc->q_type,
        .k_type = desc->k_type,
        .v_type = desc->v_type,
        .out_type = desc->out_type,
        .bias_type = desc->bias_type,
        .scores_stage = desc->scores_stage,
        .page_len = desc->page_len,
        .accuracy = resolve_accuracy(desc),
        .scale =
            desc->features & HEED_HAS_SCALE ? desc->scale : (float)(1 / sqrt((double)desc->qk_dim)),
        .softcap = desc->softcap,
        .window_left = resolve_window(desc, desc->window_left),
        .window_right = resolve_window(desc, desc->window_right),
        .n_ranges = desc->n_ranges,
        .block_rows = desc->block_rows,
        .block_keys = desc->block_keys,
    };
    if (p.softcap == 0)
        p.features &= ~HEED_HAS_SOFTCAP;
    if (p.window_left < 0 && p.window_right < 0)
        p.features &= ~HEED_HAS_WINDOW;
    *problem = p;
    return HEED_OK;
}
