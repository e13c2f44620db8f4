/* A trial is made once per context and kernel, and its result kept. */
#include "trial.h"

#include "base/fpenv.h"
#include "base/reason.h"

heed_status heed_trial_once(heed_context *context, heed_kernel *kernel,
                            heed_status (*run)(heed_context *context, const heed_kernel *kernel,
                                               heed_error *why),
                            heed_error *why)
{
    heed_error *said = &kernel->trial_why;
    if (atomic_load(&kernel->trial) == HEED_TRIAL_NOT_YET) {
        heed_fpenv saved = heed_fpenv_enter();
        said->text[0] = 0; /* left by a trial for which there was no memory */
        heed_status st = run(context, kernel, said);
        heed_fpenv_leave(saved);
        if (st == HEED_ERR_NOMEM)
            return heed_fail(why, said->text[0] ? HEED_TRIAL_STARVED : HEED_ERR_NOMEM,
                             "no memory for the trial of %s %s%s%.150s", kernel->of->name,
                             kernel->name, said->text[0] ? ": " : "", said->text);
        atomic_store(&kernel->trial, st == HEED_OK ? HEED_TRIAL_PASSED : HEED_TRIAL_FAILED);
    }
    if (atomic_load(&kernel->trial) == HEED_TRIAL_PASSED)
        return HEED_OK;
    *why = *said;
    return HEED_ERR_UNSUPPORTED;
}
