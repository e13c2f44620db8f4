/* A partition as a call works with it. */
#ifndef HEED_CORE_GROUP_READ_H
#define HEED_CORE_GROUP_READ_H

#include "shape.h"

/* Copies and checks a partition for a batch, and chooses the scheme; rank and size are in the shape
 * already. Everything that all ranks refuse alike is refused here. */
heed_status heed_shape_read(heed_shape *shape, const heed_attn *plan,
                            const heed_partition *partition, int64_t batch, heed_error *why);

#endif
