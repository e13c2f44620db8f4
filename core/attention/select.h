/* Which kernel runs a problem of attention. */
#ifndef HEED_CORE_ATTENTION_SELECT_H
#define HEED_CORE_ATTENTION_SELECT_H

#include "runtime/select.h"

/* The lengths at which costs are compared: fixed per query class, never the plan's maxima. */
extern const int64_t heed_class_q_len[3], heed_class_kv_len[3];

/* As heed_choose, for a problem whose query_class is set. few: for sequences of few keys; kernels
 * that serve these alone are asked, too. */
heed_status heed_select(heed_context *context, const heed_problem *problem, int few,
                        const heed_passed *passed, const heed_kernel **chosen,
                        heed_verdicts *verdicts, heed_error *why);

#endif
