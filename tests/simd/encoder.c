/* Which backend's kernel encodes rows that are appended: the cheapest or, with a list of backends,
 * that of the first in the list that has one. The list may be a context's or HEED_BACKEND, and a
 * cap on instruction sets holds as if the CPU had no more. */
#define _GNU_SOURCE /* setenv */
#include "runtime/encoder.h"

#include "../unit/unit.h"

const heed_backend *heed_avx2_backend(void);
const heed_backend *heed_avx512_backend(void);

static void check_context(const char *list, const char *most, const heed_append_kernel *want)
{
    heed_context *context = NULL;
    heed_context_options options = {
        .struct_size = sizeof options, .n_threads = 1, .backends = list, .max_isa = most};
    CHECK_OK(heed_context_create(&options, &context));
    const heed_append_kernel *found = heed_encoder_of(context);
    CHECK(found == want, "list %s, max_isa %s: kernel of cost %g, not %g", list ? list : "(none)",
          most ? most : "(none)", found ? found->cost : 0, want ? want->cost : 0);
    heed_context_release(context);
}

static heed_status refuse(const heed_cpu *cpu, heed_error *why)
{
    (void)cpu;
    return heed_refuse(why, "not here");
}

/* A registered backend's kernel is taken if it costs less, unless it refuses. */
static void check_registered(const heed_append_kernel *other)
{
    heed_append_kernel cheap = *other;
    heed_backend backend = *heed_avx2_backend();
    heed_context *context = unit_context(1, NULL);
    cheap.cost = other->cost / 2;
    backend.name = "cheap";
    backend.append = &cheap;
    CHECK_OK(heed_context_register(context, &backend));
    CHECK(heed_encoder_of(context) == &cheap, "the cheapest is not taken");
    cheap.supports = refuse;
    CHECK(heed_encoder_of(context) == other, "one that refuses is taken");
    cheap.supports = other->supports;
    backend.struct_size = offsetof(heed_backend, append);
    CHECK(heed_encoder_of(context) == other, "a member is read that an older backend lacks");
    heed_context_release(context);
}

int main(void)
{
    const heed_append_kernel *avx2 = heed_avx2_backend()->append;
    const heed_append_kernel *avx512 = heed_avx512_backend()->append;
    heed_cpu cpu;
    heed_error why = {""};
    setenv("HEED_BACKEND", "onednn,avx2,avx512", 1);
    heed_cpu_detect(&cpu);
    if (avx2->supports(&cpu, &why) != HEED_OK || avx512->supports(&cpu, &why) != HEED_OK) {
        printf("not both are here: %s\n", why.text);
        return 77;
    }
    CHECK(heed_encoder_here() == avx2, "HEED_BACKEND does not say which");
    setenv("HEED_BACKEND", "naive", 1);
    CHECK(heed_encoder_here() == avx2, "the choice is not kept");
    unsetenv("HEED_BACKEND");
    check_context(NULL, NULL, avx512);
    check_context("avx2,avx512", NULL, avx2);
    check_context("naive,avx512", NULL, avx512);
    check_context("naive", NULL, NULL);
    check_context(NULL, "avx2", avx2);
    check_context(NULL, "baseline", NULL);
    check_registered(avx512);
    return checks_end();
}
