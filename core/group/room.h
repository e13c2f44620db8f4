/* Pieces of a workspace, one behind the other: the same code counts their bytes and places them. */
#ifndef HEED_CORE_ROOM_H
#define HEED_CORE_ROOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/checked.h"

typedef struct heed_room {
    char *base; /* NULL: only counts */
    size_t used;
    int bad; /* it overflowed */
} heed_room;

/* n things of so many bytes, aligned to 64; NULL while counting. */
static inline void *heed_room_take(heed_room *room, int64_t n, size_t bytes)
{
    const size_t at = room->used;
    room->bad |= heed_mul_size((size_t)n, bytes, &bytes);
    room->bad |= heed_round_size(bytes, 64, &bytes);
    room->bad |= heed_add_size(room->used, bytes, &room->used);
    return room->base && !room->bad ? room->base + at : NULL;
}

#endif
