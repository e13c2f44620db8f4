/* A rank's threads: results have the same bits with one, two and three of them, and all of them
 * take part in the work between runs (copying, merging and finishing rows) where there is enough of
 * it. The transport is called only by the thread that called the group. And with the last number of
 * threads the program lets floating-point exceptions trap, which the ranks' threads inherit. What an executor
 * leaves undone the calling thread does. */
#define _GNU_SOURCE /* feenableexcept */
#include "../check.h"
#include "../threads/on_pthreads.h"
#include "threads.h"

#include <fenv.h>
#include <string.h>

enum { RANKS = 3, MOST_THREADS = 3 };

/* ---- threads that are counted ---------------------------------------------------------------- */

typedef struct team {
    int calls;   /* of parallel_for with more than one part */
    int is_down; /* then nothing is run by it */
} team;

/* The caller runs part 0 itself. */
static void parallel_for(void *user, uint32_t n, void (*body)(void *arg, uint32_t i), void *arg)
{
    job j[MOST_THREADS];
    ((team *)user)->calls += n > 1;
    if (((team *)user)->is_down)
        return;
    for (uint32_t i = 1; i < n; i++) {
        j[i] = (job){.body = body, .arg = arg, .index = i};
        if (pthread_create(&j[i].thread, NULL, run_job, &j[i]) != 0)
            exit(1);
    }
    body(arg, 0);
    for (uint32_t i = 1; i < n; i++)
        pthread_join(j[i].thread, NULL);
}

static heed_context *context_of(team *t, uint32_t n_threads)
{
    const heed_executor executor = {.struct_size = sizeof executor,
                                    .user = t,
                                    .n_threads = n_threads,
                                    .parallel_for = parallel_for};
    const heed_context_options options = {.struct_size = sizeof options, .executor = &executor};
    heed_context *context = NULL;
    if (heed_context_create(&options, &context) != HEED_OK) {
        printf("no context: %s\n", heed_last_error());
        exit(1);
    }
    return context;
}

/* ---- a transport that knows its thread ------------------------------------------------------- */

typedef struct guarded {
    heed_transport inner;
    pthread_t thread;
    int has_thread, strangers;
} guarded;

static heed_transport *visit(void *user)
{
    guarded *g = user;
    if (!g->has_thread)
        g->thread = pthread_self();
    g->has_thread = 1;
    g->strangers += !pthread_equal(g->thread, pthread_self());
    return &g->inner;
}

static heed_status guarded_send(void *user, uint32_t to, uint32_t tag, const void *data,
                                size_t bytes, heed_request *request, heed_error *why)
{
    const heed_transport *t = visit(user);
    return t->send(t->user, to, tag, data, bytes, request, why);
}

static heed_status guarded_receive(void *user, uint32_t from, uint32_t tag, void *data,
                                   size_t bytes, heed_request *request, heed_error *why)
{
    const heed_transport *t = visit(user);
    return t->receive(t->user, from, tag, data, bytes, request, why);
}

static heed_status guarded_test(void *user, heed_request *request, uint32_t *done, size_t *bytes,
                                heed_error *why)
{
    const heed_transport *t = visit(user);
    return t->test(t->user, request, done, bytes, why);
}

static heed_status guarded_wait(void *user, heed_request *request, int64_t timeout_ns,
                                uint32_t *done, size_t *bytes, heed_error *why)
{
    const heed_transport *t = visit(user);
    return t->wait(t->user, request, timeout_ns, done, bytes, why);
}

static heed_status guarded_cancel(void *user, heed_request *request, heed_error *why)
{
    const heed_transport *t = visit(user);
    return t->cancel(t->user, request, why);
}

static void guard(heed_transport *transport, void *user)
{
    guarded *g = &((guarded *)user)[transport->rank];
    *g = (guarded){.inner = *transport};
    transport->user = g;
    transport->send = guarded_send;
    transport->receive = guarded_receive;
    transport->test = guarded_test;
    transport->wait = guarded_wait;
    transport->cancel = guarded_cancel;
}

/* ---- problems -------------------------------------------------------------------------------- */

/* keys < 0: rank 0 has none; 0: no rank has any. Rank 0 then runs no attention, so its executor is
 * called for the work between runs alone: at least `between` times. */
