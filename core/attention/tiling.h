/* Tilings of attention that kernels give. */
#ifndef HEED_CORE_TILING_H
#define HEED_CORE_TILING_H

#include <heed/backend.h>

/* The name of a member of a kernel's tiling that core cannot work with; NULL: none. */
const char *heed_tiling_flaw(const heed_attn_kernel *kernel, const heed_tiling *tiling);

#endif
