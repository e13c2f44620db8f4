/* Which backend's kernel encodes the rows that are appended to a cache. */
#ifndef HEED_CORE_ENCODER_H
#define HEED_CORE_ENCODER_H

#include "context.h"

/* The kernel for a context: that of the first backend in its list that has one, or without a list
 * the cheapest of all; NULL if there is none. Takes the context's lock. */
const heed_append_kernel *heed_encoder_of(heed_context *context);

/* The kernel for calls without a context: chosen at the first call from the backends that are
 * linked in, as HEED_BACKEND and HEED_MAX_ISA say at that time. */
const heed_append_kernel *heed_encoder_here(void);

#endif
