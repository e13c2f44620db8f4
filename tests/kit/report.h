/* What `heed check` prints: a line per case, the distinct refusals, a summary per backend. */
#ifndef KIT_REPORT_H
#define KIT_REPORT_H

#include "case.h"

typedef struct kit_refusal {
    char reason[256], first[120]; /* the first case that got it */
    uint32_t n;
} kit_refusal;

typedef struct kit_report {
    const char *backend;
    uint64_t seed;
    int brief; /* no lines for cases that passed or were refused */
    uint32_t n_passed, n_refused, n_failed;
    kit_refusal *refusal;
    size_t n_refusals;
} kit_report;

/** Notes one case. A failing one prints its name, what went wrong, and how to run it again. */
void kit_report_case(kit_report *report, const char *name, const kit_outcome *outcome);

/** Notes a kernel that failed its trial, so that it ran none of the cases. */
void kit_report_trial(kit_report *report, const heed_trial_info *trial);

/** Prints the refusals and "N passed, N refused, N failed". */
void kit_report_end(const kit_report *report);

/** From now on a fatal signal prints the name that kit_report_running was given last. */
void kit_report_crashes(void);
void kit_report_running(const char *backend, const char *name, uint64_t seed);

#endif
