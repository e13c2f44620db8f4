/* Measures the ceilings: finds out what the CPU can run, runs a loop on a number of threads at
 * once, and takes medians. */
#define _GNU_SOURCE /* syscall */
#include "ceiling.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ceiling_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* ---- what the CPU and the operating system allow --------------------------------------------- */

enum { ISA_AVX2 = 1, ISA_AVX512 = 2, ISA_BF16 = 4, ISA_AMX = 8 };

#if defined(__x86_64__)
static unsigned long long enabled_state(void)
{
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (unsigned long long)high << 32 | low;
}

/* The tile data are 8 KiB of state, which Linux gives only on request: ARCH_REQ_XCOMP_PERM,
 * component 18. */
static int amx_permission(void)
{
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

static unsigned ask_cpu(void)
{
    unsigned a, b, c, d, found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    const unsigned long long state = enabled_state();
    const int fma = (c & bit_FMA) != 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (state & 6) != 6)
        return 0;
    const unsigned ebx = b, edx = d;
    if ((ebx & 1u << 5) && fma)
        found |= ISA_AVX2;
    if ((ebx & 1u << 16) && (ebx & 1u << 31) && (state & 0xe6) == 0xe6)
        found |= ISA_AVX512;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5) && (found & ISA_AVX512))
        found |= ISA_BF16;
    if ((edx & 1u << 22) && (edx & 1u << 24) && (state & 0x60000) == 0x60000 && amx_permission())
        found |= ISA_AMX;
    return found;
}
#else
static unsigned ask_cpu(void)
{
    return 0;
}
#endif

static unsigned isa(void)
{
    static unsigned found, asked;
    if (!asked) {
        found = ask_cpu();
        asked = 1;
    }
    return found;
}

typedef struct kind {
    const char *name;
    unsigned needs;
    const char *refusal;
    float (*run)(size_t iterations);
    double flops;          /* of one iteration */
    void (*prepare)(void); /* NULL: the loop reads no memory */
} kind;

/* A loop that the compiler could not build is absent and is reported as such. */
#if HEED_CEILING_HAVE_AVX2
#define AVX2(run) run
#else
#define AVX2(run) NULL
#endif
#if HEED_CEILING_HAVE_AVX512
#define AVX512(run) run
#else
#define AVX512(run) NULL
#endif
#if HEED_CEILING_HAVE_BF16
#define BF16(run) run
#else
#define BF16(run) NULL
#endif
#if HEED_CEILING_HAVE_AMX
#define AMX(run) run
#else
#define AMX(run) NULL
#endif

static const kind kinds[HEED_CEILING_COUNT] = {
    [HEED_CEILING_FMA_AVX2] = {"fma_avx2", ISA_AVX2, "this CPU has no AVX2 and FMA",
                               AVX2(heed_ceiling_run_fma_avx2), HEED_FMA_AVX2_FLOPS, NULL},
    [HEED_CEILING_FMA_AVX512] = {"fma_avx512", ISA_AVX512, "this CPU has no AVX-512 F and VL",
                                 AVX512(heed_ceiling_run_fma_avx512), HEED_FMA_AVX512_FLOPS, NULL},
    [HEED_CEILING_FMA_AVX512_FED] = {"fma_avx512_fed", ISA_AVX512,
                                     "this CPU has no AVX-512 F and VL",
                                     AVX512(heed_ceiling_run_fma_avx512_fed), HEED_FMA_FED_FLOPS,
                                     AVX512(heed_ceiling_prepare_fma_avx512_fed)},
    [HEED_CEILING_DP_BF16] = {"dp_bf16", ISA_BF16, "this CPU has no AVX512_BF16",
                              BF16(heed_ceiling_run_dp_bf16), HEED_DP_BF16_FLOPS, NULL},
    [HEED_CEILING_AMX_BF16] = {"amx_bf16", ISA_AMX,
                               "this CPU has no AMX for bf16, or the kernel does not permit it",
                               AMX(heed_ceiling_run_amx_bf16), HEED_AMX_BF16_FLOPS, NULL},
    [HEED_CEILING_AMX_BF16_FED] = {"amx_bf16_fed", ISA_AMX,
                                   "this CPU has no AMX for bf16, or the kernel does not permit it",
                                   AMX(heed_ceiling_run_amx_bf16_fed), HEED_AMX_FED_FLOPS,
                                   AMX(heed_ceiling_prepare_amx_bf16_fed)},
};

