/* Contexts and plans: options take precedence over the environment, structs may have other sizes,
 * plans are cached and counted, memory may run out at any moment, and messages and explanations are
 * right. */
#define _GNU_SOURCE
#include <heed/backend.h>

#include "unit.h"

static heed_status status_of(const heed_context_options *options)
{
    heed_context *context = NULL;
    heed_status st = heed_context_create(options, &context);
    heed_context_release(context);
    return st;
}

static void check_options(void)
{
    heed_context_options o = {.struct_size = sizeof o};
    CHECK_OK(status_of(NULL));
    o.max_isa = "sse9";
    CHECK_REFUSED(status_of(&o), HEED_ERR_INVALID, "sse9");
    setenv("HEED_MAX_ISA", "nonsense", 1);
    o.max_isa = "baseline";
    CHECK(status_of(&o) == HEED_OK, "the option does not beat HEED_MAX_ISA");
    CHECK(status_of(NULL) == HEED_ERR_INVALID, "HEED_MAX_ISA is not read");
    unsetenv("HEED_MAX_ISA");
    o = (heed_context_options){.struct_size = sizeof o, .verbose = "plan,walk"};
    CHECK_REFUSED(status_of(&o), HEED_ERR_INVALID, "walk");
    o = (heed_context_options){.struct_size = sizeof o, .plugin_path = "here"};
    CHECK_REFUSED(status_of(&o), HEED_ERR_INVALID, "absolute");
    setenv("HEED_NUM_THREADS", "two", 1);
    CHECK_REFUSED(status_of(NULL), HEED_ERR_INVALID, "HEED_NUM_THREADS is 'two'");
    o = (heed_context_options){.struct_size = sizeof o, .n_threads = 1};
    CHECK(status_of(&o) == HEED_OK, "the option does not beat HEED_NUM_THREADS");
    unsetenv("HEED_NUM_THREADS");
    o = (heed_context_options){.struct_size = sizeof o, .flags = 64};
    CHECK(status_of(&o) == HEED_ERR_INVALID, "flags");
    o = (heed_context_options){.struct_size = 4};
    CHECK(status_of(&o) == HEED_ERR_ABI, "struct_size 4");
    o.struct_size = 3u << 20;
    CHECK(status_of(&o) == HEED_ERR_ABI, "struct_size 3 MiB");
}

/* The message about a wrong word names the option or the variable that it came from. An option of
 * "" counts as given, and asks for nothing. */
static void check_strings(void)
{
    static const char *const variables[] = {"HEED_MAX_ISA", "HEED_VERBOSE", "HEED_PLUGIN_PATH"};
    static const char *const options[] = {"options.max_isa", "options.verbose",
                                          "options.plugin_path"};
    for (int i = 0; i < 3; i++) {
        heed_context_options o = {.struct_size = sizeof o};
        const char **option = i == 0 ? &o.max_isa : i == 1 ? &o.verbose : &o.plugin_path;
        setenv(variables[i], "nonsense", 1);
        CHECK_REFUSED(status_of(&o), HEED_ERR_INVALID, variables[i]);
        *option = "nonsense";
        CHECK_REFUSED(status_of(&o), HEED_ERR_INVALID, options[i]);
        *option = "";
        CHECK_OK(status_of(&o));
        unsetenv(variables[i]);
    }
}

/* Reads how many threads there are from the machine's line of heed_context_backends. */
static uint32_t default_threads(void)
{
    char text[16384];
    size_t bytes = sizeof text;
    heed_context *context = unit_context(0, NULL);
    CHECK_OK(heed_context_backends(context, 0, text, &bytes));
    heed_context_release(context);
    const char *at = strstr(text, " threads used");
    while (at && at > text && at[-1] != ' ')
        at--;
    return at ? (uint32_t)strtoul(at, NULL, 10) : 0;
}

static void check_threads(void)
{
    setenv("OMP_NUM_THREADS", "1,4", 1);
    CHECK(default_threads() == 1, "OMP_NUM_THREADS");
    setenv("HEED_NUM_THREADS", "7", 1);
    CHECK(default_threads() == 7, "HEED_NUM_THREADS");
    unsetenv("HEED_NUM_THREADS");
    unsetenv("OMP_NUM_THREADS");
    CHECK(default_threads() >= 1, "affinity");
}

