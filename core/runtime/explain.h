/* What explanations have in common: kernels and the reasons why they were not chosen. */
#ifndef HEED_CORE_EXPLAIN_H
#define HEED_CORE_EXPLAIN_H

#include "base/text.h"
#include "select.h"

extern const char *const heed_accuracy_name[]; /* by HEED_ACCURACY_* */

/* The kernels that are not `used`, each with its reason. Selection is asked again, and may have another
 * answer by now: one that was registered later. */
void heed_put_others(heed_text *b, int json, const heed_kernel *used,
                     const heed_verdicts *verdicts);

#endif
