/* Linear and attention layers beside numbers: memory that runs out at any moment, structs of other
 * sizes, more threads than there is memory for, who holds whom, a backend that fails in its trial
 * or in the middle of a run, the one rounding, the host's rounding, a child after fork, what
 * explain says, and a line per run. */
#define _GNU_SOURCE
#include <fenv.h>
#include <heed/backend.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

const heed_backend *heed_naive_backend(void);

enum { DIM = 16, HEADS = 2, ROWS = 40, CAPACITY = 64 };

/* A layer with a projection of q, k and v, rotary positions, a cache and a way out. */
typedef struct setup {
    float w_in[DIM * 3 * DIM], w_out[DIM * DIM], bias[3 * DIM];
    float x[ROWS * DIM], y[ROWS * DIM], middle[ROWS * 3 * DIM], cache[2][CAPACITY * DIM];
    float freq[2];
    heed_linear_desc in, out;
    heed_attn_desc attn;
    heed_mha_desc desc;
    heed_linear_args linear_args;
    heed_mha_args args;
} setup;

static setup *prepare(void)
{
    setup *s = calloc(1, sizeof *s);
    uint64_t seed = 5;
    if (!s)
        exit(1);
    for (int i = 0; i < DIM * 3 * DIM; i++)
        s->w_in[i] = unit_number(&seed);
    for (int i = 0; i < DIM * DIM; i++)
        s->w_out[i] = unit_number(&seed);
    for (int i = 0; i < 3 * DIM; i++)
        s->bias[i] = unit_number(&seed);
    for (int i = 0; i < ROWS * DIM; i++)
        s->x[i] = unit_number(&seed);
    s->freq[0] = 1, s->freq[1] = 0.125F;
    s->in = (heed_linear_desc){.struct_size = sizeof s->in,
                               .features = HEED_LINEAR_HAS_BIAS,
                               .in_dim = DIM,
                               .out_dim = 3 * DIM,
                               .x_type = HEED_F32,
                               .w_type = HEED_F32,
                               .y_type = HEED_F32,
                               .bias_type = HEED_F32};
    s->out = s->in;
    s->out.features = 0;
    s->out.out_dim = DIM;
    s->out.bias_type = HEED_DTYPE_NONE;
    s->attn = (heed_attn_desc){.struct_size = sizeof s->attn,
                               .features = HEED_HAS_CAUSAL,
                               .position = HEED_POS_BOTTOM_RIGHT,
                               .q_heads = HEADS,
                               .kv_heads = HEADS,
                               .qk_dim = DIM / HEADS,
                               .v_dim = DIM / HEADS,
                               .q_type = HEED_F32,
                               .k_type = HEED_F32,
                               .v_type = HEED_F32,
                               .out_type = HEED_F32,
                               .max_batch = 1,
                               .max_q_len = ROWS,
                               .max_kv_len = CAPACITY};
    s->desc = (heed_mha_desc){.struct_size = sizeof s->desc,
                              .features = HEED_MHA_HAS_CACHE,
                              .d_model = DIM,
                              .x_type = HEED_F32,
                              .rotary = {.style = HEED_ROTARY_HALF, .dims = 4}};
    s->desc.attn = &s->attn;
    s->desc.rotary.freq = s->freq;
    s->linear_args = (heed_linear_args){.struct_size = sizeof s->linear_args,
                                        .rows = ROWS,
                                        .x = {s->x, {DIM, 1}},
                                        .y = {s->middle, {3 * DIM, 1}}};
    s->args = (heed_mha_args){.struct_size = sizeof s->args,
                              .batch = 1,
                              .q_len = ROWS,
                              .capacity = CAPACITY,
                              .x_q = {s->x, {0, DIM, 1}},
                              .y = {s->y, {0, DIM, 1}},
                              .k_cache = {s->cache[0], {0, DIM / HEADS, DIM, 1}},
                              .v_cache = {s->cache[1], {0, DIM / HEADS, DIM, 1}}};
    return s;
}

/* The layers; the projections are held by *mha alone. */
static heed_status create(heed_context *context, setup *s, heed_mha **mha)
{
    const heed_view in = {s->w_in, {3 * DIM, 1}}, out = {s->w_out, {DIM, 1}}, bias = {s->bias, {1}};
    s->desc.qkv_proj = s->desc.out_proj = NULL;
    heed_status st = heed_linear_create(context, &s->in, &in, &bias, &s->desc.qkv_proj);
    if (st == HEED_OK)
        st = heed_linear_create(context, &s->out, &out, NULL, &s->desc.out_proj);
    if (st == HEED_OK)
        st = heed_mha_create(context, &s->desc, mha);
    heed_linear_release(s->desc.qkv_proj);
    heed_linear_release(s->desc.out_proj);
    return st;
}

