/* Once per context and backend: what came of it is kept. */
#include "trial.h"

#include "base/fpenv.h"
#include "base/reason.h"

heed_status heed_trial_once(heed_context *context, const heed_entry *entry, atomic_int *outcome,
                            heed_error *said,
                            heed_status (*run)(heed_context *context, const heed_backend *backend,
                                               heed_error *why),
                            heed_error *why)
{
    if (atomic_load(outcome) == HEED_TRIAL_NOT_YET) {
        heed_fpenv saved = heed_fpenv_enter();
        said->text[0] = 0; /* of a trial for which there was no memory */
        heed_status st = run(context, entry->backend, said);
        heed_fpenv_leave(saved);
        if (st == HEED_ERR_NOMEM)
            return heed_fail(why, said->text[0] ? HEED_TRIAL_STARVED : HEED_ERR_NOMEM,
                             "no memory for the trial of %s%s%.150s", entry->name,
                             said->text[0] ? ": " : "", said->text);
        atomic_store(outcome, st == HEED_OK ? HEED_TRIAL_PASSED : HEED_TRIAL_FAILED);
    }
    if (atomic_load(outcome) == HEED_TRIAL_PASSED)
        return HEED_OK;
    *why = *said;
    return HEED_ERR_UNSUPPORTED;
}
