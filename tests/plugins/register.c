/* heed_context_register: a table is accepted whole or refused with the member's name. */
#define heed_backend_entry example_entry
#include "../../examples/plugin.c"
#undef heed_backend_entry

#include "../unit/changed.h"
#include "fixture.h"

static heed_context *new_context(void)
{
    heed_context *context = NULL;
    if (heed_context_create(NULL, &context) != HEED_OK) {
        printf("no context: %s\n", heed_last_error());
        exit(1);
    }
    return context;
}

static void example(changed_backend *to)
{
    change_backend(to, example_entry(HEED_BACKEND_ABI, sizeof(heed_backend)), "example");
}

static void expect_refusal(heed_context *context, const heed_backend *table, heed_status want,
                           const char *word)
{
    heed_status status = heed_context_register(context, table);
    CHECK(status == want && strstr(heed_last_error(), word), "a table with a bad %s gives %s: %s",
          word, heed_status_string(status), heed_last_error());
}

#define EXPECT(change, status, word)                                                               \
    do {                                                                                           \
        example(&t);                                                                               \
        change;                                                                                    \
        expect_refusal(context, &t.backend, status, word);                                         \
    } while (0)

static heed_status append_supports(const heed_cpu *cpu, heed_error *why)
{
    (void)cpu;
    return heed_refuse(why, "not here");
}

static heed_status append_run(const heed_append_rows *rows)
{
    (void)rows;
    return HEED_ERR_UNSUPPORTED;
}

static const heed_append_kernel *good_append(changed_backend *t, heed_append_kernel *append)
{
    *append = (heed_append_kernel){.struct_size = sizeof *append,
                                   .name = "append",
                                   .supports = append_supports,
                                   .run = append_run};
    return t->backend.append = append;
}

static void bad_append(heed_context *context)
{
    static changed_backend t;
    static heed_append_kernel a;
    EXPECT((good_append(&t, &a), a.struct_size = offsetof(heed_append_kernel, run)), HEED_ERR_ABI,
           "bytes");
    EXPECT((good_append(&t, &a), a.name = NULL), HEED_ERR_INVALID, "name");
    EXPECT((good_append(&t, &a), a.supports = NULL), HEED_ERR_INVALID, "append.supports");
    EXPECT((good_append(&t, &a), a.run = NULL), HEED_ERR_INVALID, "append.run");
}

static void bad_tables(void)
{
    heed_context *context = new_context();
    static changed_backend t;
    expect_refusal(context, NULL, HEED_ERR_INVALID, "backend");

    EXPECT(t.backend.abi++, HEED_ERR_ABI, "abi");
    EXPECT(t.backend.struct_size = offsetof(heed_backend, n_linear), HEED_ERR_ABI, "bytes");
    EXPECT(t.attn.struct_size = offsetof(heed_attn_kernel, run), HEED_ERR_ABI, "bytes");
    EXPECT(t.backend.n_attn = 0, HEED_ERR_INVALID, "no kernels");
    EXPECT(t.backend.n_attn = UINT32_MAX, HEED_ERR_INVALID, "4294967295 kernels");
    EXPECT(t.backend.n_attn = t.backend.n_linear = UINT32_MAX, HEED_ERR_INVALID,
           "8589934590 kernels");
    EXPECT(t.attn_list[0] = NULL, HEED_ERR_INVALID, "n_attn");
    EXPECT(t.attn.name = "No Name", HEED_ERR_INVALID, "name");

    bad_append(context);
    EXPECT(t.backend.name = NULL, HEED_ERR_INVALID, "name");
    EXPECT(t.backend.summary = NULL, HEED_ERR_INVALID, "summary");
    EXPECT(t.backend.attn = NULL, HEED_ERR_INVALID, "attn");
    EXPECT(t.attn.name = NULL, HEED_ERR_INVALID, "name");
    EXPECT(t.attn.supports = NULL, HEED_ERR_INVALID, "attn.supports");
    EXPECT(t.attn.cost = NULL, HEED_ERR_INVALID, "attn.cost");
    EXPECT(t.attn.tiling = NULL, HEED_ERR_INVALID, "attn.tiling");
    EXPECT(t.attn.run = NULL, HEED_ERR_INVALID, "attn.run");

    static const char *const bad[] = {"", "Example", "an example", "naive",
                                      "a_name_of_thirty_two_characters_"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        EXPECT(t.backend.name = bad[i], HEED_ERR_INVALID, "name");
    }
    char *text = listing(context, 0);
    CHECK(!strstr(text, "example"), "a refused table is listed:\n%s", text);
    free(text);
    CHECK(run_small(context) == HEED_OK, "refused tables do harm: %s", heed_last_error());
    heed_context_release(context);
}

