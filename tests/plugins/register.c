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
    check(status == want && strstr(heed_last_error(), word), "a table with a bad %s gives %s: %s",
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
    check(!strstr(text, "example"), "a refused table is listed:\n%s", text);
    free(text);
    check(run_small(context) == HEED_OK, "refused tables do harm: %s", heed_last_error());
    heed_context_release(context);
}

static heed_status refusing_open(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    (void)machine;
    return heed_refuse(why, "the vendor is '%s'", cpu->vendor[0] == 1 ? "" : "not ours");
}

static void failing_open(void)
{
    heed_context *context = new_context();
    static changed_backend t;
    example(&t);
    t.backend.open = refusing_open;
    check(heed_context_register(context, &t.backend) == HEED_OK, "a failing open is an error: %s",
          heed_last_error());
    char *text = listing(context, 0);
    check(strstr(text, "the vendor is 'not ours'") != NULL, "its reason is not shown:\n%s", text);
    free(text);
    check(heed_context_register(context, &t.backend) == HEED_ERR_INVALID, "its name is not taken");
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

/* Plans that are cached from before do not hide a new backend, plans that are held keep theirs, and
 * other contexts do not see it. */
static void seen_by_later_plans(void)
{
    heed_context *context = new_context(), *other = new_context();
    heed_attn *held = NULL;
    static changed_backend t;
    example(&t);
    t.attn.cost = free_of_charge;
    t.attn.run = counted_tile;
    t.backend.name = "a_name_of_thirty_one_characters";

    check(run_small(context) == HEED_OK, "before: %s", heed_last_error());
    check(heed_attn_create(context, &SMALL, &held) == HEED_OK, "plan: %s", heed_last_error());
    check(heed_context_register(context, &t.backend) == HEED_OK, "register: %s", heed_last_error());
    check(n_tiles == 0, "the backend ran before it was asked to");
    check(run_small(context) == HEED_OK && n_tiles > 0, "the cheapest backend was not used");
    int before = n_tiles;
    check(run_small(other) == HEED_OK && n_tiles == before, "another context uses it");
    char text[8192];
    size_t bytes = sizeof text;
    check(heed_attn_explain(held, 0, text, &bytes) == HEED_OK &&
              strstr(text, "not a_name_of_thirty_one_characters loops: it was registered later"),
          "a held plan's explanation:\n%s", text);
    const char *used = strstr(text, "row: ");
    if (used) {
        char not_used[64];
        snprintf(not_used, sizeof not_used, "not %.*s:", (int)strcspn(used + 5, " ,"), used + 5);
        check(!strstr(text, not_used), "a plan uses what it says that it does '%s'\n%s", not_used,
              text);
    }
    check(used != NULL, "no class in\n%s", text);
    heed_attn_release(held);
    heed_context_release(context);
    heed_context_release(other);
}

/* A list of backends is an order: the first that can run it does, whatever the others cost. */
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
        check(heed_context_create(&options, &context) == HEED_OK, "%s", heed_last_error());
        check(heed_context_register(context, &t.backend) == HEED_OK, "%s", heed_last_error());
        check(run_small(context) == HEED_OK, "%s", heed_last_error());
        int before = n_tiles; /* after the trials, which every backend has once in a context */
        check(run_small(context) == HEED_OK, "%s", heed_last_error());
        check((n_tiles > before) == free_first, "the list %s is not kept to", list[free_first]);
        heed_context_release(context);
    }
}

/* What only a tiling can break is found when a plan is made. */
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
        out->prepare_bytes = 64; /* with nobody to prepare */
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
        check(heed_context_create(&options, &context) == HEED_OK, "%s", heed_last_error());
        check(heed_context_register(context, &t.backend) == HEED_OK, "%s", heed_last_error());
        heed_status status = run_small(context);
        check(status == HEED_ERR_UNSUPPORTED || status == HEED_ERR_BACKEND,
              "bad tiling %d gives %s", what_is_wrong, heed_status_string(status));
        check(strstr(heed_last_error(), "example") != NULL, "bad tiling %d: %s", what_is_wrong,
              heed_last_error());
        heed_context_release(context);
    }
}

int main(void)
{
    bad_tables();
    failing_open();
    seen_by_later_plans();
    list_is_an_order();
    bad_tilings();
    printf("%d failed\n", n_failed);
    return n_failed != 0;
}
