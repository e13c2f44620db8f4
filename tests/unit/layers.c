/* What linear and attention layers promise besides their numbers: they hold references to what they
 * use, explain themselves, trace a line per run, round once, and work in a child after fork. */
#define _GNU_SOURCE
#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "layer_setup.h"

/* ---- holding --------------------------------------------------------------------------------- */

static void check_holds(layer_setup *s)
{
    heed_context *context = unit_context(1, NULL), *second = unit_context(1, NULL);
    heed_mha *mha = NULL;
    heed_linear *linear = layer_linear(context, s);
    CHECK_OK(layer_create(second, s, &mha));
    heed_context_release(context); /* the layers hold their contexts */
    heed_context_release(second);
    heed_linear_retain(linear);
    heed_linear_release(linear);
    heed_mha_retain(mha);
    heed_mha_release(mha);
    CHECK_OK(heed_linear_run(linear, &s->linear_args, NULL, 0));
    CHECK_OK(heed_mha_run(mha, &s->args, NULL, 0));
    heed_linear_release(linear);
    heed_mha_release(mha);
    heed_linear_release(NULL);
    heed_mha_release(NULL);
}

/* A layer copies its frequencies when it is made: what the caller changes later does not matter. */
static void check_frequencies(heed_context *context, layer_setup *s)
{
    heed_mha *mha = NULL;
    float with[2][ROWS * DIM];
    const float freq[2] = {s->freq[0], s->freq[1]};
    for (int n = 0; n < 2; n++) {
        s->freq[1] = n ? 2 * freq[1] : freq[1];
        CHECK_OK(layer_create(context, s, &mha));
        s->freq[0] = s->freq[1] = NAN;
        CHECK_OK(heed_mha_run(mha, &s->args, NULL, 0));
        memcpy(with[n], s->y, sizeof with[n]);
        heed_mha_release(mha);
        memcpy(s->freq, freq, sizeof freq);
    }
    int n_nan = 0;
    for (int i = 0; i < ROWS * DIM; i++)
        n_nan += isnan(with[0][i]);
    CHECK(n_nan == 0, "%d values come from frequencies that were changed later", n_nan);
    CHECK(memcmp(with[0], with[1], sizeof with[0]) != 0, "frequencies make no difference");
}

/* ---- explain --------------------------------------------------------------------------------- */

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

