/* Families of problems, computed by groups of ranks. Over threads all results are in one process,
 * and are held against the oracle. Over MPI each rank has its own alone: for each result a line with
 * a hash of its bytes is written, and compare.py compares the lines with those of threads and of
 * other runs.
 *
 * Usage: families_threads FOLDER RANKS...
 *        mpirun -np RANKS families_MPI FOLDER
 *
 * Writes FOLDER/RANKS.RANK, one file for each rank of a group. */
#include "threads.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#ifdef NODES_OVER_MPI
#include <heed/mpi.h>
#endif

#define LSE HEED_HAS_LSE
#define CAUSAL .position = HEED_POS_BOTTOM_RIGHT, .features = HEED_HAS_CAUSAL
#define TYPES(type) .q_type = type, .k_type = type, .v_type = type, .out_type = type
#define TOKEN_SCALES .k_scales = {KIT_SCALES_TOKEN, 0}, .v_scales = {KIT_SCALES_TOKEN, 0}

/* Whose the rows are. */
enum {
    ALL_ROWS, /* each rank has all of them */
    ROWS,     /* each has its own, which travel */
    RING      /* each has its own, and keys travel */
};

typedef struct family {
    const char *name;
    kit_spec spec; /* fields that it leaves out get the values of set_spec */
    int rows;
} family;

/* clang-format off */
static const family families[] = {
    {"plain", {.features = 0}, ALL_ROWS},
    {"lse", {.features = LSE}, ALL_ROWS},
    {"decode", {CAUSAL, .q_len = 1, .kv_len = 700}, ALL_ROWS},
    {"causal", {CAUSAL | LSE, .q_len = 200}, ALL_ROWS},
    {"given", {.position = HEED_POS_GIVEN, .features = HEED_HAS_CAUSAL}, ALL_ROWS},
    {"window", {.position = HEED_POS_BOTTOM_RIGHT, .features = HEED_HAS_WINDOW, .q_len = 60, .window_left = 31,
      .window_right = 4}, ALL_ROWS},
    {"softcap", {.features = HEED_HAS_SOFTCAP | HEED_HAS_SCALE, .softcap = 3, .scale = 0.21F}, ALL_ROWS},
    {"alibi", {CAUSAL | HEED_HAS_ALIBI}, ALL_ROWS},
    {"mask", {.features = HEED_HAS_MASK | LSE}, ALL_ROWS},
    {"bias", {.features = HEED_HAS_BIAS, .bias_kind = KIT_BIAS_INF}, ALL_ROWS},
    {"sink", {.features = HEED_HAS_SINK | LSE}, ALL_ROWS},
    {"lens", {.features = HEED_HAS_LENS}, ALL_ROWS},
    {"packed", {.features = HEED_HAS_LENS | LSE, .storage = KIT_RAGGED}, ALL_ROWS},
    {"pages", {CAUSAL, .storage = KIT_PAGED, .page_len = 16}, ALL_ROWS},
    {"ranges", {.lists = KIT_LISTS_RANGES, .n_ranges = 2}, ALL_ROWS},
    {"blocks", {.lists = KIT_LISTS_BLOCKS, .block_rows = 2, .block_keys = 4, .blocks_form = 2, .kv_len = 1500},
      ALL_ROWS},
    {"multi-query", {.features = HEED_HAS_SINK, .kv_heads = 1}, ALL_ROWS},
    {"f16", {TYPES(HEED_F16), CAUSAL}, ALL_ROWS},
    {"bf16", {TYPES(HEED_BF16), CAUSAL | LSE}, ALL_ROWS},
    {"bf16 pages", {TYPES(HEED_BF16), .storage = KIT_PAGED, .page_len = 32}, ALL_ROWS},
    {"q8_0", {.k_type = HEED_Q8_0, .v_type = HEED_Q8_0, .qk_dim = 64, .v_dim = 32}, ALL_ROWS},
    {"i8", {.k_type = HEED_I8, .v_type = HEED_I8, TOKEN_SCALES}, ALL_ROWS},
    {"ring", {.q_len = 300}, RING},
    {"ring causal", {CAUSAL | LSE, .q_len = 300}, RING},
    {"ring window", {.position = HEED_POS_BOTTOM_RIGHT, .features = HEED_HAS_WINDOW, .q_len = 300,
      .window_left = 90}, RING},
    {"ring sink mask", {.features = HEED_HAS_SINK | HEED_HAS_MASK, .q_len = 70}, RING},
    {"ring bf16", {TYPES(HEED_BF16), CAUSAL, .q_len = 300}, RING},
    {"ring alibi", {CAUSAL | HEED_HAS_ALIBI, .q_len = 200, .kv_len = 200}, RING},
    {"rows", {.q_len = 60}, ROWS},
    {"rows causal", {CAUSAL | LSE, .q_len = 60}, ROWS},
    {"rows few", {.features = HEED_HAS_SINK | LSE, .q_len = 3}, ROWS},
    {"rows mask", {.features = HEED_HAS_SINK | HEED_HAS_MASK, .q_len = 40}, ROWS},
    {"rows pages", {TYPES(HEED_BF16), CAUSAL, .q_len = 40, .storage = KIT_PAGED, .page_len = 16}, ROWS},
    {"rows packed", {.features = HEED_HAS_LENS | LSE, .q_len = 40, .storage = KIT_RAGGED}, ROWS},
    {"rows i8", {.k_type = HEED_I8, .v_type = HEED_I8, TOKEN_SCALES}, ROWS},
};
/* clang-format on */

