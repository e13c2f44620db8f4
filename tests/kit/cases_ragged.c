/* Cases of packed rows and pages, which say where rows lie and do not change a problem: every
 * storage with the options that look at memory, page lengths around the kernels' block sizes, and
 * every value of every other option beside every storage. See cases.h. */
#include "cases.h"
#include "run.h"

#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define BOTTOM .position = HEED_POS_BOTTOM_RIGHT
#define GIVEN .position = HEED_POS_GIVEN

/** Ways to store rows; each is a value of an option. */
static const struct {
    const char *name;
    uint32_t storage, page_len, pages;
} stored[] = {{"packed_q", KIT_RAGGED_Q, 0, 0},
              {"packed_kv", KIT_RAGGED_KV, 0, 0},
              {"packed", KIT_RAGGED, 0, 0},
              {"page1", KIT_PAGED, 1, KIT_PAGES_SHUFFLED},
              {"page3_packed_q", KIT_PAGED_RAGGED, 3, KIT_PAGES_SHUFFLED},
              {"page16", KIT_PAGED, 16, KIT_PAGES_SHUFFLED},
              {"page16_in_order", KIT_PAGED, 16, KIT_PAGES_IN_ORDER},
              {"page16_shared_packed_q", KIT_PAGED_RAGGED, 16, KIT_PAGES_SHARED},
              {"page17", KIT_PAGED, 17, KIT_PAGES_SHUFFLED},
              {"page300", KIT_PAGED, 300, KIT_PAGES_SHUFFLED}};

static void store(kit_spec *s, size_t how)
{
    s->storage = stored[how].storage;
    s->page_len = stored[how].page_len;
    s->pages = stored[how].pages;
}

/* clang-format off */
static const struct {
    const char *name;
    kit_spec spec;
} table[] = {
    {"plain", {.features = HEED_HAS_LSE}},
    {"lens", {.features = HEED_HAS_LSE, .lens = KIT_LENS_BOTH, .batch = 4}},
    {"lens_zeros", {.features = HEED_HAS_LSE | HEED_HAS_SINK, .lens = KIT_LENS_ZEROS, .batch = 4}},
    {"causal",
     {.features = HEED_HAS_LSE | HEED_HAS_CAUSAL, BOTTOM, .lens = KIT_LENS_BOTH, .batch = 4}},
    {"causal_mixed",
     {.features = HEED_HAS_LSE | HEED_HAS_CAUSAL, GIVEN, .offsets = KIT_OFFSET_MIXED, .batch = 4}},
    {"window",
     {.features = HEED_HAS_LSE | HEED_HAS_WINDOW,
      BOTTOM,
      .window_left = 6,
      .window_right = 2,
      .lens = KIT_LENS_KV,
      .batch = 3}},
    {"mask",
     {.features = HEED_HAS_LSE | HEED_HAS_MASK,
      .mask_kind = KIT_MASK_EMPTY_ROWS,
      .lens = KIT_LENS_BOTH,
      .batch = 4}},
    {"outputs",
     {.features = HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_SCORES | HEED_HAS_BIAS,
      .scores_stage = HEED_SCORES_BIASED,
      .bias_kind = KIT_BIAS_INF,
      .lens = KIT_LENS_BOTH,
      .batch = 4}},
    {"nan_k", {.features = HEED_HAS_LSE, .values = KIT_NAN_K, .lens = KIT_LENS_KV, .batch = 3}},
    {"inf_poison",
     {.features = HEED_HAS_LSE, .poison = KIT_POISON_INF, .lens = KIT_LENS_BOTH, .batch = 4}},
    {"noise_poison",
     {.features = HEED_HAS_LSE | HEED_HAS_CAUSAL,
      BOTTOM,
      .poison = KIT_POISON_NOISE,
      .lens = KIT_LENS_BOTH,
      .batch = 4}},
    /* Several key chunks, and whole memory pages of the pools that no row may touch. */
    {"long",
     {.features = HEED_HAS_LSE | HEED_HAS_CAUSAL,
      BOTTOM,
      .q_len = 21,
      .kv_len = 700,
      .qk_dim = 64,
      .v_dim = 64,
      .lens = KIT_LENS_BOTH,
      .batch = 4}},
    {"long_window",
     {.features = HEED_HAS_LSE | HEED_HAS_CAUSAL | HEED_HAS_WINDOW,
      BOTTOM,
      .q_len = 9,
      .kv_len = 900,
      .window_left = 200,
      .window_right = -1,
      .qk_dim = 32,
      .v_dim = 32,
      .lens = KIT_LENS_KV,
      .batch = 3}},
};
/* clang-format on */

