/* Which kernel runs a problem of attention. */
#ifndef HEED_CORE_ATTENTION_SELECT_H
#define HEED_CORE_ATTENTION_SELECT_H

#include "runtime/select.h"

enum { HEED_QUERY_CLASSES = HEED_QUERY_MANY + 1 };

/* The lengths at which costs are compared: fixed per query class, never the plan's maxima. */
extern const int64_t heed_class_q_len[HEED_QUERY_CLASSES], heed_class_kv_len[HEED_QUERY_CLASSES];

/* Rows, with all query heads of a kv head, from which on 2 to 16 query rows are HEED_QUERY_SEVERAL: as many as
 * are faster side by side in vectors than one after the other. few: of sequences of few keys. But where
 * ranges or key blocks make them few, the same mask as bytes would have another class, and other bits. */
static inline int64_t heed_several_rows(const heed_attn_desc *desc, int few)
{
    const int fewer = few && !(desc->features & (HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS));
    return !fewer ? 48 : desc->qk_dim <= 64 ? 8 : 16;
}

/* The same in query rows: 2 to 16, or 17 if there are none. */
static inline int64_t heed_several_from(const heed_attn_desc *desc, int few)
{
    const int64_t group = desc->q_heads / desc->kv_heads;
    const int64_t rows = (heed_several_rows(desc, few) + group - 1) / group;
    return rows < 2 ? 2 : rows > 16 ? 17 : rows;
}

/* As heed_choose, for a problem whose query_class is set. few: for sequences of few keys; kernels
 * that serve these alone are asked, too. */
heed_status heed_select(heed_context *context, const heed_problem *problem, int few,
                        const heed_passed *passed, const heed_kernel **chosen,
                        heed_verdicts *verdicts, heed_error *why);

#endif
