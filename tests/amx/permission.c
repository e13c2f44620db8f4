/* Where the kernel refuses the permission to use the tile registers, or HEED_MAX_ISA is below amx,
 * the backend is listed with the reason and another one runs the problem.
 *
 * A seccomp filter plays the refusing kernel, in a child. The test runs on machines without AMX
 * too: a table beside the built-in ones tells the backend's open that the CPU has everything. */
#define _DEFAULT_SOURCE
#include "amx.h"
#include "base/cpu.h"

#include "../unit/unit.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023

/* Makes arch_prctl(ARCH_REQ_XCOMP_PERM) fail with EPERM. Returns 0, or -1 where there are no
 * filters. */
static int refuse_permission(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH_REQ_XCOMP_PERM, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
               ? -1
               : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static heed_status open_full_cpu(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    heed_cpu full = *cpu;
    full.isa = ~UINT64_C(0);
    return heed_amx_backend()->open(&full, machine, why);
}

/* The text of heed_context_backends, in a static buffer. */
static const char *listing(heed_context *context)
{
    static char text[16384];
    size_t bytes = sizeof text;
    CHECK_OK(heed_context_backends(context, 0, text, &bytes));
    return text;
}

/* bf16 attention, which amx would run, runs on another backend and is right. */
static void run_another(heed_context *context)
{
    static uint16_t q[40][32], k[60][32], v[60][32];
    static float out[40][32];
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           UNIT_SHAPE(1, 1, 32, 32),
                           UNIT_TYPES(HEED_BF16, HEED_BF16, HEED_BF16, HEED_F32)};
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = 40,
                           .kv_len = 60,
                           .q = {q, {0, 0, 32, 1}},
                           .k = {k, {0, 0, 32, 1}},
                           .v = {v, {0, 0, 32, 1}},
                           .out = {out, {0, 0, 32, 1}}};
    int wrong = 0;
    for (int j = 0; j < 60; j++)
        for (int d = 0; d < 32; d++)
            v[j][d] = 0x3f80; /* 1 */
    CHECK_OK(heed_attention(context, &desc, &args));
    for (int i = 0; i < 40; i++)
        for (int d = 0; d < 32; d++)
            wrong += out[i][d] != 1;
    CHECK(wrong == 0, "%d elements are wrong", wrong);
}

static int refused_child(void)
{
    static heed_backend table;
    heed_context *context;
    heed_error why = {""};
    const void *machine = NULL;
    heed_cpu cpu = {.struct_size = sizeof cpu};
    if (refuse_permission() != 0) {
        printf("no seccomp filters here: %s\n", strerror(errno));
        return 77;
    }
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512vbmi")) {
        printf("open needs AVX512_VBMI before it asks the kernel\n");
        return 77;
    }
    CHECK(open_full_cpu(&cpu, &machine, &why) == HEED_ERR_UNSUPPORTED &&
              strstr(why.text, "EPERM") && strstr(why.text, "permission"),
          "open says '%s'", why.text);
    table = *heed_amx_backend();
    table.name = "amx_refused";
    table.open = open_full_cpu;
    context = unit_context(1, NULL);
    CHECK_OK(heed_context_register(context, &table));
    CHECK(strstr(listing(context), "arch_prctl ARCH_REQ_XCOMP_PERM: EPERM"), "%s",
          listing(context));
    run_another(context);
    heed_context_release(context);
    return checks_end();
}

/* The decision by measured rates, and its text for heed info. */
static void judge_rates(void)
{
    heed_error note = {""};
    CHECK(heed_amx_judge(5.3, 0.17, &note) == 1 && strstr(note.text, "16.4 times"), "%s",
          note.text);
    CHECK(heed_amx_judge(40, 0.17, &note) > 100 && strstr(note.text, "by name"), "%s", note.text);
}

/* What CPUID may say of tiles: those of Sapphire Rapids, nothing, and less than the kernels use. */
static void judge_palettes(void)
{
    const uint32_t tiles[4] = {8192 | 1024 << 16, 64 | 8 << 16, 16},
                   products[4] = {0, 16 | 64 << 8};
    const uint32_t none[4] = {0}, few[4] = {4096 | 1024 << 16, 64 | 4 << 16, 16};
    const uint32_t low[4] = {8192 | 512 << 16, 64 | 16 << 16, 8}, narrow[4] = {0, 8 | 32 << 8};
    heed_error why = {""};
    CHECK(heed_amx_palette(tiles, products, &why) == HEED_OK, "%s", why.text);
    CHECK(heed_amx_palette(none, none, &why) == HEED_OK, "%s", why.text);
    CHECK(heed_amx_palette(few, products, &why) == HEED_ERR_UNSUPPORTED &&
              strstr(why.text, "has 4 of 16 rows x 64 bytes"),
          "it says '%s'", why.text);
    CHECK(heed_amx_palette(low, products, &why) == HEED_ERR_UNSUPPORTED, "8 rows are enough");
    CHECK(heed_amx_palette(tiles, narrow, &why) == HEED_ERR_UNSUPPORTED &&
              strstr(why.text, "has 8 rows x 32 bytes"),
          "it says '%s'", why.text);
}

/* max_isa, in a context and in heed_cpu_cap, which HEED_MAX_ISA goes through as well. */
static void lower_isa(void)
{
    heed_context_options options = {.struct_size = sizeof options, .max_isa = "avx512"};
    heed_context *context = NULL;
    heed_error why = {""};
    heed_cpu cpu = {.struct_size = sizeof cpu, .isa = ~UINT64_C(0)};
    CHECK(heed_cpu_cap(&cpu, "amx") == 0, "amx is no word");
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vbmi"))
        CHECK(heed_amx_isa(&cpu, &why) == HEED_OK, "%s", why.text);
    CHECK(heed_cpu_cap(&cpu, "avx512") == 0, "avx512 is no word");
    CHECK(heed_amx_isa(&cpu, &why) == HEED_ERR_UNSUPPORTED && strstr(why.text, "HEED_MAX_ISA"),
          "it says '%s'", why.text);
    CHECK_OK(heed_context_create(&options, &context));
    CHECK(strstr(listing(context), "needs AMX_TILE, which this CPU, its OS or HEED_MAX_ISA does"),
          "%s", listing(context));
    run_another(context);
    heed_context_release(context);
}

int main(void)
{
    pid_t child;
    int status = 0;
    fflush(stdout);
    child = fork();
    if (child == 0)
        exit(refused_child());
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "no child");
    lower_isa();
    judge_rates();
    judge_palettes();
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77),
          "the child ended with %d", status);
    status = WIFEXITED(status) && WEXITSTATUS(status) == 77 ? 77 : 0;
    return checks_end() ? 1 : status;
}
