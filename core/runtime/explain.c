/* The machine and its backends in words, and what other explanations share. */
#include "explain.h"

#include "base/reason.h"
#include "fork.h"

const char *const heed_accuracy_name[] = {"default", "exact", "bf16", "split", "int8"};

void heed_put_others(heed_text *b, int json, const heed_kernel *used, const heed_verdicts *verdicts)
{
    for (uint32_t i = 0, first = 1; i < verdicts->n; i++) {
        const heed_verdict *v = &verdicts->of[i];
        const char *reason = v->chosen ? "it was registered later" : v->why.text;
        const char *kernel = v->kernel ? v->kernel->name : "";
        if (v->kernel == used)
            continue;
        if (json) {
            heed_put(b, "%s{\"backend\": ", first ? "" : ", ");
            heed_put_string(b, v->entry->name);
            heed_put(b, ", \"kernel\": ");
            heed_put_string(b, kernel);
            heed_put(b, ", \"can\": %s, \"reason\": ", v->can ? "true" : "false");
            heed_put_string(b, reason);
            heed_put(b, "}");
        } else {
            heed_put(b, "  not %s%s%s: %s\n", v->entry->name, *kernel ? " " : "", kernel, reason);
        }
        first = 0;
    }
}

static void put_isa(heed_text *b, int json, const char *title, uint64_t bits)
{
    if (!json && !bits)
        return;
    heed_put(b, json ? ", \"%s\": [" : "%s:", title);
    for (unsigned bit = 0, first = 1; heed_cpu_isa_name(bit); bit++) {
        if (!(bits >> bit & 1))
            continue;
        heed_put(b, json ? "%s\"%s\"" : "%s%s", json ? (first ? "" : ", ") : " ",
                 heed_cpu_isa_name(bit));
        first = 0;
    }
    heed_put(b, json ? "]" : "\n");
}

static void put_machine(heed_text *b, int json, const heed_context *context)
{
    const heed_cpu *cpu = &context->cpu;
    if (json) {
        heed_put(b, "{\"version\": \"%d.%d.%d\", \"vendor\": ", HEED_VERSION_MAJOR,
                 HEED_VERSION_MINOR, HEED_VERSION_PATCH);
        heed_put_string(b, cpu->vendor);
        heed_put(
            b,
            ", \"family\": %u, \"model\": %u, \"cores\": %u, \"threads\": %u, \"l1d_bytes\": %u, "
            "\"l2_bytes\": %u, \"l3_bytes\": %u",
            cpu->family, cpu->model, cpu->n_cores, context->n_threads, cpu->l1d_bytes,
            cpu->l2_bytes, cpu->l3_bytes);
    } else {
        heed_put(
            b,
            "heed %d.%d.%d\nmachine: %s family %u model %u, %u cores, %u threads used by default\n",
            HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH,
            *cpu->vendor ? cpu->vendor : "unknown vendor", cpu->family, cpu->model, cpu->n_cores,
            context->n_threads);
        heed_put(b, "caches: L1d %u KiB, L2 %u KiB, L3 %u KiB\n", cpu->l1d_bytes >> 10,
                 cpu->l2_bytes >> 10, cpu->l3_bytes >> 10);
    }
    put_isa(b, json, "isa", cpu->isa);
    put_isa(b, json, json ? "slow" : "exists, but slow here", cpu->isa & ~cpu->fast);
}

/* Why plans never choose a kernel of the backend: it is not usable, or the trials of all its kernels
 * have failed. NULL if they may: kernels that were not tried yet may serve. */
static const char *unusable(const heed_registry *registry, const heed_entry *e)
{
    const heed_kernel *k = &registry->kernel[e->first];
    if (!e->usable)
        return e->why.text;
    for (uint32_t i = 0; i < e->n; i++)
        if (atomic_load(&k[i].trial) != HEED_TRIAL_FAILED)
            return NULL;
    return k->trial_why.text;
}

static void put_kernels(heed_text *b, const heed_registry *registry, const heed_entry *e,
                        int linear)
{
    heed_put(b, ", \"%s\": [", linear ? "linear" : "attn");
    for (uint32_t i = 0, first = 1; i < e->n; i++) {
        const heed_kernel *k = &registry->kernel[e->first + i];
        if ((k->linear != NULL) != linear)
            continue;
        heed_put(b, first ? "" : ", ");
        heed_put_string(b, k->name);
        first = 0;
    }
    heed_put(b, "]");
}

/* The kernels that are never chosen because their trial failed. Where the backend runs by its other
 * kernels, this is the only place that says so. */
static void put_failed(heed_text *b, int json, const heed_registry *registry, const heed_entry *e)
{
    heed_put(b, json ? ", \"failed\": [" : "");
    for (uint32_t i = 0, first = 1; i < e->n; i++) {
        const heed_kernel *k = &registry->kernel[e->first + i];
        if (atomic_load(&k->trial) != HEED_TRIAL_FAILED)
            continue;
        if (json) {
            heed_put(b, "%s{\"kernel\": ", first ? "" : ", ");
            heed_put_string(b, k->name);
            heed_put(b, ", \"linear\": %s, \"reason\": ", k->linear ? "true" : "false");
            heed_put_string(b, k->trial_why.text);
            heed_put(b, "}");
        } else {
            heed_put(b, "  not its kernel %s: %s\n", k->name, k->trial_why.text);
        }
        first = 0;
    }
    heed_put(b, json ? "]" : "");
}

