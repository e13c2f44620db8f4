/* Row groups whose keys are cut into chunks: the bits of the result depend neither on which thread
 * runs which chunk, nor on the batch, the plan or what the workspace held; no thread waits for
 * another, whichever chunks take long; and a run gets by with the memory that the lengths of its
 * sequences call for. The backend here makes up its states instead of computing them, and holds
 * chosen tiles back until no other thread has anything left to do. */
#include <math.h>
#include <pthread.h>
#include <sys/resource.h>

#include "../unit/stub.h"
#include "../unit/unit.h"

enum { MAX_BATCH = 3, MAX_HEADS = 9, MAX_ROWS = 12, MAX_DIM = 3, CHUNK = 4, MAX_KV = 70 * CHUNK };
enum { MAX_PARTS = 8, MAX_TILES = MAX_BATCH * MAX_HEADS * MAX_ROWS * 70 };

/* ---- a backend that makes up its states ------------------------------------------------------ */

typedef struct tile_name {
    const void *q;
    int64_t q_first, k_first;
    uint32_t kv_heads;
} tile_name;

static float q[MAX_BATCH][MAX_HEADS][MAX_ROWS]; /* what a row's states are made of */
static uint32_t query_rows, state_log2;
static tile_name seen[MAX_TILES], held[MAX_PARTS]; /* tiles of a run alone; those to hold back */
static const void *state_seen[MAX_TILES];
static int n_seen, n_states, n_held;
static uint32_t heads_beside;         /* that a tile may have */
static int record, n_together;        /* note tiles; how many had several kv heads */
static uint32_t n_started, n_stopped; /* threads of a run; those held back or ended */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_stopped = PTHREAD_COND_INITIALIZER;

static heed_status tiling(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    (void)machine, (void)problem;
    out->query_rows = query_rows;
    out->key_block = out->key_chunk = CHUNK;
    out->state_log2 = state_log2;
    out->kv_heads_beside = heads_beside;
    return HEED_OK;
}

/* Makes up the state in one chunk of the row that `number` stands for. One in eight saw nothing. */
static void make_up(float number, int64_t chunk, float *row_max, float *row_sum, float *acc,
                    int64_t dim)
{
    uint64_t r = (uint64_t)(int64_t)number * 1000 + (uint64_t)chunk;
    const int empty = kit_below(&r, 8) == 0;
    *row_max = empty ? 3e38F : 8 * unit_number(&r);
    if (state_log2 && !empty)
        *row_max = ceilf(*row_max);
    *row_sum = empty ? 0 : 1 + 3 * fabsf(unit_number(&r)) / 7;
    for (int64_t d = 0; d < dim; d++)
        acc[d] = empty ? 0 : fabsf(unit_number(&r)) / 3;
}

static void stop(void)
{
    if (++n_stopped == n_started)
        pthread_cond_broadcast(&all_stopped);
}

