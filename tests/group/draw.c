/* Problems by seed: families of options, and partitions of all kinds. */
#include "ranks.h"

#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LSE HEED_HAS_LSE
#define CAUSAL (HEED_HAS_CAUSAL | LSE)
#define GIVEN .position = HEED_POS_GIVEN
#define BOTTOM .position = HEED_POS_BOTTOM_RIGHT
#define TOP .position = HEED_POS_TOP_LEFT

typedef struct family {
    const char *name;
    kit_spec spec;
    int only; /* HEED_GROUP_SPLIT: ring refuses it, and AUTO does not take it */
} family;

/* clang-format off */
static const family families[] = {
    {"plain", {.features = LSE}, 0},
    {"no_lse", {.features = 0}, 0},
    {"causal", {.features = CAUSAL, BOTTOM, .q_len = 40, .kv_len = 60}, 0},
    {"causal_top", {.features = CAUSAL, TOP, .q_len = 50, .kv_len = 50}, 0},
    {"causal_given", {.features = CAUSAL, GIVEN, .offsets = KIT_OFFSET_MIXED, .batch = 4}, 0},
    {"window", {.features = LSE | HEED_HAS_WINDOW, BOTTOM, .window_left = 9, .window_right = 3, .q_len = 33,
      .kv_len = 80}, 0},
    {"causal_window", {.features = CAUSAL | HEED_HAS_WINDOW, BOTTOM, .window_left = 20, .window_right = -1,
      .q_len = 64, .kv_len = 64}, 0},
    {"mqa", {.features = CAUSAL, BOTTOM, .q_heads = 7, .kv_heads = 1, .qk_dim = 32, .v_dim = 16}, 0},
    {"mha", {.features = LSE, .q_heads = 3, .kv_heads = 3, .qk_dim = 17, .v_dim = 33}, 0},
    {"alibi", {.features = CAUSAL | HEED_HAS_ALIBI, BOTTOM}, 0},
    {"softcap", {.features = LSE | HEED_HAS_SOFTCAP | HEED_HAS_SCALE, .softcap = 2, .scale = 0.7F}, 0},
    {"bias", {.features = LSE | HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE, .bias_kind = KIT_BIAS_INF}, 0},
    {"bias_rows", {.features = LSE | HEED_HAS_BIAS, .bias_form = 4, .lens = KIT_LENS_KV, .batch = 3}, 0},
    {"mask", {.features = LSE | HEED_HAS_MASK, .mask_kind = KIT_MASK_EMPTY_ROWS}, 0},
    {"mask_heads", {.features = LSE | HEED_HAS_MASK, .mask_form = 2, .lens = KIT_LENS_BOTH, .batch = 4}, 0},
    {"mask_from", {.features = LSE | HEED_HAS_MASK | HEED_HAS_MASK_FROM, .batch = 5, .kv_len = 80}, 0},
    {"bias_from", {.features = LSE | HEED_HAS_BIAS | HEED_HAS_MASK_FROM, .from_kind = 3, .lens = KIT_LENS_KV,
      .batch = 3, .kv_len = 90, .bias_kind = KIT_BIAS_INF}, 0},
    {"ranges", {.features = LSE, .lists = KIT_LISTS_RANGES, .n_ranges = 3, .ranges_kind = KIT_RANGES_RANDOM}, 0},
    {"ranges_heads", {.features = LSE, .lists = KIT_LISTS_RANGES, .n_ranges = 8, .ranges_form = 2,
      .ranges_kind = KIT_RANGES_TREE, .lens = KIT_LENS_KV}, 0},
    {"ranges_empty", {.features = LSE, .lists = KIT_LISTS_RANGES, .n_ranges = 2,
      .ranges_kind = KIT_RANGES_EMPTY_ROWS}, 0},
    {"ranges_no_rows", {.features = LSE, .q_heads = 64, .kv_heads = 4, .lists = KIT_LISTS_RANGES, .n_ranges = 8,
      .ranges_form = 4, .lens = KIT_LENS_GIVEN, .batch = 6, .sequence = {{.kv_len = 37}, {.kv_len = 12}}}, 0},
    {"key_blocks", {.features = LSE, .lists = KIT_LISTS_BLOCKS, .block_rows = 3, .block_keys = 1,
      .blocks_kind = KIT_BLOCKS_HALF, .kv_len = 230, .q_len = 9}, 0},
    {"sink", {.features = LSE | HEED_HAS_SINK}, 0},
    {"sink_mask", {.features = LSE | HEED_HAS_SINK | HEED_HAS_MASK, .sinks = KIT_SINK_SOME_OFF,
      .mask_kind = KIT_MASK_EMPTY_ROWS}, 0},
    {"sink_no_lse", {.features = HEED_HAS_SINK | HEED_HAS_CAUSAL, BOTTOM}, 0},
    {"packed", {.features = CAUSAL, BOTTOM, .storage = KIT_RAGGED, .lens = KIT_LENS_BOTH, .batch = 5}, 0},
    {"packed_q", {.features = LSE | HEED_HAS_SINK, .storage = KIT_RAGGED_Q, .lens = KIT_LENS_Q, .batch = 4}, 0},
    {"packed_kv", {.features = LSE, .storage = KIT_RAGGED_KV, .lens = KIT_LENS_KV, .batch = 4}, 0},
    {"paged", {.features = CAUSAL, BOTTOM, .storage = KIT_PAGED, .page_len = 4, .kv_len = 61}, 0},
    {"paged_ragged", {.features = CAUSAL, BOTTOM, .storage = KIT_PAGED_RAGGED, .page_len = 8, .kv_len = 70,
      .lens = KIT_LENS_BOTH, .batch = 5}, 0},
    {"ragged", {.features = CAUSAL, BOTTOM, .lens = KIT_LENS_BOTH, .batch = 6}, 0},
    {"zeros", {.features = LSE, .lens = KIT_LENS_ZEROS, .batch = 5}, 0},
    {"bshd", {.features = LSE, .layout = KIT_BSHD, .lens = KIT_LENS_KV}, 0},
    {"padded", {.features = CAUSAL, BOTTOM, .layout = KIT_PADDED}, 0},
    {"negative", {.features = CAUSAL, BOTTOM, .layout = KIT_NEGATIVE}, 0},
    {"dim_major", {.features = LSE, .layout = KIT_DIM_MAJOR}, 0},
    {"decode", {.features = LSE, .q_len = 1, .kv_len = 700, .qk_dim = 64, .v_dim = 64}, 0},
    {"decode_few", {.features = CAUSAL, BOTTOM, .q_len = 5, .kv_len = 400, .batch = 1}, 0},
    {"q8_0", {.features = LSE, .k_type = HEED_Q8_0, .v_type = HEED_Q8_0, .qk_dim = 64, .v_dim = 32}, 0},
    {"q4_1", {.features = CAUSAL, BOTTOM, .k_type = HEED_Q4_1, .v_type = HEED_F16, .qk_dim = 32, .v_dim = 32}, 0},
    {"i8", {.features = LSE, .lens = KIT_LENS_KV, .batch = 3, .k_type = HEED_I8, .v_type = HEED_I8,
      .k_scales = {KIT_SCALES_TOKEN, 1}, .v_scales = {KIT_SCALES_HEAD, 0}}, HEED_GROUP_SPLIT},
    {"reproducible", {.features = CAUSAL | HEED_HAS_REPRODUCIBLE_CHUNKS, BOTTOM}, 0},
    {"packed_one", {.features = CAUSAL, BOTTOM, .storage = KIT_RAGGED, .lens = KIT_LENS_BOTH, .batch = 1}, 0},
    {"packed_no_rows", {.features = LSE, .storage = KIT_RAGGED_Q, .lens = KIT_LENS_GIVEN, .batch = 2,
      .sequence = {{.kv_len = 37}, {.kv_len = 12}}}, 0},
    {"few_rows", {.features = CAUSAL, BOTTOM, .q_len = 3, .batch = 1}, 0},
    {"f8_dim_major", {.features = LSE, .layout = KIT_DIM_MAJOR, .k_type = HEED_F8_E4M3, .v_type = HEED_F8_E4M3}, 0},
    {"no_keys", {.features = LSE | HEED_HAS_SINK, .q_len = 5, .kv_len = 0}, 0},
    {"u8_packed", {.features = CAUSAL, BOTTOM, .storage = KIT_RAGGED, .lens = KIT_LENS_BOTH, .batch = 4,
      .k_type = HEED_U8, .v_type = HEED_U8, .k_scales = {KIT_SCALES_GROUPS, 1}, .v_scales = {KIT_SCALES_TOKEN, 0}},
      HEED_GROUP_SPLIT},
    {"i8_paged", {.features = LSE, .storage = KIT_PAGED, .page_len = 4, .kv_len = 61, .k_type = HEED_I8,
      .v_type = HEED_I8, .k_scales = {KIT_SCALES_CHANNELS, 0}, .v_scales = {KIT_SCALES_TOKEN, 1}}, HEED_GROUP_SPLIT},
};
/* clang-format on */

