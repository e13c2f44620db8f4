/* What a caller may get wrong: each mistake has to come back with its status, a sentence that names
 * the argument, and untouched outputs, whichever call meets it first. */
#include "errors.h"

#include <heed/formats.h>

#include "cases.h"
#include "mistake.h"
#include "run.h"

#include <stdio.h>
#include <string.h>

/* Where a mistake is found. AT_PLAN: heed_attention does not look at it; IN_RUN: a begun run neither.
 * IN_CALL: of a description that is good by itself, by heed_attention alone. */
enum { IN_DESC, IN_DESC_AT_PLAN, IN_ARGS, IN_ARGS_AT_PLAN, IN_RUN, IN_CALL };

/* Of mistakes that are none in an empty problem. */
#define ELEMENTS (UINT64_C(1) << 62)
/* Of keys or values whose codes lie in blocks, and of those in E4M3. */
#define K_BLOCKS (UINT64_C(1) << 61)
#define V_BLOCKS (UINT64_C(1) << 60)
#define F8 (UINT64_C(1) << 59)

static int is_empty(const kit_problem *p)
{
    return p->args.batch == 0 || p->args.q_len == 0 || p->args.kv_len == 0;
}

/* ---- mistakes that are more than a field ------------------------------------------------------
 */

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

/* A type whose blocks a row is not whole ones of. */
static const char *torn_row(void *call, int arg, uint32_t pick)
{
    static const uint32_t type[] = {HEED_U4,   HEED_Q8_0, HEED_Q4_0,  HEED_Q4_1,
                                    HEED_Q5_0, HEED_Q5_1, HEED_IQ4_NL};
    heed_attn_desc *d = &((kit_problem *)call)->desc;
    *(arg ? &d->v_type : &d->k_type) = type[pick % KIT_COUNT(type)];
    *(arg ? &d->v_dim : &d->qk_dim) |= 1;
    return arg ? "v_dim" : "qk_dim";
}

/* Of tensors that take no scales. */
static const char *quant_of_none(void *call, int arg, uint32_t pick)
{
    heed_attn_desc *d = &((kit_problem *)call)->desc;
    (void)arg, (void)pick;
    d->features |= HEED_HAS_QUANT;
    return heed_takes_scale(d->k_type) || heed_takes_scale(d->v_type) ? NULL : "HEED_HAS_QUANT";
}

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

/* ---- of keys and values in codes: arg 0 is k, 1 v ---- */

static heed_quant *quant_of(kit_problem *p, int is_v)
{
    return is_v ? &p->args.v_quant : &p->args.k_quant;
}

/* A stride that tears blocks, or dims that are not adjacent. */
static const char *torn_block(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    const kit_tensor *t = &p->tensor[arg ? KIT_V : KIT_K];
    int64_t *stride = arg ? p->args.v.stride : p->args.k.stride;
    const int axis = (int)(pick % 4);
    if (t->block_len < 2 || (axis < 3 && t->shape[axis] < 2))
        return NULL;
    if (axis == 3)
        stride[3] = pick & 4 ? 0 : pick & 8 ? 2 : -1;
    else
        stride[axis] += 1 + (pick >> 2) % (t->block_len - 1);
    return arg ? "args.v.stride" : "args.k.stride";
}

/* What of scales is given without them. */
static const char *part_of_none(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    heed_quant *quant = quant_of(p, arg);
    if (quant->scale)
        return NULL;
    if (pick % 4 == 0)
        quant->zero = p->sink;
    else if (pick % 4 == 1)
        quant->group = 1 + pick;
    else if (pick % 4 == 2)
        quant->key_group = 1 + pick;
    else
        quant->stride[pick / 4 % 4] = 1;
    return arg ? "v_quant" : "k_quant";
}

static const char *scales_of_none(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)pick;
    if (!(p->desc.features & HEED_HAS_QUANT) ||
        heed_takes_scale(arg ? p->desc.v_type : p->desc.k_type))
        return NULL;
    quant_of(p, arg)->scale = p->sink;
    return arg ? "v_quant.scale" : "k_quant.scale";
}

static const char *zeros_of_f8(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    heed_quant *quant = quant_of(p, arg);
    (void)pick;
    quant->zero = quant->scale;
    return quant->scale && (arg ? p->desc.v_type : p->desc.k_type) == HEED_F8_E4M3
               ? (arg ? "v_quant.zero" : "k_quant.zero")
               : NULL;
}

