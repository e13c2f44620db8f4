/* What all ranks of a call agree on: description, partition and sizes. Who sends how much to whom follows
 * from that alone. */
#ifndef HEED_CORE_SHAPE_H
#define HEED_CORE_SHAPE_H

#include <heed/group.h>

#include "attention/plan.h"

typedef struct heed_shape {
    const heed_attn_desc *desc; /* of the whole problem */
    heed_partition part;        /* scheme resolved */
    int64_t batch;
    /* Rows of one head in a partial result of split, with gaps unless rows are apart. */
    int64_t tokens;
    uint32_t rank, size;
} heed_shape;

/* Rows of a partial result: of `tokens` tokens from `token` on, `heads` heads from `head` on. */
typedef struct heed_block {
    int64_t token, tokens;
    int64_t head, heads;
} heed_block;

/* A walk over the rows that a rank merges, in the order in which they travel. */
typedef struct heed_slice {
    heed_block block;
    int64_t at;        /* rows before the block */
    int64_t next, end; /* of all rows: where the next block begins, and the last one ends */
    /* Where rows are apart, next and end count parts, [batch, n_parts]: */
    uint32_t rank;
    int64_t b, row; /* the block's sequence; its first row among those that the rank has of that */
    int64_t start; /* token of the sequence's first row */
} heed_slice;

/* Has each rank rows of its own? */
static inline int heed_rows_apart(const heed_shape *s)
{
    return s->part.row_first != NULL;
}

/* Does a rank merge rows, given enough tokens, and get a result? */
static inline int heed_merges(const heed_shape *s, uint32_t rank)
{
    return s->part.want != HEED_WANT_ROOT || rank == s->part.root;
}

static inline uint32_t heed_owner(const heed_shape *s, uint32_t part)
{
    return s->part.owner ? s->part.owner[part] : part;
}

/* The first key, or row, of part `part` of sequence b; with part n_parts the length of b. */
static inline int32_t heed_first_of(const heed_shape *s, const int32_t *first, int64_t b,
                                    uint32_t part)
{
    return first[b * (s->part.n_parts + INT64_C(1)) + part];
}

/* Keys, or rows, of sequence b in parts [part, end). */
static inline int32_t heed_parts_len(const heed_shape *s, const int32_t *first, int64_t b,
                                     uint32_t part, uint32_t end)
{
    return heed_first_of(s, first, b, end) - heed_first_of(s, first, b, part);
}

static inline int32_t heed_part_len(const heed_shape *s, const int32_t *first, int64_t b,
                                    uint32_t part)
{
    return heed_parts_len(s, first, b, part, part + 1);
}

/* Keys, or rows, of sequence b that a rank has in its parts before `part` (n_parts: in all). */
int64_t heed_held_before(const heed_shape *s, const int32_t *first, int64_t b, uint32_t rank,
                         uint32_t part);

/* Keys, or rows, that a rank has of all sequences. */
int64_t heed_held(const heed_shape *s, const int32_t *first, uint32_t rank);

/* The longest sequence. */
int64_t heed_longest(const heed_shape *s, const int32_t *first);

/* Has a rank a key? */
int heed_has_keys(const heed_shape *s, uint32_t rank);

/* Is there a key in part `part`? */
int heed_part_has_keys(const heed_shape *s, uint32_t part);

/* The end of a stretch that begins with `part`: consecutive parts of one owner, whose rows and keys
 * follow each other in the sequence and in the owner's memory. */
uint32_t heed_stretch_end(const heed_shape *s, uint32_t part);

/* ---- split ------------------------------------------------------------------------------------
 */

/* Begins a walk; each step goes to the next block, and returns 0 behind the last one. */
heed_slice heed_slice_begin(const heed_shape *s, uint32_t rank);
int heed_slice_step(const heed_shape *s, heed_slice *slice);

/* Rows of the whole walk. */
int64_t heed_slice_rows(const heed_shape *s, uint32_t rank);

/* Bytes of so many rows of q, each of one head, as they travel. */
size_t heed_rows_bytes(const heed_attn_desc *desc, int64_t rows);

/* Bytes behind the header of a message with partial results from one rank for the slice of another:
 * none where it has no keys. */
size_t heed_partial_bytes(const heed_shape *s, uint32_t from, uint32_t to);

/* The same for the merged results of a rank's slice. */
size_t heed_result_bytes(const heed_shape *s, uint32_t rank);

/* ---- ring -------------------------------------------------------------------------------------
 */

/* Bytes of keys and values of so many tokens, as they travel; where values begin. */
size_t heed_keys_bytes(const heed_attn_desc *desc, int64_t tokens);
size_t heed_values_at(const heed_attn_desc *desc, int64_t tokens);

/* ---- counts -----------------------------------------------------------------------------------
 */

/* Are the rows and, where they may travel, the keys so few that no count of their bytes overflows, of a
 * message, of all that a rank sends or of its memory? Asked before any is made. */
int heed_bytes_fit(const heed_shape *s);

/* Counts over all ranks together, where rows are apart. */
typedef struct heed_tally {
    uint32_t with_keys, with_rows; /* ranks that have any */
    int64_t rows;                  /* of all heads */
    uint64_t keys, least_keys;     /* heed_keys_bytes, and of the rank that has fewest */
} heed_tally;

heed_tally heed_tally_of(const heed_shape *s);

/* Counts what the shape's rank sends by its scheme. tally: needed where rows are apart. */
void heed_count(const heed_shape *s, const heed_tally *tally, heed_group_cost *cost);

#endif
