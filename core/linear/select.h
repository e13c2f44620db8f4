/* Which kernel runs a linear layer. */
#ifndef HEED_CORE_LINEAR_SELECT_H
#define HEED_CORE_LINEAR_SELECT_H

#include "runtime/select.h"

/* The rows at which the costs of linear layers are compared. One kernel serves every call, because
 * the bits of a row may not depend on how many there are. */
#define HEED_LINEAR_COST_ROWS 128

/* As heed_choose. */
heed_status heed_select_linear(heed_context *context, const heed_linear_problem *problem,
                               const heed_passed *passed, const heed_kernel **chosen,
                               heed_verdicts *verdicts, heed_error *why);

#endif
