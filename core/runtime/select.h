/* Which backend does something, and why not the others. */
#ifndef HEED_CORE_SELECT_H
#define HEED_CORE_SELECT_H

#include "context.h"

/* What selection says of one backend. */
typedef struct heed_verdict {
    const char *name;
    int can; /* it could do it */
    int chosen;
    double cost;    /* nanoseconds; 0 unless it can */
    heed_error why; /* the one condition that excluded it; "" when chosen */
} heed_verdict;

/* A backend that was chosen for a plan or a layer and then could not be had: there was no memory for
 * what it wants, or it made no plan. The next one was taken. */
typedef struct heed_passed {
    struct heed_passed *next;
    const heed_backend *backend;
    heed_error why;
} heed_passed;

/* Adds one to a list that selection is asked again with. */
heed_status heed_pass_over(heed_context *context, heed_passed **list, const heed_backend *backend,
                           const heed_error *why);
void heed_passed_free(heed_context *context, heed_passed *list);

/* Scratch of so many bytes is asked for, and given back, before a backend is settled on: less there
 * always is. */
#define HEED_MUCH_SCRATCH ((size_t)1 << 30)

/* Whether a backend's scratch could be had when a run needs it. */
heed_status heed_scratch_exists(heed_context *context, const heed_backend *backend, size_t bytes,
                                heed_error *why);

/* What a backend is chosen for. */
typedef struct heed_question {
    /* Can this backend do it? Its refusal is one condition. */
    heed_status (*consider)(heed_context *context, heed_entry *entry, const void *of,
                            heed_error *why);
    double (*cost)(const heed_backend *backend, const void *of); /* nanoseconds */
    const void *of;                                              /* the problem */
    const char *what;                                            /* it is, in a sentence */
    const heed_passed *passed;                                   /* refused for the reason there */
} heed_question;

/* Chooses a backend. verdict receives one per entry of the registry. On failure `why` says which
 * backends refused and for what. Under the context's lock, because it may try backends out. */
heed_status heed_choose(heed_context *context, const heed_question *question,
                        const heed_backend **chosen, heed_verdict verdict[HEED_MAX_BACKENDS],
                        heed_error *why);

/* The refusal of a backend that wrote its reason to `why`; one that gave none is said to have none. */
heed_status heed_refused(heed_error *why);

#endif
