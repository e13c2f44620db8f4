/* The mistakes that a caller of linear layers may make, in any layer. See linear_errors.c. */
#ifndef KIT_LINEAR_ERRORS_H
#define KIT_LINEAR_ERRORS_H

#include "case.h"

/** How many there are. */
size_t kit_linear_mistakes(void);

/** Makes mistake `which` in a good layer or its run, if they can have it; `pick` chooses among its
 * kinds. Each call that meets the mistake has to refuse it. Returns whether it was made. */
int kit_linear_refuses(heed_context *context, const kit_linear *problem, size_t which,
                       uint32_t pick, kit_outcome *outcome);

#endif
