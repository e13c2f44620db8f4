/* A decode tile under way, a block of its keys, and a side (K or V) of a block of codes. */
#ifndef HEED_SIMD_DECODE_STATE_H
#define HEED_SIMD_DECODE_STATE_H

#include "../simd.h"
#include "../vec/codes.h"
#include "products.inc.h"

/* For each key of a block of codes: what products with it are multiplied by (`after`), and what it
 * is decoded with (`key`). scales.inc.h explains the two. */
typedef struct code_scales {
    float after[DECODE_BLOCK];
    code_key key[DECODE_BLOCK];
} code_scales;

/* Keys [first, end) of a block, at 16 addresses: those outside repeat the first. */
typedef struct block {
    int64_t base, first, end;
    uint32_t all, any; /* a bit per key: inside; seen by some row */
    int same;          /* every row sees the same keys */
    fetch ahead;       /* bytes from its rows to those of the block that is fetched meanwhile */
    const char *k[DECODE_BLOCK], *v[DECODE_BLOCK];
    float *scores; /* [rows, 16], then weights */
    code_scales k_scales, v_scales;
    int exact;         /* some of its scores, without accuracy int8 all, come from exact products */
    uint32_t integers; /* keys whose scores come from integer products: integer.inc.h */
} block;

typedef struct decode {
    const heed_problem *problem;
    heed_tile *tile;
    int64_t rows, q_stride;               /* floats from row to row of q */
    int64_t common_first, common_end;     /* keys in the range of every row */
    int64_t behind, reach;                /* key_behind in decode.c */
    int64_t k_row, v_row, k_page, v_page; /* bytes from key to key and from page to page */
    float *q, *sums, *reference, *k_copy, *v_copy;
    float unit;              /* with pairs, what the products of q and k are multiplied by */
    uint16_t *visible;       /* a bit per key and row, of the block that was looked at last */
    uint32_t k_type, v_type; /* as the products read them: f32 where blocks are copied */
    int copy_k, copy_v, masked, terms, lists;
    int adds;        /* the scores of the run at hand have softcap, ALiBi or a bias */
    int64_t run_key; /* the first key of the run's block at hand */
    struct integer_block *integers; /* with accuracy int8, q: integer.inc.h */
    char *k_codes;                  /* 16 keys */
    float *k_zeros;
    int all_integer;    /* every row of q is multiplied as integers; 1 without that accuracy, too */
    int lift_k, lift_v; /* scales of whole rows multiply scores and weights: scales.inc.h */
    fetch fetch;
} decode;

#define CODED_MOST_BLOCKS 8 /* of 32 dims in a row whose factors are read beforehand */

/* The factors of a block of codes in a Q format, of each 32 dims of 16 keys, and what is added to their
 * multiples, where the products take them from here. Read one by one between the products they would keep
 * the ports for shuffles busy, which on Intel all vectors need that codes are widened to. */
typedef struct coded_factors {
    float scale[CODED_MOST_BLOCKS][DECODE_BLOCK], least[CODED_MOST_BLOCKS][DECODE_BLOCK];
    uint16_t halves[2][CODED_MOST_BLOCKS][DECODE_BLOCK]; /* the same as f16 */
} coded_factors;

/* K or V of a block of codes: its first row, the bytes from row to row and to the lines that are
 * fetched meanwhile, the zeros of its keys where the type has zeros, and its factors where by->factors finds
 * them. Integer products fetch from
 * `share` on instead (NULL: do not), as many bytes as the block has: next rows, or a head's share of
 * the next rows of heads side by side, in the order of memory. Heads of 8192 keys of i8 so take 0.65 to
 * 0.83 of the time, those of q4_0 0.81 to 0.97 (Zen 5); exact products gain nothing by it. Lines are
 * fetched into L1 where tuning->fetched is set: cold pages so take 0.51 to 0.95 of the time, streams
 * 0.83 to 1.03 (Zen 5). */
typedef struct coded_side {
    const char *at;
    int64_t row, ahead;
    const float *zero;
    coded_factors *factors;
    const char *share;
    const fetch *f;
    const heed_simd_coded *by;   /* the products with it */
    const heed_simd_coded *best; /* those where no factor is too much for them */
} coded_side;

#endif
