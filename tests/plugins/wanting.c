/* A backend that is the cheapest and cannot be used: it wants more memory than there is, makes no
 * plan or gives no tiling, in its trial or when the problem comes. Selection takes the next backend
 * and the explanation says why. If it is the only one named, that is an error. */
#define heed_backend_entry example_entry
#include "../../examples/plugin.c"
#undef heed_backend_entry

#include "../unit/changed.h"
#include "fixture.h"

#include <limits.h>

/* More memory than a process can have; more than it can address. */
static const size_t vast = (size_t)1 << 58, endless = SIZE_MAX - 4096;

enum { NO_STATUS = 99 };

static const struct way {
    const char *name, *word;  /* of the sentence */
    int in_trial;             /* it fails in its trial; otherwise only in the problem */
    size_t scratch, panel;    /* wanted */
    heed_status make, tiling; /* returned by plan_create or linear_pack; by the tiling */
    heed_status error;        /* when it is named alone */
} ways[] = {
    {"vast scratch", "scratch", 0, vast, 0, 0, 0, HEED_ERR_NOMEM},
    {"endless scratch", "scratch", 0, endless, 0, 0, 0, HEED_ERR_NOMEM},
    {"vast scratch in the trial", "scratch", 1, vast, 0, 0, 0, HEED_ERR_NOMEM},
    {"endless scratch in the trial", "scratch", 1, endless, 0, 0, 0, HEED_ERR_NOMEM},
    {"no memory for a plan", "HEED_ERR_NOMEM", 0, 0, 0, HEED_ERR_NOMEM, 0, HEED_ERR_NOMEM},
    {"no plan", "HEED_ERR_BACKEND", 0, 0, 0, HEED_ERR_BACKEND, 0, HEED_ERR_BACKEND},
    {"no status", "unknown status", 0, 0, 0, NO_STATUS, 0, HEED_ERR_BACKEND},
    {"no mistake of the caller's", "HEED_ERR_INVALID", 0, 0, 0, HEED_ERR_INVALID, 0,
     HEED_ERR_BACKEND},
    {"no memory in the trial", "", 1, 0, 0, HEED_ERR_NOMEM, 0, HEED_ERR_NOMEM},
    {"no tiling", "tiling", 0, 0, 0, 0, HEED_ERR_NOMEM, HEED_ERR_BACKEND},
    {"vast panels", "packed weights", 0, 0, vast, 0, 0, HEED_ERR_NOMEM},
    {"endless panels", "address space", 0, 0, endless / 64 * 64, 0, 0, HEED_ERR_NOMEM},
    {"endless panels in the trial", "panel", 1, 0, endless / 64 * 64, 0, 0, HEED_ERR_NOMEM},
    /* of a linear layer's tiling */
    {"no rows", "bad rows", 0, 0, 0, 0, 0, HEED_ERR_BACKEND},
    {"no columns of a panel", "bad panel_cols", 0, 0, 0, 0, 0, HEED_ERR_BACKEND},
    {"columns of half a panel", "bad cols", 0, 0, 0, 0, 0, HEED_ERR_BACKEND},
    {"a panel of odd size", "bad panel_bytes", 0, 0, 0, 0, 0, HEED_ERR_BACKEND},
    {"no rows in the trial", "bad rows", 1, 0, 0, 0, 0, HEED_ERR_UNSUPPORTED},
};
static const struct way *way;
static int n_states; /* made and not destroyed */

/* Outside of trials only the test's own dim is taken: a kernel that refuses a trial's shape has
 * none. */
static int takes(uint32_t dim)
{
    return way->in_trial || dim == DIM;
}

static heed_status wanting_supports(const void *machine, const heed_problem *problem,
                                    heed_error *why)
{
    (void)machine;
    return takes(problem->qk_dim) ? supports(machine, problem, why)
                                  : heed_refuse(why, "not this one");
}

