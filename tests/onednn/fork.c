/* fork with oneDNN. A child whose parent had used oneDNN does without it: plans and layers made
 * before the fork fail with the reason, instead of waiting for a lock that nobody releases, and
 * selection takes another backend. A child whose parent had only made a context uses oneDNN.
 *
 *     fork            the children of a process of one thread
 *     fork threads    those of a process whose other threads use oneDNN meanwhile */
#define _GNU_SOURCE /* unsetenv */
#include "../check.h"

#include <heed/heed.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DIM = 64, ROWS = 20, KEYS = 300, CHILDREN = 100 };

static const char reason[] = "the parent process used oneDNN before fork()";

/* All values are 1.5, and so is every output of attention; x and w are 1. */
static float q[ROWS * DIM], k[KEYS * DIM], v[KEYS * DIM], w[DIM];

/* What a thread uses: each has its own. */
typedef struct user {
    heed_context *context;
    heed_attn *plan;
    heed_linear *linear;
    void *workspace;
    size_t bytes;
    float out[ROWS * DIM];
} user;

static heed_attn_desc desc_of(uint32_t heads)
{
    return (heed_attn_desc){.struct_size = sizeof(heed_attn_desc),
                            .q_heads = heads,
                            .kv_heads = heads,
                            .qk_dim = DIM / heads,
                            .v_dim = DIM / heads,
                            .q_type = HEED_F32,
                            .k_type = HEED_F32,
                            .v_type = HEED_F32,
                            .out_type = HEED_F32,
                            .max_batch = 1,
                            .max_q_len = ROWS,
                            .max_kv_len = KEYS};
}

static heed_attn_args args_of(user *u, uint32_t heads)
{
    const int64_t dim = DIM / heads;
    memset(u->out, 0, sizeof u->out);
    return (heed_attn_args){.struct_size = sizeof(heed_attn_args),
                            .batch = 1,
                            .q_len = ROWS,
                            .kv_len = KEYS,
                            .q = {q, {0, dim, DIM, 1}},
                            .k = {k, {0, dim, DIM, 1}},
                            .v = {v, {0, dim, DIM, 1}},
                            .out = {u->out, {0, dim, DIM, 1}}};
}

/* The mean of values of 1.5 is 1.5 with any weights. Two sums of KEYS terms, each rounded to 2^-24,
 * are off by less than 2 * 300 * 2^-24 < 2^-14 of it. */
static int is_right(const user *u)
{
    for (int i = 0; i < ROWS * DIM; i++)
        if (!(u->out[i] > 1.5f - 0x1p-13f && u->out[i] < 1.5f + 0x1p-13f))
            return 0;
    return 1;
}

static heed_context *context_of(const char *backends)
{
    const heed_context_options options = {
        .struct_size = sizeof options, .n_threads = 1, .backends = backends};
    heed_context *context = NULL;
    CHECK_OK(heed_context_create(&options, &context));
    return context;
}

static void make(user *u)
{
    const heed_attn_desc desc = desc_of(1);
    const heed_linear_desc layer = {.struct_size = sizeof layer,
                                    .in_dim = DIM,
                                    .out_dim = 1,
                                    .x_type = HEED_F32,
                                    .w_type = HEED_F32,
                                    .y_type = HEED_F32};
    const heed_const_view weight = {w, {1, DIM}};
    CHECK_OK(heed_attn_create(u->context, &desc, &u->plan));
    CHECK_OK(heed_linear_create(u->context, &layer, &weight, NULL, &u->linear));
    u->bytes = heed_attn_workspace_bytes(u->plan, 1);
    u->workspace = aligned_alloc(64, (u->bytes + 63) / 64 * 64);
}

static void drop(user *u)
{
    heed_attn_release(u->plan);
    heed_linear_release(u->linear);
    free(u->workspace);
}

static heed_status run_plan(user *u)
{
    const heed_attn_args args = args_of(u, 1);
    return heed_attn_run(u->plan, &args, u->workspace, u->bytes);
}

static heed_status run_linear(user *u)
{
    const heed_linear_args args = {
        .struct_size = sizeof args, .rows = ROWS, .x = {w, {0, 1}}, .y = {u->out, {1, 1}}};
    heed_status st = heed_linear_run(u->linear, &args, NULL, 0);
    CHECK(st != HEED_OK || (u->out[0] == DIM && u->out[ROWS - 1] == DIM), "the layer is wrong");
    return st;
}

