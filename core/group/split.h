/* The scheme for keys that are spread over the ranks: each rank's partial results of all rows
 * travel and are merged. Every rank has all rows, or rows travel first (travel.h). */
#ifndef HEED_CORE_SPLIT_H
#define HEED_CORE_SPLIT_H

#include "local.h"
#include "travel.h"

typedef struct heed_split {
    heed_piece piece;
    int64_t first_token;           /* of packed q, out and lse: the first row that the call has */
    float *out, *lse;              /* [own parts with keys, tokens, heads, v_dim]; without v_dim */
    heed_const_view *parts, *lses; /* what is merged */
    char **send, **receive, **result; /* [size] messages with their headers */
    char **notice;                    /* [size] of failures of other ranks at the end */
    heed_travel travel;
    heed_wire wire;
} heed_split;

/* The description for the plan of its local runs. */
heed_attn_desc heed_split_desc(const heed_shape *shape);

/* The rank that may be listening to this one, as in heed_wire.listener. */
uint32_t heed_split_listener(const heed_shape *shape);

/* Places what a call needs for sequences of at most q_len rows. Returns its bytes,
 * 0 on overflow. */
size_t heed_split_place(heed_split *split, const heed_shape *shape, int64_t q_len, void *workspace);

/* Runs it in such a workspace, behind which `bytes` bytes at `rest` are for local runs. */
heed_status heed_split_run(heed_split *split, const heed_group_call *call, void *rest,
                           size_t bytes);

#endif
