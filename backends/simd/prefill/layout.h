/* How prefill lays out its scratch memory, which decides how many rows and keys it
 * works on at once. */
#ifndef HEED_SIMD_PREFILL_LAYOUT_H
#define HEED_SIMD_PREFILL_LAYOUT_H

#include <heed/backend.h>

#include "../vec/width.h"

/* Rows of one panel for vectors of `lanes` floats, and keys or columns of V of one step of the
 * products. The sums of a step take three quarters of the registers. */
#define HEED_PREFILL_PANEL(lanes) (3 * (lanes))
#define HEED_PREFILL_STEP(lanes) (HEED_VEC_REGISTERS(lanes) / 4)

/* Room for the struct panel of softmax.inc.h. */
#define HEED_PREFILL_PANEL_BYTES(lanes) ((size_t)HEED_PREFILL_PANEL(lanes) * 60 + 192)

typedef struct heed_prefill_layout {
    /* keys of a block; the same for every vector width, because sums start there */
    int64_t key_block;
    int64_t panels;     /* whose queries and results are in scratch together */
    size_t panel_bytes; /* of one of them */
    size_t panel_at;    /* offsets in scratch, multiples of 64 */
    size_t score_at;    /* [key_block][panel] */
    size_t bias_at;     /* the same */
    size_t seen_at;     /* uint64 [key_block] */
    size_t k_at, v_at;  /* copies of a key block */
    size_t bytes;
} heed_prefill_layout;

static inline size_t heed_prefill_round(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static inline int64_t heed_prefill_columns(const heed_problem *problem, uint32_t lanes)
{
    int64_t step = HEED_PREFILL_STEP(lanes);
    return (problem->v_dim + step - 1) / step * step;
}

static inline void heed_prefill_lay_out(const heed_problem *problem, uint32_t lanes,
                                        heed_prefill_layout *out)
{
    const size_t most_bytes = (size_t)4 << 20;
    int64_t rows = HEED_PREFILL_PANEL(lanes), columns = heed_prefill_columns(problem, lanes);
    int64_t dims = problem->qk_dim > problem->v_dim ? problem->qk_dim : problem->v_dim;
    /* What is fetched and copied of a block serves so many rows (11 or 8 panels of AVX-512), whose
     * queries and results stay in an L2 of 1 MiB. */
    const int64_t most_rows = dims <= 128 ? 528 : 384;
    size_t at = 0, floats;

    out->key_block = 128;
    if (dims > 1024) { /* else the copies of a block would not fit */
        out->key_block = 128 * 1024 / dims / 16 * 16;
        if (out->key_block < 16)
            out->key_block = 16;
    }
    floats = (size_t)(out->key_block * rows);
    out->score_at = at;
    at += heed_prefill_round(floats * sizeof(float));
    out->bias_at = at;
    if (problem->features & HEED_HAS_BIAS)
        at += heed_prefill_round(floats * sizeof(float));
    out->seen_at = at;
    at += heed_prefill_round((size_t)out->key_block * sizeof(uint64_t));
    out->k_at = at;
    at += heed_prefill_round((size_t)out->key_block * problem->qk_dim * sizeof(float));
    out->v_at = at;
    at += heed_prefill_round(
        (size_t)((out->key_block + 2) * (columns + 2 * HEED_PREFILL_STEP(lanes))) * sizeof(float));
    out->panel_at = at;
    out->panel_bytes = heed_prefill_round(HEED_PREFILL_PANEL_BYTES(lanes)) +
                       (size_t)(problem->qk_dim + 2 * columns) * (size_t)rows * sizeof(float);
    out->panels = most_rows / rows;
    while (out->panels > 1 && at + (size_t)out->panels * out->panel_bytes > most_bytes)
        out->panels--;
    out->bytes = at + (size_t)out->panels * out->panel_bytes;
}

#endif
