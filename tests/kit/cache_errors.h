/* The mistakes that a caller of heed_kv_append and heed_rotary may make, in any call. See
 * cache_errors.c. */
#ifndef KIT_CACHE_ERRORS_H
#define KIT_CACHE_ERRORS_H

#include "case.h"

/** How many there are. */
size_t kit_append_mistakes(void);
size_t kit_rotary_mistakes(void);

/** Makes mistake `which` in a good call of up to KIT_MAX_BATCH sequences, if that call can have it;
 * `pick` chooses among its kinds. The call has to be refused. The caller makes caches and y
 * read-only, so that a write is a crash. `known`: the call is that of the kit's own case. Returns
 * whether the mistake was made. */
int kit_append_refuses(const heed_kv_append_args *args, int known, size_t which, uint32_t pick,
                       kit_outcome *outcome);
int kit_rotary_refuses(const heed_rotary_args *args, int known, size_t which, uint32_t pick,
                       kit_outcome *outcome);

#endif
