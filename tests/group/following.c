/* Calls that follow each other over one transport, each with another scheme: a rank that is behind
 * may still listen for a failure when messages of the next call arrive, or word that it failed. */
#include "../check.h"
#include "threads.h"

#include <string.h>
#include <time.h>

enum { RANKS = 3, CALLS = 7 };

/* ---- a transport that is slow to look -------------------------------------------------------- */

static heed_status (*quick_test)(void *user, heed_request *request, uint32_t *done, size_t *bytes,
                                 heed_error *why);

static heed_status slow_test(void *user, heed_request *request, uint32_t *done, size_t *bytes,
                             heed_error *why)
{
    const struct timespec nap = {0, 20000000};
    nanosleep(&nap, NULL);
    return quick_test(user, request, done, bytes, why);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static const ranks_way way[CALLS] = {{"ring", HEED_GROUP_RING, 0, 0, 0},
                                     {"all", HEED_GROUP_SPLIT, HEED_WANT_ALL, 0, 0},
                                     {"root", HEED_GROUP_SPLIT, HEED_WANT_ROOT, 1, 0},
                                     {"heads", HEED_GROUP_SPLIT, HEED_WANT_HEADS, 0, 0},
                                     {"ring again", HEED_GROUP_RING, 0, 0, 0},
                                     {"rows", HEED_GROUP_SPLIT, 0, 0, 1},
                                     {"all again", HEED_GROUP_SPLIT, HEED_WANT_ALL, 0, 0}};

typedef struct member {
    pthread_t thread;
    heed_context *context;
    heed_transport transport;
    ranks_case *c; /* [CALLS] */
    rank_call call[CALLS];
    int n_calls;
    long delay; /* nanoseconds before the first call */
} member;

static void *run_member(void *of)
{
    member *m = of;
    const struct timespec nap = {0, m->delay};
    nanosleep(&nap, NULL);
    for (int n = 0; n < m->n_calls; n++)
        rank_run(&m->call[n], &m->c[n], m->context, &m->transport, 1);
    return NULL;
}

/* Runs calls with rank `late` slow. `failing`, if less than RANKS, is a rank whose last call fails, and
 * which begins that many nanoseconds after the others. */
static member *run_calls(ranks_case *c, int n_calls, uint32_t late, uint32_t failing, long delay)
{
    member *m = calloc(RANKS, sizeof *m);
    heed_group_threads *group;
    if (!m || heed_group_threads_create(RANKS, &group) != HEED_OK)
        exit(1);
    for (uint32_t r = 0; r < RANKS; r++) {
        m[r].c = c;
        m[r].n_calls = n_calls;
        m[r].delay = r == failing ? delay : 0;
        m[r].context = threads_context(NULL, 1);
        m[r].transport.struct_size = sizeof m[r].transport;
        if (heed_group_threads_transport(group, r, &m[r].transport) != HEED_OK)
            exit(1);
        quick_test = m[r].transport.test;
        if (r == late)
            m[r].transport.test = slow_test;
        for (int n = 0; n < n_calls; n++)
            if (rank_make(&m[r].call[n], &c[n], r) != 0)
                exit(1);
        if (r == failing)
            m[r].call[n_calls - 1].args.q.data = NULL;
    }
    for (uint32_t r = 0; r < RANKS; r++)
        if (pthread_create(&m[r].thread, NULL, run_member, &m[r]) != 0)
            exit(1);
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_join(m[r].thread, NULL);
    heed_group_threads_release(group);
    return m;
}

/* The first n_calls have succeeded on every rank, with the right results. */
static void check_calls(member *m, ranks_case *c, int n_calls, const char *what, uint32_t late)
{
    for (int n = 0; n < n_calls; n++) {
        kit_outcome outcome = {KIT_PASSED, ""};
        kit_reset_outputs(&c[n].problem);
        for (uint32_t r = 0; r < RANKS; r++) {
            if (m[r].call[n].status != HEED_OK)
                kit_fail(&outcome, "rank %u: %s", r, m[r].call[n].why.text);
            rank_collect(&m[r].call[n], &c[n], r, &outcome);
        }
        if (outcome.verdict == KIT_PASSED)
            ranks_check(&c[n], &outcome);
        CHECK(outcome.verdict == KIT_PASSED, "%s%s, rank %u late: %s", c[n].name, what, late,
              outcome.text);
    }
}

static void free_members(member *m)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        for (int n = 0; n < m[r].n_calls; n++)
            rank_free(&m[r].call[n]);
        heed_context_release(m[r].context);
    }
    free(m);
}

