/* The public calls of linear layers, in the order in which they are used. No mathematics. */
#include "linear.h"

#include "base/checked.h"
#include "base/compiler.h"
#include "base/fpenv.h"
#include "base/reason.h"
#include "explain.h"
#include "runtime/fork.h"
#include "select.h"

/* ---- layers -----------------------------------------------------------------------------------
 */

static heed_status read_desc(const heed_context *context, const heed_linear_desc *desc,
                             heed_linear_desc *read, heed_linear_problem *problem, heed_error *why)
{
    if (!context)
        INVALID("context is NULL");
    heed_status st = heed_read_struct("desc", desc, sizeof *read, read, why);
    return st == HEED_OK ? heed_linear_validate_desc(read, problem, why) : st;
}

static heed_status choose(heed_context *context, const heed_linear_problem *problem,
                          const heed_passed *passed, const heed_kernel **chosen, heed_error *why)
{
    heed_verdicts verdicts;
    const heed_fpenv saved = heed_fpenv_enter(); /* the host's rounding has no say */
    heed_context_lock(context);
    heed_status st = heed_select_linear(context, problem, passed, chosen, &verdicts, why);
    heed_context_unlock(context);
    heed_fpenv_leave(saved);
    return st;
}

heed_status heed_linear_supported(heed_context *context, const heed_linear_desc *desc,
                                  heed_error *why)
{
    heed_linear_desc read;
    heed_linear_problem problem;
    const heed_kernel *chosen;
    heed_error reason = {""};
    heed_status st = read_desc(context, desc, &read, &problem, &reason);
    if (st == HEED_OK)
        st = choose(context, &problem, NULL, &chosen, &reason);
    return heed_report(why, st, &reason);
}

const char *heed_linear_tiling_flaw(const heed_linear_tiling *t)
{
    return t->rows == 0 || t->rows > 1u << 20                ? "rows"
           : t->panel_cols == 0 || t->panel_cols > 1u << 20  ? "panel_cols"
           : t->cols == 0 || t->cols % t->panel_cols         ? "cols"
           : t->panel_bytes == 0 || t->panel_bytes % 64 != 0 ? "panel_bytes"
                                                             : NULL;
}

static heed_status cut_columns(heed_linear *l, heed_error *why)
{
    heed_linear_tiling *t = &l->tiling;
    *t = (heed_linear_tiling){.struct_size = sizeof *t};
    if (l->kernel->linear->tiling(l->kernel->machine, &l->problem, t) != HEED_OK)
        return heed_fail(why, HEED_ERR_BACKEND, "backend %s gave no tiling for a linear layer",
                         l->kernel->of->name);
    const char *flaw = heed_linear_tiling_flaw(t);
    if (flaw)
        return heed_fail(why, HEED_ERR_BACKEND,
                         "backend %s gave a tiling of a linear layer with a bad %s",
                         l->kernel->of->name, flaw);
    return HEED_OK;
}

/* Computes the sizes and allocates the memory for panels and bias. *little: so much should be there,
 * and another kernel, with other bits, should not take this one's place. */
static heed_status make_room(heed_context *context, heed_linear *l, int *little, heed_error *why)
{
    const heed_linear_problem *p = &l->problem;
    const heed_linear_tiling *t = &l->tiling;
    size_t panels, bias = 0;
    l->panels = (uint32_t)heed_ceil_div(p->out_dim, t->panel_cols);
    int bad = heed_mul_size(l->panels, t->panel_bytes, &panels);
    if (p->features & HEED_LINEAR_HAS_BIAS)
        bad |= heed_mul_size((size_t)l->panels * t->panel_cols, sizeof(float), &bias);
    bad |= heed_add_size(panels, bias, &l->bytes);
    bad |=
        heed_round_size(t->scratch_bytes ? t->scratch_bytes : 1, HEED_CACHE_LINES, &l->part_bytes);
    if (bad || l->bytes > PTRDIFF_MAX || !heed_linear_workspace_bytes(l, 1))
        return heed_fail(why, HEED_ERR_NOMEM,
                         "a linear layer of %u x %u elements exceeds the address space", p->in_dim,
                         p->out_dim);
    l->packed = heed_alloc(context, l->bytes,
                           l->bytes >= HEED_HUGE_PAGE ? HEED_HUGE_PAGE : HEED_CACHE_LINES);
    *little = !l->packed && l->bytes < HEED_MUCH_SCRATCH;
    if (!l->packed)
        return heed_fail(why, HEED_ERR_NOMEM, "no memory for %zu bytes of packed weights",
                         l->bytes);
    if (bias)
        l->bias = (const float *)(const void *)(l->packed + panels);
    return HEED_OK;
}

