/* Which kernel does something, and why not the others. */
#ifndef HEED_CORE_SELECT_H
#define HEED_CORE_SELECT_H

#include "context.h"

/* What selection says of one kernel, or of a backend that cannot run or has no
 * kernel of the kind. */
typedef struct heed_verdict {
    const heed_entry *entry;
    const heed_kernel *kernel; /* NULL: all that the entry has */
    int can;                   /* it could do it */
    int chosen;
    double cost;    /* nanoseconds; 0 unless it can */
    heed_error why; /* the one condition that excluded it; "" when chosen */
} heed_verdict;

typedef struct heed_verdicts {
    uint32_t n;
    heed_verdict of[HEED_MAX_BACKENDS + HEED_MAX_KERNELS];
} heed_verdicts;

/* A kernel that was chosen for a plan or a layer and then could not be had: there was no memory for
 * what it wants, or it made no plan. The next one was taken. */
typedef struct heed_passed {
    struct heed_passed *next;
    const heed_kernel *kernel;
    heed_error why;
} heed_passed;

/* Adds a kernel to the list that the next selection passes over. */
heed_status heed_pass_over(heed_context *context, heed_passed **list, const heed_kernel *kernel,
                           const heed_error *why);
void heed_passed_free(heed_context *context, heed_passed *list);

/* So much scratch or more is allocated once and freed again, before a kernel is settled on, and a
 * kernel for which there is not so much is passed over. Less is taken to be there always: where it is
 * not, nothing is made, since another kernel gives other bits. */
#define HEED_MUCH_SCRATCH ((size_t)1 << 30)

/* Checks that a kernel's scratch can be had when a run needs it, if it is much. */
heed_status heed_scratch_exists(heed_context *context, const heed_kernel *kernel, size_t bytes,
                                heed_error *why);

/* What a kernel is chosen for. */
typedef struct heed_question {
    int linear; /* kernels of linear layers are asked, else those of attention */
    /* Can this kernel do it? Its refusal is one condition. */
    heed_status (*consider)(heed_context *context, heed_kernel *kernel, const void *of,
                            heed_error *why);
    double (*cost)(const heed_kernel *kernel, const void *of); /* nanoseconds */
    const void *of;                                            /* the problem */
    const char *what;                                          /* its name in sentences */
    const char *sample; /* what costs are of, whatever lengths the problem has; in sentences */
    const heed_passed *passed;                                 /* kernels to refuse, and why */
} heed_question;

/* Chooses a kernel. On failure `why` says which refused and for what. Under the context's lock, because
 * it may try kernels out. */
heed_status heed_choose(heed_context *context, const heed_question *question,
                        const heed_kernel **chosen, heed_verdicts *verdicts, heed_error *why);

/* Fills *out for heed_attn_kernel_of and heed_linear_kernel_of. */
heed_status heed_tell_kernel(const heed_kernel *kernel, heed_kernel_info *out, heed_error *why);

/* The place of a backend in a user's list: 0 is the first; -1 if it is not permitted. Without a list all
 * places are equal. */
int heed_place_in_list(const char *list, const char *name);

/* What comes of the status, other than HEED_OK, with which a kernel's `supports` returned. A refusal that
 * wrote no reason to `why` gets one that says so. HEED_ERR_NOMEM is no refusal. */
heed_status heed_refused(const heed_kernel *kernel, heed_status status, heed_error *why);

#endif
