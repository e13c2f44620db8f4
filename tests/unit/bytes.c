/* What plans ask for: at 65536 query rows and keys a workspace of one part takes at most 4 MiB,
 * each further part as much, and 16 times the keys take next to nothing more. For every backend
 * that runs f32 here. */
#include "unit.h"

static size_t bytes_of(heed_context *context, const heed_attn_desc *desc, uint32_t n_parts)
{
    heed_attn *plan = NULL;
    CHECK_OK(heed_attn_create(context, desc, &plan));
    const size_t bytes = plan ? heed_attn_workspace_bytes(plan, n_parts) : 0;
    heed_attn_release(plan);
    return bytes;
}

static void shape(heed_context *context, const char *backend, uint32_t q_heads, uint32_t dim,
                  uint32_t type, uint64_t features, int64_t q_len)
{
    const size_t limit = (size_t)4 << 20;
    char name[100];
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           .features = features,
                           UNIT_SHAPE(q_heads, 8, dim, dim),
                           UNIT_TYPES(type, type, type, type),
                           .max_batch = 1,
                           .max_q_len = q_len,
                           .max_kv_len = 65536};
    snprintf(name, sizeof name, "%s %s, %u heads on 8, dim %u, %lld rows, %s", backend,
             type == HEED_F32 ? "f32" : "bf16", q_heads, dim, (long long)q_len,
             features ? "mask" : "no mask");
    const size_t one = bytes_of(context, &desc, 1), two = bytes_of(context, &desc, 2);
    printf("%-60s %7zu bytes, each further part %7zu\n", name, one, two - one);
    CHECK(one > 0 && one <= limit, "%s: %zu bytes", name, one);
    CHECK(two > one && two - one <= limit, "%s: %zu bytes for a further part", name, two - one);
    desc.max_batch = 64;
    CHECK(bytes_of(context, &desc, 1) <= limit, "%s, 64 sequences: %zu bytes", name,
          bytes_of(context, &desc, 1));
    /* Longer keys may add four more levels of states, of eight heads at most, and a few bytes per
     * chunk. A mask may add a byte for each block of 64 keys and head of a tile, which may take all
     * heads, and what its table of 256 KiB did not use at the shorter length. */
    desc.max_batch = 1;
    desc.max_kv_len *= 16;
    const size_t masks =
        features ? ((size_t)256 << 10) + q_heads * (size_t)desc.max_kv_len / 64 : 0;
    const size_t state = (size_t)(q_heads / 8) * (q_len < 16 ? q_len : 16) * (dim + 2) * 4;
    const size_t more = 8 * 4 * state + ((size_t)64 << 10) + masks;
    const size_t longer = bytes_of(context, &desc, 1);
    CHECK(longer <= one + more && longer <= limit, "%s: %zu bytes for 16 times the keys", name,
          longer);
}

static void backend(heed_context *context, const char *name)
{
    static const uint32_t heads[] = {8, 32}, dims[] = {64, 128, 256};
    const int there = unit_runs_here(context);
    for (int h = 0; there && h < 2; h++)
        for (int d = 0; d < 3; d++)
            for (int type = 0; type < 2; type++)
                for (int masked = 0; masked < 2; masked++)
                    for (int64_t q_len = 1; q_len <= 65536; q_len += 65535)
                        shape(context, name, heads[h], dims[d], type ? HEED_BF16 : HEED_F32,
                              masked ? HEED_HAS_MASK : 0, q_len);
}

int main(void)
{
    unit_each_backend(backend);
    return checks_end();
}