int ranks_families(void)
{
    return (int)(sizeof families / sizeof *families);
}

/* Draws the places where a sequence of `length` is cut: multiples of `unit`, ascending. */
static void cut(int32_t *first, uint32_t n, int32_t length, int32_t unit, uint64_t *random)
{
    const int even = kit_next(random) % 3 == 0;
    first[0] = 0;
    for (uint32_t p = 1; p < n; p++) {
        int64_t at = even ? (int64_t)length * p / n : kit_below(random, length + 1);
        first[p] = (int32_t)(at / unit * unit);
    }
    first[n] = length;
    for (uint32_t p = 1; p < n; p++) /* insertion sort */
        for (uint32_t k = p; k > 1 && first[k] < first[k - 1]; k--) {
            const int32_t swap = first[k];
            first[k] = first[k - 1];
            first[k - 1] = swap;
        }
}

/* Draws who owns the parts: each rank one of them (in order, or backwards), two in zigzag, or
 * any. */
static void own(ranks_case *c, uint64_t *random)
{
    const uint32_t kind =
        c->n_parts == c->size ? (uint32_t)kit_below(random, 3) : 2 + (uint32_t)kit_below(random, 2);
    c->has_owner = kind > 0;
    for (uint32_t p = 0; p < c->n_parts; p++)
        c->owner[p] = kind == 0   ? p
                      : kind == 1 ? c->size - 1 - p
                      : kind == 2 && c->n_parts == 2 * c->size /* zigzag */
                          ? (p < c->size ? p : 2 * c->size - 1 - p)
                          : (uint32_t)(kit_next(random) % c->size);
}

