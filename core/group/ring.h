/* Rows and keys apart: keys travel from rank to rank while those at hand are computed. */
#ifndef HEED_CORE_RING_H
#define HEED_CORE_RING_H

#include "local.h"
#include "room.h"
#include "wire.h"

typedef struct heed_ring {
    heed_piece piece;
    int32_t *first_row;         /* [batch] of the rows' stretch, in the whole sequence */
    char *keys[2];              /* messages with their headers: at hand, and arriving */
    char *notice;               /* of the next rank, which sends nothing else */
    char *q; /* [tokens, heads, qk_dim], where the caller's rows are not packed */
    float *out, *lse;           /* [tokens, heads, v_dim] of all keys so far; without v_dim */
    float *part_out, *part_lse; /* the same of those at hand */
    unsigned char *begun;       /* [n_parts] of a stretch of rows: it has met keys */
    heed_wire wire;
} heed_ring;

/* What the plan of its local runs is made of. */
heed_attn_desc heed_ring_desc(const heed_shape *shape);

/* As of split. */
size_t heed_ring_place(heed_ring *ring, const heed_shape *shape, void *workspace);
heed_status heed_ring_run(heed_ring *ring, const heed_group_call *call, void *rest, size_t bytes);

#endif
