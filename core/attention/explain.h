/* A plan in words: its backends and tilings, and why no other kernels were chosen. */
#ifndef HEED_CORE_ATTENTION_EXPLAIN_H
#define HEED_CORE_ATTENTION_EXPLAIN_H

#include "base/text.h"
#include "plan.h"

/* As heed_attn_explain. */
heed_status heed_explain_plan(const heed_attn *plan, int json, char *text, size_t *bytes,
                              heed_error *why);

/* The same as a part of a longer text. */
heed_status heed_put_plan(heed_text *b, int json, const heed_attn *plan, heed_error *why);

#endif
