/* Beginning a run: what is to be done, written into the workspace. */
#ifndef HEED_CORE_SCHEDULE_H
#define HEED_CORE_SCHEDULE_H

#include "workspace.h"

/* Checks the args and their lengths, and writes header and schedule. The workspace has room for
 * n_parts; nothing else is asked of its contents. On failure `why` holds the sentence. */
heed_status heed_schedule(const heed_plan *plan, const heed_attn_args *args, uint32_t n_parts,
                          void *workspace, heed_run **out, heed_error *why);

#endif
