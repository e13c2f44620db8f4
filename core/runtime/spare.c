/* The workspace that a context keeps for calls without one. */
#include "spare.h"

#include "base/compiler.h"

/* A spare workspace starts with its size. */
void *heed_spare_borrow(heed_context *context, size_t bytes, size_t *got)
{
    void *spare = atomic_exchange(&context->workspace, NULL);
    if (spare) {
        memcpy(got, spare, sizeof *got);
        if (*got >= bytes)
            return spare;
        heed_free(context, spare, *got);
    }
    *got = bytes;
    return heed_alloc(context, bytes, HEED_CACHE_LINES);
}

/* Keeps a workspace, or NULL, in place of the one that was kept. */
static void keep(heed_context *context, void *workspace)
{
    size_t bytes;
    void *other = atomic_exchange(&context->workspace, workspace);
    if (other) {
        memcpy(&bytes, other, sizeof bytes);
        heed_free(context, other, bytes);
    }
}

void heed_spare_return(heed_context *context, void *workspace, size_t bytes)
{
    memcpy(workspace, &bytes, sizeof bytes);
    keep(context, workspace);
}

void heed_spare_drop(heed_context *context)
{
    keep(context, NULL);
}
