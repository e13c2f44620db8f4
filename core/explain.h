/* What was decided and why, for people and for programs. */
#ifndef HEED_CORE_EXPLAIN_H
#define HEED_CORE_EXPLAIN_H

#include "plan.h"

/* As heed_plan_explain and heed_context_backends. */
heed_status heed_explain_plan(const heed_plan *plan, int json, char *text, size_t *bytes,
                              heed_error *why);
heed_status heed_explain_backends(heed_context *context, int json, char *text, size_t *bytes,
                                  heed_error *why);

#endif
