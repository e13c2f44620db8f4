/* Linear and attention layers on a backend that fails in the middle of a run, on one that checks the
 * rounding mode in which it is called, and on one whose kernels fail their trials. */
#include <fenv.h>
#include <heed/backend.h>

#include "changed.h"
#include "layer_setup.h"

const heed_backend *heed_naive_backend(void);

static const heed_backend *naive;
static int fail_at, n_tiles;

/* Fails at tile fail_at of the test's layers; the layer of core's trial has a smaller in_dim. */
static heed_status failing_tile(const void *machine, const void *state,
                                const heed_linear_problem *problem, const heed_linear_tile *tile,
                                void *scratch)
{
    if (problem->in_dim == DIM && ++n_tiles == fail_at)
        return HEED_ERR_NOMEM;
    return naive->linear[0]->run(machine, state, problem, tile, scratch);
}

static void check_failures(layer_setup *s)
{
    changed_backend faulty;
    heed_context *context = unit_context(1, "faulty");
    heed_mha *mha = NULL;
    heed_error error = {""};
    float want[ROWS * DIM];
    heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = 3, .parallel_for = unit_backwards};
    change_backend(&faulty, naive, "faulty");
    faulty.linear.run = failing_tile;
    CHECK_OK(heed_context_register(context, &faulty.backend));
    heed_linear *linear = layer_linear(context, s);
    CHECK_OK(layer_create(context, s, &mha));
    n_tiles = fail_at = 0;
    CHECK_OK(heed_mha_run(mha, &s->args, NULL, 0));
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

/* ---- the host's rounding --------------------------------------------------------------------- */

static int n_asked, n_upward;

static void look_at_rounding(void)
{
    volatile float one = 1, little = 0x1p-30F;
    volatile float sum = one + little;
    n_asked++;
    n_upward += sum > 1;
}

static double watchful_cost(const void *machine, const heed_linear_problem *problem, int64_t rows)
{
    look_at_rounding();
    return naive->linear[0]->cost(machine, problem, rows);
}

static heed_status watchful_tiling(const void *machine, const heed_linear_problem *problem,
                                   heed_linear_tiling *out)
{
    look_at_rounding();
    return naive->linear[0]->tiling(machine, problem, out);
}

/* What a backend decides about a layer must not depend on the thread that makes it. */
static void check_host_rounding(layer_setup *s)
{
    changed_backend watchful;
    heed_context *context = unit_context(1, "watchful");
    change_backend(&watchful, naive, "watchful");
    watchful.linear.cost = watchful_cost;
    watchful.linear.tiling = watchful_tiling;
    CHECK_OK(heed_context_register(context, &watchful.backend));
    fesetround(FE_UPWARD);
    heed_linear *linear = layer_linear(context, s);
    const int kept = fegetround() == FE_UPWARD;
    fesetround(FE_TONEAREST);
    CHECK(n_asked >= 2 && n_upward == 0 && kept, "asked %d times, %d of them upward, %skept",
          n_asked, n_upward, kept ? "" : "not ");
    heed_linear_release(linear);
    heed_context_release(context);
}

/* ---- kernels that fail their trials ---------------------------------------------------------- */

static heed_status no_attention(const void *machine, const void *state, const heed_problem *problem,
                                heed_tile *tile, void *scratch)
{
    (void)machine, (void)state, (void)problem, (void)tile, (void)scratch;
    return HEED_ERR_BACKEND;
}

static heed_status no_linear(const void *machine, const void *state,
                             const heed_linear_problem *problem, const heed_linear_tile *tile,
                             void *scratch)
{
    (void)machine, (void)state, (void)problem, (void)tile, (void)scratch;
    return HEED_ERR_BACKEND;
}

/* What the struct and both texts say of the backend "lame". */
static void check_lame(heed_context *context, int usable, const char *when)
{
    heed_backend_info info = {.struct_size = sizeof info};
    char text[2][16384];
    for (uint32_t i = 0; heed_context_backend(context, i, &info) == HEED_OK; i++)
        if (!strcmp(info.name, "lame"))
            break;
    CHECK(!strcmp(info.name, "lame") && info.usable == (uint32_t)usable &&
              (*info.reason == 0) == usable && info.n_attn == 1 && info.n_linear == 1,
          "%s: usable %u, '%s'", when, info.usable, info.reason);
    for (uint32_t json = 0; json < 2; json++) {
        size_t bytes = sizeof text[json];
        CHECK_OK(heed_context_backends(context, json, text[json], &bytes));
    }
    CHECK((strstr(text[0], "backend lame cannot run here: ") == NULL) == usable, "%s:\n%s", when,
          text[0]);
    const char *json = strstr(text[1], "\"name\": \"lame\"");
    json = json ? strstr(json, "\"usable\": ") : NULL;
    CHECK(json && !strncmp(json, usable ? "\"usable\": true" : "\"usable\": false", 14), "%s:\n%s",
          when, text[1]);
}

/* A backend is usable as long as one of its kernels is. */
static void check_trials(layer_setup *s)
{
    for (int both = 0; both < 2; both++) {
        const heed_const_view in = {s->w_in, {3 * DIM, 1}}, bias = {s->bias, {1}};
        changed_backend lame;
        heed_context *context = unit_context(1, "lame");
        heed_linear *linear = NULL;
        heed_attn *attn = NULL;
        change_backend(&lame, naive, "lame");
        lame.attn.run = no_attention;
        lame.linear.run = both ? no_linear : lame.linear.run;
        CHECK_OK(heed_context_register(context, &lame.backend));
        check_lame(context, 1, "before any trial");
        CHECK_REFUSED(heed_attn_create(context, &s->attn, &attn), HEED_ERR_UNSUPPORTED, "trial");
        check_lame(context, 1, "with attention that failed");
        CHECK(heed_linear_create(context, &s->in, &in, &bias, &linear) ==
                  (both ? HEED_ERR_UNSUPPORTED : HEED_OK),
              "%s", heed_last_error());
        check_lame(context, !both, "after both trials");
        heed_linear_release(linear);
        heed_context_release(context);
    }
}

int main(void)
{
    layer_setup *s = layer_prepare();
    naive = heed_naive_backend();
    check_failures(s);
    check_host_rounding(s);
    check_trials(s);
    free(s);
    return checks_end();
}
