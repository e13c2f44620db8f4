/* Cases of masks with structure: every kind of ranges and key blocks alone, in its forms, beside
 * every value of every other option and every storage; and each of them against the same mask
 * written out as bytes, bit for bit. See cases.h. */
#include "cases.h"
#include "run.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define RANGES(kind, n) .lists = KIT_LISTS_RANGES, .ranges_kind = KIT_RANGES_##kind, .n_ranges = (n)
#define BLOCKS(kind, rows, keys)                                                                   \
    .lists = KIT_LISTS_BLOCKS, .blocks_kind = KIT_BLOCKS_##kind, .block_rows = (rows),             \
    .block_keys = (keys)
#define BOTH(kind, n, other, rows, keys)                                                           \
    .lists = KIT_LISTS_RANGES | KIT_LISTS_BLOCKS, .ranges_kind = KIT_RANGES_##kind,                \
    .n_ranges = (n), .blocks_kind = KIT_BLOCKS_##other, .block_rows = (rows), .block_keys = (keys)
#define FROM(bits) .features = HEED_HAS_MASK_FROM | (bits)

/* clang-format off: a table */
static const struct {
    const char *name;
    kit_spec spec;
} kinds[] = {
    {"range", {RANGES(RANDOM, 1)}},
    {"ranges3", {RANGES(RANDOM, 3)}},
    {"ranges8", {RANGES(RANDOM, 8)}},
    {"documents", {RANGES(DOCUMENTS, 1)}},
    {"prefix", {RANGES(PREFIX, 1), .ranges_form = 3}},
    {"chunks", {RANGES(CHUNKS, 2), .ranges_form = 2}},
    {"causal", {RANGES(CAUSAL, 1), .ranges_form = 3}},
    {"window", {RANGES(WINDOW, 1)}},
    {"first_and_window", {RANGES(FIRST_AND_WINDOW, 2)}},
    {"tree", {RANGES(TREE, 8), .ranges_form = 3}},
    {"ranges_all", {RANGES(ALL, 2), .ranges_form = 7}},
    {"ranges_empty_rows", {RANGES(EMPTY_ROWS, 4)}},
    {"ranges_holes", {RANGES(HOLES, 6), .ranges_form = 3}},
    {"blocks_64", {BLOCKS(HALF, 64, 64)}},
    {"blocks_1x1", {BLOCKS(HALF, 1, 1)}},
    {"blocks_7x5", {BLOCKS(QUARTER, 7, 5), .blocks_form = 1}},
    {"blocks_16x32", {BLOCKS(QUARTER, 16, 32), .blocks_form = 2}},
    {"blocks_band", {BLOCKS(BAND, 4, 8), .blocks_form = 3}},
    {"blocks_all", {BLOCKS(ALL, 100, 3), .blocks_form = 7}},
    {"blocks_empty_rows", {BLOCKS(EMPTY_ROWS, 3, 16)}},
    {"blocks_holes", {BLOCKS(HOLES, 1000, 16), .blocks_form = 4}},
    {"ranges_and_blocks", {BOTH(RANDOM, 3, HALF, 8, 16)}},
    {"documents_and_blocks", {BOTH(DOCUMENTS, 1, QUARTER, 2, 3)}},
    {"from_mask", {FROM(HEED_HAS_MASK)}},
    {"from_bias", {FROM(HEED_HAS_BIAS), .bias_kind = KIT_BIAS_INF, .from_kind = 1}},
    {"from_both", {FROM(HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE), .from_kind = 3}},
    {"from_tree",
     {FROM(HEED_HAS_MASK), .mask_kind = KIT_MASK_TREE, .mask_form = 3, .from_kind = 4}},
    {"from_rows",
     {FROM(HEED_HAS_MASK | HEED_HAS_BIAS), .mask_form = 4, .bias_form = 8, .from_kind = 2}},
    {"from_ranges", {FROM(HEED_HAS_MASK), RANGES(RANDOM, 2)}},
    {"from_blocks_bias", {FROM(HEED_HAS_BIAS), BLOCKS(HALF, 5, 7)}},
};

static const struct {
    const char *name;
    int64_t q_len, kv_len;
    int quick;
} shapes[] = {{"", 19, 37, 1}, {"_one", 1, 330, 1}, {"_few", 7, 150, 0}, {"_many", 150, 290, 0}};
/* clang-format on */

