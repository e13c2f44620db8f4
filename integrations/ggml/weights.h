/* Packed weights: what Heed's products read in place of ggml's tensors. They are shared by the
 * backends of a process, within a bound on their memory, and are freed with the last backend that
 * used them. */
#ifndef GGML_HEED_WEIGHTS_H
#define GGML_HEED_WEIGHTS_H

#include <heed/heed.h>

#include "ggml-backend-impl.h"
#include "ggml.h"

/* Does the tensor lie in a buffer of weights, which stay as they are? Not in one of a device's memory, or of rows
 * in another order: what is multiplied is then a copy of ggml's, which lies in a buffer for one graph. */
int weights_stay(const struct ggml_tensor *w);

/* A backend calls this when it is freed. */
void weights_leave(const void *backend);

/* Reserves a place for this weight, unless it has one already, so that it can be packed later.
 * Returns 0, and writes the reason, if the bound leaves no room. A backend that is freed takes all
 * places with it that were reserved and never used. */
int weights_reserve(const struct ggml_tensor *w, heed_error *why);

/* Gets the layer of this weight, which is packed if it is not yet; the caller gives it back by
 * heed_linear_release. A weight that may change or has no place is packed for this call alone.
 * is_quick: the call is so short that only a part of the weight's sample is compared. */
heed_status weights_get(const void *backend, heed_context *context, const heed_linear_desc *desc,
                        const struct ggml_tensor *w, int is_quick, heed_linear **out,
                        heed_error *why);

#endif
