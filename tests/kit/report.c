/* What `heed check` prints. See report.h. */
#define _POSIX_C_SOURCE 200809L
#include "report.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void kit_report_case(kit_report *report, const char *name, const kit_outcome *outcome)
{
    if (outcome->verdict == KIT_PASSED) {
        report->n_passed++;
        if (!report->brief)
            printf("passed   %s\n", name);
        return;
    }
    if (outcome->verdict == KIT_FAILED) {
        report->n_failed++;
        printf("FAILED   %s\n         %s\n         again: --backend %s --filter %s --seed %llu\n",
               name, outcome->text, report->backend, name, (unsigned long long)report->seed);
        fflush(stdout);
        return;
    }
    report->n_refused++;
    if (!report->brief)
        printf("refused  %s\n", name);
    for (size_t n = 0; n < report->n_refusals; n++)
        if (strncmp(report->refusal[n].reason, outcome->text,
                    sizeof report->refusal[n].reason - 1) == 0) {
            report->refusal[n].n++;
            return;
        }
    kit_refusal *more = realloc(report->refusal, (report->n_refusals + 1) * sizeof *more);
    if (!more)
        return;
    report->refusal = more;
    more += report->n_refusals++;
    snprintf(more->reason, sizeof more->reason, "%.*s", (int)sizeof more->reason - 1,
             outcome->text);
    snprintf(more->first, sizeof more->first, "%s", name);
    more->n = 1;
}

void kit_report_trial(kit_report *report, const heed_trial_info *trial)
{
    report->n_failed++;
    printf("FAILED   trial of kernel %s%s, which no case can have run since\n         %s\n",
           trial->kernel, trial->linear ? " of linear layers" : "", trial->reason);
    fflush(stdout);
}

void kit_report_end(const kit_report *report)
{
    for (size_t n = 0; n < report->n_refusals; n++)
        printf("refused %u times, first %s: %s\n", report->refusal[n].n, report->refusal[n].first,
               report->refusal[n].reason);
    printf("%s: %u passed, %u refused, %u failed\n", report->backend, report->n_passed,
           report->n_refused, report->n_failed);
    fflush(stdout);
}

/* Written out beforehand, because a handler may do little more than write it. */
static char last_words[512];
static size_t last_length;

static void die(int signal_number)
{
    if (write(STDERR_FILENO, last_words, last_length) < 0)
        _exit(1);
    /* The handler was reset: the signal ends the process as it would have without us. */
    raise(signal_number);
}

void kit_report_crashes(void)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    struct sigaction action = {.sa_handler = die, .sa_flags = (int)SA_RESETHAND};
    for (size_t n = 0; n < sizeof fatal / sizeof *fatal; n++)
        sigaction(fatal[n], &action, NULL);
}

void kit_report_running(const char *backend, const char *name, uint64_t seed)
{
    int n = snprintf(last_words, sizeof last_words,
                     "CRASHED  %s\n         again: --backend %s --filter %s --seed %llu\n", name,
                     backend, name, (unsigned long long)seed);
    last_length = n < 0 ? 0 : (size_t)n < sizeof last_words ? (size_t)n : sizeof last_words - 1;
}
