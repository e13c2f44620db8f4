/* Cases at the edges: head dims, lengths, values, memory that no row may see. See cases.h. */
#include "cases.h"
#include "run.h"

#include <stdio.h>

/* clang-format off */
#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define CAUSAL HEED_HAS_CAUSAL
#define WINDOW HEED_HAS_WINDOW
#define BOTTOM .position = HEED_POS_BOTTOM_RIGHT
#define GIVEN .position = HEED_POS_GIVEN

static void add_dims(kit_list *list)
{
    static const uint32_t dims[][2] = {
        {1, 1},     {2, 2},     {3, 3},     {7, 7},     {8, 8},     {15, 15},   {16, 16},
        {17, 17},   {20, 20},   {31, 31},   {32, 32},   {33, 33},   {40, 40},   {63, 63},
        {64, 64},   {65, 65},   {72, 72},   {80, 80},   {96, 96},   {100, 100}, {127, 127},
        {128, 128}, {129, 129}, {192, 128}, {256, 256}, {576, 512}, {1, 64},    {64, 1},
        {576, 3},   {5, 130},   {48, 80}};
    for (size_t n = 0; n < COUNT(dims); n++)
        for (int shape = 0; shape < 3; shape++) {
            static const char *const suffix[] = {"", "_few", "_decode"};
            static const int64_t rows[] = {26, 5, 1};
            kit_spec spec = {.qk_dim = dims[n][0],
                             .v_dim = dims[n][1],
                             .batch = 1,
                             .q_heads = 3,
                             .kv_heads = 1,
                             .q_len = rows[shape],
                             .kv_len = 41,
                             BOTTOM,
                             .features = CAUSAL | HEED_HAS_LSE};
            char name[64];
            if (dims[n][0] == 576 && dims[n][1] == 512)
                spec.layout = KIT_V_IN_K;
            snprintf(name, sizeof name, "%u_%u%s", dims[n][0], dims[n][1], suffix[shape]);
            kit_add_types(list, "dim", name, &spec, shape == 0 && n % 5 == 1);
        }
}

static void add_lengths(kit_list *list)
{
    static const int64_t edge[] = {1,  2,  3,   7,   8,   9,   15,  16,  17,  23,
                                   24, 25, 31,  33,  47,  48,  49,  63,  64,  65,
                                   95, 97, 127, 128, 129, 191, 193, 255, 256, 257};
    char name[64];
    for (size_t n = 0; n < COUNT(edge); n++) {
        int64_t at = edge[n];
        kit_spec spec = {.batch = 1,
                         .q_heads = 2,
                         .kv_heads = 1,
                         .qk_dim = 16,
                         .v_dim = 16,
                         .q_len = at,
                         .kv_len = at,
                         BOTTOM,
                         .features = CAUSAL | HEED_HAS_LSE};
        snprintf(name, sizeof name, "causal_%lld", (long long)at);
        kit_add_types(list, "length", name, &spec, at == 49);
        spec.features = HEED_HAS_LSE;
        spec.kv_len = 21;
        snprintf(name, sizeof name, "rows_%lld", (long long)at);
        kit_add_types(list, "length", name, &spec, at == 17);
        spec.q_len = 20;
        spec.kv_len = at;
        snprintf(name, sizeof name, "keys_%lld", (long long)at);
        kit_add_types(list, "length", name, &spec, at == 65);
        spec.q_len = 1;
        spec.q_heads = 4;
        snprintf(name, sizeof name, "decode_%lld", (long long)at);
        kit_add_types(list, "length", name, &spec, at == 129);
    }
    static const struct {
        const char *name;
        uint32_t batch;
        int64_t q_len, kv_len;
    } empty[] = {{"no_batch", 0, 5, 7}, {"no_rows", 2, 0, 7}, {"no_keys", 2, 5, 0}};
    for (size_t n = 0; n < COUNT(empty); n++)
        for (int sink = 0; sink < 2; sink++)
            for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
                kit_case c = {.quick = 1, .run = kit_conform};
                c.spec.q_type = c.spec.k_type = c.spec.v_type = c.spec.out_type = type;
                c.spec.q_len = empty[n].q_len;
                c.spec.kv_len = empty[n].kv_len;
                c.spec.features = HEED_HAS_LSE | (sink ? HEED_HAS_SINK : 0);
                kit_complete(&c.spec);
                c.spec.batch = empty[n].batch;
                snprintf(c.name, sizeof c.name, "length/%s%s/%s", empty[n].name,
                         sink ? "_sink" : "", kit_type_name(type));
                kit_add(list, &c);
            }
}

