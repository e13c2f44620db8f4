/* Cases of keys and values in codes: every format beside every other, what shares a scale and where
 * scales lie, every option and storage, the accuracies. Hidden codes and scales and odd numbers are
 * in cases_codes_values.c, pairs of options in pairwise.c, the bits in bits_codes.c. See
 * cases.h. */
#include "cases_codes.h"
#include "cases.h"
#include "decode.h"
#include "random.h"
#include "run.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define BOTTOM .position = HEED_POS_BOTTOM_RIGHT
#define GIVEN .position = HEED_POS_GIVEN
#define ALL_OUTPUTS (HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_SCORES)

enum { FIRST = KIT_CODES_FIRST, FORMATS = KIT_CODES_FORMATS };

static const char *const scales_name[KIT_SCALES] = {
    "none", "tensor", "head", "token", "channels", "groups", "key_groups", "in_line", "pairs"};

void kit_codes_add(kit_list *list, const char *what, const kit_spec *spec, int quick)
{
    kit_case c = {.run = kit_conform, .quick = quick, .spec = *spec};
    kit_complete(&c.spec);
    snprintf(c.name, sizeof c.name, "codes/%s_%s_%s/%s", what, kit_type_name(spec->k_type),
             kit_type_name(spec->v_type), kit_type_name(spec->q_type));
    kit_add(list, &c);
}

/* Chooses the scales by n, so that all kinds come up over the formats. */
static void scale_by(kit_spec *s, uint32_t n)
{
    s->k_scales = (kit_scales){1 + n % (KIT_SCALES - 1), n / 2 % 2};
    s->v_scales = (kit_scales){1 + (n + 3) % (KIT_SCALES - 1), n / 3 % 2};
}

void kit_codes_types(kit_spec *s, uint32_t k, uint32_t v, uint32_t n)
{
    s->k_type = k;
    s->v_type = v;
    s->q_type = HEED_F32 + n % 3;
    s->out_type = HEED_F32 + n / 2 % 3;
    scale_by(s, n);
}

void kit_codes_dims(kit_spec *s, uint32_t n)
{
    static const uint32_t dims[][2] = {{64, 64}, {32, 96}, {128, 64}, {96, 32}, {64, 128}};
    s->qk_dim = dims[n % COUNT(dims)][0];
    s->v_dim = dims[n % COUNT(dims)][1];
}

/* ---- every format ---------------------------------------------------------------------------- */

static void add_formats(kit_list *list)
{
    uint32_t n = 0;
    for (uint32_t k = HEED_F32; k <= HEED_IQ4_NL; k++)
        for (uint32_t v = HEED_F32; v <= HEED_IQ4_NL; v++)
            for (int decode = 0; decode < 2; decode++, n++) {
                kit_spec s = {.features = HEED_HAS_LSE,
                              .values = n % 5 == 4 ? KIT_SPREAD : KIT_NORMAL,
                              .spread = 1};
                if (!heed_is_code(k) && !heed_is_code(v))
                    continue;
                if (n % 3 == 0) {
                    s.features |= HEED_HAS_CAUSAL;
                    s.position = HEED_POS_BOTTOM_RIGHT;
                }
                s.q_len = decode ? 1 : 18;
                s.kv_len = decode ? 61 : 35;
                kit_codes_types(&s, k, v, n);
                kit_codes_dims(&s, n);
                kit_codes_add(list, decode ? "decode" : "prefill", &s,
                              k == v || k + v == 2 * HEED_Q8_0 - 1);
            }
}

/* Dims that are no whole vectors, blocks or groups, and long rows. */
static void add_dims(kit_list *list)
{
    static const uint32_t dims[][2] = {{1, 1},     {2, 3},     {3, 2},    {20, 33},  {33, 20},
                                       {80, 100},  {17, 66},   {46, 14},  {100, 80}, {192, 128},
                                       {256, 256}, {576, 512}, {160, 224}};
    for (uint32_t f = FIRST; f < FIRST + FORMATS; f++)
        for (uint32_t n = 0; n < COUNT(dims); n++)
            for (int decode = 0; decode < 2; decode++) {
                const uint32_t len = heed_block_len(f);
                char what[40];
                kit_spec s = {.q_len = decode ? 1 : 9,
                              .kv_len = decode ? 150 : 31,
                              .qk_dim = dims[n][0],
                              .v_dim = dims[n][1],
                              .features = HEED_HAS_LSE};
                if (s.qk_dim % len || s.v_dim % len)
                    continue;
                kit_codes_types(&s, f, f, f + n);
                snprintf(what, sizeof what, "dims_%ux%u%s", s.qk_dim, s.v_dim,
                         decode ? "_decode" : "");
                kit_codes_add(list, what, &s, n == 3);
            }
}

