/* Runs test problems of linear layers in the ways that the API has. */
#ifndef KIT_LINEAR_RUN_H
#define KIT_LINEAR_RUN_H

#include "case.h"

/** The ways to run. */
enum {
    KIT_LINEAR_BY_WORKSPACE, /* heed_linear_run with a workspace of ours */
    KIT_LINEAR_BY_CONTEXT,   /* with the context's */
    KIT_LINEAR_BY_PARTS,     /* heed_linear_begin, and the parts in turn, the last one first */
    KIT_LINEAR_BY_ONE_PART,  /* the same, but only the last part ever runs */
    KIT_LINEAR_BY_THREADS,   /* a thread for each part */
    KIT_LINEAR_BY_EXECUTOR   /* an executor that runs its pieces in reverse order */
};

typedef struct kit_linear_way {
    int how;
    uint32_t n_parts;
    int garbage; /* byte that fills the workspace before */
} kit_linear_way;

/** Makes the layer and runs it, the weight's memory gone by then. Sentence: of a failure. */
heed_status kit_linear_run(heed_context *context, kit_linear *problem, const kit_linear_way *way,
                           heed_error *sentence);

/** Runs a layer that is made. */
heed_status kit_linear_run_made(const heed_linear *linear, kit_linear *problem,
                                const kit_linear_way *way);

/** Checks y against the oracle, which has been run (kit_linear_solve). */
void kit_linear_check(const kit_linear *problem, kit_outcome *outcome);

/** Runs a case against the oracle in both placements: kit_case.run of plain cases. */
void kit_linear_conform(const kit_env *env, const kit_case *c, kit_outcome *outcome);

#endif
