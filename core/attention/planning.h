/* Finding or making the plan of a description. */
#ifndef HEED_CORE_PLANNING_H
#define HEED_CORE_PLANNING_H

#include "plan.h"

/* Finds or makes the plan of a description; a hold on it and on the context is the caller's. */
heed_status heed_plan_get(heed_context *context, const heed_attn_desc *desc, heed_attn **out,
                          heed_error *why);

/* Would heed_plan_get find kernels? */
heed_status heed_plan_supported(heed_context *context, const heed_attn_desc *desc, heed_error *why);

/* A maximum for a length: a power of two, so that one that changes from call to call, as that of a
 * growing cache, does not ask for a plan each time. The maxima never change a bit of the results. */
int64_t heed_plan_room(int64_t length);

/* The query classes that a description's maxima permit, as bits 1 << class. */
uint32_t heed_plan_classes(const heed_attn_desc *desc);

#endif
