/* Checks a tiling before core works by it. */
#include "tiling.h"

const char *heed_tiling_flaw(const heed_attn_kernel *kernel, const heed_tiling *t)
{
    return t->query_rows == 0 || t->query_rows > 1u << 20 ? "query_rows"
           : t->key_block == 0                            ? "key_block"
           : t->key_chunk % t->key_block                  ? "key_chunk"
           : t->prepare_bytes % 64 || (t->prepare_bytes && !HEED_KERNEL_HAS(kernel, prepare))
               ? "prepare_bytes"
           : t->wants_seen > 1 ? "wants_seen"
                               : NULL;
}
