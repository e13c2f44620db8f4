/* Making plans: validate, select for each query class, lay the workspace out. */
#include "planning.h"

#include "base/checked.h"
#include "base/fpenv.h"
#include "base/reason.h"
#include "runtime/fork.h"
#include "select.h"
#include "tiling.h"
#include "validate.h"
#include "workspace.h"

/* FNV-1a over words; the description has no padding. */
static uint64_t hash_of(const heed_attn_desc *desc)
{
    uint64_t word[sizeof *desc / 8], hash = UINT64_C(0xcbf29ce484222325);
    memcpy(word, desc, sizeof word);
    for (size_t i = 0; i < sizeof word / 8; i++)
        hash = (hash ^ word[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}
_Static_assert(sizeof(heed_attn_desc) % 8 == 0, "hashed by words");

int64_t heed_plan_room(int64_t length)
{
    int64_t room = 16;
    while (room < length && room < INT64_C(1) << 30)
        room *= 2;
    return room < length ? INT32_MAX : room;
}

uint32_t heed_plan_classes(const heed_attn_desc *desc)
{
    if (desc->features & HEED_HAS_REPRODUCIBLE_CHUNKS)
        return 1u << HEED_QUERY_MANY;
    const int64_t most = desc->max_q_len;
    return 1u << HEED_QUERY_ONE | (most > 1 && heed_several_from(desc, 0) > 2) << HEED_QUERY_FEW |
           (heed_min64(most, 16) >= heed_several_from(desc, 1)) << HEED_QUERY_SEVERAL |
           (most > 16) << HEED_QUERY_MANY;
}

/* The estimate is linear in rows and in pairs of a row and a key. It goes through three costs that
 * the kernel states: for usual lengths, for few keys, and for few rows and keys. A kernel may state
 * anything, so coefficients below 0 become 0. */
static void estimate_class(heed_class_plan *c, int few)
{
    const heed_attn_kernel *k = c->kernel;
    const uint32_t query_class = c->problem.query_class;
    const int64_t q = heed_class_q_len[query_class];
    const int64_t kv = few ? HEED_FEW_KEYS : heed_class_kv_len[query_class];
    const int64_t few_rows = query_class == HEED_QUERY_MANY  ? 17
                             : query_class == HEED_QUERY_ONE ? 1
                                                             : 2;
    const int64_t few_keys = 16;
    const double all = k->cost(c->machine, &c->problem, q, kv);
    const double some = k->cost(c->machine, &c->problem, q, few_keys);
    const double least = k->cost(c->machine, &c->problem, few_rows, few_keys);
    c->ns_per_pair = fmax(0, (all - some) / (double)(q * (kv - few_keys)));
    c->ns_per_row = 0;
    if (q > few_rows)
        c->ns_per_row =
            fmax(0, (some - least) / (double)(q - few_rows) - c->ns_per_pair * (double)few_keys);
    c->ns_fixed =
        fmax(0, least - (double)few_rows * (c->ns_per_row + c->ns_per_pair * (double)few_keys));
}

/* Lets go what a kernel keeps for a class. */
static void drop_class(heed_class_plan *c)
{
    if (c->kernel && HEED_KERNEL_HAS(c->kernel, plan_destroy))
        c->kernel->plan_destroy(c->state);
    c->kernel = NULL;
    c->state = NULL;
}

/* Sets a class up with a kernel; the class has none after a failure. The workspace is laid out for
 * this class and those before it. */
static heed_status set_up(heed_context *context, heed_attn *plan, heed_class_plan *c,
                          const heed_kernel *chosen, heed_error *why)
{
    const heed_attn_kernel *k = chosen->attn;
    const char *name = chosen->of->name;
    c->tiling = (heed_tiling){.struct_size = sizeof c->tiling};
    heed_status st = k->tiling(chosen->machine, &c->problem, &c->tiling);
    const char *flaw = st == HEED_OK ? heed_tiling_flaw(k, &c->tiling) : NULL;
    if (st != HEED_OK)
        return heed_fail(why, HEED_ERR_BACKEND, "backend %s gave no tiling", name);
    if (flaw)
        return heed_fail(why, HEED_ERR_BACKEND, "backend %s gave a tiling with a bad %s", name,
                         flaw);
    st = heed_scratch_exists(context, chosen, c->tiling.scratch_bytes, why);
    if (st == HEED_OK && HEED_KERNEL_HAS(k, plan_create)) {
        st = k->plan_create(chosen->machine, &c->problem, &c->state);
        if (st != HEED_OK) {
            c->state = NULL;
            st = heed_fail(why, st == HEED_ERR_NOMEM ? st : HEED_ERR_BACKEND,
                           "backend %s could not make a plan: %s", name, heed_status_string(st));
        }
    }
    if (st != HEED_OK)
        return st;
    c->kernel = k;
    c->machine = chosen->machine;
    c->chosen = chosen;
    st = heed_workspace_layout(plan, why);
    if (st != HEED_OK) {
        drop_class(c);
        heed_workspace_layout(plan, NULL); /* the plan may go on without this kernel */
    }
    return st;
}

/* Sets a class up with the best kernel that can be had. If none can, the error says what the first
 * lacked. Sequences of few keys get a kernel of their own only if the best one for them serves no
 * others (HEED_KERNEL_FEW_KEYS). */
static heed_status plan_class(heed_context *context, heed_attn *plan, const heed_problem *problem,
                              uint32_t query_class, int few, heed_error *why)
{
    heed_verdicts verdicts;
    heed_class_plan *c = &plan->class_plan[query_class + (few ? HEED_FEW_KEYS_OF : 0)];
    const heed_kernel *chosen;
    heed_status first = HEED_OK;
    heed_error reason;
    c->problem = *problem;
    c->problem.query_class = query_class;
    for (;;) {
        reason.text[0] = 0;
        heed_status st =
            heed_select(context, &c->problem, few, c->passed, &chosen, &verdicts, &reason);
        const int none = st != HEED_OK;
        if (few && st != HEED_ERR_NOMEM && (none || !(chosen->attn->flags & HEED_KERNEL_FEW_KEYS)))
            return HEED_OK;
        if (st == HEED_OK)
            st = set_up(context, plan, c, chosen, &reason);
        if (st == HEED_OK)
            break;
        if (first == HEED_OK) {
            first = st;
            *why = reason;
        }
        if (none)
            return first;
        if (heed_pass_over(context, &c->passed, chosen, &reason) != HEED_OK)
            return heed_fail(why, HEED_ERR_NOMEM, "no memory for a plan");
    }
    estimate_class(c, few);
    return HEED_OK;
}

static void log_plan(heed_context *context, const heed_attn *plan)
{
    const heed_attn_desc *d = &plan->desc;
    for (uint32_t i = 0; i < HEED_CLASSES; i++)
        if (plan->class_plan[i].kernel)
            heed_log(context, HEED_LOG_INFO,
                     "plan q_heads %u kv_heads %u qk_dim %u v_dim %u %s features 0x%llx class %u: "
                     "%s %s",
                     d->q_heads, d->kv_heads, d->qk_dim, d->v_dim, heed_dtype_name(d->q_type),
                     (unsigned long long)d->features, i, plan->class_plan[i].chosen->of->name,
                     plan->class_plan[i].kernel->name);
}

static void destroy(heed_cached *cached)
{
    heed_attn *plan = (heed_attn *)(void *)cached; /* its first member */
    for (uint32_t i = 0; i < HEED_CLASSES; i++) {
        drop_class(&plan->class_plan[i]);
        heed_passed_free(plan->context, plan->class_plan[i].passed);
    }
    heed_free(plan->context, plan, sizeof *plan);
}

static int has_desc(const heed_cached *cached, const void *desc)
{
    const heed_attn *plan = (const heed_attn *)(const void *)cached;
    return memcmp(&plan->desc, desc, sizeof plan->desc) == 0;
}

static heed_status build_here(heed_context *context, const heed_attn_desc *desc, heed_attn **out,
                              heed_error *why)
{
    heed_problem problem;
    heed_status st = heed_validate_desc(desc, &problem, why);
    if (st != HEED_OK)
        return st;
    heed_attn *plan = heed_alloc(context, sizeof *plan, _Alignof(heed_attn));
    if (!plan)
        return heed_fail(why, HEED_ERR_NOMEM, "no memory for a plan");
    memset(plan, 0, sizeof *plan);
    atomic_init(&plan->cached.refs, 1);
    plan->cached.hash = hash_of(desc);
    plan->cached.destroy = destroy;
    plan->context = context;
    plan->desc = *desc;
    plan->group = desc->q_heads / desc->kv_heads;
    plan->window_left = problem.window_left < 0 ? HEED_UNBOUNDED : problem.window_left;
    plan->window_right = problem.features & HEED_HAS_CAUSAL ? 0
                         : problem.window_right < 0         ? HEED_UNBOUNDED
                                                            : problem.window_right;
    for (uint32_t i = 0; i < HEED_QUERY_CLASSES && st == HEED_OK; i++)
        if (heed_plan_classes(desc) >> i & 1)
            st = plan_class(context, plan, &problem, i, 0, why);
    for (uint32_t i = 0; i < HEED_QUERY_CLASSES && st == HEED_OK; i++)
        if (plan->class_plan[i].kernel && !(desc->features & HEED_HAS_REPRODUCIBLE_CHUNKS))
            st = plan_class(context, plan, &problem, i, 1, why);
    if (st != HEED_OK) {
        destroy(&plan->cached);
        return st;
    }
    if (context->verbose & HEED_VERBOSE_PLAN)
        log_plan(context, plan);
    *out = plan;
    return HEED_OK;
}

/* A plan is kept for all threads. So nothing in it, nor what backends decide for it, may depend on
 * how the thread that makes it rounds. */
static heed_status build(heed_context *context, const heed_attn_desc *desc, heed_attn **out,
                         heed_error *why)
{
    heed_fpenv saved = heed_fpenv_enter();
    heed_status st = build_here(context, desc, out, why);
    heed_fpenv_leave(saved);
    return st;
}

heed_status heed_plan_supported(heed_context *context, const heed_attn_desc *desc, heed_error *why)
{
    const heed_kernel *chosen;
    heed_verdicts verdicts;
    heed_problem problem;
    heed_fpenv saved = heed_fpenv_enter();
    heed_status st = heed_validate_desc(desc, &problem, why);
    heed_context_lock(context);
    for (uint32_t i = 0; i < HEED_QUERY_CLASSES && st == HEED_OK; i++) {
        problem.query_class = i;
        if (heed_plan_classes(desc) >> i & 1)
            st = heed_select(context, &problem, 0, NULL, &chosen, &verdicts, why);
    }
    heed_context_unlock(context);
    heed_fpenv_leave(saved);
    return st;
}

static heed_attn *find(heed_context *context, const heed_attn_desc *desc, uint64_t hash)
{
    return (heed_attn *)(void *)heed_cache_find(&context->plans, hash, has_desc, desc);
}

heed_status heed_plan_get(heed_context *context, const heed_attn_desc *desc, heed_attn **out,
                          heed_error *why)
{
    uint64_t hash = hash_of(desc);
    heed_status st = HEED_OK;
    heed_attn *plan = find(context, desc, hash);
    if (!plan) {
        heed_context_lock(context);
        plan = find(context, desc, hash);
        if (!plan) {
            st = build(context, desc, &plan, why);
            if (st == HEED_OK)
                heed_cache_put(&context->plans, &plan->cached);
        }
        heed_context_unlock(context);
    }
    if (st != HEED_OK)
        return st;
    heed_context_hold(context);
    *out = plan;
    return HEED_OK;
}