static heed_linear *create_linear(heed_context *context, setup *s)
{
    const heed_view in = {s->w_in, {3 * DIM, 1}}, bias = {s->bias, {1}};
    heed_linear *linear = NULL;
    CHECK(heed_linear_create(context, &s->in, &in, &bias, &linear) == HEED_OK, "%s",
          heed_last_error());
    return linear;
}

/* ---- memory -----------------------------------------------------------------------------------
 */

typedef struct budget {
    int left;                /* allocations until they fail; all after the first failure do */
    int64_t in_use, n_spent; /* bytes; allocations */
} budget;

/* aligned_alloc asks for a multiple of the alignment. */
static void *aligned(size_t bytes, size_t align)
{
    const size_t to = align < 16 ? 16 : align;
    return aligned_alloc(to, (bytes + to - 1) / to * to);
}

static void *spend(void *user, size_t bytes, size_t align)
{
    budget *b = user;
    if (b->left-- <= 0)
        return NULL;
    b->n_spent++;
    b->in_use += (int64_t)bytes;
    return aligned(bytes, align);
}

static void refund(void *user, void *p, size_t bytes)
{
    ((budget *)user)->in_use -= (int64_t)bytes;
    free(p);
}

/* Context, layers and runs with n allocations. Returns whether that was enough. */
static int with_allocations(int n, setup *s)
{
    budget b = {.left = n};
    heed_context *context = NULL;
    heed_mha *mha = NULL;
    heed_context_options o = {
        .struct_size = sizeof o, .n_threads = 1, .user = &b, .alloc = spend, .release = refund};
    memset(s->y, 0x5a, sizeof s->y);
    heed_status st = heed_context_create(&o, &context);
    if (st == HEED_OK)
        st = create(context, s, &mha);
    CHECK(st == HEED_OK || !mha, "a layer beside a failure");
    if (st == HEED_OK)
        st = heed_mha_run(mha, &s->args, NULL, 0);
    int touched = 0;
    for (size_t i = 0; i < sizeof s->y; i++)
        touched |= ((unsigned char *)s->y)[i] != 0x5a;
    CHECK(touched == (st == HEED_OK), "%d allocations: y", n);
    CHECK(st == HEED_OK || (st == HEED_ERR_NOMEM && strstr(heed_last_error(), "memory")),
          "%d allocations: status %d, %s", n, st, heed_last_error());
    heed_context_release(context); /* a layer holds its context */
    heed_mha_release(mha);
    CHECK(b.in_use == 0, "%d allocations: %lld bytes are lost", n, (long long)b.in_use);
    return st == HEED_OK;
}

static void check_exhaustion(setup *s)
{
    int n = 0;
    while (n < 200 && !with_allocations(n, s))
        n++;
    CHECK(n > 8 && n < 200, "%d allocations were enough", n);
}

/* What an allocator gives that has `left` bytes for one block. */
static void *limited(void *user, size_t bytes, size_t align)
{
    budget *b = user;
    return bytes <= (size_t)b->in_use ? aligned(bytes, align) : NULL;
}

static void release(void *user, void *p, size_t bytes)
{
    (void)user, (void)bytes;
    free(p);
}

static uint32_t most_bodies;

static void counted(void *user, uint32_t n, void (*body)(void *arg, uint32_t i), void *arg)
{
    (void)user;
    most_bodies = n > most_bodies ? n : most_bodies;
    while (n > 0)
        body(arg, --n);
}

