/* Heed command line: work in a child process, so that a fault in a backend does not end the
 * command. */
#ifndef HEED_TOOLS_CHILD_H
#define HEED_TOOLS_CHILD_H

#include <stdio.h>

/** How a child ended. */
typedef struct heed_child {
    int signal; /* that killed it; 0: none */
    int status; /* what body returned, 0 to 127, when there was no signal */
    char *text; /* what body wrote, NUL-terminated, malloc'd */
} heed_child;

/**
 * Runs body in a child process, for at most a minute (then it is killed by SIGALRM). Its stdout and
 * stderr are this process's; what it writes to out comes back in child->text, to be freed.
 *
 * Returns 0, or -1 if no child could be made.
 */
int heed_child_run(int (*body)(FILE *out, void *arg), void *arg, heed_child *child);

/** "SIGILL" and so on; "signal 64" for one without a name here. The string is static. */
const char *heed_signal_name(int number);

#endif