static void add_kinds(kit_list *list)
{
    for (size_t n = 0; n < COUNT(kinds); n++)
        for (size_t k = 0; k < COUNT(shapes); k++) {
            kit_spec spec = kinds[n].spec;
            char name[80];
            spec.features |= HEED_HAS_LSE;
            spec.q_len = shapes[k].q_len;
            spec.kv_len = shapes[k].kv_len;
            snprintf(name, sizeof name, "%s%s", kinds[n].name, shapes[k].name);
            kit_add_types(list, "masks", name, &spec, shapes[k].quick);
            /* With every optional output, and dims that are other kernels'. */
            spec.features |= HEED_HAS_WEIGHTS | HEED_HAS_SCORES;
            spec.scores_stage = HEED_SCORES_RAW + n % 3;
            spec.qk_dim = n % 2 ? 64 : 128;
            spec.v_dim = spec.qk_dim;
            strcat(name, "_outputs");
            kit_add_types(list, "masks", name, &spec, 0);
        }
}

/* Long caches, which are cut into chunks, with several heads beside each other. */
static void add_long(kit_list *list)
{
    for (size_t n = 0; n < COUNT(kinds); n++)
        for (int rows = n % 3 ? 1 : 6; rows < 30; rows *= n % 3 ? 24 : 6) {
            kit_spec spec = kinds[n].spec;
            char name[80];
            spec.q_heads = 4;
            spec.kv_heads = 2;
            spec.qk_dim = spec.v_dim = n % 2 ? 128 : 64;
            spec.q_len = rows;
            spec.kv_len = 2300;
            spec.batch = 1;
            spec.layout = n % 3 ? KIT_BSHD : KIT_BHSD;
            if (n % 4 == 1) {
                spec.storage = KIT_PAGED;
                spec.page_len = 16;
            }
            snprintf(name, sizeof name, "%s_%d", kinds[n].name, rows);
            kit_add_types(list, "masks_long", name, &spec, rows == 1);
        }
}

/* Some kinds beside the values of every other option, and every storage. */
static void add_pairs(kit_list *list)
{
    static const struct {
        const char *name;
        uint32_t storage, page_len, pages;
    } stored[] = {{"padded", KIT_PADDED_ROWS, 0, 0},
                  {"packed", KIT_RAGGED, 0, 0},
                  {"page1", KIT_PAGED, 1, 0},
                  {"page16", KIT_PAGED_RAGGED, 16, 0},
                  {"page3", KIT_PAGED_RAGGED, 3, KIT_PAGES_SHARED}};
    static const int chosen[] = {0, 2, 11, 13, 15, 20, 21, 24, 28, 29};
    for (size_t c = 0; c < COUNT(chosen); c++) {
        const kit_spec *kind = &kinds[chosen[c]].spec;
        for (size_t how = 0; how < COUNT(stored); how++) {
            kit_spec spec;
            int row = -1, at = 0;
            while ((row = kit_each_value(row, &spec)) >= 0) {
                char name[80];
                if (how && at++ % COUNT(stored) != how)
                    continue; /* all of them where rows are padded, a fifth in each other storage */
                spec.features |= kind->features;
                spec.lists = kind->lists;
                spec.n_ranges = kind->n_ranges;
                spec.ranges_kind = kind->ranges_kind;
                spec.ranges_form = kind->ranges_form;
                spec.block_rows = kind->block_rows;
                spec.block_keys = kind->block_keys;
                spec.blocks_kind = kind->blocks_kind;
                spec.blocks_form = kind->blocks_form;
                spec.from_kind = kind->from_kind;
                spec.storage = stored[how].storage;
                spec.page_len = stored[how].page_len;
                spec.pages = stored[how].pages;
                snprintf(name, sizeof name, "%s_%s_%03d", kinds[chosen[c]].name, stored[how].name,
                         row);
                kit_add_types(list, "masks_pair", name, &spec, how == 0 && row % 9 == 0);
            }
        }
    }
}

/* ---- as a mask of bytes ---------------------------------------------------------------------- */

/* Do this backend's blocks of keys begin at the same keys whatever the rows see? */
static int has_fixed_blocks(const kit_env *env, const kit_spec *spec)
{
    const heed_attn_desc d = {.struct_size = sizeof d,
                              .features = HEED_HAS_REPRODUCIBLE_CHUNKS,
                              .q_heads = 1,
                              .kv_heads = 1,
                              .qk_dim = spec->qk_dim,
                              .v_dim = spec->v_dim,
                              .q_type = spec->q_type,
                              .k_type = spec->k_type,
                              .v_type = spec->v_type,
                              .out_type = spec->out_type,
                              .max_batch = 1,
                              .max_q_len = 32,
                              .max_kv_len = 32};
    heed_error why;
    return heed_attn_supported(env->context, &d, &why) == HEED_OK;
}

