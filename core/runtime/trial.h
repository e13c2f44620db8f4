/* Known-answer trials: on a machine that lies about its features a kernel is refused with a reason
 * instead of giving wrong numbers. */
#ifndef HEED_CORE_TRIAL_H
#define HEED_CORE_TRIAL_H

#include "context.h"

/* The status of a trial for which there was no memory, be it what core allocates for the kernel or
 * what the kernel allocates itself. The kernel is refused for now and tried again the next time.
 * `why` says what was missing. */
#define HEED_TRIAL_STARVED HEED_ERR_BACKEND

/* Tries a kernel unless that was done, and keeps the result. If `run` returns HEED_ERR_NOMEM with a
 * sentence, the status is HEED_TRIAL_STARVED; without one core had no memory for the trial, and the
 * status is HEED_ERR_NOMEM. */
heed_status heed_trial_once(heed_context *context, heed_kernel *kernel,
                            heed_status (*run)(heed_context *context, const heed_kernel *kernel,
                                               heed_error *why),
                            heed_error *why);

#endif
