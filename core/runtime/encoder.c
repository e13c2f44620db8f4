/* Chooses the kernel that encodes the rows of a cache; see encoder.h. All of these kernels make the
 * same bytes, so nothing but time depends on the choice. */
#include "encoder.h"

#include "base/env.h"
#include "fork.h"
#include "load.h"
#include "select.h"

typedef struct choice {
    const heed_append_kernel *kernel;
    int place;
} choice;

static void consider(choice *best, const heed_backend *backend, const char *list,
                     const heed_cpu *cpu)
{
    const heed_append_kernel *k = HEED_KERNEL_HAS(backend, append) ? backend->append : NULL;
    const int place = heed_place_in_list(list, backend->name);
    heed_error why = {""};
    if (!k || place < 0 || k->supports(cpu, &why) != HEED_OK)
        return;
    if (!best->kernel || place < best->place ||
        (place == best->place && k->cost < best->kernel->cost))
        *best = (choice){k, place};
}

const heed_append_kernel *heed_encoder_of(heed_context *context)
{
    choice best = {NULL, 0};
    heed_context_lock(context);
    for (uint32_t i = 0; i < context->registry.n; i++)
        if (context->registry.entry[i].usable)
            consider(&best, context->registry.entry[i].backend, context->wanted, &context->cpu);
    heed_context_unlock(context);
    return best.kernel;
}

static const heed_append_kernel *choose_here(void)
{
    choice best = {NULL, 0};
    heed_cpu cpu;
    const char *list = heed_env("HEED_BACKEND"), *most = heed_env("HEED_MAX_ISA");
    heed_cpu_detect(&cpu);
    if (most && heed_cpu_cap(&cpu, most)) /* an unknown word: a context reports it */
        return NULL;
#define HEED_BUILTIN(name) consider(&best, heed_##name##_backend(), list, &cpu);
    HEED_BUILTIN_LIST
#undef HEED_BUILTIN
    return best.kernel;
}

/* The first call chooses. Several first calls at once choose the same. */
const heed_append_kernel *heed_encoder_here(void)
{
    static _Atomic(const heed_append_kernel *) found;
    static atomic_int is_found;
    if (!atomic_load_explicit(&is_found, memory_order_acquire)) {
        atomic_store_explicit(&found, choose_here(), memory_order_relaxed);
        atomic_store_explicit(&is_found, 1, memory_order_release);
    }
    return atomic_load_explicit(&found, memory_order_relaxed);
}
