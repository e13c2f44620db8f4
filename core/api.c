/* The public calls, in the order in which they are used. No mathematics. */
#define _GNU_SOURCE
#include <heed/heed.h>
#include <time.h>

#include "execute.h"
#include "explain.h"
#include "parallel.h"
#include "reason.h"
#include "schedule.h"
#include "validate.h"

uint32_t heed_version(void)
{
    return HEED_VERSION_NUMBER;
}

/* ---- plans ------------------------------------------------------------------------------------
 */

static heed_status read_desc(const heed_context *context, const heed_attn_desc *desc,
                             heed_attn_desc *read, heed_error *why)
{
    if (!context)
        return heed_fail(why, HEED_ERR_INVALID, "context is NULL");
    return heed_read_struct("desc", desc, sizeof *read, read, why);
}

heed_status heed_attn_supported(heed_context *context, const heed_attn_desc *desc, heed_error *why)
{
    heed_attn_desc read;
    heed_error reason = {""};
    heed_status st = read_desc(context, desc, &read, &reason);
    if (st == HEED_OK)
        st = heed_plan_supported(context, &read, &reason);
    return heed_report(why, st, &reason);
}

heed_status heed_plan_create(heed_context *context, const heed_attn_desc *desc, heed_plan **out)
{
    heed_attn_desc read;
    heed_error why = {""};
    heed_status st = read_desc(context, desc, &read, &why);
    if (st == HEED_OK && !out)
        st = heed_fail(&why, HEED_ERR_INVALID, "out is NULL");
    if (st == HEED_OK)
        st = heed_plan_get(context, &read, out, &why);
    return heed_report(NULL, st, &why);
}

void heed_plan_release(heed_plan *plan)
{
    if (!plan)
        return;
    heed_context *context = plan->context;
    heed_plan_unref(plan);
    heed_context_release(context);
}

heed_status heed_plan_explain(const heed_plan *plan, uint32_t json, char *text, size_t *bytes)
{
    heed_error why = {""};
    heed_status st = plan && bytes
                         ? heed_explain_plan(plan, json != 0, text, bytes, &why)
                         : heed_fail(&why, HEED_ERR_INVALID, "%s is NULL", plan ? "bytes" : "plan");
    return heed_report(NULL, st, &why);
}

heed_status heed_context_backends(heed_context *context, uint32_t json, char *text, size_t *bytes)
{
    heed_error why = {""};
    heed_status st = context && bytes ? heed_explain_backends(context, json != 0, text, bytes, &why)
                                      : heed_fail(&why, HEED_ERR_INVALID, "%s is NULL",
                                                  context ? "bytes" : "context");
    return heed_report(NULL, st, &why);
}

size_t heed_plan_workspace_bytes(const heed_plan *plan, uint32_t n_parts)
{
    return plan ? heed_workspace_bytes(plan, n_parts) : 0;
}

/* ---- runs -------------------------------------------------------------------------------------
 */

static double microseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static heed_status run_in(const heed_plan *plan, const heed_attn_args *args,
                          const heed_executor *executor, uint32_t n_parts, void *workspace,
                          heed_error *why)
{
    heed_run *run;
    const int verbose = (plan->context->verbose & HEED_VERBOSE_RUN) != 0;
    double start = verbose ? microseconds() : 0;
    heed_status st = heed_schedule(plan, args, n_parts, workspace, &run, why);
    if (st != HEED_OK)
        return st;
    run->n_parts = heed_parts_worth(run->estimate, run->n_tiles, run->n_parts);
    st = heed_execute(run, executor);
    if (st != HEED_OK)
        *why = run->error;
    if (verbose)
        heed_log(plan->context, HEED_LOG_INFO,
                 "run batch %lld q_len %lld kv_len %lld: %s, %u parts, %.1f us",
                 (long long)run->args.batch, (long long)run->args.q_len,
                 (long long)run->args.kv_len, heed_status_string(st), run->n_parts,
                 microseconds() - start);
    return st;
}

/* Where a call's sentence goes; reads no further than an old caller's struct. */
static heed_error *error_of(const heed_attn_args *args)
{
    return args && args->struct_size >= offsetof(heed_attn_args, error) + sizeof args->error
               ? args->error
               : NULL;
}

static const heed_executor *executor_of(const heed_attn_args *args)
{
    return args->struct_size >= offsetof(heed_attn_args, executor) + sizeof args->executor
               ? args->executor
               : NULL;
}

