/* lse and weights of bf16 problems: sums.h. avx512 rounds the product of q and scale, which is exact
 * with a scale that is a power of two: of 64 and 16 dims. */
#include "sums.h"

static void check_backend(const char *backend)
{
    /* weights are added in blocks of 128, one key after the other, and blocks likewise */
    const sums_of of = {.backend = backend, .dims = {64, 16}, .first = 128, .per = 128};
    heed_context *context = unit_context(1, backend);
    if (unit_runs_here(context))
        check_sums(context, &of);
    heed_context_release(context);
}

int main(void)
{
    check_backend("avx2");
    check_backend("avx512");
    if (!n_checks) {
        printf("neither avx2 nor avx512 runs here\n");
        return 77;
    }
    return checks_end();
}
