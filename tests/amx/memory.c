/* Each part of a workspace takes at most 4 MiB, whatever the lengths are. */
#include "amx.h"

#include "../unit/unit.h"

static void per_part(heed_context *context, uint32_t accuracy, uint32_t q_heads, uint32_t kv_heads,
                     uint32_t dim, int64_t len)
{
    uint32_t type = accuracy == HEED_ACCURACY_SPLIT ? HEED_F32 : HEED_BF16;
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           UNIT_SHAPE(q_heads, kv_heads, dim, dim),
                           UNIT_TYPES(type, type, type, type),
                           .accuracy = accuracy,
                           .max_batch = 4,
                           .max_q_len = len,
                           .max_kv_len = len};
    heed_attn *plan = NULL;
    size_t bytes;
    CHECK_OK(heed_attn_create(context, &desc, &plan));
    bytes = heed_attn_workspace_bytes(plan, 3) - heed_attn_workspace_bytes(plan, 2);
    printf("%s %2u over %2u heads, dim %3u, %5lld long: %7zu bytes a part\n",
           type == HEED_F32 ? "f32 split" : "bf16     ", q_heads, kv_heads, dim, (long long)len,
           bytes);
    CHECK(bytes <= 4u << 20, "%zu bytes", bytes);
    heed_attn_release(plan);
}

int main(void)
{
    static const uint32_t heads[][2] = {{12, 12}, {32, 8}, {16, 1}}, dims[] = {64, 80, 128, 256};
    static const int64_t lens[] = {128, 512, 2048, 8192};
    static heed_backend table;
    heed_context *context = unit_context(1, "amx_counted");
    table = *heed_amx_model_backend();
    table.name = "amx_counted";
    CHECK_OK(heed_context_register(context, &table));
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (size_t n = 0; n < sizeof lens / sizeof *lens; n++)
                for (int split = 0; split < 2; split++)
                    per_part(context, split ? HEED_ACCURACY_SPLIT : HEED_ACCURACY_BF16, heads[h][0],
                             heads[h][1], dims[d], lens[n]);
    heed_context_release(context);
    return checks_end();
}