/* ---- scales ---------------------------------------------------------------------------------- */

static void add_scales(kit_list *list)
{
    static const struct {
        const char *name;
        kit_spec spec;
    } where[] = {
        {"", {.lens = KIT_LENS_KV}},
        {"_tokens", {.layout = KIT_BSHD, .lens = KIT_LENS_BOTH, .batch = 3}},
        {"_negative", {.layout = KIT_NEGATIVE}},
        {"_padded", {.layout = KIT_PADDED}},
        {"_odd", {.layout = KIT_ODD}},
        {"_drawn", {.layout = KIT_DRAWN}},
        {"_packed", {.storage = KIT_RAGGED, .lens = KIT_LENS_BOTH, .batch = 4}},
        {"_packed_kv",
         {.storage = KIT_RAGGED_KV, .layout = KIT_BSHD, .lens = KIT_LENS_BOTH, .batch = 4}},
        {"_page1", {.storage = KIT_PAGED, .page_len = 1}},
        {"_page6",
         {.storage = KIT_PAGED_RAGGED,
          .page_len = 6,
          .layout = KIT_BSHD,
          .lens = KIT_LENS_BOTH,
          .batch = 3}},
        {"_page16", {.storage = KIT_PAGED, .page_len = 16, .lens = KIT_LENS_KV}},
        {"_page16_shared",
         {.storage = KIT_PAGED,
          .page_len = 16,
          .pages = KIT_PAGES_SHARED,
          .lens = KIT_LENS_KV,
          .batch = 3}},
    };
    for (uint32_t f = HEED_I8; f <= HEED_F8_E4M3; f++)
        for (uint32_t kind = 0; kind < KIT_SCALES; kind++)
            for (uint32_t zeros = 0; zeros < 2; zeros++)
                for (uint32_t n = 0; n < COUNT(where); n++) {
                    const int decode = (f + kind + zeros + n) % 2 != 0;
                    kit_spec s = where[n].spec;
                    char what[64];
                    if (zeros && (f == HEED_F8_E4M3 || kind == KIT_SCALES_NONE))
                        continue;
                    s.features |= HEED_HAS_LSE;
                    s.q_len = decode ? 1 : 13;
                    s.kv_len = decode ? 90 : 43;
                    s.qk_dim = n % 2 ? 64 : 46; /* groups of 32 and of 5 */
                    s.v_dim = n % 2 ? 46 : 64;
                    kit_codes_types(&s, f, kind % 2 ? f : HEED_I8 + (f - HEED_I8 + 1 + n % 3) % 4,
                                    n + kind);
                    s.k_scales = s.v_scales = (kit_scales){kind, zeros};
                    if (kind == KIT_SCALES_NONE) { /* codes are the values then, and large ones */
                        s.features |= HEED_HAS_SCALE;
                        s.scale = 1e-3F;
                        s.values = n % 2 ? KIT_SPREAD : KIT_NORMAL;
                        s.spread = 3;
                    }
                    snprintf(what, sizeof what, "scales_%s%s%s", scales_name[kind],
                             zeros ? "_zeros" : "", where[n].name);
                    kit_codes_add(list, what, &s, n == 0 || n == 7 || n == 10);
                }
}

/* ---- every option ---------------------------------------------------------------------------- */

/* clang-format off: tables */
typedef struct option {
    const char *name;
    kit_spec spec;
} option;

