/* The public calls of attention layers, in the order in which they are used. No mathematics. */
#include "mha.h"

#include "explain.h"
#include "parallel.h"
#include "reason.h"

/* ---- layers -----------------------------------------------------------------------------------
 */

static heed_linear *const *parts_of(const heed_mha_desc *desc)
{
    return &desc->q_proj; /* six pointers to out_proj */
}
enum { PARTS = 6 };
_Static_assert(offsetof(heed_mha_desc, out_proj) ==
                   offsetof(heed_mha_desc, q_proj) + (PARTS - 1) * sizeof(heed_linear *),
               "the projections follow each other");

static void destroy(heed_mha *m)
{
    for (int i = 0; i < PARTS; i++)
        heed_linear_release(parts_of(&m->desc)[i]);
    heed_plan_release(m->plan);
    heed_free(m->context, m->freq, m->freq_bytes);
    heed_free(m->context, m, sizeof *m);
}

static heed_status copy_frequencies(heed_mha *m, heed_error *why)
{
    if (!m->desc.rotary.freq)
        return HEED_OK;
    m->freq_bytes = m->desc.rotary.dims / 2 * sizeof(float);
    m->freq = heed_alloc(m->context, m->freq_bytes, _Alignof(float));
    if (!m->freq)
        return heed_fail(why, HEED_ERR_NOMEM, "no memory for rotary frequencies");
    memcpy(m->freq, m->desc.rotary.freq, m->freq_bytes);
    m->desc.rotary.freq = m->freq;
    return HEED_OK;
}

static heed_status create(heed_context *context, const heed_mha_desc *desc, heed_mha **out,
                          heed_error *why)
{
    heed_attn_desc plan_desc;
    heed_mha *m = heed_alloc(context, sizeof *m, _Alignof(heed_mha));
    if (!m)
        return heed_fail(why, HEED_ERR_NOMEM, "no memory for a layer");
    memset(m, 0, sizeof *m);
    atomic_init(&m->refs, 1);
    m->context = context;
    heed_status st = heed_read_struct("desc", desc, sizeof m->desc, &m->desc, why);
    for (int i = 0; st == HEED_OK && i < PARTS; i++)
        if (parts_of(&m->desc)[i])
            heed_linear_retain(parts_of(&m->desc)[i]);
    if (st == HEED_OK)
        st = heed_read_struct("desc.attn", m->desc.attn, sizeof m->attn, &m->attn, why);
    if (st == HEED_OK) {
        m->desc.attn = &m->attn;
        st = heed_mha_resolve(m, &plan_desc, why);
    }
    if (st == HEED_OK)
        st = copy_frequencies(m, why);
    if (st == HEED_OK)
        st = heed_plan_get(context, &plan_desc, &m->plan, why);
    if (st == HEED_OK)
        st = heed_mha_lay_out(m, why);
    if (st != HEED_OK) {
        destroy(m);
        return st;
    }
    heed_context_hold(context);
    *out = m;
    return HEED_OK;
}

heed_status heed_mha_create(heed_context *context, const heed_mha_desc *desc, heed_mha **out)
{
    heed_error why = {""};
    heed_status st = !context || !out ? heed_fail(&why, HEED_ERR_INVALID, "%s is NULL",
                                                  context ? "out" : "context")
                                      : create(context, desc, out, &why);
    return heed_report(NULL, st, &why);
}

void heed_mha_retain(heed_mha *mha)
{
    atomic_fetch_add(&mha->refs, 1);
}

void heed_mha_release(heed_mha *mha)
{
    if (!mha || atomic_fetch_sub(&mha->refs, 1) != 1)
        return;
    heed_context *context = mha->context;
    destroy(mha);
    heed_context_release(context);
}

heed_status heed_mha_explain(const heed_mha *mha, uint32_t json, char *text, size_t *bytes)
{
    heed_error why = {""};
    heed_status st = mha && bytes
                         ? heed_explain_mha(mha, json != 0, text, bytes, &why)
                         : heed_fail(&why, HEED_ERR_INVALID, "%s is NULL", mha ? "bytes" : "mha");
    return heed_report(NULL, st, &why);
}

size_t heed_mha_workspace_bytes(const heed_mha *mha, uint32_t n_parts)
{
    return mha ? heed_mha_bytes(mha, n_parts) : 0;
}

/* ---- runs -------------------------------------------------------------------------------------
 */

static heed_error *error_of(const heed_mha_args *args)
{
    return args && args->struct_size >= offsetof(heed_mha_args, error) + sizeof args->error
               ? args->error
               : NULL;
}

