/* A transport around another one: it counts, delays messages, and fails in the ways of networks. */
#ifndef GROUP_WRAP_H
#define GROUP_WRAP_H

#include <heed/heed.h>

#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* What goes wrong, at call or message number `at` (from 1) of the rank that has this transport. */
enum {
    WRAP_NOTHING,
    WRAP_FAILS,   /* the call, whichever it is, fails */
    WRAP_LOSES,   /* the message is said to be sent, and is not */
    WRAP_CUTS,    /* the second half of the message is lost */
    WRAP_GARBLES, /* the message's header has a wrong number */
    WRAP_ACCUSES, /* it says of a message with numbers that it tells of a failure */
    WRAP_STALLS,  /* this message and all later ones are never sent, nor said to be */
    WRAP_KINDS
};

enum { WRAP_RANKS = 8, WRAP_LATE = 1 << 14, WRAP_REQUESTS = 64 };

/* A slow network: times at which messages were sent, from which latency and bandwidth count. */
typedef struct wrap_net {
    double latency, bytes_per_second; /* seconds; 0: at once */
    _Atomic int64_t sent[WRAP_RANKS][WRAP_RANKS][WRAP_LATE];
} wrap_net;

/* A receive whose message is not due yet, or a send that the inner transport knows nothing of. */
typedef struct wrap_request {
    heed_request *of;
    uint32_t from, number, is_fake, stalls, arrived;
    size_t bytes;
} wrap_request;

typedef struct wrapped {
    heed_transport inner;
    wrap_net *net; /* NULL: nothing takes time */
    int kind;
    int64_t at, calls, sends;
    uint64_t messages, bytes; /* that were sent */
    int64_t
        tests_under_way; /* calls of test before the first wait that found a message under way */
    int waits;           /* whether it has waited; the loop that waits tests, too */
    uint32_t sent[WRAP_RANKS], received[WRAP_RANKS];
    wrap_request request[WRAP_REQUESTS];
    char garbled[1 << 16];
} wrapped;

static inline int64_t wrap_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline wrap_request *wrap_find(wrapped *w, heed_request *of)
{
    for (int i = 0; i < WRAP_REQUESTS; i++)
        if (w->request[i].of == of)
            return &w->request[i];
    return NULL;
}

static inline wrap_request *wrap_add(wrapped *w, heed_request *of)
{
    wrap_request *r = wrap_find(w, NULL);
    if (r)
        *r = (wrap_request){.of = of};
    return r;
}

static inline int wrap_fails(wrapped *w, heed_error *why)
{
    if (++w->calls != w->at || w->kind != WRAP_FAILS)
        return 0;
    strcpy(why->text, "a cable was pulled");
    return 1;
}

static inline heed_status wrap_send(void *user, uint32_t to, uint32_t tag, const void *data,
                                    size_t bytes, heed_request *request, heed_error *why)
{
    wrapped *w = user;
    const int now = ++w->sends == w->at;
    if (wrap_fails(w, why))
        return HEED_ERR_BACKEND;
    w->messages++;
    w->bytes += bytes;
    if ((w->kind == WRAP_LOSES && now) || (w->kind == WRAP_STALLS && w->sends >= w->at)) {
        wrap_request *fake = wrap_add(w, request);
        fake->is_fake = 1;
        fake->stalls = w->kind == WRAP_STALLS;
        return HEED_OK;
    }
    if (w->kind == WRAP_CUTS && now)
        bytes /= 2;
    if ((w->kind == WRAP_GARBLES || w->kind == WRAP_ACCUSES) && now && bytes <= sizeof w->garbled) {
        memcpy(w->garbled, data, bytes);
        w->garbled[w->kind == WRAP_GARBLES ? 17 : 32]++; /* bytes that follow; sender's status */
        data = w->garbled;
    }
    if (w->net)
        atomic_store(&w->net->sent[w->inner.rank][to][w->sent[to]++ % WRAP_LATE], wrap_now());
    return w->inner.send(w->inner.user, to, tag, data, bytes, request, why);
}

static inline heed_status wrap_receive(void *user, uint32_t from, uint32_t tag, void *data,
                                       size_t bytes, heed_request *request, heed_error *why)
{
    wrapped *w = user;
    if (wrap_fails(w, why))
        return HEED_ERR_BACKEND;
    wrap_request *r = w->net ? wrap_add(w, request) : NULL;
    if (r) {
        r->from = from;
        r->number = w->received[from]++;
    }
    return w->inner.receive(w->inner.user, from, tag, data, bytes, request, why);
}

/* The answer of test and wait for a request that is not the inner transport's alone. Returns 0 if
 * it is. */
static inline int wrap_knows(wrapped *w, wrap_request *r, uint32_t *done, size_t *bytes)
{
    if (!r)
        return 0;
    if (r->is_fake) {
        *done = !r->stalls;
        if (*done)
            r->of = NULL;
        return 1;
    }
    if (!r->arrived)
        return 0;
    const int64_t sent = atomic_load(&w->net->sent[r->from][w->inner.rank][r->number % WRAP_LATE]);
    const double takes = w->net->latency + (double)r->bytes / w->net->bytes_per_second;
    *bytes = r->bytes;
    *done = wrap_now() - sent >= (int64_t)(takes * 1e9);
    if (*done)
        r->of = NULL;
    return 1;
}

static inline heed_status wrap_test(void *user, heed_request *request, uint32_t *done,
                                    size_t *bytes, heed_error *why)
{
    wrapped *w = user;
    wrap_request *r = wrap_find(w, request);
    if (wrap_fails(w, why)) {
        heed_error ignored;
        if (!r || !r->is_fake)
            w->inner.cancel(w->inner.user, request, &ignored);
        return HEED_ERR_BACKEND;
    }
    *done = 0;
    heed_status st = HEED_OK;
    if (!wrap_knows(w, r, done, bytes)) {
        st = w->inner.test(w->inner.user, request, done, bytes, why);
        if (r && *done) {
            r->arrived = 1;
            r->bytes = *bytes;
            *done = 0;
            wrap_knows(w, r, done, bytes);
        }
    }
    w->tests_under_way += !*done && !w->waits;
    return st;
}

static inline heed_status wrap_wait(void *user, heed_request *request, int64_t timeout_ns,
                                    uint32_t *done, size_t *bytes, heed_error *why)
{
    const int64_t start = wrap_now();
    const struct timespec nap = {0, 20000};
    heed_status st;
    ((wrapped *)user)->waits = 1;
    do {
        st = wrap_test(user, request, done, bytes, why);
        if (st == HEED_OK && !*done)
            nanosleep(&nap, NULL);
    } while (st == HEED_OK && !*done && wrap_now() - start < timeout_ns);
    return st;
}

static inline heed_status wrap_cancel(void *user, heed_request *request, heed_error *why)
{
    wrapped *w = user;
    wrap_request *r = wrap_find(w, request);
    const int inner = !r || (!r->is_fake && !r->arrived);
    if (r)
        r->of = NULL;
    return inner ? w->inner.cancel(w->inner.user, request, why) : HEED_OK;
}

/* Puts w around a transport. */
static inline void wrap(wrapped *w, heed_transport *transport)
{
    w->inner = *transport;
    transport->user = w;
    transport->send = wrap_send;
    transport->receive = wrap_receive;
    transport->test = wrap_test;
    transport->wait = wrap_wait;
    transport->cancel = wrap_cancel;
}

#endif
