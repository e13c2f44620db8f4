/* What a caller may get wrong: each mistake has to come back with its status, a sentence that names
 * the argument, and untouched outputs, whichever call meets it first. errors_desc.c and
 * errors_args.c list the mistakes. */
#include "errors.h"

#include <heed/formats.h>

#include "cases.h"
#include "errors_table.h"
#include "run.h"

#include <stdio.h>

static int is_empty(const kit_problem *p)
{
    return p->args.batch == 0 || p->args.q_len == 0 || p->args.kv_len == 0;
}

static const kit_mistake *mistake(size_t which)
{
    return which < kit_n_desc_mistakes ? &kit_desc_mistakes[which]
                                       : &kit_args_mistakes[which - kit_n_desc_mistakes];
}

size_t kit_mistakes(void)
{
    return kit_n_desc_mistakes + kit_n_args_mistakes;
}

/* ---- what comes back ------------------------------------------------------------------------- */

/* Checks that a call failed with the mistake's status and reason, and left the outputs alone. */
static void judge(const kit_mistake *m, const char *word, kit_problem *p, const char *call,
                  heed_status status, const char *sentence, kit_outcome *outcome)
{
    kit_judge_refusal(m, word, call, status, sentence, outcome);
    for (int t = KIT_OUT; t < KIT_TENSORS; t++)
        if ((t == KIT_OUT || t >= KIT_LSE) && !kit_is_canary(&p->buffer[t]))
            kit_fail(outcome, "%s: %s failed and yet wrote to an output", m->name, call);
}

static void spoiled_desc(heed_context *context, const kit_mistake *m, const char *word,
                         kit_problem *p, kit_outcome *outcome)
{
    heed_error why = {""};
    heed_attn *plan = NULL;
    judge(m, word, p, "heed_attn_create", heed_attn_create(context, &p->desc, &plan),
          heed_last_error(), outcome);
    if (plan)
        kit_fail(outcome, "%s: heed_attn_create failed and yet gave a plan", m->name);
    heed_status status = heed_attn_supported(context, &p->desc, &why);
    judge(m, word, p, "heed_attn_supported", status, why.text, outcome);
    if (m->where == IN_DESC_AT_PLAN)
        return;
    p->args.error = &why;
    why.text[0] = '\0';
    status = heed_attention(context, &p->desc, &p->args);
    judge(m, word, p, "heed_attention", status, why.text, outcome);
}

static void spoiled_args(heed_context *context, const kit_mistake *m, const char *word,
                         const heed_attn *plan, kit_problem *p, kit_outcome *outcome)
{
    heed_error why = {""};
    guard_buffer workspace = {0};
    heed_status status;
    if (m->where != IN_CALL)
        judge(m, word, p, "heed_attn_run", heed_attn_run(plan, &p->args, NULL, 0),
              heed_last_error(), outcome);
    size_t bytes = (heed_attn_workspace_bytes(plan, 2) + 63) / 64 * 64;
    if (m->where != IN_RUN && m->where != IN_CALL &&
        guard_map(&workspace, bytes, GUARD_HIGH, 0, 0xff) == 0) {
        p->args.error = &why;
        status = heed_attn_begin(plan, &p->args, 2, workspace.data, bytes);
        /* args of an unknown size: where its `error` is cannot be known either. */
        judge(m, word, p, "heed_attn_begin", status,
              m->status == HEED_ERR_ABI ? heed_last_error() : why.text, outcome);
        if (status != HEED_OK && heed_run_part(workspace.data, 0) == HEED_OK)
            kit_fail(outcome, "%s: heed_run_part succeeds on a run that did not begin", m->name);
        guard_unmap(&workspace);
    }
    if (m->where != IN_ARGS_AT_PLAN) {
        p->args.error = NULL;
        status = heed_attention(context, &p->desc, &p->args);
        judge(m, word, p, "heed_attention", status, heed_last_error(), outcome);
    }
}

