/* Entries in the tables of the backends whose kernels are those of this folder. */
#ifndef HEED_SIMD_TABLES_H
#define HEED_SIMD_TABLES_H

#include "simd.h"

/* The kernel `id` of attention, run by run_<id>: its support and cost are heed_simd_<id>_*, its
 * tiling is heed_simd_<tiles>_tiling. */
#define HEED_SIMD_ATTN(id, tiles, flag)                                                            \
    static const heed_attn_kernel id = {                                                           \
        .struct_size = sizeof id,                                                                  \
        .name = #id,                                                                               \
        .features = HEED_SIMD_FEATURES,                                                            \
        .flags = flag,                                                                             \
        .supports = heed_simd_##id##_supports,                                                     \
        .cost = heed_simd_##id##_cost,                                                             \
        .tiling = heed_simd_##tiles##_tiling,                                                      \
        .run = run_##id,                                                                           \
    }

/* The kernel `id` of linear layers, likewise, run by a function. */
#define HEED_SIMD_LINEAR(id, text, function)                                                       \
    static const heed_linear_kernel id = {                                                         \
        .struct_size = sizeof id,                                                                  \
        .name = text,                                                                              \
        .supports = heed_simd_##id##_supports,                                                     \
        .cost = heed_simd_##id##_cost,                                                             \
        .tiling = heed_simd_##id##_tiling,                                                         \
        .pack = heed_simd_##id##_pack,                                                             \
        .run = function,                                                                           \
    }

#endif