static double free_of_charge(const void *machine, const heed_problem *problem, int64_t q_len,
                             int64_t kv_len)
{
    (void)machine, (void)problem, (void)q_len, (void)kv_len;
    return 0;
}

static heed_status wanting_tiling(const void *machine, const heed_problem *problem,
                                  heed_tiling *out)
{
    (void)machine;
    heed_status status = tiling(machine, problem, out);
    if (way->scratch)
        out->scratch_bytes = way->scratch;
    return way->tiling ? way->tiling : status;
}

static heed_status wanting_create(const void *machine, const heed_problem *problem, void **state)
{
    (void)machine, (void)problem;
    n_states += way->make == HEED_OK;
    *state = NULL;
    return way->make;
}

static void wanting_destroy(void *state)
{
    (void)state;
    n_states--;
}

static heed_status linear_supports(const void *machine, const heed_linear_problem *problem,
                                   heed_error *why)
{
    (void)machine;
    return takes(problem->in_dim) ? HEED_OK : heed_refuse(why, "not this one");
}

static double linear_cost(const void *machine, const heed_linear_problem *problem, int64_t rows)
{
    (void)machine, (void)problem, (void)rows;
    return 0;
}

/* Is this member of a linear layer's tiling bad? NULL: any. */
static int is_bad(const char *member)
{
    return strncmp(way->word, "bad ", 4) == 0 && (!member || strcmp(way->word + 4, member) == 0);
}

static heed_status linear_tiling(const void *machine, const heed_linear_problem *problem,
                                 heed_linear_tiling *out)
{
    (void)machine, (void)problem;
    out->rows = 8;
    out->cols = out->panel_cols = 16;
    out->panel_bytes = way->panel ? way->panel : 1024;
    out->scratch_bytes = way->scratch;
    out->rows = is_bad("rows") ? 0 : out->rows;
    out->cols = is_bad("cols") ? 24 : out->cols;
    out->panel_cols = is_bad("panel_cols") ? 0 : out->panel_cols;
    out->panel_bytes = is_bad("panel_bytes") ? 1000 : out->panel_bytes;
    return way->tiling;
}

/* One way fails here, the others in linear_pack. */
static heed_status linear_create(const void *machine, const heed_linear_problem *problem,
                                 void **state)
{
    (void)machine, (void)problem, (void)state;
    return way->make == NO_STATUS ? NO_STATUS : HEED_OK;
}

static heed_status linear_pack(const void *machine, const heed_linear_problem *problem,
                               const heed_linear_weight *weight, int64_t col_first, int64_t col_end,
                               void *panel)
{
    (void)machine, (void)problem, (void)weight, (void)col_first, (void)col_end;
    memset(panel, 0, 1024);
    return way->make;
}

static heed_status linear_tile(const void *machine, const void *state,
                               const heed_linear_problem *problem, const heed_linear_tile *tile,
                               void *scratch)
{
    (void)machine, (void)state, (void)problem, (void)tile, (void)scratch;
    return HEED_ERR_BACKEND; /* it must never come to that */
}

