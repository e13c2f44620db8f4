/* Running what was scheduled. */
#ifndef HEED_CORE_EXECUTE_H
#define HEED_CORE_EXECUTE_H

#include "workspace.h"

/* A plan's heed_operation.part. `part` says which part area is used. */
void heed_attn_part(heed_run_head *head, uint32_t part);

#endif
