/* Before a kernel may run a layer its `supports` has to agree and its trial to pass. */
#include "select.h"

#include "trial.h"

#include <stdio.h>

static heed_status consider(heed_context *context, heed_kernel *kernel, const void *of,
                            heed_error *why)
{
    why->text[0] = 0;
    const heed_status st = kernel->linear->supports(kernel->machine, of, why);
    return st == HEED_OK ? heed_linear_trial(context, kernel, why) : heed_refused(kernel, st, why);
}

static double cost(const heed_kernel *kernel, const void *of)
{
    return kernel->linear->cost(kernel->machine, of, HEED_LINEAR_COST_ROWS);
}

heed_status heed_select_linear(heed_context *context, const heed_linear_problem *problem,
                               const heed_passed *passed, const heed_kernel **chosen,
                               heed_verdicts *verdicts, heed_error *why)
{
    char sample[32];
    snprintf(sample, sizeof sample, "%d rows on one core", HEED_LINEAR_COST_ROWS);
    const heed_question question = {1, consider, cost, problem, "layer", sample, passed};
    return heed_choose(context, &question, chosen, verdicts, why);
}
