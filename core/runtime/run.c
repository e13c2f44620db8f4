/* Runs of any operation (run.h), and the public heed_run_part. */
#define _GNU_SOURCE
#include "run.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/reason.h"
#include "parallel.h"
#include "spare.h"

heed_status heed_check_workspace(const void *workspace, size_t bytes, heed_error *why)
{
    if (!workspace && bytes)
        INVALID("workspace is NULL, but has %zu bytes: without one bytes is 0", bytes);
    if ((uintptr_t)workspace % 64)
        INVALID("workspace is %p, an address aligned to 64 bytes is required", workspace);
    return HEED_OK;
}

/* ---- a run that was begun ---------------------------------------------------------------------
 */

void heed_run_failed(heed_run_head *head, heed_status status)
{
    if (head->user_error)
        *head->user_error = head->error;
    atomic_store_explicit(&head->status, status, memory_order_release);
}

heed_status heed_run_take(heed_run_head *head, uint32_t part)
{
    heed_fpenv saved = heed_fpenv_enter();
    head->operation->part(head, part);
    heed_fpenv_leave(saved);
    return atomic_load_explicit(&head->status, memory_order_acquire);
}

static void take(void *head, uint32_t part)
{
    heed_run_take(head, part);
    atomic_fetch_add_explicit(&((heed_run_head *)head)->n_ended, 1, memory_order_relaxed);
}

static heed_status start(const heed_operation *op, const void *of, const void *args,
                         uint32_t n_parts, void *workspace, heed_error *why)
{
    heed_run_head *head = workspace;
    head->magic = 0;
    heed_status st = op->begin(of, args, n_parts, workspace, why);
    if (st != HEED_OK)
        return st;
    head->operation = op;
    head->user_error = heed_read_args_head(args).error;
    head->hook = NULL;
    head->n_parts = n_parts;
    atomic_init(&head->n_ended, 0);
    atomic_init(&head->status, HEED_OK);
    atomic_init(&head->error_claimed, 0);
    head->error.text[0] = 0;
    head->magic = HEED_RUN_MAGIC;
    return HEED_OK;
}

heed_status heed_run_start(const heed_operation *op, const void *of, const void *args,
                           uint32_t n_parts, void *workspace, heed_error *why)
{
    heed_fpenv saved = heed_fpenv_enter();
    heed_status st = start(op, of, args, n_parts, workspace, why);
    heed_fpenv_leave(saved);
    return st;
}

/* A run that is to be done whole: heed_run_in. */
typedef struct whole {
    const heed_operation *op;
    heed_context *context;
    const void *of, *args;
    const heed_hook *hook;
    const heed_executor *executor;
} whole;

/* Begins a run and does all of it, on up to n_parts threads. A single part goes on in the
 * floating-point environment in which the run was begun: reading MXCSR twice more is 3 % of the
 * smallest call. */
static heed_status do_all(const whole *w, uint32_t n_parts, void *workspace, heed_error *why)
{
    heed_run_head *head = workspace;
    heed_fpenv saved = heed_fpenv_enter(); /* the host may not change the estimate either */
    heed_status st = start(w->op, w->of, w->args, n_parts, workspace, why);
    if (st == HEED_OK)
        head->n_parts = heed_parts_worth(head->estimate, heed_serial_limit(w->context, w->executor),
                                         head->n_tiles, n_parts);
    head->hook = w->hook;
    const int alone = st == HEED_OK && head->n_parts == 1;
    if (alone)
        w->op->part(head, 0);
    heed_fpenv_leave(saved); /* an executor's threads may do other work of the host's */
    if (st != HEED_OK)
        return st;
    if (!alone)
        heed_parallel(w->executor, head->n_parts, take, head);
    st = atomic_load(&head->status);
    if (st != HEED_OK)
        *why = head->error;
    else if (!alone && atomic_load(&head->n_ended) == 0) /* any one would have done everything */
        INVALID("executor.parallel_for ran none of %u parts", head->n_parts);
    return st;
}

/* Does a run, and logs a line about it if it could be begun. */
static heed_status run_verbosely(const whole *w, uint32_t n_parts, void *workspace, heed_error *why)
{
    const heed_run_head *head = workspace;
    const int64_t start = heed_now();
    heed_error text;
    heed_status st = do_all(w, n_parts, workspace, why);
    const int64_t took = heed_now() - start;
    if (head->magic == HEED_RUN_MAGIC) {
        w->op->describe(head, &text);
        heed_log(w->context, HEED_LOG_INFO, "run %s: %s, %u parts, %lld.%lld us", text.text,
                 heed_status_string(st), head->n_parts, (long long)took / 1000,
                 (long long)took / 100 % 10);
    }
    return st;
}

