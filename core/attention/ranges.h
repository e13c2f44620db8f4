/* Ranges and key blocks of a call, as scheduling wants them: checked, and how far they reach. */
#ifndef HEED_CORE_RANGES_H
#define HEED_CORE_RANGES_H

#include "partition.h"

/* Checks ranges and mask_from of sequence b, whose lengths are known, unless the context trusts
 * them. Sets the keys that its ranges reach: s->key_first, s->key_end. */
heed_status heed_ranges_read(const heed_attn *plan, const heed_attn_args *args, int64_t b,
                             heed_sequence *s, heed_error *why);

/* Checks the entries of the block table that hold a key which some row sees by length, causality,
 * window, ranges and key blocks. Other entries may hold anything. */
heed_status heed_ranges_check_pages(const heed_attn *plan, const heed_attn_args *args, int64_t b,
                                    const heed_sequence *s, heed_error *why);

/* The part of `keys` from the first to the last that ranges let some row of the tile see. */
heed_span heed_ranges_span(const heed_problem *problem, const heed_tile *tile, heed_span keys);

#endif
