/* Runs the parts of a begun workspace. See ways.h. */
#include "ways.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct part_thread {
    pthread_t thread;
    heed_status (*run_part)(void *workspace, uint32_t part);
    void *workspace;
    uint32_t part;
    heed_status status;
    int started;
} part_thread;

static void *run(void *arg)
{
    part_thread *part = arg;
    part->status = part->run_part(part->workspace, part->part);
    return NULL;
}

heed_status kit_run_parts(int how, uint32_t n_parts, void *workspace,
                          heed_status (*run_part)(void *workspace, uint32_t part))
{
    part_thread *part = calloc(n_parts, sizeof *part);
    heed_status status = HEED_OK;
    if (!part)
        return HEED_ERR_NOMEM;
    if (run_part(workspace, n_parts) != HEED_ERR_INVALID)
        status = HEED_ERR_BACKEND; /* there is no such part */
    for (uint32_t i = n_parts; i-- > 0;) {
        part[i].run_part = run_part;
        part[i].workspace = workspace;
        part[i].part = i;
        if (how == KIT_BY_THREADS)
            part[i].started = pthread_create(&part[i].thread, NULL, run, &part[i]) == 0;
        else if (how == KIT_BY_PARTS || i == n_parts - 1)
            run(&part[i]);
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        if (part[i].started)
            pthread_join(part[i].thread, NULL);
        if (part[i].status != HEED_OK)
            status = part[i].status;
    }
    free(part);
    return status;
}

void kit_backwards(void *user, uint32_t n, void (*body)(void *arg, uint32_t i), void *arg)
{
    (void)user;
    while (n > 0)
        body(arg, --n);
}
