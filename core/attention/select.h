/* Which kernel runs a problem of attention. */
#ifndef HEED_CORE_ATTENTION_SELECT_H
#define HEED_CORE_ATTENTION_SELECT_H

#include "runtime/select.h"

enum { HEED_QUERY_CLASSES = HEED_QUERY_MANY + 1 };

/* The lengths at which costs are compared: fixed per query class, never the plan's maxima. */
extern const int64_t heed_class_q_len[HEED_QUERY_CLASSES], heed_class_kv_len[HEED_QUERY_CLASSES];

/* The fewest query rows of a sequence that is HEED_QUERY_SEVERAL: 2 to 16, or 17 if none is. group: query
 * heads per kv head; few: of sequences of few keys. What one row leaves of a vector's or panel's lanes
 * the others use: these are the rows from which on that is faster than going over them one by one. */
static inline int64_t heed_several_from(uint32_t group, uint32_t qk_dim, int few)
{
    const int64_t all = !few ? 48 : qk_dim <= 64 ? 8 : 16, rows = (all + group - 1) / group;
    return rows < 2 ? 2 : rows > 16 ? 17 : rows;
}

/* As heed_choose, for a problem whose query_class is set. few: for sequences of few keys; kernels
 * that serve these alone are asked, too. */
heed_status heed_select(heed_context *context, const heed_problem *problem, int few,
                        const heed_passed *passed, const heed_kernel **chosen,
                        heed_verdicts *verdicts, heed_error *why);

#endif
