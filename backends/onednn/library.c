/* This process's oneDNN: whether it is the version we were compiled with, which instructions it
 * uses, and whether it may. Built for the baseline CPU. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "onednn.h"

#define COMPILED_WITH DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static heed_onednn_library library; /* written once, under the lock, before anybody reads it */
static int opened;

/* ---- fork ------------------------------------------------------------------------------------ */

static atomic_int n_opening, used, lost;

static void in_child(void)
{
    if (atomic_load(&n_opening) || atomic_load(&used))
        atomic_store(&lost, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

int heed_onednn_is_lost(void)
{
    return atomic_load_explicit(&lost, memory_order_relaxed);
}

static heed_status check_fork(heed_error *why)
{
    if (!heed_onednn_is_lost())
        return HEED_OK;
    return heed_refuse(why, "the parent process used oneDNN before fork(), which its locks do not "
                            "survive");
}

heed_status heed_onednn_use(heed_error *why)
{
    atomic_store(&used, 1);
    return check_fork(why);
}

/* ---- instruction sets ------------------------------------------------------------------------ */

/* oneDNN's names of instruction sets, from the least on: its own variable accepts them, and our
 * messages use them. */
static const struct {
    const char *name;
    int isa;
} isas[] = {
    {"SSE41", dnnl_cpu_isa_sse41},
    {"AVX", dnnl_cpu_isa_avx},
    {"AVX2", dnnl_cpu_isa_avx2},
    {"AVX2_VNNI", dnnl_cpu_isa_avx2_vnni},
#if DNNL_VERSION_MAJOR >= 3
    {"AVX2_VNNI_2", dnnl_cpu_isa_avx2_vnni_2},
#endif
    {"AVX512_CORE", dnnl_cpu_isa_avx512_core},
    {"AVX512_CORE_VNNI", dnnl_cpu_isa_avx512_core_vnni},
    {"AVX512_CORE_BF16", dnnl_cpu_isa_avx512_core_bf16},
#if DNNL_VERSION_MAJOR >= 3
    {"AVX512_CORE_FP16", dnnl_cpu_isa_avx512_core_fp16},
#endif
    {"AVX512_CORE_AMX", dnnl_cpu_isa_avx512_core_amx},
};
#define N_ISAS (int)(sizeof isas / sizeof *isas)

static int rank_of_name(const char *name)
{
    for (int i = 0; i < N_ISAS; i++)
        if (name && !strcasecmp(isas[i].name, name))
            return i;
    return N_ISAS; /* ALL, DEFAULT, newer names, and nonsense, which oneDNN takes for ALL */
}

static int rank_of_isa(int isa)
{
    for (int i = 0; i < N_ISAS; i++)
        if (isas[i].isa == isa)
            return i;
    return N_ISAS;
}

#if defined(__x86_64__)
/* Some hypervisors let guests use AMX but say nothing of its tiles (CPUID leaf 1DH is zero). oneDNN
 * then configures tiles of no rows, and its first tile instruction is an invalid one. */
static int tiles_are_described(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) || a < 1)
        return 0;
    return __get_cpuid_count(0x1d, 1, &a, &b, &c, &d) && (b >> 16) != 0 && (c & 0xffff) != 0;
}

/* The most that oneDNN may use, as a rank, and why not more. N_ISAS: no limit. */
static int most_allowed(const heed_cpu *cpu, const char **why)
{
    const uint64_t amx = HEED_ISA_AMX_TILE | HEED_ISA_AMX_BF16 | HEED_ISA_AMX_INT8;
    const uint64_t avx512 =
        HEED_ISA_AVX512F | HEED_ISA_AVX512BW | HEED_ISA_AVX512DQ | HEED_ISA_AVX512VL;
    *why = "";
    if ((cpu->isa & amx) == amx && tiles_are_described())
        return N_ISAS;
    if ((cpu->isa & avx512) == avx512) {
        if ((cpu->isa & amx) == amx)
            *why = ", not AMX: CPUID leaf 1DH does not describe its tiles";
        return rank_of_isa(dnnl_cpu_isa_avx512_core_amx) - 1;
    }
    if (cpu->isa & HEED_ISA_AVX2)
        return rank_of_isa(dnnl_cpu_isa_avx512_core) - 1;
    return rank_of_isa(dnnl_cpu_isa_sse41);
}

/* Chooses the functions of rows.h for this CPU; *needed receives the features they need. */
static const heed_onednn_rows *choose_rows(const heed_cpu *cpu, uint64_t *needed)
{
    const uint64_t avx2 = HEED_ISA_AVX2 | HEED_ISA_FMA | HEED_ISA_F16C;
    const uint64_t avx512 =
        avx2 | HEED_ISA_AVX512F | HEED_ISA_AVX512BW | HEED_ISA_AVX512DQ | HEED_ISA_AVX512VL;
    (void)avx512;
#if HEED_ONEDNN_HAVE_AVX512
    *needed = avx512;
    if ((cpu->isa & avx512) == avx512)
        return &heed_onednn_rows_avx512;
#endif
#if HEED_ONEDNN_HAVE_AVX2
    *needed = avx2;
    if ((cpu->isa & avx2) == avx2)
        return &heed_onednn_rows_avx2;
#endif
    (void)cpu;
    *needed = 0;
    return &heed_onednn_rows_plain;
}

/* May a context with this CPU use the instruction set that oneDNN has settled on in this process?
 * Another context may have been first, with a higher cap. */
