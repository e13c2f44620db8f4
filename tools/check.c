/* heed check: runs the conformance suite on any backend. */
#include "cli.h"
#include "trial.h"

#include <stdlib.h>
#include <string.h>

#if HEED_HAVE_KIT
#include "check_main.h"
#endif

#if HEED_HAVE_KIT
/* The value of an option of heed_check_main, given as --name VALUE or --name=VALUE; NULL if
 * absent. */
static const char *value_of(const char *name, int argc, char **argv)
{
    size_t length = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], name, length) != 0)
            continue;
        if (argv[i][length] == '=')
            return argv[i] + length + 1;
        if (argv[i][length] == '\0' && i + 1 < argc)
            return argv[i + 1];
    }
    return NULL;
}

static int runs_nothing(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0 ||
            strcmp(argv[i], "--list") == 0)
            return 1;
    return 0;
}

/* Runs the suite on each backend that did not crash, one after another. Returns the worst
 * status. */
static int check_others(const heed_trials *trials, int argc, char **argv)
{
    static char option[] = "--backend";
    char **with = calloc((size_t)argc + 3, sizeof *with), name[HEED_TRIAL_NAME];
    int worst = HEED_EXIT_OK;
    if (!with)
        return heed_cli_fail(HEED_EXIT_FAILED, "no memory for arguments");
    memcpy(with, argv, (size_t)argc * sizeof *with);
    with[argc] = option;
    with[argc + 1] = name;
    for (int i = 0; i < trials->n; i++) {
        if (!trials->result[i].passed)
            continue;
        memcpy(name, trials->result[i].name, sizeof name);
        int status = heed_check_main(argc + 2, with);
        worst = status > worst ? status : worst;
    }
    free(with);
    return worst;
}

int heed_cli_check(int argc, char **argv)
{
    const char *only = value_of("--backend", argc, argv);
    heed_trials trials = {0};
    int faulted = 0, failed = HEED_EXIT_OK;
    if (runs_nothing(argc, argv))
        return heed_check_main(argc, argv);
    /* The suite runs in this process, so backends that crash have to be found and left out
     * before. */
    failed = heed_trials_run(only, value_of("--plugin-path", argc, argv), &trials);
    for (int i = 0; i < trials.n && !failed; i++)
        if (trials.result[i].faulted)
            faulted = heed_cli_fail(HEED_EXIT_FAILED, "%s: %s", trials.result[i].name,
                                    trials.result[i].why);
    if (!failed && !faulted)
        failed = heed_check_main(argc, argv);
    else if (!failed && !only)
        failed = check_others(&trials, argc, argv);
    heed_trials_free(&trials);
    return failed > faulted ? failed : faulted;
}
#else
int heed_cli_check(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return heed_cli_fail(HEED_EXIT_USAGE, "this build has no conformance suite");
}
#endif
