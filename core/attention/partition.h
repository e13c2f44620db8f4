/* How one sequence is cut into tiles: some kv heads x run of query rows x chunk of keys. How rows
 * and keys are cut depends on the sequence's own problem alone, because the cuts decide the order
 * of every sum. */
#ifndef HEED_CORE_PARTITION_H
#define HEED_CORE_PARTITION_H

#include "plan.h"

/* One sequence of a call. Tiles are numbered by kv heads, then run (last rows first: with a
 * causal mask they are the heavy ones), then chunk. A row group is all tiles with the same
 * kv heads and run. */
typedef struct heed_sequence {
    int64_t first_tile; /* among the tiles of the call */
    int64_t q_offset;
    int32_t q_len, kv_len;
    int32_t q_start, kv_start; /* first packed row; 0 unless packed */
    int32_t key_first, key_end; /* keys that ranges reach; without ranges all */
    uint32_t class_index;      /* in the plan */
    uint32_t n_runs, n_chunks; /* per kv head; per row group */
    uint32_t kv_heads;         /* of a tile; the last ones may have fewer */
    uint32_t first_chunk;      /* the chunks hold keys from first_chunk * key_chunk on */
    int64_t first_group;       /* among those groups of the call that have more than one chunk */
} heed_sequence;

typedef struct heed_span {
    int64_t first, end; /* empty if first >= end */
} heed_span;

typedef struct heed_place {
    int64_t head; /* the first kv head */
    uint32_t run, chunk;
} heed_place;

/* Where the tile of this number lies in its sequence. */
heed_place heed_tile_place(const heed_sequence *s, int64_t tile);

/* Fills in everything but the numbers of its first tile and group, and kv_heads, from q_len, kv_len,
 * q_offset, key_first and key_end. */
void heed_partition_sequence(const heed_attn *plan, heed_sequence *s);

/* Query rows of a run. */
heed_span heed_run_rows(const heed_attn *plan, const heed_sequence *s, uint32_t run);

/* Keys that some row of [rows.first, rows.end) sees by length, causality and window, as far as the
 * ranges of the sequence reach. */
heed_span heed_visible_keys(const heed_attn *plan, const heed_sequence *s, heed_span rows);

/* The part of `keys` that lies in chunk `chunk` (counted from the sequence's first one). */
heed_span heed_chunk_keys(const heed_attn *plan, const heed_sequence *s, heed_span keys,
                          uint32_t chunk);

/* Levels of the binary tree in which the chunks first to last are merged. At each level two
 * neighbours are merged. Which ones depends on their absolute positions and on nothing else. */
static inline uint32_t heed_tree_levels(uint32_t first_chunk, uint32_t last_chunk)
{
    uint32_t levels = 0;
    while ((first_chunk ^ last_chunk) >> levels)
        levels++;
    return levels;
}

#endif
