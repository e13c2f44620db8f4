/* The known-answer trial of attention. */
#ifndef HEED_CORE_ATTENTION_TRIAL_H
#define HEED_CORE_ATTENTION_TRIAL_H

#include "runtime/context.h"

/* Runs one tiny problem through the kernel, unless this context has done so already. */
heed_status heed_trial(heed_context *context, heed_kernel *kernel, heed_error *why);

#endif
