/* The contexts of the fuzz targets, and how they report findings. See fuzz.h. */
#include "fuzz.h"

#include <stdlib.h>

void fuzz_finding(const char *what, const char *detail)
{
    fuzz_host_leave();
    fprintf(stderr, "finding: %s: %s\n", what, detail);
    fuzz_describe(stderr);
    abort();
}

static heed_context *make_context(const char *backend)
{
    static const heed_linear_desc plain = {.struct_size = sizeof plain,
                                           .in_dim = 1,
                                           .out_dim = 1,
                                           .x_type = HEED_BF16,
                                           .w_type = HEED_BF16,
                                           .y_type = HEED_F32};
    const heed_context_options options = {
        .struct_size = sizeof options, .n_threads = 1, .backends = backend};
    heed_context *context = NULL;
    if (heed_context_create(&options, &context) != HEED_OK)
        fuzz_finding("heed_context_create", heed_last_error());
    if (backend && heed_linear_supported(context, &plain, NULL) != HEED_OK) {
        heed_context_release(context);
        return NULL;
    }
    return context;
}

heed_context *fuzz_context_of(int which)
{
    static const char *const name[FUZZ_CONTEXTS] = {NULL, "naive", "avx2", "avx512", "amx"};
    static heed_context *contexts[FUZZ_CONTEXTS];
    if (!contexts[FUZZ_ANY])
        for (int i = 0; i < (getenv("HEED_BACKEND") ? 1 : FUZZ_CONTEXTS); i++)
            contexts[i] = make_context(name[i]);
    return contexts[which];
}

heed_context *fuzz_context(fuzz_bytes *bytes)
{
    heed_context *one = fuzz_context_of((int)fuzz_below(bytes, FUZZ_CONTEXTS));
    return one ? one : fuzz_context_of(FUZZ_ANY);
}

void fuzz_judge(const kit_outcome *outcome, const heed_context *context)
{
    if (outcome->verdict == KIT_FAILED ||
        (outcome->verdict == KIT_REFUSED && context == fuzz_context_of(FUZZ_ANY) &&
         !getenv("HEED_BACKEND")))
        fuzz_finding("the kit", outcome->text);
}
