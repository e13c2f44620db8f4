/* Runs test problems of linear layers in the ways that the API has. */
#ifndef KIT_LINEAR_RUN_H
#define KIT_LINEAR_RUN_H

#include "case.h"
#include "ways.h"

typedef struct kit_linear_way {
    int how; /* KIT_BY_*, but for KIT_BY_CALL */
    uint32_t n_parts;
    int garbage; /* byte that fills the workspace before */
} kit_linear_way;

/** Creates the layer, takes the weight's memory away and runs it. *sentence is a failure's. */
heed_status kit_linear_run(heed_context *context, kit_linear *problem, const kit_linear_way *way,
                           heed_error *sentence);

/** Runs a layer that has been created. */
heed_status kit_linear_run_made(const heed_linear *linear, kit_linear *problem,
                                const kit_linear_way *way);

/** Returns whether rows [first, first + part->spec.rows) of `all` have other bits than those of
 * `part`, after both have run, and then says where. */
int kit_linear_differ(const char *what, const kit_linear *all, int64_t first,
                      const kit_linear *part, kit_outcome *outcome);

/** Checks y against the oracle, which has been run (kit_linear_solve). */
void kit_linear_check(const kit_linear *problem, kit_outcome *outcome);

/** Runs a case against the oracle in both placements: kit_case.run of plain cases. */
void kit_linear_conform(const kit_env *env, const kit_case *c, kit_outcome *outcome);

#endif
