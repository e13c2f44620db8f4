/* Nothing is kept for this: selection is asked again. */
#include "explain.h"

#include "base/fpenv.h"
#include "base/reason.h"
#include "runtime/explain.h"
#include "runtime/fork.h"
#include "select.h"
#include "workspace.h"

static const char *const class_name[] = {"one query row", "2 to 16 query rows", "more query rows"};
static const char *const class_key[] = {"one", "few", "many"};

static void put_class(heed_text *b, int json, const heed_class_plan *c, const heed_verdict *verdict,
                      uint32_t n)
{
    const heed_tiling *t = &c->tiling;
    const char *kernel = t->kernel ? t->kernel : "";
    if (json) {
        heed_put(b, "{\"query_class\": \"%s\", \"backend\": ", class_key[c->problem.query_class]);
        heed_put_string(b, c->backend->name);
        heed_put(b, ", \"kernel\": ");
        heed_put_string(b, kernel);
        heed_put(
            b,
            ", \"accuracy\": \"%s\", \"query_rows\": %u, \"key_block\": %u, \"key_chunk\": %u, "
            "\"scratch_bytes\": %zu, \"prepare_bytes\": %zu, \"others\": [",
            heed_accuracy_name[c->problem.accuracy], t->query_rows, t->key_block, t->key_chunk,
            t->scratch_bytes, t->prepare_bytes);
    } else {
        heed_put(b, "%s: %s%s%s, %s accuracy\n", class_name[c->problem.query_class],
                 c->backend->name, *kernel ? " " : "", kernel,
                 heed_accuracy_name[c->problem.accuracy]);
        heed_put(b, "  tiles of %u query rows, key blocks of %u", t->query_rows, t->key_block);
        if (t->key_chunk)
            heed_put(b, ", keys cut every %u", t->key_chunk);
        heed_put(b, ", scratch %zu bytes a part\n", t->scratch_bytes);
    }
    heed_put_others(b, json, c->backend->name, verdict, n);
    if (json)
        heed_put(b, "]}");
}

heed_status heed_put_plan(heed_text *b, int json, const heed_attn *plan, heed_error *why)
{
    heed_context *context = plan->context;
    heed_status st = HEED_OK;
    if (json)
        heed_put(b, "{\"classes\": [");
    heed_context_lock(context);
    for (uint32_t i = 0, first = 1; i < 3 && st == HEED_OK; i++) {
        const heed_class_plan *c = &plan->class_plan[i];
        const heed_backend *chosen;
        heed_verdict verdict[HEED_MAX_BACKENDS];
        if (!c->backend)
            continue;
        st = heed_select(context, &c->problem, c->passed, &chosen, verdict, why);
        if (st != HEED_OK)
            break;
        heed_put(b, "%s", json && !first ? ", " : "");
        put_class(b, json, c, verdict, context->registry.n);
        first = 0;
    }
    heed_context_unlock(context);
    heed_put(b,
             json ? "], \"workspace_bytes_1\": %zu, \"workspace_bytes_2\": %zu}"
                  : "workspace: %zu bytes with one part, %zu with two\n",
             heed_workspace_bytes(plan, 1), heed_workspace_bytes(plan, 2));
    return st;
}

heed_status heed_explain_plan(const heed_attn *plan, int json, char *text, size_t *bytes,
                              heed_error *why)
{
    heed_text b = {text, *bytes, 0};
    heed_fpenv saved = heed_fpenv_enter(); /* selection must answer as it did */
    heed_status st = heed_put_plan(&b, json, plan, why);
    heed_fpenv_leave(saved);
    return st == HEED_OK ? heed_text_end(&b, bytes, why) : st;
}