/* An executor with more threads than there is memory for is given fewer parts. */
static void check_crowds(setup *s)
{
    const uint32_t crowd[] = {3, 1000, 1000000, UINT32_MAX};
    unit_problem p = unit_make(2, 2, 64, 64, 16, 3);
    budget b = {.in_use = 1 << 20};
    heed_executor executor = {.struct_size = sizeof executor, .parallel_for = counted};
    heed_context *context = NULL;
    heed_context_options o = {.struct_size = sizeof o,
                              .user = &b,
                              .alloc = limited,
                              .release = release,
                              .executor = &executor};
    for (size_t i = 0; i < sizeof crowd / sizeof *crowd; i++) {
        heed_mha *mha = NULL;
        executor.n_threads = crowd[i];
        most_bodies = 0;
        CHECK(heed_context_create(&o, &context) == HEED_OK, "%s", heed_last_error());
        heed_linear *linear = create_linear(context, s);
        CHECK(create(context, s, &mha) == HEED_OK, "%s", heed_last_error());
        CHECK(heed_attention(context, &p.desc, &p.args) == HEED_OK, "%u threads: %s", crowd[i],
              heed_last_error());
        CHECK(heed_linear_run(linear, &s->linear_args, NULL, 0) == HEED_OK, "%u threads: %s",
              crowd[i], heed_last_error());
        CHECK(heed_mha_run(mha, &s->args, NULL, 0) == HEED_OK, "%u threads: %s", crowd[i],
              heed_last_error());
        CHECK(most_bodies > 1 && most_bodies <= crowd[i], "%u threads, %u parts", crowd[i],
              most_bodies);
        heed_linear_release(linear);
        heed_mha_release(mha);
        heed_context_release(context);
    }
    unit_free(&p);
}

/* ---- structs of other callers -----------------------------------------------------------------
 */

/* `known` bytes at `in`, and 32 of a later version behind them. */
static void *longer(const void *in, size_t known, int last)
{
    static union {
        size_t struct_size;
        char bytes[4096];
    } room;
    memset(&room, 0, sizeof room);
    memcpy(&room, in, known);
    room.struct_size = known + 32;
    room.bytes[known + 31] = (char)last;
    return &room;
}

static void check_struct_sizes(heed_context *context, setup *s)
{
    heed_mha *mha = NULL, *other = NULL;
    heed_linear *linear = create_linear(context, s);
    const heed_view in = {s->w_in, {3 * DIM, 1}}, bias = {s->bias, {1}};
    heed_linear *again = NULL;
    CHECK(create(context, s, &mha) == HEED_OK, "%s", heed_last_error());
    for (int last = 0; last < 2; last++) {
        const heed_status want = last ? HEED_ERR_ABI : HEED_OK;
        CHECK(heed_linear_create(context, longer(&s->in, sizeof s->in, last), &in, &bias, &again) ==
                  want,
              "linear desc, %d", last);
        if (!last)
            heed_linear_release(again);
        CHECK(heed_linear_run(linear, longer(&s->linear_args, sizeof s->linear_args, last), NULL,
                              0) == want,
              "linear args, %d", last);
        CHECK(heed_mha_run(mha, longer(&s->args, sizeof s->args, last), NULL, 0) == want,
              "mha args, %d", last);
        s->desc.qkv_proj = linear;
        s->desc.features = 0;
        heed_mha_desc desc = s->desc;
        desc.out_proj = NULL;
        CHECK(heed_mha_create(context, longer(&desc, sizeof desc, last), &other) == want,
              "mha desc, %d: %s", last, heed_last_error());
        if (!last)
            heed_mha_release(other);
        s->desc.features = HEED_MHA_HAS_CACHE;
        const heed_kv_append_args append = {.struct_size = sizeof append,
                                            .kv_heads = 1,
                                            .qk_dim = 1,
                                            .k_type = HEED_F32,
                                            .k_cache_type = HEED_F32};
        CHECK(heed_kv_append(longer(&append, sizeof append, last)) == want, "append, %d", last);
        const heed_rotary_args turn = {.struct_size = sizeof turn,
                                       .heads = 1,
                                       .dim = 1,
                                       .x_type = HEED_F32,
                                       .y_type = HEED_F32};
        CHECK(heed_rotary(longer(&turn, sizeof turn, last)) == want, "rotary, %d", last);
    }
    /* An older caller's ends before what it does not know: here, before the executor. */
    heed_linear_args old = s->linear_args;
    old.struct_size = offsetof(heed_linear_args, executor);
    old.executor = (const heed_executor *)16; /* is not his */
    old.error = (heed_error *)16;
    CHECK(heed_linear_run(linear, &old, NULL, 0) == HEED_OK, "an older struct: %s",
          heed_last_error());
    old.rows = -1;
    CHECK(heed_linear_run(linear, &old, NULL, 0) == HEED_ERR_INVALID &&
              strstr(heed_last_error(), "rows is -1"),
          "an older struct's mistake: %s", heed_last_error());
    heed_mha_args older = s->args;
    older.struct_size = offsetof(heed_mha_args, executor);
    older.executor = (const heed_executor *)16;
    older.error = (heed_error *)16;
    CHECK(heed_mha_run(mha, &older, NULL, 0) == HEED_OK, "%s", heed_last_error());
    heed_mha_release(mha);
    heed_linear_release(linear);
}

