/* Before a kernel may run a layer its `supports` has to agree and its trial to pass. */
#include "select.h"

#include "trial.h"

static heed_status consider(heed_context *context, heed_kernel *kernel, const void *of,
                            heed_error *why)
{
    why->text[0] = 0;
    if (kernel->linear->supports(kernel->machine, of, why) != HEED_OK)
        return heed_refused(why);
    return heed_linear_trial(context, kernel, why);
}

static double cost(const heed_kernel *kernel, const void *of)
{
    return kernel->linear->cost(kernel->machine, of, HEED_LINEAR_COST_ROWS);
}

heed_status heed_select_linear(heed_context *context, const heed_linear_problem *problem,
                               const heed_passed *passed, const heed_kernel **chosen,
                               heed_verdicts *verdicts, heed_error *why)
{
    const heed_question question = {1, consider, cost, problem, "layer", passed};
    return heed_choose(context, &question, chosen, verdicts, why);
}
