/* The context: threads, memory, messages, backends, cached plans and a spare workspace. */
#ifndef HEED_CORE_CONTEXT_H
#define HEED_CORE_CONTEXT_H

#include <heed/backend.h>
#include <heed/heed.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/cpu.h"
#include "cache.h"
#include "registry.h"

enum { HEED_VERBOSE_PLAN = 1, HEED_VERBOSE_RUN = 2 };

struct heed_context {
    atomic_uint refs;          /* one per hold of the caller's and one per hold on a plan */
    heed_context_options user; /* strings replaced by our copies, executor by a pointer below */
    heed_executor executor;
    uint32_t n_threads, verbose;
    int workers_sleep;      /* do OpenMP's workers sleep between two regions? */
    int wanted_by_variable; /* `wanted` comes from HEED_BACKEND */
    char *wanted;           /* the permitted backends, in order; NULL: all, by cost */
    heed_cpu cpu;
    heed_registry registry;
    heed_cache plans;
    pthread_mutex_t lock;       /* registry and changes of the plan cache; taken by fork.h */
    const void *holder;         /* the thread that has the lock, by its name in fork.c */
    heed_context *next, **link; /* in fork.c's list of contexts */
    _Atomic(void *) workspace;  /* one that nobody uses: spare.h */
};

void heed_context_hold(heed_context *context);

/* Memory by the caller's functions, or by the C library where he gave none; align is a power of
 * two. NULL when there is none. For memory that is aligned to HEED_HUGE_PAGE we ask the system for
 * huge pages: with them a stream of weights from memory was a quarter faster on a Zen 4. */
#define HEED_HUGE_PAGE ((size_t)1 << 21)
void *heed_alloc(heed_context *context, size_t bytes, size_t align);
void heed_free(heed_context *context, void *p, size_t bytes);

/* Writes a line to the log callback or to stderr. For what the user asked for by HEED_VERBOSE. */
HEED_PRINTF(3, 4)
void heed_log(heed_context *context, int32_t level, const char *format, ...);

#endif
