/* Command lines of the engines: COMMAND, options with a value, and files or texts. */
#ifndef COMMON_ARGUMENTS_H
#define COMMON_ARGUMENTS_H

#include <stdint.h>

#include "refuse.h"

/** What is left of argv: options are removed when they are taken. */
typedef struct arguments {
    int n;
    char **word;
} arguments;

/** Takes the value after an option such as "--out"; NULL if the option is absent. An option that
 * occurs twice or has no value is left, and take_rest refuses it. */
const char *take_option(arguments *a, const char *name);

/** The same for an integer from least to most; it is `otherwise` if the option is absent. */
heed_status take_integer(arguments *a, const char *name, int64_t least, int64_t most,
                         int64_t otherwise, int64_t *out, heed_error *why);

/** Refuses arguments unless exactly `n` words are left and none of them is an option. */
heed_status take_rest(const arguments *a, int n, const char *what, heed_error *why);

/** The number of CPUs that this process may run on. */
int cpu_count(void);

/** The exit status of a program: 0; 2 for wrong usage and files; 3 if no backend can do it; else
 * 1. */
int exit_status(heed_status status);

#endif
