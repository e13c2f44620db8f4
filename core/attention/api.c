/* The public calls, in the order in which they are used. No mathematics. */
#include <heed/heed.h>

#include "base/reason.h"
#include "execute.h"
#include "explain.h"
#include "planning.h"
#include "runtime/run.h"
#include "schedule.h"
#include "validate.h"

/* ---- plans ------------------------------------------------------------------------------------
 */

static heed_status read_desc(const heed_context *context, const heed_attn_desc *desc,
                             heed_attn_desc *read, heed_error *why)
{
    if (!context)
        INVALID("context is NULL");
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

heed_status heed_attn_create(heed_context *context, const heed_attn_desc *desc, heed_attn **out)
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

void heed_attn_retain(heed_attn *plan)
{
    atomic_fetch_add(&plan->cached.refs, 1);
    heed_context_hold(plan->context);
}

void heed_attn_release(heed_attn *plan)
{
    if (!plan)
        return;
    heed_context *context = plan->context;
    heed_cached_unref(&plan->cached);
    heed_context_release(context);
}

heed_status heed_attn_explain(const heed_attn *plan, uint32_t json, char *text, size_t *bytes)
{
    heed_error why = {""};
    heed_status st = plan && bytes
                         ? heed_explain_plan(plan, json != 0, text, bytes, &why)
                         : heed_fail(&why, HEED_ERR_INVALID, "%s is NULL", plan ? "bytes" : "plan");
    return heed_report(NULL, st, &why);
}

heed_status heed_attn_kernel_of(const heed_attn *plan, int64_t q_len, int64_t n_keys,
                                heed_kernel_info *out)
{
    heed_error why = {""};
    heed_status st = HEED_OK;
    if (!plan)
        st = heed_fail(&why, HEED_ERR_INVALID, "plan is NULL");
    else if (q_len < 0 || q_len > plan->desc.max_q_len || n_keys < 0)
        st = heed_fail(&why, HEED_ERR_INVALID,
                       "q_len is %lld and n_keys %lld, 0 to max_q_len = %lld and at least 0 are "
                       "required",
                       (long long)q_len, (long long)n_keys, (long long)plan->desc.max_q_len);
    else
        st = heed_tell_kernel(plan->class_plan[heed_class_index(plan, q_len, n_keys)].chosen, out,
                              &why);
    return heed_report(NULL, st, &why);
}

size_t heed_attn_workspace_bytes(const heed_attn *plan, uint32_t n_parts)
{
    return plan ? heed_workspace_bytes(plan, n_parts) : 0;
}

/* ---- runs -------------------------------------------------------------------------------------
 */

static void describe(const heed_run_head *head, heed_error *text)
{
    const heed_attn_run_state *run = (const heed_attn_run_state *)(const void *)head;
    snprintf(text->text, sizeof text->text, "batch %lld q_len %lld kv_len %lld",
             (long long)run->args.batch, (long long)run->args.q_len, (long long)run->args.kv_len);
}

HEED_CHECK_ARGS_HEAD(heed_attn_args);
const heed_operation heed_attn_operation = {
    .name = "plan",
    .bytes = heed_workspace_bytes,
    .parts = heed_workspace_parts,
    .begin = heed_attn_schedule,
    .part = heed_attn_part,
    .describe = describe,
};

heed_status heed_attn_run(const heed_attn *plan, const heed_attn_args *args, void *workspace,
                          size_t bytes)
{
    return heed_run_whole(&heed_attn_operation, plan ? plan->context : NULL, plan, args, workspace,
                          bytes);
}

heed_status heed_attn_begin(const heed_attn *plan, const heed_attn_args *args, uint32_t n_parts,
                            void *workspace, size_t bytes)
{
    return heed_run_begin_by(&heed_attn_operation, plan, args, n_parts, workspace, bytes);
}

/* ---- the simple call --------------------------------------------------------------------------
 */

heed_status heed_attention(heed_context *context, const heed_attn_desc *desc,
                           const heed_attn_args *args)
{
    heed_error why;
    heed_attn_desc d;
    heed_attn_args sizes; /* as far as kv_len */
    heed_attn *plan;
    why.text[0] = 0;
    heed_status st = args ? read_desc(context, desc, &d, &why)
                          : heed_fail(&why, HEED_ERR_INVALID, "args is NULL");
    if (st == HEED_OK)
        st = heed_read_head("args", args, sizeof *args, offsetof(heed_attn_args, q), &sizes, &why);
    if (st == HEED_OK)
        st = heed_validate_sizes(&sizes, &why); /* before they become a plan's */
    if (st != HEED_OK)
        return heed_report_call(args, st, &why);
    d.max_batch = heed_plan_room(sizes.batch);
    d.max_q_len = sizes.q_len > 1 ? heed_plan_room(sizes.q_len) : 1; /* no kernel of more */
    d.max_kv_len = heed_plan_room(sizes.kv_len);
    st = heed_plan_get(context, &d, &plan, &why);
    if (st == HEED_OK) {
        st = heed_run_in(&heed_attn_operation, context, plan, args, NULL, NULL, 0, &why);
        heed_attn_release(plan);
    }
    return heed_report_call(args, st, &why);
}
