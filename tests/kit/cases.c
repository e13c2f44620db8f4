/* Cases: every option alone and in its forms, every layout, every mix of types. See cases.h. */
#include "cases.h"
#include "decode.h"
#include "random.h"
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define ALL_OUTPUTS (HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_SCORES)

const char *kit_type_name(uint32_t type)
{
    return heed_dtype_name(type);
}

void kit_add(kit_list *list, const kit_case *c)
{
    uint64_t seed = UINT64_C(0xcbf29ce484222325); /* FNV-1a of the name */
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 256;
        kit_case *item = realloc(list->item, room * sizeof *item);
        if (!item) {
            fputs("heed check: out of memory\n", stderr);
            exit(1);
        }
        list->item = item;
        list->room = room;
    }
    for (const char *p = c->name; *p; p++)
        seed = (seed ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    list->item[list->n] = *c;
    list->item[list->n++].spec.seed = seed;
}

void kit_complete(kit_spec *s)
{
    if (!s->q_heads)
        s->q_heads = 4, s->kv_heads = 2;
    if (!s->qk_dim)
        s->qk_dim = s->v_dim = 24;
    if (!s->batch)
        s->batch = 2;
    if (!s->q_len && !s->kv_len)
        s->q_len = 19, s->kv_len = 37;
    if (!s->bias_type)
        s->bias_type = s->q_type;
}

void kit_add_types(kit_list *list, const char *group, const char *what, const kit_spec *spec,
                   int quick)
{
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
        kit_case c = {.quick = quick, .run = kit_conform, .spec = *spec};
        int overflow = spec->values >= KIT_OVERFLOW_LOW && spec->values <= KIT_OVERFLOW_HIGH;
        if (type == HEED_F16 && overflow)
            continue; /* q * k of f16 cannot leave the range of f32 */
        c.spec.q_type = c.spec.k_type = c.spec.v_type = c.spec.out_type = type;
        kit_complete(&c.spec);
        snprintf(c.name, sizeof c.name, "%s/%s/%s", group, what, kit_type_name(type));
        kit_add(list, &c);
    }
}

typedef struct named_spec {
    const char *name;
    kit_spec spec;
} named_spec;

#define CAUSAL HEED_HAS_CAUSAL
#define WINDOW HEED_HAS_WINDOW
#define GIVEN .position = HEED_POS_GIVEN
#define TOP .position = HEED_POS_TOP_LEFT
#define BOTTOM .position = HEED_POS_BOTTOM_RIGHT
#define SEES(left, right) .window_left = (left), .window_right = (right)
#define BIASED(kind) .features = HEED_HAS_BIAS, .bias_kind = (kind)
#define MASKED(kind) .features = HEED_HAS_MASK, .mask_kind = (kind)

