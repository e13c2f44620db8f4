/* What was decided and why, for people and for programs. */
#ifndef HEED_CORE_EXPLAIN_H
#define HEED_CORE_EXPLAIN_H

#include "linear.h"
#include "mha.h"
#include "plan.h"

/* As heed_plan_explain, heed_linear_explain, heed_mha_explain and heed_context_backends. */
heed_status heed_explain_plan(const heed_plan *plan, int json, char *text, size_t *bytes,
                              heed_error *why);
heed_status heed_explain_linear(const heed_linear *linear, int json, char *text, size_t *bytes,
                                heed_error *why);
heed_status heed_explain_mha(const heed_mha *mha, int json, char *text, size_t *bytes,
                             heed_error *why);
heed_status heed_explain_backends(heed_context *context, int json, char *text, size_t *bytes,
                                  heed_error *why);

#endif
