/* heed check: the conformance suite, on any backend. */
#include "cli.h"
#include "trial.h"

#include <string.h>

#if HEED_HAVE_KIT
#include "check_main.h"
#endif

#if HEED_HAVE_KIT
/* The value of --backend NAME or --backend=NAME; NULL without. */
static const char *wanted_backend(int argc, char **argv)
{
    static const char option[] = "--backend";
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], option, sizeof option - 1) != 0)
            continue;
        if (argv[i][sizeof option - 1] == '=')
            return argv[i] + sizeof option;
        if (argv[i][sizeof option - 1] == '\0' && i + 1 < argc)
            return argv[i + 1];
    }
    return NULL;
}

int heed_cli_check(int argc, char **argv)
{
    heed_trials trials;
    int failed = heed_trials_run(wanted_backend(argc, argv), &trials);
    /* A backend that faults is reported here: the suite runs in this process. */
    for (int i = 0; i < trials.n; i++)
        if (!failed && trials.result[i].faulted)
            failed = heed_cli_fail(HEED_EXIT_FAILED, "%s: %s", trials.result[i].name,
                                   trials.result[i].why);
    heed_trials_free(&trials);
    return failed ? failed : heed_check_main(argc, argv);
}
#else
int heed_cli_check(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return heed_cli_fail(HEED_EXIT_USAGE, "this build has no conformance suite");
}
#endif
