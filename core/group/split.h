/* Keys apart: each rank's partial results of all rows travel and are merged. Rows are everywhere, or travel
 * before. */
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
    char **notice;                    /* [size] of ranks that fail, at last */
    heed_travel travel;
    heed_wire wire;
} heed_split;

/* What the plan of its local runs is made of. */
heed_attn_desc heed_split_desc(const heed_shape *shape);

/* Who may be listening to this rank, as heed_wire has it. */
uint32_t heed_split_listener(const heed_shape *shape);

/* Places what a call needs, of sequences of at most q_len rows; returns its bytes, 0 if that overflows. */
size_t heed_split_place(heed_split *split, const heed_shape *shape, int64_t q_len, void *workspace);

/* Runs it in such a workspace, behind which `bytes` bytes at `rest` are for local runs. */
heed_status heed_split_run(heed_split *split, const heed_group_call *call, void *rest,
                           size_t bytes);

#endif