static void check_explain(heed_context *context, layer_setup *s)
{
    heed_mha *mha = NULL;
    heed_linear *linear = layer_linear(context, s);
    CHECK_OK(layer_create(context, s, &mha));
    check_text("linear", linear_text, linear);
    check_text("mha", mha_text, mha);
    heed_linear_release(linear);
    heed_mha_release(mha);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static char lines[UNIT_LINES];

/* The line of a run says what it was and ends with its time in microseconds. */
static void check_line(const char *start)
{
    const char *time = strrchr(lines, ',');
    CHECK(strncmp(lines, start, strlen(start)) == 0 && time && strtod(time + 1, NULL) > 0,
          "the log has: %s", lines);
    lines[0] = 0;
}

static void check_lines(layer_setup *s)
{
    heed_context *context = NULL;
    heed_mha *mha = NULL;
    heed_context_options o = {.struct_size = sizeof o,
                              .n_threads = 1,
                              .verbose = "run",
                              .user = lines,
                              .log = unit_collect};
    CHECK_OK(heed_context_create(&o, &context));
    heed_linear *linear = layer_linear(context, s);
    CHECK_OK(layer_create(context, s, &mha));
    CHECK(!lines[0], "before a run the log has: %s", lines);
    heed_linear_args bad = s->linear_args;
    bad.rows = -1;
    CHECK_OK(heed_linear_run(linear, &s->linear_args, NULL, 0));
    check_line("run linear rows 40 in 16 out 48: HEED_OK, 1 parts, ");
    CHECK(heed_linear_run(linear, &bad, NULL, 0) == HEED_ERR_INVALID && !lines[0],
          "of what never ran the log has: %s", lines);
    CHECK_OK(heed_mha_run(mha, &s->args, NULL, 0));
    check_line("run mha batch 1 q_len 40 capacity 64: HEED_OK, 1 parts, ");
    heed_linear_release(linear);
    heed_mha_release(mha);
    heed_context_release(context);
}

/* ---- rounding -------------------------------------------------------------------------------- */

/* 1 + 2^-11 + 2^-30 is just above the middle of two f16. Rounded to f32 first it would be a tie,
 * which rounds to 1. */
static void check_rounding(void)
{
    const float x[3] = {1, 0x1p-11F, 0x1p-30F}, w[3] = {1, 1, 1};
    uint16_t y[2] = {0, 0};
    heed_linear *linear = NULL;
    heed_context *context = unit_context(1, "naive");
    const heed_const_view weight = {w, {1, 1}};
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = 3,
                                   .out_dim = 1,
                                   .x_type = HEED_F32,
                                   .w_type = HEED_F32,
                                   .y_type = HEED_F16};
    const heed_linear_args args = {
        .struct_size = sizeof args, .rows = 1, .x = {x, {3, 1}}, .y = {y, {1, 1}}};
    CHECK_OK(heed_linear_create(context, &desc, &weight, NULL, &linear));
    CHECK(heed_linear_run(linear, &args, NULL, 0) == HEED_OK && y[0] == 0x3c01 && y[1] == 0,
          "rounded twice: %x", y[0]);
    heed_linear_release(linear);
    heed_context_release(context);
}

/* ---- fork ------------------------------------------------------------------------------------ */

static int child(const heed_mha *mha, layer_setup *s, const float *want)
{
    memset(s->y, 0xff, sizeof s->y);
    return heed_mha_run(mha, &s->args, NULL, 0) != HEED_OK || memcmp(s->y, want, sizeof s->y) != 0;
}

