/* What ranks have to say alike, and what each may say in its own way. Two ranks share a small packed
 * problem, and one of them says something else: where results would be wrong both return
 * HEED_ERR_TRANSPORT, else both have the bits of ranks that say the same. */
#include "../check.h"
#include "threads.h"

#include <math.h>
#include <string.h>

enum { HEADS = 2, DIM = 4, KEYS = 20, ROWS = 24, BATCH = 3, COLUMNS = HEADS * DIM };
enum { LIKE, MOVED, OTHER }; /* the same call, with rows elsewhere, or another one */

static float q[ROWS * COLUMNS], k[BATCH * KEYS * COLUMNS], v[BATCH * KEYS * COLUMNS], zeros[KEYS];
static const int32_t key_first[] = {0, 10, KEYS, 0, 10, KEYS, 0, 10, KEYS};
static const int32_t row_first[] = {0, 1, 3, 0, 0, 0, 0, 1, 2};

/* A rank's call. Sequence 1 has no rows. */
typedef struct caller {
    pthread_t thread;
    heed_attn *plan;
    heed_attn_args args;
    heed_partition partition;
    heed_transport transport;
    int32_t lens[BATCH], starts[BATCH], offsets[BATCH], from[BATCH];
    uint32_t owner[2];
    float out[ROWS * COLUMNS], lse[ROWS * HEADS];
    heed_status status;
    heed_error why;
} caller;

/* clang-format off */
static void nothing(caller *c) { (void)c; }
static void other_lens(caller *c) { c->lens[0] = 2; }
static void swapped_lens(caller *c) { c->lens[0] = 2; c->lens[2] = 3; c->starts[2] = 9; }
static void other_starts(caller *c) { c->starts[0] = 9; c->starts[2] = 5; }
static void other_offsets(caller *c) { c->offsets[0] = 15; }
static void other_from(caller *c) { c->from[2] = 1; }
static void named_owners(caller *c) { c->partition.owner = c->owner; }
static void other_owners(caller *c) { named_owners(c); c->owner[0] = 1; c->owner[1] = 0; }
static void shifted(caller *c)
{
    for (int b = 0; b < BATCH; b++)
        c->starts[b] -= 2;
    c->args.q.data = (const float *)c->args.q.data + 2 * COLUMNS;
    c->args.out.data = (float *)c->args.out.data + 2 * COLUMNS;
    c->args.lse.data = (float *)c->args.lse.data + 2 * HEADS;
}
static void early_empty(caller *c) { c->starts[1] = 0; }
static void late_empty(caller *c) { c->starts[1] = ROWS; }
static void empty_elsewhere(caller *c) { c->offsets[1] = 3; c->from[1] = 2; }
/* clang-format on */

static const struct change {
    const char *name;
    void (*make)(caller *c);
    int split, apart; /* where every rank has all rows, and where each has its own */
} changes[] = {
    {"nothing", nothing, LIKE, LIKE},
    {"a length", other_lens, OTHER, LIKE},
    {"two lengths", swapped_lens, OTHER, MOVED},
    {"the order of sequences", other_starts, OTHER, MOVED},
    {"an offset", other_offsets, OTHER, OTHER},
    {"where a bias begins", other_from, OTHER, OTHER},
    {"owners by name", named_owners, LIKE, LIKE},
    {"other owners", other_owners, OTHER, OTHER},
    {"the first row", shifted, LIKE, LIKE},
    {"an early start of no rows", early_empty, LIKE, LIKE},
    {"a late start of no rows", late_empty, LIKE, LIKE},
    {"the place of no rows", empty_elsewhere, LIKE, LIKE},
};

static const ranks_way way[] = {{"all", HEED_GROUP_SPLIT, HEED_WANT_ALL, 0, 0},
                                {"root", HEED_GROUP_SPLIT, HEED_WANT_ROOT, 0, 0},
                                {"heads", HEED_GROUP_SPLIT, HEED_WANT_HEADS, 0, 0},
                                {"rows", HEED_GROUP_SPLIT, 0, 0, 1},
                                {"ring", HEED_GROUP_RING, 0, 0, 1}};

static heed_attn *plan_of(heed_context *context)
{
    const heed_attn_desc d = {.struct_size = sizeof d,
                              .features = HEED_HAS_LENS | HEED_HAS_PACKED | HEED_HAS_LSE |
                                          HEED_HAS_CAUSAL | HEED_HAS_BIAS | HEED_HAS_MASK_FROM,
                              .position = HEED_POS_GIVEN,
                              .q_heads = HEADS,
                              .kv_heads = HEADS,
                              .qk_dim = DIM,
                              .v_dim = DIM,
                              .q_type = HEED_F32,
                              .k_type = HEED_F32,
                              .v_type = HEED_F32,
                              .out_type = HEED_F32,
                              .bias_type = HEED_F32,
                              .max_batch = BATCH,
                              .max_q_len = 3,
                              .max_kv_len = KEYS,
                              .max_rows = ROWS};
    heed_attn *plan = NULL;
    if (heed_attn_create(context, &d, &plan) != HEED_OK) {
        printf("no plan: %s\n", heed_last_error());
        exit(1);
    }
    return plan;
}