/* Many keys, which are cut into chunks and merged; some chunks hold nothing for some rows. */
static void add_long(kit_list *list)
{
    static const struct {
        const char *name;
        kit_spec spec;
    } table[] = {
        {"plain", {.features = HEED_HAS_LSE}},
        {"causal", {.features = CAUSAL | HEED_HAS_LSE, BOTTOM}},
        {"causal_top", {.features = CAUSAL | HEED_HAS_LSE, .position = HEED_POS_TOP_LEFT}},
        {"window", {.features = WINDOW | HEED_HAS_LSE, BOTTOM, .window_left = 700}},
        {"window_far",
         {.features = WINDOW | HEED_HAS_SINK | HEED_HAS_LSE,
          BOTTOM,
          .window_left = 9,
          .window_right = 0}},
        {"mask_blocks", {.features = HEED_HAS_MASK | HEED_HAS_LSE, .mask_kind = KIT_MASK_BLOCKS}},
        {"mask_empty_rows",
         {.features = HEED_HAS_MASK | HEED_HAS_SINK | HEED_HAS_LSE,
          .mask_kind = KIT_MASK_EMPTY_ROWS}},
        {"bias", {.features = HEED_HAS_BIAS | HEED_HAS_LSE, .bias_kind = KIT_BIAS_INF}},
        {"sink", {.features = HEED_HAS_SINK | HEED_HAS_LSE}},
        {"lens", {.features = HEED_HAS_LSE, .lens = KIT_LENS_BOTH}},
        {"weights",
         {.features = HEED_HAS_WEIGHTS | HEED_HAS_SCORES | CAUSAL,
          BOTTOM,
          .scores_stage = HEED_SCORES_BIASED}},
        {"weights_sink", {.features = HEED_HAS_WEIGHTS | HEED_HAS_SINK | HEED_HAS_LSE}},
        {"nan_v", {.features = CAUSAL, BOTTOM, .values = KIT_NAN_V}},
        {"nan_v_of_no_weight",
         {.features = HEED_HAS_LSE, .values = KIT_OVERFLOW_LONG, .odd = KIT_ODD_NAN_V}},
        {"nan_v_of_no_row",
         {.features = HEED_HAS_LSE, .values = KIT_OVERFLOW_ALL, .odd = KIT_ODD_NAN_V}},
        {"mean_one", {.features = HEED_HAS_LSE, .values = KIT_MEAN_ONE}},
        {"softcap_alibi", {.features = HEED_HAS_SOFTCAP | HEED_HAS_ALIBI, BOTTOM, .softcap = 4}},
    };
    static const int64_t shape[][2] = {{1, 2113}, {3, 4133}, {20, 1061}, {20, 8237}};
    for (size_t n = 0; n < COUNT(table); n++)
        for (size_t at = 0; at < COUNT(shape); at++) {
            kit_spec spec = table[n].spec;
            char name[64];
            spec.q_len = shape[at][0];
            spec.kv_len = shape[at][1];
            spec.qk_dim = spec.v_dim = 16;
            spec.q_heads = 2;
            spec.kv_heads = 1;
            spec.batch = spec.lens ? 4 : 1;
            snprintf(name, sizeof name, "%s_%lld", table[n].name, (long long)shape[at][1]);
            kit_add_types(list, "long", name, &spec, n == 1 && at == 0);
        }
}

