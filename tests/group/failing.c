/* Whatever goes wrong, at whichever message or call, every rank returns in time, with a status and
 * a sentence; nothing is touched after a rank returned (its workspace is unmapped then), and a rank
 * that returns HEED_OK has the right bits. */
#include "../check.h"
#include "threads.h"
#include "wrap.h"

#include <string.h>

enum { RANKS = 3, VICTIM = 1 };
#define TIMEOUT INT64_C(150000000)
#define MARGIN INT64_C(8000000000) /* for a loaded machine */

static heed_context *context[RANKS];

static void around(heed_transport *transport, void *user)
{
    wrapped *w = user;
    if (transport->rank == VICTIM)
        wrap(w, transport);
}

/* One run with a transport that is broken at `at`. want: hashes of a healthy run's results. Returns
 * whether the run reached `at`. */
static int run_broken(ranks_case *c, wrapped *w, int kind, int64_t at, uint64_t want[RANKS])
{
    rank_thread *t = calloc(RANKS, sizeof *t);
    const int64_t start = wrap_now();
    memset(w, 0, sizeof *w);
    w->kind = kind;
    w->at = at;
    if (!t || threads_run(c, t, context, (int)(at % 2), around, w) != 0)
        exit(1);
    const int64_t took = wrap_now() - start;
    const int reached = kind == WRAP_NOTHING || (kind == WRAP_FAILS ? w->calls : w->sends) >= at;
    int bad = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        const rank_call *k = &t[r].call;
        bad += k->status != HEED_OK;
        CHECK(k->status == HEED_OK || k->status == HEED_ERR_TRANSPORT, "%s, kind %d at %lld: %s",
              c->name, kind, (long long)at, heed_status_string(k->status));
        CHECK(
            k->status == HEED_OK || strstr(k->why.text, "rank") || strstr(k->why.text, "transport"),
            "%s, kind %d at %lld: rank %u says '%s'", c->name, kind, (long long)at, r, k->why.text);
        if (kind == WRAP_NOTHING)
            want[r] = rank_bits(k);
        else if (k->status == HEED_OK)
            CHECK(rank_bits(k) == want[r], "%s, kind %d at %lld: rank %u is wrong", c->name, kind,
                  (long long)at, r);
    }
    CHECK(took < TIMEOUT + MARGIN, "%s, kind %d at %lld: %lld ms", c->name, kind, (long long)at,
          (long long)(took / 1000000));
    CHECK((bad > 0) == (reached && kind != WRAP_NOTHING), "%s, kind %d at %lld: %d ranks failed",
          c->name, kind, (long long)at, bad);
    if (kind == WRAP_FAILS && reached)
        CHECK(strstr(t[VICTIM].call.why.text, "a cable was pulled"), "%s: '%s'", c->name,
              t[VICTIM].call.why.text);
    threads_free(c, t);
    free(t);
    return reached;
}

static const ranks_way way[] = {
    {"all", HEED_GROUP_SPLIT, HEED_WANT_ALL, 0, 0},
    {"root", HEED_GROUP_SPLIT, HEED_WANT_ROOT, 0, 0},
    {"root is the victim", HEED_GROUP_SPLIT, HEED_WANT_ROOT, VICTIM, 0},
    {"root is the one that fails", HEED_GROUP_SPLIT, HEED_WANT_ROOT, 2, 0},
    {"heads", HEED_GROUP_SPLIT, HEED_WANT_HEADS, 0, 0},
    {"rows", HEED_GROUP_SPLIT, 0, 0, 1},
    {"ring", HEED_GROUP_RING, 0, 0, 0}};