static heed_status run(const whole *w, uint32_t n_parts, void *workspace, heed_error *why)
{
    return w->context->verbose & HEED_VERBOSE_RUN ? run_verbosely(w, n_parts, workspace, why)
                                                  : do_all(w, n_parts, workspace, why);
}

/* Borrows a workspace for *n parts, or for fewer if there is no memory for so many: the results are
 * the same. */
static void *borrow(const heed_operation *op, heed_context *context, const void *of, uint32_t *n,
                    size_t *need, size_t *bytes)
{
    for (;; *n /= 2) {
        *need = op->bytes(of, *n);
        void *workspace = *need ? heed_spare_borrow(context, *need, bytes) : NULL;
        if (workspace || *n == 1)
            return workspace;
    }
}

heed_status heed_run_in(const heed_operation *op, heed_context *context, const void *of,
                        const void *args, const heed_hook *hook, void *workspace, size_t bytes,
                        heed_error *why)
{
    whole w = {op, context, of, args, hook, NULL};
    heed_executor copy;
    heed_status st =
        heed_executor_of(context, heed_read_args_head(args).executor, &copy, &w.executor, why);
    if (st != HEED_OK)
        return st;
    st = heed_check_workspace(workspace, bytes, why);
    if (st != HEED_OK)
        return st;
    uint32_t n = heed_threads_for(context, w.executor);
    if (workspace) {
        n = op->parts(of, bytes, n);
        if (n == 0)
            return heed_fail(why, HEED_ERR_NOMEM,
                             "workspace has %zu bytes, at least %zu are needed", bytes,
                             op->bytes(of, 1));
        return run(&w, n, workspace, why);
    }
    size_t need;
    workspace = borrow(op, context, of, &n, &need, &bytes);
    if (!workspace)
        return heed_fail(why, HEED_ERR_NOMEM, "no memory for a workspace of %zu bytes", need);
    st = run(&w, n, workspace, why);
    heed_spare_return(context, workspace, bytes);
    return st;
}

heed_status heed_run_whole(const heed_operation *op, heed_context *context, const void *of,
                           const void *args, void *workspace, size_t bytes)
{
    heed_error why;
    why.text[0] = 0;
    heed_status st = !of || !args
                         ? heed_fail(&why, HEED_ERR_INVALID, "%s is NULL", of ? "args" : op->name)
                         : heed_run_in(op, context, of, args, NULL, workspace, bytes, &why);
    return heed_report_call(args, st, &why);
}

static heed_status check_begin(const heed_operation *op, const void *of, const void *args,
                               uint32_t n_parts, void *workspace, size_t bytes, heed_error *why)
{
    if (!of || !args || !workspace)
        INVALID("%s is NULL", !of ? op->name : !args ? "args" : "workspace");
    heed_status st = heed_check_workspace(workspace, bytes, why);
    if (st != HEED_OK)
        return st;
    if (n_parts == 0)
        INVALID("n_parts is 0, at least 1 is required");
    if (op->parts(of, bytes, n_parts) < n_parts)
        return heed_fail(why, HEED_ERR_NOMEM, "workspace has %zu bytes, %u parts need %zu", bytes,
                         n_parts, op->bytes(of, n_parts));
    return HEED_OK;
}

heed_status heed_run_begin_by(const heed_operation *op, const void *of, const void *args,
                              uint32_t n_parts, void *workspace, size_t bytes)
{
    heed_error why;
    why.text[0] = 0;
    heed_status st = check_begin(op, of, args, n_parts, workspace, bytes, &why);
    if (st == HEED_OK)
        st = heed_run_start(op, of, args, n_parts, workspace, &why);
    else if (workspace && bytes >= sizeof(uint64_t))
        memset(workspace, 0, sizeof(uint64_t)); /* or parts would take an earlier run in it */
    return heed_report_call(args, st, &why);
}

heed_status heed_run_part(void *workspace, uint32_t part)
{
    heed_run_head *head = workspace;
    heed_error why;
    uint64_t magic = 0;
    if (workspace)
        memcpy(&magic, workspace, sizeof magic);
    if (magic != HEED_RUN_MAGIC)
        return heed_report(
            NULL, heed_fail(&why, HEED_ERR_INVALID, "workspace holds no run that was begun"), &why);
    if (part >= head->n_parts)
        return heed_report(NULL,
                           heed_fail(&why, HEED_ERR_INVALID, "part is %u, less than %u is required",
                                     part, head->n_parts),
                           &why);
    heed_status st = heed_run_take(head, part);
    return st == HEED_OK ? st : heed_report(NULL, st, &head->error);
}
