/* See travel.h. */
#include "travel.h"

#include <heed/kit.h>

#include "pack.h"

int heed_travels(const heed_shape *s, uint32_t from, uint32_t to)
{
    return from != to && heed_rows_apart(s) && heed_slice_rows(s, from) > 0 && heed_has_keys(s, to);
}

void heed_travel_place(heed_travel *t, const heed_shape *s, heed_room *room)
{
    const int has_keys = heed_has_keys(s, s->rank);
    if (!heed_rows_apart(s))
        return;
    t->q = heed_room_take(room, has_keys, heed_rows_bytes(s->desc, s->tokens * s->desc->q_heads));
    t->rows = heed_room_take(room, s->size, sizeof *t->rows);
    for (uint32_t r = 0; r < s->size; r++) {
        const size_t bytes = heed_rows_bytes(s->desc, heed_slice_rows(s, r));
        char *message = heed_room_take(room, r == s->rank || heed_travels(s, r, s->rank),
                                       heed_wire_room(bytes));
        if (room->base && !room->bad)
            t->rows[r] = message;
    }
}

/* One rank's rows. */
typedef struct arrival {
    const heed_travel *t;
    const heed_shape *shape;
    uint32_t rank;
} arrival;

/* Copies tokens [first, end) of these rows to where their sequences are. */
static void unpack_tokens(void *arg, int64_t first, int64_t end)
{
    const arrival *a = arg;
    const heed_shape *s = a->shape;
    const int64_t heads = s->desc->q_heads;
    const size_t bytes = heed_rows_bytes(s->desc, heads);
    const char *from = a->t->rows[a->rank] + sizeof(heed_wire_header);
    heed_slice w = heed_slice_begin(s, a->rank);
    while (heed_slice_step(s, &w) && w.at < end * heads) {
        const int64_t at = w.at / heads;
        const int64_t low = heed_max64(first, at), high = heed_min64(end, at + w.block.tokens);
        if (low < high)
            memcpy(a->t->q + (size_t)(w.block.token + low - at) * bytes, from + (size_t)low * bytes,
                   (size_t)(high - low) * bytes);
    }
}

heed_status heed_travel_run(heed_travel *t, const heed_group_call *call, heed_wire *w)
{
    const heed_shape *s = &call->shape;
    const int64_t bytes = (int64_t)heed_rows_bytes(s->desc, 1);
    const size_t own = heed_rows_bytes(s->desc, heed_slice_rows(s, s->rank));
    char *rows = t->rows[s->rank];
    for (uint32_t r = 0; r < s->size; r++)
        if (heed_travels(s, r, s->rank))
            heed_wire_receive(w, r, HEED_WIRE_ROWS, 0, t->rows[r],
                              heed_rows_bytes(s->desc, heed_slice_rows(s, r)));
    heed_pack_rows(call, rows + sizeof(heed_wire_header));
    heed_wire_address(w, HEED_WIRE_ROWS, 0, rows, own);
    for (uint32_t n = 1; n < s->size; n++) {
        const uint32_t to = (s->rank + n) % s->size; /* not all to the same one at once */
        if (heed_travels(s, s->rank, to))
            heed_wire_send(w, to, HEED_WIRE_ROWS, 0, rows, own);
    }
    heed_wire_wait(w, 0);
    for (uint32_t r = 0; r < s->size && w->status == HEED_OK && heed_has_keys(s, s->rank); r++) {
        arrival a = {t, s, r};
        heed_crew_do(&call->crew, heed_held(s, s->part.row_first, r),
                     s->desc->q_heads * heed_copy_nanoseconds(bytes), unpack_tokens, &a);
    }
    return w->status;
}