static heed_status run_at_once(user *u, heed_context *context)
{
    const heed_attn_desc desc = desc_of(2);
    const heed_attn_args args = args_of(u, 2);
    return heed_attention(context, &desc, &args);
}

static void expect_refused(heed_status st, heed_status expected, const char *what)
{
    CHECK(st == expected && strstr(heed_last_error(), reason), "%s: %s, '%s'", what,
          heed_status_string(st), st == HEED_OK ? "" : heed_last_error());
}

/* ---- in a child ------------------------------------------------------------------------------ */

static heed_context *free_choice; /* has all backends */

static void use_after_use(user *u)
{
    expect_refused(run_plan(u), HEED_ERR_BACKEND, "a plan of the parent's");
    expect_refused(run_linear(u), HEED_ERR_BACKEND, "a layer of the parent's");
    expect_refused(run_at_once(u, u->context), HEED_ERR_UNSUPPORTED, "a context of the parent's");
    heed_context *later = context_of("onednn");
    expect_refused(run_at_once(u, later), HEED_ERR_UNSUPPORTED, "a context of the child's");
    CHECK(run_at_once(u, free_choice) == HEED_OK && is_right(u), "no other backend: %s",
          heed_last_error());
    drop(u);
    heed_context_release(u->context);
    heed_context_release(later);
    heed_context_release(free_choice);
}

static void use_for_the_first_time(user *u)
{
    make(u);
    CHECK(run_plan(u) == HEED_OK && is_right(u), "a plan: %s", heed_last_error());
    CHECK(run_linear(u) == HEED_OK, "a layer: %s", heed_last_error());
    drop(u);
}

static void use_beside_threads(user *u)
{
    CHECK(run_plan(u) == HEED_ERR_BACKEND, "a plan of the parent's runs");
    heed_context *later = context_of(NULL);
    CHECK(run_at_once(u, later) == HEED_OK && is_right(u), "%s", heed_last_error());
    heed_context_release(later);
}

/* Runs the body in a child, which an alarm ends if it hangs. */
static void in_child(void (*body)(user *u), user *u, const char *what)
{
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        n_failures = 0;
        alarm(30);
        body(u);
        fflush(stdout);
        _exit(n_failures != 0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
              WEXITSTATUS(status) == 0,
          "%s: the child ended with status %x", what, status);
}

/* ---- beside a fork --------------------------------------------------------------------------- */

static atomic_int stop;

/* Spends half of its time inside oneDNN's generated code, half where oneDNN generates more. */
static void *busy(void *of)
{
    user u = {.context = context_of("onednn")};
    (void)of;
    while (!atomic_load(&stop)) {
        make(&u);
        for (int i = 0; i < 20; i++)
            CHECK_OK(run_plan(&u));
        drop(&u);
    }
    heed_context_release(u.context);
    return NULL;
}

static void fork_alone(user *u)
{
    u->context = context_of("onednn");
    in_child(use_for_the_first_time, u, "first use in the child");

    make(u);
    CHECK(run_plan(u) == HEED_OK && is_right(u), "%s", heed_last_error());
    CHECK_OK(run_linear(u));
    CHECK(run_at_once(u, u->context) == HEED_OK && is_right(u), "%s", heed_last_error());
    CHECK(run_at_once(u, free_choice) == HEED_OK && is_right(u), "%s", heed_last_error());
    in_child(use_after_use, u, "use in parent and child");
    CHECK(run_plan(u) == HEED_OK && is_right(u), "the parent, after the fork: %s",
          heed_last_error());
}

static void fork_beside_threads(user *u)
{
    pthread_t thread[2];
    u->context = context_of("onednn");
    make(u);
    CHECK(run_plan(u) == HEED_OK && is_right(u), "%s", heed_last_error());
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, busy, NULL);
    for (int i = 0; i < CHILDREN && !n_failures; i++)
        in_child(use_beside_threads, u, "fork beside threads");
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
}

int main(int argc, char **argv)
{
    static user u;
    unsetenv("HEED_BACKEND");
    for (int i = 0; i < KEYS * DIM; i++)
        v[i] = 1.5f;
    for (int i = 0; i < DIM; i++)
        w[i] = 1;
    free_choice = context_of(NULL);
    if (argc > 1 && strcmp(argv[1], "threads") == 0)
        fork_beside_threads(&u);
    else
        fork_alone(&u);
    drop(&u);
    heed_context_release(u.context);
    heed_context_release(free_choice);
    return checks_end();
}