static const char *stride_of_no_group(void *call, int arg, uint32_t pick)
{
    heed_quant *quant = quant_of(call, arg);
    quant->stride[3] = pick & 1 ? 1 : -7;
    return quant->scale && !quant->group ? (arg ? "v_quant.stride[3]" : "k_quant.stride[3]") : NULL;
}

/* Sizes do not matter, but there are keys that scales would be of. */
static const char *no_scales(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)arg, (void)pick;
    memset(&p->args.k_quant, 0, sizeof p->args.k_quant);
    memset(&p->args.v_quant, 0, sizeof p->args.v_quant);
    return "k_quant";
}

/* A sequence that begins between two groups of keys. */
static const char *start_in_group(void *call, int arg, uint32_t pick)
{
    static char word[40];
    kit_problem *p = call;
    heed_quant *quant = quant_of(p, arg);
    const int64_t b = pick % (uint32_t)p->args.batch;
    if (!p->args.kv_starts || !quant->scale)
        return NULL;
    quant->key_group = 7;
    for (int64_t i = 0; i <= b; i++)
        if (p->kv_starts[i] % 7) {
            snprintf(word, sizeof word, "kv_starts[%lld]", (long long)i);
            return word;
        }
    return NULL;
}

/* Of an empty problem too: whether an argument is there does not depend on the sizes. */
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

static const char *no_room_for_rows(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)arg;
    (void)pick;
    p->desc.max_rows = 0;
    return p->args.q_starts && p->q_lens[0] > 0 ? "desc.max_rows" : NULL;
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
        return NULL; /* no row there, however far */
    if (!(arg ? p->args.kv_starts : p->args.q_starts)) {
        if (!arg || p->args.block_table || pick % 4 > 1)
            return NULL;
        p->args.kv_starts = p->kv_starts; /* where it lacks it may be given */
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

/* Negative, beyond the keys, the wrong way round, inside the one before it, or from inside of it on. */
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
    if (b == p->spec.batch || (kind >= 7 && n == 1)) /* overlaps with nothing */
        return NULL;
    const int64_t i = (pick / 18) % p->q_lens[b];
    const int32_t keys = p->kv_lens[b];
    const int32_t bad[9][2] = {
        {-1, 1},           {0, keys + 1},        {1, 0},   {INT32_MIN, INT32_MAX},
        {keys, INT32_MAX}, {keys + 1, keys + 1}, {-1, -1}, {0, 1},
        {1, 2}};
    guard_open(&p->ranges);
    int32_t *to = (int32_t *)(void *)p->ranges.data + 2 * (b * t[0] + h * t[1] + i * t[2]);
    for (uint32_t k = 0; k < n; k++) {
        to[2 * k * t[3]] = k == 0 && kind >= 7 ? 0 : bad[kind][0];
        to[2 * k * t[3] + 1] = k == 0 && kind >= 7 ? 2 : bad[kind][1];
    }
    /* Another sequence or head may have the same list, and is read first. */
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
    /* Lacks parallel_for, or threads too, or its size. */
    static const heed_executor executors[] = {
        {.struct_size = sizeof(heed_executor), .n_threads = 2},
        {.struct_size = sizeof(heed_executor)}};
    (void)arg;
    ((kit_problem *)call)->args.executor = &executors[pick % 2];
    return "executor";
}

/* ---- all of them ------------------------------------------------------------------------------
 */

/* clang-format off */
#define INVALID HEED_ERR_INVALID
#define REFUSED HEED_ERR_UNSUPPORTED
#define SOME_KEYS                                                                              \
    (HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS)
#define RANGE (HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_ALIBI)
#define PUT(field, ...) KIT_CHANGE(kit_problem, KIT_PUT, field, __VA_ARGS__)
#define OR(field, ...) KIT_CHANGE(kit_problem, KIT_OR, field, __VA_ARGS__)
#define ADD(field, ...) KIT_CHANGE(kit_problem, KIT_ADD, field, __VA_ARGS__)
#define DO(function, of, kinds) .make = (function), .arg = (of), .n = (kinds)
#define WITH(bits) .with = (bits)
#define WITHOUT(bits) .without = (bits)

