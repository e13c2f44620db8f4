/* Keeps a fork from finding things half done. A child has the forking thread alone: a lock
 * that another thread held stays locked in it for ever, and what that thread was changing
 * stays half changed. So a fork waits until no thread is making contexts, plans or layers, and
 * none begins meanwhile. */
#ifndef HEED_CORE_FORK_H
#define HEED_CORE_FORK_H

#include "context.h"

/* True in a child after fork, where the OpenMP runtime must not be entered. */
int heed_after_fork(void);

/* They enclose what a fork waits for, and may be nested. Packing weights and runs are not enclosed,
 * because they change nothing that a child needs. */
void heed_make_begin(void);
void heed_make_end(void);

/* The context's lock, within heed_make_begin and _end. */
void heed_context_lock(heed_context *context);
void heed_context_unlock(heed_context *context);

/* The list of contexts that a child has to put in order. */
void heed_fork_add(heed_context *context);
void heed_fork_remove(heed_context *context);

#endif