/* Makes what the kernel keeps for the layer. */
static heed_status make_state(heed_linear *l, heed_error *why)
{
    if (!HEED_KERNEL_HAS(l->kernel->linear, plan_create))
        return HEED_OK;
    heed_status st = l->kernel->linear->plan_create(l->kernel->machine, &l->problem, &l->state);
    if (st == HEED_OK)
        return HEED_OK;
    l->state = NULL;
    return heed_fail(why, st == HEED_ERR_NOMEM ? st : HEED_ERR_BACKEND,
                     "backend %s could not make a linear layer: %s", l->kernel->of->name,
                     heed_status_string(st));
}

static void drop_state(heed_linear *l)
{
    if (l->state)
        l->kernel->linear->plan_destroy(l->state);
    l->state = NULL;
}

/* Sets the layer up with the chosen kernel. After a failure it holds nothing. *little: of make_room. */
static heed_status set_up(heed_linear *l, const heed_linear_desc *desc,
                          const heed_const_view *weight, const heed_const_view *bias, int *little,
                          heed_error *why)
{
    const heed_fpenv saved = heed_fpenv_enter();
    heed_status st = cut_columns(l, why);
    if (st == HEED_OK)
        st = heed_scratch_exists(l->context, l->kernel, l->tiling.scratch_bytes, why);
    if (st == HEED_OK)
        st = make_room(l->context, l, little, why);
    if (st == HEED_OK)
        st = make_state(l, why);
    heed_fpenv_leave(saved); /* an executor's threads may do other work of the host's */
    if (st == HEED_OK)
        st = heed_linear_pack(l, desc, weight, bias, why);
    if (st != HEED_OK) {
        drop_state(l);
        heed_free(l->context, l->packed, l->bytes);
        l->packed = NULL;
        l->bias = NULL;
    }
    return st;
}

/* Sets the layer up with the best kernel that can be had. If none can, the error says what the first
 * lacked; if a little memory is all that one lacks, it says that. */
static heed_status fill(heed_linear *l, const heed_linear_desc *desc, const heed_const_view *weight,
                        const heed_const_view *bias, heed_error *why)
{
    heed_status first = HEED_OK;
    heed_error reason;
    for (;;) {
        reason.text[0] = 0;
        heed_status st = choose(l->context, &l->problem, l->passed, &l->kernel, &reason);
        const int none = st != HEED_OK;
        int little = 0;
        if (st == HEED_OK)
            st = set_up(l, desc, weight, bias, &little, &reason);
        if (st == HEED_OK)
            return st;
        if (first == HEED_OK || little) {
            first = st;
            *why = reason;
        }
        if (none || little)
            return first;
        if (heed_pass_over(l->context, &l->passed, l->kernel, &reason) != HEED_OK)
            return heed_fail(why, HEED_ERR_NOMEM, "no memory for a linear layer");
    }
}

static void destroy(heed_linear *l)
{
    drop_state(l);
    heed_passed_free(l->context, l->passed);
    heed_free(l->context, l->packed, l->bytes);
    heed_free(l->context, l, sizeof *l);
}

