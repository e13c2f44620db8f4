/* A random tile of the decode kernel: shapes, types, strides, features and pages, and tensors with
 * NaN in all that no row may see. */
#ifndef SIMD_DECODE_CASE_H
#define SIMD_DECODE_CASE_H

#include <stdint.h>

#include "../../backends/simd/simd.h"

/* A tensor of [head, row, dim] in a buffer that holds NaN everywhere else. */
typedef struct tensor {
    heed_rows rows;
    uint32_t type;
    void *memory;
    const int32_t *pages; /* NULL: none. Else row i is i % page_len of page pages[i / page_len] */
    uint32_t page_len;
} tensor;

/* Allocates a tensor of NaN. layout 0: by heads, 1: token-major, 2: with gaps between elements,
 * 3: at an odd address, 4: rows backwards. */
void tensor_make(tensor *t, uint32_t type, int64_t heads, int64_t rows, int64_t dims, int layout);

double tensor_at(const tensor *t, int64_t head, int64_t row, int64_t dim);

/* The tile points into its case, so a case stays where it was drawn. */
typedef struct decode_case {
    heed_problem problem;
    heed_tiling tiling;
    heed_tile tile; /* without what the kernel writes to */
    int small;      /* mostly a tile that heed_simd_small_covers */
    int whole;      /* mostly one that decode/run.inc.h reads in runs */
    tensor q, k, v, bias;
    uint8_t *mask;
    float alibi[16], bias_slope[16];
    int32_t pages[256];
    int64_t rows; /* of all heads; 0: no row sees a key, and nothing was allocated */
    char *seen;   /* [row][key]: may the row attend to the key? */
    uint32_t fetched_l2, fetched, cross; /* tuning, with a bit per instruction set */
    uint32_t cross_rows;
} decode_case;

/* Not HEED_OK: there is no tiling for the problem. */
heed_status decode_case_draw(decode_case *c, uint64_t seed);

void decode_case_free(decode_case *c);

/* The head and the query of a row of the tile. */
static inline int64_t decode_case_head(const decode_case *c, int64_t row)
{
    return row / c->tile.q_count;
}

static inline int64_t decode_case_query(const decode_case *c, int64_t row)
{
    return c->tile.q_first + row % c->tile.q_count;
}

#endif