/* ---- holding ----------------------------------------------------------------------------------
 */

static void check_holds(setup *s)
{
    heed_context *context = unit_context(1, NULL), *second = unit_context(1, NULL);
    heed_mha *mha = NULL;
    heed_linear *linear = create_linear(context, s);
    CHECK(create(second, s, &mha) == HEED_OK, "%s", heed_last_error());
    heed_context_release(context); /* the layers hold their contexts */
    heed_context_release(second);
    heed_linear_retain(linear);
    heed_linear_release(linear);
    heed_mha_retain(mha);
    heed_mha_release(mha);
    CHECK(heed_linear_run(linear, &s->linear_args, NULL, 0) == HEED_OK, "%s", heed_last_error());
    CHECK(heed_mha_run(mha, &s->args, NULL, 0) == HEED_OK, "%s", heed_last_error());
    heed_linear_release(linear);
    heed_mha_release(mha);
    heed_linear_release(NULL);
    heed_mha_release(NULL);
}

/* ---- explain ----------------------------------------------------------------------------------
 */

static void check_text(const char *what,
                       heed_status (*explain)(const void *, uint32_t, char *, size_t *),
                       const void *of)
{
    static char text[65536];
    for (uint32_t json = 0; json < 2; json++) {
        size_t bytes = 0, room = 40;
        CHECK(explain(of, json, NULL, &bytes) == HEED_OK && bytes > 41, "%s: asking the size",
              what);
        CHECK(explain(of, json, text, &room) == HEED_ERR_NOMEM && room == bytes &&
                  strlen(text) == 39,
              "%s: too little room, %zu", what, room);
        CHECK(explain(of, json, text, &room) == HEED_OK && strlen(text) + 1 == bytes, "%s: %s",
              what, text);
        CHECK(json ? text[0] == '{' : strstr(text, "naive") != NULL, "%s: %s", what, text);
        room = 0;
        text[0] = 'x';
        CHECK(explain(of, json, text, &room) == HEED_ERR_NOMEM && text[0] == 'x', "%s: no room",
              what);
    }
}

static heed_status linear_text(const void *of, uint32_t json, char *text, size_t *bytes)
{
    return heed_linear_explain(of, json, text, bytes);
}

static heed_status mha_text(const void *of, uint32_t json, char *text, size_t *bytes)
{
    return heed_mha_explain(of, json, text, bytes);
}