/* How the keys are cut. */
enum { EVEN, UNEVEN, MANY, ONE, CUTS };
static const char *const cut_name[] = {"even", "uneven", "many", "one"};
static const char *const want_name[] = {"all", "root", "heads"};

static void set_spec(kit_spec *s, const family *f)
{
    *s = f->spec;
    s->batch = 2;
    s->q_heads = 6;
    s->kv_heads = s->kv_heads ? s->kv_heads : 2;
    s->qk_dim = s->qk_dim ? s->qk_dim : 40;
    s->v_dim = s->v_dim ? s->v_dim : 24;
    s->q_type = s->q_type ? s->q_type : HEED_F32;
    s->k_type = s->k_type ? s->k_type : HEED_F32;
    s->v_type = s->v_type ? s->v_type : HEED_F32;
    s->out_type = s->out_type ? s->out_type : HEED_F32;
    s->bias_type = HEED_F32;
    s->q_len = s->q_len ? s->q_len : 5;
    s->kv_len = s->kv_len ? s->kv_len : 300;
    s->seed = 1 + (uint64_t)(f - families);
    /* Sequences have different lengths. Those of keys, and of rows that are cut, are the
     * partition's to say: no list of them is given. */
    const int with_lens = (s->features & HEED_HAS_LENS) != 0;
    s->lens = KIT_LENS_GIVEN;
    s->unlisted = with_lens ? 0 : KIT_UNLISTED_Q | KIT_UNLISTED_KV;
    for (int32_t b = 0; b < (int32_t)s->batch; b++)
        s->sequence[b] =
            (kit_sequence){.id = b + 1,
                           .q_len = (int32_t)s->q_len - (with_lens ? 2 * b : 0),
                           .kv_len = (int32_t)s->kv_len - (f->rows == ALL_ROWS ? 37 * b : 0),
                           .offset = 150 - 20 * b};
}

/* Where part p begins among `len` keys or rows, rounded down to a multiple of unit. */
static int32_t first_of(const ranks_case *c, int64_t len, int64_t p, int kind, int64_t unit)
{
    const int64_t n = c->n_parts;
    int64_t at = len * p / n;
    if (p == n)
        return (int32_t)len;
    if (kind == UNEVEN) /* the first part is empty, the later ones grow */
        at = p < 2 ? 0 : len * p * p / (n * n);
    if (kind == ONE)
        at = 0;
    return (int32_t)(at / unit * unit);
}

/* The rank that owns one of many parts. Where rows are cut too, a rank gets one part from the front
 * and one from the back of a sequence, so that causal work is even. */
