/* With a cap on the instruction set, by the option or by HEED_MAX_ISA, the library chooses the
 * backend for the widest one that the cap allows and this CPU has. The test asks the compiler's run
 * time, not the library, what the CPU has. */
#define _GNU_SOURCE
#include "../unit/unit.h"
#include "here.h"

static const char *const cap[] = {"baseline", "avx2", "avx512", "amx", NULL};

/* The backend for f32 under cap n. */
static const char *widest(int n)
{
    return n >= 2 && runs_here(16) ? "avx512" : n >= 1 && runs_here(8) ? "avx2" : "naive";
}

/* Does this CPU have vdpbf16ps, in the fast form of AMD? */
static int has_fast_dot(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd");
}

typedef struct shape {
    uint32_t type, heads, dim;
    int64_t rows, keys;
} shape;

static const shape shapes[] = {
    {HEED_F32, 8, 64, 512, 512}, {HEED_F32, 8, 128, 1, 8192},  {HEED_F32, 8, 128, 4, 8192},
    {HEED_F32, 4, 8, 10, 10},    {HEED_BF16, 8, 64, 512, 512}, {HEED_BF16, 8, 128, 1, 8192},
};

static void check_shape(heed_context *context, const shape *s, int n, const char *how)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 UNIT_SHAPE(s->heads, s->heads, s->dim, s->dim),
                                 UNIT_TYPES(s->type, s->type, s->type, s->type),
                                 .max_batch = 1,
                                 .max_q_len = s->rows,
                                 .max_kv_len = s->keys};
    const char *want = widest(n), *class_name = unit_class_of(s->rows);
    char text[8192], line[64];
    size_t bytes = sizeof text;
    heed_attn *plan = NULL;
    heed_status st = heed_attn_create(context, &desc, &plan);
    CHECK(st == HEED_OK, "%s %s: %s", how, cap[n], heed_last_error());
    if (st != HEED_OK)
        return;
    CHECK_OK(heed_attn_explain(plan, 0, text, &bytes));
    snprintf(line, sizeof line, "%s: %s", class_name, want);
    const char *found = strstr(text, line);
    /* AMX may take bf16 instead: tests/amx checks that. */
    const int tiles = s->type == HEED_BF16 && n >= 3 && strstr(text, ": amx");
    /* So may an onednn plugin that has been installed where this build would go, under the cap
     * "baseline". */
    snprintf(line, sizeof line, "%s: onednn", class_name);
    const int module = n == 0 && strstr(text, line);
    snprintf(line, sizeof line, "%s: %s", class_name, want);
    CHECK(found || tiles || module, "%s %s, %lld rows: not %s but\n%s", how,
          cap[n] ? cap[n] : "none", (long long)s->rows, line, text);
    if (found) {
        const char *kernel = found + strlen(line);
        char rest[128] = "";
        snprintf(rest, sizeof rest, "%.*s", (int)strcspn(kernel, "\n"), kernel);
        const int dot = s->type == HEED_BF16 && n >= 2 && has_fast_dot();
        CHECK(!strcmp(want, "avx512") ? !!strstr(rest, "_bf16") == dot : !strstr(rest, "_bf16"),
              "%s %s: kernel%s", how, cap[n] ? cap[n] : "none", rest);
    }
    heed_attn_release(plan);
}

/* Which kernel has sequences of 2 to 16 rows: where decode ends and prefill begins. */
static const struct {
    uint32_t group, dim;
    uint64_t features;
    int64_t rows, keys;
    const char *kernel;
} few_rows[] = {
    {4, 128, 0, 11, 33, "decode"},
    {4, 128, 0, 12, 33, "prefill"},
    {4, 128, HEED_HAS_MASK, 12, 33, "prefill"},
    {3, 64, 0, 16, 4096, "prefill"},
    {2, 64, 0, 16, 4096, "decode"},
    {24, 64, 0, 2, 33, "prefill"},
    {23, 64, 0, 2, 33, "decode"},
    {1, 128, 0, 15, 32, "decode"},
    {1, 128, 0, 16, 32, "prefill"},
    {1, 128, 0, 16, 33, "decode"},
    {1, 64, 0, 7, 32, "decode"},
    {1, 64, 0, 8, 32, "prefill"},
    {1, 64, 0, 8, 33, "decode"},
    {8, 64, 0, 1, 32, "decode"},
    {4, 8, 0, 12, 32, "small"},
    {4, 8, 0, 12, 33, "prefill"},
};

static void check_few_rows(heed_context *context, int n)
{
    for (size_t i = 0; i < sizeof few_rows / sizeof *few_rows; i++) {
        const heed_attn_desc desc = {
            .struct_size = sizeof desc,
            .features = few_rows[i].features,
            UNIT_SHAPE(2 * few_rows[i].group, 2, few_rows[i].dim, few_rows[i].dim),
            UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
            .max_batch = 1,
            .max_q_len = 16,
            .max_kv_len = 4096};
        heed_kernel_info by = {.struct_size = sizeof by};
        heed_attn *plan = NULL;
        CHECK(heed_attn_create(context, &desc, &plan) == HEED_OK &&
                  heed_attn_kernel_of(plan, few_rows[i].rows, few_rows[i].keys, &by) == HEED_OK,
              "%s", heed_last_error());
        CHECK(by.kernel && !strcmp(by.kernel, few_rows[i].kernel),
              "%s, row %zu of the table: %s %s, not %s", cap[n], i, by.backend, by.kernel,
              few_rows[i].kernel);
        heed_attn_release(plan);
    }
}

int main(void)
{
    unsetenv("HEED_BACKEND");
    unsetenv("HEED_PLUGIN_PATH");
    __builtin_cpu_init();
    for (int by_option = 0; by_option < 2; by_option++)
        for (int n = 0; n < 5; n++) {
            heed_context_options options = {.struct_size = sizeof options};
            heed_context *context = NULL;
            unsetenv("HEED_MAX_ISA");
            if (by_option)
                options.max_isa = cap[n];
            else if (cap[n])
                setenv("HEED_MAX_ISA", cap[n], 1);
            CHECK_OK(heed_context_create(&options, &context));
            for (size_t i = 0; context && i < sizeof shapes / sizeof *shapes; i++)
                check_shape(context, &shapes[i], n, by_option ? "max_isa" : "HEED_MAX_ISA");
            if (context && (n == 1 || n == 2) && strcmp(widest(n), "naive"))
                check_few_rows(context, n);
            heed_context_release(context);
        }
    return checks_end();
}