/* A context has room for 64 kernels (core/runtime/registry.h): the 64th is taken, one more is
 * not. */
static void as_many_as_fit(void)
{
    enum { ROOM = 64 };
    heed_context *context = new_context();
    heed_backend_info info = {.struct_size = sizeof info};
    static changed_backend t;
    static const heed_attn_kernel *many[ROOM + 1];
    uint32_t there = 0;
    for (uint32_t i = 0; heed_context_backend(context, i, &info) == HEED_OK; i++)
        there += info.n_attn + info.n_linear;
    for (int i = 0; i <= ROOM; i++)
        many[i] = &t.attn;
    EXPECT((t.backend.attn = many, t.backend.n_attn = ROOM + 1 - there), HEED_ERR_INVALID,
           "kernels");
    example(&t);
    t.backend.attn = many;
    t.backend.n_attn = ROOM - there;
    CHECK(heed_context_register(context, &t.backend) == HEED_OK, "%u kernels beside %u: %s",
          ROOM - there, there, heed_last_error());
    EXPECT(t.backend.name = "one_more", HEED_ERR_INVALID, "1 kernels");
    CHECK(run_small(context) == HEED_OK, "with all kernels: %s", heed_last_error());
    heed_context_release(context);
}

static heed_status refusing_open(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    (void)machine;
    return heed_refuse(why, "the vendor is '%s'", cpu->vendor[0] == 1 ? "" : "not ours");
}

static int n_starved;

static heed_status starved_open(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    (void)machine;
    snprintf(why->text, sizeof why->text, "a note about %s", cpu->vendor);
    return n_starved-- > 0 ? HEED_ERR_NOMEM : HEED_OK;
}

/* A backend whose open had no memory is not refused for good: it can be registered again. */
static void starving_open(void)
{
    heed_context *context = new_context();
    static changed_backend t;
    n_starved = 1;
    EXPECT(t.backend.open = starved_open, HEED_ERR_NOMEM, "memory to open the backend example");
    char *text = listing(context, 0);
    CHECK(!strstr(text, "example"), "a starved backend is listed:\n%s", text);
    free(text);
    CHECK(heed_context_register(context, &t.backend) == HEED_OK, "registered again: %s",
          heed_last_error());
    heed_context_release(context);
}

static void failing_open(void)
{
    heed_context *context = new_context();
    static changed_backend t;
    example(&t);
    t.backend.open = refusing_open;
    CHECK(heed_context_register(context, &t.backend) == HEED_OK, "a failing open is an error: %s",
          heed_last_error());
    char *text = listing(context, 0);
    CHECK(strstr(text, "the vendor is 'not ours'") != NULL, "its reason is not shown:\n%s", text);
    free(text);
    CHECK(heed_context_register(context, &t.backend) == HEED_ERR_INVALID, "its name is not taken");
    heed_context_release(context);
}

static heed_status one_row(const void *machine, const heed_problem *problem, heed_error *why)
{
    return problem->query_class == HEED_QUERY_ONE ? supports(machine, problem, why)
                                                  : heed_refuse(why, "it serves one row alone");
}

/* A backend of single rows, as of generation, serves calls of one: the simple call too asks for no
 * kernel of more rows than it has. */
