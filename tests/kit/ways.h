/* The ways to run that all operations have, and what they need: the parts of a begun workspace, and
 * an executor. */
#ifndef KIT_WAYS_H
#define KIT_WAYS_H

#include <heed/heed.h>

enum {
    KIT_BY_WORKSPACE, /* the run call with a workspace of ours */
    KIT_BY_CONTEXT,   /* the run call with the context's workspace */
    KIT_BY_CALL,      /* heed_attention */
    KIT_BY_PARTS,     /* begin, and the parts one after another, the last one first */
    KIT_BY_ONE_PART,  /* the same, but only the last part ever runs */
    KIT_BY_THREADS,   /* a thread for each part */
    KIT_BY_EXECUTOR   /* an executor that runs its pieces in reverse order */
};

/** Runs the parts of what was begun: KIT_BY_PARTS, _ONE_PART or _THREADS. A part's failure is
 * returned. */
heed_status kit_run_parts(int how, uint32_t n_parts, void *workspace,
                          heed_status (*run_part)(void *workspace, uint32_t part));

/** An executor's parallel_for: on the calling thread, in reverse order. */
void kit_backwards(void *user, uint32_t n, void (*body)(void *arg, uint32_t i), void *arg);

#endif