void ranks_cut(ranks_case *c)
{
    c->rows_apart |= c->scheme == HEED_GROUP_RING;
    c->partition = (heed_partition){.struct_size = sizeof c->partition,
                                    .scheme = c->scheme,
                                    .want = c->want,
                                    .root = c->root,
                                    .n_parts = c->n_parts,
                                    .owner = c->has_owner ? c->owner : NULL,
                                    .key_first = c->key_first,
                                    .row_first = c->rows_apart ? c->row_first : NULL,
                                    .timeout_ns = INT64_C(60000000000)};
}

int ranks_build(ranks_case *c, uint64_t seed)
{
    uint64_t random = seed;
    const kit_spec *s = &c->spec;
    if (kit_build(&c->problem, s, GUARD_HIGH) != 0)
        return -1;
    const int32_t key_unit = s->lists & KIT_LISTS_BLOCKS ? (int32_t)s->block_keys * 64
                             : s->page_len               ? (int32_t)s->page_len
                                                         : 1;
    const int32_t row_unit = s->lists & KIT_LISTS_BLOCKS ? (int32_t)s->block_rows : 1;
    for (uint32_t b = 0; b < s->batch; b++) {
        cut(c->key_first + b * (c->n_parts + 1), c->n_parts, c->problem.kv_lens[b], key_unit,
            &random);
        cut(c->row_first + b * (c->n_parts + 1), c->n_parts, c->problem.q_lens[b], row_unit,
            &random);
    }
    ranks_cut(c);
    return 0;
}