static void of_one_row(void)
{
    heed_context_options options = {.struct_size = sizeof options, .backends = "example"};
    heed_context *context = NULL;
    static changed_backend t;
    float x[HEADS * DIM] = {1, 2, 3, 4, 5, 6, 7, 8}, out[HEADS * DIM] = {0};
    const heed_const_view rows = {x, {HEADS * DIM, DIM, DIM, 1}};
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = 1,
                           .kv_len = 1,
                           .q = rows,
                           .k = rows,
                           .v = rows,
                           .out = {out, {HEADS * DIM, DIM, DIM, 1}}};
    heed_attn_desc desc = SMALL;
    desc.max_q_len = 1;
    example(&t);
    t.attn.supports = one_row;
    heed_status st = heed_context_create(&options, &context);
    st = st == HEED_OK ? heed_context_register(context, &t.backend) : st;
    CHECK(st == HEED_OK, "%s", heed_last_error());
    CHECK(heed_attn_supported(context, &desc, NULL) == HEED_OK, "%s", heed_last_error());
    CHECK(heed_attention(context, &desc, &args) == HEED_OK, "%s", heed_last_error());
    CHECK(!memcmp(out, x, sizeof x), "one key does not give its value");
    args.q_len = 2;
    CHECK(heed_attention(context, &desc, &args) == HEED_ERR_UNSUPPORTED, "two rows are served");
    heed_context_release(context);
}

static int n_tiles;

static double free_of_charge(const void *machine, const heed_problem *problem, int64_t q_len,
                             int64_t kv_len)
{
    (void)machine, (void)problem;
    (void)q_len;
    (void)kv_len;
    return 0;
}

static heed_status counted_tile(const void *machine, const void *state, const heed_problem *problem,
                                heed_tile *tile, void *scratch)
{
    __atomic_fetch_add(&n_tiles, 1, __ATOMIC_RELAXED);
    return run(machine, state, problem, tile, scratch);
}

/* Plans that were cached before do not hide a new backend, plans that are held keep theirs, and
 * other contexts do not see the new one. */
static void seen_by_later_plans(void)
{
    heed_context *context = new_context(), *other = new_context();
    heed_attn *held = NULL;
    static changed_backend t;
    example(&t);
    t.attn.cost = free_of_charge;
    t.attn.run = counted_tile;
    t.backend.name = "a_name_of_thirty_one_characters";

    CHECK(run_small(context) == HEED_OK, "before: %s", heed_last_error());
    CHECK(heed_attn_create(context, &SMALL, &held) == HEED_OK, "plan: %s", heed_last_error());
    CHECK(heed_context_register(context, &t.backend) == HEED_OK, "register: %s", heed_last_error());
    CHECK(n_tiles == 0, "the backend ran before it was asked to");
    CHECK(run_small(context) == HEED_OK && n_tiles > 0, "the cheapest backend was not used");
    int before = n_tiles;
    CHECK(run_small(other) == HEED_OK && n_tiles == before, "another context uses it");
    char text[8192];
    size_t bytes = sizeof text;
    CHECK(heed_attn_explain(held, 0, text, &bytes) == HEED_OK &&
              strstr(text, "not a_name_of_thirty_one_characters loops: it was registered later"),
          "a held plan's explanation:\n%s", text);
    const char *used = strstr(text, "row: ");
    if (used) {
        char not_used[64];
        snprintf(not_used, sizeof not_used, "not %.*s:", (int)strcspn(used + 5, " ,"), used + 5);
        CHECK(!strstr(text, not_used), "a plan uses what it says that it does '%s'\n%s", not_used,
              text);
    }
    CHECK(used != NULL, "no class in\n%s", text);
    heed_attn_release(held);
    heed_context_release(context);
    heed_context_release(other);
}

/* A list of backends is an order: the first one that can run a problem does, whatever others
 * cost. */
static void list_is_an_order(void)
{
    static const char *const list[] = {"naive,free", "free,naive"};
    for (int free_first = 0; free_first < 2; free_first++) {
        heed_context_options options = {.struct_size = sizeof options,
                                        .backends = list[free_first]};
        heed_context *context = NULL;
        static changed_backend t;
        example(&t);
        t.attn.cost = free_of_charge;
        t.attn.run = counted_tile;
        t.backend.name = "free";
        CHECK(heed_context_create(&options, &context) == HEED_OK, "%s", heed_last_error());
        CHECK(heed_context_register(context, &t.backend) == HEED_OK, "%s", heed_last_error());
        CHECK(run_small(context) == HEED_OK, "%s", heed_last_error());
        int before = n_tiles; /* after the trials, which every backend has once in a context */
        CHECK(run_small(context) == HEED_OK, "%s", heed_last_error());
        CHECK((n_tiles > before) == free_first, "the list %s is not kept to", list[free_first]);
        heed_context_release(context);
    }
}

static heed_status wrong_tile(const void *machine, const void *state, const heed_problem *problem,
                              heed_tile *tile, void *scratch)
{
    const heed_status status = run(machine, state, problem, tile, scratch);
    tile->acc[0] += 1;
    return status;
}