/* The call of one process, which a rank's differs from by where its keys are. */
static void set_call(caller *c, heed_attn *plan)
{
    static const int32_t lens[] = {3, 0, 2}, starts[] = {5, 8, 10}, offsets[] = {16, 0, 11};
    memset(c, 0, sizeof *c);
    memcpy(c->lens, lens, sizeof lens);
    memcpy(c->starts, starts, sizeof starts);
    memcpy(c->offsets, offsets, sizeof offsets);
    c->owner[1] = 1;
    c->plan = plan;
    c->args = (heed_attn_args){.struct_size = sizeof c->args,
                               .error = &c->why,
                               .batch = BATCH,
                               .q_len = 3,
                               .kv_len = KEYS,
                               .q = {q, {0, DIM, COLUMNS, 1}},
                               .k = {k, {KEYS * COLUMNS, DIM, COLUMNS, 1}},
                               .v = {v, {KEYS * COLUMNS, DIM, COLUMNS, 1}},
                               .out = {c->out, {0, DIM, COLUMNS, 1}},
                               .lse = {c->lse, {0, 1, HEADS, 0}},
                               .bias = {zeros, {0, 0, 0, 1}},
                               .q_lens = c->lens,
                               .q_starts = c->starts,
                               .q_offsets = c->offsets,
                               .mask_from = c->from};
}

static void set_rank(caller *c, const ranks_way *w, uint32_t rank)
{
    const int64_t keys = rank * INT64_C(10) * COLUMNS;
    c->args.kv_len = 10;
    c->args.k.data = k + keys;
    c->args.v.data = v + keys;
    if (w->rows_apart) /* key_first and row_first say lengths; its rows lie where they always do */
        c->args.q_lens = NULL;
    if (w->rows_apart && rank)
        for (int b = 0; b < BATCH; b++)
            c->starts[b] += row_first[3 * b + 1];
    c->partition = (heed_partition){.struct_size = sizeof c->partition,
                                    .scheme = w->scheme,
                                    .want = w->want,
                                    .root = w->root,
                                    .n_parts = 2,
                                    .key_first = key_first,
                                    .row_first = w->rows_apart ? row_first : NULL,
                                    .timeout_ns = INT64_C(10000000000)};
}

static void *run(void *of)
{
    caller *c = of;
    c->status = heed_group_attention(c->plan, &c->args, &c->partition, &c->transport, NULL, 0);
    return NULL;
}

static void run_both(caller c[2])
{
    heed_group_threads *group;
    if (heed_group_threads_create(2, &group) != HEED_OK)
        exit(1);
    for (uint32_t r = 0; r < 2; r++) {
        c[r].transport.struct_size = sizeof c[r].transport;
        if (heed_group_threads_transport(group, r, &c[r].transport) != HEED_OK ||
            pthread_create(&c[r].thread, NULL, run, &c[r]) != 0)
            exit(1);
    }
    for (uint32_t r = 0; r < 2; r++)
        pthread_join(c[r].thread, NULL);
    heed_group_threads_release(group);
}

/* Both ranks together have what one process has, but for roundings. */
static void check_results(const caller c[2], const ranks_way *w, const caller *one)
{
    for (int row = 5; row < 12; row++)
        for (int n = 0; n < COLUMNS; n++) {
            const int at = row * COLUMNS + n;
            const int second = w->rows_apart ? row == 6 || row == 7 || row == 11
                                             : w->want == HEED_WANT_HEADS && n >= DIM;
            const float is = c[second].out[at], want = one->out[at];
            CHECK(fabsf(is - want) <= 1e-6F, "%s: row %d column %d is %g, not %g", w->name, row, n,
                  (double)is, (double)want);
        }
}

static void check(const ranks_way *w, const struct change *change, uint32_t victim, caller *plain,
                  heed_attn *plan)
{
    static caller c[2];
    const int kind = w->rows_apart ? change->apart : change->split, is_other = kind == OTHER;
    for (uint32_t r = 0; r < 2; r++) {
        set_call(&c[r], plan);
        set_rank(&c[r], w, r);
        if (r == victim)
            change->make(&c[r]);
    }
    run_both(c);
    int told = 0;
    for (uint32_t r = 0; r < 2; r++) {
        const int hears = w->want != HEED_WANT_ROOT || r == w->root; /* others only send */
        told += strstr(c[r].why.text, "is in another call") != NULL;
        CHECK(c[r].status == (is_other ? HEED_ERR_TRANSPORT : HEED_OK) || (is_other && !hears),
              "%s, %s of rank %u: rank %u: %s '%s'", w->name, change->name, victim, r,
              heed_status_string(c[r].status), c[r].why.text);
        if (change->make == nothing)
            plain[r] = c[r];
        else if (kind == LIKE)
            CHECK(memcmp(c[r].out, plain[r].out, sizeof c[r].out) == 0 &&
                      memcmp(c[r].lse, plain[r].lse, sizeof c[r].lse) == 0,
                  "%s, %s of rank %u: rank %u has other bits", w->name, change->name, victim, r);
    }
    CHECK(!is_other || told, "%s, %s of rank %u: nobody speaks of another call", w->name,
          change->name, victim);
}

int main(void)
{
    static caller one, plain[2];
    heed_context *context = threads_context(NULL, 1);
    heed_attn *plan = plan_of(context);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        q[i] = sinf((float)i);
    for (int i = 0; i < BATCH * KEYS * COLUMNS; i++)
        k[i] = cosf(3 * (float)i), v[i] = sinf(5 * (float)i);
    set_call(&one, plan);
    CHECK_OK(heed_attn_run(plan, &one.args, NULL, 0));
    for (size_t i = 0; i < sizeof way / sizeof *way; i++)
        for (size_t n = 0; n < sizeof changes / sizeof *changes; n++)
            for (uint32_t victim = 0; victim < 2; victim++) {
                check(&way[i], &changes[n], victim, plain, plan);
                if (n == 0)
                    check_results(plain, &way[i], &one);
            }
    heed_attn_release(plan);
    heed_context_release(context);
    return checks_end();
}
