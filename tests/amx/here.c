/* Whether the backend amx can run here: ends with 0, or with 77 after printing why not. For
 * where_it_runs.sh. */
#include "../unit/unit.h"

int main(void)
{
    heed_context *context = unit_context(1, "amx");
    unit_problem any = unit_make(1, 1, 1, 1, 8, 7);
    any.desc.accuracy = HEED_ACCURACY_SPLIT;
    const int here = heed_attn_supported(context, &any.desc, NULL) == HEED_OK;
    if (!here)
        printf("not here: %s\n", heed_last_error());
    unit_free(&any);
    heed_context_release(context);
    return here ? 0 : 77;
}
