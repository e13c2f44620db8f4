/* CHECK counts its calls and says where one failed (the first 20 of them). checks_end gives main
 * its exit status; a program that made no check has failed too. CHECK_OK and CHECK_REFUSED take a
 * call that leaves its sentence in heed_last_error. */
#ifndef HEED_TESTS_CHECK_H
#define HEED_TESTS_CHECK_H

#include <stdio.h>
#include <string.h>

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

#define CHECK_OK(call) CHECK((call) == HEED_OK, "%s", heed_last_error())

/* The sentence has `word` in it. */
#define CHECK_REFUSED(call, status, word)                                                          \
    CHECK((call) == (status) && strstr(heed_last_error(), word), "%s", heed_last_error())

/* Prints both counts and returns the exit status of main. */
static inline int checks_end(void)
{
    printf("%d checks, %d failures\n", n_checks, n_failures);
    return n_failures || !n_checks;
}

#endif
