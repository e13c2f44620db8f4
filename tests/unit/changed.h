/* A copy of a backend's table and of its first kernel of each kind, for a test to change. */
#ifndef HEED_TESTS_UNIT_CHANGED_H
#define HEED_TESTS_UNIT_CHANGED_H

#include <heed/backend.h>

typedef struct changed_backend {
    heed_backend backend;
    heed_attn_kernel attn;
    heed_linear_kernel linear;
    const heed_attn_kernel *attn_list[1];
    const heed_linear_kernel *linear_list[1];
} changed_backend;

/* *to has to stay where it is as long as a context has the backend. */
static inline void change_backend(changed_backend *to, const heed_backend *from, const char *name)
{
    to->backend = *from;
    to->backend.name = name;
    if (from->n_attn)
        to->attn = *from->attn[0];
    if (from->n_linear)
        to->linear = *from->linear[0];
    to->attn_list[0] = &to->attn;
    to->linear_list[0] = &to->linear;
    to->backend.attn = to->attn_list;
    to->backend.linear = to->linear_list;
    to->backend.n_attn = from->n_attn > 0;
    to->backend.n_linear = from->n_linear > 0;
}

#endif
