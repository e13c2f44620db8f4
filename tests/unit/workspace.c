/* What a call places in its workspace fits the room that the plan reserved, whatever classes of
 * sequences meet in it: tile states, chunk states and their seams, the marks of both, mask summaries.
 * The backend here only names tilings, drawn for each class by itself; runs are begun and not done,
 * and what their tiles need is added up by hand. */
#include "attention/workspace.h"
#include "stub.h"
#include "unit.h"

enum { BATCH = 6, DIM = 128, CASES = 4000, CLASSES = HEED_QUERY_MANY + 1 };

static heed_tiling drawn[CLASSES];
static int n_cut, n_mixed, n_summaries, n_together; /* calls with such a thing */

static heed_status tiling(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    (void)machine;
    *out = drawn[problem->query_class];
    return HEED_OK;
}

static heed_status run_tile(const void *machine, const void *state, const heed_problem *problem,
                            heed_tile *tile, void *scratch)
{
    (void)machine, (void)state, (void)problem, (void)tile, (void)scratch;
    return HEED_ERR_BACKEND; /* no run is done */
}

STUB_BACKEND("cutter", "names tilings", HEED_HAS_LENS | HEED_HAS_MASK | HEED_HAS_RANGES);

/* A call of sequences with q_lens rows each. */
typedef struct problem {
    heed_attn_desc desc;
    heed_attn_args args;
    int32_t q_lens[BATCH], kv_lens[BATCH], ranges[BATCH][2];
    uint32_t n_parts;
} problem;

static float data[DIM];

static void make_problem(problem *p, uint32_t kv_heads, uint32_t group, int64_t q_len,
                         int64_t kv_len, uint64_t features)
{
    const int64_t heads = (int64_t)kv_heads * group;
    p->desc = (heed_attn_desc){.struct_size = sizeof p->desc,
                               .features = HEED_HAS_LENS | features,
                               UNIT_SHAPE((uint32_t)heads, kv_heads, 1, DIM),
                               UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                               .n_ranges = features & HEED_HAS_RANGES ? 1 : 0,
                               .max_batch = BATCH,
                               .max_q_len = q_len,
                               .max_kv_len = kv_len};
    /* Token-major, so that heads are taken together. */
    const int64_t v = (int64_t)kv_heads * DIM;
    p->args = (heed_attn_args){.struct_size = sizeof p->args,
                               .batch = BATCH,
                               .q_len = q_len,
                               .kv_len = kv_len,
                               .q = {data, {0, 0, 0, 1}},
                               .k = {data, {kv_len * (int64_t)kv_heads, 1, kv_heads, 1}},
                               .v = {data, {kv_len * v, DIM, v, 1}},
                               .out = {data + 1, {q_len * heads * DIM, DIM, heads * DIM, 1}},
                               .q_lens = p->q_lens,
                               .kv_lens = p->kv_lens};
    if (features & HEED_HAS_MASK)
        p->args.mask = (heed_const_view){data, {0, 0, 0, 1}};
    if (features & HEED_HAS_RANGES)
        p->args.ranges = (heed_const_view){p->ranges, {1, 0, 0, 1}};
}

static size_t in_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Maximum, sum and accumulator of each row. */
static size_t state_of(const problem *p, const heed_sequence *s)
{
    const int64_t q_rows = drawn[s->class_index].query_rows;
    const int64_t rows = s->q_len < q_rows ? s->q_len : q_rows;
    const int64_t group = p->desc.q_heads / p->desc.kv_heads;
    return in_lines((size_t)(rows * group * s->kv_heads) * (DIM + 2) * sizeof(float));
}

/* Kinds of the key blocks of a tile: for each of its heads, and with ranges beside a mask one row more. */
static size_t summary_of(const problem *p, const heed_sequence *s)
{
    const heed_tiling *t = &drawn[s->class_index];
    const uint64_t both = HEED_HAS_MASK | HEED_HAS_RANGES, has = p->desc.features & both;
    const int64_t keys = s->n_chunks > 1 ? (int64_t)t->key_chunk : s->kv_len;
    const int64_t heads = (int64_t)p->desc.q_heads / p->desc.kv_heads * s->kv_heads;
    return has ? (size_t)((heads + (has == both)) * ((keys + t->key_block - 1) / t->key_block)) : 0;
}

