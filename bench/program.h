/* main of a small program that measures something. */
#ifndef HEED_BENCH_PROGRAM_H
#define HEED_BENCH_PROGRAM_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A whole word that is a number in least..most, or least - 1. */
static inline long program_number(const char *text, long least, long most)
{
    char *end;
    errno = 0;
    const long number = strtol(text, &end, 10);
    return errno || end == text || *end || number < least || number > most ? least - 1 : number;
}

/** Prints the usage after --help, and else does the work, which returns an exit status. What was
 * printed has to have arrived: a full disk is no success. Returns main's exit status. */
static inline int program_main(const char *name, const char *usage, int (*work)(int, char **),
                               int argc, char **argv)
{
    int status = 0;
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        fputs(usage, stdout);
    else
        status = work(argc, argv);
    if (status == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "%s: stdout cannot be written\n", name);
        return 1;
    }
    return status;
}

#endif