static void check_fork(layer_setup *s)
{
    heed_context *context = unit_context(2, NULL);
    heed_mha *mha = NULL;
    float want[ROWS * DIM];
    int status = 0;
    CHECK_OK(layer_create(context, s, &mha));
    CHECK_OK(heed_mha_run(mha, &s->args, NULL, 0));
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

/* A layer without projections reads x while it writes y, so that y may not be x. The sentence names
 * both as the layer's caller does. */
static void check_in_place(heed_context *context)
{
    enum { LENGTH = 3, WIDTH = 8 };
    float x[LENGTH * WIDTH] = {1}, before[LENGTH * WIDTH];
    const heed_attn_desc attn = {.struct_size = sizeof attn,
                                 UNIT_SHAPE(2, 2, WIDTH / 2, WIDTH / 2),
                                 UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                                 .max_batch = 1,
                                 .max_q_len = LENGTH};
    const heed_mha_desc desc = {
        .struct_size = sizeof desc, .attn = &attn, .d_model = WIDTH, .x_type = HEED_F32};
    const heed_mha_args args = {.struct_size = sizeof args,
                                .batch = 1,
                                .q_len = LENGTH,
                                .x_q = {x, {0, WIDTH, 1}},
                                .y = {x, {0, WIDTH, 1}}};
    heed_mha *mha = NULL;
    memcpy(before, x, sizeof x);
    CHECK_OK(heed_mha_create(context, &desc, &mha));
    CHECK_REFUSED(heed_mha_run(mha, &args, NULL, 0), HEED_ERR_INVALID,
                  "args.y.data equals args.x_q.data");
    CHECK(memcmp(before, x, sizeof x) == 0, "x was written");
    heed_mha_release(mha);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* How many rows there can be is said by max_rows, where it is given, and else by max_batch x
 * max_q_len. */
static void check_most_rows(heed_context *context, layer_setup *s)
{
    heed_mha *mha = NULL;
    const heed_attn_desc attn = s->attn;
    s->attn.features |= HEED_HAS_PACKED;
    s->attn.max_batch = s->attn.max_q_len = s->attn.max_kv_len = 65536;
    CHECK_REFUSED(layer_create(context, s, &mha), HEED_ERR_INVALID, "65536 x 65536");
    s->attn.max_rows = ROWS;
    CHECK_OK(layer_create(context, s, &mha));
    heed_mha_release(mha);
    s->attn = attn;
}

/* A single row may have any stride, and rows that are none may lie nowhere, with lists of lengths
 * and starts as without. The row is its own one key, so that y is x. */
static void check_single_row(heed_context *context, uint64_t lists)
{
    static const int32_t one[] = {1}, none[] = {0}, start[] = {0};
    static const int64_t strides[] = {0, DIM, -1, INT64_MAX / 2};
    const heed_attn_desc attn = {.struct_size = sizeof attn,
                                 .features = HEED_HAS_LSE | lists,
                                 UNIT_SHAPE(HEADS, HEADS, DIM / HEADS, DIM / HEADS),
                                 UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                                 .max_batch = 1,
                                 .max_q_len = ROWS};
    const heed_mha_desc desc = {
        .struct_size = sizeof desc, .attn = &attn, .d_model = DIM, .x_type = HEED_F32};
    float x[DIM], y[DIM], lse[HEADS];
    heed_mha *mha = NULL;
    for (int i = 0; i < DIM; i++)
        x[i] = (float)i / DIM;
    CHECK_OK(heed_mha_create(context, &desc, &mha));
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        heed_mha_args args = {.struct_size = sizeof args,
                              .batch = 1,
                              .q_len = 1,
                              .x_q = {x, {0, strides[i], 1}},
                              .y = {y, {0, strides[i], 1}},
                              .lse = {lse, {0, 1, strides[i]}},
                              .q_lens = lists & HEED_HAS_LENS ? one : NULL,
                              .q_starts = lists & HEED_HAS_PACKED ? start : NULL};
        memset(y, 0x77, sizeof y);
        CHECK(heed_mha_run(mha, &args, NULL, 0) == HEED_OK && memcmp(x, y, sizeof y) == 0,
              "stride %lld: %s", (long long)strides[i], heed_last_error());
    }
    heed_mha_args args = {.struct_size = sizeof args,
                          .batch = 1,
                          .q_len = lists & HEED_HAS_LENS ? ROWS : 0,
                          .q_lens = lists & HEED_HAS_LENS ? none : NULL,
                          .q_starts = lists & HEED_HAS_PACKED ? start : NULL};
    CHECK(heed_mha_run(mha, &args, NULL, 0) == HEED_OK, "no rows: %s", heed_last_error());
    heed_mha_release(mha);
}

/* Rows may lie as far apart as memory reaches, with lists of lengths and starts as without: 2 rows, of
 * which a plan's most, 2^31 - 1, would not be addressable. The results are those of compact rows. */
static void check_far_rows(heed_context *context, const layer_setup *s, uint64_t lists)
{
    enum { FAR_ROWS = 2, Y_AT = 64, LSE_AT = 128 };
    static const int32_t lens[] = {FAR_ROWS}, starts[] = {0};
    const int64_t far = INT64_C(1) << 30;
    const size_t bytes = (size_t)(far + LSE_AT + HEADS) * sizeof(float);
    heed_attn_desc attn = s->attn;
    const heed_mha_desc desc = {
        .struct_size = sizeof desc, .attn = &attn, .d_model = DIM, .x_type = HEED_F32};
    float y[FAR_ROWS][DIM], lse[FAR_ROWS][HEADS];
    heed_mha *mha = NULL;
    float *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED) {
        puts("no 4 GiB of addresses: far rows are not checked");
        return;
    }
    attn.features |= HEED_HAS_LSE | lists;
    attn.max_kv_len = 0;
    CHECK_OK(heed_mha_create(context, &desc, &mha));
    heed_mha_args args = {.struct_size = sizeof args,
                          .batch = 1,
                          .q_len = FAR_ROWS,
                          .x_q = {s->x, {0, DIM, 1}},
                          .y = {y, {0, DIM, 1}},
                          .lse = {lse, {0, 1, HEADS}},
                          .q_lens = lists & HEED_HAS_LENS ? lens : NULL,
                          .q_starts = lists & HEED_HAS_PACKED ? starts : NULL};
    CHECK(heed_mha_run(mha, &args, NULL, 0) == HEED_OK, "compact: %s", heed_last_error());
    for (int64_t i = 0; i < FAR_ROWS; i++)
        memcpy(x + i * far, s->x + i * DIM, DIM * sizeof(float));
    args.x_q = (heed_const_view){x, {0, far, 1}};
    args.y = (heed_view){x + Y_AT, {0, far, 1}};
    args.lse = (heed_view){x + LSE_AT, {0, 1, far}};
    CHECK(heed_mha_run(mha, &args, NULL, 0) == HEED_OK, "lists 0x%llx: %s",
          (unsigned long long)lists, heed_last_error());
    for (int64_t i = 0; i < FAR_ROWS; i++)
        CHECK(memcmp(x + i * far + Y_AT, y[i], sizeof y[i]) == 0 &&
                  memcmp(x + i * far + LSE_AT, lse[i], sizeof lse[i]) == 0,
              "lists 0x%llx: row %lld differs", (unsigned long long)lists, (long long)i);
    heed_mha_release(mha);
    munmap(x, bytes);
}