/* Fails the allocation that is numbered *left from now, and no other. */
static void *all_but_one(void *left, size_t bytes, size_t align)
{
    return (*(int *)left)-- == 0 ? NULL : aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void free_any(void *user, void *p, size_t bytes)
{
    (void)user, (void)bytes;
    free(p);
}

/* left: of all_but_one; NULL: the usual allocator. */
static heed_context *context_with(const char *backends, const heed_backend *table, int *left)
{
    heed_context_options options = {.struct_size = sizeof options,
                                    .n_threads = 1,
                                    .backends = backends,
                                    .user = left,
                                    .alloc = left ? all_but_one : NULL,
                                    .release = left ? free_any : NULL};
    heed_context *context = NULL;
    if (heed_context_create(&options, &context) != HEED_OK ||
        heed_context_register(context, table) != HEED_OK) {
        printf("no context: %s\n", heed_last_error());
        exit(1);
    }
    return context;
}

/* The line "not wanting loops: ..." of an explanation has to name what was missing. */
static void check_explanation(const char *text)
{
    const char *line = strstr(text, "not wanting loops: ");
    char said[400] = "";
    if (line)
        snprintf(said, sizeof said, "%.*s", (int)strcspn(line, "\n"), line);
    CHECK(line && strstr(said, way->word) && !strstr(said, "costs less"), "%s is not told of:\n%s",
          way->name, text);
    CHECK(!strstr(text, "wanting loops costs less") && !strstr(text, ": wanting loops,"),
          "%s: it is spoken of as if it were used:\n%s", way->name, text);
}

static void attention(const heed_backend *table)
{
    static const char *const lists[] = {NULL, "wanting,naive", "wanting"};
    for (int i = 0; i < 3; i++) {
        heed_context *context = context_with(lists[i], table, NULL);
        heed_status status = run_small(context);
        const int alone = i == 2;
        CHECK(status == (alone ? way->error : HEED_OK), "%s, backends %s: %s (%s)", way->name,
              lists[i] ? lists[i] : "any", heed_status_string(status), heed_last_error());
        CHECK(!alone ||
                  (strstr(heed_last_error(), "wanting") && strstr(heed_last_error(), way->word)),
              "%s, alone: %s", way->name, heed_last_error());
        heed_attn *plan = NULL;
        char text[8192] = "";
        size_t bytes = sizeof text;
        if (!alone && heed_attn_create(context, &SMALL, &plan) == HEED_OK &&
            heed_attn_explain(plan, 0, text, &bytes) == HEED_OK)
            check_explanation(text);
        heed_attn_release(plan);
        heed_context_release(context);
        CHECK(n_states == 0, "%s: %d plans of the backend are left", way->name, n_states);
    }
}

static const heed_linear_desc layer = {.struct_size = sizeof layer,
                                       .in_dim = DIM,
                                       .out_dim = 3,
                                       .x_type = HEED_F32,
                                       .w_type = HEED_F32,
                                       .y_type = HEED_F32};

static void linear_layers(const heed_backend *table)
{
    static const char *const lists[] = {NULL, "wanting,naive", "wanting"};
    float w[DIM * 3], x[2 * DIM], y[2 * 3];
    for (int i = 0; i < DIM * 3; i++)
        w[i] = (float)(i % 5);
    for (int i = 0; i < 2 * DIM; i++)
        x[i] = (float)(i % 3);
    const heed_linear_args args = {
        .struct_size = sizeof args, .rows = 2, .x = {x, {DIM, 1}}, .y = {y, {3, 1}}};
    const heed_const_view weight = {w, {3, 1}};
    for (int i = 0; i < 3; i++) {
        heed_context *context = context_with(lists[i], table, NULL);
        heed_linear *linear = NULL;
        heed_status status = heed_linear_create(context, &layer, &weight, NULL, &linear);
        const int alone = i == 2;
        CHECK(status == (alone ? way->error : HEED_OK), "linear, %s, backends %s: %s (%s)",
              way->name, lists[i] ? lists[i] : "any", heed_status_string(status),
              heed_last_error());
        char text[8192] = "";
        size_t bytes = sizeof text;
        if (linear && heed_linear_explain(linear, 0, text, &bytes) == HEED_OK)
            check_explanation(text);
        if (linear)
            CHECK(heed_linear_run(linear, &args, NULL, 0) == HEED_OK, "%s", heed_last_error());
        for (int r = 0; linear && r < 2; r++)
            for (int c = 0; c < 3; c++) { /* small integers: exact */
                float want = 0;
                for (int d = 0; d < DIM; d++)
                    want += x[r * DIM + d] * w[d * 3 + c];
                CHECK(y[r * 3 + c] == want, "linear, %s: %g, %g is right", way->name,
                      (double)y[r * 3 + c], (double)want);
            }
        heed_linear_release(linear);
        heed_context_release(context);
    }
}

/* A layer whose first kernel fails, and then memory, says that memory does. */
static void check_shortage(const heed_backend *table)
{
    static const float w[DIM * 3];
    const heed_const_view weight = {w, {3, 1}};
    heed_status status = HEED_ERR_NOMEM;
    int n = 0;
    for (; status != HEED_OK && n < 100; n++) {
        int left = INT_MAX;
        heed_context *context = context_with("wanting,naive", table, &left);
        heed_linear *linear = NULL;
        left = n;
        status = heed_linear_create(context, &layer, &weight, NULL, &linear);
        left = INT_MAX;
        CHECK(status == HEED_OK ||
                  (status == HEED_ERR_NOMEM && strstr(heed_last_error(), "no memory")),
              "%s, allocation %d: %s (%s)", way->name, n, heed_status_string(status),
              heed_last_error());
        heed_linear_release(linear);
        heed_context_release(context);
    }
    CHECK(n > 2 && status == HEED_OK, "%d allocations failed", n);
}

static heed_status many_supports(const void *machine, const heed_problem *problem, heed_error *why)
{
    return problem->query_class == HEED_QUERY_MANY ? supports(machine, problem, why)
                                                   : heed_refuse(why, "not this class");
}

static heed_status wide_tiling(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    heed_status status = tiling(machine, problem, out);
    out->query_rows = 1 << 20;
    return status;
}

/* A kernel for few keys, whose tiles with all heads have more rows than there may be, is left out of
 * the plan: the plan's workspace is that of a plan without it. */
static void check_left_out(void)
{
    heed_attn_desc desc = SMALL;
    size_t bytes[2] = {0};
    desc.q_heads = 4096;
    desc.kv_heads = 1;
    desc.max_q_len = 1 << 20;
    for (int with = 0; with < 2; with++) {
        changed_backend table;
        change_backend(&table, example_entry(HEED_BACKEND_ABI, sizeof(heed_backend)), "wide");
        table.attn.supports = many_supports;
        table.attn.cost = free_of_charge;
        table.attn.tiling = wide_tiling;
        table.attn.flags |= HEED_KERNEL_FEW_KEYS;
        heed_context *context = context_with(with ? "wide,naive" : "naive", &table.backend, NULL);
        heed_attn *plan = NULL;
        CHECK_OK(heed_attn_create(context, &desc, &plan));
        bytes[with] = heed_attn_workspace_bytes(plan, 1);
        heed_attn_release(plan);
        heed_context_release(context);
    }
    CHECK(bytes[0] > 0 && bytes[1] == bytes[0], "%zu bytes, with the kernel %zu", bytes[0],
          bytes[1]);
}

int main(void)
{
    changed_backend table;
    change_backend(&table, example_entry(HEED_BACKEND_ABI, sizeof(heed_backend)), "wanting");
    table.attn.supports = wanting_supports;
    table.attn.cost = free_of_charge;
    table.attn.tiling = wanting_tiling;
    table.attn.plan_create = wanting_create;
    table.attn.plan_destroy = wanting_destroy;
    table.linear = (heed_linear_kernel){
        .struct_size = sizeof table.linear,
        .name = "loops",
        .supports = linear_supports,
        .cost = linear_cost,
        .tiling = linear_tiling,
        .pack = linear_pack,
        .run = linear_tile,
        .plan_create = linear_create,
        .plan_destroy = wanting_destroy,
    };
    table.backend.n_linear = 1;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        way = &ways[i];
        if (!way->panel && !is_bad(NULL))
            attention(&table.backend);
        if (!(way->in_trial && way->make)) /* no call in a linear layer's trial can return it */
            linear_layers(&table.backend);
        if (way->error == HEED_ERR_BACKEND)
            check_shortage(&table.backend);
    }
    check_left_out();
    return checks_end();
}
