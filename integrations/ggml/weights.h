/* Packed weights: what Heed's products read in place of ggml's tensors. They are shared by the backends of a
 * process, within a bound on their memory, and go when the last backend that used them goes. */
#ifndef GGML_HEED_WEIGHTS_H
#define GGML_HEED_WEIGHTS_H

#include <heed/heed.h>

#include "ggml-backend-impl.h"
#include "ggml.h"

/* Does the tensor lie in a buffer of weights, which stay as they are? */
int weights_stay(const struct ggml_tensor *w);

/* A backend comes, a backend goes. */
void weights_join(void);
void weights_leave(const void *backend);

/* Is there room for this weight within the bound, or has it a place already? Takes the place: what is promised
 * here can be packed later. Writes the reason if not. */
int weights_reserve(const struct ggml_tensor *w, heed_error *why);

/* The layer of this weight, packed now if it is not yet, to be given back by heed_linear_release. One that does
 * not stay, or has no place, is packed for this call alone. */
heed_status weights_get(const void *backend, heed_context *context, const heed_linear_desc *desc,
                        const struct ggml_tensor *w, heed_linear **out, heed_error *why);

#endif
