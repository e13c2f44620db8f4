/* A part's own view of a run: the tile that it is at, and where its operands lie. */
#ifndef HEED_CORE_WORKER_H
#define HEED_CORE_WORKER_H

#include "workspace.h"

/* A tensor of the call, as tiles point at it. */
typedef struct heed_operand {
    heed_rows *rows;                         /* of the tile */
    char *data;                              /* at sequence 0, row 0, head 0 */
    char *bound;                             /* at the bound sequence, head 0 */
    int64_t batch_step, head_step, row_step; /* bytes; from kv head to kv head */
    int64_t column_step;                     /* bytes from key to key of mask and bias; else 0 */
    int kind;                                /* what its rows belong to: worker.c */
} heed_operand;

enum { HEED_MOST_OPERANDS = 11 };

/* What a part keeps while it runs. Between tiles only what changed is rewritten. */
typedef struct heed_worker {
    heed_attn_run_state *run;
    const heed_attn *plan;
    const heed_sequence *sequence; /* of the tile */
    const heed_class_plan *class_plan;
    uint32_t part;
    uint32_t flush;      /* heed_tiling.flush that MXCSR has now */
    char *area;          /* private: scratch, state, mask summary */
    int64_t index;       /* of the sequence in the batch */
    int64_t end_tile;    /* of the sequence */
    int64_t unit;        /* index * kv_heads + first kv head that the tile is bound to; -1: none */
    int64_t last_unit;   /* of the last tile that used the scratch; -1: none */
    int64_t run_of_call; /* index * layout.mask_runs + the run of the tile's rows */
    heed_span run_keys;  /* that some row of the run sees by length, causality and window */
    heed_span keys;      /* and by the ranges of the tile's heads */
    heed_tile tile;
    uint32_t n_operands;
    heed_operand operands[HEED_MOST_OPERANDS];
} heed_worker;

/* Begins a part. */
void heed_worker_start(heed_worker *w, heed_attn_run_state *run, uint32_t part);

/* Binds the sequence of a tile, which comes after the one that is bound. */
void heed_worker_bind_sequence(heed_worker *w, int64_t tile);

/* Points the tile at the kv heads from g on of the bound sequence. */
void heed_worker_bind_heads(heed_worker *w, int64_t g);

/* Sets the tile's rows, and finds the keys that they see. */
void heed_worker_set_run(heed_worker *w, uint32_t run);

/* Cuts the keys of the bound run and heads to those that their ranges reach. */
void heed_worker_find_keys(heed_worker *w);

/* Points the tile's state at the memory at `base`. */
void heed_worker_point_state(heed_worker *w, void *base);

#endif
