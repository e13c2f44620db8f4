/* What explanations have in common: kernels and the reasons why they were not chosen. */
#ifndef HEED_CORE_EXPLAIN_H
#define HEED_CORE_EXPLAIN_H

#include "base/text.h"
#include "select.h"

extern const char *const heed_accuracy_name[]; /* by HEED_ACCURACY_* */

/* Puts the kernels other than `used`, each with the reason why it was not chosen. The verdicts are
 * those of a selection made again for the explanation. Its choice may be another kernel than
 * `used`, if a backend has been registered since. */
void heed_put_others(heed_text *b, int json, const heed_kernel *used,
                     const heed_verdicts *verdicts);

#endif
