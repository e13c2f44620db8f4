/* Cases whose scores rise late: at the boundaries of blocks and chunks of keys, beside them and in
 * the middle, for some rows of a tile and not for others, some of which see nothing of a block.
 * What a kernel has kept by then (a reference, sums, an output half done) was made for smaller
 * scores and has to be rescaled once and only once. A rise multiplies weights by 2^3 to 2^12, so
 * that a result still shows the keys before it, or by up to 2^4096. With them come random problems
 * whose scores have standard deviations of 1 to 30. See cases.h. */
#include "cases.h"
#include "random.h"
#include "run.h"

#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define CAUSAL HEED_HAS_CAUSAL
#define WINDOW HEED_HAS_WINDOW
#define MASK HEED_HAS_MASK
#define BOTTOM .position = HEED_POS_BOTTOM_RIGHT
#define TOP .position = HEED_POS_TOP_LEFT
#define SEES(left, right) .window_left = (left), .window_right = (right)
#define ISLANDS .mask_kind = KIT_MASK_ISLANDS
#define SIZE(rows, keys, dim) .q_len = (rows), .kv_len = (keys), .qk_dim = (dim), .v_dim = (dim)
#define HEADS(q, kv) .q_heads = (q), .kv_heads = (kv)

/* clang-format off: a table */
/* Long enough for several chunks of 512 and 1024 keys. Windows and causal ranges of a tile's rows
 * begin and end on both sides of a chunk's boundary (1024 and 1536 with 528 keys before self). */
static const struct {
    const char *name;
    kit_spec spec;
} prefill[] =
    {
        {"plain", {SIZE(24, 1700, 64)}},
        {"long", {SIZE(18, 4096, 32), .lone = 9}},
        {"causal_top", {SIZE(260, 280, 64), .features = CAUSAL, TOP}},
        {"causal", {SIZE(90, 1100, 64), .features = CAUSAL | HEED_HAS_SINK, BOTTOM}},
        {"window", {SIZE(96, 1600, 64), .features = WINDOW | CAUSAL, BOTTOM, SEES(528, -1)}},
        {"window_lone",
         {SIZE(96, 1600, 64), .features = WINDOW | CAUSAL, BOTTOM, SEES(528, -1), .lone = 24}},
        {"window_both", {SIZE(64, 1200, 64), .features = WINDOW, BOTTOM, SEES(180, 60)}},
        {"window_nan_k",
         {SIZE(96, 1600, 64), .features = WINDOW, BOTTOM, SEES(560, 20), .odd = KIT_ODD_NAN_K}},
        {"window_inf_v",
         {SIZE(96, 1600, 64), .features = WINDOW, BOTTOM, SEES(560, 20), .odd = KIT_ODD_INF_V}},
        {"mask", {SIZE(48, 1300, 64), .features = MASK}},
        {"islands", {SIZE(64, 2200, 64), .features = MASK, ISLANDS}},
        {"islands_inf", {SIZE(32, 2600, 64), .features = MASK, ISLANDS, .poison = KIT_POISON_INF}},
        {"islands_window",
         {SIZE(64, 1600, 128), .features = MASK | WINDOW | HEED_HAS_SINK, BOTTOM, ISLANDS,
          SEES(540, 9)}},
        {"heads", {SIZE(20, 1100, 128), HEADS(2, 1), .features = CAUSAL, BOTTOM, .lone = 4}},
        {"lens",
         {SIZE(40, 900, 128), .lens = KIT_LENS_BOTH, .batch = 3, .features = CAUSAL, BOTTOM}},
        {"dim_80", {SIZE(48, 1100, 80), .features = WINDOW | CAUSAL, BOTTOM, SEES(555, -1)}},
        {"dim_33", {SIZE(48, 1100, 33), .features = MASK, ISLANDS}},
        {"dim_200", {SIZE(24, 700, 200), .features = CAUSAL, BOTTOM}},
        {"softcap",
         {SIZE(40, 1100, 64), .features = HEED_HAS_SOFTCAP | CAUSAL, BOTTOM, .softcap = 40}},
        {"alibi",
         {SIZE(40, 1100, 64), HEADS(2, 1), .features = HEED_HAS_ALIBI | CAUSAL | MASK, BOTTOM,
          ISLANDS}},
        {"bias",
         {SIZE(40, 1100, 64), .features = HEED_HAS_BIAS | WINDOW, BOTTOM, SEES(500, 10),
          .bias_kind = KIT_BIAS_INF}},
        {"outputs",
         {SIZE(40, 1100, 64), .features = HEED_HAS_WEIGHTS | HEED_HAS_SCORES | WINDOW | CAUSAL,
          BOTTOM, SEES(540, -1), .scores_stage = HEED_SCORES_BIASED}},
        {"pages",
         {SIZE(48, 1300, 64), .features = WINDOW | CAUSAL, BOTTOM, SEES(540, -1),
          .storage = KIT_PAGED, .page_len = 16}},
        {"chunks",
         {SIZE(64, 1500, 64), .features = WINDOW | CAUSAL | HEED_HAS_REPRODUCIBLE_CHUNKS, BOTTOM,
          SEES(700, -1)}},
},
  decode[] = {
      {"decode", {SIZE(1, 4096, 64), HEADS(4, 1)}},
      {"decode_128",
       {SIZE(1, 2300, 128), HEADS(4, 1), .features = HEED_HAS_SINK, .layout = KIT_BSHD}},
      {"decode_80", {SIZE(1, 1700, 80), HEADS(2, 2)}},
      {"decode_window",
       {SIZE(1, 2900, 64), HEADS(2, 2), .features = WINDOW, BOTTOM, SEES(1500, 0),
        .layout = KIT_BSHD}},
      {"decode_islands", {SIZE(1, 2600, 64), HEADS(6, 1), .features = MASK, ISLANDS}},
      {"decode_pages",
       {SIZE(1, 2200, 64), HEADS(4, 2), .storage = KIT_PAGED, .page_len = 16, .lens = KIT_LENS_KV,
        .batch = 2}},
      {"decode_odd",
       {SIZE(2, 2200, 64), HEADS(4, 1), .features = MASK, ISLANDS, .odd = KIT_ODD_NAN_V}},
      {"few", {SIZE(5, 3000, 64), HEADS(2, 1), .features = CAUSAL, BOTTOM}},
      {"few_window",
       {SIZE(7, 2300, 128), HEADS(2, 1), .features = WINDOW | CAUSAL, BOTTOM, SEES(1250, -1)}},
      {"few_bias",
       {SIZE(4, 2300, 40), .features = HEED_HAS_BIAS | MASK, ISLANDS,
        .bias_kind = KIT_BIAS_FILLER}},
      {"small", {SIZE(12, 60, 24), HEADS(4, 4), .features = CAUSAL, BOTTOM, .batch = 3}},
};