static void check_explain(heed_context *context, setup *s)
{
    heed_mha *mha = NULL;
    heed_linear *linear = create_linear(context, s);
    CHECK(create(context, s, &mha) == HEED_OK, "%s", heed_last_error());
    check_text("linear", linear_text, linear);
    check_text("mha", mha_text, mha);
    heed_linear_release(linear);
    heed_mha_release(mha);
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static char lines[1024];

static void collect(void *user, int32_t level, const char *line)
{
    (void)user, (void)level;
    strncat(lines, line, sizeof lines - strlen(lines) - 1);
}

/* The line of a run says what it was, and how many of its microseconds there were. */
static void check_line(const char *start)
{
    const char *time = strrchr(lines, ',');
    CHECK(strncmp(lines, start, strlen(start)) == 0 && time && strtod(time + 1, NULL) > 0,
          "the log has: %s", lines);
    lines[0] = 0;
}

static void check_lines(setup *s)
{
    heed_context *context = NULL;
    heed_mha *mha = NULL;
    heed_context_options o = {
        .struct_size = sizeof o, .n_threads = 1, .verbose = "run", .log = collect};
    CHECK(heed_context_create(&o, &context) == HEED_OK, "%s", heed_last_error());
    heed_linear *linear = create_linear(context, s);
    CHECK(create(context, s, &mha) == HEED_OK, "%s", heed_last_error());
    CHECK(!lines[0], "before a run the log has: %s", lines);
    heed_linear_args bad = s->linear_args;
    bad.rows = -1;
    CHECK(heed_linear_run(linear, &s->linear_args, NULL, 0) == HEED_OK, "%s", heed_last_error());
    check_line("run linear rows 40 in 16 out 48: HEED_OK, 1 parts, ");
    CHECK(heed_linear_run(linear, &bad, NULL, 0) == HEED_ERR_INVALID && !lines[0],
          "of what never ran the log has: %s", lines);
    CHECK(heed_mha_run(mha, &s->args, NULL, 0) == HEED_OK, "%s", heed_last_error());
    check_line("run mha batch 1 q_len 40 capacity 64: HEED_OK, 1 parts, ");
    heed_linear_release(linear);
    heed_mha_release(mha);
    heed_context_release(context);
}

/* ---- a backend that fails ---------------------------------------------------------------------
 */

static const heed_backend *naive;
static int fail_at, n_tiles;

/* The trial's layer is smaller. */
static heed_status failing_tile(const heed_linear_problem *problem, const heed_linear_tile *tile,
                                void *scratch)
{
    if (problem->in_dim == DIM && ++n_tiles == fail_at)
        return HEED_ERR_NOMEM;
    return naive->linear_tile(problem, tile, scratch);
}

static void backwards(void *user, uint32_t n, void (*body)(void *arg, uint32_t i), void *arg)
{
    (void)user;
    while (n > 0)
        body(arg, --n);
}

static void check_failures(setup *s)
{
    heed_backend faulty = *naive;
    heed_context *context = unit_context(1, "faulty");
    heed_mha *mha = NULL;
    heed_error error = {""};
    float want[ROWS * DIM];
    heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = 3, .parallel_for = backwards};
    faulty.name = "faulty";
    faulty.linear_tile = failing_tile;
    naive = heed_naive_backend();
    CHECK(heed_context_register(context, &faulty) == HEED_OK, "%s", heed_last_error());
    heed_linear *linear = create_linear(context, s);
    CHECK(create(context, s, &mha) == HEED_OK, "%s", heed_last_error());
    n_tiles = fail_at = 0;
    CHECK(heed_mha_run(mha, &s->args, NULL, 0) == HEED_OK, "%s", heed_last_error());
    memcpy(want, s->y, sizeof want);
    const int all = n_tiles;
    CHECK(all >= 4, "%d tiles", all);
    s->args.executor = s->linear_args.executor = &executor;
    s->args.error = s->linear_args.error = &error;
    for (fail_at = 1; fail_at <= all; fail_at++) {
        n_tiles = 0;
        error.text[0] = 0;
        CHECK(heed_mha_run(mha, &s->args, NULL, 0) == HEED_ERR_BACKEND &&
                  strstr(error.text, "backend faulty returned HEED_ERR_NOMEM"),
              "tile %d: %s", fail_at, error.text);
        CHECK(n_tiles == fail_at, "%d tiles ran, number %d failed", n_tiles, fail_at);
        memset(s->y, 0xff, sizeof s->y);
        CHECK(heed_mha_run(mha, &s->args, NULL, 0) == HEED_OK && !memcmp(s->y, want, sizeof want),
              "after a failure at tile %d", fail_at);
    }
    fail_at = 2, n_tiles = 0;
    CHECK(heed_linear_run(linear, &s->linear_args, NULL, 0) == HEED_ERR_BACKEND &&
              strstr(error.text, "faulty"),
          "linear: %s", error.text);
    s->args.executor = s->linear_args.executor = NULL;
    s->args.error = s->linear_args.error = NULL;
    heed_linear_release(linear);
    heed_mha_release(mha);
    heed_context_release(context);
}

static heed_status bad_tile(const void *state, const heed_problem *problem, heed_tile *tile,
                            void *scratch)
{
    (void)state, (void)problem, (void)tile, (void)scratch;
    return HEED_ERR_BACKEND;
}

static heed_status bad_linear_tile(const heed_linear_problem *problem, const heed_linear_tile *tile,
                                   void *scratch)
{
    (void)problem, (void)tile, (void)scratch;
    return HEED_ERR_BACKEND;
}

/* A trial for which there was no memory is made again, and what it says then is told. */
static void check_trials(setup *s)
{
    budget b = {.left = 1000};
    heed_backend faulty = *naive;
    heed_context *context = NULL;
    heed_error error;
    heed_context_options o = {.struct_size = sizeof o,
                              .n_threads = 1,
                              .backends = "faulty",
                              .user = &b,
                              .alloc = spend,
                              .release = refund};
    faulty.name = "faulty";
    faulty.run_tile = bad_tile;
    faulty.linear_tile = bad_linear_tile;
    CHECK(heed_context_create(&o, &context) == HEED_OK, "%s", heed_last_error());
    CHECK(heed_context_register(context, &faulty) == HEED_OK, "%s", heed_last_error());
    for (int linear = 0; linear < 2; linear++)
        for (int memory = 0; memory < 2; memory++) {
            b.left = memory * 1000;
            heed_status st = linear ? heed_linear_supported(context, &s->in, &error)
                                    : heed_attn_supported(context, &s->attn, &error);
            CHECK(st == (memory ? HEED_ERR_UNSUPPORTED : HEED_ERR_NOMEM) &&
                      strstr(error.text, memory ? "returned HEED_ERR_BACKEND" : "no memory"),
                  "linear %d, memory %d: status %d, %s", linear, memory, st, error.text);
        }
    heed_context_release(context);
}

