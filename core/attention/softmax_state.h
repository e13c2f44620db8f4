/* Softmax states of one set of rows over disjoint sets of keys. */
#ifndef HEED_CORE_SOFTMAX_STATE_H
#define HEED_CORE_SOFTMAX_STATE_H

#include <heed/backend.h>

/* Reference, sum and unnormalised accumulator of each row. */
typedef struct heed_state {
    float *row_max, *row_sum, *acc;
} heed_state;

/* A state in memory of `rows` rows, at `base`. acc comes first, so that it keeps the alignment. */
static inline heed_state heed_state_at(void *base, int64_t rows, int64_t acc_stride)
{
    float *acc = base;
    return (heed_state){acc + rows * acc_stride, acc + rows * (acc_stride + 1), acc};
}

/* Merges `from` into `into`. A row of `from` that saw nothing of weight changes nothing, unless it saw
 * a v that is not finite: acc is then NaN. */
void heed_state_merge(const heed_state *into, const heed_state *from, int64_t rows, int64_t v_dim,
                      int64_t acc_stride, int log2);

#endif