/* ---- parts that do not fit together ---------------------------------------------------------- */

/* The way out takes the heads' columns, all of them and no more. */
static void check_width(heed_context *context, layer_setup *s)
{
    static const uint32_t width[] = {DIM - 1, DIM / HEADS, 1};
    heed_mha *mha = NULL;
    for (int i = 0; i < 3; i++) {
        s->out.in_dim = width[i];
        CHECK_REFUSED(layer_create(context, s, &mha), HEED_ERR_INVALID,
                      "2 heads of v_dim 8 make 16");
        CHECK(!mha, "width %u: there is a layer", width[i]);
    }
    s->out.in_dim = DIM;
}

/* A layer whose rows have lengths needs them. */
static void check_no_lens(heed_context *context, layer_setup *s)
{
    const heed_attn_desc attn = s->attn;
    heed_mha *mha = NULL;
    s->attn.features |= HEED_HAS_LENS;
    CHECK_OK(layer_create(context, s, &mha));
    memset(s->y, 0x77, sizeof s->y);
    const float before = s->y[0];
    CHECK_REFUSED(heed_mha_run(mha, &s->args, NULL, 0), HEED_ERR_INVALID,
                  "args.q_lens is NULL, but the layer has HEED_HAS_LENS");
    CHECK(memcmp(&before, s->y, sizeof before) == 0, "y was written");
    heed_mha_release(mha);
    s->attn = attn;
}

int main(void)
{
    layer_setup *s = layer_prepare();
    heed_context *context = unit_context(1, NULL);
    check_holds(s);
    check_frequencies(context, s);
    check_explain(context, s);
    check_lines(s);
    check_in_place(context);
    check_most_rows(context, s);
    check_single_row(context, 0);
    check_single_row(context, HEED_HAS_LENS);
    check_single_row(context, HEED_HAS_PACKED);
    check_single_row(context, HEED_HAS_LENS | HEED_HAS_PACKED);
    check_far_rows(context, s, 0);
    check_far_rows(context, s, HEED_HAS_LENS);
    check_far_rows(context, s, HEED_HAS_PACKED);
    check_width(context, s);
    check_no_lens(context, s);
    check_rounding();
    check_fork(s);
    heed_context_release(context);
    free(s);
    return checks_end();
}