static const struct {
    const char *name;
    uint32_t values;
    uint64_t features;
    float scale, softcap;
    uint32_t position;
} odd_values[] = {
    {"huge", KIT_HUGE, HEED_HAS_SCALE, 1, 0, 0},
    {"huge_negative", KIT_HUGE, HEED_HAS_SCALE, -1, 0, 0},
    {"huge_far", KIT_HUGE, HEED_HAS_SCALE, 65536, 0, 0},
    {"huge_sink", KIT_HUGE, HEED_HAS_SCALE | HEED_HAS_SINK, 1, 0, 0},
    {"huge_softcap", KIT_HUGE, HEED_HAS_SOFTCAP, 0, 3, 0},
    {"huge_bias", KIT_HUGE, HEED_HAS_BIAS | HEED_HAS_SCALE, 1, 0, 0},
    {"overflow_low", KIT_OVERFLOW_LOW, 0, 0, 0, 0},
    {"overflow_low_causal", KIT_OVERFLOW_LOW, CAUSAL, 0, 0, HEED_POS_TOP_LEFT},
    {"overflow_all", KIT_OVERFLOW_ALL, 0, 0, 0, 0},
    {"overflow_all_sink", KIT_OVERFLOW_ALL, HEED_HAS_SINK, 0, 0, 0},
    {"overflow_high", KIT_OVERFLOW_HIGH, 0, 0, 0, 0},
    {"overflow_high_causal", KIT_OVERFLOW_HIGH, CAUSAL, 0, 0, HEED_POS_TOP_LEFT},
    {"overflow_softcap", KIT_OVERFLOW_LOW, HEED_HAS_SOFTCAP, 0, 2, 0},
    {"denormal", KIT_DENORMAL, 0, 0, 0, 0},
    {"denormal_scaled", KIT_DENORMAL, HEED_HAS_SCALE, 100, 0, 0},
    {"tiny_v", KIT_TINY_V, 0, 0, 0, 0},
    {"mean_one", KIT_MEAN_ONE, 0, 0, 0, 0},
    {"equal_keys", KIT_EQUAL_KEYS, 0, 0, 0, 0},
    {"constant_v", KIT_CONSTANT_V, 0, 0, 0, 0},
    {"big_v", KIT_BIG_V, 0, 0, 0, 0},
    {"nan_q", KIT_NAN_Q, 0, 0, 0, 0},
    {"nan_q_mask", KIT_NAN_Q, HEED_HAS_MASK, 0, 0, 0},
    {"nan_q_softcap", KIT_NAN_Q, HEED_HAS_SOFTCAP, 0, 3, 0},
    {"nan_k", KIT_NAN_K, 0, 0, 0, 0},
    {"nan_k_causal", KIT_NAN_K, CAUSAL, 0, 0, HEED_POS_TOP_LEFT},
    {"nan_k_mask", KIT_NAN_K, HEED_HAS_MASK, 0, 0, 0},
    {"nan_k_softcap", KIT_NAN_K, HEED_HAS_SOFTCAP | HEED_HAS_MASK, 0, 3, 0},
    {"nan_k_sink", KIT_NAN_K, HEED_HAS_SINK | HEED_HAS_MASK, 0, 0, 0},
    {"nan_k_alibi", KIT_NAN_K, HEED_HAS_ALIBI | CAUSAL, 0, 0, HEED_POS_TOP_LEFT},
    {"nan_v", KIT_NAN_V, 0, 0, 0, 0},
    {"nan_v_causal", KIT_NAN_V, CAUSAL, 0, 0, HEED_POS_TOP_LEFT},
    {"nan_v_mask", KIT_NAN_V, HEED_HAS_MASK, 0, 0, 0},
    {"nan_v_huge_scores", KIT_NAN_V, HEED_HAS_SCALE | CAUSAL, 1e6F, 0, HEED_POS_TOP_LEFT},
    {"nan_bias", KIT_NAN_BIAS, HEED_HAS_BIAS, 0, 0, 0},
    {"nan_bias_mask", KIT_NAN_BIAS, HEED_HAS_BIAS | HEED_HAS_MASK, 0, 0, 0},
    {"nan_bias_causal", KIT_NAN_BIAS, HEED_HAS_BIAS | CAUSAL, 0, 0, HEED_POS_TOP_LEFT},
    {"inf_k_causal", KIT_INF_K, CAUSAL, 0, 0, HEED_POS_TOP_LEFT},
    {"inf_k_mask", KIT_INF_K, HEED_HAS_MASK, 0, 0, 0},
    {"inf_v_causal", KIT_INF_V, CAUSAL, 0, 0, HEED_POS_TOP_LEFT},
    {"inf_v_mask", KIT_INF_V, HEED_HAS_MASK, 0, 0, 0},
    {"creeping", KIT_CREEPING, 0, 0, 0, 0},
    {"rising", KIT_RISING, 0, 0, 0, 0},
    {"rising_causal", KIT_RISING, CAUSAL, 0, 0, HEED_POS_TOP_LEFT},
    {"rising_mask", KIT_RISING, HEED_HAS_MASK, 0, 0, 0},
    {"rising_alibi", KIT_RISING, HEED_HAS_ALIBI, 0, 0, HEED_POS_TOP_LEFT},
    {"falling", KIT_FALLING, 0, 0, 0, 0},
    {"falling_causal", KIT_FALLING, CAUSAL, 0, 0, HEED_POS_TOP_LEFT},
    {"apart", KIT_APART, 0, 0, 0, 0},
    {"apart_mask", KIT_APART, HEED_HAS_MASK, 0, 0, 0},
    {"signed_zeros", KIT_SIGNED_ZEROS, 0, 0, 0, 0},
};