static const option options[] = {
    {"causal", {.features = HEED_HAS_CAUSAL, BOTTOM}},
    {"causal_mixed", {.features = HEED_HAS_CAUSAL, GIVEN, .offsets = KIT_OFFSET_MIXED, .batch = 4}},
    {"window", {.features = HEED_HAS_WINDOW, BOTTOM, .window_left = 9, .window_right = 4}},
    {"window_causal",
     {.features = HEED_HAS_WINDOW | HEED_HAS_CAUSAL,
      BOTTOM,
      .window_left = 11,
      .window_right = -1}},
    {"mask", {.features = HEED_HAS_MASK, .mask_kind = KIT_MASK_EMPTY_ROWS}},
    {"mask_blocks",
     {.features = HEED_HAS_MASK, .mask_kind = KIT_MASK_BLOCKS, .q_len = 40, .kv_len = 200}},
    {"bias", {.features = HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE, .bias_kind = KIT_BIAS_INF}},
    {"sink", {.features = HEED_HAS_SINK, .sinks = KIT_SINK_SOME_OFF}},
    {"softcap", {.features = HEED_HAS_SOFTCAP, .softcap = 1.5F}},
    {"alibi", {.features = HEED_HAS_ALIBI, BOTTOM}},
    {"scale", {.features = HEED_HAS_SCALE, .scale = -0.2F}},
    {"lens", {.lens = KIT_LENS_BOTH, .batch = 4}},
    {"lens_zeros", {.lens = KIT_LENS_ZEROS, .batch = 4, .features = HEED_HAS_SINK}},
    {"outputs_raw",
     {.features = ALL_OUTPUTS | HEED_HAS_CAUSAL, .scores_stage = HEED_SCORES_RAW, BOTTOM}},
    {"outputs_softcapped",
     {.features = ALL_OUTPUTS | HEED_HAS_SOFTCAP,
      .softcap = 2,
      .scores_stage = HEED_SCORES_SOFTCAPPED,
      .lens = KIT_LENS_KV}},
    {"outputs_biased",
     {.features = ALL_OUTPUTS | HEED_HAS_BIAS | HEED_HAS_MASK,
      .bias_kind = KIT_BIAS_INF,
      .scores_stage = HEED_SCORES_BIASED}},
    {"mha", {.q_heads = 3, .kv_heads = 3}},
    {"gqa8", {.q_heads = 16, .kv_heads = 2}},
    {"mqa", {.q_heads = 7, .kv_heads = 1}},
    {"tokens", {.layout = KIT_BSHD}},
    {"kv_pairs", {.layout = KIT_KV_PAIRS}},
    {"padded", {.layout = KIT_PADDED}},
    {"odd_address", {.layout = KIT_ODD}},
    {"negative", {.layout = KIT_NEGATIVE}},
    {"dim_major", {.layout = KIT_DIM_MAJOR}},
    {"dim_reversed", {.layout = KIT_DIM_REVERSED}},
    {"shared", {.layout = KIT_SHARED}},
    {"v_in_k", {.layout = KIT_V_IN_K}},
    {"v_in_k_page16",
     {.layout = KIT_V_IN_K, .storage = KIT_PAGED, .page_len = 16, .q_heads = 16, .kv_heads = 1}},
    {"packed_q", {.storage = KIT_RAGGED_Q, .lens = KIT_LENS_BOTH, .batch = 4}},
    {"packed", {.storage = KIT_RAGGED, .lens = KIT_LENS_BOTH, .batch = 4}},
    {"page1", {.storage = KIT_PAGED, .page_len = 1, .lens = KIT_LENS_BOTH, .batch = 3}},
    {"page3",
     {.storage = KIT_PAGED_RAGGED,
      .page_len = 3,
      .layout = KIT_BSHD,
      .lens = KIT_LENS_BOTH,
      .batch = 4}},
    {"page16",
     {.storage = KIT_PAGED,
      .page_len = 16,
      .features = HEED_HAS_CAUSAL,
      BOTTOM,
      .lens = KIT_LENS_BOTH,
      .batch = 4}},
    {"page17",
     {.storage = KIT_PAGED,
      .page_len = 17,
      .layout = KIT_BSHD,
      .features = HEED_HAS_WINDOW,
      BOTTOM,
      .window_left = 20,
      .window_right = -1}},
    {"reproducible", {.features = HEED_HAS_REPRODUCIBLE_CHUNKS | HEED_HAS_CAUSAL, BOTTOM}},
    {"everything",
     {.features = HEED_HAS_SCALE | HEED_HAS_SOFTCAP | HEED_HAS_CAUSAL | HEED_HAS_WINDOW |
                  HEED_HAS_ALIBI | HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE |
                  HEED_HAS_SINK,
      GIVEN,
      .scale = 0.2F,
      .softcap = 3,
      .window_left = 17,
      .window_right = 3,
      .offsets = KIT_OFFSET_MIXED,
      .bias_kind = KIT_BIAS_INF,
      .lens = KIT_LENS_BOTH,
      .batch = 4,
      .layout = KIT_BSHD}},
    /* Several chunks of keys, several kv heads of a tile, and pages that no row may touch. */
    {"long",
     {.q_len = 17,
      .kv_len = 700,
      .features = HEED_HAS_CAUSAL,
      BOTTOM,
      .lens = KIT_LENS_BOTH,
      .batch = 3}},
    {"long_tokens",
     {.q_len = 1,
      .kv_len = 2300,
      .layout = KIT_BSHD,
      .q_heads = 12,
      .kv_heads = 6,
      .lens = KIT_LENS_KV}},
    {"long_page16",
     {.q_len = 1,
      .kv_len = 2100,
      .storage = KIT_PAGED,
      .page_len = 16,
      .q_heads = 8,
      .kv_heads = 4,
      .lens = KIT_LENS_KV}},
    {"long_few",
     {.q_len = 3,
      .kv_len = 1300,
      .storage = KIT_PAGED,
      .page_len = 16,
      .q_heads = 6,
      .kv_heads = 3,
      .features = HEED_HAS_CAUSAL,
      BOTTOM}},
    {"long_window",
     {.q_len = 9,
      .kv_len = 900,
      .features = HEED_HAS_CAUSAL | HEED_HAS_WINDOW,
      BOTTOM,
      .window_left = 200,
      .window_right = -1,
      .lens = KIT_LENS_KV}},
    {"long_chunks",
     {.q_len = 5,
      .kv_len = 1400,
      .features = HEED_HAS_CAUSAL | HEED_HAS_REPRODUCIBLE_CHUNKS,
      BOTTOM,
      .lens = KIT_LENS_KV}},
};
/* clang-format on */