static heed_status explain_backends(heed_context *context, int json, char *text, size_t *bytes,
                                    heed_error *why)
{
    heed_text b = {text, *bytes, 0};
    put_machine(&b, json, context);
    if (json)
        heed_put(&b, ", \"backends\": [");
    heed_context_lock(context);
    for (uint32_t i = 0; i < context->registry.n; i++) {
        const heed_entry *e = &context->registry.entry[i];
        const char *summary = e->backend && e->backend->summary ? e->backend->summary : "";
        const char *reason = unusable(&context->registry, e);
        const char *note = reason ? "" : e->why.text; /* what open decided for this machine */
        if (json) {
            heed_put(&b, "%s{\"name\": ", i ? ", " : "");
            heed_put_string(&b, e->name);
            heed_put(&b, ", \"summary\": ");
            heed_put_string(&b, summary);
            heed_put(&b, ", \"usable\": %s, \"reason\": ", reason ? "false" : "true");
            heed_put_string(&b, reason ? reason : "");
            heed_put(&b, ", \"note\": ");
            heed_put_string(&b, note);
            put_kernels(&b, &context->registry, e, 0);
            put_kernels(&b, &context->registry, e, 1);
            put_failed(&b, json, &context->registry, e);
            heed_put(&b, "}");
        } else if (!reason) {
            heed_put(&b, "backend %s: %s%s%s\n", e->name, summary, *note ? "; " : "", note);
            put_failed(&b, json, &context->registry, e);
        } else {
            heed_put(&b, "backend %s cannot run here: %s\n", e->name, reason);
        }
    }
    heed_context_unlock(context);
    if (json)
        heed_put(&b, "]}");
    return heed_text_end(&b, bytes, why);
}

static heed_status tell_backend(heed_context *context, uint32_t index, heed_backend_info *out,
                                heed_error *why)
{
    heed_context_lock(context);
    const uint32_t n = context->registry.n;
    const heed_entry *e = &context->registry.entry[index < n ? index : 0];
    heed_context_unlock(context); /* entries are never changed */
    if (index >= n)
        INVALID("index is %u, there are %u backends", index, n);
    const char *reason = unusable(&context->registry, e);
    const heed_backend_info made = {.name = e->name,
                                    .summary = e->backend ? e->backend->summary : "",
                                    .reason = reason ? reason : "",
                                    .usable = reason == NULL,
                                    .n_attn = e->usable ? e->backend->n_attn : 0,
                                    .n_linear = e->usable ? e->backend->n_linear : 0};
    return heed_write_struct("out", out, sizeof made, &made, why);
}

static heed_status tell_trial(heed_context *context, uint32_t backend, uint32_t kernel,
                              heed_trial_info *out, heed_error *why)
{
    heed_backend_info of = {.struct_size = sizeof of};
    heed_status st = tell_backend(context, backend, &of, why);
    if (st != HEED_OK)
        return st;
    const heed_entry *e = &context->registry.entry[backend];
    if (kernel >= e->n)
        INVALID("kernel is %u, backend %s has %u", kernel, e->name, e->n);
    const heed_kernel *k = &context->registry.kernel[e->first + kernel];
    const uint32_t trial = (uint32_t)atomic_load(&k->trial); /* the reason is set before it */
    const heed_trial_info made = {.kernel = k->name,
                                  .reason = trial == HEED_TRIAL_FAILED ? k->trial_why.text : "",
                                  .linear = k->linear != NULL,
                                  .trial = trial};
    return heed_write_struct("out", out, sizeof made, &made, why);
}

heed_status heed_context_trial(heed_context *context, uint32_t backend, uint32_t kernel,
                               heed_trial_info *out)
{
    heed_error why = {""};
    heed_status st = context ? tell_trial(context, backend, kernel, out, &why)
                             : heed_fail(&why, HEED_ERR_INVALID, "context is NULL");
    return heed_report(NULL, st, &why);
}

heed_status heed_context_backend(heed_context *context, uint32_t index, heed_backend_info *out)
{
    heed_error why = {""};
    heed_status st = context ? tell_backend(context, index, out, &why)
                             : heed_fail(&why, HEED_ERR_INVALID, "context is NULL");
    return heed_report(NULL, st, &why);
}

heed_status heed_context_backends(heed_context *context, uint32_t json, char *text, size_t *bytes)
{
    heed_error why = {""};
    heed_status st = context && bytes ? explain_backends(context, json != 0, text, bytes, &why)
                                      : heed_fail(&why, HEED_ERR_INVALID, "%s is NULL",
                                                  context ? "bytes" : "context");
    return heed_report(NULL, st, &why);
}