/* A rank that cannot begin tells the others at once, in its own words. */
static void own_failures(ranks_case *c)
{
    static const char *const said[] = {"args.q is NULL", "args.batch", "workspace has"};
    for (int kind = 0; kind < 3; kind += 2) {
        rank_thread *t = calloc(RANKS, sizeof *t);
        heed_group_threads *group;
        c->partition.timeout_ns = INT64_C(20000000000);
        if (!t || heed_group_threads_create(RANKS, &group) != HEED_OK)
            exit(1);
        const int64_t start = wrap_now();
        for (uint32_t r = 0; r < RANKS; r++) {
            t[r].c = c;
            t[r].context = context[r];
            t[r].how = r == 2 && kind == 2 ? 2 : 1;
            if (rank_make(&t[r].call, c, r) != 0)
                exit(1);
            t[r].transport.struct_size = sizeof t[r].transport;
            heed_group_threads_transport(group, r, &t[r].transport);
            if (r == 2 && kind == 0)
                t[r].call.args.q.data = NULL;
            pthread_create(&t[r].thread, NULL, rank_thread_run, &t[r]);
        }
        for (uint32_t r = 0; r < RANKS; r++)
            pthread_join(t[r].thread, NULL);
        CHECK(t[2].call.status == (kind ? HEED_ERR_NOMEM : HEED_ERR_INVALID), "%s", c->name);
        CHECK(strstr(t[2].call.why.text, said[kind]), "%s: '%s'", c->name, t[2].call.why.text);
        for (uint32_t r = 0; r < 2; r++) {
            /* This rank may have sent its part to the root, and be done, before it was told. */
            if (c->want == HEED_WANT_ROOT && c->root != 2 && r != c->root &&
                t[r].call.status == HEED_OK)
                continue;
            CHECK(t[r].call.status == HEED_ERR_TRANSPORT, "%s: rank %u: %s", c->name, r,
                  heed_status_string(t[r].call.status));
            CHECK(strstr(t[r].call.why.text, "rank 2 failed: ") &&
                      strstr(t[r].call.why.text, said[kind]),
                  "%s: rank %u says '%s'", c->name, r, t[r].call.why.text);
        }
        CHECK(wrap_now() - start < INT64_C(10000000000), "%s: nobody was told", c->name);
        heed_group_threads_release(group);
        threads_free(c, t);
        free(t);
    }
}

/* Ranks whose descriptions differ find that out, though their messages have the same sizes. */
static void another_call(ranks_case *c)
{
    rank_thread *t = calloc(RANKS, sizeof *t);
    heed_group_threads *group;
    int told = 0;
    c->partition.timeout_ns = INT64_C(2000000000);
    if (!t || heed_group_threads_create(RANKS, &group) != HEED_OK)
        exit(1);
    for (uint32_t r = 0; r < RANKS; r++) {
        t[r].c = c;
        t[r].context = context[r];
        t[r].how = 1;
        if (rank_make(&t[r].call, c, r) != 0)
            exit(1);
        t[r].transport.struct_size = sizeof t[r].transport;
        heed_group_threads_transport(group, r, &t[r].transport);
        if (r == 1) {
            t[r].call.desc.features |= HEED_HAS_SCALE;
            t[r].call.desc.scale = 0.5F;
        }
        pthread_create(&t[r].thread, NULL, rank_thread_run, &t[r]);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_join(t[r].thread, NULL);
    for (uint32_t r = 0; r < RANKS; r++) {
        const int hears = c->want != HEED_WANT_ROOT || c->root == r;
        told += strstr(t[r].call.why.text, "another call") != NULL;
        CHECK(t[r].call.status == HEED_ERR_TRANSPORT || !hears, "%s: rank %u: %s", c->name, r,
              heed_status_string(t[r].call.status));
    }
    CHECK(told > 0, "%s: nobody speaks of another call", c->name);
    heed_group_threads_release(group);
    threads_free(c, t);
    free(t);
}

int main(void)
{
    ranks_case *c = malloc(sizeof *c);
    wrapped *w = malloc(sizeof *w);
    if (!c || !w)
        return 1;
    for (int r = 0; r < RANKS; r++)
        context[r] = threads_context(NULL, 1);
    for (int n = 0; n < (int)(sizeof way / sizeof *way); n++) {
        uint64_t want[RANKS] = {0};
        if (ranks_of_way(c, &way[n], RANKS, 12) != 0)
            exit(1);
        c->partition.timeout_ns = INT64_C(20000000000);
        run_broken(c, w, WRAP_NOTHING, 0, want);
        for (int kind = WRAP_FAILS; kind < WRAP_KINDS; kind++) {
            /* A rank that sees a call fail tells the others, so that none waits for its
             * deadline. */
            c->partition.timeout_ns = kind == WRAP_FAILS ? 2 * MARGIN : TIMEOUT;
            for (int64_t at = 1; at < 12 && run_broken(c, w, kind, at, want); at++)
                continue;
        }
        own_failures(c);
        another_call(c);
        ranks_free(c);
    }
    for (int r = 0; r < RANKS; r++)
        heed_context_release(context[r]);
    free(c);
    free(w);
    return checks_end();
}
