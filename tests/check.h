/* A check that says where it failed, and a count that main returns: no check at all is a failure too. */
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

/* For the end of main. */
static inline int checks_end(void)
{
    printf("%d checks, %d failures\n", n_checks, n_failures);
    return n_failures || !n_checks;
}

#endif
