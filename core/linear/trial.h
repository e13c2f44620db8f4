/* The known-answer trial of linear layers. */
#ifndef HEED_CORE_LINEAR_TRIAL_H
#define HEED_CORE_LINEAR_TRIAL_H

#include "runtime/context.h"

/* Runs one tiny layer through the kernel, unless this context has done so already. */
heed_status heed_linear_trial(heed_context *context, heed_kernel *kernel, heed_error *why);

#endif
