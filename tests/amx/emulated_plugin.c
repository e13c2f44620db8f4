/* The AMX kernels as they are compiled for the hardware, on emulated tile instructions, as a
 * plugin: `heed check --backend amx_emulated` on any CPU with AVX-512. */
#include "emulate.h"

#include "amx.h"

const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size)
{
    static heed_backend table;
    (void)host_struct_size;
    table = *heed_amx_backend();
    table.name = "amx_emulated";
    table.summary = "the AMX kernels on emulated tile instructions (for tests)";
    table.open = heed_amx_emulate;
    return host_abi == HEED_BACKEND_ABI ? &table : NULL;
}
