/* Merges finished results over disjoint keys, for callers that have checked the operands. */
#ifndef HEED_CORE_MERGE_H
#define HEED_CORE_MERGE_H

#include <heed/attention.h>

/* The parts and the outputs, as in heed_merge_parts_args. */
typedef struct heed_merging {
    int64_t rows, heads, dim;
    uint32_t n_parts, out_type;
    const heed_const_view *parts, *lses;
    int64_t skip;      /* heads of parts and lses before the first one that is merged */
    const float *sink; /* NULL: none */
    heed_view out, lse;
} heed_merging;

/* Merges rows [first, end), all heads, in the library's floating-point environment. */
void heed_merge_rows(const heed_merging *m, int64_t first, int64_t end);

/* Merges heads [first, end) of all heads of all rows, where head h of row r is
 * number r * heads + h. */
void heed_merge_heads(const heed_merging *m, int64_t first, int64_t end);

#endif
