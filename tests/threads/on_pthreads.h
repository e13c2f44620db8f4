/* An executor's parallel_for that starts a thread for each body; and what threads count. */
#ifndef HEED_ON_PTHREADS_H
#define HEED_ON_PTHREADS_H

#include <heed/heed.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct job {
    pthread_t thread;
    void (*body)(void *arg, uint32_t i);
    void *arg;
    uint32_t index;
} job;

static inline void *run_job(void *arg)
{
    job *j = arg;
    j->body(j->arg, j->index);
    return NULL;
}

static inline void on_pthreads(void *user, uint32_t n, void (*body)(void *arg, uint32_t i),
                               void *arg)
{
    job jobs[16];
    (void)user;
    for (uint32_t i = 0; i < n; i++) {
        jobs[i] = (job){.body = body, .arg = arg, .index = i};
        pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(jobs[i].thread, NULL);
}

static int n_wrong;

static inline void wrong(void)
{
    __atomic_add_fetch(&n_wrong, 1, __ATOMIC_RELAXED);
}

static inline void run_one_part(void *workspace, uint32_t part)
{
    if (heed_run_part(workspace, part) != HEED_OK)
        wrong();
}

#endif