/* Which backend of the context has that name? */
static uint32_t index_of(heed_context *context, const char *name)
{
    heed_backend_info info = {.struct_size = sizeof info};
    uint32_t i = 0;
    while (heed_context_backend(context, i, &info) == HEED_OK && strcmp(info.name, name) != 0)
        i++;
    return i;
}

/* A backend whose cheapest kernel is wrong runs its next one, and says why not the first. */
static void wrong_kernel_of_two(void)
{
    heed_context_options options = {.struct_size = sizeof options, .backends = "two"};
    heed_context *context = NULL;
    heed_trial_info good = {.struct_size = sizeof good}, bad = good, none = good,
                    short_one = {.struct_size = 8};
    static changed_backend t;
    static heed_attn_kernel wrong;
    static const heed_attn_kernel *both[] = {&wrong, &t.attn};
    example(&t);
    wrong = t.attn;
    wrong.name = "wrong";
    wrong.run = wrong_tile;
    wrong.cost = free_of_charge;
    t.backend.name = "two";
    t.backend.attn = both;
    t.backend.n_attn = 2;
    CHECK(heed_context_create(&options, &context) == HEED_OK, "%s", heed_last_error());
    CHECK(heed_context_register(context, &t.backend) == HEED_OK, "%s", heed_last_error());
    const uint32_t two = index_of(context, "two");
    CHECK(heed_context_trial(context, two, 0, &bad) == HEED_OK && !strcmp(bad.kernel, "wrong") &&
              bad.trial == HEED_TRIAL_NOT_YET && !*bad.reason && !bad.linear,
          "before any plan: kernel %s, trial %u: %s", bad.kernel, bad.trial, bad.reason);
    CHECK(run_small(context) == HEED_OK, "the right kernel does not run: %s", heed_last_error());
    CHECK(heed_context_trial(context, two, 0, &bad) == HEED_OK && bad.trial == HEED_TRIAL_FAILED &&
              strstr(bad.reason, "known-answer trial"),
          "the wrong kernel: trial %u: %s", bad.trial, bad.reason);
    CHECK(heed_context_trial(context, two, 1, &good) == HEED_OK && !strcmp(good.kernel, "loops") &&
              good.trial == HEED_TRIAL_PASSED && !*good.reason,
          "the right kernel %s: trial %u: %s", good.kernel, good.trial, good.reason);

    char line[400], *text = listing(context, 0), *json = listing(context, 1);
    snprintf(line, sizeof line, "  not its kernel wrong: %s\n", bad.reason);
    CHECK(strstr(text, line) && strstr(text, "backend two: "), "'%s' is not in\n%s", line, text);
    snprintf(line, sizeof line,
             "\"failed\": [{\"kernel\": \"wrong\", \"linear\": false, \"reason\": \"%s\"}]",
             bad.reason);
    CHECK(strstr(json, line) != NULL, "'%s' is not in\n%s", line, json);
    free(text);
    free(json);

    CHECK(heed_context_trial(context, two, 2, &none) == HEED_ERR_INVALID &&
              strstr(heed_last_error(), "kernel is 2, backend two has 2"),
          "a third kernel: %s", heed_last_error());
    CHECK(heed_context_trial(context, 99, 0, &none) == HEED_ERR_INVALID && !none.kernel,
          "a hundredth backend: %s", heed_last_error());
    CHECK(heed_context_trial(context, two, 0, &short_one) == HEED_ERR_ABI, "a struct of 8 bytes");
    CHECK(heed_context_trial(context, two, 0, NULL) == HEED_ERR_INVALID, "no struct");
    CHECK(heed_context_trial(NULL, two, 0, &none) == HEED_ERR_INVALID, "no context");
    heed_context_release(context);
}

/* A bad tiling is found when a plan is made. */
static int what_is_wrong;

static heed_status bad_tiling(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    heed_status status = tiling(machine, problem, out);
    switch (what_is_wrong) {
    case 0:
        out->query_rows = 0;
        break;
    case 1:
        out->key_block = 0;
        break;
    case 2:
        out->key_chunk = out->key_block + 1;
        break;
    case 3:
        out->prepare_bytes = 64; /* without a prepare function */
        break;
    }
    return status;
}

