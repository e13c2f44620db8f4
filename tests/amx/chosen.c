/* What the library chooses by itself where the CPU has a tile unit: tiles for bf16 with many query
 * rows, vectors for decode, for small calls and for problems that tiles would make inexact. The
 * backend here runs on the model of the unit, with the estimates of a CPU that has one. */
#define _GNU_SOURCE /* unsetenv */
#define HEED_AMX_MODEL
#include "amx.h"

#include "../simd/here.h"
#include "../unit/unit.h"

typedef struct shape {
    const char *what;
    uint32_t type, accuracy, q_heads, kv_heads, dim;
    int64_t rows, keys;
    uint64_t features;
    int tiles; /* for the most rows that a plan of this shape has */
} shape;

enum {
    F32 = HEED_F32,
    BF16 = HEED_BF16,
    USUAL = HEED_ACCURACY_DEFAULT,
    SPLIT = HEED_ACCURACY_SPLIT
};

static const shape shapes[] = {
    {"prefill", BF16, USUAL, 8, 8, 64, 512, 512, 0, 1},
    {"prefill of wide heads", BF16, USUAL, 8, 8, 128, 2048, 2048, 0, 1},
    {"causal prefill, groups of 4", BF16, USUAL, 32, 8, 128, 512, 512, HEED_HAS_CAUSAL, 1},
    {"BERT", BF16, USUAL, 12, 12, 64, 128, 128, 0, 1},
    {"prefill with a mask", BF16, USUAL, 8, 8, 64, 2048, 2048, HEED_HAS_MASK, 1},
    {"prefill with lse", BF16, USUAL, 8, 8, 64, 512, 512, HEED_HAS_LSE, 1},
    {"decode", BF16, USUAL, 8, 8, 128, 1, 8192, 0, 0},
    {"decode, groups of 4", BF16, USUAL, 32, 8, 128, 1, 8192, 0, 0},
    {"decode, groups of 8", BF16, USUAL, 64, 8, 128, 1, 8192, 0, 0},
    {"small", BF16, USUAL, 4, 4, 8, 10, 10, 0, 0},
    {"prefill in f32", F32, USUAL, 8, 8, 64, 512, 512, 0, 0},
    {"decode, split", F32, SPLIT, 8, 8, 128, 1, 8192, 0, 0},
    {"small, split", F32, SPLIT, 4, 4, 8, 10, 10, 0, 0},
};

static void check_shape(heed_context *context, const shape *s)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = s->features,
                                 .position = s->features & HEED_HAS_CAUSAL ? HEED_POS_BOTTOM_RIGHT
                                                                           : HEED_POS_UNSET,
                                 UNIT_SHAPE(s->q_heads, s->kv_heads, s->dim, s->dim),
                                 UNIT_TYPES(s->type, s->type, s->type, s->type),
                                 .accuracy = s->accuracy,
                                 .max_batch = 1,
                                 .max_q_len = s->rows,
                                 .max_kv_len = s->keys};
    char text[8192], line[64];
    size_t bytes = sizeof text;
    heed_attn *plan = NULL;
    CHECK_OK(heed_attn_create(context, &desc, &plan));
    CHECK_OK(heed_attn_explain(plan, 0, text, &bytes));
    snprintf(line, sizeof line, "%s: amx",
             unit_class_of(s->rows)); /* amx_tiles, or amx where it can run */
    CHECK(!strstr(text, line) == !s->tiles, "%s: tiles are%s what it should be\n%s", s->what,
          s->tiles ? "" : " not", text);
    heed_attn_release(plan);
}

int main(void)
{
    static heed_backend table;
    heed_context *context;
    if (!runs_here(16)) /* CPUs with tiles have AVX-512 beside them */
        return 77;
    unsetenv("HEED_BACKEND");
    unsetenv("HEED_PLUGIN_PATH");
    unsetenv("HEED_MAX_ISA");
    context = unit_context(1, NULL);
    table = *heed_amx_model_backend();
    table.name = "amx_tiles";
    CHECK_OK(heed_context_register(context, &table));
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        check_shape(context, &shapes[n]);
    heed_context_release(context);
    return checks_end();
}
