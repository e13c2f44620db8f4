/* From what the user wrote to what can be relied on. */
#ifndef HEED_CORE_VALIDATE_H
#define HEED_CORE_VALIDATE_H

#include <heed/backend.h>

/* The description is consistent. Writes the problem that it means, for query class `query_class` 0:
 * scale and accuracy resolved, features that their values switch off dropped. */
heed_status heed_validate_desc(const heed_attn_desc *desc, heed_problem *problem, heed_error *why);

/* The args' sizes are such that there can be a plan for them. */
heed_status heed_validate_sizes(const heed_attn_args *args, heed_error *why);

/* The args fit the plan: sizes, presence, reach of strides. Lengths are another matter (schedule). The
 * strides of axes of one element, or of none, may be anything: they become those of a dense tensor, so that
 * no product with them overflows. */
heed_status heed_validate_args(const heed_attn_desc *desc, heed_attn_args *args, heed_error *why);

#endif
