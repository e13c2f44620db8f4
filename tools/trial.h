/* The heed command: tries out backends in child processes. */
#ifndef HEED_TOOLS_TRIAL_H
#define HEED_TOOLS_TRIAL_H

#include <heed/heed.h>

enum { HEED_TRIAL_NAME = 32, HEED_TRIAL_MOST = 32 };

/** The result of trying one backend. */
typedef struct heed_trial_result {
    char name[HEED_TRIAL_NAME];
    int passed;
    int faulted;   /* a signal or an exit in it ended the child */
    char why[600]; /* why it did not pass; or else its kernels that failed, or "" */
} heed_trial_result;

/** The machine and its backends as the library describes them, and the results of the trials. */
typedef struct heed_trials {
    char *text, *json; /* of heed_context_backends */
    int n;
    heed_trial_result result[HEED_TRIAL_MOST];
} heed_trials;

/**
 * Lists the backends and tries each, or only the named one, in a child process: makes a plan for it
 * alone, upon which the library checks its known answers, and runs a tiny problem. plugin_path is
 * as in heed_context_options.
 *
 * Returns an exit status, after a line on stderr if it is not 0. Free with heed_trials_free.
 */
int heed_trials_run(const char *only, const char *plugin_path, heed_trials *trials);

void heed_trials_free(heed_trials *trials);

#endif