static void follow(ranks_case *c, uint32_t late)
{
    member *m = run_calls(c, CALLS, late, RANKS, 0);
    check_calls(m, c, CALLS, "", late);
    free_members(m);
}

/* A rank of a ring is done and fails in its next call, while the one before it, which listens to it,
 * is still in the first. The next call may look just as the first. */
static void next_fails(int64_t q_len)
{
    ranks_case *c = calloc(2, sizeof *c);
    if (!c || ranks_of_way(&c[0], &way[0], RANKS, 30) != 0 ||
        ranks_of_way(&c[1], &way[0], RANKS, q_len) != 0)
        exit(1);
    for (uint32_t late = 0; late < RANKS; late++) {
        const uint32_t failing = (late + 1) % RANKS;
        member *m = run_calls(c, 2, late, failing, 0);
        check_calls(m, c, 1, " before one that fails", late);
        for (uint32_t r = 0; r < RANKS; r++) {
            const rank_call *k = &m[r].call[1];
            CHECK(k->status == (r == failing ? HEED_ERR_INVALID : HEED_ERR_TRANSPORT) &&
                      strstr(k->why.text, "args.q is NULL"),
                  "rank %u late, rank %u: %s, '%s'", late, r, heed_status_string(k->status),
                  k->why.text);
        }
        free_members(m);
    }
    ranks_free(&c[0]);
    ranks_free(&c[1]);
    free(c);
}

/* The root is late, takes all and fails in its next call, while another rank still waits for its send
 * to end and listens. This call is left alone, and its results are right. In the next call the rank may
 * have nothing to hear any more, because it has heard it already: then the time limit ends it
 * (docs/nodes.md). */
static void root_fails(void)
{
    const uint32_t late = 0, root = way[2].root;
    ranks_case *c = calloc(2, sizeof *c);
    for (int n = 0; n < 2; n++) {
        if (!c || ranks_of_way(&c[n], &way[2], RANKS, 30) != 0)
            exit(1);
        c[n].partition.timeout_ns = INT64_C(2000000000);
    }
    member *m = run_calls(c, 2, late, root, 40000000);
    check_calls(m, c, 1, " before the root fails", late);
    for (uint32_t r = 0; r < RANKS; r++) {
        const rank_call *k = &m[r].call[1];
        CHECK(k->status == (r == root ? HEED_ERR_INVALID : HEED_ERR_TRANSPORT) &&
                  (strstr(k->why.text, "args.q is NULL") ||
                   (r != root && strstr(k->why.text, "rank 1 took no message within"))),
              "rank %u: %s, '%s'", r, heed_status_string(k->status), k->why.text);
    }
    free_members(m);
    ranks_free(&c[0]);
    ranks_free(&c[1]);
    free(c);
}

int main(void)
{
    ranks_case *c = calloc(CALLS, sizeof *c);
    for (int n = 0; n < CALLS && c; n++)
        if (ranks_of_way(&c[n], &way[n], RANKS, 30) != 0)
            exit(1);
    for (uint32_t late = 0; late < RANKS && c; late++)
        follow(c, late);
    next_fails(30);
    next_fails(31);
    root_fails();
    for (int n = 0; n < CALLS && c; n++)
        ranks_free(&c[n]);
    free(c);
    return checks_end();
}
