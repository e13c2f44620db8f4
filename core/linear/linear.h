/* A linear layer: its description, backend and packed weights; and a run of it. heed_mha, which
 * runs several operations in one workspace, schedules and executes runs by these calls too. */
#ifndef HEED_CORE_LINEAR_H
#define HEED_CORE_LINEAR_H

#include "runtime/context.h"
#include "runtime/select.h"

struct heed_linear {
    atomic_uint refs;
    uint32_t panels; /* of panel_cols outputs; the last may be partial */
    heed_context *context;
    const heed_backend *backend;
    heed_passed *passed; /* those chosen before it that could not be had */
    heed_linear_problem problem;
    heed_linear_tiling tiling;
    void *state;              /* the backend's */
    size_t bytes, part_bytes; /* of the memory below; of one part's area in a workspace */
    const float *bias;        /* [panels * panel_cols], behind the panels; NULL: none */
    char *packed;             /* the panels */
};

#define HEED_LINEAR_RUN_MAGIC UINT64_C(0x68656564726c6e31) /* a run has been begun here */

/* At the start of its workspace; the part areas follow. */
typedef struct heed_linear_run_state {
    uint64_t magic;
    const heed_linear *linear;
    heed_linear_args args;
    uint32_t n_parts, tile_panels; /* panels of a tile */
    int64_t tile_rows, row_tiles, n_tiles;
    char *parts;
    double estimate;  /* nanoseconds of one core */
    char apart_1[64]; /* a workspace is aligned to 64 bytes; the counter has its lines to itself */
    atomic_llong next_tile;
    char apart_2[120];
    atomic_int status; /* HEED_OK, or of the first error, after its sentence */
    atomic_int error_claimed;
    heed_error error;
} heed_linear_run_state;

/* The description is consistent. Writes the problem that it means. */
heed_status heed_linear_validate_desc(const heed_linear_desc *desc, heed_linear_problem *problem,
                                      heed_error *why);

/* Weight and bias are there, and their strides have a reach. */
heed_status heed_linear_validate_weights(const heed_linear_desc *desc, const heed_view *weight,
                                         const heed_view *bias, heed_error *why);

/* The args fit the layer: rows, presence, reach of strides. */
heed_status heed_linear_validate_args(const heed_linear *linear, const heed_linear_args *args,
                                      heed_error *why);

/* The member of a backend's tiling that core cannot work with; NULL: none. */
const char *heed_linear_tiling_flaw(const heed_linear_tiling *tiling);

/* How many parts a workspace of `bytes` holds; at most `limit`. */
uint32_t heed_linear_workspace_parts(const heed_linear *linear, size_t bytes, uint32_t limit);

/* Checks and copies the args, cuts the tiles, and sets the counters in a workspace for n_parts. */
heed_status heed_linear_schedule(const heed_linear *linear, const heed_linear_args *args,
                                 uint32_t n_parts, void *workspace, heed_linear_run_state **out,
                                 heed_error *why);

/* Takes tiles until none are left. `part` names scratch. The first error of any part is returned by
 * all that end later. */
heed_status heed_linear_execute_part(heed_linear_run_state *run, uint32_t part);

#endif
