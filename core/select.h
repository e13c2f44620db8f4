/* Which backend runs a problem, and why not the others. */
#ifndef HEED_CORE_SELECT_H
#define HEED_CORE_SELECT_H

#include "context.h"

/* What selection says of one backend. */
typedef struct heed_verdict {
    const char *name;
    int can; /* it could run the problem */
    int chosen;
    double cost;    /* nanoseconds at the class's fixed lengths; 0 unless it can */
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

/* The lengths at which costs are compared: fixed per query class, never the plan's maxima. */
extern const int64_t heed_class_q_len[3], heed_class_kv_len[3];

/* Chooses a backend for the problem (whose query_class is set). verdict receives one per entry of
 * the registry. Those in `passed` are refused for the reason there. On failure `why` says which
 * backends refused and for what. Under the context's lock, because it may try backends out. */
heed_status heed_select(heed_context *context, const heed_problem *problem,
                        const heed_passed *passed, const heed_backend **chosen,
                        heed_verdict verdict[HEED_MAX_BACKENDS], heed_error *why);

/* The rows at which the costs of linear layers are compared. One backend serves every call, because
 * the bits of a row may not depend on how many there are. */
#define HEED_LINEAR_COST_ROWS 128

/* The same for a linear layer. */
heed_status heed_select_linear(heed_context *context, const heed_linear_problem *problem,
                               const heed_passed *passed, const heed_backend **chosen,
                               heed_verdict verdict[HEED_MAX_BACKENDS], heed_error *why);

#endif