static uint32_t owner_of(const ranks_case *c, uint32_t part)
{
    if (!c->rows_apart)
        return (part * 3 + 1) % c->size;
    return part < c->size ? part : 2 * c->size - 1 - part;
}

/* Cuts a family's problem for a group. */
static void cut(ranks_case *c, const family *f, int kind, uint32_t want, uint32_t size)
{
    const kit_spec *s = &c->spec;
    const int64_t unit = s->page_len ? s->page_len : s->block_keys ? 64 * s->block_keys : 1;
    snprintf(c->name, sizeof c->name, "%s %s %s", f->name, cut_name[kind], want_name[want]);
    c->size = size;
    c->want = want;
    c->root = want == HEED_WANT_ROOT ? size - 1 : 0;
    c->has_owner = kind == MANY;
    c->n_parts = kind != MANY ? size : c->rows_apart ? 2 * size : 2 * size + 1;
    for (uint32_t p = 0; p < c->n_parts && c->has_owner; p++)
        c->owner[p] = owner_of(c, p);
    for (uint32_t b = 0; b < s->batch; b++)
        for (uint32_t p = 0; p <= c->n_parts; p++) {
            const uint32_t at = b * (c->n_parts + 1) + p;
            c->key_first[at] = first_of(c, s->sequence[b].kv_len, p, kind, unit);
            c->row_first[at] = first_of(c, s->sequence[b].q_len, p, kind, 1);
        }
    ranks_cut(c);
    kit_reset_outputs(&c->problem);
}

