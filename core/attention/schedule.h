/* Beginning a run: what is to be done, written into the workspace. */
#ifndef HEED_CORE_SCHEDULE_H
#define HEED_CORE_SCHEDULE_H

#include "workspace.h"

/* A plan's heed_operation.begin: checks the args and their lengths, and writes the schedule. */
heed_status heed_attn_schedule(const void *of, const void *args, uint32_t n_parts, void *workspace,
                               heed_error *why);

#endif
