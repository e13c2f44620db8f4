/* Running what was scheduled: parts, OpenMP, the caller's executor. */
#ifndef HEED_CORE_EXECUTE_H
#define HEED_CORE_EXECUTE_H

#include "workspace.h"

/* Takes tiles until none are left. `part` names scratch. The first error of any part is returned by
 * all that end later. */
heed_status heed_execute_part(heed_run *run, uint32_t part);

/* Runs everything on up to run->n_parts threads: the executor's if there is one, else OpenMP's. */
heed_status heed_execute(heed_run *run, const heed_executor *executor);

#endif
