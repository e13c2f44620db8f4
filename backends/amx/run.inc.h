/* What the files of the kernel share while a tile is run: where things lie, and the products. */
#ifndef HEED_AMX_RUN_H
#define HEED_AMX_RUN_H

#include "amx.h"
#include "lanes.h"
#include "pack.inc.h"
#include "scores.inc.h"
#include "softmax.inc.h"
#include "tile.h"

/* For the hardware the fast path is inlined; with the model that would be far too much code. */
#if defined(__GNUC__) && !defined(HEED_AMX_MODEL)
#define AMX_INLINE static inline __attribute__((always_inline))
#else
#define AMX_INLINE static inline
#endif

typedef struct amx_run {
    const heed_problem *p;
    heed_tile *t;
    const amx_layout *l;
    tile_unit *unit;
    char *q, *weights, *o;        /* q and o of the group at hand */
    float *s;                     /* scores, [half unit][rows of a group][16 keys] */
    amx_rows *rows;               /* of the group */
    const char **packed;          /* blocks of the current chunk */
    const char **k_at, **v_at;    /* K and V of the chunk's units in them */
    uint32_t odd_blocks;          /* bit b: the resident path cannot take block b of the chunk */
    int64_t chunk;                /* first key of the chunk */
    float exponent_scale;         /* products to log2 units, where nothing else applies */
    float c;                      /* exponent_scale; 1 where x->s has log2 units already */
    float hidden;                 /* of hidden keys: times c it is -inf */
    uint32_t *odd_scores;         /* set where a score is NaN or +inf (general) */
    int32_t exact;                /* sums of unrounded weights are kept (sums.inc.h) */
    int32_t general;              /* scores are more than a product times a factor */
    int32_t n_rows;               /* of the group: 1 to 32 */
    int32_t run_first;            /* first unit of a run on the fast path (fast.inc.h) */
    int32_t second_set;           /* 1: first scores go to the second set (fast_resident.inc.h) */
    int32_t first_row;            /* first row of the group in the tile */
    int32_t leaves;               /* the chunk is the last: rows are finished after it */
    int32_t from;                 /* unit of the chunk up to which O has been made */
    int64_t all_first, all_end;   /* keys in the range of all rows of the group */
    int64_t some_first, some_end; /* from the first to the last that some row has in range */
    amx_row row[AMX_GROUP];
} amx_run;

/* Register use: while S is computed, 0-3 hold it and 4-7 operands (fast.inc.h has other ways);
 * while O is computed, 0-3 hold it ([row tile][16 columns] of one pair), 4, 5 hold P and 6, 7 V. */

AMX_INLINE const char *k_tile(const amx_run *x, int unit, int half, int step)
{
    return x->k_at[unit] + ((int64_t)half * x->l->k_steps + step) * x->l->parts * 1024;
}

AMX_INLINE const char *v_tile(const amx_run *x, int unit, int part, int pair)
{
    return x->v_at[unit] + ((int64_t)part * x->l->v_pairs + pair) * 2048;
}

AMX_INLINE char *p_tile(const amx_run *x, int unit, int part, int row_tile)
{
    return x->weights + (int64_t)(unit * x->l->parts + part) * x->l->group * 64 + row_tile * 1024;
}

AMX_INLINE char *o_tile(const amx_run *x, int pair, int row_tile, int column)
{
    return x->o + (int64_t)pair * 4096 + (row_tile * 2 + column) * 1024;
}

/* The packed header of a block of the chunk. */
AMX_INLINE const amx_header *header_of(const amx_run *x, int block)
{
    return (const amx_header *)(const void *)x->packed[block];
}

/* Adds to registers 0 to 3 ([half of the keys][row tile]) the products of two tiles of Q, in 4 and
 * 5, with two of K, in 6 and 7. */
#define PRODUCTS_2X2(two)                                                                          \
    tile_product(u, 0, 4, 6);                                                                      \
    tile_product(u, 2, 4, 7);                                                                      \
    if (two) {                                                                                     \
        tile_product(u, 1, 5, 6);                                                                  \
        tile_product(u, 3, 5, 7);                                                                  \
    }