static void add_values(kit_list *list)
{
    for (size_t n = 0; n < COUNT(odd_values); n++)
        for (int shape = 0; shape < 6; shape++) {
            /* even: whole vectors and tiles, for which kernels have shorter ways; long: many key
             * blocks, so that a running maximum and its sums go on over them */
            static const char *const suffix[] = {"",      "_wide",        "_decode",
                                                 "_even", "_even_decode", "_long"};
            static const int64_t rows[] = {23, 70, 1, 64, 1, 40};
            static const int64_t keys[] = {45, 150, 150, 128, 160, 700};
            const uint32_t dim = shape == 3 || shape == 4 ? 64 : 40;
            kit_spec spec = {.values = odd_values[n].values,
                             .features = odd_values[n].features | HEED_HAS_LSE,
                             .scale = odd_values[n].scale,
                             .softcap = odd_values[n].softcap,
                             .batch = 1,
                             .position = odd_values[n].position,
                             /* of rows that see nothing: of every other head */
                             .sinks = odd_values[n].values == KIT_OVERFLOW_ALL ? KIT_SINK_INFINITE
                                                                               : KIT_SINK_NORMAL,
                             .q_heads = 2,
                             .kv_heads = 1,
                             .qk_dim = dim,
                             .v_dim = dim,
                             .q_len = rows[shape],
                             .kv_len = keys[shape]};
            char name[64];
            if (shape == 5 && odd_values[n].values < KIT_CREEPING)
                continue;
            if (shape >= 2 && spec.position)
                spec.position = HEED_POS_BOTTOM_RIGHT;
            snprintf(name, sizeof name, "%s%s", odd_values[n].name, suffix[shape]);
            kit_add_types(list, "value", name, &spec, shape == 0 || shape >= 3);
            if (shape == 0) {
                spec.features |= HEED_HAS_WEIGHTS | HEED_HAS_SCORES;
                spec.scores_stage = HEED_SCORES_BIASED;
                snprintf(name, sizeof name, "%s_outputs", odd_values[n].name);
                kit_add_types(list, "value", name, &spec, 0);
            }
        }
}

static const struct {
    const char *name;
    kit_spec spec;
} hidden[] = {
    {"past_kv_lens", {.lens = KIT_LENS_KV, .batch = 3}},
    {"past_q_lens", {.lens = KIT_LENS_Q, .batch = 3}},
    {"past_both", {.lens = KIT_LENS_BOTH, .batch = 4}},
    {"causal", {.features = CAUSAL, .position = HEED_POS_TOP_LEFT, .q_len = 20, .kv_len = 60}},
    {"causal_negative",
     {.features = CAUSAL, .position = HEED_POS_GIVEN, .offsets = KIT_OFFSET_NEGATIVE}},
    {"window",
     {.features = WINDOW,
      BOTTOM,
      .window_left = 4,
      .window_right = 0,
      .q_len = 9,
      .kv_len = 80}},
    {"mask_columns", {.features = HEED_HAS_MASK, .mask_form = 7}},
    {"mask_heads", {.features = HEED_HAS_MASK, .mask_form = 6, .q_heads = 4, .kv_heads = 4}},
    {"mask_first_keys",
     {.features = HEED_HAS_MASK, .mask_form = 4, .mask_kind = KIT_MASK_EMPTY_ROWS}},
    {"mask_none", {.features = HEED_HAS_MASK, .mask_kind = KIT_MASK_NONE}},
    {"bias_columns", {.features = HEED_HAS_BIAS, .bias_form = 7, .bias_kind = KIT_BIAS_INF}},
    {"mask_and_bias",
     {.features = HEED_HAS_BIAS | HEED_HAS_MASK,
      .bias_form = 4,
      .mask_form = 5,
      .bias_kind = KIT_BIAS_INF}},
    {"mask_causal",
     {.features = HEED_HAS_MASK | CAUSAL, BOTTOM, .mask_form = 7, .lens = KIT_LENS_KV}},
    /* Planes of many memory pages, most of which are unmapped for the run. */
    {"unmapped_past_kv_lens",
     {.lens = KIT_LENS_KV, .batch = 3, .kv_len = 400, .q_len = 7, .qk_dim = 64, .v_dim = 64}},
    {"unmapped_below_window",
     {.features = WINDOW | CAUSAL,
      BOTTOM,
      .window_left = 30,
      .window_right = -1,
      .kv_len = 400,
      .q_len = 9,
      .qk_dim = 64,
      .v_dim = 64,
      .lens = KIT_LENS_KV,
      .batch = 2}},
    {"unmapped_above_causal",
     {.features = CAUSAL,
      .position = HEED_POS_TOP_LEFT,
      .kv_len = 400,
      .q_len = 21,
      .qk_dim = 64,
      .v_dim = 64,
      .batch = 1}},
    {"unmapped_mask_and_bias",
     {.features = WINDOW | HEED_HAS_MASK | HEED_HAS_BIAS,
      .position = HEED_POS_GIVEN,
      .window_left = 20,
      .window_right = 20,
      .kv_len = 5000,
      .q_len = 3,
      .q_heads = 2,
      .kv_heads = 1,
      .batch = 2,
      .lens = KIT_LENS_BOTH,
      .offsets = KIT_OFFSET_END}},
    {"unmapped_rows_past_q_lens",
     {.lens = KIT_LENS_Q, .batch = 3, .q_len = 150, .kv_len = 11, .qk_dim = 64, .v_dim = 64}},
};