/* clang-format off */
static const named_spec features[] = {
    {"plain", {.batch = 2}},
    {"scale", {.features = HEED_HAS_SCALE, .scale = 0.3F}},
    {"scale_negative", {.features = HEED_HAS_SCALE, .scale = -0.3F}},
    {"scale_zero", {.features = HEED_HAS_SCALE, .scale = 0}},
    {"softcap", {.features = HEED_HAS_SOFTCAP, .softcap = 1.5F}},
    {"softcap_wide", {.features = HEED_HAS_SOFTCAP, .softcap = 50}},
    {"softcap_off", {.features = HEED_HAS_SOFTCAP, .softcap = 0}},
    {"softcap_scale", {.features = HEED_HAS_SOFTCAP | HEED_HAS_SCALE, .softcap = 2, .scale = 3}},
    {"causal_top_left", {.features = CAUSAL, TOP}},
    {"causal_bottom_right", {.features = CAUSAL, BOTTOM}},
    {"causal_more_rows_than_keys", {.features = CAUSAL, BOTTOM, .q_len = 37, .kv_len = 19}},
    {"causal_top_left_more_rows", {.features = CAUSAL, TOP, .q_len = 37, .kv_len = 19}},
    {"causal_given", {.features = CAUSAL, GIVEN}},
    {"causal_negative", {.features = CAUSAL, GIVEN, .offsets = KIT_OFFSET_NEGATIVE}},
    {"causal_mixed", {.features = CAUSAL, GIVEN, .offsets = KIT_OFFSET_MIXED, .batch = 4}},
    {"causal_extreme", {.features = CAUSAL, GIVEN, .offsets = KIT_OFFSET_EXTREME}},
    {"window_left", {.features = WINDOW, TOP, SEES(5, -1)}},
    {"window_right", {.features = WINDOW, TOP, SEES(-1, 4)}},
    {"window_both", {.features = WINDOW, BOTTOM, SEES(5, 3)}},
    {"window_self_only", {.features = WINDOW, TOP, SEES(0, 0)}},
    {"window_unbounded", {.features = WINDOW, TOP, SEES(-1, -1)}},
    {"window_wider_than_all", {.features = WINDOW, BOTTOM, SEES(4000000000, 4000000000)}},
    {"window_negative", {.features = WINDOW, GIVEN, SEES(3, 2), .offsets = KIT_OFFSET_NEGATIVE}},
    {"window_past_the_end", {.features = WINDOW, GIVEN, SEES(3, 2), .offsets = KIT_OFFSET_SEEN}},
    {"window_extreme", {.features = WINDOW, GIVEN, SEES(3, 2), .offsets = KIT_OFFSET_EXTREME}},
    {"window_causal", {.features = WINDOW | CAUSAL, BOTTOM, SEES(6, -1)}},
    {"window_causal_right", {.features = WINDOW | CAUSAL, BOTTOM, SEES(6, 9)}},
    {"alibi_top_left", {.features = HEED_HAS_ALIBI, TOP}},
    {"alibi_bottom_right", {.features = HEED_HAS_ALIBI, BOTTOM}},
    {"alibi_given", {.features = HEED_HAS_ALIBI, GIVEN, .offsets = KIT_OFFSET_MIXED, .batch = 4}},
    {"alibi_extreme",
     {.features = HEED_HAS_ALIBI | HEED_HAS_SINK | HEED_HAS_LSE, GIVEN, .offsets = KIT_OFFSET_EXTREME}},
    {"alibi_causal", {.features = HEED_HAS_ALIBI | CAUSAL, BOTTOM}},
    {"mask", {MASKED(KIT_MASK_RANDOM)}},
    {"mask_empty_rows", {MASKED(KIT_MASK_EMPTY_ROWS)}},
    {"mask_all", {MASKED(KIT_MASK_ALL)}},
    {"mask_none", {MASKED(KIT_MASK_NONE)}},
    {"mask_blocks", {MASKED(KIT_MASK_BLOCKS), .q_len = 70, .kv_len = 200}},
    {"mask_first_keys", {MASKED(KIT_MASK_FIRST_KEYS)}},
    {"mask_tree", {MASKED(KIT_MASK_TREE), .q_len = 37, .kv_len = 37}},
    {"mask_causal", {.features = HEED_HAS_MASK | CAUSAL, BOTTOM}},
    {"bias", {BIASED(KIT_BIAS_NORMAL)}},
    {"bias_inf", {BIASED(KIT_BIAS_INF)}},
    {"bias_empty_rows", {BIASED(KIT_BIAS_EMPTY_ROWS)}},
    {"bias_filler", {BIASED(KIT_BIAS_FILLER)}},
    {"bias_slope", {.features = HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE, .bias_kind = KIT_BIAS_INF}},
    {"bias_softcap", {.features = HEED_HAS_BIAS | HEED_HAS_SOFTCAP, .softcap = 1}},
    {"bias_mask", {.features = HEED_HAS_BIAS | HEED_HAS_MASK, .bias_kind = KIT_BIAS_INF}},
    {"sink", {.features = HEED_HAS_SINK}},
    {"sink_some_off", {.features = HEED_HAS_SINK, .sinks = KIT_SINK_SOME_OFF}},
    {"sink_off", {.features = HEED_HAS_SINK, .sinks = KIT_SINK_OFF}},
    {"sink_huge", {.features = HEED_HAS_SINK, .sinks = KIT_SINK_HUGE}},
    {"sink_empty_rows",
     {.features = HEED_HAS_SINK | HEED_HAS_MASK, .mask_kind = KIT_MASK_EMPTY_ROWS}},
    {"sink_infinite_empty_rows",
     {.features = HEED_HAS_SINK | HEED_HAS_MASK,
      .mask_kind = KIT_MASK_EMPTY_ROWS,
      .sinks = KIT_SINK_INFINITE}},
    {"sink_off_empty_rows",
     {.features = HEED_HAS_SINK | HEED_HAS_MASK,
      .mask_kind = KIT_MASK_NONE,
      .sinks = KIT_SINK_SOME_OFF}},
    {"lens_kv", {.lens = KIT_LENS_KV, .batch = 4}},
    {"lens_q", {.lens = KIT_LENS_Q, .batch = 4}},
    {"lens_both", {.lens = KIT_LENS_BOTH, .batch = 4}},
    {"lens_zeros", {.lens = KIT_LENS_ZEROS, .batch = 4}},
    {"lens_causal", {.features = CAUSAL, BOTTOM, .lens = KIT_LENS_BOTH, .batch = 4}},
    {"lens_sink_zeros", {.features = HEED_HAS_SINK, .lens = KIT_LENS_ZEROS, .batch = 4}},
    {"reproducible", {.features = HEED_HAS_REPRODUCIBLE_CHUNKS}},
    {"exact", {.accuracy = HEED_ACCURACY_EXACT}},
    {"bf16", {.accuracy = HEED_ACCURACY_BF16}},
    {"split", {.accuracy = HEED_ACCURACY_SPLIT}},
    {"everything",
     {.features = HEED_HAS_SCALE | HEED_HAS_SOFTCAP | CAUSAL | WINDOW | HEED_HAS_ALIBI |
                  HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE | HEED_HAS_SINK,
      GIVEN,
      SEES(17, 3),
      .scale = 0.4F,
      .softcap = 3,
      .offsets = KIT_OFFSET_MIXED,
      .batch = 4,
      .bias_kind = KIT_BIAS_INF,
      .lens = KIT_LENS_BOTH,
      .layout = KIT_BSHD}},
};
/* clang-format on */