int kit_refuses(heed_context *context, kit_problem *p, size_t which, uint32_t pick,
                kit_outcome *outcome)
{
    const kit_mistake *m = mistake(which);
    const uint64_t has =
        p->desc.features | (is_empty(p) ? 0 : ELEMENTS) |
        (heed_block_len(p->desc.k_type) > 1 ? K_BLOCKS : 0) |
        (heed_block_len(p->desc.v_type) > 1 ? V_BLOCKS : 0) |
        (p->desc.k_type == HEED_F8_E4M3 || p->desc.v_type == HEED_F8_E4M3 ? F8 : 0);
    heed_attn *plan = NULL;
    const char *word = NULL;
    if ((has & m->with) != m->with || has & m->without)
        return 0;
    heed_status status = heed_attn_create(context, &p->desc, &plan);
    if (kit_status(outcome, status, heed_last_error(), "heed_attn_create") == 0 &&
        (word = kit_make_mistake(m, p, pick)) != NULL) {
        if (m->where == IN_DESC || m->where == IN_DESC_AT_PLAN)
            spoiled_desc(context, m, word, p, outcome);
        else
            spoiled_args(context, m, word, plan, p, outcome);
    }
    heed_attn_release(plan);
    return word != NULL;
}

/* ---- the cases ------------------------------------------------------------------------------- */

static kit_spec good_problem(uint64_t features)
{
    kit_spec s = {.q_type = HEED_F32, .k_type = HEED_F32, .v_type = HEED_F32, .out_type = HEED_F32};
    s.features = features & ~(HEED_HAS_LENS | HEED_HAS_PACKED | HEED_HAS_PAGES | HEED_HAS_QUANT |
                              HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS | ELEMENTS | K_BLOCKS | V_BLOCKS |
                              F8);
    s.lists = (features & HEED_HAS_RANGES ? KIT_LISTS_RANGES : 0) |
              (features & HEED_HAS_KEY_BLOCKS ? KIT_LISTS_BLOCKS : 0);
    s.n_ranges = features & HEED_HAS_RANGES ? 3 : 0;
    s.block_rows = s.block_keys = features & HEED_HAS_KEY_BLOCKS ? 8 : 0;
    if (features & (HEED_HAS_PACKED | HEED_HAS_PAGES)) {
        s.storage = !(features & HEED_HAS_PAGES) ? KIT_RAGGED_Q
                    : features & HEED_HAS_PACKED ? KIT_PAGED_RAGGED
                                                 : KIT_PAGED;
        s.page_len = 8;
    }
    if (features & HEED_HAS_QUANT) {
        s.k_type = s.v_type = features & F8 ? HEED_F8_E4M3 : HEED_U8;
        s.k_scales = s.v_scales = (kit_scales){KIT_SCALES_TOKEN, 1};
        if (features & HEED_HAS_PACKED)
            s.storage = KIT_RAGGED;
    }
    if (features & (K_BLOCKS | V_BLOCKS))
        s.qk_dim = s.v_dim = 64;
    if (features & K_BLOCKS)
        s.k_type = HEED_Q4_1;
    if (features & V_BLOCKS)
        s.v_type = features & HEED_HAS_QUANT ? HEED_Q8_0 : HEED_U4;
    s.lens = features & HEED_HAS_LENS ? KIT_LENS_BOTH : KIT_LENS_FULL;
    if (features & RANGE)
        s.position = HEED_POS_GIVEN;
    if (features & HEED_HAS_SCORES)
        s.scores_stage = HEED_SCORES_RAW;
    kit_complete(&s);
    return s;
}

static void run_mistake(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const kit_mistake *m = mistake((size_t)c->variant);
    const kit_spec spec = good_problem(m->with);
    int n_made = 0;
    for (uint32_t pick = 0; pick < m->n; pick++) {
        kit_problem p;
        if (kit_build(&p, &spec, GUARD_HIGH) != 0)
            kit_fail(outcome, "out of memory");
        else
            n_made += kit_refuses(env->context, &p, (size_t)c->variant, pick, outcome);
        kit_free(&p);
    }
    if (n_made == 0 && outcome->verdict == KIT_PASSED)
        kit_fail(outcome, "the mistake was not made");
}