const char *heed_ceiling_name(int which)
{
    return which >= 0 && which < HEED_CEILING_COUNT ? kinds[which].name : "none";
}

const char *heed_ceiling_refusal(int which)
{
    if (which < 0 || which >= HEED_CEILING_COUNT)
        return "no such ceiling";
    if (!kinds[which].run)
        return "the compiler that built this program does not know its instructions";
    return (isa() & kinds[which].needs) == kinds[which].needs ? NULL : kinds[which].refusal;
}

/* ---- timing ---------------------------------------------------------------------------------- */

/* The numbers of batches whose median is taken. While other processes have the CPU, time passes
 * without work: such a pause makes one batch slow, and the others have to outvote it. */
enum { MAX_BATCHES = 4096, FEWEST_BATCHES = 11 };
static const double batch_seconds = 50e-6;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The part that one thread has in a measurement. */
typedef struct worker {
    const kind *kind; /* NULL: read memory */
    const char *base; /* the thread's part of the buffer */
    size_t section, offset, step;
    heed_read_form form;
    double seconds, rate; /* rate is the result, in work per second */
    atomic_uint *waiting;
    volatile float kept; /* the result of a loop, which keeps the compiler from removing it */
} worker;

/* Does one batch and returns its work, in FLOPs or bytes. */
static double batch(worker *w, size_t iterations)
{
    if (w->kind) {
        w->kept = w->kind->run(iterations);
        return w->kind->flops * (double)iterations;
    }
    const size_t length = iterations * w->step;
    if (w->offset + length > w->section)
        w->offset = 0;
    const char *base = w->base + w->offset;
    const heed_read_form *form = &w->form;
    w->offset += length;
    switch (form->vector_bytes) {
#if HEED_CEILING_HAVE_AVX512
    case 64:
        w->kept = heed_ceiling_read_64(base, w->section, length, form);
        break;
#endif
#if HEED_CEILING_HAVE_AVX2
    case 32:
        w->kept = heed_ceiling_read_32(base, w->section, length, form);
        break;
#endif
    default:
        w->kept = heed_ceiling_read_16(base, w->section, length, form);
    }
    return (double)length * form->streams;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *measure(void *arg)
{
    worker *w = arg;
    double *rates = malloc(MAX_BATCHES * sizeof *rates);
    size_t n_rates = 0, iterations = 1;
    if (w->waiting) { /* all start together */
        atomic_fetch_sub(w->waiting, 1);
        while (atomic_load(w->waiting) > 0)
            ;
    }
    const double start = now();
    double from = start, at = start;
    if (!rates)
        return NULL;
    while (n_rates < MAX_BATCHES && (at - start < w->seconds || n_rates < FEWEST_BATCHES)) {
        const double work = batch(w, iterations);
        at = now();
        if (at - from < batch_seconds / 2 && iterations < ((size_t)1 << 30)) {
            iterations *= 2; /* the batch was too short for a good time */
            if (!w->kind && iterations * w->step > w->section / 2)
                iterations /= 2, rates[n_rates++] = work / (at - from);
        } else if (at - start > w->seconds / 5) { /* by then the clock has settled */
            rates[n_rates++] = work / (at - from);
        }
        from = at;
    }
    qsort(rates, n_rates, sizeof *rates, by_size);
    w->rate = rates[n_rates / 2];
    free(rates);
    return NULL;
}

/* The work per second of all workers together; 0 if the threads cannot be created. */
static double measure_all(worker *workers, unsigned n)
{
    atomic_uint waiting = n;
    pthread_t *threads = calloc(n, sizeof *threads);
    unsigned started = 1;
    double sum = 0;
    if (!threads)
        return 0;
    for (unsigned i = 0; i < n; i++)
        workers[i].waiting = n > 1 ? &waiting : NULL;
    while (started < n && pthread_create(&threads[started], NULL, measure, &workers[started]) == 0)
        started++;
    if (started == n)
        measure(&workers[0]);
    else
        atomic_fetch_sub(&waiting, n - started + 1); /* releases those that wait */
    for (unsigned i = 1; i < started; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < n; i++)
        sum += workers[i].rate;
    free(threads);
    return started == n ? sum : 0;
}

double heed_ceiling_gflops(int which, unsigned n_threads, double seconds)
{
    if (heed_ceiling_refusal(which) || n_threads == 0)
        return 0;
    worker *workers = calloc(n_threads, sizeof *workers);
    if (!workers)
        return 0;
    if (kinds[which].prepare)
        kinds[which].prepare();
    for (unsigned i = 0; i < n_threads; i++)
        workers[i] = (worker){.kind = &kinds[which], .seconds = seconds};
    const double rate = measure_all(workers, n_threads);
    free(workers);
    return rate * 1e-9;
}

/* ---- reading --------------------------------------------------------------------------------- */

enum { MAX_THREADS = 1024, PAGE = 4096 };
static heed_read_form chosen[MAX_THREADS + 1]; /* by threads; 0 streams: not chosen yet */
static size_t position;                        /* where in each section the last call stopped */

static double read_gbps(const char *buffer, size_t bytes, unsigned n_threads, double seconds,
                        heed_read_form form)
{
    worker *workers = calloc(n_threads, sizeof *workers);
    if (!workers)
        return 0;
    const size_t section = bytes / n_threads / form.streams / PAGE * PAGE;
    for (unsigned i = 0; i < n_threads; i++)
        workers[i] = (worker){.base = buffer + i * section * form.streams,
                              .section = section,
                              .offset = section ? position % section : 0,
                              .step = PAGE,
                              .form = form,
                              .seconds = seconds};
    const double rate = section < 2 * PAGE ? 0 : measure_all(workers, n_threads);
    position = workers[0].offset;
    free(workers);
    return rate * 1e-9;
}

typedef struct candidate {
    double gbps;
    heed_read_form form;
} candidate;

static int by_speed(const void *a, const void *b)
{
    const double x = ((const candidate *)a)->gbps, y = ((const candidate *)b)->gbps;
    return (x < y) - (x > y);
}

/* Tries every form for a moment, then the best few again, in turn, since one moment may be
 * disturbed. */
static heed_read_form best_form(const char *buffer, size_t bytes, unsigned n_threads)
{
    static const unsigned streams[] = {1, 2, 4, 8, 16}, ahead[] = {0, 512, 1024, 2048, 4096};
    enum { HINTS = 3, N_FORMS = 5 * 5 * HINTS, FINALISTS = 6, ROUNDS = 3 };
    const unsigned width = HEED_CEILING_HAVE_AVX512 && (isa() & ISA_AVX512) ? 64
                           : HEED_CEILING_HAVE_AVX2 && (isa() & ISA_AVX2)   ? 32
                                                                            : 16;
    candidate tried[N_FORMS];
    for (unsigned i = 0; i < N_FORMS; i++) {
        tried[i].form =
            (heed_read_form){streams[i / HINTS / 5], ahead[i / HINTS % 5], i % HINTS, width};
        const int repeated = tried[i].form.ahead == 0 && tried[i].form.hint != 0;
        tried[i].gbps = repeated ? 0 : read_gbps(buffer, bytes, n_threads, 4e-3, tried[i].form);
    }
    qsort(tried, N_FORMS, sizeof *tried, by_speed);
    for (int i = 0; i < FINALISTS; i++)
        tried[i].gbps = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < FINALISTS; i++)
            tried[i].gbps += read_gbps(buffer, bytes, n_threads, 10e-3, tried[i].form);
    qsort(tried, FINALISTS, sizeof *tried, by_speed);
    return tried[0].form;
}

double heed_ceiling_read_gbps(const void *buffer, size_t bytes, unsigned n_threads, double seconds)
{
    if (n_threads == 0 || n_threads > MAX_THREADS || bytes < ((size_t)16 << 20))
        return 0;
    const size_t skip = (PAGE - (size_t)buffer % PAGE) % PAGE;
    const char *base = (const char *)buffer + skip;
    if (chosen[n_threads].streams == 0)
        chosen[n_threads] = best_form(base, bytes - skip, n_threads);
    return read_gbps(base, bytes - skip, n_threads, seconds, chosen[n_threads]);
}

const char *heed_ceiling_read_form(unsigned n_threads)
{
    static const char *const hints[] = {"T0", "T1", "NTA"};
    static char text[96];
    const heed_read_form *form = &chosen[n_threads <= MAX_THREADS ? n_threads : 0];
    if (form->streams == 0)
        return "";
    if (form->ahead)
        snprintf(text, sizeof text, "%u streams, prefetch %s +%u B, %u B loads", form->streams,
                 hints[form->hint], form->ahead, form->vector_bytes);
    else
        snprintf(text, sizeof text, "%u streams, no prefetch, %u B loads", form->streams,
                 form->vector_bytes);
    return text;
}