/* ---- the host's rounding ----------------------------------------------------------------------
 */

static int n_asked, n_upward;

static void look_at_rounding(void)
{
    volatile float one = 1, little = 0x1p-30F;
    volatile float sum = one + little;
    n_asked++;
    n_upward += sum > 1;
}

static double watchful_cost(const heed_linear_problem *problem, int64_t rows)
{
    look_at_rounding();
    return naive->linear_cost(problem, rows);
}

static heed_status watchful_tiling(const heed_linear_problem *problem, heed_linear_tiling *out)
{
    look_at_rounding();
    return naive->linear_tiling(problem, out);
}

/* What a backend decides about a layer must not depend on the thread that makes it. */
static void check_host_rounding(setup *s)
{
    heed_backend watchful = *naive;
    heed_context *context = unit_context(1, "watchful");
    watchful.name = "watchful";
    watchful.linear_cost = watchful_cost;
    watchful.linear_tiling = watchful_tiling;
    CHECK(heed_context_register(context, &watchful) == HEED_OK, "%s", heed_last_error());
    fesetround(FE_UPWARD);
    heed_linear *linear = create_linear(context, s);
    const int kept = fegetround() == FE_UPWARD;
    fesetround(FE_TONEAREST);
    CHECK(n_asked >= 2 && n_upward == 0 && kept, "asked %d times, %d of them upward, %skept",
          n_asked, n_upward, kept ? "" : "not ");
    heed_linear_release(linear);
    heed_context_release(context);
}

/* ---- rounding ---------------------------------------------------------------------------------
 */

/* 1 + 2^-11 + 2^-30 lies just above the middle of two f16: f32 would make a tie of it, and that 1.
 */
static void check_rounding(void)
{
    const float x[3] = {1, 0x1p-11F, 0x1p-30F}, w[3] = {1, 1, 1};
    uint16_t y[2] = {0, 0};
    heed_linear *linear = NULL;
    heed_context *context = unit_context(1, "naive");
    const heed_view weight = {(void *)w, {1, 1}};
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = 3,
                                   .out_dim = 1,
                                   .x_type = HEED_F32,
                                   .w_type = HEED_F32,
                                   .y_type = HEED_F16};
    const heed_linear_args args = {
        .struct_size = sizeof args, .rows = 1, .x = {(void *)x, {3, 1}}, .y = {y, {1, 1}}};
    CHECK(heed_linear_create(context, &desc, &weight, NULL, &linear) == HEED_OK, "%s",
          heed_last_error());
    CHECK(heed_linear_run(linear, &args, NULL, 0) == HEED_OK && y[0] == 0x3c01 && y[1] == 0,
          "rounded twice: %x", y[0]);
    heed_linear_release(linear);
    heed_context_release(context);
}

/* ---- fork -------------------------------------------------------------------------------------
 */

static int child(const heed_mha *mha, setup *s, const float *want)
{
    memset(s->y, 0xff, sizeof s->y);
    return heed_mha_run(mha, &s->args, NULL, 0) != HEED_OK || memcmp(s->y, want, sizeof s->y) != 0;
}

static void check_fork(setup *s)
{
    heed_context *context = unit_context(2, NULL);
    heed_mha *mha = NULL;
    float want[ROWS * DIM];
    int status = 0;
    CHECK(create(context, s, &mha) == HEED_OK, "%s", heed_last_error());
    CHECK(heed_mha_run(mha, &s->args, NULL, 0) == HEED_OK, "%s", heed_last_error());
    memcpy(want, s->y, sizeof want);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        _exit(child(mha, s, want));
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the child after fork: status %x", status);
    heed_mha_release(mha);
    heed_context_release(context);
}

int main(void)
{
    setup *s = prepare();
    naive = heed_naive_backend();
    heed_context *context = unit_context(1, NULL);
    check_exhaustion(s);
    check_crowds(s);
    check_struct_sizes(context, s);
    check_holds(s);
    check_explain(context, s);
    check_lines(s);
    check_failures(s);
    check_trials(s);
    check_host_rounding(s);
    check_rounding();
    check_fork(s);
    heed_context_release(context);
    free(s);
    return unit_end();
}
