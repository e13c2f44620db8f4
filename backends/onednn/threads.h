/* One thread for oneDNN: core has spread the work already.
 *
 * oneDNN asks OpenMP for the number of threads when it creates a primitive and when it executes
 * one. That number belongs to the calling thread, so it is set to 1 around those calls and put
 * back. The runtime is the one that oneDNN itself has been bound to, which the dynamic linker finds
 * in the same order for us as for it: linking a second one here could set another runtime's number.
 */
#ifndef HEED_ONEDNN_THREADS_H
#define HEED_ONEDNN_THREADS_H

typedef struct heed_onednn_threads {
    int (*get)(void); /* NULL: oneDNN was built without threads */
    void (*set)(int n);
} heed_onednn_threads;

/* Returns what heed_onednn_many takes. */
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
