/* Tilings of attention that backends give. */
#ifndef HEED_CORE_TILING_H
#define HEED_CORE_TILING_H

#include <heed/backend.h>

/* The member of a backend's tiling that core cannot work with; NULL: none. */
const char *heed_tiling_flaw(const heed_backend *backend, const heed_tiling *tiling);

#endif