static const option *option_of(const char *name)
{
    const option *of = options;
    while (strcmp(of->name, name) != 0)
        of++;
    return of;
}

/* Every option with each format for k and another for v, which is f32, f16 or bf16 in 3 cases of
 * FORMATS + 3. */
static void add_options(kit_list *list)
{
    for (uint32_t n = 0; n < COUNT(options); n++)
        for (uint32_t f = 0; f < FORMATS; f++)
            for (int decode = 0; decode < 2; decode++) {
                kit_spec s = options[n].spec;
                const uint32_t other = (f + 1 + n) % (FORMATS + 3);
                const uint32_t v = s.layout == KIT_V_IN_K ? FIRST + f
                                   : other < FORMATS      ? FIRST + other
                                                          : HEED_F32 + other - FORMATS;
                char what[64];
                s.features |= HEED_HAS_LSE;
                if (decode && s.q_len)
                    continue;
                kit_codes_types(&s, FIRST + f, v, n + f);
                kit_codes_dims(&s, s.layout == KIT_V_IN_K ? 2 : s.kv_len > 1000 ? 0 : n + f);
                if (!s.q_len)
                    s.q_len = decode ? 1 : 19, s.kv_len = decode ? 53 : 37;
                snprintf(what, sizeof what, "%s%s", options[n].name, decode ? "_decode" : "");
                kit_codes_add(list, what, &s, (n + f) % 10 == 0);
            }
}

/* ---- other accuracies ------------------------------------------------------------------------ */

static void add_accuracies(kit_list *list)
{
    static const char *const name[] = {"", "exact", "bf16", "split", "int8"};
    static const char *const beside[] = {"causal", "window",      "mask",    "softcap",
                                         "alibi",  "outputs_raw", "gqa8",    "v_in_k_page16",
                                         "page16", "long_tokens", "long_few"};
    for (uint32_t accuracy = HEED_ACCURACY_EXACT; accuracy <= HEED_ACCURACY_INT8; accuracy++)
        for (uint32_t f = 0; f < FORMATS + 1; f++)
            for (uint32_t n = 0; n < 2 + (accuracy == HEED_ACCURACY_INT8 ? COUNT(beside) : 0);
                 n++) {
                kit_spec s = n < 2 ? (kit_spec){.batch = 2} : option_of(beside[n - 2])->spec;
                char what[64];
                const int q = f == FORMATS; /* k is no codes: int8 means nothing then */
                s.accuracy = accuracy;
                s.features |= HEED_HAS_LSE;
                kit_codes_types(
                    &s, q ? HEED_BF16 : FIRST + f,
                    s.layout == KIT_V_IN_K && !q ? FIRST + f : FIRST + (f + 5) % FORMATS, n + f);
                kit_codes_dims(&s, s.layout == KIT_V_IN_K ? 2 : n + f);
                if (q && s.layout == KIT_V_IN_K)
                    continue;
                if (!s.q_len)
                    s.q_len = n % 2 ? 1 : 19, s.kv_len = n % 2 ? 190 : 70;
                if (n % 3 == 1)
                    s.values = KIT_SPREAD, s.spread = (float)(1 + n % 4);
                snprintf(what, sizeof what, "%s_%s", name[accuracy],
                         n < 2 ? n ? "decode" : "prefill" : beside[n - 2]);
                kit_codes_add(list, what, &s, n < 2);
            }
}

void kit_codes_cases(kit_list *list)
{
    add_formats(list);
    add_dims(list);
    add_scales(list);
    add_options(list);
    kit_codes_values_cases(list);
    add_accuracies(list);
}
