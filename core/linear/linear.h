/* A linear layer: its description, kernel and packed weights; and a run of it. heed_mha, which runs
 * several operations in one workspace, begins runs through heed_linear_operation. */
#ifndef HEED_CORE_LINEAR_H
#define HEED_CORE_LINEAR_H

#include "runtime/run.h"
#include "runtime/select.h"

struct heed_linear {
    atomic_uint refs;
    uint32_t panels; /* of panel_cols outputs; the last may be partial */
    heed_context *context;
    const heed_kernel *kernel;
    heed_passed *passed; /* kernels chosen before it that could not be had */
    heed_linear_problem problem;
    heed_linear_tiling tiling;
    void *state;              /* the kernel's */
    size_t bytes, part_bytes; /* of the memory below; of one part's area in a workspace */
    const float *bias;        /* [panels * panel_cols], behind the panels; NULL: none */
    char *packed;             /* the panels */
};

/* At the start of a run's workspace; the areas of the parts follow. */
typedef struct heed_linear_run_state {
    heed_run_head head;
    const heed_linear *linear;
    heed_linear_args args;
    int64_t tile_rows, row_tiles, col_tiles;
    char *parts;
    char apart_1[64]; /* a workspace is aligned to 64 bytes; the counter has its lines to itself */
    atomic_llong next_tile;
    char apart_2[120];
} heed_linear_run_state;

/* Checks that a description is consistent, and writes the problem that it describes. */
heed_status heed_linear_validate_desc(const heed_linear_desc *desc, heed_linear_problem *problem,
                                      heed_error *why);

/* Checks that weight and bias are there as the description says, and how far their
 * strides reach. */
heed_status heed_linear_validate_weights(const heed_linear_desc *desc,
                                         const heed_const_view *weight, const heed_const_view *bias,
                                         heed_error *why);

/* Checks that the args fit the layer: rows, presence, reach of strides. */
heed_status heed_linear_validate_args(const heed_linear *linear, const heed_linear_args *args,
                                      heed_error *why);

/* The name of a member of a kernel's tiling that core cannot work with; NULL: none. */
const char *heed_linear_tiling_flaw(const heed_linear_tiling *tiling);

/* Writes the panels, by the context's threads or executor, and the bias behind them. The layer has its kernel,
 * tiling and memory; must not be called in the library's floating-point environment. */
heed_status heed_linear_pack(heed_linear *linear, const heed_linear_desc *desc,
                             const heed_const_view *weight, const heed_const_view *bias,
                             heed_error *why);

/* A layer's heed_operation.parts. */
uint32_t heed_linear_workspace_parts(const void *of, size_t bytes, uint32_t limit);

/* A layer's heed_operation.begin: checks and copies the args and cuts the tiles. */
heed_status heed_linear_schedule(const void *of, const void *args, uint32_t n_parts,
                                 void *workspace, heed_error *why);

/* A layer's heed_operation.part. `part` says which scratch area is used. */
void heed_linear_take(heed_run_head *head, uint32_t part);

extern const heed_operation heed_linear_operation;

#endif