static ranks_case *build(const family *f)
{
    ranks_case *c = calloc(1, sizeof *c);
    if (!c)
        exit(2);
    set_spec(&c->spec, f);
    c->size = c->n_parts = 1;
    c->scheme = f->rows == RING ? HEED_GROUP_RING : HEED_GROUP_SPLIT;
    c->rows_apart = f->rows != ALL_ROWS;
    if (ranks_build(c, 0) != 0)
        exit(2);
    return c;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Ranks of this process: all of a group's, or one. */
typedef struct team {
    uint32_t size, first, end;
    heed_context *context[RANKS_MOST];
    FILE *lines[RANKS_MOST];
#ifdef NODES_OVER_MPI
    heed_transport transport;
#else
    heed_group_threads *group;
#endif
    rank_thread rank[RANKS_MOST];
    int runs, bad;
} team;

static void run_ranks(team *t, ranks_case *c)
{
    const int how = t->runs % 2; /* whose workspace */
#ifdef NODES_OVER_MPI
    rank_thread *me = &t->rank[t->first];
    if (rank_make(&me->call, c, t->first) != 0)
        exit(2);
    rank_run(&me->call, c, t->context[t->first], &t->transport, how);
#else
    if (threads_run_in(t->group, c, t->rank, t->context, how, NULL, NULL) != 0)
        exit(2);
#endif
}

/* Inputs are from N(0, 1), so that out is within the bounds that attention.h gives for EXACT and, with
 * bf16 inputs, for BF16 in addition; merging parts rounds a few terms more. An lse is off by no more
 * than scores are, and by the 1e-5 of exponentials and sums in f32. These bounds of a whole result
 * are far below those of a single element, which have to cover the worst of all roundings. */
static void judge_whole(const ranks_case *c, kit_outcome *outcome)
{
    const kit_spec *s = &c->spec;
    const double exact = 0x1p-24 * (8 + sqrt((double)s->qk_dim)), merged = 4 * 0x1p-24;
    const double rounded = s->out_type == HEED_BF16  ? 0x1p-8
                           : s->out_type == HEED_F16 ? 0x1p-11
                                                     : 0;
    const double bound = exact + merged + rounded + (s->q_type == HEED_BF16 ? 2.5e-3 : 0);
    double out, lse;
    ranks_errors(c, &out, &lse);
    if (!(out <= bound) || !(lse <= 1e-5 + bound))
        kit_fail(outcome, "out is off by %.3g of its size, and lse by %.3g", out, lse);
}

/* Writes the lines of a case. A rank may write nothing but its own results, and where all ranks are
 * here these have to be right. */
static void judge(team *t, ranks_case *c)
{
    kit_outcome outcome = {KIT_PASSED, ""};
    for (uint32_t r = t->first; r < t->end; r++) {
        rank_call *call = &t->rank[r].call;
        if (call->status == HEED_OK)
            fprintf(t->lines[r], "%s: %016" PRIx64 "\n", c->name, rank_bits(call));
        else
            kit_fail(&outcome, "rank %u: %s", r, call->why.text);
        rank_collect(call, c, r, &outcome);
        rank_free(call);
    }
    if (t->first == 0 && t->end == t->size && outcome.verdict == KIT_PASSED) {
        ranks_check(c, &outcome);
        judge_whole(c, &outcome);
    }
    if (outcome.verdict != KIT_PASSED) {
        fprintf(stderr, "%u ranks, %s: %s\n", t->size, c->name, outcome.text);
        t->bad++;
    }
    t->runs++;
}

static void run_family(team *t, ranks_case *c, const family *f)
{
    const uint32_t wants = f->rows == ALL_ROWS ? HEED_WANT_HEADS : HEED_WANT_ALL;
    for (int kind = 0; kind < CUTS; kind++)
        for (uint32_t want = 0; want <= wants && !t->bad; want++) {
            cut(c, f, kind, want, t->size);
            run_ranks(t, c);
            judge(t, c);
        }
}

static void begin(team *t, const char *folder)
{
    for (uint32_t r = t->first; r < t->end; r++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%u.%u", folder, t->size, r);
        t->lines[r] = fopen(path, "w");
        t->context[r] = threads_context(NULL, 1);
        if (!t->lines[r]) {
            perror(path);
            exit(2);
        }
    }
}

/* Returns whether something was wrong. */
static int end(team *t)
{
    for (uint32_t r = t->first; r < t->end; r++) {
        t->bad += fclose(t->lines[r]) != 0;
        heed_context_release(t->context[r]);
    }
    if (t->first == 0)
        printf("%u ranks, %d runs, %d bad\n", t->size, t->runs, t->bad);
    return t->bad || !t->runs;
}

/* Lets each of n teams compute all families. Returns whether something was wrong. */
static int run_teams(team *t, int n, const char *folder)
{
    int bad = 0;
    for (int i = 0; i < n; i++)
        begin(&t[i], folder);
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        ranks_case *c = build(&families[f]);
        for (int i = 0; i < n; i++)
            run_family(&t[i], c, &families[f]);
        ranks_free(c);
        free(c);
    }
    for (int i = 0; i < n; i++)
        bad |= end(&t[i]);
    return bad;
}

#ifdef NODES_OVER_MPI
int main(int argc, char **argv)
{
    static team t;
    heed_mpi mpi;
    heed_error why;
    MPI_Init(&argc, &argv);
    if (argc != 2 || heed_mpi_open(MPI_COMM_WORLD, &mpi, &t.transport, &why) != HEED_OK)
        return 2;
    t.size = t.transport.size;
    t.first = t.transport.rank;
    t.end = t.first + 1;
    if (t.size > RANKS_MOST || run_teams(&t, 1, argv[1]))
        MPI_Abort(MPI_COMM_WORLD, 1);
    heed_mpi_close(&mpi);
    MPI_Finalize();
    return 0;
}
#else
int main(int argc, char **argv)
{
    static team t[RANKS_MOST];
    const int n = argc - 2;
    if (n < 1 || n > RANKS_MOST)
        return 2;
    for (int i = 0; i < n; i++) {
        const int size = atoi(argv[2 + i]);
        if (size < 1 || size > RANKS_MOST ||
            heed_group_threads_create((uint32_t)size, &t[i].group) != HEED_OK)
            return 2;
        t[i].size = t[i].end = (uint32_t)size;
    }
    const int bad = run_teams(t, n, argv[1]);
    for (int i = 0; i < n; i++)
        heed_group_threads_release(t[i].group);
    return bad;
}
#endif
