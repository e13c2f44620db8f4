/* Cases of keys and values in codes: codes and scales that no row may see, and odd numbers. */
#include "cases_codes.h"

#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define BOTTOM .position = HEED_POS_BOTTOM_RIGHT

enum { FIRST = KIT_CODES_FIRST, FORMATS = KIT_CODES_FORMATS };

static const struct {
    const char *name;
    kit_spec spec;
} hidden[] = {
    {"past_kv_lens", {.lens = KIT_LENS_KV, .batch = 3}},
    {"causal",
     {.features = HEED_HAS_CAUSAL, .position = HEED_POS_TOP_LEFT, .kv_len = 60, .q_len = 20}},
    {"window", {.features = HEED_HAS_WINDOW, BOTTOM, .window_left = 4, .kv_len = 80, .q_len = 9}},
    {"mask_columns", {.features = HEED_HAS_MASK, .mask_form = 7}},
    {"mask_first_keys",
     {.features = HEED_HAS_MASK, .mask_form = 4, .mask_kind = KIT_MASK_EMPTY_ROWS}},
    {"bias_columns", {.features = HEED_HAS_BIAS, .bias_form = 7, .bias_kind = KIT_BIAS_INF}},
    {"mask_columns_page16",
     {.features = HEED_HAS_MASK, .mask_form = 7, .storage = KIT_PAGED, .page_len = 16}},
    {"mask_columns_long", {.features = HEED_HAS_MASK, .mask_form = 7, .kv_len = 600, .q_len = 5}},
    {"unmapped_past_kv_lens",
     {.lens = KIT_LENS_KV, .batch = 3, .kv_len = 900, .q_len = 7, .page_len = 0}},
    {"unmapped_below_window",
     {.features = HEED_HAS_WINDOW | HEED_HAS_CAUSAL,
      BOTTOM,
      .window_left = 30,
      .window_right = -1,
      .kv_len = 900,
      .q_len = 9,
      .batch = 2}},
    {"unmapped_pages",
     {.features = HEED_HAS_WINDOW | HEED_HAS_CAUSAL,
      BOTTOM,
      .window_left = 100,
      .window_right = -1,
      .kv_len = 900,
      .q_len = 3,
      .storage = KIT_PAGED,
      .page_len = 64,
      .lens = KIT_LENS_KV}},
    {"unmapped_packed",
     {.lens = KIT_LENS_BOTH, .batch = 4, .kv_len = 700, .q_len = 9, .storage = KIT_RAGGED_KV}},
};

static void add_hidden(kit_list *list)
{
    static const char *const poison[] = {"nan", "inf", "noise"};
    for (uint32_t n = 0; n < COUNT(hidden); n++)
        for (uint32_t f = 0; f < FORMATS; f++)
            for (int decode = 0; decode < 2; decode++) {
                kit_spec s = hidden[n].spec;
                char what[80];
                const uint32_t kind = (n + f) % KIT_POISONS;
                if (decode && (s.lens == KIT_LENS_BOTH || s.mask_kind == KIT_MASK_EMPTY_ROWS))
                    continue;
                s.poison = kind;
                s.features |= HEED_HAS_LSE;
                if (!s.q_len)
                    s.q_len = 19, s.kv_len = 37;
                if (decode)
                    s.q_len = 1;
                kit_codes_types(&s, FIRST + f, FIRST + (f + n) % FORMATS, n + f);
                /* Scales that belong to a hidden key alone may be anything, too. */
                s.k_scales.kind = (n + f) % 2 ? KIT_SCALES_TOKEN : KIT_SCALES_GROUPS;
                s.v_scales.kind = (n + f) % 3 ? KIT_SCALES_IN_LINE : KIT_SCALES_PAIRS;
                s.k_scales.zeros = s.v_scales.zeros = 1;
                kit_codes_dims(&s, 0);
                snprintf(what, sizeof what, "hidden_%s_%s%s", hidden[n].name, poison[kind],
                         decode ? "_decode" : "");
                kit_codes_add(list, what, &s, (n + f) % 6 == 0);
            }
}

static void add_values(kit_list *list)
{
    static const struct {
        const char *name;
        kit_spec spec;
    } table[] = {
        {"nan_k", {.values = KIT_NAN_K}},
        {"nan_v", {.values = KIT_NAN_V}},
        {"inf_k", {.values = KIT_INF_K}},
        {"inf_v", {.values = KIT_INF_V}},
        {"nan_q", {.values = KIT_NAN_Q}},
        {"nan_k_window",
         {.values = KIT_NAN_K,
          .features = HEED_HAS_WINDOW,
          BOTTOM,
          .window_left = 4,
          .window_right = 3}},
        {"odd_nan_k", {.odd = KIT_ODD_NAN_K, .q_len = 4, .kv_len = 1300}},
        {"odd_nan_v_page16",
         {.odd = KIT_ODD_NAN_V, .q_len = 4, .kv_len = 700, .storage = KIT_PAGED, .page_len = 16}},
        {"normal", {.values = KIT_SPREAD, .spread = 1}},
        {"spread", {.values = KIT_SPREAD, .spread = 6}},
        {"huge", {.values = KIT_HUGE}},
        {"equal_keys", {.values = KIT_EQUAL_KEYS}},
        {"constant_v", {.values = KIT_CONSTANT_V}},
        {"creeping", {.values = KIT_CREEPING, .q_len = 5, .kv_len = 150}},
        {"rising", {.values = KIT_RISING, .q_len = 17, .kv_len = 300}},
        {"falling", {.values = KIT_FALLING, .q_len = 17, .kv_len = 300}},
        {"zeros", {.values = KIT_SIGNED_ZEROS}},
        {"big_v", {.values = KIT_BIG_V}},
    };
    for (uint32_t n = 0; n < COUNT(table); n++)
        for (uint32_t f = 0; f < FORMATS; f++)
            for (int decode = 0; decode < 2; decode++) {
                kit_spec s = table[n].spec;
                char what[64];
                s.features |= HEED_HAS_LSE;
                if (!s.q_len)
                    s.q_len = 19, s.kv_len = 61;
                if (decode)
                    s.q_len = 1;
                kit_codes_types(&s, FIRST + f, FIRST + (f + 3 * n) % FORMATS, n + f);
                kit_codes_dims(&s, n);
                if (n < 9) { /* kinds of which each key has its own */
                    s.k_scales.kind = f % 2 ? KIT_SCALES_TOKEN : KIT_SCALES_GROUPS;
                    s.v_scales.kind = f % 3 ? KIT_SCALES_IN_LINE : KIT_SCALES_TOKEN;
                }
                snprintf(what, sizeof what, "value_%s%s", table[n].name, decode ? "_decode" : "");
                kit_codes_add(list, what, &s, (n + f) % 10 == 0);
            }
}

void kit_codes_values_cases(kit_list *list)
{
    add_hidden(list);
    add_values(list);
}