static const struct way {
    const char *name;
    uint32_t scheme, want;
    uint64_t features;
    uint32_t storage, lens;
    int keys, between;
    uint32_t rows_apart;
} way[] = {
    {"all", HEED_GROUP_SPLIT, HEED_WANT_ALL, HEED_HAS_LSE, 0, 0, 90, 0, 0},
    {"all, of others", HEED_GROUP_SPLIT, HEED_WANT_ALL, HEED_HAS_LSE, 0, 0, -90, 1, 0},
    {"root, of others", HEED_GROUP_SPLIT, HEED_WANT_ROOT, HEED_HAS_SINK, 0, 0, -90, 2, 0},
    {"heads, packed", HEED_GROUP_SPLIT, HEED_WANT_HEADS, HEED_HAS_LSE | HEED_HAS_SINK, KIT_RAGGED,
     KIT_LENS_BOTH, 90, 0, 0},
    {"all, padded", HEED_GROUP_SPLIT, HEED_WANT_ALL, HEED_HAS_SINK, 0, KIT_LENS_BOTH, 90, 0, 0},
    {"rows", HEED_GROUP_SPLIT, 0, HEED_HAS_LSE, 0, 0, 90, 0, 1},
    {"rows, packed", HEED_GROUP_SPLIT, 0, HEED_HAS_SINK, KIT_RAGGED, KIT_LENS_BOTH, 90, 0, 1},
    {"rows without keys", HEED_GROUP_SPLIT, 0, HEED_HAS_SINK, 0, 0, 0, 2, 1},
    {"ring", HEED_GROUP_RING, 0, HEED_HAS_LSE, 0, 0, 90, 0, 0},
    {"ring, packed", HEED_GROUP_RING, 0, HEED_HAS_SINK, KIT_RAGGED, KIT_LENS_BOTH, 90, 0, 0},
    {"ring without keys", HEED_GROUP_RING, 0, HEED_HAS_LSE | HEED_HAS_SINK, 0, 0, 0, 2, 0},
};

static void set(ranks_case *c, const struct way *w)
{
    memset(c, 0, sizeof *c);
    c->spec = (kit_spec){.q_type = HEED_F32,
                         .k_type = HEED_F32,
                         .v_type = HEED_F32,
                         .out_type = HEED_F16,
                         .q_heads = 6,
                         .kv_heads = 2,
                         .qk_dim = 32,
                         .v_dim = 40,
                         .batch = 3,
                         .q_len = 170,
                         .kv_len = abs(w->keys),
                         .features = w->features,
                         .storage = w->storage,
                         .lens = w->lens,
                         .seed = 5};
    c->size = RANKS;
    c->scheme = w->scheme;
    c->want = w->want;
    c->rows_apart = w->rows_apart;
    c->has_owner = 1;
    c->n_parts = 2 * RANKS;
    for (uint32_t p = 0; p < c->n_parts; p++)
        c->owner[p] = w->keys < 0 ? 1 + p % 2 : p % RANKS;
    snprintf(c->name, sizeof c->name, "%s", w->name);
    if (ranks_build(c, 8) != 0)
        exit(1);
}

static uint64_t run(const struct way *w, uint32_t n_threads, int is_down)
{
    ranks_case *c = calloc(1, sizeof *c);
    rank_thread *t = calloc(RANKS, sizeof *t);
    guarded g[RANKS];
    team teams[RANKS];
    heed_context *context[RANKS];
    kit_outcome outcome = {KIT_PASSED, ""};
    if (!c || !t)
        exit(1);
    memset(g, 0, sizeof g);
    memset(teams, 0, sizeof teams);
    set(c, w);
    kit_reset_outputs(&c->problem);
    for (int r = 0; r < RANKS; r++) {
        teams[r].is_down = is_down;
        context[r] = context_of(&teams[r], n_threads);
    }
#if defined(__GLIBC__)
    feclearexcept(FE_ALL_EXCEPT);
    if (n_threads == MOST_THREADS)
        feenableexcept(FE_ALL_EXCEPT);
#endif
    if (threads_run(c, t, context, (int)(n_threads % 2), guard, g) != 0)
        exit(1);
    fesetenv(FE_DFL_ENV);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK(t[r].call.status == HEED_OK, "%s, rank %u: %s", c->name, r, t[r].call.why.text);
        CHECK(g[r].strangers == 0, "%s, rank %u: %d calls by other threads", c->name, r,
              g[r].strangers);
        rank_collect(&t[r].call, c, r, &outcome);
        heed_context_release(context[r]);
    }
    CHECK(g[0].has_thread, "%s: no call was seen", c->name);
    CHECK(teams[0].calls >= (n_threads > 1 ? w->between : 0), "%s, %u threads: %d calls", c->name,
          n_threads, teams[0].calls);
    ranks_check(c, &outcome);
    CHECK(outcome.verdict == KIT_PASSED, "%s, %u threads: %s", c->name, n_threads, outcome.text);
    const uint64_t bits = ranks_bits(c);
    threads_free(c, t);
    ranks_free(c);
    free(c);
    free(t);
    return bits;
}

int main(void)
{
    for (size_t n = 0; n < sizeof way / sizeof *way; n++) {
        const uint64_t want = run(&way[n], 1, 0);
        for (uint32_t threads = 2; threads <= MOST_THREADS; threads++)
            CHECK(run(&way[n], threads, 0) == want, "%s: other bits with %u threads", way[n].name,
                  threads);
        if (way[n].keys == 0) /* there are no runs, which would be refused */
            CHECK(run(&way[n], 2, 1) == want, "%s: other bits with threads that are not there",
                  way[n].name);
    }
    return checks_end();
}
