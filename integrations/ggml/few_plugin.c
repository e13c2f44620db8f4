/* For tests: the backend naive as a plugin, under the name FEW_NAME and without the features FEW_LACKS. Made of
 * this file and those of backends/naive. */
#include <heed/backend.h>

const heed_backend *heed_naive_backend(void);

const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size)
{
    static heed_attn_kernel kernel;
    static const heed_attn_kernel *const attn[] = {&kernel};
    static heed_backend backend;
    (void)host_struct_size;
    kernel = *heed_naive_backend()->attn[0];
    kernel.features &= ~(FEW_LACKS);
    backend = *heed_naive_backend();
    backend.name = FEW_NAME;
    backend.attn = attn;
    return host_abi == HEED_BACKEND_ABI ? &backend : NULL;
}