/* Every subset of the optional outputs, at every stage, on a problem where the stages differ. */
static void add_outputs(kit_list *list)
{
    static const char *const stage[] = {"", "_raw", "_softcapped", "_biased"};
    for (uint32_t bits = 0; bits < 4; bits++)
        for (uint32_t s = HEED_SCORES_NONE; s <= HEED_SCORES_BIASED; s++) {
            kit_spec spec = {.features = HEED_HAS_SOFTCAP | HEED_HAS_BIAS | HEED_HAS_MASK | CAUSAL,
                             .softcap = 2,
                             .bias_kind = KIT_BIAS_INF,
                             BOTTOM,
                             .lens = KIT_LENS_KV};
            char name[64];
            spec.features |= (bits & 1 ? HEED_HAS_LSE : 0) | (bits & 2 ? HEED_HAS_WEIGHTS : 0) |
                             (s ? HEED_HAS_SCORES : 0);
            spec.scores_stage = s;
            snprintf(name, sizeof name, "out%s%s%s", bits & 1 ? "_lse" : "",
                     bits & 2 ? "_weights" : "", stage[s]);
            kit_add_types(list, "outputs", name, &spec, s == HEED_SCORES_BIASED);
            if (bits != 3 || !s)
                continue;
            spec.features |= HEED_HAS_SINK | HEED_HAS_ALIBI;
            spec.mask_kind = KIT_MASK_EMPTY_ROWS;
            strcat(name, "_sink_empty_rows");
            kit_add_types(list, "outputs", name, &spec, 0);
        }
}

static void add_forms(kit_list *list)
{
    for (uint32_t form = 0; form < 16; form++) {
        char name[64];
        kit_spec spec = {.features = HEED_HAS_MASK, .mask_form = form};
        snprintf(name, sizeof name, "mask_%s%s%s%s", form & 1 ? "1" : "b", form & 2 ? "1" : "h",
                 form & 4 ? "1" : "q", form & 8 ? "1" : "k");
        kit_add_types(list, "form", name, &spec, form == 7);
        spec = (kit_spec){.features = HEED_HAS_BIAS, .bias_form = form, .bias_kind = KIT_BIAS_INF};
        memcpy(name, "bias", 4);
        kit_add_types(list, "form", name, &spec, form == 3);
        for (uint32_t type = HEED_F32; form % 5 == 0 && type <= HEED_BF16; type++) {
            char typed[80];
            spec.bias_type = type;
            snprintf(typed, sizeof typed, "%s_of_%s", name, kit_type_name(type));
            kit_add_types(list, "form", typed, &spec, 0);
        }
    }
}

const char *kit_layout_name(uint32_t layout)
{
    static const char *const name[KIT_LAYOUTS] = {
        "bhsd",     "bshd",      "packed_qkv",   "packed_qkv_out", "kv_pairs", "padded",
        "negative", "dim_major", "dim_reversed", "shared",         "v_in_k",   "odd_address"};
    return name[layout];
}

static void add_layouts(kit_list *list)
{
    for (uint32_t layout = 0; layout < KIT_LAYOUTS; layout++) {
        kit_spec spec = {.layout = layout,
                         .features = ALL_OUTPUTS | HEED_HAS_MASK | HEED_HAS_BIAS,
                         .scores_stage = HEED_SCORES_BIASED};
        char what[64];
        kit_add_types(list, "layout", kit_layout_name(layout), &spec, 1);
        spec = (kit_spec){.layout = layout,
                          .features = CAUSAL,
                          BOTTOM,
                          .q_len = 33,
                          .kv_len = 65,
                          .qk_dim = 64,
                          .v_dim = 48,
                          .lens = KIT_LENS_KV};
        snprintf(what, sizeof what, "%s_causal", kit_layout_name(layout));
        kit_add_types(list, "layout", what, &spec, 0);
        spec = (kit_spec){.layout = layout,
                          .q_len = 1,
                          .kv_len = 70,
                          .qk_dim = 80,
                          .v_dim = 80,
                          .q_heads = 8,
                          .kv_heads = 2,
                          .lens = KIT_LENS_KV};
        snprintf(what, sizeof what, "%s_decode", kit_layout_name(layout));
        kit_add_types(list, "layout", what, &spec, 0);
    }
}