/* Memory that no row may see, hidden in every way and holding every kind of poison. */
static void add_hidden(kit_list *list)
{
    static const char *const poison[] = {"nan", "inf", "noise"};
    for (size_t n = 0; n < COUNT(hidden); n++)
        for (uint32_t kind = 0; kind < KIT_POISONS; kind++)
            for (int decode = 0; decode < 2; decode++) {
                kit_spec spec = hidden[n].spec;
                char name[64];
                spec.poison = kind;
                spec.features |= HEED_HAS_LSE;
                if (decode && (spec.lens == KIT_LENS_Q || spec.lens == KIT_LENS_BOTH))
                    continue;
                if (!spec.q_len)
                    spec.q_len = 19, spec.kv_len = 37;
                if (decode)
                    spec.q_len = 1;
                snprintf(name, sizeof name, "%s_%s%s", hidden[n].name, poison[kind],
                         decode ? "_decode" : "");
                kit_add_types(list, "hidden", name, &spec, !decode && kind == n % 3);
            }
}

/* Short sequences of few dims, for which backends may have a kernel of their own: what rows may see
 * is a range of keys, and may be none. */
static void add_few_keys(kit_list *list)
{
    static const struct {
        const char *name;
        kit_spec spec;
    } seen[] = {
        {"all", {.lens = KIT_LENS_ZEROS}},
        {"causal", {.features = CAUSAL, BOTTOM}},
        {"causal_negative", {.features = CAUSAL, GIVEN, .offsets = KIT_OFFSET_NEGATIVE}},
        {"window", {.features = WINDOW, BOTTOM, .window_left = 5, .window_right = 1}},
        {"window_past_the_end", {.features = WINDOW, GIVEN, .window_left = 3, .window_right = 2,
                                 .offsets = KIT_OFFSET_SEEN, .lens = KIT_LENS_KV}},
    };
    static const int64_t rows[] = {1, 3, 12};
    for (size_t n = 0; n < COUNT(seen); n++)
        for (size_t at = 0; at < COUNT(rows); at++) {
            kit_spec spec = seen[n].spec;
            char name[64];
            spec.features |= HEED_HAS_LSE;
            spec.q_len = rows[at];
            spec.kv_len = 11 + (int64_t)(5 * n);
            spec.qk_dim = n % 2 ? 8 : 16;
            spec.v_dim = at % 2 ? 24 : 8;
            spec.batch = 3;
            snprintf(name, sizeof name, "%s_%lld", seen[n].name, (long long)rows[at]);
            kit_add_types(list, "few_keys", name, &spec, at == 1);
        }
}

void kit_edge_cases(kit_list *list)
{
    add_few_keys(list);
    add_dims(list);
    add_lengths(list);
    add_long(list);
    add_values(list);
    add_hidden(list);
}
