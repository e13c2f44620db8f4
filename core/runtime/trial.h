/* Known-answer trials: a machine that lies about its features is caught by a reason instead of wrong
 * numbers. */
#ifndef HEED_CORE_TRIAL_H
#define HEED_CORE_TRIAL_H

#include "context.h"

/* Of a kernel for whose wishes there was no memory, or that had none itself: refused for now, and
 * tried again another time. `why` says what was missing. */
#define HEED_TRIAL_STARVED HEED_ERR_BACKEND

/* Tries a kernel unless that was done, and keeps what came of it. Where `run` returns HEED_ERR_NOMEM
 * with a sentence, it is the kernel that is starved; without one it is core. */
heed_status heed_trial_once(heed_context *context, heed_kernel *kernel,
                            heed_status (*run)(heed_context *context, const heed_kernel *kernel,
                                               heed_error *why),
                            heed_error *why);

#endif