static void check_places(const problem *p, const heed_attn *plan, const heed_attn_run_state *run,
                         const char *name)
{
    const heed_layout *l = &plan->layout;
    size_t tile = 0, chunk = 0, summary = 0;
    uint32_t levels = 0, cut = 0, together = 0, of_class = CLASSES, mixed = 0;
    int64_t chunks = 0, groups = 0;
    for (int b = 0; b < BATCH; b++) {
        const heed_sequence *s = &run->sequence[b];
        if (s->q_len == 0)
            continue;
        const size_t bytes = state_of(p, s), kinds = summary_of(p, s);
        tile = bytes > tile ? bytes : tile;
        summary = kinds > summary ? kinds : summary;
        together |= s->kv_heads > 1;
        mixed |= of_class != CLASSES && of_class != s->class_index;
        of_class = s->class_index;
        if (s->n_chunks == 1)
            continue;
        const uint32_t n = heed_tree_levels(0, s->n_chunks - 1);
        const int64_t tiles = (p->desc.kv_heads + s->kv_heads - 1) / s->kv_heads;
        chunk = bytes > chunk ? bytes : chunk;
        levels = n > levels ? n : levels;
        chunks = s->n_chunks > chunks ? s->n_chunks : chunks;
        groups += tiles * s->n_runs;
        cut++;
    }
    n_cut += cut > 0, n_mixed += cut && mixed, n_summaries += summary > 0, n_together += together;
    CHECK(tile <= l->part_mask - l->part_state, "%s: a tile's state has %zu bytes, room for %zu",
          name, tile, l->part_mask - l->part_state);
    CHECK(summary <= l->part - l->part_mask, "%s: a mask summary has %zu bytes, room for %zu", name,
          summary, l->part - l->part_mask);
    CHECK(groups <= l->max_groups, "%s: %lld row groups, room for %lld", name, (long long)groups,
          (long long)l->max_groups);
    if (!cut)
        return;
    /* A part's tiles may keep as many states as the tree has levels, and one that is being made; two
     * row groups may be open for it (workspace.c). */
    const size_t n_states = (size_t)p->n_parts * (levels + 1), n_seams = (size_t)p->n_parts * 2;
    const char *marks = (const char *)run->seams.taken;
    CHECK(run->states.n >= n_states && run->states.stride >= chunk,
          "%s: %u states of %zu bytes, where %zu of %zu are needed", name, run->states.n,
          run->states.stride, n_states, chunk);
    CHECK(run->states.base + run->states.n * run->states.stride <= marks,
          "%s: %u states of %zu bytes end %td bytes behind the marks", name, run->states.n,
          run->states.stride, run->states.base + run->states.n * run->states.stride - marks);
    CHECK(run->seams.n >= n_seams && run->seams.stride >= (size_t)chunks * sizeof(atomic_uint),
          "%s: %u seams of %zu bytes for %lld chunks", name, run->seams.n, run->seams.stride,
          (long long)chunks);
    CHECK(run->seams.base + run->seams.n * run->seams.stride <= run->states.base,
          "%s: seams end behind the states", name);
    CHECK(run->seams.n + run->states.n <= (size_t)(run->units.base - marks),
          "%s: %u marks, room for %td", name, run->seams.n + run->states.n,
          run->units.base - marks);
}

static void begin(problem *p, heed_context *context, const char *name)
{
    heed_attn *plan = NULL;
    size_t bytes;
    for (int b = 0; b < BATCH; b++)
        p->ranges[b][0] = 0, p->ranges[b][1] = p->kv_lens[b];
    heed_status st = heed_attn_create(context, &p->desc, &plan);
    CHECK(st == HEED_OK, "%s: %s", name, heed_last_error());
    if (st != HEED_OK)
        return;
    void *workspace = unit_workspace(plan, p->n_parts, &bytes);
    st = heed_attn_begin(plan, &p->args, p->n_parts, workspace, bytes);
    CHECK(st == HEED_OK, "%s: %s", name, heed_last_error());
    if (st == HEED_OK)
        check_places(p, plan, workspace, name);
    free(workspace);
    heed_attn_release(plan);
}

