/* Which backend's kernel encodes the rows that are appended to a cache. */
#ifndef HEED_CORE_ENCODER_H
#define HEED_CORE_ENCODER_H

#include "context.h"

/* That of a context: the cheapest of the first backend in its list that has one, NULL if none has. Under
 * the context's lock. */
const heed_append_kernel *heed_encoder_of(heed_context *context);

/* That of calls without a context: of the backends that are linked in, as HEED_BACKEND and HEED_MAX_ISA
 * say at the first call. */
const heed_append_kernel *heed_encoder_here(void);

#endif