static void hold_back(const heed_tile *t)
{
    const float *from = t->q.data, *end = from + t->n_heads * t->q.head_stride;
    int is_held = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_held; i++)
        is_held |= (const float *)held[i].q >= from && (const float *)held[i].q < end &&
                   held[i].q_first == t->q_first && held[i].k_first == t->k_first;
    if (is_held && n_stopped < n_started) {
        stop();
        while (n_stopped < n_started)
            pthread_cond_wait(&all_stopped, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void remember(const heed_tile *t)
{
    int known = 0;
    seen[n_seen++] = (tile_name){t->q.data, t->q_first, t->k_first, t->kv_heads};
    n_together += t->kv_heads > 1;
    for (int i = 0; i < n_states; i++)
        known |= state_seen[i] == t->acc;
    if (!known)
        state_seen[n_states++] = t->acc;
}

static heed_status run_tile(const void *machine, const void *state, const heed_problem *problem,
                            heed_tile *t, void *scratch)
{
    const float *head = t->q.data;
    (void)machine, (void)state, (void)scratch;
    if (record)
        remember(t);
    for (int64_t r = 0; r < t->n_heads * t->q_count; r++)
        make_up(head[r / t->q_count * t->q.head_stride + t->q_first + r % t->q_count],
                t->k_first / CHUNK, &t->row_max[r], &t->row_sum[r], t->acc + r * t->acc_stride,
                problem->v_dim);
    hold_back(t);
    return HEED_OK;
}

STUB_BACKEND("made_up", "makes up states", HEED_HAS_LENS | HEED_HAS_LSE | HEED_HAS_WINDOW);

/* ---- runs of it ------------------------------------------------------------------------------ */

typedef struct call {
    heed_attn_desc desc;
    heed_attn_args args;
    int32_t q_lens[MAX_BATCH], kv_lens[MAX_BATCH];
    float out[MAX_BATCH][MAX_HEADS][MAX_ROWS][MAX_DIM], lse[MAX_BATCH][MAX_HEADS][MAX_ROWS];
} call;

static void set_up(call *c, uint32_t kv_heads, uint32_t group, uint32_t v_dim)
{
    static float kv[MAX_BATCH * MAX_HEADS * MAX_KV]; /* nobody reads it */
    const uint32_t heads = kv_heads * group;
    memset(c, 0, sizeof *c);
    c->desc = (heed_attn_desc){.struct_size = sizeof c->desc,
                               .features = HEED_HAS_LENS | HEED_HAS_LSE,
                               UNIT_SHAPE(heads, kv_heads, 1, v_dim),
                               UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                               .position = HEED_POS_BOTTOM_RIGHT,
                               .max_batch = MAX_BATCH,
                               .max_q_len = MAX_ROWS,
                               .max_kv_len = MAX_KV};
    c->args = (heed_attn_args){
        .struct_size = sizeof c->args,
        .batch = MAX_BATCH,
        .q_len = MAX_ROWS,
        .kv_len = MAX_KV,
        .q = {q, {MAX_HEADS * MAX_ROWS, MAX_ROWS, 1, 1}},
        .k = {kv, {MAX_HEADS * MAX_KV, 1, MAX_HEADS, 1}}, /* heads side by side */
        .v = {kv, {MAX_HEADS * MAX_KV, 1, MAX_HEADS, 1}},
        .out = {c->out, {MAX_HEADS * MAX_ROWS * MAX_DIM, MAX_ROWS * MAX_DIM, MAX_DIM, 1}},
        .lse = {c->lse, {MAX_HEADS * MAX_ROWS, MAX_ROWS, 1, 0}},
        .q_lens = c->q_lens,
        .kv_lens = c->kv_lens};
}

typedef struct part {
    pthread_t thread;
    void *workspace;
    uint32_t index;
    heed_status status;
} part;

static void *run_part(void *arg)
{
    part *p = arg;
    p->status = heed_run_part(p->workspace, p->index);
    pthread_mutex_lock(&lock);
    stop();
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Runs the call with a workspace of n_parts, of which `started` ever run. */
static void run(call *c, uint32_t n_parts, uint32_t started, const char *name)
{
    heed_context *context = unit_context(1, "made_up");
    heed_attn *plan = NULL;
    size_t bytes;
    part parts[MAX_PARTS];
    heed_status st = heed_context_register(context, &stub_backend);
    if (st == HEED_OK)
        st = heed_attn_create(context, &c->desc, &plan);
    CHECK(st == HEED_OK, "%s: %s", name, heed_last_error());
    if (st != HEED_OK)
        exit(1);
    void *workspace = unit_workspace(plan, n_parts, &bytes);
    st = heed_attn_begin(plan, &c->args, n_parts, workspace, bytes);
    CHECK(st == HEED_OK, "%s: %s", name, heed_last_error());
    n_started = started, n_stopped = 0;
    for (uint32_t i = 0; i < started; i++) {
        parts[i] = (part){.workspace = workspace, .index = n_parts - 1 - i};
        pthread_create(&parts[i].thread, NULL, run_part, &parts[i]);
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(parts[i].thread, NULL);
        CHECK(parts[i].status == HEED_OK, "%s: part %u", name, i);
    }
    free(workspace);
    heed_attn_release(plan);
    heed_context_release(context);
}

/* Runs one part alone and notes its tiles. */
static void run_alone(call *c, const char *name)
{
    n_seen = n_states = n_held = 0;
    record = 1;
    run(c, 1, 1, name);
    record = 0;
}

/* Runs with n tiles held back: those of the last run_alone at the places that `choose` gives. */
static void run_held(call *c, uint32_t n_parts, uint32_t started, int n, int (*choose)(void *, int),
                     void *from, const char *name)
{
    for (n_held = 0; n_held < n; n_held++)
        held[n_held] = seen[choose(from, n_held)];
    run(c, n_parts, started, name);
}

static int same(const call *a, const call *b)
{
    return memcmp(a->out, b->out, sizeof a->out) == 0 && memcmp(a->lse, b->lse, sizeof a->lse) == 0;
}

/* Checks out and lse of every row of sequence b against float64. */
static void check_values(const call *c, int b, const char *name)
{
    const double unit = state_log2 ? 0.6931471805599453 : 1;
    /* Up to seven levels, each of which rounds a factor, two products and a sum; then the
     * division. */
    const double bound = (7 * 4 + 4) * 0x1p-24;
    const int64_t offset = c->kv_lens[b] - c->q_lens[b];
    for (uint32_t h = 0; h < c->desc.q_heads; h++)
        for (int i = 0; i < c->q_lens[b]; i++) {
            double top = -(double)INFINITY, sum = 0, acc[MAX_DIM] = {0};
            const int64_t run = i / query_rows * query_rows;
            const int64_t end = run + query_rows < c->q_lens[b] ? run + query_rows : c->q_lens[b];
            int64_t low = 0, high = c->kv_lens[b];
            if (c->desc.features & HEED_HAS_WINDOW) { /* the window of all rows of the tile */
                low = run + offset - c->desc.window_left;
                high = end - 1 + offset + c->desc.window_right + 1;
                low = low < 0 ? 0 : low;
                high = high > c->kv_lens[b] ? c->kv_lens[b] : high;
            }
            for (int pass = 0; pass < 2; pass++)
                for (int64_t n = low / CHUNK; n * CHUNK < high; n++) {
                    float row_max, row_sum, values[MAX_DIM];
                    make_up(q[b][h][i], n, &row_max, &row_sum, values, c->desc.v_dim);
                    if (row_sum == 0 || low >= high)
                        continue;
                    if (pass == 0) {
                        top = fmax(top, (double)row_max * unit);
                        continue;
                    }
                    const double weight = exp((double)row_max * unit - top);
                    sum += (double)row_sum * weight;
                    for (uint32_t d = 0; d < c->desc.v_dim; d++)
                        acc[d] += (double)values[d] * weight;
                }
            const double lse = top + log(sum), got = (double)c->lse[b][h][i];
            CHECK(sum == 0 ? got == -(double)INFINITY : fabs(got - lse) <= bound * (1 + fabs(lse)),
                  "%s: lse[%d][%u][%d] %g for %g", name, b, h, i, got, lse);
            for (uint32_t d = 0; d < c->desc.v_dim; d++) {
                const double out = (double)c->out[b][h][i][d], want = sum == 0 ? 0 : acc[d] / sum;
                CHECK(fabs(out - want) <= bound * want, "%s: out[%d][%u][%d] %g for %g", name, b, h,
                      i, out, want);
            }
        }
}

/* ---- the tests ------------------------------------------------------------------------------- */

static int any_tile(void *random, int i)
{
    (void)i;
    return (int)kit_below(random, n_seen);
}

/* Random calls, run by random numbers of parts with random tiles held back. */
static void random_calls(uint64_t seed)
{
    static call whole, other;
    uint64_t r = seed;
    char name[80];
    const uint32_t kv_heads = 1 + (uint32_t)kit_below(&r, MAX_HEADS);
    const uint32_t group = 1 + (uint32_t)kit_below(&r, MAX_HEADS / kv_heads);
    query_rows = 1 + (uint32_t)kit_below(&r, MAX_ROWS);
    state_log2 = (uint32_t)kit_below(&r, 2);
    set_up(&whole, kv_heads, group, 1 + (uint32_t)kit_below(&r, MAX_DIM));
    heads_beside = kit_below(&r, 2) ? 1 + (uint32_t)kit_below(&r, MAX_HEADS) : 0;
    if (kit_below(&r, 2)) {
        whole.desc.features |= HEED_HAS_WINDOW;
        whole.desc.window_left = kit_below(&r, MAX_KV);
        whole.desc.window_right = kit_below(&r, MAX_KV);
    }
    for (int b = 0; b < MAX_BATCH; b++) {
        whole.q_lens[b] = (int32_t)kit_below(&r, MAX_ROWS + 1);
        whole.kv_lens[b] = (int32_t)kit_below(&r, MAX_KV + 1);
    }
    for (int i = 0; i < MAX_BATCH * MAX_HEADS * MAX_ROWS; i++)
        (&q[0][0][0])[i] = (float)kit_below(&r, 100000);
    snprintf(name, sizeof name, "seed %llu, %u heads on %u", (unsigned long long)seed,
             kv_heads * group, kv_heads);
    run_alone(&whole, name);
    for (int b = 0; b < MAX_BATCH; b++)
        check_values(&whole, b, name);
    for (int n = 0; n < 3 && n_seen > 1; n++) {
        const uint32_t n_parts = 1 + (uint32_t)kit_below(&r, MAX_PARTS);
        const uint32_t started = 1 + (uint32_t)kit_below(&r, n_parts);
        other = whole;
        other.args.out.data = other.out;
        other.args.lse.data = other.lse;
        other.args.q_lens = other.q_lens;
        other.args.kv_lens = other.kv_lens;
        other.desc.max_kv_len += kit_below(&r, 3) * MAX_KV;
        memset(other.out, 0, sizeof other.out);
        memset(other.lse, 0, sizeof other.lse);
        run_held(&other, n_parts, started, (int)kit_below(&r, started), any_tile, &r, name);
        CHECK(same(&whole, &other), "%s: %u of %u parts, %d tiles held back: other bits", name,
              started, n_parts, n_held);
    }
    /* each sequence alone */
    set_up(&other, kv_heads, group, whole.desc.v_dim);
    heads_beside = 0;
    other.desc = whole.desc;
    other.args.batch = 1;
    for (int b = 0; b < MAX_BATCH; b++) {
        other.q_lens[0] = whole.q_lens[b];
        other.kv_lens[0] = whole.kv_lens[b];
        other.args.q.data = q[b];
        other.args.out.data = other.out[b];
        other.args.lse.data = other.lse[b];
        run_alone(&other, name);
    }
    CHECK(same(&whole, &other), "%s: other bits in the batch", name);
}

/* All parts but one are held back, each in a sequence of its own and at a chunk where a state waits
 * on every level, until all others are done: every state that a workspace has room for is in use
 * when the last part comes to the end of a sequence. */
static int in_each_sequence(void *chunks, int i)
{
    return i * *(int *)chunks + i * 5 % *(int *)chunks;
}

static void every_state_in_use(int chunks, int levels)
{
    static call alone, other;
    char name[40];
    snprintf(name, sizeof name, "%d chunks", chunks);
    query_rows = 2, state_log2 = 1, heads_beside = 0;
    set_up(&alone, 1, 1, 1);
    alone.desc.max_q_len = alone.args.q_len = 2;
    alone.desc.max_kv_len = alone.args.kv_len = chunks * CHUNK;
    for (int b = 0; b < MAX_BATCH; b++) {
        alone.q_lens[b] = 2, alone.kv_lens[b] = chunks * CHUNK;
        q[b][0][0] = (float)(b + 1), q[b][0][1] = (float)(b + 10);
    }
    run_alone(&alone, name);
    CHECK(n_seen == MAX_BATCH * chunks, "%s: %d tiles", name, n_seen);
    CHECK(n_states == levels + 1, "%s: one part used %d states", name, n_states);
    other = alone;
    other.args.out.data = other.out;
    other.args.lse.data = other.lse;
    other.args.q_lens = other.q_lens;
    other.args.kv_lens = other.kv_lens;
    memset(other.out, 0, sizeof other.out);
    run_held(&other, MAX_BATCH, MAX_BATCH, MAX_BATCH - 1, in_each_sequence, &chunks, name);
    CHECK(same(&alone, &other), "%s: other bits", name);
}

/* Sequences of one row under a plan for many: a tile has all heads, although the plan's largest
 * tiles leave no room for that. */
static void heads_side_by_side(void)
{
    enum { HEADS = 8, DIM = 2048, LEN = 32 * CHUNK };
    static float out[HEADS][16][DIM], lse[HEADS][16];
    static const float rows[HEADS][16];
    static call c;
    query_rows = 16, state_log2 = 0, heads_beside = 32;
    for (int q_len = 1; q_len <= 16; q_len += 15) {
        set_up(&c, HEADS, 1, DIM);
        c.desc.max_q_len = 16, c.desc.max_kv_len = c.args.kv_len = LEN;
        c.args.batch = 1, c.args.q_len = q_len;
        c.args.q = (heed_const_view){rows, {0, 16, 1, 1}};
        c.args.out = (heed_view){out, {0, 16 * DIM, DIM, 1}};
        c.args.lse = (heed_view){lse, {0, 16, 1, 0}};
        c.q_lens[0] = q_len, c.kv_lens[0] = LEN;
        run_alone(&c, "heads side by side");
        for (int i = 0; i < n_seen; i++)
            CHECK(seen[i].kv_heads == (q_len == 1 ? HEADS : 1), "%d rows: %u heads at once", q_len,
                  seen[i].kv_heads);
    }
}

/* Tiles have several heads with two parts as with one, whatever else is in the batch. */
static void heads_together_in_a_batch(void)
{
    static const int32_t lens[][MAX_BATCH] = {{1, 1, 1}, {1, 0, 1}, {0, 0, 1},  {0, 1, 0},
                                              {4, 9, 1}, {9, 0, 3}, {9, 12, 1}, {1, 9, 9}};
    static call c;
    char name[40];
    query_rows = 4, state_log2 = 0;
    heads_beside = 32;
    for (size_t n = 0; n < sizeof lens / sizeof *lens; n++) {
        int want = 0;
        snprintf(name, sizeof name, "heads together, batch %zu", n);
        set_up(&c, 8, 1, 1);
        for (int b = 0; b < MAX_BATCH; b++) {
            c.q_lens[b] = lens[n][b], c.kv_lens[b] = 60 * CHUNK;
            want += (lens[n][b] + 3) / 4 * 60; /* runs of rows, with 60 chunks */
        }
        n_seen = n_states = n_held = n_together = 0;
        record = 1;
        run(&c, 2, 1, name);
        record = 0;
        CHECK(n_together == want, "%s: %d tiles of several heads", name, n_together);
    }
}

/* Parts take two tiles at a time of sequences with an odd number of them. */
static void odd_numbers_of_tiles(void)
{
    static const int32_t rows[] = {1, 4, 9};
    static call c;
    query_rows = 4, state_log2 = 1;
    heads_beside = 32;
    for (int n = 0; n < 27; n++) {
        char name[40];
        snprintf(name, sizeof name, "odd numbers of tiles, batch %d", n);
        set_up(&c, 5, 1, 1);
        for (int b = 0; b < MAX_BATCH; b++)
            c.kv_lens[b] = 9 * CHUNK;
        c.q_lens[0] = rows[n % 3], c.q_lens[1] = rows[n / 3 % 3], c.q_lens[2] = rows[n / 9];
        n_held = 0;
        run(&c, MAX_PARTS, 1 + (uint32_t)n % MAX_PARTS, name);
        for (int b = 0; b < MAX_BATCH; b++)
            check_values(&c, b, name);
    }
}

int main(void)
{
    /* A thread that looks for a state which nobody gives back would look for ever. */
    setrlimit(RLIMIT_CPU, &(struct rlimit){.rlim_cur = 60, .rlim_max = 60});
    for (uint64_t seed = 1; seed <= 150; seed++)
        random_calls(seed);
    CHECK(n_together > 0, "no heads' chunks were taken together");
    every_state_in_use(64, 6);
    every_state_in_use(32, 5);
    every_state_in_use(2, 1);
    heads_side_by_side();
    heads_together_in_a_batch();
    odd_numbers_of_tiles();
    return checks_end();
}
