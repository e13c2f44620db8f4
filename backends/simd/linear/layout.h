/* How a linear layer is cut for the kernels of linear.c, and where a tile's scratch lies: one copy
 * for the baseline code and for every instruction set. */
#ifndef HEED_SIMD_LINEAR_LAYOUT_H
#define HEED_SIMD_LINEAR_LAYOUT_H

#include <heed/backend.h>

#include "../vec/width.h"

/* Columns of a panel: three vectors. */
#define HEED_LINEAR_PANEL(lanes) (3 * (lanes))

/* Inputs of a block, from input 0 on. Each block's products are summed from zero, and then the
 * blocks: an order that depends on in_dim alone, and errors that hardly grow with it. */
#define HEED_LINEAR_BLOCK 256

/* A tile: x's block of so many rows, and the sums of all its columns, lie in a core's L2. */
#define HEED_LINEAR_ROWS 128
#define HEED_LINEAR_TILE_PANELS 16

/* Tiles of at most so many rows read each weight once, as it lies, with all rows in registers: three
 * quarters of them are sums. */
#define HEED_LINEAR_FEW(lanes) (HEED_VEC_REGISTERS(lanes) / 4)
#define HEED_LINEAR_FEW_INPUTS 4096 /* of x that are widened at a time */

typedef struct heed_linear_layout {
    size_t sums, x, w, bytes; /* offsets in scratch: f32 sums, rows of x, a block of a panel */
    int64_t x_stride;         /* floats between rows of x: no two of a step in one cache set */
} heed_linear_layout;

/* Of a layer with so many columns: sums of no more are kept than it has. */
static inline void heed_linear_lay_out(int lanes, uint32_t out_dim, heed_linear_layout *l)
{
    const size_t panel = HEED_LINEAR_PANEL((size_t)lanes);
    const size_t all = (out_dim + panel - 1) / panel, most = HEED_LINEAR_TILE_PANELS;
    const size_t cols = panel * (all < most ? all : most);
    l->x_stride = HEED_LINEAR_BLOCK + 16;
    size_t rows_x = HEED_LINEAR_ROWS * (size_t)l->x_stride;
    size_t few_x = (size_t)HEED_LINEAR_FEW(lanes) * HEED_LINEAR_FEW_INPUTS;
    l->sums = 0;
    l->x = l->sums + HEED_LINEAR_ROWS * cols * sizeof(float);
    l->w = l->x + (rows_x > few_x ? rows_x : few_x) * sizeof(float);
    l->bytes = l->w + HEED_LINEAR_BLOCK * panel * sizeof(float);
}

#endif