static const heed_executor *executor_of(const heed_mha_args *args)
{
    return args->struct_size >= offsetof(heed_mha_args, executor) + sizeof args->executor
               ? args->executor
               : NULL;
}

static heed_status check_workspace(const heed_mha *mha, const void *workspace, size_t bytes,
                                   uint32_t n_parts, heed_error *why)
{
    const size_t need = heed_mha_bytes(mha, n_parts);
    if ((uintptr_t)workspace % 64)
        return heed_fail(why, HEED_ERR_INVALID,
                         "workspace is %p, an address aligned to 64 bytes is required", workspace);
    if (need == 0 || bytes < need)
        return heed_fail(why, HEED_ERR_NOMEM, "workspace has %zu bytes, %u parts need %zu", bytes,
                         n_parts, need);
    return HEED_OK;
}

static void run_part(void *run, uint32_t part)
{
    heed_mha_execute_part(run, part);
}

static heed_status run_in(const heed_mha *mha, const heed_mha_args *args,
                          const heed_executor *executor, uint32_t n_parts, void *workspace,
                          heed_error *why)
{
    heed_mha_run_state *run;
    heed_status st = heed_mha_schedule(mha, args, n_parts, workspace, &run, why);
    if (st != HEED_OK)
        return st;
    heed_parallel(executor, heed_parts_worth(run->estimate, INT64_MAX, n_parts), run_part, run);
    st = atomic_load(&run->status);
    if (st != HEED_OK)
        *why = run->error;
    return st;
}

static heed_status run_mha(const heed_mha *mha, const heed_mha_args *args, void *workspace,
                           size_t bytes, heed_error *why)
{
    heed_executor copy;
    heed_context *context = mha->context;
    const heed_executor *executor;
    heed_status st = heed_executor_of(context, executor_of(args), &copy, &executor, why);
    if (st != HEED_OK)
        return st;
    uint32_t n = heed_threads_for(context, executor);
    if (workspace) {
        st = check_workspace(mha, workspace, bytes, 1, why);
        while (n > 1 && (!heed_mha_bytes(mha, n) || heed_mha_bytes(mha, n) > bytes))
            n--;
        return st == HEED_OK ? run_in(mha, args, executor, n, workspace, why) : st;
    }
    size_t need = heed_mha_bytes(mha, n);
    if (!need)
        need = heed_mha_bytes(mha, n = 1);
    workspace = heed_workspace_borrow(context, need, &bytes);
    if (!workspace)
        return heed_fail(why, HEED_ERR_NOMEM, "no memory for a workspace of %zu bytes", need);
    st = run_in(mha, args, executor, n, workspace, why);
    heed_workspace_return(context, workspace, bytes);
    return st;
}

heed_status heed_mha_run(const heed_mha *mha, const heed_mha_args *args, void *workspace,
                         size_t bytes)
{
    heed_error why;
    why.text[0] = 0;
    heed_status st = !mha || !args
                         ? heed_fail(&why, HEED_ERR_INVALID, "%s is NULL", mha ? "args" : "mha")
                         : run_mha(mha, args, workspace, bytes, &why);
    return heed_report(error_of(args), st, &why);
}

heed_status heed_mha_begin(const heed_mha *mha, const heed_mha_args *args, uint32_t n_parts,
                           void *workspace, size_t bytes)
{
    heed_error why;
    heed_mha_run_state *run;
    heed_status st = HEED_OK;
    why.text[0] = 0;
    if (!mha || !args || !workspace)
        st = heed_fail(&why, HEED_ERR_INVALID, "%s is NULL",
                       !mha    ? "mha"
                       : !args ? "args"
                               : "workspace");
    else if (n_parts == 0)
        st = heed_fail(&why, HEED_ERR_INVALID, "n_parts is 0, at least 1 is required");
    else
        st = check_workspace(mha, workspace, bytes, n_parts, &why);
    if (st == HEED_OK)
        st = heed_mha_schedule(mha, args, n_parts, workspace, &run, &why);
    return heed_report(error_of(args), st, &why);
}

heed_status heed_mha_part(void *workspace, uint32_t part)
{
    heed_mha_run_state *run = workspace;
    heed_error why;
    if (!run || run->magic != HEED_MHA_RUN_MAGIC)
        return heed_report(
            NULL, heed_fail(&why, HEED_ERR_INVALID, "workspace holds no run that was begun"), &why);
    if (part >= run->n_parts)
        return heed_report(NULL,
                           heed_fail(&why, HEED_ERR_INVALID, "part is %u, less than %u is required",
                                     part, run->n_parts),
                           &why);
    return heed_report(NULL, heed_mha_execute_part(run, part), &run->error);
}
