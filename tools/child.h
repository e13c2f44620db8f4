/* The heed command: runs work in a child process, so that a crash of a backend does not end the
 * command. */
#ifndef HEED_TOOLS_CHILD_H
#define HEED_TOOLS_CHILD_H

#include <stdio.h>

/** How a child ended. */
typedef struct heed_child {
    int signal; /* the signal that killed it; 0: none */
    int status; /* what body returned, 0 to 127, if there was no signal */
    char *text; /* what body wrote, NUL-terminated, from malloc */
} heed_child;

/**
 * Runs body in a child process for at most a minute, after which SIGALRM kills it. It shares stdout
 * and stderr with this process; what it writes to out is returned in child->text, which the caller
 * frees.
 *
 * Returns HEED_EXIT_OK, or HEED_EXIT_FAILED after a line on stderr if no child could be made or heard.
 */
int heed_child_run(int (*body)(FILE *out, void *arg), void *arg, heed_child *child);

/** The name of a signal, such as "SIGILL"; "signal 64" if it has none here. The string is
 * static. */
const char *heed_signal_name(int number);

#endif