static void add_heads(kit_list *list)
{
    static const uint32_t heads[][2] = {{1, 1},  {2, 2},  {5, 5},  {3, 1}, {4, 1},  {7, 1},
                                        {8, 1},  {6, 2},  {6, 3},  {8, 2}, {12, 3}, {16, 2},
                                        {32, 4}, {33, 3}, {64, 1}, {96, 2}};
    for (size_t n = 0; n < COUNT(heads); n++)
        for (int decode = 0; decode < 2; decode++) {
            kit_spec spec = {.q_heads = heads[n][0],
                             .kv_heads = heads[n][1],
                             .features = HEED_HAS_SINK | HEED_HAS_ALIBI | CAUSAL | HEED_HAS_LSE,
                             BOTTOM,
                             .q_len = decode ? 1 : 11,
                             .kv_len = 29};
            char name[64];
            snprintf(name, sizeof name, "%u_over_%u%s", heads[n][0], heads[n][1],
                     decode ? "_decode" : "");
            kit_add_types(list, "heads", name, &spec, n == 7);
        }
    /* Few rows of many heads, of which prefill's panels are filled where keys are long enough to be cut. */
    for (int few = 0; few < 2; few++) {
        kit_spec spec = {.q_heads = 50,
                         .kv_heads = 1,
                         .features = HEED_HAS_SINK | CAUSAL | HEED_HAS_MASK | ALL_OUTPUTS,
                         .scores_stage = HEED_SCORES_BIASED,
                         BOTTOM,
                         .q_len = few ? 3 : 1,
                         .kv_len = 2300,
                         .qk_dim = 40,
                         .v_dim = 24};
        kit_add_types(list, "heads", few ? "50_over_1_cut_few" : "50_over_1_cut", &spec, 1);
        spec.features = HEED_HAS_LSE | HEED_HAS_WINDOW;
        spec.scores_stage = 0;
        spec.window_left = 1500, spec.window_right = 0;
        kit_add_types(list, "heads", few ? "50_over_1_window_few" : "50_over_1_window", &spec, 0);
    }
}

/* Every mix of the types of q, k, v and out. */
static void add_mixed(kit_list *list)
{
    for (uint32_t n = 0; n < 81; n++) {
        kit_case c = {.run = kit_conform, .quick = n % 20 == 5};
        kit_spec *s = &c.spec;
        s->q_type = HEED_F32 + n % 3;
        s->k_type = HEED_F32 + n / 3 % 3;
        s->v_type = HEED_F32 + n / 9 % 3;
        s->out_type = HEED_F32 + n / 27;
        s->features = HEED_HAS_LSE | CAUSAL;
        s->position = HEED_POS_BOTTOM_RIGHT;
        s->q_len = n % 2 ? 1 : 18;
        s->kv_len = 35;
        kit_complete(s);
        snprintf(c.name, sizeof c.name, "types/q_%s_k_%s_v_%s_out_%s", kit_type_name(s->q_type),
                 kit_type_name(s->k_type), kit_type_name(s->v_type), kit_type_name(s->out_type));
        kit_add(list, &c);
    }
}

void kit_feature_cases(kit_list *list)
{
    for (size_t n = 0; n < COUNT(features); n++) {
        kit_spec spec = features[n].spec;
        char decode[80];
        spec.features |= HEED_HAS_LSE;
        kit_add_types(list, "feature", features[n].name, &spec, 1);
        if (spec.q_len)
            continue;
        /* The same with one row per sequence, which is often another kernel's. */
        spec.q_len = 1;
        spec.kv_len = 53;
        snprintf(decode, sizeof decode, "%s_decode", features[n].name);
        kit_add_types(list, "feature", decode, &spec, 0);
    }
    add_outputs(list);
    add_forms(list);
    add_layouts(list);
    add_heads(list);
    add_mixed(list);
}

void kit_cases(kit_list *list)
{
    kit_feature_cases(list);
    kit_edge_cases(list);
    kit_rising_cases(list);
    kit_pairwise_cases(list);
    kit_ragged_cases(list);
    kit_mask_cases(list);
    kit_codes_cases(list);
    kit_bits_cases(list);
    kit_property_cases(list);
    kit_merge_cases(list);
    kit_cache_cases(list);
    kit_rotary_cases(list);
    kit_mha_cases(list);
    kit_error_cases(list);
    kit_linear_cases(list);
    kit_linear_bits_cases(list);
    kit_linear_error_cases(list);
}
