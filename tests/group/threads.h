/* All ranks of a case as threads, each with a context of its own. */
#ifndef GROUP_THREADS_H
#define GROUP_THREADS_H

#include "ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct rank_thread {
    pthread_t thread;
    rank_call call;
    ranks_case *c;
    heed_context *context;
    heed_transport transport;
    int how;
} rank_thread;

static inline void *rank_thread_run(void *of)
{
    rank_thread *t = of;
    rank_run(&t->call, t->c, t->context, &t->transport, t->how);
    return NULL;
}

static inline heed_context *threads_context(const char *backends, uint32_t n_threads)
{
    heed_context_options options = {
        .struct_size = sizeof options, .backends = backends, .n_threads = n_threads};
    heed_context *context = NULL;
    if (heed_context_create(&options, &context) != HEED_OK) {
        printf("no context: %s\n", heed_last_error());
        exit(1);
    }
    return context;
}

/* Runs the ranks of c on threads of a group. `wrap`, if not NULL, may replace their transports.
 * Statuses are left in t[].call. Returns 0, or -1 when out of memory. */
static inline int threads_run_in(heed_group_threads *group, ranks_case *c, rank_thread *t,
                                 heed_context *const *context, int how,
                                 void (*wrap)(heed_transport *transport, void *user), void *user)
{
    int bad = 0;
    for (uint32_t r = 0; r < c->size; r++) {
        t[r].c = c;
        t[r].context = context[r];
        t[r].how = how;
        bad |= rank_make(&t[r].call, c, r) != 0;
        t[r].transport.struct_size = sizeof t[r].transport;
        bad |= heed_group_threads_transport(group, r, &t[r].transport) != HEED_OK;
        if (wrap)
            wrap(&t[r].transport, user);
    }
    for (uint32_t r = 0; r < c->size && !bad; r++)
        if (pthread_create(&t[r].thread, NULL, rank_thread_run, &t[r]) != 0)
            exit(1);
    for (uint32_t r = 0; r < c->size && !bad; r++)
        pthread_join(t[r].thread, NULL);
    return bad ? -1 : 0;
}

/* The same in a group of its own. */
static inline int threads_run(ranks_case *c, rank_thread *t, heed_context *const *context, int how,
                              void (*wrap)(heed_transport *transport, void *user), void *user)
{
    heed_group_threads *group;
    if (heed_group_threads_create(c->size, &group) != HEED_OK)
        return -1;
    const int bad = threads_run_in(group, c, t, context, how, wrap, user);
    heed_group_threads_release(group);
    return bad;
}

static inline void threads_free(ranks_case *c, rank_thread *t)
{
    for (uint32_t r = 0; r < c->size; r++)
        rank_free(&t[r].call);
}

#endif