static heed_status check_isa(const heed_cpu *cpu, const heed_onednn_library *found, heed_error *why)
{
    const char *why_less;
    const int most = most_allowed(cpu, &why_less);
    if (found->rank > most || (cpu->isa & found->rows_need) != found->rows_need)
        return heed_refuse(why,
                           "oneDNN was used before in this process, with %s; this CPU, its OS or "
                           "HEED_MAX_ISA allows %s",
                           found->isa, isas[most < N_ISAS ? most : N_ISAS - 1].name);
    return HEED_OK;
}

/* Lowers oneDNN's instruction set to what is allowed, which it permits until its first use. A lower
 * limit that the user has set stands. */
static heed_status limit_isa(const heed_cpu *cpu, heed_onednn_library *found, const char **why_less,
                             heed_error *why)
{
    const char *wish = getenv("ONEDNN_MAX_CPU_ISA");
    int most = most_allowed(cpu, why_less);
    if (!wish)
        wish = getenv("DNNL_MAX_CPU_ISA"); /* its older name */
    if (most < N_ISAS && rank_of_name(wish) > most)
        dnnl_set_max_cpu_isa((dnnl_cpu_isa_t)isas[most].isa); /* if too late, check_isa refuses */
    else
        *why_less = "";
    const int effective = rank_of_isa(dnnl_get_effective_cpu_isa());
    found->rank = effective;
    snprintf(found->isa, sizeof found->isa, "%s",
             effective < N_ISAS ? isas[effective].name : "more than AVX512_CORE_AMX");
    found->rows = choose_rows(cpu, &found->rows_need);
    heed_status st = check_isa(cpu, found, why);
    if (st != HEED_OK)
        return st;
    found->slower = effective >= rank_of_isa(dnnl_cpu_isa_avx512_core) ? 1.0f
                    : effective >= rank_of_isa(dnnl_cpu_isa_avx2)      ? 1.9f
                                                                       : 8.0f;
    found->has_bf16 = effective >= rank_of_isa(dnnl_cpu_isa_avx512_core_bf16);
    found->fast_bf16 = effective >= rank_of_isa(dnnl_cpu_isa_avx512_core_amx) ||
                       (found->has_bf16 && (cpu->fast & HEED_ISA_AVX512_BF16));
    return HEED_OK;
}
#else
static heed_status check_isa(const heed_cpu *cpu, const heed_onednn_library *found, heed_error *why)
{
    (void)cpu;
    (void)found;
    (void)why;
    return HEED_OK;
}

static heed_status limit_isa(const heed_cpu *cpu, heed_onednn_library *found, const char **why_less,
                             heed_error *why)
{
    (void)cpu;
    (void)why;
    *why_less = "";
    snprintf(found->isa, sizeof found->isa, "no x86");
    found->rows = &heed_onednn_rows_plain;
    found->slower = 4;
    return HEED_OK;
}
#endif

/* ---- the library ----------------------------------------------------------------------------- */

/* Finds the functions of the OpenMP runtime that oneDNN uses. */
static heed_status find_threads(const dnnl_version_t *version, heed_onednn_threads *threads,
                                heed_error *why)
{
    if (version->cpu_runtime == DNNL_RUNTIME_SEQ)
        return HEED_OK;
    if (version->cpu_runtime != DNNL_RUNTIME_OMP)
        return heed_refuse(why,
                           "oneDNN was built with a thread runtime other than OpenMP (its number "
                           "%u), which cannot be kept to one thread",
                           version->cpu_runtime);
    *(void **)&threads->get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&threads->set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (!threads->get || !threads->set)
        return heed_refuse(why, "oneDNN's OpenMP runtime does not show omp_set_num_threads");
    return HEED_OK;
}

static heed_status open_library(const heed_cpu *cpu, heed_error *why)
{
    const dnnl_version_t *version = dnnl_version();
    const char *why_less = "";
    heed_onednn_library found = {.engine = NULL};
    if (version->major != DNNL_VERSION_MAJOR || version->minor != DNNL_VERSION_MINOR)
        return heed_refuse(why, "compiled with oneDNN %d.%d.%d, but this process has %d.%d.%d",
                           COMPILED_WITH, version->major, version->minor, version->patch);
    heed_status st = find_threads(version, &found.threads, why);
    if (st == HEED_OK)
        st = limit_isa(cpu, &found, &why_less, why);
    if (st != HEED_OK)
        return st;
    dnnl_status_t status = dnnl_engine_create(&found.engine, dnnl_cpu, 0);
    if (status == dnnl_out_of_memory)
        return HEED_ERR_NOMEM;
    if (status != dnnl_success)
        return heed_refuse(why, "oneDNN has no engine for this CPU: %s",
                           heed_dnnl_status_name(status));
    /* Callers may bring more threads than there are cores; the last of them then wait. */
    found.n_slots = cpu->n_cores < 16 ? 16 : cpu->n_cores > 256 ? 256 : cpu->n_cores;
    snprintf(found.note, sizeof found.note, "oneDNN %d.%d.%d, which uses %s%s", version->major,
             version->minor, version->patch, found.isa, why_less);
    library = found;
    return HEED_OK;
}

heed_status heed_onednn_open(const heed_cpu *cpu, heed_error *why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    heed_status st = check_fork(why);
    if (st != HEED_OK)
        return st; /* not even the lock: another thread of the parent may have held it */
    pthread_once(&once, watch_forks);
    atomic_fetch_add(&n_opening, 1);
    pthread_mutex_lock(&lock);
    if (opened) {
        st = check_isa(cpu, &library, why);
    } else {
        st = open_library(cpu, why);
        opened = st == HEED_OK;
    }
    if (st == HEED_OK && why)
        snprintf(why->text, sizeof why->text, "%s", library.note);
    pthread_mutex_unlock(&lock);
    atomic_fetch_sub(&n_opening, 1);
    return st;
}

const heed_onednn_library *heed_onednn_opened(void)
{
    return &library;
}
