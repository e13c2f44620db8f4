/* Selection: by the user's order if he named backends, by cost otherwise. */
#include "select.h"

#include "base/reason.h"
#include "trial.h"

/* The place of an entry in the user's list: 0 is the first; -1 if it is not permitted. Without a
 * list all places are equal. */
static int place_in_list(const char *list, const char *name)
{
    int place = 0;
    if (!list)
        return 0;
    for (const char *at = list; *at; place++) {
        size_t n = strcspn(at, ",");
        if (n == strlen(name) && !memcmp(at, name, n))
            return place;
        at += n + (at[n] == ',');
    }
    return -1;
}

/* Appends to a sentence as far as there is room. */
HEED_PRINTF(2, 3) static void append(heed_error *why, const char *format, ...)
{
    const size_t used = strlen(why->text);
    va_list list;
    va_start(list, format);
    vsnprintf(why->text + used, sizeof why->text - used, format, list);
    va_end(list);
}

/* Every backend but one, the usable ones first: the end of a long sentence is lost. */
static void append_others(const heed_registry *registry, const heed_entry *but, heed_error *why)
{
    const char *between = "; there are";
    for (int usable = 1; usable >= 0; usable--)
        for (uint32_t i = 0; i < registry->n; i++) {
            const heed_entry *e = &registry->entry[i];
            if (e == but || e->usable != usable)
                continue;
            append(why, "%s %s", between, e->name);
            if (!usable)
                append(why, " (%s)", e->why.text);
            between = ",";
        }
}

/* Every name in the list must be a backend that can run on this machine. */
static heed_status check_list(heed_context *context, heed_error *why)
{
    for (const char *at = context->wanted; at && *at;) {
        size_t n = strcspn(at, ",");
        heed_entry *entry = n ? heed_registry_find(&context->registry, at, n) : NULL;
        if (!entry || !entry->usable) {
            heed_fail(why, HEED_ERR_INVALID, "backend '%.*s' %s%s%.100s", (int)(n < 31 ? n : 31),
                      at, context->wanted_by_variable ? "of HEED_BACKEND " : "",
                      entry ? "cannot run here: " : "is unknown", entry ? entry->why.text : "");
            append_others(&context->registry, entry, why);
            return entry ? HEED_ERR_UNSUPPORTED : HEED_ERR_INVALID;
        }
        at += n + (at[n] == ',');
    }
    return HEED_OK;
}

heed_status heed_refused(heed_error *why)
{
    why->text[sizeof why->text - 1] = 0;
    return why->text[0] ? HEED_ERR_UNSUPPORTED : heed_refuse(why, "it refuses without a reason");
}

/* A whole number: printf rounds as the x87 unit of the host does. */
static double microseconds(double nanoseconds)
{
    return rint(nanoseconds * 1e-3);
}

/* ---- backends that could not be had -----------------------------------------------------------
 */

heed_status heed_pass_over(heed_context *context, heed_passed **list, const heed_backend *backend,
                           const heed_error *why)
{
    heed_passed *p = heed_alloc(context, sizeof *p, _Alignof(heed_passed));
    if (!p)
        return HEED_ERR_NOMEM;
    p->next = *list;
    p->backend = backend;
    p->why = *why;
    *list = p;
    return HEED_OK;
}

void heed_passed_free(heed_context *context, heed_passed *list)
{
    while (list) {
        heed_passed *next = list->next;
        heed_free(context, list, sizeof *list);
        list = next;
    }
}

heed_status heed_scratch_exists(heed_context *context, const heed_backend *backend, size_t bytes,
                                heed_error *why)
{
    void *p;
    if (bytes < HEED_MUCH_SCRATCH)
        return HEED_OK;
    p = bytes <= PTRDIFF_MAX ? heed_alloc(context, bytes, 64) : NULL;
    heed_free(context, p, bytes);
    return p ? HEED_OK
             : heed_fail(
                   why, HEED_ERR_NOMEM,
                   "backend %s wants %zu bytes of scratch a part, for which there is no memory",
                   backend->name, bytes);
}

/* ---- choosing ---------------------------------------------------------------------------------
 */

/* The one condition that keeps this entry from the problem, or HEED_OK. */
static heed_status consider(heed_context *context, heed_entry *entry, const heed_question *question,
                            heed_error *why)
{
    if (place_in_list(context->wanted, entry->name) < 0)
        return heed_refuse(why, "not among the permitted backends (%.200s)", context->wanted);
    if (!entry->usable) {
        *why = entry->why;
        return HEED_ERR_UNSUPPORTED;
    }
    for (const heed_passed *p = question->passed; p; p = p->next)
        if (p->backend == entry->backend) {
            *why = p->why;
            return HEED_ERR_UNSUPPORTED;
        }
    return question->consider(context, entry, question->of, why);
}

heed_status heed_choose(heed_context *context, const heed_question *question,
                        const heed_backend **chosen, heed_verdict verdict[HEED_MAX_BACKENDS],
                        heed_error *why)
{
    heed_registry *registry = &context->registry;
    int best = -1, best_place = 0, starved = -1;
    heed_status st = check_list(context, why);
    if (st != HEED_OK)
        return st;
    for (uint32_t i = 0; i < registry->n; i++) {
        heed_verdict *v = &verdict[i];
        memset(v, 0, sizeof *v);
        v->name = registry->entry[i].name;
        st = consider(context, &registry->entry[i], question, &v->why);
        if (st == HEED_ERR_NOMEM) {
            *why = v->why;
            return st;
        }
        if (st == HEED_TRIAL_STARVED && starved < 0)
            starved = (int)i;
        v->can = st == HEED_OK;
        if (!v->can)
            continue;
        v->cost = question->cost(registry->entry[i].backend, question->of);
        int place = place_in_list(context->wanted, v->name);
        if (best < 0 || place < best_place || (place == best_place && v->cost < verdict[best].cost))
            best = (int)i, best_place = place;
    }
    if (best < 0 && starved >= 0) {
        *why = verdict[starved].why;
        return HEED_ERR_NOMEM;
    }
    if (best < 0) {
        int used =
            snprintf(why->text, sizeof why->text, "no backend runs this %s:", question->what);
        for (uint32_t i = 0; i < registry->n && used < (int)sizeof why->text; i++)
            if (place_in_list(context->wanted, verdict[i].name) >= 0)
                used += snprintf(why->text + used, sizeof why->text - (size_t)used, " %s: %s;",
                                 verdict[i].name, verdict[i].why.text);
        return HEED_ERR_UNSUPPORTED;
    }
    verdict[best].chosen = 1;
    for (uint32_t i = 0; i < registry->n; i++)
        if (verdict[i].can && !verdict[i].chosen)
            heed_refuse(&verdict[i].why,
                        context->wanted
                            ? "%s comes before it in the list (cost %.0f us, its %.0f us)"
                            : "%s costs less (%.0f us, it %.0f us)",
                        verdict[best].name, microseconds(verdict[best].cost),
                        microseconds(verdict[i].cost));
    *chosen = registry->entry[best].backend;
    return HEED_OK;
}
