/* CHECK counts its calls and says where one failed (the first 20 of them). checks_end gives main
 * its exit status; a program that made no check has failed too. */
#ifndef HEED_TESTS_CHECK_H
#define HEED_TESTS_CHECK_H

#include <stdio.h>

static int n_checks, n_failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        n_checks++;                                                                                \
        if (!(condition) && n_failures++ < 20) {                                                   \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                 \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

/* Prints both counts and returns the exit status of main. */
static inline int checks_end(void)
{
    printf("%d checks, %d failures\n", n_checks, n_failures);
    return n_failures || !n_checks;
}

#endif
