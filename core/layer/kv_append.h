/* Appending to a cache, in pieces that parts of a layer share among them. */
#ifndef HEED_CORE_KV_APPEND_H
#define HEED_CORE_KV_APPEND_H

#include <heed/backend.h>
#include <heed/cache.h>

/* Makes all checks of heed_kv_append. */
heed_status heed_kv_append_check(const heed_kv_append_args *args, heed_error *why);

/* Writes new rows [first, end) of sequence b, of every head. The args have been checked. What the
 * encoder does not do, or all of it if the encoder is NULL, is done here, to the same bytes. */
void heed_kv_append_rows(const heed_kv_append_args *args, const heed_append_kernel *encoder,
                         int64_t b, int64_t first, int64_t end);

#endif