/* Products of the group's rows with 32 keys, to s [2 halves][32 rows][16]. */
static inline void products_with_k(const amx_run *x, int unit, float *s)
{
    tile_unit *u = x->unit;
    const int steps = x->l->k_steps, parts = x->l->parts, two = x->n_rows > 16;
    const char *q = x->q, *q1 = q + steps * parts * 1024;
    const char *k = k_tile(x, unit, 0, 0), *k1 = k_tile(x, unit, 1, 0);
    (void)u;
    TILE_ZERO_4(u)
    for (int step = 0; step < steps; step++) {
        tile_load(u, 4, q, 64);
        tile_load(u, 6, k, 64);
        tile_load(u, 7, k1, 64);
        if (two)
            tile_load(u, 5, q1, 64);
        PRODUCTS_2X2(two)
        if (parts == 2) {
            tile_load(u, 4, q + 1024, 64);
            if (two)
                tile_load(u, 5, q1 + 1024, 64);
            PRODUCTS_2X2(two)
            tile_load(u, 6, k + 1024, 64);
            tile_load(u, 7, k1 + 1024, 64);
            tile_load(u, 4, q, 64);
            if (two)
                tile_load(u, 5, q1, 64);
            PRODUCTS_2X2(two)
        }
        q += parts * 1024;
        q1 += parts * 1024;
        k += parts * 1024;
        k1 += parts * 1024;
    }
    tile_store(u, 0, s, 64);
    tile_store(u, 2, s + 512, 64);
    if (two) {
        tile_store(u, 1, s + 256, 64);
        tile_store(u, 3, s + 768, 64);
    }
}

/* Loads Q of at most 64 dims into registers 0 to 3: [row tile][step]. */
static inline void load_q(const amx_run *x)
{
    tile_unit *u = x->unit;
    const char *q1 = x->q + x->l->k_steps * 1024;
    (void)u;
    tile_load(u, 0, x->q, 64);
    tile_load(u, 2, q1, 64);
    if (x->l->k_steps > 1) {
        tile_load(u, 1, x->q + 1024, 64);
        tile_load(u, 3, q1 + 1024, 64);
    }
}

static inline void load_o(const amx_run *x, int pair)
{
    tile_unit *u = x->unit;
    (void)u;
    if (x->rows->fresh) {
        TILE_ZERO_4(u)
    } else {
        tile_load(u, 0, o_tile(x, pair, 0, 0), 64);
        tile_load(u, 1, o_tile(x, pair, 0, 1), 64);
        tile_load(u, 2, o_tile(x, pair, 1, 0), 64);
        tile_load(u, 3, o_tile(x, pair, 1, 1), 64);
    }
}

static inline void store_o(const amx_run *x, int pair)
{
    tile_unit *u = x->unit;
    (void)u;
    tile_store(u, 0, o_tile(x, pair, 0, 0), 64);
    tile_store(u, 1, o_tile(x, pair, 0, 1), 64);
    tile_store(u, 2, o_tile(x, pair, 1, 0), 64);
    tile_store(u, 3, o_tile(x, pair, 1, 1), 64);
}

/* Adds to registers 0 to 3 ([row tile][16 columns]) the products of P at p with V in 6 and 7. */
AMX_INLINE void add_products_with_v(tile_unit *u, const char *p, int two)
{
    (void)u;
    tile_load(u, 4, p, 64);
    tile_product(u, 0, 4, 6);
    tile_product(u, 1, 4, 7);
    if (two) {
        tile_load(u, 5, p + 1024, 64);
        tile_product(u, 2, 5, 6);
        tile_product(u, 3, 5, 7);
    }
}

/* Adds the weights of units [unit, end) times 32 columns of V to registers 0 to 3. */
static inline void products_with_v(const amx_run *x, int pair, int unit, int end)
{
    tile_unit *u = x->unit;
    const int two = x->n_rows > 16, parts = x->l->parts;
    (void)u;
    for (; unit < end; unit++) {
        const char *p = p_tile(x, unit, 0, 0), *v = v_tile(x, unit, 0, pair);
        tile_load(u, 6, v, 64);
        tile_load(u, 4, p, 64);
        tile_product(u, 0, 4, 6);
        tile_load(u, 7, v + 1024, 64);
        tile_product(u, 1, 4, 7);
        if (two) {
            tile_load(u, 5, p + 1024, 64);
            tile_product(u, 2, 5, 6);
            tile_product(u, 3, 5, 7);
        }
        if (parts == 1)
            continue;
        add_products_with_v(u, p + 2048, two);
        v = v_tile(x, unit, 1, pair);
        tile_load(u, 6, v, 64);
        tile_load(u, 7, v + 1024, 64);
        add_products_with_v(u, p, two);
    }
}

#endif
