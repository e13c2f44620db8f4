/* An attention layer in words: its plan and its projections. */
#ifndef HEED_CORE_LAYER_EXPLAIN_H
#define HEED_CORE_LAYER_EXPLAIN_H

#include "mha.h"

/* As heed_mha_explain. */
heed_status heed_explain_mha(const heed_mha *mha, int json, char *text, size_t *bytes,
                             heed_error *why);

#endif