static const kit_mistake mistakes[] = {
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
    {"k_torn_block", "args.k", IN_ARGS, INVALID, DO(torn_block, 0, 16), WITH(K_BLOCKS | ELEMENTS)},
    {"v_torn_block", "args.v", IN_ARGS, INVALID, DO(torn_block, 1, 16), WITH(V_BLOCKS | ELEMENTS)},
    {"k_scale_strides", "k_quant", IN_ARGS, INVALID, DO(broken_stride, KIT_K_SCALE, 32),
     WITH(HEED_HAS_QUANT | ELEMENTS)},
    {"v_scale_strides", "v_quant", IN_ARGS, INVALID, DO(broken_stride, KIT_V_SCALE, 32),
     WITH(HEED_HAS_QUANT | ELEMENTS)},
    {"k_quant_without_scale", "k_quant", IN_ARGS, INVALID, DO(part_of_none, 0, 16)},
    {"v_quant_without_scale", "v_quant", IN_ARGS, INVALID, DO(part_of_none, 1, 16)},
    {"k_quant_of_none", "k_quant", IN_ARGS, INVALID, DO(scales_of_none, 0, 1),
     WITH(HEED_HAS_QUANT | K_BLOCKS)},
    {"v_quant_of_none", "v_quant", IN_ARGS, INVALID, DO(scales_of_none, 1, 1),
     WITH(HEED_HAS_QUANT | V_BLOCKS)},
    {"k_zero_of_f8", "k_quant", IN_ARGS, INVALID, DO(zeros_of_f8, 0, 1), WITH(HEED_HAS_QUANT | F8)},
    {"v_zero_of_f8", "v_quant", IN_ARGS, INVALID, DO(zeros_of_f8, 1, 1), WITH(HEED_HAS_QUANT | F8)},
    {"k_scale_stride_of_no_group", "k_quant", IN_ARGS, INVALID, DO(stride_of_no_group, 0, 2),
     WITH(HEED_HAS_QUANT)},
    {"v_scale_stride_of_no_group", "v_quant", IN_ARGS, INVALID, DO(stride_of_no_group, 1, 2),
     WITH(HEED_HAS_QUANT)},
    {"quant_null", "k_quant", IN_ARGS, INVALID, DO(no_scales, 0, 1), WITH(HEED_HAS_QUANT | ELEMENTS)},
    {"k_start_in_group", "kv_starts", IN_ARGS, INVALID, DO(start_in_group, 0, 4),
     WITH(HEED_HAS_QUANT | HEED_HAS_PACKED | ELEMENTS)},
    {"v_start_in_group", "kv_starts", IN_ARGS, INVALID, DO(start_in_group, 1, 4),
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
    /* A page that nobody sees may be bad. */
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
    {"executor_bad", "executor", IN_RUN, INVALID, DO(bad_executor, 0, 2)},
    {"empty_q_offsets_null", "q_offsets", IN_ARGS, INVALID, DO(no_offsets, 1, 1),
     WITH(HEED_HAS_CAUSAL)},
    {"empty_sink_without_bit", "sink", IN_ARGS, INVALID, DO(empty_with_sink, 0, 1),
     WITHOUT(HEED_HAS_SINK)},
    {"empty_lens_null", "q_lens", IN_ARGS, INVALID, DO(no_lens, 1, 1), WITH(HEED_HAS_LENS)},
};
/* clang-format on */

size_t kit_mistakes(void)
{
    return KIT_COUNT(mistakes);
}

/* ---- what comes back --------------------------------------------------------------------------
 */

/* The call has failed: was it for the reason that it should, and did it leave the outputs alone? */
static void judge(const kit_mistake *m, const char *word, kit_problem *p, const char *call,
                  heed_status status, const char *sentence, kit_outcome *outcome)
{
    kit_judge_refusal(m, word, call, status, sentence, outcome);
    for (int t = KIT_OUT; t < KIT_TENSORS; t++)
        if ((t == KIT_OUT || t >= KIT_LSE) && !kit_is_canary(&p->buffer[t]))
            kit_fail(outcome, "%s: %s failed and yet wrote to an output", m->name, call);
}

static void spoiled_desc(heed_context *context, const kit_mistake *m, const char *word,
                         kit_problem *p, kit_outcome *outcome)
{
    heed_error why = {""};
    heed_attn *plan = NULL;
    judge(m, word, p, "heed_attn_create", heed_attn_create(context, &p->desc, &plan),
          heed_last_error(), outcome);
    if (plan)
        kit_fail(outcome, "%s: heed_attn_create failed and yet gave a plan", m->name);
    heed_status status = heed_attn_supported(context, &p->desc, &why);
    judge(m, word, p, "heed_attn_supported", status, why.text, outcome);
    if (m->where == IN_DESC_AT_PLAN)
        return;
    p->args.error = &why;
    why.text[0] = '\0';
    status = heed_attention(context, &p->desc, &p->args);
    judge(m, word, p, "heed_attention", status, why.text, outcome);
}

static void spoiled_args(heed_context *context, const kit_mistake *m, const char *word,
                         const heed_attn *plan, kit_problem *p, kit_outcome *outcome)
{
    heed_error why = {""};
    guard_buffer workspace = {0};
    heed_status status;
    if (m->where != IN_CALL)
        judge(m, word, p, "heed_attn_run", heed_attn_run(plan, &p->args, NULL, 0),
              heed_last_error(), outcome);
    size_t bytes = (heed_attn_workspace_bytes(plan, 2) + 63) / 64 * 64;
    if (m->where != IN_RUN && m->where != IN_CALL &&
        guard_map(&workspace, bytes, GUARD_HIGH, 0, 0xff) == 0) {
        p->args.error = &why;
        status = heed_attn_begin(plan, &p->args, 2, workspace.data, bytes);
        /* args of an unknown size: where its `error` is cannot be known either. */
        judge(m, word, p, "heed_attn_begin", status,
              m->status == HEED_ERR_ABI ? heed_last_error() : why.text, outcome);
        if (status != HEED_OK && heed_run_part(workspace.data, 0) == HEED_OK)
            kit_fail(outcome, "%s: heed_run_part succeeds on a run that did not begin", m->name);
        guard_unmap(&workspace);
    }
    if (m->where != IN_ARGS_AT_PLAN) {
        p->args.error = NULL;
        status = heed_attention(context, &p->desc, &p->args);
        judge(m, word, p, "heed_attention", status, heed_last_error(), outcome);
    }
}

int kit_refuses(heed_context *context, kit_problem *p, size_t which, uint32_t pick,
                kit_outcome *outcome)
{
    const kit_mistake *m = &mistakes[which];
    const uint64_t has =
        p->desc.features | (is_empty(p) ? 0 : ELEMENTS) |
        (heed_block_len(p->desc.k_type) > 1 ? K_BLOCKS : 0) |
        (heed_block_len(p->desc.v_type) > 1 ? V_BLOCKS : 0) |
        (p->desc.k_type == HEED_F8_E4M3 || p->desc.v_type == HEED_F8_E4M3 ? F8 : 0);
    heed_attn *plan = NULL;
    const char *word = NULL;
    if ((has & m->with) != m->with || has & m->without)
        return 0;
    heed_status status = heed_attn_create(context, &p->desc, &plan);
    if (kit_status(outcome, status, heed_last_error(), "heed_attn_create") == 0 &&
        (word = kit_make_mistake(m, p, pick)) != NULL) {
        if (m->where == IN_DESC || m->where == IN_DESC_AT_PLAN)
            spoiled_desc(context, m, word, p, outcome);
        else
            spoiled_args(context, m, word, plan, p, outcome);
    }
    heed_attn_release(plan);
    return word != NULL;
}

/* ---- the cases --------------------------------------------------------------------------------
 */

static kit_spec good_problem(uint64_t features)
{
    kit_spec s = {.q_type = HEED_F32, .k_type = HEED_F32, .v_type = HEED_F32, .out_type = HEED_F32};
    s.features = features & ~(HEED_HAS_LENS | HEED_HAS_PACKED | HEED_HAS_PAGES | HEED_HAS_QUANT |
                              HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS | ELEMENTS | K_BLOCKS | V_BLOCKS |
                              F8);
    s.lists = (features & HEED_HAS_RANGES ? KIT_LISTS_RANGES : 0) |
              (features & HEED_HAS_KEY_BLOCKS ? KIT_LISTS_BLOCKS : 0);
    s.n_ranges = features & HEED_HAS_RANGES ? 3 : 0;
    s.block_rows = s.block_keys = features & HEED_HAS_KEY_BLOCKS ? 8 : 0;
    if (features & (HEED_HAS_PACKED | HEED_HAS_PAGES)) {
        s.storage = !(features & HEED_HAS_PAGES) ? KIT_RAGGED_Q
                    : features & HEED_HAS_PACKED ? KIT_PAGED_RAGGED
                                                 : KIT_PAGED;
        s.page_len = 8;
    }
    if (features & HEED_HAS_QUANT) {
        s.k_type = s.v_type = features & F8 ? HEED_F8_E4M3 : HEED_U8;
        s.k_scales = s.v_scales = (kit_scales){KIT_SCALES_TOKEN, 1};
        if (features & HEED_HAS_PACKED)
            s.storage = KIT_RAGGED;
    }
    if (features & (K_BLOCKS | V_BLOCKS))
        s.qk_dim = s.v_dim = 64;
    if (features & K_BLOCKS)
        s.k_type = HEED_Q4_1;
    if (features & V_BLOCKS)
        s.v_type = features & HEED_HAS_QUANT ? HEED_Q8_0 : HEED_U4;
    s.lens = features & HEED_HAS_LENS ? KIT_LENS_BOTH : KIT_LENS_FULL;
    if (features & RANGE)
        s.position = HEED_POS_GIVEN;
    if (features & HEED_HAS_SCORES)
        s.scores_stage = HEED_SCORES_RAW;
    kit_complete(&s);
    return s;
}

static void run_mistake(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const kit_mistake *m = &mistakes[c->variant];
    const kit_spec spec = good_problem(m->with);
    int n_made = 0;
    for (uint32_t pick = 0; pick < m->n; pick++) {
        kit_problem p;
        if (kit_build(&p, &spec, GUARD_HIGH) != 0)
            kit_fail(outcome, "out of memory");
        else
            n_made += kit_refuses(env->context, &p, (size_t)c->variant, pick, outcome);
        kit_free(&p);
    }
    if (n_made == 0 && outcome->verdict == KIT_PASSED)
        kit_fail(outcome, "the mistake was not made");
}

/* A workspace that is too small, parts that do not exist, and a good call after all of that. */
static void run_workspace(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const kit_mistake small = {.name = "a small workspace", .status = HEED_ERR_NOMEM};
    static const kit_mistake part = {.name = "a part too many", .status = HEED_ERR_INVALID};
    kit_problem p;
    guard_buffer workspace = {0};
    heed_attn *plan = NULL;
    (void)c;
    const kit_spec spec = good_problem(0);
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
        judge(&small, "workspace", &p, "heed_attn_run",
              heed_attn_run(plan, &p.args, workspace.data, one - 1), heed_last_error(), outcome);
        judge(&small, "workspace", &p, "heed_attn_begin",
              heed_attn_begin(plan, &p.args, 2, workspace.data, two - 1), heed_last_error(),
              outcome);
        if (heed_run_part(workspace.data, 0) != HEED_ERR_INVALID)
            kit_fail(outcome, "heed_run_part takes a workspace that was not begun");
        if (heed_attn_begin(plan, &p.args, 0, workspace.data, two) != HEED_ERR_INVALID)
            kit_fail(outcome, "heed_attn_begin takes 0 parts");
        if (heed_attn_begin(plan, &p.args, 2, workspace.data, two) != HEED_OK)
            kit_fail(outcome, "heed_attn_begin fails: %s", heed_last_error());
        judge(&part, "part", &p, "heed_run_part", heed_run_part(workspace.data, 2),
              heed_last_error(), outcome);
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
    for (size_t n = 0; n < KIT_COUNT(mistakes); n++) {
        kit_case c = {.quick = 1, .run = run_mistake, .variant = (int)n};
        const int codes = (mistakes[n].with & (HEED_HAS_QUANT | K_BLOCKS | V_BLOCKS | F8)) != 0;
        snprintf(c.name, sizeof c.name, "%s%s/f32", codes ? "codes/error_" : "error/",
                 mistakes[n].name);
        kit_add(list, &c);
    }
    kit_case c = {.name = "error/workspace_and_parts/f32", .quick = 1, .run = run_workspace};
    kit_add(list, &c);
}
