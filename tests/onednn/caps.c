/* Several contexts in one process, each with its own cap. oneDNN's instruction set belongs to the
 * process and is fixed by the first context: a later context that allows less has to do without
 * oneDNN, and says why. */
#define _GNU_SOURCE /* unsetenv */
#include <heed/heed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77 };

/* What heed_context_backends says of a context with this cap. */
static const char *text_of(const char *max_isa)
{
    static char text[16384];
    const heed_context_options options = {.struct_size = sizeof options, .max_isa = max_isa};
    heed_context *context;
    size_t bytes = sizeof text;
    if (heed_context_create(&options, &context) != HEED_OK ||
        heed_context_backends(context, 0, text, &bytes) != HEED_OK) {
        printf("max_isa %s: %s\n", max_isa, heed_last_error());
        exit(1);
    }
    heed_context_release(context);
    return text;
}

static int expect(const char *when, const char *max_isa, const char *line)
{
    const char *text = text_of(max_isa);
    if (strstr(text, line))
        return 0;
    const char *found = strstr(text, "backend onednn");
    printf("%s: no '%s' but '%.*s'\n", when, line, found ? (int)strcspn(found, "\n") : 0, found);
    return 1;
}

/* In a process of its own, where oneDNN has not been used. */
static int in_child(int (*body)(void))
{
    int status = 1;
    pid_t child = fork();
    if (child == 0)
        exit(body());
    return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

static int high_first(void)
{
    return expect("no cap", "amx", "backend onednn: ") |
           expect("a lower cap behind it", "baseline",
                  "backend onednn cannot run here: oneDNN was used before in this process, with ") |
           expect("no cap again", "amx", "backend onednn: ");
}

static int low_first(void)
{
    return expect("a cap", "baseline", "backend onednn: ") |
           expect("no cap behind it", "amx", "which uses SSE41");
}

int main(void)
{
    unsetenv("ONEDNN_MAX_CPU_ISA");
    unsetenv("DNNL_MAX_CPU_ISA");
    pid_t child = fork(); /* in a child, since asking already uses oneDNN */
    if (child == 0)
        exit(strstr(text_of("amx"), " avx2") == NULL);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    if (status != 0)
        return SKIPPED; /* this CPU has nothing to cap */
    return in_child(high_first) | in_child(low_first);
}
