/* A linear layer in words: its backend and tiling, and why no other kernel was chosen. */
#ifndef HEED_CORE_LINEAR_EXPLAIN_H
#define HEED_CORE_LINEAR_EXPLAIN_H

#include "base/text.h"
#include "linear.h"

/* As heed_linear_explain. */
heed_status heed_explain_linear(const heed_linear *linear, int json, char *text, size_t *bytes,
                                heed_error *why);

/* The same as a part of a longer text. */
heed_status heed_put_linear(heed_text *b, int json, const heed_linear *linear, heed_error *why);

#endif
