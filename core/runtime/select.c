/* Selection: by the user's order if he named backends, by cost otherwise. */
#include "select.h"

#include "base/reason.h"
#include "trial.h"

int heed_place_in_list(const char *list, const char *name)
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
    static const char cut[] = "...";
    const size_t used = strlen(why->text), room = sizeof why->text - used;
    va_list list;
    va_start(list, format);
    const int length = vsnprintf(why->text + used, room, format, list);
    va_end(list);
    if (length >= 0 && (size_t)length >= room)
        memcpy(why->text + sizeof why->text - sizeof cut, cut, sizeof cut);
}

/* Appends every backend but one, the usable ones first because the end of a long
 * sentence is lost. */
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

heed_status heed_refused(const heed_kernel *kernel, heed_status status, heed_error *why)
{
    if (status == HEED_ERR_NOMEM)
        return heed_fail(why, status, "%s %s had no memory to say whether it can", kernel->of->name,
                         kernel->name);
    why->text[sizeof why->text - 1] = 0;
    return why->text[0] ? HEED_ERR_UNSUPPORTED : heed_refuse(why, "it refuses without a reason");
}

heed_status heed_tell_kernel(const heed_kernel *kernel, heed_kernel_info *out, heed_error *why)
{
    const heed_kernel_info made = {.backend = kernel->of->name, .kernel = kernel->name};
    return heed_write_struct("out", out, sizeof made, &made, why);
}

/* A whole number, because printf would round a fraction in the mode that the host
 * gave the x87 unit. */
static double microseconds(double nanoseconds)
{
    return rint(nanoseconds * 1e-3);
}

/* ---- kernels that could not be had -----------------------------------------------------------
 */

heed_status heed_pass_over(heed_context *context, heed_passed **list, const heed_kernel *kernel,
                           const heed_error *why)
{
    heed_passed *p = heed_alloc(context, sizeof *p, _Alignof(heed_passed));
    if (!p)
        return HEED_ERR_NOMEM;
    p->next = *list;
    p->kernel = kernel;
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

heed_status heed_scratch_exists(heed_context *context, const heed_kernel *kernel, size_t bytes,
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
                   kernel->of->name, bytes);
}

/* ---- choosing ---------------------------------------------------------------------------------
 */

/* Returns HEED_OK, or refuses with the one condition that keeps an entry's kernels
 * from being asked. */
static heed_status consider_entry(const heed_context *context, const heed_entry *entry,
                                  const heed_question *question, heed_error *why)
{
    const heed_kernel *kernel = &context->registry.kernel[entry->first];
    if (heed_place_in_list(context->wanted, entry->name) < 0)
        return heed_refuse(why, "not among the permitted backends (%.200s)", context->wanted);
    if (!entry->usable) {
        *why = entry->why;
        return HEED_ERR_UNSUPPORTED;
    }
    for (uint32_t i = 0; i < entry->n; i++)
        if ((kernel[i].linear != NULL) == question->linear)
            return HEED_OK;
    return heed_refuse(why, question->linear ? "it has no linear layers" : "it has no attention");
}

static heed_status consider_kernel(heed_context *context, heed_kernel *kernel,
                                   const heed_question *question, heed_error *why)
{
    for (const heed_passed *p = question->passed; p; p = p->next)
        if (p->kernel == kernel) {
            *why = p->why;
            return HEED_ERR_UNSUPPORTED;
        }
    return question->consider(context, kernel, question->of, why);
}

static heed_verdict *add_verdict(heed_verdicts *verdicts, const heed_entry *entry,
                                 const heed_kernel *kernel)
{
    heed_verdict *v = &verdicts->of[verdicts->n++];
    memset(v, 0, sizeof *v);
    v->entry = entry;
    v->kernel = kernel;
    return v;
}

/* Asks every kernel of the kind. *starved becomes the verdict on the first kernel that could not be
 * tried for want of memory, or NULL. */