/* A workspace that is too small, parts that do not exist, and a good call after all of that. */
static void run_workspace(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const kit_mistake small = {.name = "a small workspace", .status = HEED_ERR_NOMEM};
    static const kit_mistake part = {.name = "a part too many", .status = HEED_ERR_INVALID};
    kit_problem p;
    guard_buffer workspace = {0};
    heed_attn *plan = NULL;
    (void)c;
    const kit_spec spec = good_problem(0);
    if (kit_build(&p, &spec, GUARD_HIGH) != 0 ||
        heed_attn_create(env->context, &p.desc, &plan) != HEED_OK) {
        kit_status(outcome, plan ? HEED_OK : HEED_ERR_UNSUPPORTED, heed_last_error(), "the plan");
        kit_free(&p);
        return;
    }
    size_t one = heed_attn_workspace_bytes(plan, 1), two = heed_attn_workspace_bytes(plan, 2);
    if (heed_attn_workspace_bytes(plan, 0) != 0 || one == 0 || two < one)
        kit_fail(outcome, "heed_attn_workspace_bytes of 0, 1, 2 parts: %zu, %zu, %zu",
                 heed_attn_workspace_bytes(plan, 0), one, two);
    if (guard_map(&workspace, (two + 63) / 64 * 64, GUARD_HIGH, 0, 0x5a) == 0) {
        judge(&small, "workspace", &p, "heed_attn_run",
              heed_attn_run(plan, &p.args, workspace.data, one - 1), heed_last_error(), outcome);
        judge(&small, "workspace", &p, "heed_attn_begin",
              heed_attn_begin(plan, &p.args, 2, workspace.data, two - 1), heed_last_error(),
              outcome);
        if (heed_run_part(workspace.data, 0) != HEED_ERR_INVALID)
            kit_fail(outcome, "heed_run_part takes a workspace that was not begun");
        if (heed_attn_begin(plan, &p.args, 0, workspace.data, two) != HEED_ERR_INVALID)
            kit_fail(outcome, "heed_attn_begin takes 0 parts");
        if (heed_attn_begin(plan, &p.args, 2, workspace.data, two) != HEED_OK)
            kit_fail(outcome, "heed_attn_begin fails: %s", heed_last_error());
        judge(&part, "part", &p, "heed_run_part", heed_run_part(workspace.data, 2),
              heed_last_error(), outcome);
        if (heed_run_part(workspace.data, 1) != HEED_OK)
            kit_fail(outcome, "heed_run_part fails: %s", heed_last_error());
        kit_check(&p, outcome);
        if (heed_attn_begin(plan, &p.args, 2, workspace.data, two - 1) == HEED_OK ||
            heed_run_part(workspace.data, 0) != HEED_ERR_INVALID)
            kit_fail(outcome, "heed_run_part takes the run before the one that did not begin");
        guard_unmap(&workspace);
    }
    heed_attn_release(plan);
    kit_free(&p);
}

void kit_error_cases(kit_list *list)
{
    for (size_t n = 0; n < kit_mistakes(); n++) {
        const kit_mistake *m = mistake(n);
        kit_case c = {.quick = 1, .run = run_mistake, .variant = (int)n};
        const int codes = (m->with & (HEED_HAS_QUANT | K_BLOCKS | V_BLOCKS | F8)) != 0;
        snprintf(c.name, sizeof c.name, "%s%s/f32", codes ? "codes/error_" : "error/", m->name);
        kit_add(list, &c);
    }
    kit_case c = {.name = "error/workspace_and_parts/f32", .quick = 1, .run = run_workspace};
    kit_add(list, &c);
}
