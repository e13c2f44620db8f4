/* A test problem of the kit, cut into ranks: each rank's own memory, its call, and the results of
 * all of them together. The ranks may be threads here or processes elsewhere: a seed makes the same
 * problem everywhere. */
#ifndef GROUP_RANKS_H
#define GROUP_RANKS_H

#include <heed/heed.h>

#include "case.h"
#include "problem.h"

enum { RANKS_MOST = 8, RANKS_PARTS = 24, RANK_MEMORY = 11 };

/** What is computed and how it is cut. */
typedef struct ranks_case {
    char name[80];
    kit_spec spec;
    uint32_t size, scheme, want, root, n_parts, has_owner;
    uint32_t rows_apart; /* each rank has rows of its own, as always with ring */
    uint32_t owner[RANKS_PARTS];
    int32_t key_first[KIT_MAX_BATCH * (RANKS_PARTS + 1)];
    int32_t row_first[KIT_MAX_BATCH * (RANKS_PARTS + 1)];
    kit_problem problem;
    heed_partition partition; /* its arrays are those above */
    double *oracle; /* what the oracle says of the problem, once ranks_check has asked it */
} ranks_case;

/** How many families of problems there are. */
int ranks_families(void);

/** Draws a problem of a family, and a partition. Returns 0, or -1 when out of memory. */
int ranks_draw(ranks_case *c, int family, uint64_t seed);

/** Builds the problem of the spec, and a partition with the scheme, rows_apart, size, n_parts and
 * owner that the caller has written into c; the seed says where it is cut. Returns 0, or -1 when
 * out of memory. */
int ranks_build(ranks_case *c, uint64_t seed);

/** Makes the partition of what the caller has written into c, key_first and row_first included. A
 * problem may be cut in several ways, one after another. */
void ranks_cut(ranks_case *c);

/** A way of computing a small problem, which is the same for each of them except for its rows. */
typedef struct ranks_way {
    const char *name;
    uint32_t scheme, want, root, rows_apart;
} ranks_way;

/** Builds that problem with a part for each of `size` ranks. Returns 0, or -1 when out of
 * memory. */
int ranks_of_way(ranks_case *c, const ranks_way *way, uint32_t size, int64_t q_len);
void ranks_free(ranks_case *c);

/** Where the n-th row (or key) of sequence b that a rank has lies in the whole sequence; -1 behind
 * its last. first: row_first (or key_first). */
int64_t rank_nth(const ranks_case *c, const int32_t *first, uint32_t rank, uint32_t b, int64_t n);

/** Do masks, biases and lists in a rank's args have its own rows alone? With split they have all
 * rows. */
int ranks_own_pairs(const ranks_case *c);

/** The memory, the call and the outcome of one rank. */
typedef struct rank_call {
    heed_attn_desc desc;
    heed_attn_args args;
    guard_buffer memory[RANK_MEMORY]; /* k, v, q, mask, bias, ranges, key blocks, scales */
    guard_buffer out, lse;
    int32_t starts[KIT_MAX_BATCH], q_starts[KIT_MAX_BATCH];
    int32_t *table;
    heed_error why;
    heed_status status;
} rank_call;

/** Builds the memory of a rank. Returns 0, or -1 when out of memory. */
int rank_make(rank_call *r, const ranks_case *c, uint32_t rank);
void rank_free(rank_call *r);

/** Calls heed_group_attention with a workspace of its own, full of garbage and between two unmapped
 * pages (how 0), with the context's (how 1) or with one that is too small (how 2). */
void rank_run(rank_call *r, const ranks_case *c, heed_context *context,
              const heed_transport *transport, int how);

/** A hash of all bytes of a rank's outputs, also of those that it should not have written. */
uint64_t rank_bits(const rank_call *r);

/** Copies the outputs that a rank should have written to those of the problem. Fails if the rank
 * wrote anything else, or if two ranks have different bits of an element. Call it for all ranks in
 * turn. */
void rank_collect(const rank_call *r, ranks_case *c, uint32_t rank, kit_outcome *outcome);

/** Holds the problem's outputs against the oracle, with what merging adds to its tolerance. */
void ranks_check(ranks_case *c, kit_outcome *outcome);

/** After ranks_check: the relative L2 error of out, and the greatest error of lse (0 without it). */
void ranks_errors(const ranks_case *c, double *out, double *lse);

/** A hash of all bits of the problem's outputs. */
uint64_t ranks_bits(const ranks_case *c);

#endif
