/* The heed command: runs a child process and reads what it writes. */
#define _POSIX_C_SOURCE 200809L

#include "child.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

enum { TIME_LIMIT = 60 };

const char *heed_signal_name(int number)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGILL, "SIGILL"},   {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"},
                 {SIGFPE, "SIGFPE"},   {SIGABRT, "SIGABRT"}, {SIGTRAP, "SIGTRAP"},
                 {SIGALRM, "SIGALRM"}, {SIGKILL, "SIGKILL"}, {SIGTERM, "SIGTERM"}};
    static char other[32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == number)
            return names[i].name;
    snprintf(other, sizeof other, "signal %d", number);
    return other;
}

static void child_main(int write_end, int (*body)(FILE *out, void *arg), void *arg)
{
    struct rlimit no_core = {0, 0};
    FILE *out = fdopen(write_end, "w");
    int status;
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(TIME_LIMIT);
    if (out) {
        status = body(out, arg);
        fclose(out);
    } else {
        status = heed_cli_fail(HEED_EXIT_FAILED, "no memory for a child process's output");
    }
    fflush(NULL);
    _exit(status); /* not exit(), which would run the exit handlers of the parent */
}

/* Reads everything up to the end of the file; NULL when memory runs out. */
static char *read_all(int read_end)
{
    size_t have = 0, room = 4096;
    char *text = malloc(room);
    while (text) {
        ssize_t got = read(read_end, text + have, room - have - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            text[have] = '\0';
            break;
        }
        have += (size_t)got;
        if (room - have < 2) {
            char *more = realloc(text, room *= 2);
            if (!more)
                free(text);
            text = more;
        }
    }
    return text;
}

static int no_child(void)
{
    return heed_cli_fail(HEED_EXIT_FAILED, "no child process could be made: %s", strerror(errno));
}

int heed_child_run(int (*body)(FILE *out, void *arg), void *arg, heed_child *child)
{
    int ends[2], status = 0;
    if (pipe(ends) != 0)
        return no_child();
    fflush(NULL); /* otherwise the child would print buffered output once more */
    pid_t pid = fork();
    if (pid < 0) {
        status = no_child();
        close(ends[0]);
        close(ends[1]);
        return status;
    }
    if (pid == 0) {
        close(ends[0]);
        child_main(ends[1], body, arg);
    }
    close(ends[1]);
    char *text = read_all(ends[0]);
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!text)
        return heed_cli_fail(HEED_EXIT_FAILED, "no memory for what a child process wrote");
    *child = (heed_child){.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                          .status = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                          .text = text};
    return HEED_EXIT_OK;
}
