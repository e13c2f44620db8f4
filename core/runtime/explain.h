/* What explanations have in common: backends and the reasons why they were not chosen. */
#ifndef HEED_CORE_EXPLAIN_H
#define HEED_CORE_EXPLAIN_H

#include "base/text.h"
#include "select.h"

extern const char *const heed_accuracy_name[]; /* by HEED_ACCURACY_* */

/* The backends that are not `used`, each with its reason. Selection is asked again, and may have another
 * answer by now: one that was registered later. */
void heed_put_others(heed_text *b, int json, const char *used, const heed_verdict *verdict,
                     uint32_t n);

#endif
