/* The AMX kernels on the model of the tile unit, as a plugin, for `heed check --backend amx_model`
 * on any machine. */
#include "amx.h"

const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size)
{
    (void)host_struct_size;
    return host_abi == HEED_BACKEND_ABI ? heed_amx_model_backend() : NULL;
}
