/* Runs, whatever they compute: what a workspace starts with in which a run was begun, and the one
 * way to begin a run, to take part in it, to do all of it, and to fail. */
#ifndef HEED_CORE_RUN_H
#define HEED_CORE_RUN_H

#include "context.h"

typedef struct heed_operation heed_operation;

#define HEED_RUN_MAGIC UINT64_C(0x6865656472756e31) /* a run has been begun here */

/* Called between tiles of attention by the thread that does part 0, in the library's floating-point
 * environment. */
typedef struct heed_hook {
    void (*call)(void *user);
    void *user;
} heed_hook;

/* At the start of every workspace in which a run was begun. */
typedef struct heed_run_head {
    uint64_t magic;
    const heed_operation *operation;
    heed_error *user_error; /* the call's args.error; may be NULL */
    const heed_hook *hook;  /* NULL: none */
    double estimate;        /* nanoseconds of one core */
    int64_t n_tiles;        /* no more parts than this find work */
    uint32_t n_parts;
    atomic_uint n_ended; /* parts that an executor or OpenMP has run, once they are over */
    atomic_int status;   /* HEED_OK, or that of the first error, set after its sentence */
    atomic_int error_claimed;
    heed_error error;
} heed_run_head;

/* What can be run. Its object (a plan, a layer) is `of`; its args begin as heed_args_head does. */
struct heed_operation {
    const char *name;                                  /* of the object, in sentences */
    size_t (*bytes)(const void *of, uint32_t n_parts); /* of a workspace; 0 on overflow */
    uint32_t (*parts)(const void *of, size_t bytes, uint32_t limit); /* that fit bytes */
    /* Checks and copies the args, and writes what parts work by, including the head's estimate and
     * n_tiles. heed_run_start writes the rest of the head. */
    heed_status (*begin)(const void *of, const void *args, uint32_t n_parts, void *workspace,
                         heed_error *why);
    /* Takes work until there is none left or another part has failed. Called in the library's own
     * floating-point environment, whose flushing it may leave changed. */
    void (*part)(heed_run_head *head, uint32_t part);
    /* What a begun workspace computes, for HEED_VERBOSE. */
    void (*describe)(const heed_run_head *head, heed_error *text);
};

/* ---- of a run that was begun ------------------------------------------------------------------
 */

/* Has no part failed yet? */
static inline int heed_run_goes_on(const heed_run_head *head)
{
    return atomic_load_explicit(&head->status, memory_order_relaxed) == HEED_OK;
}

/* True for the first part that fails, which then writes head->error and calls heed_run_failed. */
static inline int heed_run_claims_error(heed_run_head *head)
{
    int none = 0;
    return atomic_compare_exchange_strong(&head->error_claimed, &none, 1);
}

/* Called after head->error was written: copies it to the caller's heed_error and tells all parts
 * the status. */
void heed_run_failed(heed_run_head *head, heed_status status);

/* Calls the operation's part. The first error of any part is returned by all parts
 * that end later. */
heed_status heed_run_take(heed_run_head *head, uint32_t part);

/* ---- beginning and running --------------------------------------------------------------------
 */

/* Begins a run in a workspace that has room for n_parts, whatever it contains. On failure `why`
 * holds the sentence. Sets the library's own floating-point environment meanwhile. */
heed_status heed_run_start(const heed_operation *op, const void *of, const void *args,
                           uint32_t n_parts, void *workspace, heed_error *why);

/* Checks that a workspace is aligned, and that one that is NULL is said to have no bytes: with any it
 * comes from an allocation that failed. */
heed_status heed_check_workspace(const void *workspace, size_t bytes, heed_error *why);

/* A run in the caller's workspace, or in one that the context lends. hook: NULL for none. */
heed_status heed_run_in(const heed_operation *op, heed_context *context, const void *of,
                        const void *args, const heed_hook *hook, void *workspace, size_t bytes,
                        heed_error *why);

/* The public calls: they check what the caller gives, NULL included, and report errors to him. */
heed_status heed_run_whole(const heed_operation *op, heed_context *context, const void *of,
                           const void *args, void *workspace, size_t bytes);
heed_status heed_run_begin_by(const heed_operation *op, const void *of, const void *args,
                              uint32_t n_parts, void *workspace, size_t bytes);

#endif
