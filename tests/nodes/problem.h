/* For the tests over MPI: problems whose numbers depend on their name alone, as a whole for one
 * process, and cut for a rank of a group. See problem.c. */
#ifndef NODES_PROBLEM_H
#define NODES_PROBLEM_H

#include <heed/formats.h>
#include <heed/group.h>
#include <heed/heed.h>

enum { MOST_BATCH = 3, MOST_PARTS = 24 };

/** A value of spec.ring: rows are distributed, and travel instead of keys. Masks and the like hold
 * all rows on every rank. */
enum { APART = 2 };

typedef struct spec {
    const char *name;
    uint64_t features;
    uint32_t position, q_type, kv_type, out_type;
    int64_t batch, q_len, kv_len; /* of the longest sequence */
    uint32_t q_heads, kv_heads, qk_dim, v_dim;
    uint32_t page_len, ring; /* ring of 1: rows are distributed, keys travel; or APART */
    int64_t window_left, window_right;
} spec;

/** How the keys are cut. */
enum { CUT_EVEN, CUT_UNEVEN, CUT_MANY, CUT_ONE, N_CUTS };

/** The memory of a whole problem, or of the part that a rank holds. Everything is in the order
 * [batch, head, row, dim]; packed sequences follow each other. */
typedef struct memory {
    void *q, *k, *v, *out;
    float *lse, *k_scale, *v_scale;
    unsigned char *mask;
    float *bias;
    int32_t *ranges, *table;
    uint64_t *blocks;
    int32_t q_lens[MOST_BATCH], kv_lens[MOST_BATCH], q_starts[MOST_BATCH], kv_starts[MOST_BATCH];
    int32_t q_offsets[MOST_BATCH];
    float sink[16], slope[16];
    int64_t q_len, kv_len, rows, keys; /* of the longest sequence; of all together */
} memory;

typedef struct problem {
    spec s;
    heed_attn_desc desc;
    memory whole;
} problem;

typedef struct cut {
    heed_partition partition;
    uint32_t owner[MOST_PARTS];
    int32_t key_first[MOST_BATCH * (MOST_PARTS + 1)], row_first[MOST_BATCH * (MOST_PARTS + 1)];
} cut;

/** The number of problems, and problem n. */
int problems(void);
spec problem_spec(int n);

void problem_make(problem *p, const spec *s);
void problem_free(problem *p);

/** The args of the whole problem, or of the part that a rank holds. */
heed_attn_args problem_args(const problem *p, const memory *m);

/** Makes a partition of the given kind for `size` ranks. */
void problem_cut(const problem *p, cut *c, int kind, uint32_t size);

/** Copies the part of the problem that `rank` holds in this partition. */
void problem_local(const problem *p, const cut *c, uint32_t rank, memory *local);
void memory_free(memory *m);

/** The place of row i of sequence b and head h in out and lse, counted in rows. */
int64_t problem_row(const problem *p, const memory *m, int64_t b, int64_t h, int64_t i);

#endif