static heed_status run_plan(const heed_plan *plan, const heed_attn_args *args, void *workspace,
                            size_t bytes, heed_error *why)
{
    heed_executor copy;
    heed_context *context = plan->context;
    const heed_executor *executor;
    heed_status st = heed_executor_of(context, executor_of(args), &copy, &executor, why);
    if (st != HEED_OK)
        return st;
    uint32_t n_threads = heed_threads_for(context, executor);
    if (workspace) {
        uint32_t n = heed_workspace_parts(plan, bytes, n_threads);
        if ((uintptr_t)workspace % 64)
            return heed_fail(why, HEED_ERR_INVALID,
                             "workspace is %p, an address aligned to 64 bytes is required",
                             workspace);
        if (n == 0)
            return heed_fail(why, HEED_ERR_NOMEM,
                             "workspace has %zu bytes, at least %zu are needed", bytes,
                             heed_workspace_bytes(plan, 1));
        return run_in(plan, args, executor, n, workspace, why);
    }
    size_t need = heed_workspace_bytes(plan, n_threads);
    if (!need)
        need = heed_workspace_bytes(plan, n_threads = 1);
    workspace = heed_workspace_borrow(context, need, &bytes);
    if (!workspace)
        return heed_fail(why, HEED_ERR_NOMEM, "no memory for a workspace of %zu bytes", need);
    st = run_in(plan, args, executor, n_threads, workspace, why);
    heed_workspace_return(context, workspace, bytes);
    return st;
}

heed_status heed_plan_run(const heed_plan *plan, const heed_attn_args *args, void *workspace,
                          size_t bytes)
{
    heed_error why;
    why.text[0] = 0;
    heed_status st = !plan || !args
                         ? heed_fail(&why, HEED_ERR_INVALID, "%s is NULL", plan ? "args" : "plan")
                         : run_plan(plan, args, workspace, bytes, &why);
    return heed_report(error_of(args), st, &why);
}

heed_status heed_run_begin(const heed_plan *plan, const heed_attn_args *args, uint32_t n_parts,
                           void *workspace, size_t bytes)
{
    heed_error why;
    heed_run *run;
    heed_status st = HEED_OK;
    why.text[0] = 0;
    if (!plan || !args || !workspace)
        st = heed_fail(&why, HEED_ERR_INVALID, "%s is NULL",
                       !plan   ? "plan"
                       : !args ? "args"
                               : "workspace");
    else if ((uintptr_t)workspace % 64)
        st = heed_fail(&why, HEED_ERR_INVALID,
                       "workspace is %p, an address aligned to 64 bytes is required", workspace);
    else if (n_parts == 0)
        st = heed_fail(&why, HEED_ERR_INVALID, "n_parts is 0, at least 1 is required");
    else if (heed_workspace_parts(plan, bytes, n_parts) < n_parts)
        st = heed_fail(&why, HEED_ERR_NOMEM, "workspace has %zu bytes, %u parts need %zu", bytes,
                       n_parts, heed_workspace_bytes(plan, n_parts));
    if (st == HEED_OK)
        st = heed_schedule(plan, args, n_parts, workspace, &run, &why);
    return heed_report(error_of(args), st, &why);
}

heed_status heed_run_part(void *workspace, uint32_t part)
{
    heed_run *run = workspace;
    heed_error why;
    if (!run || run->magic != HEED_RUN_MAGIC)
        return heed_report(
            NULL, heed_fail(&why, HEED_ERR_INVALID, "workspace holds no run that was begun"), &why);
    if (part >= run->n_parts)
        return heed_report(NULL,
                           heed_fail(&why, HEED_ERR_INVALID, "part is %u, less than %u is required",
                                     part, run->n_parts),
                           &why);
    return heed_report(NULL, heed_execute_part(run, part), &run->error);
}

/* ---- the simple call --------------------------------------------------------------------------
 */

/* A power of two, so that a growing cache does not ask for a plan per token. The maxima never
 * change a bit of the results. */
static int64_t roomy(int64_t length)
{
    int64_t room = 16;
    while (room < length && room < INT64_C(1) << 30)
        room *= 2;
    return room < length ? INT32_MAX : room;
}

heed_status heed_attention(heed_context *context, const heed_attn_desc *desc,
                           const heed_attn_args *args)
{
    heed_error why;
    heed_attn_desc d;
    heed_plan *plan;
    why.text[0] = 0;
    heed_status st = args ? read_desc(context, desc, &d, &why)
                          : heed_fail(&why, HEED_ERR_INVALID, "args is NULL");
    if (st != HEED_OK)
        return heed_report(error_of(args), st, &why);
    d.max_batch = roomy(args->batch);
    d.max_q_len = roomy(args->q_len);
    d.max_kv_len = roomy(args->kv_len);
    st = heed_plan_get(context, &d, &plan, &why);
    if (st == HEED_OK) {
        st = run_plan(plan, args, NULL, 0, &why);
        heed_plan_release(plan);
    }
    return heed_report(error_of(args), st, &why);
}
