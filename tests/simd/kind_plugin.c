/* The avx2 or avx512 backend (KIND_OF) as it is on a CPU of another kind, as a plugin under the name
 * avx2_of_kind or avx512_of_kind: backends/simd/tuning.c chooses orders of reading and loops by kind, and on
 * one machine alone most of them would never run. HEED_TEST_KIND names the kind; without it the plugin
 * cannot run. */
#include <stdlib.h>
#include <string.h>

#include "../../backends/simd/simd.h"

#define TEXT_OF(x) #x
#define NAME_OF(x) TEXT_OF(x) "_of_kind"
#define ENTRY_OF(x) heed_##x##_backend
#define ENTRY(x) ENTRY_OF(x)

const heed_backend *ENTRY(KIND_OF)(void);

/* What tuning.c tells kinds apart by. */
static const struct kind {
    const char *name, *vendor;
    uint32_t l1d_bytes;
    uint64_t lacks; /* HEED_ISA_* */
} kinds[] = {
    {"intel", "GenuineIntel", 48u << 10, 0},
    {"zen3", "AuthenticAMD", 32u << 10, HEED_ISA_AVX512F},
    {"zen4", "AuthenticAMD", 32u << 10, 0},
    {"zen5", "AuthenticAMD", 48u << 10, 0},
};

static heed_status open_machine(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    const char *name = getenv("HEED_TEST_KIND");
    heed_cpu of = *cpu;
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(name, kinds[i].name) == 0) {
            memset(of.vendor, 0, sizeof of.vendor);
            memcpy(of.vendor, kinds[i].vendor, strlen(kinds[i].vendor));
            of.l1d_bytes = kinds[i].l1d_bytes;
            of.isa &= ~kinds[i].lacks;
            return ENTRY(KIND_OF)()->open(&of, machine, why);
        }
    heed_refuse(why, "HEED_TEST_KIND is '%s': no kind of CPU", name ? name : "");
    return HEED_ERR_UNSUPPORTED;
}

const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size)
{
    static heed_backend backend;
    (void)host_struct_size;
    backend = *ENTRY(KIND_OF)();
    backend.name = NAME_OF(KIND_OF);
    backend.open = open_machine;
    return host_abi == HEED_BACKEND_ABI ? &backend : NULL;
}
