/* The heed command: parses arguments, and prints messages about them. */
#include "cli.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int heed_cli_fail(int status, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ')
            *at = ' ';
    fprintf(stderr, "heed: %s\n", text);
    return status;
}

const heed_cli_option *heed_cli_option_of(const heed_cli_option *options, const char *name)
{
    while (options->name && strcmp(options->name, name) != 0)
        options++;
    assert(options->name);
    return options;
}

int heed_cli_given(const heed_cli_option *options, const char *name)
{
    return heed_cli_option_of(options, name)->given;
}

const char *heed_cli_value(const heed_cli_option *options, const char *name)
{
    return heed_cli_option_of(options, name)->value;
}

int heed_cli_integer(const char *text, int64_t least, int64_t most, int64_t *value)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno == ERANGE || number < least || number > most)
        return 0;
    *value = number;
    return 1;
}

static void print_help(const char *usage, const heed_cli_option *options)
{
    printf("usage: %s\n\n", usage);
    for (; options->name; options++) {
        const char *help = options->help;
        int width = printf("  --%s%s%s%s", options->name,
                           options->kind == HEED_CLI_MAYBE ? "[=" : (options->values ? " " : ""),
                           options->values ? options->values : "",
                           options->kind == HEED_CLI_MAYBE ? "]" : "");
        if (width >= 27) /* less than the two spaces that separate an option from its text */
            printf("\n%28s", "");
        else
            printf("%*s", 28 - width, "");
        for (; *help; help++) {
            putchar(*help);
            if (*help == '\n')
                printf("%28s", "");
        }
        putchar('\n');
    }
}

/* The option that an argument names, up to its end or to a '='; NULL if there is none. */
static heed_cli_option *named(heed_cli_option *options, const char *argument)
{
    size_t length = strcspn(argument + 2, "=");
    for (; options->name; options++)
        if (strlen(options->name) == length && memcmp(options->name, argument + 2, length) == 0)
            return options;
    return NULL;
}

/* Takes the values of an option: the one after the '=' of its argument, then those in the next
 * arguments. Returns how many arguments it used, or -1 after a line on stderr. */
static int take_values(heed_cli_option *option, const char *attached, int argc, char **argv)
{
    int wanted = option->kind == HEED_CLI_PAIR ? 2 : option->kind == HEED_CLI_VALUE ? 1 : 0;
    int used = 0;
    if (attached && option->kind == HEED_CLI_FLAG) {
        heed_cli_fail(HEED_EXIT_USAGE, "--%s takes no value", option->name);
        return -1;
    }
    if (!attached && wanted > 0 && argc > 0)
        attached = argv[used++];
    option->value = attached;
    if (wanted == 2 && used < argc)
        option->second = argv[used++];
    if ((wanted > 0 && !option->value) || (wanted == 2 && !option->second)) {
        heed_cli_fail(HEED_EXIT_USAGE, "--%s needs %s", option->name, option->values);
        return -1;
    }
    return used;
}

int heed_cli_parse(const char *command, const char *usage, heed_cli_option *options, int argc,
                   char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(usage, options);
            return HEED_EXIT_HELP;
        }
        if (strncmp(argv[i], "--", 2) != 0)
            return heed_cli_fail(HEED_EXIT_USAGE, "'%s' is not an option; see %s --help", argv[i],
                                 command);
        heed_cli_option *option = named(options, argv[i]);
        if (!option)
            return heed_cli_fail(HEED_EXIT_USAGE, "unknown option %s; see %s --help", argv[i],
                                 command);
        if (option->given++)
            return heed_cli_fail(HEED_EXIT_USAGE, "--%s is given twice", option->name);
        const char *equals = strchr(argv[i], '=');
        int used = take_values(option, equals ? equals + 1 : NULL, argc - i - 1, argv + i + 1);
        if (used < 0)
            return HEED_EXIT_USAGE;
        i += used;
    }
    return HEED_EXIT_OK;
}
