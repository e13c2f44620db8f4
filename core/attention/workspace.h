/* The workspace of a run, from its start:
 *
 *     heed_attn_run_state      the head of every run, a copy of the args, counters
 *     heed_sequence[batch]     the schedule
 *     heed_lease[groups]       row groups whose keys are cut: where their states lie
 *     heed_lease[units]        sequence x kv head: where their prepared keys and values lie
 *     mask summaries           of runs of query rows, for the kv heads that share a mask
 *     seams                    n (parts) times seams_per_part, lent to open row groups
 *     states                   n times states_per_part, lent to chunks
 *     marks                    n times marks_per_part: which seams and states are lent
 *     prepared data            n times prepared_per_part, lent to open units
 *     part areas               n: scratch, one tile's state, a mask summary
 */
#ifndef HEED_CORE_WORKSPACE_H
#define HEED_CORE_WORKSPACE_H

#include "partition.h"
#include "runtime/run.h"

/* Which piece of a pool a row group or unit has while it is open, and how many of its tiles are
 * done. All tiles of a group are taken before any of a much later one, so few are open at once and
 * pieces can be lent. */
typedef struct heed_lease {
    atomic_uint piece_plus_1; /* 0: none yet */
    atomic_uint done;         /* tiles; counted for units alone */
} heed_lease;

/* Equal pieces of memory that are lent: lease.h. */
typedef struct heed_pool {
    char *base;
    size_t stride;
    atomic_uchar *taken; /* of each piece */
    uint32_t n, share;   /* pieces; those of a part, where it looks first */
} heed_pool;

typedef struct heed_attn_run_state {
    heed_run_head head;
    const heed_attn *plan;
    heed_attn_args args;
    heed_sequence *sequence;
    heed_lease *group, *unit;
    heed_pool seams, states, units;
    size_t unit_blocks, unit_data; /* of a unit: key blocks at most; where their data starts */
    char *parts;
    atomic_uchar *mask_state; /* HEED_RAW to HEED_READY_SEEN of each row of the table */
    uint8_t *mask_table;
    uint64_t *mask_bits;
    char apart_1[64]; /* a workspace is aligned to 64 bytes; the counter has its lines to itself */
    atomic_llong next_tile;
    char apart_2[120];
} heed_attn_run_state;

extern const heed_operation heed_attn_operation;

/* States of what all parts use and the first part to come makes. A part that finds it busy makes
 * its own. */
enum { HEED_RAW, HEED_BUSY, HEED_READY, HEED_READY_SEEN /* and with bits, of a mask */ };

/* Computes plan->layout. */
heed_status heed_workspace_layout(heed_attn *plan, heed_error *why);

/* A plan's heed_operation.bytes and .parts. */
size_t heed_workspace_bytes(const void *of, uint32_t n_parts);
uint32_t heed_workspace_parts(const void *of, size_t bytes, uint32_t limit);

/* Points the run's members at their places in the memory that starts with it. */
void heed_workspace_place(heed_attn_run_state *run, const heed_attn *plan, uint32_t n_parts);

/* How many kv heads, 1 to `most`, a tile may have so that there is room for its state, if a kv head
 * has at most `rows` state rows. chunk_rows: the same for tiles whose keys are cut (0: there are
 * none), whose states are merged in at most `levels` levels. */
uint32_t heed_workspace_heads(const heed_layout *layout, int64_t rows, int64_t chunk_rows,
                              uint32_t levels, uint32_t most);

/* Cuts the run's room for states into pieces for tiles of at most `rows` state rows whose chunks
 * are merged in at most `levels` levels. */
void heed_workspace_cut(heed_attn_run_state *run, int64_t rows, uint32_t levels);

/* Cuts the run's room for prepared data into pieces for at most `blocks` key blocks of altogether
 * `bytes`. */
void heed_workspace_cut_units(heed_attn_run_state *run, int64_t blocks, size_t bytes);

#endif
