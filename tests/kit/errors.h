/* The mistakes that a caller of attention may make, in any problem. See errors.c; errors_desc.c and
 * errors_args.c list them. */
#ifndef KIT_ERRORS_H
#define KIT_ERRORS_H

#include "case.h"

/** How many there are. */
size_t kit_mistakes(void);

/** Makes mistake `which` in a good problem, if that problem can have it; `pick` chooses among its
 * kinds. Each call that meets the mistake has to refuse it. Returns whether it was made. */
int kit_refuses(heed_context *context, kit_problem *problem, size_t which, uint32_t pick,
                kit_outcome *outcome);

#endif
