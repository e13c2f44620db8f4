/* Rows of q travel from every rank to all that have keys, for split where rows are apart. */
#ifndef HEED_CORE_TRAVEL_H
#define HEED_CORE_TRAVEL_H

#include "local.h"
#include "wire.h"

typedef struct heed_travel {
    char *q; /* [tokens, heads, qk_dim], sequences behind each other; only of a rank with keys */
    char **
        rows; /* [size] messages with headers: each rank's rows as heed_pack_rows makes them */
} heed_travel;

/* Places what it needs; nothing where every rank has all rows. */
void heed_travel_place(heed_travel *travel, const heed_shape *shape, heed_room *room);

/* Does one rank send its rows to another? */
int heed_travels(const heed_shape *shape, uint32_t from, uint32_t to);

/* Sends and receives rows until all are here. Those of this rank may still be under way. */
heed_status heed_travel_run(heed_travel *travel, const heed_group_call *call, heed_wire *wire);

#endif
