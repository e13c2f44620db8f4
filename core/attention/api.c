/* The public calls, in the order in which they are used. No mathematics. */
#include <heed/heed.h>

#include "base/fpenv.h"
#include "base/reason.h"
#include "execute.h"
#include "explain.h"
#include "planning.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "schedule.h"
#include "validate.h"

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
    heed_cached_unref(&plan->cached);
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

size_t heed_plan_workspace_bytes(const heed_plan *plan, uint32_t n_parts)
{
    return plan ? heed_workspace_bytes(plan, n_parts) : 0;
}

/* ---- runs -------------------------------------------------------------------------------------
 */

static heed_status run_in(const void *of, const void *args, const heed_executor *executor,
                          uint32_t n_parts, void *workspace, heed_error *why)
{
    heed_run *run;
    heed_fpenv saved = heed_fpenv_enter();
    heed_status st = heed_schedule(of, args, n_parts, workspace, &run, why);
    if (st == HEED_OK)
        run->n_parts =
            heed_parts_worth(run->estimate, heed_serial_limit(run->plan->context, executor),
                             run->n_tiles, run->n_parts);
    heed_fpenv_leave(saved); /* an executor's threads may do other work of the host's */
    if (st != HEED_OK)
        return st;
    st = heed_execute(run, executor);
    if (st != HEED_OK)
        *why = run->error;
    return st;
}

static size_t plan_bytes(const void *of, uint32_t n_parts)
{
    return heed_workspace_bytes(of, n_parts);
}

static uint32_t plan_parts(const void *of, size_t bytes, uint32_t limit)
{
    return heed_workspace_parts(of, bytes, limit);
}

static heed_status begin(const void *of, const void *args, uint32_t n_parts, void *workspace,
                         heed_error *why)
{
    heed_run *run;
    return heed_schedule(of, args, n_parts, workspace, &run, why);
}

static heed_status part_of(void *workspace, uint32_t part)
{
    return heed_execute_part(workspace, part);
}

static void describe(const void *workspace, heed_error *text)
{
    const heed_run *run = workspace;
    snprintf(text->text, sizeof text->text, "batch %lld q_len %lld kv_len %lld",
             (long long)run->args.batch, (long long)run->args.q_len, (long long)run->args.kv_len);
}

static const heed_operation attention = {
    .name = "plan",
    .magic = HEED_RUN_MAGIC,
    .executor_at = offsetof(heed_attn_args, executor),
    .error_at = offsetof(heed_attn_args, error),
    .n_parts_at = offsetof(heed_run, n_parts),
    .begun_error_at = offsetof(heed_run, error),
    .bytes = plan_bytes,
    .parts = plan_parts,
    .begin = begin,
    .part = part_of,
    .run = run_in,
    .describe = describe,
};

heed_status heed_plan_run(const heed_plan *plan, const heed_attn_args *args, void *workspace,
                          size_t bytes)
{
    return heed_call_run(&attention, plan ? plan->context : NULL, plan, args, workspace, bytes);
}

heed_status heed_run_begin(const heed_plan *plan, const heed_attn_args *args, uint32_t n_parts,
                           void *workspace, size_t bytes)
{
    return heed_call_begin(&attention, plan, args, n_parts, workspace, bytes);
}

heed_status heed_run_part(void *workspace, uint32_t part)
{
    return heed_call_part(&attention, workspace, part);
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
    heed_attn_args sizes; /* as far as kv_len */
    heed_plan *plan;
    why.text[0] = 0;
    heed_status st = args ? read_desc(context, desc, &d, &why)
                          : heed_fail(&why, HEED_ERR_INVALID, "args is NULL");
    if (st == HEED_OK)
        st = heed_read_head("args", args, sizeof *args, offsetof(heed_attn_args, q), &sizes, &why);
    if (st == HEED_OK)
        st = heed_validate_sizes(&sizes, &why); /* before they become a plan's */
    if (st != HEED_OK)
        return heed_call_report(&attention, args, st, &why);
    d.max_batch = roomy(sizes.batch);
    d.max_q_len = roomy(sizes.q_len);
    d.max_kv_len = roomy(sizes.kv_len);
    st = heed_plan_get(context, &d, &plan, &why);
    if (st == HEED_OK) {
        st = heed_call_in(&attention, context, plan, args, NULL, 0, &why);
        heed_plan_release(plan);
    }
    return heed_call_report(&attention, args, st, &why);
}