/* The same problem with its lists as a bool mask gives the same bits, since what a row does not see
 * may not change them. A backend whose blocks of keys begin where the first row sees one sums in
 * another order then; it is held to the oracle with both forms instead. */
static void run_twin(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    kit_twice t = {.spec = {c->spec, c->spec},
                   .way = {{.how = KIT_BY_WORKSPACE, .n_parts = 1, .garbage = 0xa5},
                           {.how = KIT_BY_WORKSPACE, .n_parts = 1, .garbage = 0x5a}},
                   .side = GUARD_LOW,
                   .check = kit_check};
    kit_spec *dense = &t.spec[1];
    dense->features |= HEED_HAS_MASK;
    dense->lists |= KIT_LISTS_AS_MASK;
    dense->mask_kind = KIT_MASK_LISTS;
    dense->mask_form = 0;
    if (!has_fixed_blocks(env, &c->spec)) {
        const kit_spec lists = t.spec[0];
        t.spec[0] = t.spec[1];
        kit_conform_twice(env->context, &t, outcome);
        t.spec[0] = t.spec[1] = lists;
    }
    if (outcome->verdict == KIT_PASSED)
        kit_conform_twice(env->context, &t, outcome);
}

static void add_twins(kit_list *list)
{
    for (size_t n = 0; n < COUNT(kinds); n++)
        for (size_t k = 0; k < COUNT(shapes); k++)
            for (uint32_t type = HEED_F32; type <= HEED_BF16; type += 2) {
                kit_case c = {.quick = type == HEED_F32, .run = run_twin, .spec = kinds[n].spec};
                if (c.spec.features & HEED_HAS_MASK_FROM)
                    continue;
                c.spec.features |= HEED_HAS_LSE;
                c.spec.q_len = shapes[k].q_len * 3 / 2;
                c.spec.kv_len = shapes[k].kv_len * 5 / 2;
                c.spec.qk_dim = c.spec.v_dim = 64;
                c.spec.q_type = c.spec.k_type = c.spec.v_type = c.spec.out_type = type;
                kit_complete(&c.spec);
                snprintf(c.name, sizeof c.name, "masks_dense/%s%s/%s", kinds[n].name,
                         shapes[k].name, kit_type_name(type));
                kit_add(list, &c);
            }
}

/* ---- memory ----------------------------------------------------------------------------------- */

/* The workspace of a plan may not grow with rows times keys: for 16 times the rows and 16 times the
 * keys it may be at most 8 times as large (not 256), and at most 16 MiB, where a bit for each row
 * and key would take half a GiB. */
static void run_workspace(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    size_t bytes[2];
    for (int n = 0; n < 2; n++) {
        const int64_t len = n ? 65536 : 4096;
        heed_attn_desc d = {.struct_size = sizeof d,
                            .features = HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS | HEED_HAS_MASK_FROM |
                                        HEED_HAS_MASK,
                            .q_heads = 4,
                            .kv_heads = 2,
                            .qk_dim = 64,
                            .v_dim = 64,
                            .q_type = c->spec.q_type,
                            .k_type = c->spec.q_type,
                            .v_type = c->spec.q_type,
                            .out_type = c->spec.q_type,
                            .n_ranges = 8,
                            .block_rows = 64,
                            .block_keys = 64,
                            .max_batch = 1,
                            .max_q_len = len,
                            .max_kv_len = len};
        heed_attn *plan;
        heed_status status = heed_attn_create(env->context, &d, &plan);
        if (kit_status(outcome, status, heed_last_error(), "heed_attn_create") != 0)
            return;
        bytes[n] = heed_attn_workspace_bytes(plan, 1);
        heed_attn_release(plan);
    }
    if (bytes[1] > bytes[0] * 8 || bytes[1] > (size_t)16 << 20)
        kit_fail(outcome, "the workspace has %zu bytes for 4096 rows and keys, %zu for 65536",
                 bytes[0], bytes[1]);
}

void kit_mask_cases(kit_list *list)
{
    add_kinds(list);
    add_long(list);
    add_pairs(list);
    add_twins(list);
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type += 2) {
        kit_case c = {.quick = 1, .run = run_workspace, .spec = {.q_type = type}};
        snprintf(c.name, sizeof c.name, "masks_workspace/q_times_kv/%s", kit_type_name(type));
        kit_add(list, &c);
    }
}
