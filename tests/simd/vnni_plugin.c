/* The avx2 backend of another CPU as a plugin, under another name: of one with AVX-VNNI, on the model of its
 * instruction (vnni_model.h), or of one without, whichever the CPU at hand is. */
#include "../../backends/simd/simd.h"

const heed_backend *heed_avx2_backend(void);

static heed_status open_machine(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    heed_cpu with = *cpu;
    with.isa |= HEED_ISA_AVX_VNNI;
    return heed_avx2_backend()->open(&with, machine, why);
}

const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size)
{
    static heed_backend backend;
    (void)host_struct_size;
    backend = *heed_avx2_backend();
    backend.name = HEED_AVX2_HAVE_VNNI ? "avx_vnni_model" : "avx2_without_vnni";
    backend.open = open_machine;
    return host_abi == HEED_BACKEND_ABI ? &backend : NULL;
}
