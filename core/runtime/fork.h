/* What a fork must not find half done. A child has the forking thread alone: a lock that another one
 * held stays locked in it for ever, and what that one was changing stays as it was. So a fork waits
 * until no thread is making contexts, plans or layers, and none begins meanwhile. */
#ifndef HEED_CORE_FORK_H
#define HEED_CORE_FORK_H

#include "context.h"

/* Before the first context of a process. */
void heed_fork_watch(void);

/* True in a child after fork, where the OpenMP runtime must not be entered. */
int heed_after_fork(void);

/* Around what a fork waits for; may be nested. It is not held while weights are packed, nor during
 * runs: they change nothing that a child needs. */
void heed_make_begin(void);
void heed_make_end(void);

/* The context's lock, within heed_make_begin and _end. */
void heed_context_lock(heed_context *context);
void heed_context_unlock(heed_context *context);

/* The contexts that a child has to look after. */
void heed_fork_add(heed_context *context);
void heed_fork_remove(heed_context *context);

#endif
