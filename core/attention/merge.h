/* Merging finished results over disjoint keys, for whoever has checked what is merged. */
#ifndef HEED_CORE_MERGE_H
#define HEED_CORE_MERGE_H

#include <heed/attention.h>

/* Parts and what they become; as in heed_merge_parts_args. */
typedef struct heed_merging {
    int64_t rows, heads, dim;
    uint32_t n_parts, out_type;
    const heed_const_view *parts, *lses;
    int64_t skip;      /* heads of parts and lses that lie before their first one here */
    const float *sink; /* NULL: none */
    heed_view out, lse;
} heed_merging;

/* Merges rows [first, end), all heads, in the library's floating-point environment. */
void heed_merge_rows(const heed_merging *m, int64_t first, int64_t end);

/* The same of heads [first, end) of all rows, head h of row r being number r * heads + h. */
void heed_merge_heads(const heed_merging *m, int64_t first, int64_t end);

#endif
