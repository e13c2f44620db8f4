/* The workspace that a context keeps for calls without one. */
#ifndef HEED_CORE_SPARE_H
#define HEED_CORE_SPARE_H

#include "context.h"

/* The context's spare workspace, or a new one; give it back with the same size. NULL: no memory. */
void *heed_spare_borrow(heed_context *context, size_t bytes, size_t *got);
void heed_spare_return(heed_context *context, void *workspace, size_t bytes);
void heed_spare_drop(heed_context *context);

#endif
