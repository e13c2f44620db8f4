/* The heed command: computes attention on .npy files, shows what this machine can run, and runs the
 * conformance suite. */
#include "cli.h"

#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"run", heed_cli_run, "attention on .npy files"},
    {"info", heed_cli_info, "this machine, its backends, and which is chosen"},
    {"explain", heed_cli_explain, "which backend would run a problem, and why not the others"},
    {"check", heed_cli_check, "the conformance suite, on any backend or plugin"},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

static int print_help(void)
{
    printf("usage: heed COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("  %-10s%s\n", commands[i].name, commands[i].summary);
    printf("\nheed COMMAND --help lists a command's options; heed --version prints the version.\n\n"
           "Environment  HEED_BACKEND      a backend, or a list in order of preference\n"
           "             HEED_NUM_THREADS  threads of a run\n"
           "             HEED_MAX_ISA      baseline, avx2, avx512 or amx: play an older CPU\n"
           "             HEED_PLUGIN_PATH  absolute folders with backend plugins, ':' between\n"
           "             HEED_VERBOSE      plan, run or plan,run: a line each on stderr\n\n"
           "Exit status  0; 1 a run failed; 2 bad usage, files or shapes; 3 the backend refuses\n");
    return HEED_EXIT_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2)
        return heed_cli_fail(HEED_EXIT_USAGE, "a command is required; see heed help");
    const int is_version = strcmp(argv[1], "--version") == 0;
    const int is_help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
    if ((is_version || is_help) && argc > 2)
        return heed_cli_fail(HEED_EXIT_USAGE, "%s stands alone, but %s follows; see heed help",
                             argv[1], argv[2]);
    if (is_version) {
        uint32_t version = heed_version();
        printf("heed %u.%u.%u\n", version >> 16, version >> 8 & 255, version & 255);
        return HEED_EXIT_OK;
    }
    if (is_help)
        return print_help();
    if (strcmp(argv[1], "help") == 0) {
        char help[] = "--help", *show[] = {argv[2], help, NULL};
        for (size_t i = 0; argc == 3 && i < N_COMMANDS; i++)
            if (strcmp(argv[2], commands[i].name) == 0)
                return commands[i].run(2, show);
        if (argc > 3)
            return heed_cli_fail(HEED_EXIT_USAGE, "heed help takes one command; see heed help");
        return argc == 2 ? print_help()
                         : heed_cli_fail(HEED_EXIT_USAGE, "no help on %s; see heed help", argv[2]);
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return heed_cli_fail(HEED_EXIT_USAGE, "unknown command %s; see heed help", argv[1]);
}

int main(int argc, char **argv)
{
    int status = dispatch(argc, argv);
    /* The error of an earlier flush, of heed check after each case, stays with the stream alone. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == HEED_EXIT_OK)
        status = heed_cli_fail(HEED_EXIT_FAILED, "stdout cannot be written");
    return status;
}