static void bad_tilings(void)
{
    for (what_is_wrong = 0; what_is_wrong < 4; what_is_wrong++) {
        heed_context_options options = {.struct_size = sizeof options, .backends = "example"};
        heed_context *context = NULL;
        changed_backend t;
        example(&t);
        t.attn.tiling = bad_tiling;
        CHECK(heed_context_create(&options, &context) == HEED_OK, "%s", heed_last_error());
        CHECK(heed_context_register(context, &t.backend) == HEED_OK, "%s", heed_last_error());
        heed_status status = run_small(context);
        CHECK(status == HEED_ERR_UNSUPPORTED || status == HEED_ERR_BACKEND,
              "bad tiling %d gives %s", what_is_wrong, heed_status_string(status));
        CHECK(strstr(heed_last_error(), "example") != NULL, "bad tiling %d: %s", what_is_wrong,
              heed_last_error());
        heed_context_release(context);
    }
}

static heed_status by_day(const void *machine, const heed_problem *problem, heed_error *why)
{
    (void)machine, (void)problem;
    return heed_refuse(why, "it is day");
}

static heed_status without_moon(const void *machine, const heed_problem *problem, heed_error *why)
{
    (void)machine, (void)problem;
    return heed_refuse(why, "there is no moon");
}

#define LONG                                                                                       \
    "of reasons as long as this one only two have room in the sentence of an error, not three"

static heed_status at_length(const void *machine, const heed_problem *problem, heed_error *why)
{
    (void)machine, (void)problem;
    return heed_refuse(why, LONG);
}

static heed_status at_other_length(const void *machine, const heed_problem *problem,
                                   heed_error *why)
{
    (void)machine, (void)problem;
    return heed_refuse(why, LONG "!");
}

typedef heed_status supports_function(const void *machine, const heed_problem *problem,
                                      heed_error *why);

/* Kernels owl, wolf and bat of the backend three and that of the backend one refuse a problem by these
 * functions: what is said? */
static void refused_by(supports_function *owl, supports_function *wolf, supports_function *bat,
                       supports_function *of_one, const char *said)
{
    heed_context_options options = {.struct_size = sizeof options, .backends = "three,one"};
    heed_context *context = NULL;
    heed_attn *plan = NULL;
    static changed_backend three, one;
    static heed_attn_kernel kernel[3];
    static const heed_attn_kernel *all[] = {&kernel[0], &kernel[1], &kernel[2]};
    example(&three);
    example(&one);
    for (int i = 0; i < 3; i++) {
        kernel[i] = three.attn;
        kernel[i].name = i == 0 ? "owl" : i == 1 ? "wolf" : "bat";
        kernel[i].supports = i == 0 ? owl : i == 1 ? wolf : bat;
    }
    three.backend.name = "three";
    three.backend.attn = all;
    three.backend.n_attn = 3;
    one.backend.name = "one";
    one.attn.supports = of_one;
    CHECK(heed_context_create(&options, &context) == HEED_OK, "%s", heed_last_error());
    CHECK(heed_context_register(context, &three.backend) == HEED_OK, "%s", heed_last_error());
    CHECK(heed_context_register(context, &one.backend) == HEED_OK, "%s", heed_last_error());
    CHECK(heed_attn_create(context, &SMALL, &plan) == HEED_ERR_UNSUPPORTED &&
              !strcmp(heed_last_error(), said),
          "the reasons: %s", heed_last_error());
    heed_context_release(context);
}

/* A reason that excludes several kernels is said once, with their names. */
static void reasons_are_said_once(void)
{
    refused_by(by_day, without_moon, by_day, by_day,
               "no backend runs this problem: three owl/bat, one: it is day; "
               "three wolf: there is no moon");
}

/* A sentence that has no room for all of them ends in dots. */
static void reasons_that_are_long(void)
{
    refused_by(at_length, at_other_length, without_moon, by_day,
               "no backend runs this problem: three owl: " LONG "; three wolf: " LONG
               "!; three bat: there i...");
}

int main(void)
{
    bad_tables();
    reasons_are_said_once();
    reasons_that_are_long();
    as_many_as_fit();
    failing_open();
    of_one_row();
    starving_open();
    seen_by_later_plans();
    list_is_an_order();
    wrong_kernel_of_two();
    bad_tilings();
    return checks_end();
}
