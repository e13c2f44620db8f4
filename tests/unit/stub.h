/* What backends share that count or make things up instead of computing. */
#ifndef HEED_STUB_H
#define HEED_STUB_H

#include <heed/backend.h>

static inline heed_status stub_probe(const heed_cpu *cpu, heed_error *why)
{
    (void)cpu, (void)why;
    return HEED_OK;
}

/* Refuses the shape of core's trial, whose answer is known. */
static inline heed_status stub_supports(const heed_problem *problem, heed_error *why)
{
    return problem->qk_dim == 1 ? HEED_OK : heed_refuse(why, "takes problems of qk_dim 1 alone");
}

static inline double stub_cost(const heed_problem *problem, int64_t q_len, int64_t kv_len)
{
    (void)problem;
    return 1e6 * (double)q_len * (double)kv_len;
}

#endif