int ranks_of_way(ranks_case *c, const ranks_way *way, uint32_t size, int64_t q_len)
{
    memset(c, 0, sizeof *c);
    c->spec = (kit_spec){.q_type = HEED_F32,
                         .k_type = HEED_F32,
                         .v_type = HEED_F32,
                         .out_type = HEED_F32,
                         .q_heads = 4,
                         .kv_heads = 2,
                         .qk_dim = 24,
                         .v_dim = 24,
                         .batch = 1,
                         .q_len = q_len,
                         .kv_len = 50,
                         .seed = 3,
                         .features = HEED_HAS_LSE};
    c->size = c->n_parts = size;
    c->scheme = way->scheme;
    c->want = way->want;
    c->rows_apart = way->rows_apart;
    c->root = way->root;
    snprintf(c->name, sizeof c->name, "%s", way->name);
    return ranks_build(c, 8);
}

int ranks_draw(ranks_case *c, int n, uint64_t seed)
{
    static const char *const want[] = {"all", "root", "heads"};
    static const char *const apart[] = {"auto", "rows", "ring"};
    const family *f = &families[n];
    uint64_t random = kit_hash(seed, n);
    memset(c, 0, sizeof *c);
    c->spec = f->spec;
    kit_spec *s = &c->spec;
    const uint32_t type = HEED_F32 + (uint32_t)kit_below(&random, 3);
    s->seed = kit_next(&random);
    s->q_type = type;
    s->k_type = s->k_type ? s->k_type : type;
    s->v_type = s->v_type ? s->v_type : type;
    s->out_type = kit_next(&random) % 2 ? type : HEED_F32 + (uint32_t)kit_below(&random, 3);
    s->poison = (uint32_t)kit_below(&random, KIT_POISONS);
    if (!s->q_heads)
        s->q_heads = 4, s->kv_heads = 2;
    if (!s->qk_dim)
        s->qk_dim = s->v_dim = 24;
    s->batch = s->batch ? s->batch : 2;
    if (!s->q_len && !s->kv_len)
        s->q_len = 19, s->kv_len = 37;
    s->q_len = s->q_len ? s->q_len : 19;
    s->bias_type = HEED_F32 + (uint32_t)kit_below(&random, 3);
    c->size = 1 + (uint32_t)kit_below(&random, RANKS_MOST);
    const uint32_t kind = (uint32_t)kit_below(&random, 3);
    c->n_parts = kind == 0   ? c->size
                 : kind == 1 ? 2 * c->size
                             : 1 + (uint32_t)kit_below(&random, 20);
    own(c, &random);
    const uint32_t scheme = (uint32_t)kit_below(&random, 4);
    c->rows_apart = scheme > 0;
    c->scheme = scheme == 1 && !f->only ? HEED_GROUP_RING
                : scheme == 2           ? HEED_GROUP_AUTO
                                        : HEED_GROUP_SPLIT;
    if (!c->rows_apart) {
        c->want = (uint32_t)kit_below(&random, 3);
        c->root = c->want == HEED_WANT_ROOT ? (uint32_t)(kit_next(&random) % c->size) : 0;
    }
    snprintf(c->name, sizeof c->name, "%s %s: %u ranks, %u parts, seed %llu", f->name,
             c->rows_apart ? apart[c->scheme] : want[c->want], c->size, c->n_parts,
             (unsigned long long)seed);
    return ranks_build(c, kit_next(&random));
}

void ranks_free(ranks_case *c)
{
    kit_free(&c->problem);
    free(c->oracle);
    c->oracle = NULL;
}
