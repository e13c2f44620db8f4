/* Every visible (row, key) of every sequence reaches the backend exactly once, in tiles of the
 * sizes that its tiling named, whatever the tiling, the lengths, the number of parts and the
 * contents of the workspace; and the merge of the pieces is right. The backend here counts instead
 * of computing: every score is 0, so that a row's sum is the number of keys that it sees. */
#include "../threads/on_pthreads.h"
#include "stub.h"
#include "unit.h"

enum { BATCH = 3, KV_HEADS = 2, GROUP = 2, Q_HEADS = KV_HEADS * GROUP, MAX_Q = 40, MAX_KV = 70 };

static heed_tiling wanted;
static unsigned char count[BATCH][Q_HEADS][MAX_Q][MAX_KV];
static float q[BATCH * Q_HEADS * MAX_Q];
static int n_bad_tiles, n_bad_spans, n_empty_spans, n_together, n_chunks_together;
static int alone;                        /* the run has one part */
static int n_broken_promises, n_gone_on; /* HEED_TILE_GOES_ON, which runs of one part have */
static heed_tile before;                 /* the tile before this one in a run of one part */

static heed_status tiling(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    (void)machine;
    *out = wanted;
    if (problem->query_class == HEED_QUERY_MANY)
        out->key_chunk = 0;
    return HEED_OK;
}

static int is_good_tile(const heed_tile *t)
{
    const int64_t rows = wanted.query_rows, chunk = wanted.key_chunk ? wanted.key_chunk : MAX_KV;
    return t->struct_size == sizeof *t && t->kv_heads >= 1 && t->n_heads == GROUP * t->kv_heads &&
           t->q_first % rows == 0 && t->q_count > 0 &&
           (t->q_count == rows || t->q_first + t->q_count == t->q_len) && t->k_first >= 0 &&
           t->k_first < t->k_end && t->k_end <= t->kv_len &&
           ((t->flags & HEED_TILE_WHOLE) || t->k_first / chunk == (t->k_end - 1) / chunk) &&
           (uintptr_t)t->acc % 64 == 0 && t->acc_stride % 16 == 0;
}

/* A row's span is that of its keys, or an empty one within the tile if it sees none: kernels
 * prepare the keys from the least beginning to the greatest end of the spans of many rows. */
static void check_spans(const heed_problem *problem, const heed_tile *t)
{
    for (int64_t i = t->q_first; i < t->q_first + t->q_count; i++) {
        int64_t low, high, first, end;
        heed_row_keys(t, i, &low, &high);
        heed_row_span(problem, t, t->first_head, i, &first, &end);
        if (first < t->k_first || end > t->k_end || first > end ||
            (low < high ? first != low || end != high : first != end))
            __atomic_add_fetch(&n_bad_spans, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&n_empty_spans, low >= high, __ATOMIC_RELAXED);
    }
}

/* What follows a tile that goes on has the same rows and later keys. */
static void check_promise(const heed_tile *t)
{
    if (before.flags & HEED_TILE_GOES_ON) {
        n_gone_on++;
        n_broken_promises += t->q.data != before.q.data || t->q_first != before.q_first ||
                             t->n_heads != before.n_heads || t->k_first < before.k_end;
    }
    before = *t;
}

static heed_status run_tile(const void *machine, const void *state, const heed_problem *problem,
                            heed_tile *t, void *scratch)
{
    (void)machine;
    const int64_t first = (float *)t->q.data - q; /* which sequence and head this is */
    const int64_t b = first / (Q_HEADS * MAX_Q), head = first / MAX_Q % Q_HEADS;
    (void)state, (void)problem;
    memset(scratch, 0x5a, 64);
    if (!is_good_tile(t) || head != t->first_head)
        __atomic_add_fetch(&n_bad_tiles, 1, __ATOMIC_RELAXED);
    check_spans(problem, t);
    if (alone)
        check_promise(t);
    __atomic_add_fetch(t->flags & HEED_TILE_WHOLE ? &n_together : &n_chunks_together,
                       t->kv_heads > 1, __ATOMIC_RELAXED);
    for (int64_t r = 0; r < t->n_heads * t->q_count; r++) {
        int64_t i = t->q_first + r % t->q_count, low, high;
        heed_row_keys(t, i, &low, &high);
        t->row_max[r] = 0;
        t->row_sum[r] = low < high ? (float)(high - low) : 0;
        t->acc[r * t->acc_stride] = 0;
        for (int64_t j = low; j < high; j++) {
            __atomic_add_fetch(&count[b][head + r / t->q_count][i][j], 1, __ATOMIC_RELAXED);
            t->acc[r * t->acc_stride] += (float)(j + 1);
        }
    }
    return HEED_OK;
}

