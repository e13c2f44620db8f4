/* Command lines of the engines: COMMAND, options with a value, and files or texts. */
#ifndef COMMON_ARGUMENTS_H
#define COMMON_ARGUMENTS_H

#include <stdint.h>

#include "refuse.h"

/** What is left of argv; every taken option goes. */
typedef struct arguments {
    int n;
    char **word;
} arguments;

/** The value that follows an option such as "--out", NULL if the option is not there. One that is
 * there twice, or without a value, stays and is refused in the end. */
const char *take_option(arguments *a, const char *name);

/** The same for an integer from least to most; `otherwise` without the option. */
heed_status take_integer(arguments *a, const char *name, int64_t least, int64_t most,
                         int64_t otherwise, int64_t *out, heed_error *why);

/** Nothing but `n` words may be left, none of them an option. */
heed_status take_rest(const arguments *a, int n, const char *what, heed_error *why);

/** CPUs that this process may run on. */
int cpu_count(void);

/** What a program ends with: 0, 2 for wrong usage and files, 3 if no backend can do it, else 1. */
int exit_status(heed_status status);

#endif
