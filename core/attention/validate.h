/* Checks what the user wrote, and turns it into what can be relied on. */
#ifndef HEED_CORE_VALIDATE_H
#define HEED_CORE_VALIDATE_H

#include <heed/backend.h>

/* Checks that a description is consistent. Writes the problem that it describes, with query_class
 * 0: scale and accuracy are resolved, and features that their values switch off are dropped. */
heed_status heed_validate_desc(const heed_attn_desc *desc, heed_problem *problem, heed_error *why);

/* Checks that there can be a plan for the args' sizes. */
heed_status heed_validate_sizes(const heed_attn_args *args, heed_error *why);

/* Checks that the args fit the plan: sizes, presence, reach of strides. Lengths are checked in
 * schedule.c. The strides of axes of one element, and all strides of tensors of none, may be
 * anything: they become 1 for dim and 0 for other axes, so that no product with them overflows. */
heed_status heed_validate_args(const heed_attn_desc *desc, heed_attn_args *args, heed_error *why);

#endif