static void add_storages(kit_list *list)
{
    for (size_t how = 0; how < COUNT(stored); how++)
        for (size_t n = 0; n < COUNT(table); n++)
            for (int decode = 0; decode < 2; decode++) {
                kit_spec spec = table[n].spec;
                char name[80];
                store(&spec, how);
                if (decode) {
                    spec.kv_len = spec.kv_len ? 2 * spec.kv_len + 77 : 53;
                    spec.q_len = 1;
                }
                snprintf(name, sizeof name, "%s_%s%s", stored[how].name, table[n].name,
                         decode ? "_decode" : "");
                kit_add_types(list, "ragged", name, &spec,
                              n == 3 || (!decode && how == 7) || (decode && how == 5));
            }
}

/* Every layout of tokens, which is the layout of packed rows and of the rows of a page, too. */
static void add_layouts(kit_list *list)
{
    for (size_t how = 2; how < COUNT(stored); how += how == 2 ? 3 : 2)
        for (uint32_t layout = 0; layout < KIT_LAYOUTS; layout++)
            for (int decode = 0; decode < 2; decode++) {
                kit_spec spec = {.layout = layout,
                                 .features = HEED_HAS_LSE | HEED_HAS_CAUSAL,
                                 BOTTOM,
                                 .q_len = decode ? 1 : 23,
                                 .kv_len = 70,
                                 .qk_dim = 40,
                                 .v_dim = 40,
                                 .lens = KIT_LENS_BOTH,
                                 .batch = 4};
                char name[80];
                store(&spec, how);
                snprintf(name, sizeof name, "%s_layout_%s%s", stored[how].name,
                         kit_layout_name(layout), decode ? "_decode" : "");
                kit_add_types(list, "ragged", name, &spec, 0);
            }
}

/* Beside the values of every other option: the rows of the pairwise cases that bring a new one. */
static void add_pairs(kit_list *list)
{
    for (size_t how = 0; how < COUNT(stored); how++) {
        kit_spec spec;
        int row = -1;
        while ((row = kit_each_value(row, &spec)) >= 0) {
            char name[80];
            store(&spec, how);
            snprintf(name, sizeof name, "%s_%03d", stored[how].name, row);
            kit_add_types(list, "ragged_pair", name, &spec, row == 0);
        }
    }
}

/* Long caches of few rows, where the rows of a key's heads or the heads of a page lie side by side,
 * so that backends may take several kv heads of a chunk at once. */
