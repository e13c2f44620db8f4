/* Keeps oneDNN to one thread, since core has spread the work already.
 *
 * oneDNN asks OpenMP for the number of threads when it creates a primitive and when it executes
 * one. That number belongs to the calling thread, so it is set to 1 around those calls and put
 * back. It has to be set in the runtime that oneDNN itself is bound to. The dynamic linker finds
 * that one for us in the same order as for oneDNN; a runtime linked here could be another.
 */
#ifndef HEED_ONEDNN_THREADS_H
#define HEED_ONEDNN_THREADS_H

typedef struct heed_onednn_threads {
    int (*get)(void); /* NULL: oneDNN was built without threads */
    void (*set)(int n);
} heed_onednn_threads;

/* Sets one thread. Returns the number before, which heed_onednn_many takes. */
static inline int heed_onednn_one(const heed_onednn_threads *threads)
{
    int before = threads->get ? threads->get() : 1;
    if (before != 1)
        threads->set(1);
    return before;
}

static inline void heed_onednn_many(const heed_onednn_threads *threads, int before)
{
    if (before != 1)
        threads->set(before);
}

#endif
