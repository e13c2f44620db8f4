/* pthread_atfork. See fork.h.
 *
 * The locks of contexts are taken in any order, because a backend may make plans in a context of
 * its own while it makes one. So a fork takes none of them. Instead it closes a gate in front of
 * them all. A thread counts itself in with the first lock that it takes, and out with the last that
 * it gives back. Inside it never waits at the gate, so it comes out, and when all threads are out
 * all locks are free. `lock` is the innermost of all: no code of a backend or of the caller runs
 * under it.
 *
 * A thread inside may still wait for the forking thread: in a callback, for a lock of the
 * program that is held across the fork, or for the lock of a context in which the forking thread
 * itself is making something. So a fork waits for MOST_SECONDS at most, and not at all if the
 * forking thread is inside. A child then makes do: every lock that the forking thread does not
 * hold is made new, and the plans cached by that context are forgotten (not freed), because one
 * may have been half made. */
#define _GNU_SOURCE
#include "fork.h"

#include "base/clock.h"
#include "base/compiler.h"

#define STEP_NANOSECONDS 100000
#define MOST_SECONDS 2 /* a plan takes some microseconds, a JIT's some milliseconds */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned inside;        /* threads that are making something */
static unsigned forks;         /* waiting or under way; while there are any the gate is closed */
static heed_context *contexts; /* a list */
static atomic_int is_child;
static HEED_THREAD_LOCAL unsigned depth; /* of heed_make_begin; its address names the thread */
static HEED_THREAD_LOCAL int forking;    /* the thread is in a fork, and has `lock` until its end */

static void pause_a_step(void)
{
    const struct timespec step = {0, STEP_NANOSECONDS};
    pthread_mutex_unlock(&lock);
    nanosleep(&step, NULL);
    pthread_mutex_lock(&lock);
}

/* ---- the gate ---------------------------------------------------------------------------------
 */

/* The program's own fork handlers may use the library during a fork, when no other thread can: they
 * pass the gate. */
void heed_make_begin(void)
{
    if (depth++ || forking)
        return;
    pthread_mutex_lock(&lock);
    while (forks)
        pause_a_step();
    inside++;
    pthread_mutex_unlock(&lock);
}

void heed_make_end(void)
{
    if (--depth || forking)
        return;
    pthread_mutex_lock(&lock);
    inside--;
    pthread_mutex_unlock(&lock);
}

void heed_context_lock(heed_context *context)
{
    heed_make_begin();
    pthread_mutex_lock(&context->lock);
    context->holder = &depth;
}

void heed_context_unlock(heed_context *context)
{
    context->holder = NULL;
    pthread_mutex_unlock(&context->lock);
    heed_make_end();
}

/* ---- the contexts -----------------------------------------------------------------------------
 */

void heed_fork_add(heed_context *context)
{
    if (!forking)
        pthread_mutex_lock(&lock);
    context->next = contexts;
    context->link = &contexts;
    if (contexts)
        contexts->link = &context->next;
    contexts = context;
    if (!forking)
        pthread_mutex_unlock(&lock);
}

void heed_fork_remove(heed_context *context)
{
    if (!forking)
        pthread_mutex_lock(&lock); /* link changes with the context before it in the list */
    if (context->link) {           /* else it was never added */
        *context->link = context->next;
        if (context->next)
            context->next->link = context->link;
    }
    if (!forking)
        pthread_mutex_unlock(&lock);
}

/* ---- a fork -----------------------------------------------------------------------------------
 */

static void prepare(void)
{
    pthread_mutex_lock(&lock);
    forks++;
    /* Steps are not counted: on a busy machine one takes many times as long as it asks for. */
    const int64_t end = heed_now() + MOST_SECONDS * INT64_C(1000000000);
    while (!depth && inside && heed_now() < end)
        pause_a_step();
    forking = 1;
}

static void end_fork(void)
{
    forking = 0;
    pthread_mutex_unlock(&lock);
}

static void in_parent(void)
{
    forks--;
    end_fork();
}

static void in_child(void)
{
    const unsigned mine = depth > 0, torn = inside > mine;
    atomic_store(&is_child, 1);
    for (heed_context *c = contexts; c; c = c->next) {
        heed_cache_forked(&c->plans, torn && c->holder != &depth);
        if (torn && c->holder != &depth) {
            pthread_mutex_init(&c->lock, NULL);
            c->holder = NULL;
        }
    }
    inside = mine;
    forks = 0;
    end_fork();
}

/* At load, not with the first context: that may be a child's, whose parent has used OpenMP. */
HEED_AT_LOAD static void watch(void)
{
    pthread_atfork(prepare, in_parent, in_child);
}

int heed_after_fork(void)
{
    return atomic_load_explicit(&is_child, memory_order_relaxed);
}
