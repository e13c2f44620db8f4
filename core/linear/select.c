/* What is asked of a backend before it may run a layer: its own word and its trial. */
#include "select.h"

#include "base/reason.h"
#include "trial.h"

static heed_status consider(heed_context *context, heed_entry *entry, const void *of,
                            heed_error *why)
{
    const heed_backend *b = entry->backend;
    if (!HEED_BACKEND_HAS(b, linear_tile))
        return heed_refuse(why, "it has no linear layers");
    why->text[0] = 0;
    if (b->linear_supports(of, why) != HEED_OK)
        return heed_refused(why);
    return heed_linear_trial(context, entry, why);
}

static double cost(const heed_backend *backend, const void *of)
{
    return backend->linear_cost(of, HEED_LINEAR_COST_ROWS);
}

heed_status heed_select_linear(heed_context *context, const heed_linear_problem *problem,
                               const heed_passed *passed, const heed_backend **chosen,
                               heed_verdict verdict[HEED_MAX_BACKENDS], heed_error *why)
{
    const heed_question question = {consider, cost, problem, "layer", passed};
    return heed_choose(context, &question, chosen, verdict, why);
}
