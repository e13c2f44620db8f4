/* CPUID and XGETBV. Built for the baseline CPU: this code asks whether wider code may run. */
#include "cpu.h"

#include <string.h>
#include <unistd.h>

static const char *const isa_names[] = {
    "sse2",     "avx2",     "fma",         "f16c",        "avx512f",     "avx512bw",
    "avx512dq", "avx512vl", "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_tile",
    "amx_bf16", "amx_int8", "avx_vnni",    "avx512_vbmi",
};

const char *heed_cpu_isa_name(unsigned bit)
{
    return bit < sizeof isa_names / sizeof *isa_names ? isa_names[bit] : NULL;
}

#if defined(__x86_64__)
#include <cpuid.h>

/* What the operating system has switched on: bits of XCR0. */
#define XCR0_YMM 0x6u
#define XCR0_ZMM 0xe6u
#define XCR0_TILE 0x60000u

static uint32_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static uint64_t has(uint32_t word, unsigned bit, uint64_t flag)
{
    return word >> bit & 1u ? flag : 0;
}

static void detect_x86(heed_cpu *cpu)
{
    uint32_t a = 0, b, c, d, top, xcr0 = 0, leaf1_c = 0, leaf1_d = 0;
    if (!__get_cpuid(0, &top, &b, &c, &d))
        return;
    memcpy(cpu->vendor, &b, 4);
    memcpy(cpu->vendor + 4, &d, 4);
    memcpy(cpu->vendor + 8, &c, 4);
    __get_cpuid(1, &a, &b, &leaf1_c, &leaf1_d);
    cpu->family = (a >> 8 & 15) + ((a >> 8 & 15) == 15 ? a >> 20 & 255 : 0);
    cpu->model = (a >> 4 & 15) | (a >> 16 & 15) << 4;
    cpu->isa = has(leaf1_d, 26, HEED_ISA_SSE2);
    if (leaf1_c >> 27 & 1) /* OSXSAVE: XGETBV exists */
        xcr0 = read_xcr0();
    if ((xcr0 & XCR0_YMM) != XCR0_YMM || !(leaf1_c >> 28 & 1))
        return;
    cpu->isa |= has(leaf1_c, 12, HEED_ISA_FMA) | has(leaf1_c, 29, HEED_ISA_F16C);
    if (top < 7 || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return;
    cpu->isa |= has(b, 5, HEED_ISA_AVX2);
    uint32_t subleaves = a, a1 = 0, b1, c1, d1;
    if (subleaves >= 1)
        __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
    cpu->isa |= has(a1, 4, HEED_ISA_AVX_VNNI);
    if ((xcr0 & XCR0_ZMM) == XCR0_ZMM && (b >> 16 & 1))
        cpu->isa |= HEED_ISA_AVX512F | has(b, 17, HEED_ISA_AVX512DQ) |
                    has(b, 30, HEED_ISA_AVX512BW) | has(b, 31, HEED_ISA_AVX512VL) |
                    has(a1, 5, HEED_ISA_AVX512_BF16) | has(d, 23, HEED_ISA_AVX512_FP16) |
                    has(c, 11, HEED_ISA_AVX512_VNNI) | has(c, 1, HEED_ISA_AVX512_VBMI);
    if ((xcr0 & XCR0_TILE) == XCR0_TILE)
        cpu->isa |= has(d, 24, HEED_ISA_AMX_TILE) | has(d, 22, HEED_ISA_AMX_BF16) |
                    has(d, 25, HEED_ISA_AMX_INT8);
}
#endif

/* A feature bit says what exists, not what is fast. Measured: vdpbf16ps runs at twice the rate of
 * f32 FMA on Zen 5 and at half of it on the Intel cores that have it. */
static uint64_t fast_here(const heed_cpu *cpu)
{
    uint64_t fast = cpu->isa;
    if (strcmp(cpu->vendor, "AuthenticAMD") != 0)
        fast &= ~HEED_ISA_AVX512_BF16;
    return fast;
}

static uint32_t cache_bytes(int name)
{
    long bytes = sysconf(name);
    return bytes > 0 && bytes <= UINT32_MAX ? (uint32_t)bytes : 0;
}

void heed_cpu_detect(heed_cpu *cpu)
{
    memset(cpu, 0, sizeof *cpu);
    cpu->struct_size = sizeof *cpu;
#if defined(__x86_64__)
    detect_x86(cpu);
#endif
    cpu->fast = fast_here(cpu);
#ifdef _SC_LEVEL1_DCACHE_SIZE
    cpu->l1d_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
    cpu->l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
    cpu->l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
#endif
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    cpu->n_cores = cores > 0 ? (uint32_t)cores : 1;
}

int heed_cpu_cap(heed_cpu *cpu, const char *max_isa)
{
    const uint64_t baseline = HEED_ISA_SSE2;
    const uint64_t avx2 =
        baseline | HEED_ISA_AVX2 | HEED_ISA_FMA | HEED_ISA_F16C | HEED_ISA_AVX_VNNI;
    const uint64_t amx = HEED_ISA_AMX_TILE | HEED_ISA_AMX_BF16 | HEED_ISA_AMX_INT8;
    uint64_t allowed;
    if (!strcmp(max_isa, "baseline"))
        allowed = baseline;
    else if (!strcmp(max_isa, "avx2"))
        allowed = avx2;
    else if (!strcmp(max_isa, "avx512"))
        allowed = ~amx;
    else if (!strcmp(max_isa, "amx"))
        allowed = ~UINT64_C(0);
    else
        return 1;
    cpu->isa &= allowed;
    cpu->fast &= allowed;
    return 0;
}
