/* The machine and its backends in words, and what other explanations share. */
#include "explain.h"

#include "base/reason.h"
#include "fork.h"

const char *const heed_accuracy_name[] = {"default", "exact", "bf16", "split"};

void heed_put_others(heed_text *b, int json, const char *used, const heed_verdict *verdict,
                     uint32_t n)
{
    for (uint32_t i = 0, first = 1; i < n; i++) {
        const heed_verdict *v = &verdict[i];
        const char *reason = v->chosen ? "it was registered later" : v->why.text;
        if (!strcmp(v->name, used))
            continue;
        if (json) {
            heed_put(b, "%s{\"backend\": ", first ? "" : ", ");
            heed_put_string(b, v->name);
            heed_put(b, ", \"can\": %s, \"reason\": ", v->can ? "true" : "false");
            heed_put_string(b, reason);
            heed_put(b, "}");
        } else {
            heed_put(b, "  not %s: %s\n", v->name, reason);
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
        int failed = atomic_load(&e->trial) == HEED_TRIAL_FAILED, can = e->usable && !failed;
        const char *reason = can ? "" : failed ? e->trial_why.text : e->why.text;
        const char *note = can ? e->why.text : ""; /* what probe decided for this machine */
        if (json) {
            heed_put(&b, "%s{\"name\": ", i ? ", " : "");
            heed_put_string(&b, e->name);
            heed_put(&b, ", \"summary\": ");
            heed_put_string(&b, summary);
            heed_put(&b, ", \"usable\": %s, \"reason\": ", can ? "true" : "false");
            heed_put_string(&b, reason);
            heed_put(&b, ", \"note\": ");
            heed_put_string(&b, note);
            heed_put(&b, "}");
        } else if (can) {
            heed_put(&b, "backend %s: %s%s%s\n", e->name, summary, *note ? "; " : "", note);
        } else {
            heed_put(&b, "backend %s cannot run here: %s\n", e->name, reason);
        }
    }
    heed_context_unlock(context);
    if (json)
        heed_put(&b, "]}");
    return heed_text_end(&b, bytes, why);
}

heed_status heed_context_backends(heed_context *context, uint32_t json, char *text, size_t *bytes)
{
    heed_error why = {""};
    heed_status st = context && bytes ? explain_backends(context, json != 0, text, bytes, &why)
                                      : heed_fail(&why, HEED_ERR_INVALID, "%s is NULL",
                                                  context ? "bytes" : "context");
    return heed_report(NULL, st, &why);
}
