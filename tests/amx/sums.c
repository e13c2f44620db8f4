/* lse and weights of AMX: ../simd/sums.h. The kernels run on the model; `sums emulated` and `sums
 * hardware` run those compiled for the unit. */
#define _DEFAULT_SOURCE
#include "which.h"

#include "../simd/sums.h"

int main(int argc, char **argv)
{
    /* weights are added in lanes of 16 */
    const sums_of of = {.backend = "amx_sums", .dims = {64, 96}, .first = 16, .per = 16};
    heed_context *context = which_context(argc, argv, of.backend);
    if (!context)
        return 77;
    check_sums(context, &of);
    heed_context_release(context);
    return checks_end();
}
