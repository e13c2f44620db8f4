/* The mistakes that a caller of attention may make, in any problem. See errors.c,
 * and for which there are errors_desc.c and errors_args.c. */
#ifndef KIT_ERRORS_H
#define KIT_ERRORS_H

#include "case.h"

/** How many there are. */
size_t kit_mistakes(void);

/** Makes mistake `which`, one of its kinds by `pick`, in a good problem, where it exists there: each
 * call that meets it has to refuse it. Returns whether it was made. */
int kit_refuses(heed_context *context, kit_problem *problem, size_t which, uint32_t pick,
                kit_outcome *outcome);

#endif