/* Each shape runs with every third of these in bf16, and in f32 and f16, in which fewer paths
 * differ, with every seventh. */
static const struct {
    const char *name;
    uint32_t values;
    float rise;
    uint32_t period;
} ways[] = {
    {"spikes_5", KIT_SPIKES, 5, 512},     {"steps_7", KIT_STEPS, 7, 128},
    {"saw_3", KIT_SAW, 3, 256},           {"spikes_10", KIT_SPIKES, 10, 256},
    {"steps_12", KIT_STEPS, 12, 512},     {"drops_8", KIT_DROPS, 8, 128},
    {"once_11", KIT_ONCE, 11, 512},       {"spikes_64", KIT_SPIKES, 64, 512},
    {"steps_4096", KIT_STEPS, 4096, 256},
};
/* clang-format on */

static void add_shape(kit_list *list, const char *shape, const kit_spec *like, size_t at)
{
    for (size_t n = 0; n < COUNT(ways); n++)
        for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
            kit_case c = {.run = kit_conform, .spec = *like};
            kit_spec *s = &c.spec;
            int islands = like->mask_kind == KIT_MASK_ISLANDS && ways[n].values == KIT_ONCE;
            if (type == HEED_BF16 ? (n + at) % 3 && !islands : (n + 2 * at + type) % 7)
                continue;
            s->values = ways[n].values;
            s->rise = ways[n].rise;
            s->period = ways[n].period;
            if (s->kv_len < 300) /* blocks of small tiles */
                s->period /= s->kv_len < 100 ? 16 : 4;
            s->features |= HEED_HAS_LSE;
            s->q_type = s->k_type = s->v_type = s->out_type = type;
            s->batch = s->batch ? s->batch : 1;
            if (!s->q_heads)
                s->q_heads = s->kv_heads = 1;
            kit_complete(s);
            c.quick = (islands && type == HEED_BF16) || (n + at) % 9 == 0;
            snprintf(c.name, sizeof c.name, "rising/%s_%s/%s", shape, ways[n].name,
                     kit_type_name(type));
            kit_add(list, &c);
        }
}

/* Random problems: their number decides their features, the seed their values, as in other
 * cases. */
static void add_spread(kit_list *list)
{
    static const float deviation[] = {1, 2, 3, 4, 6, 8, 12, 30};
    static const uint32_t dims[] = {64, 64, 128, 16, 40, 65};
    static const uint64_t some[] = {CAUSAL, WINDOW, MASK, HEED_HAS_SINK};
    for (uint32_t n = 0; n < 20; n++) {
        uint64_t draw = kit_hash(2026, n);
        kit_spec s = {.values = KIT_SPREAD, .spread = deviation[n % COUNT(deviation)], BOTTOM};
        for (size_t f = 0; f < COUNT(some); f++)
            s.features |= kit_next(&draw) % 2 ? some[f] : 0;
        s.mask_kind = kit_next(&draw) % 2 ? KIT_MASK_ISLANDS : KIT_MASK_BLOCKS;
        s.window_left = kit_below(&draw, 700);
        s.window_right = kit_below(&draw, 30) - 1;
        s.batch = 1;
        s.kv_heads = 1 + n % 2;
        s.q_heads = s.kv_heads * (1 + n / 2 % 2);
        s.qk_dim = s.v_dim = dims[kit_next(&draw) % COUNT(dims)];
        s.q_len = 1 + kit_below(&draw, n % 3 ? 120 : 6);
        s.kv_len = 200 + kit_below(&draw, 1800);
        s.odd = kit_next(&draw) % 4 == 0 ? 1 + n % KIT_ODD_INF_V : KIT_ODD_NOTHING;
        s.poison = n % KIT_POISONS;
        s.features |= HEED_HAS_LSE;
        if (!(s.features & (CAUSAL | WINDOW)))
            s.position = HEED_POS_UNSET;
        for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
            kit_case c = {.run = kit_conform, .spec = s, .quick = n % 8 == 5};
            if (type != HEED_BF16 && (n + type) % 3)
                continue;
            c.spec.q_type = c.spec.k_type = c.spec.v_type = c.spec.out_type = type;
            kit_complete(&c.spec);
            snprintf(c.name, sizeof c.name, "spread/%02u_sd%g/%s", n, (double)s.spread,
                     kit_type_name(type));
            kit_add(list, &c);
        }
    }
}

void kit_rising_cases(kit_list *list)
{
    for (size_t n = 0; n < COUNT(prefill); n++)
        add_shape(list, prefill[n].name, &prefill[n].spec, n);
    for (size_t n = 0; n < COUNT(decode); n++)
        add_shape(list, decode[n].name, &decode[n].spec, n);
    add_spread(list);
}