static heed_context *new_context(void)
{
    heed_context *context = unit_context(1, "cutter");
    CHECK_OK(heed_context_register(context, &stub_backend));
    return context;
}

/* Few rows in chunks of 8192 keys have many state rows and one level of merges, one row in chunks of
 * 1024 keys has few and four: each by itself needs less than both in one call. */
static void mixed_chunks(void)
{
    problem p = {.n_parts = 4};
    heed_context *context = new_context();
    for (int i = 0; i < CLASSES; i++)
        drawn[i] = (heed_tiling){.struct_size = sizeof drawn[i],
                                 .query_rows = 16,
                                 .key_block = 32,
                                 .key_chunk = i == HEED_QUERY_ONE    ? 1024
                                              : i == HEED_QUERY_MANY ? 0
                                                                     : 8192};
    make_problem(&p, 1, 32, 16, 16384, 0);
    for (int b = 0; b < BATCH; b++)
        p.q_lens[b] = b % 2 ? 16 : 1, p.kv_lens[b] = 16384;
    begin(&p, context, "one row beside few");
    heed_context_release(context);
}

/* Of tiles of 16 rows no more than three kv heads have room for their states. Those of two rows, in
 * the same room, would have all eight. */
static void more_heads(void)
{
    problem p = {.n_parts = 1};
    heed_context *context = new_context();
    for (int i = 0; i < CLASSES; i++)
        drawn[i] = (heed_tiling){.struct_size = sizeof drawn[i],
                                 .query_rows = 16,
                                 .key_block = 16,
                                 .kv_heads_beside = i == HEED_QUERY_FEW ? 8 : 1};
    make_problem(&p, 8, 16, 16, 1024, HEED_HAS_MASK);
    for (int b = 0; b < BATCH; b++)
        p.q_lens[b] = 2, p.kv_lens[b] = 1024;
    begin(&p, context, "two rows of many heads");
    heed_context_release(context);
}

static void draw(problem *p, uint64_t *random)
{
    static const uint64_t features[] = {0, HEED_HAS_MASK, HEED_HAS_RANGES,
                                        HEED_HAS_MASK | HEED_HAS_RANGES};
    const int64_t q_len = 1 + kit_below(random, 40), kv_len = 1 + kit_below(random, 5000);
    for (int i = 0; i < CLASSES; i++) {
        const uint32_t block = 1u << kit_below(random, 7);
        drawn[i] = (heed_tiling){.struct_size = sizeof drawn[i],
                                 .query_rows = 1 + (uint32_t)kit_below(random, 64),
                                 .key_block = block,
                                 .key_chunk = block * (uint32_t)kit_below(random, 40),
                                 .scratch_bytes = (size_t)kit_below(random, 3) * 64,
                                 .kv_heads = (uint32_t)kit_below(random, 9),
                                 .kv_heads_beside = (uint32_t)kit_below(random, 9)};
    }
    make_problem(p, 1 + (uint32_t)kit_below(random, 12), 1 + (uint32_t)kit_below(random, 32), q_len,
                 kv_len, features[kit_below(random, 4)]);
    p->n_parts = 1 + (uint32_t)kit_below(random, 9);
    for (int b = 0; b < BATCH; b++) {
        p->q_lens[b] = (int32_t)kit_below(random, b % 2 ? q_len + 1 : 2);
        p->kv_lens[b] = (int32_t)(kv_len - kit_below(random, b % 3 ? kv_len + 1 : 1));
    }
}

int main(void)
{
    mixed_chunks();
    more_heads();
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        problem p;
        uint64_t random = seed;
        char name[32];
        snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed);
        draw(&p, &random);
        heed_context *context = new_context();
        begin(&p, context, name);
        heed_context_release(context);
    }
    CHECK(n_cut > CASES / 2 && n_mixed > CASES / 2, "%d calls are cut, %d of classes that differ",
          n_cut, n_mixed);
    CHECK(n_summaries > CASES / 2 && n_together > CASES / 8, "%d have summaries, %d heads together",
          n_summaries, n_together);
    return checks_end();
}
