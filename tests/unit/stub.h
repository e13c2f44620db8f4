/* Shared by backends of tests that count or make results up instead of computing. */
#ifndef HEED_STUB_H
#define HEED_STUB_H

#include <heed/backend.h>

/* Refuses the shape of core's trial, whose answer is known. */
static inline heed_status stub_supports(const void *machine, const heed_problem *problem,
                                        heed_error *why)
{
    (void)machine;
    return problem->qk_dim == 1 ? HEED_OK : heed_refuse(why, "takes problems of qk_dim 1 alone");
}

static inline double stub_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                               int64_t kv_len)
{
    (void)machine, (void)problem;
    return 1e6 * (double)q_len * (double)kv_len;
}

/* A backend with one kernel, which run_tile runs in tiles that tiling names. */
#define STUB_BACKEND(backend_name, what, takes)                                                    \
    static const heed_attn_kernel stub_kernel = {                                                  \
        .struct_size = sizeof stub_kernel,                                                         \
        .name = backend_name,                                                                      \
        .features = takes,                                                                         \
        .supports = stub_supports,                                                                 \
        .cost = stub_cost,                                                                         \
        .tiling = tiling,                                                                          \
        .run = run_tile,                                                                           \
    };                                                                                             \
    static const heed_attn_kernel *const stub_kernels[] = {&stub_kernel};                          \
    static const heed_backend stub_backend = {                                                     \
        .abi = HEED_BACKEND_ABI,                                                                   \
        .struct_size = sizeof stub_backend,                                                        \
        .name = backend_name,                                                                      \
        .summary = what,                                                                           \
        .attn = stub_kernels,                                                                      \
        .n_attn = 1,                                                                               \
    }

#endif
