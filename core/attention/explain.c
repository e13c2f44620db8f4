/* Explains a plan. Nothing is kept for this: selection is asked again. */
#include "explain.h"

#include "base/checked.h"
#include "base/fpenv.h"
#include "runtime/explain.h"
#include "runtime/fork.h"
#include "select.h"
#include "workspace.h"

static const char *const class_key[HEED_QUERY_CLASSES] = {"one", "few", "several", "many"};

/* Are there no sequences of class i? Two classes that are planned may have none: FEW where two rows are
 * SEVERAL already if they have few keys, and SEVERAL where more keys want more rows than there are, and few
 * keys have a kernel of their own. */
static int is_empty(const heed_attn *plan, uint32_t i)
{
    const int few = i >= HEED_FEW_KEYS_OF;
    const int64_t from = heed_several_from(&plan->desc, few);
    if (few)
        return i == HEED_FEW_KEYS_OF + HEED_QUERY_FEW && from == 2;
    return i == HEED_QUERY_SEVERAL && from > heed_min64(plan->desc.max_q_len, 16) &&
           plan->class_plan[HEED_FEW_KEYS_OF + i].kernel;
}

/* The rows of the sequences of class i, and their keys where these are few. */
static void put_rows(heed_text *b, const heed_attn *plan, uint32_t i)
{
    const int few = i >= HEED_FEW_KEYS_OF;
    const uint32_t query_class = few ? i - HEED_FEW_KEYS_OF : i;
    const int few_from = (int)heed_several_from(&plan->desc, 1);
    const int from = few ? few_from : (int)heed_several_from(&plan->desc, 0);
    const int with_few = !few && !plan->class_plan[HEED_FEW_KEYS_OF + i].kernel && from > few_from;
    if (query_class == HEED_QUERY_ONE)
        heed_put(b, "one query row");
    else if (query_class == HEED_QUERY_MANY)
        heed_put(b, "%s query rows",
                 plan->desc.features & HEED_HAS_REPRODUCIBLE_CHUNKS ? "any number of" : "more");
    else if (query_class == HEED_QUERY_FEW)
        heed_put(b, "2 to %d query rows", from - 1);
    else if (from > 16)
        heed_put(b, "%d to 16 query rows, up to %d keys", few_from, HEED_FEW_KEYS);
    else if (with_few)
        heed_put(b, "%d to 16 query rows, and from %d on with up to %d keys", from, few_from,
                 HEED_FEW_KEYS);
    else
        heed_put(b, "%d to 16 query rows", from);
    if (few)
        heed_put(b, ", up to %d keys", HEED_FEW_KEYS);
}

static void put_class(heed_text *b, int json, const heed_attn *plan, uint32_t i,
                      const heed_verdicts *verdicts)
{
    const heed_class_plan *c = &plan->class_plan[i];
    const heed_tiling *t = &c->tiling;
    if (json) {
        heed_put(b, "{\"query_class\": \"%s\", \"few_keys\": %s, \"backend\": ",
                 class_key[c->problem.query_class], i >= HEED_FEW_KEYS_OF ? "true" : "false");
        heed_put_string(b, c->chosen->of->name);
        heed_put(b, ", \"kernel\": ");
        heed_put_string(b, c->kernel->name);
        heed_put(b,
                 ", \"accuracy\": \"%s\", \"k_type\": \"%s\", \"v_type\": \"%s\", \"query_rows\": "
                 "%u, \"key_block\": %u, \"key_chunk\": %u, "
                 "\"scratch_bytes\": %zu, \"prepare_bytes\": %zu, \"others\": [",
                 heed_accuracy_name[c->problem.accuracy], heed_dtype_name(c->problem.k_type),
                 heed_dtype_name(c->problem.v_type), t->query_rows, t->key_block, t->key_chunk,
                 t->scratch_bytes, t->prepare_bytes);
    } else {
        put_rows(b, plan, i);
        heed_put(b, ": %s %s, %s accuracy", c->chosen->of->name, c->kernel->name,
                 heed_accuracy_name[c->problem.accuracy]);
        if (heed_is_code(c->problem.k_type) || heed_is_code(c->problem.v_type))
            heed_put(b, ", k of %s, v of %s", heed_dtype_name(c->problem.k_type),
                     heed_dtype_name(c->problem.v_type));
        heed_put(b, "\n");
        heed_put(b, "  tiles of %u query rows, key blocks of %u", t->query_rows, t->key_block);
        if (t->key_chunk)
            heed_put(b, ", keys cut every %u", t->key_chunk);
        heed_put(b, ", scratch %zu bytes a part\n", t->scratch_bytes);
    }
    heed_put_others(b, json, c->chosen, verdicts);
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
    for (uint32_t i = 0, first = 1; i < HEED_CLASSES && st == HEED_OK; i++) {
        const heed_class_plan *c = &plan->class_plan[i];
        const int few = i >= HEED_FEW_KEYS_OF;
        const heed_kernel *chosen;
        heed_verdicts verdicts;
        if (!c->kernel || is_empty(plan, i))
            continue;
        st = heed_select(context, &c->problem, few, c->passed, &chosen, &verdicts, why);
        if (st != HEED_OK)
            break;
        heed_put(b, "%s", json && !first ? ", " : "");
        put_class(b, json, plan, i, &verdicts);
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
    heed_fpenv saved = heed_fpenv_enter(); /* selection must choose as it did before */
    heed_status st = heed_put_plan(&b, json, plan, why);
    heed_fpenv_leave(saved);
    return st == HEED_OK ? heed_text_end(&b, bytes, why) : st;
}
