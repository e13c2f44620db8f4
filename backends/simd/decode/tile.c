/* A tile of decode, of one kv head or of several, in either pass. Compiled for the baseline CPU. */
#include "../simd.h"

static heed_status run_head(const heed_simd_decode *by, const heed_simd_tuning *tuning,
                            const heed_problem *problem, heed_tile *tile, void *scratch)
{
    if (!(tile->flags & HEED_TILE_OUTPUTS))
        return by->head(tuning, problem, tile, scratch);
    heed_status st = by->pairs(tuning, problem, tile, scratch);
    return st == HEED_OK ? by->weights(tuning, problem, tile, scratch) : st;
}

heed_status heed_simd_run_decode(const heed_simd_decode *by, const heed_simd_tuning *tuning,
                                 const heed_problem *problem, heed_tile *tile, void *scratch)
{
    if (tile->kv_heads == 1)
        return run_head(by, tuning, problem, tile, scratch);
    heed_status st = by->heads(tuning, problem, tile, scratch);
    if (st != HEED_ERR_UNSUPPORTED)
        return st;
    st = HEED_OK;
    for (uint32_t g = 0; g < tile->kv_heads && st == HEED_OK; g++) {
        heed_tile one;
        heed_tile_of_head(problem, tile, g, &one);
        st = run_head(by, tuning, problem, &one, scratch);
    }
    return st;
}
