/* The members of the oneDNN backend for linear layers. */
#ifndef HEED_ONEDNN_LINEAR_H
#define HEED_ONEDNN_LINEAR_H

#include "onednn.h"

heed_status heed_onednn_linear_supports(const heed_linear_problem *problem, heed_error *why);
double heed_onednn_linear_cost(const heed_linear_problem *problem, int64_t rows);
heed_status heed_onednn_linear_tiling(const heed_linear_problem *problem, heed_linear_tiling *out);
heed_status heed_onednn_linear_pack(const heed_linear_problem *problem,
                                    const heed_linear_weight *weight, int64_t col_first,
                                    int64_t col_end, void *panel);
heed_status heed_onednn_linear_plan_create(const heed_linear_problem *problem, void **state);
void heed_onednn_linear_plan_destroy(void *state);
heed_status heed_onednn_linear_tile(const heed_linear_problem *problem,
                                    const heed_linear_tile *tile, void *scratch);

#endif
