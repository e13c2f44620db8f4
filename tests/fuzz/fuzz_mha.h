/* Attention layers made of bytes. See fuzz_mha.c. */
#ifndef FUZZ_MHA_H
#define FUZZ_MHA_H

#include "fuzz_bytes.h"
#include "layer_case.h"

/** Spoils one thing that the library has to find, and calls it; which one is said by the bytes.
 * Returns what it was, or NULL if that does not exist in this layer; then nothing was called. */
const char *fuzz_mha_spoil(heed_context *context, layer *l, fuzz_bytes *bytes, heed_status *status,
                           heed_error *error);

#endif