STUB_BACKEND("counter", "counts (row, key) pairs",
             HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_LENS | HEED_HAS_LSE);

static float k[BATCH * KV_HEADS * MAX_KV], out[BATCH * Q_HEADS * MAX_Q];
static float lse[BATCH * Q_HEADS * MAX_Q];

static void check_pairs(const heed_attn_desc *d, const heed_attn_args *a, const char *name)
{
    int wrong = 0;
    const int causal = (d->features & HEED_HAS_CAUSAL) != 0;
    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < Q_HEADS; h++)
            for (int i = 0; i < a->q_lens[b]; i++) {
                int64_t pos = i + a->q_offsets[b], sees = 0, sum = 0;
                for (int64_t j = 0; j < MAX_KV; j++) {
                    int visible = j < a->kv_lens[b] && (!causal || j <= pos) &&
                                  (d->window_left < 0 || j >= pos - d->window_left) &&
                                  (d->window_right < 0 || j <= pos + d->window_right);
                    wrong += count[b][h][i][j] != visible;
                    sees += visible, sum += visible * (j + 1);
                }
                int64_t at = (b * Q_HEADS + h) * MAX_Q + i;
                float want = sees ? (float)((double)sum / (double)sees) : 0;
                wrong += out[at] != want; /* small integers over a count: exact in every order */
                wrong += sees ? !(fabs(exp((double)lse[at]) - (double)sees) < 1e-4 * (double)sees)
                              : lse[at] != -INFINITY;
            }
    CHECK(wrong == 0 && n_bad_tiles == 0 && n_bad_spans == 0,
          "%s: %d wrong pairs or rows, %d bad tiles, %d bad spans", name, wrong, n_bad_tiles,
          n_bad_spans);
}

/* A call, and the lengths and offsets that it points to. */
typedef struct problem {
    char name[80];
    uint64_t random;
    int32_t q_lens[BATCH], kv_lens[BATCH], q_offsets[BATCH];
    heed_attn_desc desc;
    heed_attn_args args;
} problem;

static void draw_tiling(uint64_t seed, uint64_t *random)
{
    const uint32_t block = 1 + (uint32_t)kit_below(random, 9);
    wanted = (heed_tiling){.struct_size = sizeof wanted,
                           .query_rows = 1 + (uint32_t)kit_below(random, 20),
                           .key_block = block,
                           .key_chunk = block * (uint32_t)kit_below(random, 5),
                           .state_log2 = (uint32_t)kit_below(random, 2),
                           .scratch_bytes = 64};
    wanted.kv_heads = seed % 4 == 1 ? KV_HEADS : seed % 4 == 2 ? 7 : 0;
    wanted.kv_heads_beside = (uint32_t)(seed % 3);
}

/* Returns whether the rows of a key's heads lie side by side. */
static int draw_desc(heed_attn_desc *desc, uint64_t *random)
{
    *desc = (heed_attn_desc){.struct_size = sizeof *desc,
                             .features = HEED_HAS_LENS | HEED_HAS_LSE,
                             UNIT_SHAPE(Q_HEADS, KV_HEADS, 1, 1),
                             UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                             .position = HEED_POS_GIVEN,
                             .window_left = -1,
                             .window_right = -1,
                             .max_batch = BATCH + 1,
                             .max_q_len = MAX_Q + kit_below(random, 9),
                             .max_kv_len = MAX_KV + kit_below(random, 9)};
    if (kit_below(random, 2))
        desc->features |= HEED_HAS_CAUSAL;
    const int beside = (int)kit_below(random, 2);
    if (kit_below(random, 2)) {
        desc->features |= HEED_HAS_WINDOW;
        desc->window_left = kit_below(random, 30) - 1;
        desc->window_right = kit_below(random, 30) - 1;
    }
    return beside;
}

