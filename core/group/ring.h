/* The scheme for rows and keys that are both spread over the ranks: keys travel from rank to rank
 * while rows meet those at hand. */
#ifndef HEED_CORE_RING_H
#define HEED_CORE_RING_H

#include "local.h"
#include "wire.h"

typedef struct heed_ring {
    heed_piece piece;
    int32_t *first_row;         /* [batch] of the rows' stretch, in the whole sequence */
    char *keys[2];              /* messages with their headers: at hand, and arriving */
    char *notice;               /* of a failure of the next rank, which sends nothing else */
    char *q; /* [tokens, heads, qk_dim], where the caller's rows are not packed */
    float *out, *lse;           /* [tokens, heads, v_dim] of all keys so far; without v_dim */
    float *part_out, *part_lse; /* the same of those at hand */
    unsigned char *begun;       /* [n_parts] has the stretch of rows met keys? */
    heed_wire wire;
} heed_ring;

/* The description for the plan of its local runs. */
heed_attn_desc heed_ring_desc(const heed_shape *shape);

/* As heed_split_place and heed_split_run. */
size_t heed_ring_place(heed_ring *ring, const heed_shape *shape, void *workspace);
heed_status heed_ring_run(heed_ring *ring, const heed_group_call *call, void *rest, size_t bytes);

#endif
