/* Attention over some of the keys on this rank: the description of such runs, and one run. */
#ifndef HEED_CORE_LOCAL_H
#define HEED_CORE_LOCAL_H

#include "attention/workspace.h"
#include "crew.h"
#include "room.h"
#include "shape.h"

/* A call on this rank. */
typedef struct heed_group_call {
    heed_shape shape;
    const heed_attn *plan;
    heed_attn *local; /* the plan of its runs */
    heed_attn_args args;
    const heed_transport *transport;
    heed_crew crew;
    heed_error *why;
} heed_group_call;

/* Some rows, the same for all heads, and some consecutive keys of each sequence. Arrays are [batch]
 * and lie in the workspace; they count each sequence's own rows and keys. */
typedef struct heed_piece {
    int32_t *q_lens, *kv_lens;
    int32_t *q_offsets; /* of row 0, counted from the first key; only with positions */
    int32_t *q_starts;  /* NULL: not packed */
    int32_t *kv_starts; /* NULL: not packed */
    int32_t *mask_from; /* only with HEED_HAS_MASK_FROM */
    int32_t *key_at;    /* the first key, counted in the whole sequence */
    int32_t *row_at;    /* the first row, counted in mask, bias and lists */
    int32_t *held_at;   /* the first key, counted in k and v; kv_starts and tables go from there */
    int32_t *ranges;    /* room for a copy; only with HEED_HAS_RANGES */
    heed_const_view q, k, v;
    int k_is_packed; /* k and v were made by heed_pack_keys, and kv_starts count their tokens */
    heed_view out, lse;
    int64_t q_len;
} heed_piece;

/* The description for the plan of such runs. Where rows are apart, `rows` is the most rows of one
 * sequence, `tokens` the rows of all, and for ring `keys` the most keys of one. */
heed_attn_desc heed_local_desc(const heed_shape *shape, int64_t rows, int64_t keys, int64_t tokens);

/* Position of row 0 of sequence b in the whole sequence. */
int64_t heed_local_offset(const heed_group_call *call, int64_t b);

/* Places its arrays, for at most q_len rows of a sequence. */
void heed_piece_take(heed_piece *piece, const heed_shape *shape, int64_t q_len, heed_room *room);

/* Fills in what follows from the lengths, key_at, row_at and held_at. first_row is [batch]: the
 * piece's first row in the whole sequence (NULL: 0). */
heed_status heed_piece_place(const heed_group_call *call, heed_piece *piece,
                             const int32_t *first_row, heed_error *why);

/* Runs it, with as few calls as the views permit. hook: NULL, or called between tiles. */
heed_status heed_piece_run(const heed_group_call *call, const heed_piece *piece,
                           const heed_hook *hook, void *workspace, size_t bytes, heed_error *why);

#endif