static void draw(problem *p, uint64_t seed, uint32_t n_parts)
{
    uint64_t *random = &p->random;
    snprintf(p->name, sizeof p->name, "seed %llu, %u parts", (unsigned long long)seed, n_parts);
    *random = seed;
    draw_tiling(seed, random);
    for (int b = 0; b < BATCH; b++) {
        p->q_lens[b] = (int32_t)kit_below(random, b ? MAX_Q + 1 : 3);
        p->kv_lens[b] = (int32_t)kit_below(random, MAX_KV + 1);
        p->q_offsets[b] = (int32_t)kit_below(random, 120) - 50;
    }
    const int beside = draw_desc(&p->desc, random);
    p->args = (heed_attn_args){.struct_size = sizeof p->args,
                               .batch = BATCH,
                               .q_len = MAX_Q,
                               .kv_len = MAX_KV,
                               .q = {q, {Q_HEADS * MAX_Q, MAX_Q, 1, 1}},
                               .k = {k, {KV_HEADS * MAX_KV, MAX_KV, 1, 1}},
                               .v = {k, {KV_HEADS * MAX_KV, MAX_KV, 1, 1}},
                               .out = {out, {Q_HEADS * MAX_Q, MAX_Q, 1, 1}},
                               .lse = {lse, {Q_HEADS * MAX_Q, MAX_Q, 1, 0}},
                               .q_lens = p->q_lens,
                               .kv_lens = p->kv_lens,
                               .q_offsets = p->q_offsets};
    if (beside) {
        p->args.k.stride[1] = p->args.v.stride[1] = 1;
        p->args.k.stride[2] = p->args.v.stride[2] = KV_HEADS;
    }
}

/* Runs some parts of a begun run, each on a thread: any number of parts completes the run. */
static void run_parts(problem *p, uint32_t n_parts, void *workspace)
{
    job jobs[16];
    const uint32_t started = 1 + (uint32_t)kit_below(&p->random, n_parts);
    for (uint32_t i = 0; i < started; i++) {
        jobs[i] = (job){.body = run_one_part, .arg = workspace, .index = n_parts - 1 - i};
        pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]);
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(jobs[i].thread, NULL);
    CHECK(n_wrong == 0, "%s: %d parts failed", p->name, n_wrong);
}

static void one(uint64_t seed, uint32_t n_parts)
{
    problem p;
    draw(&p, seed, n_parts);
    memset(count, 0, sizeof count);
    n_bad_tiles = n_bad_spans = 0;
    alone = n_parts == 1;
    before.flags = 0;
    heed_context *context = unit_context(1, "counter");
    heed_attn *plan = NULL;
    size_t bytes;
    heed_status st = heed_context_register(context, &stub_backend);
    if (st == HEED_OK)
        st = heed_attn_create(context, &p.desc, &plan);
    CHECK(st == HEED_OK, "%s: %s", p.name, heed_last_error());
    if (st != HEED_OK)
        return;
    void *workspace = unit_workspace(plan, n_parts, &bytes);
    st = heed_attn_begin(plan, &p.args, n_parts, workspace, bytes);
    CHECK(st == HEED_OK, "%s: %s", p.name, heed_last_error());
    run_parts(&p, n_parts, workspace);
    check_pairs(&p.desc, &p.args, p.name);
    free(workspace);
    heed_attn_release(plan);
    heed_context_release(context);
}

int main(void)
{
    for (uint64_t seed = 1; seed <= 40; seed++)
        for (uint32_t n_parts = 1; n_parts <= 16; n_parts++)
            one(seed * 100 + n_parts, n_parts);
    for (uint64_t seed = 1; seed <= 300; seed++)
        one(seed, 1);
    CHECK(n_gone_on > 0 && n_broken_promises == 0,
          "%d of %d tiles were said to go on, and others came next", n_broken_promises, n_gone_on);
    CHECK(n_empty_spans > 0, "every row saw something of its tile");
    CHECK(n_together > 0, "no heads were taken together");
    CHECK(n_chunks_together > 0, "no heads' chunks were taken together");
    return checks_end();
}