/* Sizes that no struct has (a pointer's, one with half a member, one that was never set): the pointers
 * in such a struct are not followed. (struct_ends.c has every call and the sizes that there may be.) */
static void check_struct_sizes(void)
{
    static const size_t impossible[] = {0, 8, 12, 65544, SIZE_MAX};
    unit_problem p = unit_make(1, 2, 4, 6, 8, 1);
    heed_context *context = unit_context(1, NULL);
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        heed_attn_args args = p.args;
        heed_kv_append_args append = {.struct_size = impossible[i]};
        args.struct_size = impossible[i];
        args.error = append.error = (heed_error *)(uintptr_t)1;
        args.executor = (const heed_executor *)(uintptr_t)1;
        CHECK_REFUSED(heed_attention(context, &p.desc, &args), HEED_ERR_ABI, "args.struct_size");
        CHECK_REFUSED(heed_kv_append(&append), HEED_ERR_ABI, "args.struct_size");
    }
    heed_context_release(context);
    unit_free(&p);
}

static void check_cache(void)
{
    unit_problem p = unit_make(1, 1, 3, 5, 4, 1);
    heed_context *context = unit_context(1, NULL);
    heed_attn *first, *again, *held[200];
    CHECK_OK(heed_attn_create(context, &p.desc, &first));
    CHECK(heed_attn_create(context, &p.desc, &again) == HEED_OK && first == again,
          "an equal description gives another plan");
    for (int i = 0; i < 200; i++) { /* more than the cache holds: held plans live on */
        heed_attn_desc other = p.desc;
        other.max_kv_len = 100 + i;
        CHECK_OK(heed_attn_create(context, &other, &held[i]));
    }
    heed_context_release(context); /* plans hold their context */
    size_t bytes;
    for (int i = 0; i < 200; i++) {
        void *workspace = unit_workspace(held[i], 1, &bytes);
        CHECK_OK(heed_attn_run(held[i], &p.args, workspace, bytes));
        free(workspace);
        heed_attn_release(held[i]);
    }
    heed_attn_release(first);
    heed_attn_release(again);
    unit_free(&p);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void check_exhaustion(void)
{
    unit_problem p = unit_make(2, 2, 20, 30, 8, 1);
    int succeeded = 0;
    for (int n = 0; n < 40; n++) {
        unit_budget b = {.left = n};
        heed_context *context = NULL;
        heed_context_options o = {.struct_size = sizeof o,
                                  .n_threads = 1,
                                  .backends = "naive",
                                  .user = &b,
                                  .alloc = unit_spend,
                                  .release = unit_refund};
        heed_status st = heed_context_create(&o, &context);
        if (st == HEED_OK)
            st = heed_attention(context, &p.desc, &p.args);
        heed_context_release(context);
        CHECK(st == HEED_OK || (st == HEED_ERR_NOMEM && *heed_last_error()),
              "%d allocations: status %d", n, st);
        CHECK(b.in_use == 0, "%d allocations: %lld bytes are lost", n, (long long)b.in_use);
        succeeded += st == HEED_OK;
    }
    CHECK(succeeded > 0 && succeeded < 40, "%d of 40 succeeded", succeeded);
    unit_free(&p);
}

/* ---- messages -------------------------------------------------------------------------------- */

static char lines[UNIT_LINES];

static void check_messages(void)
{
    unit_problem p = unit_make(1, 1, 3, 5, 4, 1);
    heed_context *context = NULL;
    heed_context_options o = {
        .struct_size = sizeof o, .verbose = "plan,run", .user = lines, .log = unit_collect};
    CHECK_OK(heed_context_create(&o, &context));
    CHECK_OK(heed_attention(context, &p.desc, &p.args));
    CHECK(strstr(lines, "plan ") &&
              strstr(lines, "run batch 1 q_len 3 kv_len 5: HEED_OK, 1 parts,"),
          "the log has: %s", lines);
    heed_error error = {""};
    p.args.error = &error;
    p.args.kv_len = -3;
    CHECK(heed_attention(context, &p.desc, &p.args) == HEED_ERR_INVALID &&
              strstr(error.text, "kv_len is -3"),
          "args.error has: %s", error.text);
    heed_context_release(context);
    unit_free(&p);
}

static void check_selection(void)
{
    unit_problem p = unit_make(1, 1, 3, 5, 4, 1);
    heed_attn *plan;
    char text[8192];
    size_t bytes = sizeof text;
    heed_context *unknown = unit_context(1, "naive,warp_drive"), *naive = unit_context(1, "naive");
    CHECK(heed_attn_create(unknown, &p.desc, &plan) == HEED_ERR_INVALID &&
              strstr(heed_last_error(), "warp_drive") && strstr(heed_last_error(), "naive"),
          "an unknown name: %s", heed_last_error());
    CHECK_OK(heed_attn_create(naive, &p.desc, &plan));
    CHECK(heed_attn_explain(plan, 1, text, &bytes) == HEED_OK && strstr(text, "\"naive\"") &&
              strlen(text) + 1 == bytes,
          "explain: %s", text);
    size_t room = 40;
    CHECK(heed_attn_explain(plan, 1, text, &room) == HEED_ERR_NOMEM && room == bytes &&
              strlen(text) == 39,
          "too little room: %zu, '%s'", room, text);
    CHECK(heed_attn_explain(plan, 1, NULL, &room) == HEED_OK && room == bytes, "asking the size");
    heed_attn_release(plan);
    setenv("HEED_BACKEND", "warp_drive", 1);
    heed_context *by_variable = unit_context(1, NULL), *any = unit_context(1, "");
    unsetenv("HEED_BACKEND");
    CHECK_REFUSED(heed_attn_create(by_variable, &p.desc, &plan), HEED_ERR_INVALID,
                  "'warp_drive' of HEED_BACKEND is unknown");
    CHECK_OK(heed_attn_create(any, &p.desc, &plan));
    heed_attn_release(plan);
    heed_context_release(by_variable);
    heed_context_release(any);
    p.desc.k_type = HEED_Q8_0;
    p.desc.qk_dim = 33;
    CHECK_REFUSED(heed_attn_create(naive, &p.desc, &plan), HEED_ERR_UNSUPPORTED,
                  "a multiple of 32");
    heed_context_release(unknown);
    heed_context_release(naive);
    unit_free(&p);
}

/* The structs that describe backends and kernels say what the texts say. */
static void check_listing(void)
{
    unit_problem p = unit_make(1, 1, 20, 40, 8, 1);
    heed_context *context = unit_context(1, NULL);
    heed_attn *plan;
    heed_backend_info b = {.struct_size = sizeof b};
    heed_kernel_info few = {.struct_size = sizeof few}, many = few, short_one = {.struct_size = 8};
    char text[16384], line[400];
    size_t bytes = sizeof text;
    uint32_t n = 0;
    CHECK_OK(heed_context_backends(context, 0, text, &bytes));
    for (; heed_context_backend(context, n, &b) == HEED_OK; n++) {
        snprintf(line, sizeof line, b.usable ? "backend %s: %s" : "backend %s cannot run here: %s",
                 b.name, b.usable ? b.summary : b.reason);
        CHECK(strstr(text, line), "'%s' is not in\n%s", line, text);
        CHECK(!b.usable == (b.n_attn + b.n_linear == 0) && !b.usable == (*b.reason != 0), "%s",
              b.name);
    }
    CHECK(n >= 1 && strstr(heed_last_error(), "there are"), "%u backends, then %s", n,
          heed_last_error());
    b.struct_size = 8;
    CHECK(heed_context_backend(context, 0, &b) == HEED_ERR_ABI, "a struct of 8 bytes");
    CHECK(heed_context_backend(context, 0, NULL) == HEED_ERR_INVALID, "no struct");
    CHECK_OK(heed_attn_create(context, &p.desc, &plan));
    bytes = sizeof text;
    CHECK_OK(heed_attn_explain(plan, 0, text, &bytes));
    CHECK(heed_attn_kernel_of(plan, 10, HEED_FEW_KEYS, &few) == HEED_OK &&
              heed_attn_kernel_of(plan, 20, 40, &many) == HEED_OK,
          "%s", heed_last_error());
    snprintf(line, sizeof line, "more query rows: %s %s,", many.backend, many.kernel);
    CHECK(strstr(text, line), "'%s' is not in\n%s", line, text);
    snprintf(line, sizeof line, "8 to 16 query rows, up to 32 keys: %s %s,", few.backend,
             few.kernel);
    CHECK(strstr(text, line), "'%s' is not in\n%s", line, text);
    const char *once = strstr(text, "8 to 16 query rows");
    CHECK(once && !strstr(once + 1, "8 to 16 query rows"), "rows of two classes in\n%s", text);
    CHECK(heed_attn_kernel_of(plan, 10, 5, &short_one) == HEED_ERR_ABI, "a struct of 8 bytes");
    heed_attn_release(plan);
    p.desc.features |= HEED_HAS_REPRODUCIBLE_CHUNKS;
    CHECK_OK(heed_attn_create(context, &p.desc, &plan));
    bytes = sizeof text;
    CHECK_OK(heed_attn_explain(plan, 0, text, &bytes));
    CHECK(strstr(text, "any number of query rows: ") && !strstr(text, "more query rows"),
          "of one class for all rows it says\n%s", text);
    CHECK_REFUSED(heed_attn_kernel_of(plan, 1000, 5, &few), HEED_ERR_INVALID, "1000");
    CHECK(heed_attn_kernel_of(plan, 1, -1, &few) == HEED_ERR_INVALID, "-1 keys");
    heed_attn_release(plan);
    heed_context_release(context);
    unit_free(&p);
}

/* A hold that was taken twice is given back twice, and the context before its plan. */
static void check_holds(void)
{
    unit_problem p = unit_make(1, 1, 2, 3, 8, 1);
    heed_context *context = unit_context(1, "naive");
    heed_attn *plan;
    CHECK_OK(heed_attn_create(context, &p.desc, &plan));
    heed_attn_retain(plan);
    heed_attn_release(plan);
    heed_context_release(context);
    CHECK_OK(heed_attn_run(plan, &p.args, NULL, 0));
    heed_attn_release(plan);
    unit_free(&p);
}

static void *never(void *user, size_t bytes, size_t align)
{
    (void)user, (void)bytes, (void)align;
    return NULL;
}

/* What is missing is named, and not read. */
static void check_missing(void)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 UNIT_SHAPE(1, 1, 16, 16),
                                 UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                                 .max_batch = 1,
                                 .max_q_len = 1,
                                 .max_kv_len = 1};
    const heed_mha_desc layer = {.struct_size = sizeof layer, .attn = &desc};
    heed_context_options half = {.struct_size = sizeof half, .alloc = never};
    heed_context *context = NULL;
    heed_attn *plan = NULL;
    heed_mha *mha = NULL;
    heed_kernel_info info = {.struct_size = sizeof info};
    CHECK_REFUSED(heed_context_create(NULL, NULL), HEED_ERR_INVALID, "out is NULL");
    CHECK_REFUSED(heed_context_create(&half, &context), HEED_ERR_INVALID,
                  "options.release is NULL");
    CHECK_OK(heed_context_create(NULL, &context));
    CHECK_REFUSED(heed_attn_create(NULL, &desc, &plan), HEED_ERR_INVALID, "context is NULL");
    CHECK_REFUSED(heed_attn_create(context, &desc, NULL), HEED_ERR_INVALID, "out is NULL");
    CHECK_REFUSED(heed_attn_supported(NULL, &desc, NULL), HEED_ERR_INVALID, "context is NULL");
    CHECK_REFUSED(heed_attn_kernel_of(NULL, 1, 1, &info), HEED_ERR_INVALID, "plan is NULL");
    CHECK_REFUSED(heed_mha_create(NULL, &layer, &mha), HEED_ERR_INVALID, "context is NULL");
    CHECK_REFUSED(heed_mha_create(context, &layer, NULL), HEED_ERR_INVALID, "out is NULL");
    CHECK(!plan && !mha, "something was made");
    heed_context_release(context);
}

int main(void)
{
    check_missing();
    check_listing();
    check_holds();
    check_options();
    check_strings();
    check_threads();
    check_struct_sizes();
    check_cache();
    check_exhaustion();
    check_messages();
    check_selection();
    return checks_end();
}