static heed_status create(heed_context *context, const heed_linear_desc *desc,
                          const heed_linear_problem *problem, const heed_const_view *weight,
                          const heed_const_view *bias, heed_linear **out, heed_error *why)
{
    heed_status st = heed_linear_validate_weights(desc, weight, bias, why);
    if (st != HEED_OK)
        return st;
    heed_linear *l = heed_alloc(context, sizeof *l, _Alignof(heed_linear));
    if (!l)
        return heed_fail(why, HEED_ERR_NOMEM, "no memory for a linear layer");
    memset(l, 0, sizeof *l);
    atomic_init(&l->refs, 1);
    l->context = context;
    l->problem = *problem;
    st = fill(l, desc, weight, bias, why);
    if (st != HEED_OK) {
        destroy(l);
        return st;
    }
    heed_context_hold(context);
    if (context->verbose & HEED_VERBOSE_PLAN)
        heed_log(context, HEED_LOG_INFO, "linear in %u out %u %s: %s %s", problem->in_dim,
                 problem->out_dim, heed_dtype_name(problem->w_type), l->kernel->of->name,
                 l->kernel->name);
    *out = l;
    return HEED_OK;
}

heed_status heed_linear_create(heed_context *context, const heed_linear_desc *desc,
                               const heed_const_view *weight, const heed_const_view *bias,
                               heed_linear **out)
{
    heed_linear_desc read;
    heed_linear_problem problem;
    heed_error why = {""};
    heed_status st = read_desc(context, desc, &read, &problem, &why);
    if (st == HEED_OK && !out)
        st = heed_fail(&why, HEED_ERR_INVALID, "out is NULL");
    if (st == HEED_OK)
        st = create(context, &read, &problem, weight, bias, out, &why);
    return heed_report(NULL, st, &why);
}

void heed_linear_retain(heed_linear *linear)
{
    atomic_fetch_add(&linear->refs, 1);
}

void heed_linear_release(heed_linear *linear)
{
    if (!linear || atomic_fetch_sub(&linear->refs, 1) != 1)
        return;
    heed_context *context = linear->context;
    destroy(linear);
    heed_context_release(context);
}

heed_status heed_linear_explain(const heed_linear *linear, uint32_t json, char *text, size_t *bytes)
{
    heed_error why = {""};
    heed_status st = linear && bytes ? heed_explain_linear(linear, json != 0, text, bytes, &why)
                                     : heed_fail(&why, HEED_ERR_INVALID, "%s is NULL",
                                                 linear ? "bytes" : "linear");
    return heed_report(NULL, st, &why);
}

heed_status heed_linear_kernel_of(const heed_linear *linear, heed_kernel_info *out)
{
    heed_error why = {""};
    heed_status st = linear ? heed_tell_kernel(linear->kernel, out, &why)
                            : heed_fail(&why, HEED_ERR_INVALID, "linear is NULL");
    return heed_report(NULL, st, &why);
}

/* ---- runs -------------------------------------------------------------------------------------
 */

static size_t bytes_of(const void *of, uint32_t n_parts)
{
    return heed_linear_workspace_bytes(of, n_parts);
}

static void describe(const heed_run_head *head, heed_error *text)
{
    const heed_linear_run_state *run = (const heed_linear_run_state *)(const void *)head;
    const heed_linear_problem *p = &run->linear->problem;
    snprintf(text->text, sizeof text->text, "linear rows %lld in %u out %u",
             (long long)run->args.rows, p->in_dim, p->out_dim);
}

HEED_CHECK_ARGS_HEAD(heed_linear_args);
const heed_operation heed_linear_operation = {
    .name = "linear",
    .bytes = bytes_of,
    .parts = heed_linear_workspace_parts,
    .begin = heed_linear_schedule,
    .part = heed_linear_take,
    .describe = describe,
};

heed_status heed_linear_run(const heed_linear *linear, const heed_linear_args *args,
                            void *workspace, size_t bytes)
{
    return heed_run_whole(&heed_linear_operation, linear ? linear->context : NULL, linear, args,
                          workspace, bytes);
}

heed_status heed_linear_begin(const heed_linear *linear, const heed_linear_args *args,
                              uint32_t n_parts, void *workspace, size_t bytes)
{
    return heed_run_begin_by(&heed_linear_operation, linear, args, n_parts, workspace, bytes);
}