static heed_status ask_all(heed_context *context, const heed_question *question,
                           heed_verdicts *verdicts, const heed_verdict **starved, heed_error *why)
{
    heed_registry *registry = &context->registry;
    verdicts->n = 0;
    *starved = NULL;
    for (uint32_t i = 0; i < registry->n; i++) {
        const heed_entry *entry = &registry->entry[i];
        heed_error refusal = {""};
        if (consider_entry(context, entry, question, &refusal) != HEED_OK) {
            add_verdict(verdicts, entry, NULL)->why = refusal;
            continue;
        }
        for (heed_kernel *k = &registry->kernel[entry->first], *end = k + entry->n; k < end; k++) {
            if ((k->linear != NULL) != question->linear)
                continue;
            heed_verdict *v = add_verdict(verdicts, entry, k);
            heed_status st = consider_kernel(context, k, question, &v->why);
            if (st == HEED_ERR_NOMEM) {
                *why = v->why;
                return st;
            }
            if (st == HEED_TRIAL_STARVED && !*starved)
                *starved = v;
            v->can = st == HEED_OK;
            v->cost = v->can ? question->cost(k, question->of) : 0;
        }
    }
    return HEED_OK;
}

/* Appends the names of all permitted backends with kernels that verdict v's reason excludes, and
 * those of these kernels where it does not exclude all of a backend's. */
static void append_excluded(const heed_context *context, const heed_verdicts *verdicts,
                            const heed_verdict *v, heed_error *why)
{
    const char *between = " ";
    for (uint32_t first = 0, end; first < verdicts->n; first = end) {
        const heed_entry *entry = verdicts->of[first].entry;
        uint32_t n = 0;
        for (end = first; end < verdicts->n && verdicts->of[end].entry == entry; end++)
            n += strcmp(verdicts->of[end].why.text, v->why.text) == 0;
        if (n == 0 || heed_place_in_list(context->wanted, entry->name) < 0)
            continue;
        append(why, "%s%s", between, entry->name);
        between = ", ";
        for (uint32_t i = first, named = 0; n < end - first && i < end; i++)
            if (strcmp(verdicts->of[i].why.text, v->why.text) == 0)
                append(why, "%s%s", named++ ? "/" : " ", verdicts->of[i].kernel->name);
    }
}

/* Writes every reason that excludes a permitted backend's kernels, once. */
static heed_status nobody(const heed_context *context, const heed_question *question,
                          const heed_verdicts *verdicts, heed_error *why)
{
    const char *between = "";
    snprintf(why->text, sizeof why->text, "no backend runs this %s:", question->what);
    for (uint32_t i = 0; i < verdicts->n; i++) {
        const heed_verdict *v = &verdicts->of[i];
        int said = heed_place_in_list(context->wanted, v->entry->name) < 0;
        for (uint32_t k = 0; k < i && !said; k++)
            said = heed_place_in_list(context->wanted, verdicts->of[k].entry->name) >= 0 &&
                   strcmp(verdicts->of[k].why.text, v->why.text) == 0;
        if (said)
            continue;
        append(why, "%s", between);
        append_excluded(context, verdicts, v, why);
        append(why, ": %s", v->why.text);
        between = ";";
    }
    return HEED_ERR_UNSUPPORTED;
}

heed_status heed_choose(heed_context *context, const heed_question *question,
                        const heed_kernel **chosen, heed_verdicts *verdicts, heed_error *why)
{
    heed_verdict *best = NULL;
    const heed_verdict *starved;
    int best_place = 0;
    heed_status st = check_list(context, why);
    if (st == HEED_OK)
        st = ask_all(context, question, verdicts, &starved, why);
    if (st != HEED_OK)
        return st;
    for (uint32_t i = 0; i < verdicts->n; i++) {
        heed_verdict *v = &verdicts->of[i];
        if (!v->can)
            continue;
        int place = heed_place_in_list(context->wanted, v->entry->name);
        if (!best || place < best_place || (place == best_place && v->cost < best->cost))
            best = v, best_place = place;
    }
    if (!best && starved) {
        *why = starved->why;
        return HEED_ERR_NOMEM;
    }
    if (!best)
        return nobody(context, question, verdicts, why);
    best->chosen = 1;
    for (uint32_t i = 0; i < verdicts->n; i++) {
        heed_verdict *v = &verdicts->of[i];
        if (!v->can || v->chosen)
            continue;
        const int by_list = heed_place_in_list(context->wanted, v->entry->name) != best_place;
        heed_refuse(&v->why,
                    by_list ? "%s %s comes before it in the list (%s: cost %.0f us, its %.0f us)"
                            : "%s %s costs less (%s: %.0f us, it %.0f us)",
                    best->entry->name, best->kernel->name, question->sample,
                    microseconds(best->cost), microseconds(v->cost));
    }
    *chosen = best->kernel;
    return HEED_OK;
}