static void add_beside(kit_list *list)
{
    /* clang-format off: a table */
    static const struct {
        const char *name;
        int heads, kv_heads, dim, rows, keys, page_len;
        kit_spec spec;
    } beside[] = {
        {"tokens", 2, 2, 64, 1, 1500, 0, {.layout = KIT_BSHD}},
        {"tokens_group", 32, 8, 128, 1, 2300, 0, {.layout = KIT_BSHD}},
        {"tokens_12_heads", 24, 12, 64, 1, 1200, 0, {.layout = KIT_BSHD, .lens = KIT_LENS_KV}},
        {"tokens_9_heads", 18, 9, 64, 1, 1200, 0, {.layout = KIT_BSHD}},
        {"tokens_25_heads", 25, 25, 128, 1, 1100, 0, {.layout = KIT_BSHD}},
        {"tokens_128_rows", 24, 3, 64, 16, 1100, 0, {.layout = KIT_BSHD}},
        {"tokens_few", 6, 3, 64, 3, 1300, 0, {.layout = KIT_BSHD, .features = HEED_HAS_CAUSAL, BOTTOM}},
        {"tokens_window", 4, 4, 64, 1, 2500, 0,
         {.layout = KIT_BSHD, .features = HEED_HAS_WINDOW, BOTTOM, .window_left = 1777, .window_right = -1}},
        {"tokens_negative", 4, 4, 64, 1, 1400, 0, {.layout = KIT_NEGATIVE}},
        {"page16", 8, 4, 128, 1, 2100, 16, {.lens = KIT_LENS_KV}},
        {"page16_tokens", 12, 6, 64, 1, 1600, 16, {.layout = KIT_BSHD}},
        {"page16_few", 10, 5, 128, 2, 1500, 16, {.features = HEED_HAS_CAUSAL, BOTTOM, .lens = KIT_LENS_KV}},
        {"page16_16_rows", 12, 3, 64, 16, 1100, 16, {.features = HEED_HAS_CAUSAL, BOTTOM}},
        {"page16_padded", 6, 6, 64, 1, 1300, 16, {.layout = KIT_PADDED}},
        {"page48", 9, 9, 64, 1, 1700, 48, {.lens = KIT_LENS_KV}},
        {"page48_window", 8, 8, 128, 1, 2400, 48,
         {.features = HEED_HAS_WINDOW, BOTTOM, .window_left = 1300, .window_right = -1}},
        {"page1024", 8, 2, 128, 1, 3000, 1024, {.lens = KIT_LENS_KV}},
        {"tokens_softcap", 4, 4, 64, 1, 1500, 0, {.layout = KIT_BSHD, .features = HEED_HAS_SOFTCAP, .softcap = 2}},
        {"tokens_alibi", 8, 4, 128, 1, 1500, 0, {.layout = KIT_BSHD, .features = HEED_HAS_ALIBI, BOTTOM}},
        {"page16_softcap", 8, 4, 128, 1, 1700, 16, {.features = HEED_HAS_SOFTCAP, .softcap = 2, .lens = KIT_LENS_KV}},
        {"page16_alibi", 4, 4, 64, 2, 1700, 16, {.features = HEED_HAS_ALIBI | HEED_HAS_CAUSAL, BOTTOM}},
        {"page16_sink", 4, 4, 64, 1, 1700, 16, {.features = HEED_HAS_SINK, .lens = KIT_LENS_KV}},
        {"page16_nan", 4, 4, 64, 1, 1500, 16, {.lens = KIT_LENS_KV, .values = KIT_NAN_K}},
        {"page16_top", 4, 2, 64, 5, 1500, 16,
         {.features = HEED_HAS_CAUSAL, GIVEN, .offsets = KIT_OFFSET_MIXED, .batch = 4}},
    };
    /* clang-format on */
    for (size_t n = 0; n < COUNT(beside); n++) {
        kit_spec spec = beside[n].spec;
        spec.features |= HEED_HAS_LSE;
        spec.q_heads = (uint32_t)beside[n].heads;
        spec.kv_heads = (uint32_t)beside[n].kv_heads;
        spec.qk_dim = spec.v_dim = (uint32_t)beside[n].dim;
        spec.q_len = beside[n].rows;
        spec.kv_len = beside[n].keys;
        if (beside[n].page_len) {
            spec.storage = KIT_PAGED;
            spec.page_len = (uint32_t)beside[n].page_len;
            spec.pages = KIT_PAGES_SHUFFLED;
        }
        kit_add_types(list, "beside", beside[n].name, &spec, n == 1 || n == 12);
    }
}

void kit_ragged_cases(kit_list *list)
{
    add_beside(list);
    add_storages(list);
    add_layouts(list);
    add_pairs(list);
}
