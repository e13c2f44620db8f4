/* Rotary embedding, in pieces that parts of a layer share among them. */
#ifndef HEED_CORE_ROTARY_H
#define HEED_CORE_ROTARY_H

#include <heed/rotary.h>

/* Checks a description for heads of so many dims; `name` is the argument's in sentences. */
heed_status heed_rotary_check_desc(const char *name, const heed_rotary_desc *rotary, uint32_t dim,
                                   heed_error *why);

/* Checks positions of `batch` sequences of `len` rows; NULL: there are none. */
heed_status heed_rotary_check_positions(const int32_t *positions, int64_t stride, int64_t batch,
                                        int64_t len, heed_error *why);

/* Rotates rows [first, end) of sequence b, of every head, in the caller's floating-point
 * environment. The args have been checked. */
void heed_rotary_rows(const heed_rotary_args *args, int64_t b, int64_t first, int64_t end);

#endif
